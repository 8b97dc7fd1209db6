//! Receipts as this door writes them.

use semel::core::identity::Source;
use semel::core::ledger::Delivery;
use semel::{Receipt, Timestamp};
use serde_json::json;

use crate::mcp::edit;
use crate::mcp::message::quoted;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was carried out.
    Executed,
    /// It got the answer of an earlier one.
    Replayed,
    /// It waited for an identical one in flight, and got its answer.
    Joined,
    /// Nobody knows whether it, or an earlier one, took effect.
    InDoubt,
    /// It was asked about.
    Challenged,
    /// An earlier one has not ended.
    InProgress,
    /// It was a question what would happen.
    Preview,
    /// It was refused, and nothing was done.
    Refused,
    /// It was tried, and nothing was done.
    NotDone,
}

impl Outcome {
    /// Returns the word that users see.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::Joined => "joined",
            Self::InDoubt => "in_doubt",
            Self::Challenged => "challenged",
            Self::InProgress => "in_progress",
            Self::Preview => "preview",
            Self::Refused => "refused",
            Self::NotDone => "not_done",
        }
    }
}

/// What is known of the operation that a call is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    /// Its receipt.
    pub(crate) receipt: &'a Receipt,
    /// What it was recognised by.
    pub(crate) source: Source,
    /// Its number.
    pub(crate) occurrence: u32,
    /// Whether the earlier callers got their answers.
    pub(crate) delivery: Delivery,
}

/// What went wrong, in the words of every door.
pub(super) struct Problem {
    code: &'static str,
    hint: String,
    pub(super) retryable: bool,
    /// When it may be tried again, where that is known.
    pub(super) retry_at: Option<Timestamp>,
}

impl Problem {
    pub(super) const fn new(code: &'static str, hint: String) -> Self {
        Self {
            code,
            hint,
            retryable: false,
            retry_at: None,
        }
    }

    pub(super) const fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    pub(super) fn json(&self, message: &str) -> String {
        // Every text here begins with our name, which is for those who read it among others.
        let message = message.strip_prefix("semel: ").unwrap_or(message);
        let mut problem = json!({
            "code": self.code, "message": message, "hint": self.hint, "retryable": self.retryable,
        });
        if let Some(at) = self.retry_at {
            problem["retry_at"] = json!(at.to_string());
        }
        problem.to_string()
    }
}

/// Writes DESIGN's receipt without `data`, and what only this door knows.
pub(super) fn receipt(
    known: &Known<'_>,
    outcome: Outcome,
    problem: Option<(Problem, &str)>,
) -> String {
    let bare = Receipt {
        payload: None,
        ..known.receipt.clone()
    };
    let mut members = vec![
        ("outcome", quoted(outcome.as_str())),
        ("key_source", quoted(known.source.as_str())),
        ("occurrence", known.occurrence.to_string()),
        ("delivery", quoted(known.delivery.as_str())),
    ];
    members.extend(problem.map(|(problem, text)| ("error", problem.json(text))));
    // A receipt is an object of ours: it can be written, and changed.
    let json = serde_json::to_string(&bare).unwrap_or_else(|_| "{}".to_owned());
    let json = edit::remove(&json, &["data"]).map_or_else(|_| json.clone(), Into::into);
    let added = members
        .iter()
        .try_fold(json.clone(), |json, (name, value)| {
            edit::set(&json, &[name], value)
        });
    added.unwrap_or(json)
}
