//! What an answer, or its absence, means for a task and for the breaker of its target.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use semel::core::http::{Pushed, effect, is_well, pushed, read_retry_after};
use semel::{Effect, Timestamp};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::transport::{Answer, Body};
use crate::outbound::Lost;

/// What is reported of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// Whether the target is well, as far as this shows.
    pub(super) is_well: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done {
        ok: bool,
        effect: Effect,
        data: Option<Vec<u8>>,
    },
    NotDone {
        error: String,
        /// How long the target wants to be left alone with it.
        wait: Option<Duration>,
    },
    Unknown {
        error: String,
    },
}

/// Judges a delivery; `is_first` is whether no earlier attempt can have reached the target.
pub(super) fn judge(sent: Result<Answer, Lost>, is_first: bool, wall: Timestamp) -> Judged {
    let answer = match sent {
        Ok(answer) => answer,
        Err(Lost { sent, error }) => {
            let verdict = match sent {
                true => Verdict::Unknown { error },
                false => Verdict::NotDone { error, wait: None },
            };
            return Judged {
                verdict,
                is_well: false,
            };
        }
    };
    let status = answer.status;
    let said = || format!("the target answered with {status}");
    let verdict = match pushed(status, is_first) {
        Pushed::Succeeded => return succeeded(answer),
        Pushed::Failed => return failed(answer),
        Pushed::NotDone => Verdict::NotDone {
            error: said(),
            wait: answer
                .retry_after
                .and_then(|text| read_retry_after(&text, wall)),
        },
        // `Retry-After` is not looked at: whether and when a doubt is waived is the task's own policy.
        Pushed::Unknown => Verdict::Unknown { error: said() },
    };
    Judged {
        verdict,
        is_well: is_well(status),
    }
}

fn succeeded(answer: Answer) -> Judged {
    let Answer {
        status,
        effect: said,
        body,
        ..
    } = answer;
    let body = match body {
        Body::Whole(body) => body,
        Body::TooLong => axum::body::Bytes::new(),
        Body::Cut(error) => return cut(status, &error),
    };
    let json = serde_json::from_slice::<Value>(&body).ok();
    let member = json.as_ref().and_then(|json| json.get("effect"));
    let word = said.as_deref().or_else(|| member.and_then(Value::as_str));
    let verdict = Verdict::Done {
        ok: true,
        effect: word
            .and_then(declared)
            .unwrap_or_else(|| effect("POST", status)),
        data: (!body.is_empty()).then(|| data(&body, json.is_some())),
    };
    Judged {
        verdict,
        is_well: true,
    }
}

/// What is kept of an answer that is a failure.
#[derive(Serialize)]
struct Failure {
    body: Option<Box<RawValue>>,
    status: u16,
}

fn failed(answer: Answer) -> Judged {
    let status = answer.status;
    let body = match answer.body {
        Body::Whole(body) => body,
        Body::TooLong => axum::body::Bytes::new(),
        Body::Cut(error) => return cut(status, &error),
    };
    let is_json = serde_json::from_slice::<Value>(&body).is_ok();
    let kept = (!body.is_empty()).then(|| data(&body, is_json));
    let kept = kept.and_then(|json| String::from_utf8(json).ok());
    let failure = Failure {
        body: kept.and_then(|json| RawValue::from_string(json).ok()),
        status,
    };
    let verdict = Verdict::Done {
        ok: false,
        effect: effect("POST", status),
        data: serde_json::to_vec(&failure).ok(),
    };
    Judged {
        verdict,
        is_well: is_well(status),
    }
}

/// An answer whose end is missing: it may have been about to say something else.
fn cut(status: u16, error: &str) -> Judged {
    let error = format!("the target's answer with {status} was cut off: {error}");
    Judged {
        verdict: Verdict::Unknown { error },
        is_well: false,
    }
}

/// Returns the effect that a target declares, where it is one that can have happened.
fn declared(word: &str) -> Option<Effect> {
    let effect = Effect::parse(word)?;
    match effect {
        Effect::Created | Effect::Updated | Effect::Deleted | Effect::Noop => Some(effect),
        Effect::WouldCreate | Effect::WouldUpdate | Effect::WouldDelete | Effect::Unknown => None,
    }
}

/// Returns a body as JSON: the value that it is, else a text, else what it is in base64.
fn data(body: &[u8], is_json: bool) -> Vec<u8> {
    if is_json {
        return body.to_vec();
    }
    let value = match std::str::from_utf8(body) {
        Ok(text) => Value::from(text),
        Err(_) => serde_json::json!({"base64": BASE64_STANDARD.encode(body)}),
    };
    value.to_string().into_bytes()
}
