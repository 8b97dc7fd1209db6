//! Everything that the gateway says itself.
//!
//! What the model must react to is a result with `isError`: clients show it to the model, and hold it
//! to no schema. Misuse of a key is an error of JSON-RPC: it is for the program that gave the key.
//! Texts say what is known, that nothing was done now, and what to call next.

mod again;
mod doubt;
mod plan;
mod question;
mod receipt;
mod refusal;
mod task;

use semel::Key;
use serde_json::json;

pub(crate) use self::again::{answered, challenged, replay, unstored};
pub(crate) use self::doubt::{Doubt, in_doubt};
pub(crate) use self::plan::{Plan, plan_mismatch, plan_required, preview};
pub(crate) use self::question::{Said, asked, question, said, said_in};
pub(crate) use self::receipt::{Known, Outcome};
#[cfg(test)]
pub(crate) use self::refusal::{conflict, dead};
pub(crate) use self::refusal::{
    expired, in_progress, malformed, not_admitted, not_begun, not_done, refused, store_unavailable,
};
pub(crate) use self::task::{
    Stand, Task, acknowledged, did_not_happen, no_such_task, not_cancelled, not_declared,
    not_settled, task, task_created, task_result, task_unavailable, under_way, unknown_method,
};

use super::ask::{Era, REPEAT_ARGUMENT};
use super::message::{Malformed, Message, quoted};

/// The member of `_meta` with the receipt.
pub(crate) const EFFECT: &str = "dev.semel/effect";

/// Something is wrong on this side.
const INTERNAL: i64 = -32603;

/// Whom an answer is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To<'a> {
    /// The id of the request, as it was written.
    pub(crate) id: &'a str,
    /// What its client speaks.
    pub(crate) era: Era,
    /// The tool that it calls.
    pub(crate) tool: &'a str,
    /// How a doubt can be resolved from there.
    pub(crate) resolve: ResolveBy,
}

/// How a doubt can be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolveBy {
    /// By a person at a terminal.
    Command,
    /// By the tool `semel_resolve`, which the client has.
    Tool,
    /// By the gateway itself, which looks it up when the call comes again.
    LookUp,
}

/// Says how to ask for a second one of what was done.
fn how_to_repeat(key: &Key) -> String {
    let key = quoted(key.as_str());
    format!(
        "If it is wanted once more, call it again with \"{REPEAT_ARGUMENT}\": {key} among its arguments."
    )
}

/// Quotes a text for a shell.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Writes a result of our own: a text, other items of content after it, and the receipt.
fn own(to: &To<'_>, text: &str, items: &[&str], receipt: &str) -> Message {
    let kind = match to.era {
        Era::Modern => "\"resultType\":\"complete\",",
        Era::Legacy => "",
    };
    let mut content = text_item(text);
    for item in items {
        content.push(',');
        content.push_str(item);
    }
    let effect = quoted(EFFECT);
    let result =
        format!(r#"{{{kind}"content":[{content}],"isError":true,"_meta":{{{effect}:{receipt}}}}}"#);
    sent(to, Message::result(to.id, &result))
}

fn text_item(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, quoted(text))
}

fn error(to: &To<'_>, code: i64, message: &str, data: &serde_json::Value) -> Message {
    let error = json!({"code": code, "message": message, "data": data});
    sent(to, Message::error(Some(to.id), &error.to_string()))
}

/// Gives what was made; where it cannot be sent, which is so when it became too large, says that.
///
/// # Panics
/// Never: an id that was read and a text of ours make a message.
fn sent(to: &To<'_>, made: Result<Message, Malformed>) -> Message {
    made.unwrap_or_else(|why| {
        let message =
            format!("the stored answer cannot be given again: {why}; nothing was done now");
        let error = json!({"code": INTERNAL, "message": message});
        let made = Message::error(Some(to.id), &error.to_string());
        made.expect("an id that was read and our own text")
    })
}
