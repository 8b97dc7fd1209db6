//! What is told.

use semel::core::ledger::Operation;
use semel::view::RecordView;
use semel::{Key, Timestamp};
use serde::Serialize;

use super::subject::{Kind, Subject};
use crate::metrics::doubt_since;

/// A notification as its reader gets it.
#[derive(Debug, Serialize)]
pub(super) struct Message {
    /// The same each time that this is told.
    id: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// Since when it is so.
    at: String,
    pub(super) namespace: String,
    pub(super) key: String,
    name: String,
    state: &'static str,
    fence: u64,
    version: u64,
    record: RecordView,
    hint: &'static str,
}

impl Message {
    /// Writes down what is to be told as of now.
    pub(super) fn new(
        id: &Key,
        subject: &Subject,
        operation: &Operation,
        record: RecordView,
        now: Timestamp,
    ) -> Self {
        let judged = operation.judged_at(now);
        let ended = judged.latest().and_then(|attempt| attempt.ended_at);
        let (at, hint) = match subject.kind {
            Kind::Doubt => (
                doubt_since(&judged),
                "find out whether the effect happened, then say so: `semel resolve KEY --done` or \
                 `semel resolve KEY --not-done`",
            ),
            Kind::Dead => (
                ended,
                "mend the cause, then `semel retry KEY`; or end it with `semel cancel KEY`",
            ),
        };
        Self {
            id: id.to_string(),
            kind: subject.kind.as_str(),
            at: at.unwrap_or(judged.created_at).to_string(),
            namespace: record.namespace.to_string(),
            key: record.key.to_string(),
            name: judged.spec.name.to_string(),
            state: record.state.as_str(),
            fence: record.fence,
            version: record.version,
            hint,
            record,
        }
    }
}
