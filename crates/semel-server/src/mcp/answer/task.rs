//! Doubts as tasks: what a client that takes one for an answer is given, and what it finds when it asks again.
//!
//! A task is a doubt that waits to be settled. The two kinds of the protocol write the same things in
//! other words, and at other places.

use semel::{Key, Timestamp};
use serde_json::json;

use super::doubt::Doubt;
use super::receipt::{Known, Outcome};
use super::{EFFECT, INTERNAL, To, error, own, sent};
use crate::mcp::ask::{Era, TASKS};
use crate::mcp::edit;
use crate::mcp::message::{Kind, Message, quoted};

/// How soon it is worth asking again, in milliseconds: a person has to look first.
const POLL_MS: u32 = 5_000;

/// The doubt is not settled. Codes of our own lie outside of JSON-RPC's range.
const HELD: i64 = 1423;
/// A request that cannot be taken.
const INVALID_PARAMS: i64 = -32602;
/// There is no such request in this kind of the protocol.
const METHOD_NOT_FOUND: i64 = -32601;
/// The client did not say that it can do what it asks for.
const CAPABILITY_MISSING: i64 = -32021;

/// The member of `_meta` with the text that a model gets while the task goes on (2025-11-25).
const AT_ONCE: &str = "io.modelcontextprotocol/model-immediate-response";
/// The member of `_meta` that names the task which a result belongs to (2025-11-25).
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A doubt as a task.
#[derive(Clone, Debug)]
pub(crate) struct Task<'a> {
    /// What it is asked for by.
    pub(crate) id: &'a str,
    /// When the doubted attempt began.
    pub(crate) created_at: Timestamp,
    /// When something happened to it last.
    pub(crate) updated_at: Timestamp,
    pub(crate) stand: Stand<'a>,
}

/// Where a task stands.
#[derive(Clone, Debug)]
pub(crate) enum Stand<'a> {
    /// It is not settled: why, in words.
    Working(&'a str),
    /// It is: this is what the call would be answered now, and whether it took effect.
    Ended {
        /// The answer.
        answer: &'a Message,
        /// Whether the operation succeeded.
        ok: bool,
    },
}

impl Stand<'_> {
    /// Returns the protocol's word. From 2026-07-28 on a result that says `isError` is a completed one, and
    /// only an error of JSON-RPC a failed one; before, both are failed.
    const fn status(&self, era: Era) -> &'static str {
        match (self, era) {
            (Self::Working(_), _) => "working",
            (Self::Ended { answer, .. }, Era::Modern) => match answer.kind() {
                Kind::Error => "failed",
                Kind::Result | Kind::Request { .. } | Kind::Notification { .. } => "completed",
            },
            (Self::Ended { ok: true, .. }, Era::Legacy) => "completed",
            (Self::Ended { ok: false, .. }, Era::Legacy) => "failed",
        }
    }

    /// Returns what is to be said about it.
    fn words(&self) -> Option<String> {
        match self {
            Self::Working(text) => Some((*text).to_owned()),
            Self::Ended { ok: true, .. } => None,
            Self::Ended { answer, ok: false } => {
                let outcome = answer.outcome()?;
                let text = edit::text(outcome, &["content", "0", "text"]);
                text.or_else(|| edit::text(outcome, &["message"]))
            }
        }
    }
}

impl Task<'_> {
    /// Writes its members, without braces.
    fn members(&self, era: Era) -> String {
        let (id, status) = (quoted(self.id), self.stand.status(era));
        let words = self.stand.words().map_or_else(String::new, |words| {
            format!(r#","statusMessage":{}"#, quoted(&words))
        });
        let (created, updated) = (self.created_at, self.updated_at);
        // A doubt has no end by itself.
        let (lives, poll) = match era {
            Era::Modern => ("ttlMs", "pollIntervalMs"),
            Era::Legacy => ("ttl", "pollInterval"),
        };
        format!(
            r#""taskId":{id},"status":"{status}"{words},"createdAt":"{created}","lastUpdatedAt":"{updated}","{lives}":null,"{poll}":{POLL_MS}"#
        )
    }
}

