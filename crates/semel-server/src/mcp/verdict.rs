//! What an answer says about a call: whether it took effect, as far as anybody can prove.
//!
//! | what came | verdict |
//! |---|---|
//! | a result | done |
//! | a result with `isError` | done, a failure; unknown where its text tells of a lost connection |
//! | a result that asks for input (`input_required`), -32042 | not done: the call goes on when it is answered |
//! | a result that is a task | done: the handle is the answer, and what is stored of it is found again |
//! | -32700, -32600, -32601 | not done: nothing was looked up by that name, or it could not be read |
//! | -32020, -32021, -32022 | not done: the protocol has them for requests that are refused unseen |
//! | -32602 | not done where the arguments do not fit the tool's input schema, or no such tool is listed; else done, a failure |
//! | -32603 and every other error | unknown |
//! | an answer of HTTP that refuses the request as such | not done, unless its body is the error -32602 |
//! | every other answer of HTTP that is no message | unknown |
//! | nothing, and not one byte was sent | not done |
//! | nothing, and something was | unknown |
//!
//! -32602 alone does not prove that nothing ran: a handler that checks one of its values late, or hands on what another
//! service said of them, raises it after it has acted. So the call is not sent again by itself: the error is recorded as a
//! failure with an unknown effect, and its client gets it as the error that it is. Only where this side comes to the same
//! end (the arguments violate the schema that the server itself lists) does the error release the key.

use std::fmt;

use axum::http::StatusCode;
use semel::Effect;

use super::edit;
use super::message::{Kind, Message};
use super::upstream::{NotSent, Refusal, Reply};

/// What an attempt learned, as the ledger is told.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It ran to its end.
    Done {
        /// Whether in success.
        ok: bool,
        /// What it did.
        effect: Effect,
        /// What is stored: `{"result": …}` or `{"error": …}`.
        payload: Vec<u8>,
    },
    /// It provably did not happen.
    NotDone(String),
    /// Nobody can tell.
    Unknown(String),
}

impl fmt::Debug for Finding {
    /// Shows the verdict, and not what is stored.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done {
                ok,
                effect,
                payload,
            } => write!(f, "Done(ok: {ok}, {effect}, {} bytes)", payload.len()),
            Self::NotDone(why) => write!(f, "NotDone({why})"),
            Self::Unknown(why) => write!(f, "Unknown({why})"),
        }
    }
}

/// What a verdict rests on beside the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// What the tool does when it succeeds, as configured.
    pub(crate) effect: Option<Effect>,
    /// Texts of failures behind which the effect may have happened.
    pub(crate) lost_texts: &'a [String],
    /// Whether the arguments do not fit the server's own list of tools.
    pub(crate) refuted: bool,
}

/// How much of a server's message goes into a note, in bytes.
const MESSAGE_SHOWN: usize = 200;

/// Something is wrong with the arguments, or what they name.
const INVALID_PARAMS: i64 = -32602;

/// The URL of a page must be visited first; then the same call is made again (2025-11-25).
const URL_ELICITATION_REQUIRED: i64 = -32042;

impl Finding {
    /// Judges what came for a request; `None` for what is only on the way.
    pub(crate) fn of(reply: &Reply, terms: &Terms<'_>) -> Option<Self> {
        match reply {
            Reply::Aside(_) => None,
            Reply::Answer(message, _) => Some(Self::of_answer(message, terms)),
            Reply::Http(refusal) => Some(Self::of_http(refusal, terms)),
            Reply::Lost(lost) => Some(Self::Unknown(lost.to_string())),
        }
    }

    /// Judges a request that did not reach its server.
    pub(crate) fn of_not_sent(not_sent: &NotSent) -> Self {
        Self::NotDone(not_sent.to_string())
    }

    fn of_answer(answer: &Message, terms: &Terms<'_>) -> Self {
        let outcome = answer.outcome().unwrap_or("null");
        match answer.kind() {
            Kind::Result => Self::of_result(outcome, terms),
            Kind::Error => Self::of_error(outcome, terms),
            Kind::Request { .. } | Kind::Notification { .. } => {
                Self::Unknown("what came in place of an answer is none".to_owned())
            }
        }
    }

