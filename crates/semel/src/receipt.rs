//! Receipts: the answer to every attempt.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use semel_core::ledger::{Operation, Record, Spec, State, StateKind};
use semel_core::{Effect, Key, Label, Namespace, Redactor, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::answer_view::AnswerView;
use crate::engine::Request;
use crate::store::Current;

/// Says what happened, to a person and to a program.
///
/// Serialized, it is the JSON object that every door answers with.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    /// Whether the operation ended in success.
    pub ok: bool,
    /// What this call did: a replay did nothing.
    #[serde(serialize_with = "as_text")]
    pub effect: Effect,
    /// Whether the answer is that of an earlier attempt.
    pub replayed: bool,
    /// What the replayed attempt did.
    #[serde(
        serialize_with = "as_text_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub original_effect: Option<Effect>,
    /// What a retried operation's earlier attempts did.
    #[serde(
        serialize_with = "as_text_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub previous_effect: Option<Effect>,
    /// The policies that stand, where this call asked for others: those of the first call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_kept: Option<String>,
    /// Why, in words.
    pub reason: Option<String>,
    /// The wall.
    #[serde(serialize_with = "as_text")]
    pub namespace: Namespace,
    /// The key.
    #[serde(serialize_with = "as_text")]
    pub key: Key,
    /// What is done.
    #[serde(serialize_with = "as_text")]
    pub name: Label,
    /// Where the operation stands.
    #[serde(serialize_with = "state_word")]
    pub state: StateKind,
    /// The number of the attempt.
    pub attempt: u32,
    /// The fence of the newest attempt.
    pub fence: u64,
    /// When the newest attempt began.
    #[serde(serialize_with = "as_text_option")]
    pub started_at: Option<Timestamp>,
    /// When the operation was settled.
    #[serde(serialize_with = "as_text_option")]
    pub settled_at: Option<Timestamp>,
    /// Whether a rule took something out of the answer.
    #[serde(skip_serializing_if = "is_false")]
    pub redacted: bool,
    /// What the action answered; in JSON it is `data`, where it is JSON itself or an answer over HTTP.
    #[serde(rename = "data", serialize_with = "as_json")]
    pub payload: Option<Arc<[u8]>>,
}

pub(crate) fn as_text<T: Display, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn as_text_option<T: Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(crate) fn state_word<S: Serializer>(
    state: &StateKind,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.as_str())
}

pub(crate) fn as_json<S: Serializer>(
    payload: &Option<Arc<[u8]>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let stored = payload.as_deref();
    if let Some(answer) = stored.and_then(AnswerView::read) {
        return answer.shown(&Redactor::default()).serialize(serializer);
    }
    stored.and_then(json_of).serialize(serializer)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}

/// Says whether a rule took something out of an operation's answer.
pub(crate) fn is_redacted(operation: &Operation) -> bool {
    let settled = operation.settled();
    let payload = settled.and_then(|settled| settled.outcome.payload);
    payload.is_some_and(|payload| payload.redacted)
}

/// Returns a payload as JSON text, if it is that.
pub(crate) fn json_of(payload: &[u8]) -> Option<&RawValue> {
    serde_json::from_slice(payload).ok()
}

impl Receipt {
    /// Makes the receipt of a record; `replayed` says that an earlier attempt did it. What is left of
    /// an operation after its retention has none.
    #[must_use]
    pub fn of(
        record: &Record,
        replayed: bool,
        payload: Option<Arc<[u8]>>,
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
            policy_kept: None,
            reason: settled
                .filter(|_| replayed)
                .map(|settled| format!("already done {} ago", span(now.since(settled.at)))),
            namespace: spec.namespace.clone(),
            key: spec.key.clone(),
            name: spec.name.clone(),
            state: operation.state.kind(),
            attempt: operation.attempt,
            fence: operation.fence.0,
            started_at: operation.latest().map(|attempt| attempt.started_at),
            settled_at: settled.map(|settled| settled.at),
            redacted: is_redacted(operation),
            payload,
        })
    }

    /// Makes the receipt of an action that is not recorded.
    pub(crate) fn unrecorded(request: &Request, now: Timestamp) -> crate::Result<Self> {
        Ok(Self {
            ok: true,
            effect: Effect::Noop,
            replayed: false,
            original_effect: None,
            previous_effect: None,
            policy_kept: None,
            reason: Some("a safe action is not recorded".to_owned()),
            namespace: request.namespace.clone(),
            key: request.key.clone(),
            name: request.name()?,
            state: StateKind::Succeeded,
            attempt: 1,
            fence: 0,
            started_at: Some(now),
            settled_at: None,
            redacted: false,
            payload: None,
        })
    }

    /// Returns the answer as JSON text, where it is JSON.
    #[must_use]
    pub fn data(&self) -> Option<&str> {
        self.payload.as_deref().and_then(json_of).map(RawValue::get)
    }

    /// Returns what a failed action answered, for messages.
    pub(crate) fn failure_text(&self) -> String {
        self.data().map_or_else(
            || "no reason was recorded".to_owned(),
            |json| serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned()),
        )
    }
}

impl Receipt {
    /// Says what came of a task to the call that left it there, or to one that found it.
    #[must_use]
    pub fn as_seen_by(self, known: &Self) -> Self {
        if matches!(self.state, StateKind::Pending | StateKind::Running) {
            return Self {
                effect: known.effect,
                replayed: known.replayed,
                original_effect: known.original_effect,
                ..self
            };
        }
        if known.replayed {
            return Self {
                effect: Effect::Noop,
                replayed: true,
                original_effect: Some(self.effect),
                ..self
            };
        }
        self
    }
}

/// Says which policies stand, where a call asked for others: those of the first call.
pub(crate) fn policy_kept(asked: &Spec, current: &Current) -> Option<String> {
    let spec = &current.record().and_then(Record::operation)?.spec;
    let other = spec.policy != asked.policy || spec.probe_digest != asked.probe_digest;
    other.then(|| {
        let (class, on_doubt) = (spec.policy.class.as_str(), spec.policy.on_doubt.as_str());
        format!("class {class}, on_doubt {on_doubt}: as the first call said")
    })
}

/// Says how long something lasts, in one unit.
#[must_use]
pub fn span(length: Duration) -> String {
    let seconds = length.as_secs();
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
    fn spans_are_said_in_one_unit() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (180, "3 min"),
            (7_200, "2 h"),
            (172_800, "2 d"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }
}
