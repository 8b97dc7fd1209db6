//! Receipts: the answer to every attempt.

use semel_core::ledger::{Record, State, StateKind};
use semel_core::{Effect, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

/// Says what happened, to a person and to a program.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    /// Whether the operation ended in success.
    pub ok: bool,
    /// What this call did: a replay did nothing.
    #[serde(serialize_with = "effect_word")]
    pub effect: Effect,
    /// Whether the answer is that of an earlier attempt.
    pub replayed: bool,
    /// What the replayed attempt did.
    #[serde(
        serialize_with = "effect_word_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub original_effect: Option<Effect>,
    /// What a retried operation's earlier attempts did.
    #[serde(
        serialize_with = "effect_word_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub previous_effect: Option<Effect>,
    /// Why, in words.
    pub reason: Option<String>,
    /// The wall.
    pub namespace: String,
    /// The key.
    pub key: String,
    /// What is done.
    pub name: String,
    /// Where the operation stands.
    pub state: &'static str,
    /// The number of the attempt.
    pub attempt: u32,
    /// The fence of the newest attempt.
    pub fence: u64,
    /// When the newest attempt began.
    pub started_at: Option<String>,
    /// When the operation was settled.
    pub settled_at: Option<String>,
    /// What the action answered.
    pub data: Option<Box<RawValue>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn effect_word<S: serde::Serializer>(effect: &Effect, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(effect.as_str())
}

fn effect_word_option<S: serde::Serializer>(
    effect: &Option<Effect>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match effect {
        Some(effect) => serializer.serialize_str(effect.as_str()),
        None => serializer.serialize_none(),
    }
}

impl Receipt {
    /// Makes the receipt of a record; `replayed` says that an earlier attempt did it.
    pub(crate) fn of(
        record: &Record,
        replayed: bool,
        payload: Option<&[u8]>,
        now: Timestamp,
    ) -> Option<Self> {
        let operation = record.operation()?;
        let spec = &operation.spec;
        let settled = operation.settled();
        let own = match &operation.state {
            State::Succeeded(settled) | State::Failed(settled) => settled.outcome.effect,
            State::Pending | State::Dead => Effect::Noop,
            State::Running { .. } | State::Doubtful => Effect::Unknown,
        };
        Some(Self {
            ok: operation.state.kind() == StateKind::Succeeded,
            effect: if replayed { Effect::Noop } else { own },
            replayed,
            original_effect: replayed.then_some(own),
            previous_effect: None,
            reason: settled
                .filter(|_| replayed)
                .map(|settled| format!("already done {} ago", ago(now, settled.at))),
            namespace: spec.namespace.to_string(),
            key: spec.key.to_string(),
            name: spec.name.to_string(),
            state: operation.state.kind().as_str(),
            attempt: operation.attempt,
            fence: operation.fence.0,
            started_at: operation
                .latest()
                .map(|attempt| attempt.started_at.to_string()),
            settled_at: settled.map(|settled| settled.at.to_string()),
            data: payload.and_then(as_json),
        })
    }

    /// Returns what a failed action answered, for messages.
    pub(crate) fn failure_text(&self) -> String {
        let text = self.data.as_deref().map(RawValue::get);
        text.map_or_else(
            || "no reason was recorded".to_owned(),
            |json| serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned()),
        )
    }
}

/// Takes a payload that is JSON as it is.
fn as_json(payload: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(payload).ok()?;
    RawValue::from_string(text.to_owned()).ok()
}

/// Says how long ago something was, in one unit.
fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.since(then).as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        86_400.. => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_said_in_one_unit() {
        let then = Timestamp(0);
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (180, "3 min"),
            (7_200, "2 h"),
            (172_800, "2 d"),
        ] {
            let now = then.plus(std::time::Duration::from_secs(seconds));
            assert_eq!(ago(now, then), text);
        }
    }
}
