//! The question that a person is asked about a doubt, where the client can show one.

use super::receipt::Known;
use super::{To, sent};
use crate::mcp::edit;
use crate::mcp::message::{Message, quoted};

/// The name of our question among those that a result asks (2026-07-28).
const NAME: &str = "semel";

/// What a person may answer.
const SCHEMA: &str = r#"{"type":"object","properties":{"happened":{"type":"string","title":"Did it happen?","enum":["yes","no","not sure"]}},"required":["happened"]}"#;

/// What a person said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It took effect.
    Happened,
    /// It did not.
    DidNot,
    /// They do not know, or do not say.
    Nothing,
}

/// Writes the parameters of `elicitation/create`, which a legacy client is sent while its call waits.
pub(crate) fn question(to: &To<'_>, known: &Known<'_>) -> String {
    let when = known.receipt.started_at;
    let when = when.map_or_else(String::new, |at| format!(" at {at}"));
    let message = format!(
        "It is not known whether a call of `{}`{when} took effect. Did it? With \"no\" it is carried out now; \
         with \"yes\" or \"not sure\" nothing is done.",
        to.tool
    );
    format!(
        r#"{{"message":{},"requestedSchema":{SCHEMA}}}"#,
        quoted(&message)
    )
}

/// Asks the question in a result, which a modern client answers with the same call and `state`.
pub(crate) fn asked(to: &To<'_>, known: &Known<'_>, state: &str) -> Message {
    let (params, state) = (question(to, known), quoted(state));
    let result = format!(
        r#"{{"resultType":"input_required","inputRequests":{{"{NAME}":{{"method":"elicitation/create","params":{params}}}}},"requestState":{state}}}"#
    );
    sent(to, Message::result(to.id, &result))
}

/// Reads the result of `elicitation/create`.
pub(crate) fn said(result: &str) -> Said {
    let is_accepted = edit::text(result, &["action"]).as_deref() == Some("accept");
    let word = edit::text(result, &["content", "happened"]).filter(|_| is_accepted);
    match word.as_deref() {
        Some("yes") => Said::Happened,
        Some("no") => Said::DidNot,
        Some(_) | None => Said::Nothing,
    }
}

/// Finds the answer to our question among those that came with a call.
pub(crate) fn said_in(input_responses: &str) -> Said {
    edit::get(input_responses, &[NAME]).map_or(Said::Nothing, said)
}
