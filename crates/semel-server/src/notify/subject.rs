//! What a notification is about, and how it is named.

use semel::core::ledger::{Operation, Record, StateKind};
use semel::core::{Digest, KeyHash};
use semel::{Key, Timestamp};

/// One doubt, or one death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    pub(super) kind: Kind,
    pub(super) hash: KeyHash,
    /// Tells this doubt from the operation's other ones. For a doubt it is when its oldest open attempt began:
    /// neither writing an ended lease down nor a probe that finds nothing makes another doubt of it. For a
    /// death it is the fence of the last attempt.
    mark: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Doubt,
    Dead,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Doubt => "doubt",
            Self::Dead => "dead",
        }
    }
}

impl Subject {
    /// Finds what is to be told about an operation as of now, if anything is.
    pub(super) fn of(operation: &Operation, now: Timestamp) -> Option<Self> {
        if super::is_own(&operation.spec.namespace) {
            return None;
        }
        let judged = operation.judged_at(now);
        let (kind, mark) = match judged.state.kind() {
            StateKind::Doubtful => (Kind::Doubt, judged.open_since()?.0.unsigned_abs()),
            StateKind::Dead => (Kind::Dead, judged.fence.0),
            StateKind::Pending
            | StateKind::Running
            | StateKind::Succeeded
            | StateKind::Failed
            | StateKind::Tombstone
            | StateKind::Stub
            | StateKind::Breaker(_) => return None,
        };
        let hash = KeyHash::of(&operation.spec.namespace, &operation.spec.key);
        Some(Self { kind, hash, mark })
    }

    /// Says whether this is what is to be told about a record as of now.
    pub(super) fn is_open<'a>(&self, record: &'a Record, now: Timestamp) -> Option<&'a Operation> {
        let operation = record.operation()?;
        (Self::of(operation, now)? == *self).then_some(operation)
    }

    /// Returns the key of its notification through a channel.
    pub(super) fn key(&self, channel: &str) -> Result<Key, semel::Error> {
        let (kind, hash, mark) = (self.kind.as_str(), self.hash.0, self.mark);
        Key::new(&format!("notify:{channel}:{kind}:{hash}:{mark}"))
            .map_err(|error| semel::Error::InvalidInput(error.to_string()))
    }

    /// Reads the key of a notification.
    pub(super) fn read(key: &Key) -> Option<Self> {
        let mut parts = key.as_str().split(':');
        let (what, _channel) = (parts.next()?, parts.next()?);
        let (kind, hash, mark) = (parts.next()?, parts.next()?, parts.next()?);
        let kind = [Kind::Doubt, Kind::Dead]
            .into_iter()
            .find(|known| known.as_str() == kind)?;
        let hash = KeyHash(digest(hash)?);
        let mark = mark.parse().ok()?;
        (what == "notify" && parts.next().is_none()).then_some(Self { kind, hash, mark })
    }
}

fn digest(hex: &str) -> Option<Digest> {
    let mut bytes = [0; 32];
    if hex.len() != 2 * bytes.len() || !hex.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(Digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_it_is_about() {
        let subject = Subject {
            kind: Kind::Dead,
            hash: KeyHash(Digest::of(b"x")),
            mark: u64::MAX,
        };
        let key = subject.key("webhook").expect("it is a key");
        assert_eq!(Subject::read(&key), Some(subject));
        for text in ["x", "notify:webhook:dead:00:1", "notify:a:doubt:é:1"] {
            assert_eq!(
                Key::new(text).ok().and_then(|key| Subject::read(&key)),
                None
            );
        }
    }
}
