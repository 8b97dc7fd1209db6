//! Verify: replays the log through the rules and compares with what is stored.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use semel_core::ledger::{Decision, Record};

use super::{Engine, payload_of};
use crate::error::Result;
use crate::store::{Current, Logged, PAGE_MAX, Place, Query, Stored};

/// What was verified, and the first thing that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many log entries were replayed.
    pub entries: u64,
    /// How many records were compared.
    pub records: u64,
    /// How many payloads were checked against their digests.
    pub payloads: u64,
    /// The first difference between what the log folds to and what is stored.
    pub difference: Option<Difference>,
}

impl Verified {
    /// Says whether nothing is wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.difference.is_none()
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The log entry at which it shows, if it is one.
    pub seq: Option<u64>,
    /// The place of the record.
    pub place: Option<Place>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.seq, self.place) {
            (Some(seq), _) => write!(f, "log entry {seq}: {}", self.what),
            (None, Some(place)) => write!(f, "record {}: {}", place.0, self.what),
            (None, None) => f.write_str(&self.what),
        }
    }
}

/// A replay under way: records whose last log entry has not been reached yet.
#[derive(Default)]
struct Replay {
    open: HashMap<Place, Option<Record>>,
    next_seq: u64,
    placed: u64,
    report: Verified,
}

impl Engine {
    /// Replays the whole log and compares every record, its place in the index and its payload.
    ///
    /// Memory holds only the records that are between two of their entries, so it stays small
    /// however long the log is. The store may be in use.
    ///
    /// # Errors
    /// Fails when the store does. What is wrong with the store is the answer, not an error.
    pub async fn verify(&self) -> Result<Verified> {
        let mut replay = Replay {
            next_seq: 1,
            ..Replay::default()
        };
        loop {
            let page = self
                .inner
                .ledger
                .store
                .log(replay.next_seq - 1, PAGE_MAX)
                .await?;
            if page.is_empty() {
                break;
            }
            for logged in page {
                if let Err(difference) = self.replay(&mut replay, logged).await? {
                    replay.report.difference = Some(difference);
                    return Ok(replay.report);
                }
            }
        }
        if let Err(difference) = self.check_rest(&mut replay).await? {
            replay.report.difference = Some(difference);
        }
        Ok(replay.report)
    }

    /// Replays one entry; when it is the record's last one, compares.
    async fn replay(
        &self,
        replay: &mut Replay,
        logged: Logged,
    ) -> Result<std::result::Result<(), Difference>> {
        let Logged { seq, place, entry } = logged;
        let wrong = |what: String| Difference {
            seq: Some(seq),
            place,
            what,
        };
        if seq != replay.next_seq {
            return Ok(Err(wrong(format!("entry {} is missing", replay.next_seq))));
        }
        replay.next_seq += 1;
        replay.report.entries += 1;
        let current = match place {
            None => None,
            Some(place) if place.0 == seq => None,
            Some(place) => match replay.open.remove(&place) {
                Some(current) => current,
                None => return Ok(Err(wrong("the record was final before it".to_owned()))),
            },
        };
        let decision = (self.inner.ledger.rules)(current.as_ref(), &entry.command, entry.at);
        let next = match decision {
            Ok(Decision::Write(write)) => {
                let state = write.next.as_ref().map(Record::kind);
                if (state, &write.events) != (entry.state, &entry.events) {
                    return Ok(Err(wrong(format!(
                        "`{}` leads to {state:?} with {:?}, the log says {:?} with {:?}",
                        entry.command.name(),
                        write.events,
                        entry.state,
                        entry.events,
                    ))));
                }
                write.next
            }
            Ok(Decision::Answer(_)) | Err(_) => {
                let what = format!("`{}` was not to be accepted", entry.command.name());
                return Ok(Err(wrong(what)));
            }
        };
        let Some(place) = place else {
            return Ok(Ok(()));
        };
        if place.0 == seq {
            replay.placed += 1;
        }
        let stored = self.inner.ledger.store.load_at(place).await?;
        self.compare(replay, place, next, stored).await
    }

    /// Compares a replayed record with the stored one, if it has reached its version.
    async fn compare(
        &self,
        replay: &mut Replay,
        place: Place,
        next: Option<Record>,
        stored: Option<Stored>,
    ) -> Result<std::result::Result<(), Difference>> {
        let wrong = |what: &str| Difference {
            seq: None,
            place: Some(place),
            what: what.to_owned(),
        };
        match (next, stored) {
            (None, None) => {
                replay.placed -= 1;
                Ok(Ok(()))
            }
            (Some(next), Some(stored)) if next.version() == stored.record.version() => {
                if next != *stored.record {
                    return Ok(Err(wrong("the log folds to another record")));
                }
                replay.report.records += 1;
                self.check_place_and_payload(replay, &stored).await
            }
            (Some(next), Some(stored)) if next.version() > stored.record.version() => {
                Ok(Err(wrong("the log is ahead of the stored record")))
            }
            // Later entries will bring it on.
            (next, _) => {
                replay.open.insert(place, next);
                Ok(Ok(()))
            }
        }
    }

    async fn check_place_and_payload(
        &self,
        replay: &mut Replay,
        stored: &Stored,
    ) -> Result<std::result::Result<(), Difference>> {
        let wrong = |what: &str| Difference {
            seq: None,
            place: Some(stored.place),
            what: what.to_owned(),
        };
        let store = &self.inner.ledger.store;
        match store.load(&stored.record.key_hash()).await? {
            Current::Stored(found) if found.place == stored.place => {}
            Current::Stored(_) | Current::Absent(_) => {
                return Ok(Err(wrong("its key does not lead to it")));
            }
        }
        if let Some(payload) = payload_of(&stored.record) {
            let Some(bytes) = store.payload(stored.place).await? else {
                return Ok(Err(wrong("its payload is gone")));
            };
            if semel_core::Digest::of(&bytes) != payload.digest {
                return Ok(Err(wrong("its payload does not match its digest")));
            }
            replay.report.payloads += 1;
        }
        Ok(Ok(()))
    }

    /// Compares what was left open, and looks for records that the log does not know.
    async fn check_rest(&self, replay: &mut Replay) -> Result<std::result::Result<(), Difference>> {
        let store = Arc::clone(&self.inner.ledger.store);
        for (place, _) in std::mem::take(&mut replay.open) {
            // A change while verifying is no difference: only what has not moved since counts.
            if store.log(replay.next_seq - 1, 1).await?.is_empty() {
                let what = match store.load_at(place).await? {
                    None => "the record has vanished".to_owned(),
                    Some(_) => "the stored record is ahead of the log".to_owned(),
                };
                return Ok(Err(Difference {
                    seq: None,
                    place: Some(place),
                    what,
                }));
            }
        }
        let mut cursor = None;
        let mut rows = 0u64;
        loop {
            let states = semel_core::ledger::StateKind::ALL.to_vec();
            let query = Query {
                states,
                oldest_first: true,
                cursor,
                limit: PAGE_MAX,
                ..Query::default()
            };
            let page = store.list(query).await?;
            rows += page
                .items
                .iter()
                .filter(|stored| stored.place.0 < replay.next_seq)
                .count() as u64;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        if rows > replay.placed {
            let what = format!("{rows} records are stored, the log knows {}", replay.placed);
            return Ok(Err(Difference {
                seq: None,
                place: None,
                what,
            }));
        }
        Ok(Ok(()))
    }
}
