//! What is said when nothing is done.

use semel::Key;
use semel::core::identity::{BusinessKey, Call, ClientText, Identity};
use serde_json::json;

use super::receipt::{Known, Outcome, Problem, receipt};
use super::{To, error, how_to_repeat, own, shell_quoted};
use crate::mcp::ask::Refused;
use crate::mcp::message::{Malformed, Message, quoted};

/// A key was used for other arguments. Codes of our own lie outside of JSON-RPC's range.
const KEY_CONFLICT: i64 = 1409;
/// The first call with a key has not ended.
const KEY_IN_PROGRESS: i64 = 1425;
/// A call that cannot be taken.
const INVALID_PARAMS: i64 = -32602;

/// Says what a call is told that was not begun: the error of whoever judged it.
pub(crate) fn not_begun(to: &To<'_>, call: &Call, why: &semel::Error) -> Message {
    let about = match why {
        semel::Error::Refused(refusal) => refusal.key.as_ref(),
        _ => None,
    };
    match (why.code(), about) {
        ("key_reused", _) => conflict(to, call),
        ("expired", Some(key)) => expired(to, key, call),
        ("dead", Some(key)) => dead(to, key),
        _ => not_admitted(to, why),
    }
}

/// Says what a call is told that was not begun, whatever it asks for.
pub(crate) fn not_admitted(to: &To<'_>, why: &semel::Error) -> Message {
    match why.code() {
        "store_unavailable" => store_unavailable(to, &why.to_string()),
        "breaker_open" => breaker_open(to, why),
        code => {
            let hint = why.hint().unwrap_or("The operator can say more.");
            let text = format!("semel: nothing was done now. {}: {why}. {hint}.", to.tool);
            let mut problem = Problem::new(code, hint.to_owned());
            problem.retryable = why.retryable();
            refusal(to, &text, Outcome::Refused, problem)
        }
    }
}

/// Says that the server is left alone.
fn breaker_open(to: &To<'_>, why: &semel::Error) -> Message {
    let tool = to.tool;
    let hint = match why.retry_at() {
        Some(_) => "Call it again with the same arguments then.",
        None => "Once the server is well again, `semel breaker close NAME` lets calls through.",
    };
    let text = format!(
        "semel: nothing was done now. The server of `{tool}` is left alone for now: {why}. {hint}"
    );
    let mut problem = Problem::new("breaker_open", hint.to_owned()).retryable();
    problem.retry_at = why.retry_at();
    refusal(to, &text, Outcome::Refused, problem)
}

/// Says that an earlier call has not ended. `explicit` is the caller's own key, where it gave one.
pub(crate) fn in_progress(to: &To<'_>, of: &Identity, explicit: Option<&str>) -> Message {
    if let Some(key) = explicit {
        let data = json!({"type": "idempotency_key_in_progress", "idempotencyKey": key});
        let message =
            "the first call with this idempotency key has not ended; nothing was done now";
        return error(to, KEY_IN_PROGRESS, message, &data);
    }
    let tool = to.tool;
    let hint = "Call it again with the same arguments to get its answer.".to_owned();
    let text = format!(
        "semel: nothing was started now. The same call of `{tool}` is still under way. {hint}"
    );
    let problem = Problem::new("in_flight", hint).retryable().json(&text);
    let (key, source) = (quoted(of.key.as_str()), of.source.as_str());
    let (outcome, number) = (Outcome::InProgress.as_str(), of.occurrence);
    let meta = format!(
        r#"{{"ok":false,"effect":"noop","key":{key},"outcome":"{outcome}","key_source":"{source}","occurrence":{number},"error":{problem}}}"#
    );
    own(to, &text, &[], &meta)
}

/// Says that a key belongs to a call with other arguments: the caller's own, or the one that was taken from the
/// arguments, or the harness's id.
pub(crate) fn conflict(to: &To<'_>, call: &Call) -> Message {
    let (key, message) = match (&call.explicit, &call.business) {
        (Some(key), _) => (
            Some(key.as_str()),
            "the idempotency key was used for a call with other arguments; nothing was done now"
                .to_owned(),
        ),
        (None, business) => {
            let business = business.as_ref().map(BusinessKey::as_str);
            let id = call.call_id.as_ref().map(ClientText::as_str);
            let message = format!(
                "`{}` was called before for the same thing with other arguments; nothing was done now. Repeat the \
                 first call exactly to get its answer, or change what it is about.",
                to.tool
            );
            (business.or(id), message)
        }
    };
    let data = json!({"type": "idempotency_key_conflict", "idempotencyKey": key});
    error(to, KEY_CONFLICT, &message, &data)
}

/// Says that the answer is not kept any more.
pub(crate) fn expired(to: &To<'_>, key: &Key, call: &Call) -> Message {
    let tool = to.tool;
    // A key that was given, or taken from the arguments, means one thing for ever.
    let hint = if call.explicit.is_some() {
        "If it is wanted once more, use a new key.".to_owned()
    } else if call.business.is_some() {
        "If it is wanted once more, change what it is about.".to_owned()
    } else {
        how_to_repeat(key)
    };
    let text = format!(
        "semel: nothing was done now. The same call of `{tool}` ended long ago, and its answer is not kept \
         any more. {hint}"
    );
    refusal(to, &text, Outcome::Refused, Problem::new("expired", hint))
}

/// Says that an operation was given up.
pub(crate) fn dead(to: &To<'_>, key: &Key) -> Message {
    let (tool, key) = (to.tool, shell_quoted(key.as_str()));
    let hint = format!("Mend the cause, then `semel retry {key}`, and call again.");
    let text = format!(
        "semel: nothing was done now. The same call of `{tool}` was given up, and did not take effect. {hint}"
    );
    refusal(to, &text, Outcome::Refused, Problem::new("dead", hint))
}

/// Says that the ledger does not work, without which nothing is done.
pub(crate) fn store_unavailable(to: &To<'_>, why: &str) -> Message {
    let tool = to.tool;
    let hint = "Call it again later.";
    let text = format!(
        "semel: nothing was done now. `{tool}` needs the ledger, which does not work: {why}. {hint}"
    );
    let problem = Problem::new("store_unavailable", hint.to_owned()).retryable();
    refusal(to, &text, Outcome::Refused, problem)
}

/// Says that the call did not reach the server, or was refused by it unseen.
pub(crate) fn not_done(to: &To<'_>, known: &Known<'_>, why: &str) -> Message {
    let tool = to.tool;
    let text = format!(
        "semel: `{tool}` was not carried out: {why}. Nothing was done; it can be called again."
    );
    own(to, &text, &[], &receipt(known, Outcome::NotDone, None))
}

/// Says why a call is not taken.
pub(crate) fn refused(to: &To<'_>, why: &Refused) -> Message {
    let message = format!("{why}; nothing was done");
    error(to, INVALID_PARAMS, &message, &json!({"code": why.code()}))
}

/// Says why something is no message; `id` is the one in it, where it could be read.
///
/// # Panics
/// Never: an id that was read and a text of ours make a message.
pub(crate) fn malformed(id: Option<&str>, why: &Malformed) -> Message {
    let error = json!({"code": why.code(), "message": why.to_string()});
    Message::error(id, &error.to_string()).expect("an id that was read and our own text")
}

/// Writes a refusal that rests on no operation.
pub(super) fn refusal(to: &To<'_>, text: &str, outcome: Outcome, problem: Problem) -> Message {
    let (outcome, problem) = (outcome.as_str(), problem.json(text));
    let meta = format!(r#"{{"ok":false,"effect":"noop","outcome":"{outcome}","error":{problem}}}"#);
    own(to, text, &[], &meta)
}
