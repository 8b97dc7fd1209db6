//! Answers of the server, given for the first time or again.

use std::fmt::Write as _;

use semel::core::identity::Source;
use semel::{Key, Timestamp, span};

use super::receipt::{Known, Outcome, Problem, receipt};
use super::{EFFECT, To, how_to_repeat, own, sent, text_item};
use crate::mcp::ask::Era;
use crate::mcp::edit;
use crate::mcp::message::{Kind, Message, quoted};

/// Adds the receipt to what the server answered itself: [`Outcome::Executed`], or what its answer came to
/// instead. Errors have no place for one, and what is no object, or has a member twice, is passed on as
/// it is.
pub(crate) fn answered(answer: &Message, known: &Known<'_>, outcome: Outcome) -> Message {
    with_receipt(answer, &receipt(known, outcome, None))
}

fn with_receipt(answer: &Message, receipt: &str) -> Message {
    let result = answer.outcome().filter(|_| is_result(answer));
    let with = result.and_then(|result| edit::set(result, &["_meta", EFFECT], receipt).ok());
    let with = with.and_then(|result| answer.with_outcome(&result).ok());
    with.unwrap_or_else(|| answer.clone())
}

/// Marks an answer that could not be stored: the caller has it, and nobody will get it again.
pub(crate) fn unstored(answer: &Message, key: &Key, why: &str) -> Message {
    let hint = "Keep this answer: the same call will be told that nobody knows what happened.";
    let message = format!("the answer could not be stored: {why}");
    let problem = Problem::new("in_doubt", hint.to_owned()).json(&message);
    let (key, outcome) = (quoted(key.as_str()), Outcome::InDoubt.as_str());
    let receipt = format!(
        r#"{{"ok":false,"effect":"unknown","key":{key},"state":"doubtful","outcome":"{outcome}","error":{problem}}}"#
    );
    with_receipt(answer, &receipt)
}

fn is_result(answer: &Message) -> bool {
    matches!(answer.kind(), Kind::Result)
}

/// Gives a stored answer again: [`Outcome::Replayed`] or [`Outcome::Joined`].
///
/// Where nothing but the arguments said that it is the same call, a text beside the answer says so
/// and how to ask for a second one; the structured content stays what it is.
pub(crate) fn replay(to: &To<'_>, known: &Known<'_>, outcome: Outcome, now: Timestamp) -> Message {
    let receipt = receipt(known, outcome, None);
    let stored = known.receipt.payload.as_deref();
    let stored = stored.and_then(|bytes| std::str::from_utf8(bytes).ok());
    if let Some(error) = stored.and_then(|stored| edit::get(stored, &["error"])) {
        return sent(to, Message::error(Some(to.id), error));
    }
    let result = stored.and_then(|stored| edit::get(stored, &["result"]));
    let Some(result) = result else {
        return resolved(to, known, stored, &receipt);
    };
    let note = (known.source == Source::Fingerprint).then(|| again_note(to, known, outcome, now));
    let made = dressed(result, to.era, note.as_deref(), &receipt);
    // What cannot be dressed is given as it was stored.
    let made = made.and_then(|result| Message::result(to.id, &result).ok());
    sent(to, made.map_or_else(|| Message::result(to.id, result), Ok))
}

/// Fits a stored result to another request, and adds what is said about it.
fn dressed(result: &str, era: Era, note: Option<&str>, receipt: &str) -> Option<String> {
    // It names a stream of the request that it first answered.
    let stale = ["_meta", "io.modelcontextprotocol/subscriptionId"];
    let mut result = edit::remove(result, &stale).ok()?.into_owned();
    if era == Era::Modern && edit::get(&result, &["resultType"]).is_none() {
        result = edit::set(&result, &["resultType"], "\"complete\"").ok()?;
    }
    // What has no content, such as a task, has no place for a text.
    if let Some(note) = note
        && edit::get(&result, &["content"]).is_some()
    {
        result = edit::push(&result, &["content"], &text_item(note)).ok()?;
    }
    edit::set(&result, &["_meta", EFFECT], receipt).ok()
}

fn again_note(to: &To<'_>, known: &Known<'_>, outcome: Outcome, now: Timestamp) -> String {
    let tool = to.tool;
    let mut note = match outcome {
        Outcome::Joined => format!(
            "semel: `{tool}` ran once, for this call and an identical one that was under way."
        ),
        _ => format!(
            "semel: nothing was done now. This is the answer of the same call of `{tool}`{}, which may \
             not have arrived.",
            ago(known, now)
        ),
    };
    // Writing to a text cannot fail.
    let _ = write!(note, " {}", how_to_repeat(&known.receipt.key));
    note
}

fn ago(known: &Known<'_>, now: Timestamp) -> String {
    let settled = known.receipt.settled_at;
    settled.map_or_else(String::new, |at| format!(" {} ago", span(now.since(at))))
}

/// Answers for an operation that a person settled, with whatever they stored.
fn resolved(to: &To<'_>, known: &Known<'_>, stored: Option<&str>, receipt: &str) -> Message {
    let (tool, ok) = (to.tool, known.receipt.ok);
    let how = if ok { "took effect" } else { "failed" };
    let mut text = format!(
        "semel: nothing was done now. An earlier call of `{tool}` {how}, as was found out later; its own \
         answer is not known."
    );
    if let Some(stored) = stored {
        // Writing to a text cannot fail.
        let _ = write!(text, " What is known: {stored}");
    }
    // A success without its structured content would be held to the tool's schema.
    own(to, &text, &[], receipt)
}

/// Asks whether a call that is the same as an earlier one is meant as a second one. The answer of the
/// earlier one goes along, where it has one.
pub(crate) fn challenged(to: &To<'_>, known: &Known<'_>, now: Timestamp) -> Message {
    let (tool, again) = (to.tool, how_to_repeat(&known.receipt.key));
    let stored = known.receipt.payload.as_deref();
    let stored = stored.and_then(|bytes| std::str::from_utf8(bytes).ok());
    let earlier = stored.and_then(|stored| edit::get(stored, &["result", "content"]));
    let earlier = earlier.and_then(edit::items).unwrap_or_default();
    let text = if known.receipt.settled_at.is_some() {
        let end = if known.receipt.ok {
            "succeeded"
        } else {
            "failed"
        };
        let follows = if earlier.is_empty() {
            "Otherwise leave it at that."
        } else {
            "Otherwise use its answer, which follows."
        };
        let ago = ago(known, now);
        format!(
            "semel: nothing was done now. The same call of `{tool}` {end}{ago}. {again} {follows}"
        )
    } else {
        format!(
            "semel: nothing was done now. The same call of `{tool}` is under way. {again} Otherwise wait for \
             its answer."
        )
    };
    own(
        to,
        &text,
        &earlier,
        &receipt(known, Outcome::Challenged, None),
    )
}