    fn of_result(result: &str, terms: &Terms<'_>) -> Self {
        let kind = edit::text(result, &["resultType"]);
        if kind.as_deref() == Some("input_required") {
            return Self::NotDone("the server asks for input first".to_owned());
        }
        let failed = edit::is_true(result, &["isError"]);
        if failed && let Some(text) = lost_text(result, terms.lost_texts) {
            return Self::Unknown(format!("the tool reports a failure that says `{text}`"));
        }
        let is_task =
            kind.as_deref() == Some("task") || edit::get(result, &["task", "taskId"]).is_some();
        let declared = edit::text(result, &["structuredContent", "effect"]);
        let declared = declared.and_then(|word| Effect::parse(&word));
        let otherwise = match (failed, is_task) {
            // What a task has begun is not known when its handle is given out.
            (true, _) | (_, true) => Effect::Unknown,
            (false, false) => terms.effect.unwrap_or(Effect::Updated),
        };
        Self::Done {
            ok: !failed,
            effect: declared.unwrap_or(otherwise),
            payload: format!(r#"{{"result":{result}}}"#).into_bytes(),
        }
    }

    fn of_error(error: &str, terms: &Terms<'_>) -> Self {
        let code = code_of(error);
        let message = edit::text(error, &["message"]).unwrap_or_default();
        let shown = &message[..message.floor_char_boundary(MESSAGE_SHOWN)];
        let said = match code {
            Some(code) => format!("the server answered error {code}: {shown}"),
            None => format!("the server answered an error without a code: {shown}"),
        };
        match code {
            Some(INVALID_PARAMS) if !terms.refuted => Self::Done {
                ok: false,
                effect: Effect::Unknown,
                payload: format!(r#"{{"error":{error}}}"#).into_bytes(),
            },
            Some(code) if code == INVALID_PARAMS || is_refusal(code) => Self::NotDone(said),
            Some(_) | None => Self::Unknown(said),
        }
    }

    fn of_http(refusal: &Refusal, terms: &Terms<'_>) -> Self {
        // From 2026-07-28 on this error has the status 400, which by itself would say that nothing ran.
        if let Some(error) = invalid_params_in(refusal) {
            return Self::of_error(&error, terms);
        }
        let said = format!("the server answered HTTP {}", refusal.status.as_u16());
        if is_unseen(refusal.status) {
            Self::NotDone(said)
        } else {
            Self::Unknown(said)
        }
    }
}

/// Says whether a server refused the arguments of a call.
pub(crate) fn is_invalid_params(reply: &Reply) -> bool {
    match reply {
        Reply::Answer(answer, _) => error_of(answer).is_some_and(has_invalid_params),
        Reply::Http(refusal) => invalid_params_in(refusal).is_some(),
        Reply::Aside(_) | Reply::Lost(_) => false,
    }
}

/// Returns the error in the body of an HTTP refusal, where it is about the arguments.
fn invalid_params_in(refusal: &Refusal) -> Option<String> {
    let message = Message::read(refusal.body.clone()).ok()?;
    let error = error_of(&message)?;
    has_invalid_params(error).then(|| error.to_owned())
}

fn error_of(answer: &Message) -> Option<&str> {
    answer.outcome().filter(|_| *answer.kind() == Kind::Error)
}

fn has_invalid_params(error: &str) -> bool {
    code_of(error) == Some(INVALID_PARAMS)
}

fn code_of(error: &str) -> Option<i64> {
    edit::get(error, &["code"]).and_then(|code| code.parse().ok())
}

/// Says whether an error means that a request was refused before anybody looked at what it asks for, or is to be made
/// again once something else was done.
const fn is_refusal(code: i64) -> bool {
    matches!(
        code,
        -32700 | -32600 | -32601 | -32022..=-32020 | URL_ELICITATION_REQUIRED
    )
}

/// Says whether a server that answers so is well: every result shows that it works, that of a tool that failed as well,
/// and so does whatever is wrong with the request.
pub(crate) fn is_well(reply: &Reply) -> bool {
    match reply {
        Reply::Answer(answer, _) => match answer.kind() {
            Kind::Result => true,
            Kind::Error => {
                let code = code_of(answer.outcome().unwrap_or("null"));
                code.is_some_and(|code| code == INVALID_PARAMS || is_refusal(code))
            }
            Kind::Request { .. } | Kind::Notification { .. } => false,
        },
        Reply::Http(refusal) => semel::core::http::is_well(refusal.status.as_u16()),
        Reply::Aside(_) | Reply::Lost(_) => false,
    }
}

/// Says whether a status means that the request was refused for its form or its sender, before
/// anybody looked at what it asks for.
fn is_unseen(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        400 | 401 | 403 | 404 | 405 | 406 | 411 | 413 | 414 | 415 | 425 | 429 | 431
    )
}

/// Finds the first of the texts that a result's own text holds.
fn lost_text<'a>(result: &str, lost_texts: &'a [String]) -> Option<&'a str> {
    let items = edit::get(result, &["content"]).and_then(edit::items)?;
    let said = items.iter().filter_map(|item| edit::text(item, &["text"]));
    let said: Vec<String> = said.map(|text| text.to_lowercase()).collect();
    let is_said = |lost: &&String| said.iter().any(|text| says(text, &lost.to_lowercase()));
    lost_texts.iter().find(is_said).map(String::as_str)
}

/// Says whether a text holds another; a number only where it stands by itself, so that an amount of
/// 1502.10 is no status 502.
fn says(text: &str, wanted: &str) -> bool {
    let is_number = !wanted.is_empty() && wanted.bytes().all(|byte| byte.is_ascii_digit());
    text.match_indices(wanted).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let mut after = text[at + wanted.len()..].chars();
        let next = after.next();
        let goes_on = match next {
            Some('.' | ',') => after.next().is_some_and(|c| c.is_ascii_digit()),
            Some(c) => c.is_alphanumeric() || matches!(c, '%' | '_'),
            None => false,
        };
        let comes_from = before.is_some_and(|c| {
            c.is_alphanumeric() || matches!(c, '$' | '€' | '£' | '#' | '.' | ',' | '-' | '_')
        });
        !wanted.is_empty() && !(is_number && (goes_on || comes_from))
    })
}
