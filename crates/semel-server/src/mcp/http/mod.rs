//! HTTP on both sides of the gateway: clients that come over it, and a server that is reached over it.

mod answering;
pub(super) mod caller;
mod calls;
pub(super) mod children;
mod conversation;
pub(super) mod desk;
pub(super) mod door;
pub(super) mod front;
pub(super) mod headers;
mod listening;
mod reading;
pub(super) mod relay;
mod renamed;
mod resuming;
mod routes;
#[cfg(test)]
mod tests;
pub(super) mod upstream;
mod visit;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::edit;
use super::message::{Kind, Message};

/// Returns the id of the request that a message cancels, as it was written.
pub(super) fn cancelled(message: &Message) -> Option<String> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(rename = "requestId", borrow)]
        request_id: &'a RawValue,
    }
    if !matches!(message.kind(), Kind::Notification { method } if method == "notifications/cancelled")
    {
        return None;
    }
    let params: Params<'_> = serde_json::from_str(message.params()?).ok()?;
    Some(params.request_id.get().to_owned())
}

/// Returns a number that is the same for identical calls on one's behalf. Two others may have the same: it only says for
/// whose proof of receipt it is worth waiting.
fn about(principal: Option<&str>, message: &Message) -> u64 {
    let params = message.params().unwrap_or("{}");
    let mut hasher = DefaultHasher::new();
    principal.hash(&mut hasher);
    message.method().hash(&mut hasher);
    edit::get(params, &["name"]).hash(&mut hasher);
    edit::get(params, &["arguments"]).hash(&mut hasher);
    hasher.finish()
}

/// Makes an answer of a result or an error that was written somewhere else.
fn answer(id: &str, member: &str, outcome: &str) -> Message {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{outcome}}}"#);
    Message::read(text).expect("an id and an outcome that were read make an answer")
}

/// Answers a request that has no other answer.
fn failure(id: &str, why: &str) -> Message {
    let error = json!({"code": -32603, "message": why});
    answer(id, "error", &error.to_string())
}

/// Says whether two ids are the same, however they are written.
fn same_id(left: &str, right: &str) -> bool {
    left == right
        || match (
            serde_json::from_str::<serde_json::Value>(left),
            serde_json::from_str::<serde_json::Value>(right),
        ) {
            (Ok(left), Ok(right)) => left == right,
            _ => false,
        }
}