/// Answers a call with a task, which stands for its doubt.
pub(crate) fn task_created(
    to: &To<'_>,
    known: &Known<'_>,
    doubt: &Doubt,
    task: &Task<'_>,
) -> Message {
    let (members, receipt) = (task.members(to.era), doubt.receipt(known));
    let effect = quoted(EFFECT);
    let result = match to.era {
        Era::Modern => {
            format!(r#"{{"resultType":"task",{members},"_meta":{{{effect}:{receipt}}}}}"#)
        }
        Era::Legacy => {
            let (at_once, text) = (quoted(AT_ONCE), quoted(&doubt.text));
            format!(r#"{{"task":{{{members}}},"_meta":{{{effect}:{receipt},{at_once}:{text}}}}}"#)
        }
    };
    sent(to, Message::result(to.id, &result))
}

/// Answers `tasks/get`.
pub(crate) fn task(to: &To<'_>, task: &Task<'_>) -> Message {
    let members = task.members(to.era);
    let result = match (to.era, &task.stand) {
        (Era::Legacy, _) => format!("{{{members}}}"),
        (Era::Modern, Stand::Working(_)) => {
            format!(r#"{{"resultType":"complete",{members}}}"#)
        }
        (Era::Modern, Stand::Ended { answer, .. }) => {
            let outcome = answer.outcome().unwrap_or("{}");
            let member = if *answer.kind() == Kind::Error {
                "error"
            } else {
                "result"
            };
            format!(r#"{{"resultType":"complete",{members},"{member}":{outcome}}}"#)
        }
    };
    sent(to, Message::result(to.id, &result))
}

/// Answers `tasks/result` (2025-11-25) with what the call would be answered now.
pub(crate) fn task_result(id: &str, answer: &Message) -> Message {
    let related = json!({"taskId": id}).to_string();
    let result = answer.outcome().filter(|_| *answer.kind() == Kind::Result);
    let with = result.and_then(|result| edit::set(result, &["_meta", RELATED], &related).ok());
    let with = with.and_then(|result| answer.with_outcome(&result).ok());
    with.unwrap_or_else(|| answer.clone())
}

/// Says that the doubted call did not take effect, as was found out.
///
/// The operation may have been tried again since: what it came to then is not said here.
pub(crate) fn did_not_happen(to: &To<'_>, key: &Key) -> Message {
    let tool = to.tool;
    let text = format!(
        "semel: the call of `{tool}` did not take effect, as was found out later. It can be called again."
    );
    let outcome = Outcome::NotDone.as_str();
    let meta = json!({"ok": false, "effect": "noop", "key": key.as_str(), "outcome": outcome});
    own(to, &text, &[], &meta.to_string())
}

/// Says that an operation is not over.
pub(crate) fn under_way(to: &To<'_>) -> String {
    format!("semel: the call of `{}` is under way.", to.tool)
}

/// Takes note of something that has no other answer: `tasks/update`, and from 2026-07-28 on `tasks/cancel`.
pub(crate) fn acknowledged(to: &To<'_>) -> Message {
    let result = match to.era {
        Era::Modern => r#"{"resultType":"complete"}"#,
        Era::Legacy => "{}",
    };
    sent(to, Message::result(to.id, result))
}

/// Says that nobody has settled the doubt yet.
pub(crate) fn not_settled(to: &To<'_>, doubt: &str) -> Message {
    let message = format!("{doubt} It is not settled yet: ask again later.");
    error(to, HELD, &message, &json!({"type": "in_doubt"}))
}

/// Says that a doubt cannot be cancelled (2025-11-25: whoever cancels is told that it is).
pub(crate) fn not_cancelled(to: &To<'_>, doubt: &str) -> Message {
    let message = format!("{doubt} It cannot be cancelled.");
    error(to, HELD, &message, &json!({"type": "in_doubt"}))
}

/// Says that there is no such task, or not for this caller, or not any more.
pub(crate) fn no_such_task(to: &To<'_>, why: &str) -> Message {
    error(to, INVALID_PARAMS, why, &json!({"type": "no_such_task"}))
}

/// Says that the ledger does not work, without which nothing is known.
pub(crate) fn task_unavailable(to: &To<'_>, why: &str) -> Message {
    let message = format!("the ledger does not work: {why}; ask again later");
    error(
        to,
        INTERNAL,
        &message,
        &json!({"type": "store_unavailable"}),
    )
}

/// Says that there is no such request in this kind of the protocol.
pub(crate) fn unknown_method(to: &To<'_>) -> Message {
    let message = "this version of the protocol has no such request for tasks";
    error(to, METHOD_NOT_FOUND, message, &json!({}))
}

/// Says that the client did not declare tasks with its request, as it must.
pub(crate) fn not_declared(to: &To<'_>) -> Message {
    let data = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
    let message = "the request does not declare the extension for tasks";
    error(to, CAPABILITY_MISSING, message, &data)
}
