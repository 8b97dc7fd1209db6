//! What a guard answers itself: problems as RFC 9457 writes them, with the codes that every door uses.

use std::fmt::Display;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use semel_core::Timestamp;
use semel_core::http::{AfterExpiry, Profile};
use semel_core::identity::Pointer;
use semel_core::ledger::Rejection;
use serde_json::{Map, Value, json};

use super::Body;
use crate::error::Error;
use crate::incident::{Concealed, Incident};

/// Says that an answer is the guard's own, and which.
pub const SEMEL_ERROR: HeaderName = HeaderName::from_static("semel-error");

/// Tells SDKs whether to retry, whatever the status.
pub(super) const SHOULD_RETRY: [HeaderName; 2] = [
    HeaderName::from_static("x-should-retry"),
    HeaderName::from_static("stripe-should-retry"),
];

/// Returns what names a kind of refusal: not a page, as the path of one would lead to the upstream.
#[must_use]
pub fn error_type(code: &str) -> String {
    format!("urn:semel:error:{code}")
}

/// How long a caller is told to wait when something is not there.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a caller is told to wait for a breaker that a person opened: nobody knows, so not too often.
const UNTIL_CLOSED: Duration = Duration::from_secs(60);

/// Why a request was not carried out, or what became of it instead of an answer.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    hint: Option<Box<str>>,
    retryable: bool,
    retry_after: Option<Duration>,
    /// The status of an answer that was given and is not kept.
    original_status: Option<u16>,
    /// When a breaker lets a call through again.
    retry_at: Option<Timestamp>,
    /// What the client is not told.
    incident: Option<Box<Incident>>,
}

fn status(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or(StatusCode::CONFLICT)
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, title: &'static str, detail: String) -> Self {
        Self {
            status,
            code,
            title,
            detail,
            hint: None,
            retryable: false,
            retry_after: None,
            original_status: None,
            retry_at: None,
            incident: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into_boxed_str());
        self
    }

    fn retryable(mut self, after: Duration) -> Self {
        self.retryable = true;
        self.retry_after = Some(after);
        self
    }

    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
    }

    pub(super) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn missing_key(
        profile: &Profile,
        names: &[HeaderName],
        members: &[Pointer],
    ) -> Self {
        let name = names.first().map_or("Idempotency-Key", HeaderName::as_str);
        let mut detail = format!("requests to this place need a key in the header `{name}`");
        if let Some(member) = members.first() {
            detail.push_str(&format!(
                " or in the member `{}` of the body",
                member.as_str()
            ));
        }
        let status = status(profile.refusals.missing);
        Self::new(status, "invalid_key", "The key breaks its rule", detail)
            .hint("send one key per action, the same for each of its retries: a UUID will do")
    }

    pub(super) fn invalid_body_key(why: &impl Display) -> Self {
        let (status, title) = (StatusCode::BAD_REQUEST, "The key breaks its rule");
        Self::new(status, "invalid_key", title, why.to_string())
            .hint("send the key as a text in the body, or in the header `Idempotency-Key`")
    }

    /// A request whose body may have a key that cannot be read.
    pub(super) fn hidden_key(is_coded: bool) -> Self {
        let why = if is_coded {
            "it is compressed"
        } else {
            "it is longer than 1 MiB"
        };
        let detail = format!("the key is a member of the body, which cannot be read: {why}");
        let (status, title) = (StatusCode::BAD_REQUEST, "The key breaks its rule");
        Self::new(status, "invalid_key", title, detail)
            .hint("send the key in the header `Idempotency-Key` as well")
    }

    pub(super) fn invalid_key(name: &HeaderName, why: &impl Display) -> Self {
        let detail = format!("`{name}`: {why}");
        Self::new(
            StatusCode::BAD_REQUEST,
            "invalid_key",
            "The key breaks its rule",
            detail,
        )
        .hint("a key has 1 to 255 printable ASCII characters, in double quotes or without spaces, commas, semicolons and quotes")
    }

    pub(super) fn two_keys() -> Self {
        let detail = "two headers have a key: which one is meant?".to_owned();
        let (status, title) = (StatusCode::BAD_REQUEST, "The key breaks its rule");
        Self::new(status, "invalid_key", title, detail)
    }

    /// A request that cannot be understood.
    pub(super) fn input(detail: impl Into<String>) -> Self {
        let title = "The request cannot be understood";
        Self::new(
            StatusCode::BAD_REQUEST,
            "invalid_input",
            title,
            detail.into(),
        )
    }

    pub(super) fn dry_run() -> Self {
        Self::input("`Semel-Dry-Run` is `?1` or `?0`")
    }

    pub(super) fn first_sent() -> Self {
        Self::input("`Repeatability-First-Sent` is one date as HTTP writes it")
            .hint("write it as `Sun, 06 Nov 1994 08:49:37 GMT`, the same for each retry")
    }

    pub(super) fn unsupported(detail: impl Into<String>) -> Self {
        let mut refusal = Self::input(detail);
        refusal.status = StatusCode::NOT_IMPLEMENTED;
        refusal
    }

    pub(super) fn too_large(limit: u64) -> Self {
        let detail = format!("a protected request may have a body of {limit} bytes");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Self::new(status, "too_large", "Too large", detail)
    }

    pub(super) fn in_flight(profile: &Profile, after: Duration) -> Self {
        let detail = "the first request with this key has not ended".to_owned();
        let status = status(profile.refusals.in_flight);
        Self::new(status, "in_flight", "Another attempt is under way", detail).retryable(after)
    }

    pub(super) fn key_reused(profile: &Profile) -> Self {
        let detail = "the key was used for another request".to_owned();
        let status = status(profile.refusals.mismatch);
        Self::new(
            status,
            "key_reused",
            "The key belongs to another action",
            detail,
        )
        .hint("a new action needs a new key; a retry sends the same request")
    }

    pub(super) fn in_doubt(profile: &Profile, key: &impl Display) -> Self {
        let detail = "an earlier attempt was sent, and nobody knows whether it took effect; nothing was done now";
        Self::doubt(status(profile.refusals.in_doubt), detail.to_owned(), key)
    }

    /// A request whose answer did not come, or not whole.
    pub(super) fn lost(why: &str, key: &impl Display, timed_out: bool, retries: bool) -> Self {
        let detail = format!("the request was sent, and its answer was lost: {why}");
        let status = if timed_out {
            StatusCode::GATEWAY_TIMEOUT
        } else {
            StatusCode::BAD_GATEWAY
        };
        let refusal = Self::doubt(status, detail, key);
        if retries {
            let mut refusal = refusal.retryable(PAUSE);
            refusal.hint = Some("the same request is sent again when it comes again".into());
            return refusal;
        }
        refusal
    }

    /// A request of which the ledger did not take what became of it.
    pub(super) fn unreported(why: &str, error: &Error, key: &impl Display) -> Self {
        Self::concealing(error, |error| {
            let detail = format!("what became of the request could not be stored ({error}): {why}");
            Self::doubt(StatusCode::BAD_GATEWAY, detail, key)
        })
    }

    /// Makes the refusal of an error without the cause of a store's failure, which goes along for the log.
    fn concealing(error: &Error, make: impl FnOnce(&Error) -> Self) -> Self {
        match error.concealed() {
            None => make(error),
            Some(Concealed { error, incident }) => {
                let mut refusal = make(&error);
                refusal.incident = Some(Box::new(incident));
                refusal
            }
        }
    }

    /// A request whose body could not be kept here until it is sent.
    pub(super) fn unkept(error: &std::io::Error) -> Self {
        let incident = Incident::new(format!("the body of a request cannot be kept: {error}"));
        let id = incident.id;
        let detail =
            format!("the body cannot be kept (the server's log has the cause: incident {id})");
        let mut refusal = Self::internal(detail);
        refusal.incident = Some(Box::new(incident));
        refusal
    }

    fn doubt(status: StatusCode, detail: String, key: &impl Display) -> Self {
        let title = "Nobody knows whether it took effect";
        // A client chose the key, and an operator may paste this into a shell.
        let key = key.to_string().replace('\'', r"'\''");
        let hint = format!("find out, then `semel resolve '{key}' --done` or `--not-done`");
        Self::new(status, "in_doubt", title, detail).hint(hint)
    }

    pub(super) fn not_sent(why: &str) -> Self {
        let detail = format!("nothing of the request was sent: {why}");
        let title = "The upstream cannot be reached";
        Self::new(StatusCode::BAD_GATEWAY, "not_sent", title, detail).retryable(PAUSE)
    }

    /// A request that was only passed on, and whose answer did not come.
    pub(super) fn unanswered(why: &str, timed_out: bool, is_safe: bool) -> Self {
        let status = if timed_out {
            StatusCode::GATEWAY_TIMEOUT
        } else {
            StatusCode::BAD_GATEWAY
        };
        let detail = format!("the request was passed on, and there is no answer: {why}");
        let refusal = Self::new(status, "lost", "The upstream did not answer", detail);
        if is_safe {
            refusal.retryable(PAUSE)
        } else {
            refusal
        }
    }

    pub(super) fn expired(profile: &Profile) -> Self {
        let number = match profile.refusals.expired {
            AfterExpiry::Refuse(number) => number,
            AfterExpiry::Fresh => 410,
        };
        let detail = "it was done, and its answer is no longer kept".to_owned();
        let title = "Settled, and past its retention";
        Self::new(status(number), "expired", title, detail)
    }

    /// An answer that was too long to be kept.
    pub(super) fn not_kept(original: StatusCode) -> Self {
        let detail =
            "it was executed, and its answer was too long to be retained; nothing was done now";
        let (status, title) = (StatusCode::GONE, "Executed, and its answer not retained");
        let mut refusal = Self::new(status, "expired", title, detail.to_owned());
        refusal.original_status = Some(original.as_u16());
        refusal
    }

    /// An answer that is kept in a coding that the request does not accept.
    pub(super) fn not_acceptable(original: StatusCode, coding: &str) -> Self {
        let detail = format!(
            "it was done, and its answer is kept in the coding `{coding}`, which the request does not accept; nothing was done now"
        );
        let title = "The answer that is kept has another coding";
        let hint = format!("send the same request with `Accept-Encoding: {coding}`");
        let status = StatusCode::NOT_ACCEPTABLE;
        let mut refusal = Self::new(status, "not_acceptable", title, detail).hint(hint);
        refusal.original_status = Some(original.as_u16());
        refusal
    }

    /// A request that is older than anything that is kept.
    pub(super) fn forgotten(first_sent: Timestamp) -> Self {
        let detail = format!(
            "the request was first sent at {first_sent}, longer ago than anything is kept: nobody knows whether it was done; nothing was done now"
        );
        let (status, title) = (StatusCode::PRECONDITION_FAILED, "Older than what is kept");
        Self::new(status, "expired", title, detail)
            .hint("find out whether it was done; if not, send it as a new request, with a new key and date")
    }

    /// The target is left alone: nothing was claimed, and nothing sent.
    pub(super) fn breaker_open(detail: &str, retry_at: Option<Timestamp>, now: Timestamp) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let title = "The upstream is left alone for now";
        let detail = format!("{detail}; nothing was sent");
        let pause = retry_at.map_or(UNTIL_CLOSED, |at| at.since(now));
        let hint = "wait until then, or close it by hand once the upstream is well again (`semel breaker close NAME`)";
        let refusal = Self::new(status, "breaker_open", title, detail).hint(hint);
        let mut refusal = refusal.retryable(pause);
        refusal.retry_at = retry_at;
        refusal
    }

    pub(super) fn overloaded(limit: usize) -> Self {
        let detail = format!("{limit} protected requests are under way");
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self::new(status, "rate_limited", "Too many requests", detail).retryable(PAUSE)
    }

    pub(super) fn internal(detail: impl Into<String>) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "internal", "Something is broken", detail.into())
    }

    /// What the ledger refuses, in the words of the profile.
    pub(super) fn of(error: &Error, profile: &Profile) -> Self {
        Self::concealing(error, |error| Self::told(error, profile))
    }

    fn told(error: &Error, profile: &Profile) -> Self {
        if let Some(rejection) = error.rejection() {
            return match rejection {
                Rejection::KeyReused => Self::key_reused(profile),
                Rejection::Expired => Self::expired(profile),
                Rejection::InFlight { .. } => Self::in_flight(profile, PAUSE),
                // Whoever asks a breaker knows its time: see `breaker_open`.
                Rejection::BreakerOpen { .. } => {
                    Self::breaker_open(&error.to_string(), None, Timestamp::default())
                }
                Rejection::InDoubt { .. }
                | Rejection::Dead
                | Rejection::Fenced
                | Rejection::Refused { .. }
                | Rejection::NotFound => {
                    let title = "The ledger does not allow it";
                    let (status, code) = (StatusCode::CONFLICT, rejection.code());
                    Self::new(status, code, title, error.to_string())
                }
            };
        }
        match error.code() {
            "store_unavailable" => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let title = "The store does not answer";
                let detail = format!("{error}; nothing was sent");
                Self::new(status, "store_unavailable", title, detail).retryable(PAUSE)
            }
            "store_unusable" => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let title = "The store may not be written";
                // What is wrong with it, and where it is, is for the operator: `/readyz` and the log say it.
                let detail = "the proxy's store may not be written as it is; nothing was sent";
                Self::new(status, "store_unusable", title, detail.to_owned())
            }
            "in_doubt" => {
                let title = "Nobody knows whether it took effect";
                Self::new(StatusCode::CONFLICT, "in_doubt", title, error.to_string())
            }
            "too_large" => {
                let (status, title) = (StatusCode::PAYLOAD_TOO_LARGE, "Too large");
                Self::new(status, "too_large", title, error.to_string())
            }
            "invalid_input" | "invalid_key" => Self::input(error.to_string()),
            _ => Self::internal(error.to_string()),
        }
    }

    /// Writes it as an answer. What the client is not told is in its extensions, as an [`Incident`].
    #[must_use]
    pub fn response(&self) -> Response<Body> {
        let mut problem = Map::new();
        let code = self.code;
        problem.insert("type".to_owned(), json!(error_type(code)));
        problem.insert("title".to_owned(), json!(self.title));
        problem.insert("status".to_owned(), json!(self.status.as_u16()));
        problem.insert("detail".to_owned(), json!(self.detail));
        problem.insert("code".to_owned(), json!(code));
        problem.insert("hint".to_owned(), json!(self.hint));
        problem.insert("retryable".to_owned(), json!(self.retryable));
        // Some SDKs look for a failure here and nowhere else, whatever the status.
        let error = json!({"type": code, "code": code, "message": self.detail});
        problem.insert("error".to_owned(), error);
        if let Some(original) = self.original_status {
            problem.insert("original_status".to_owned(), json!(original));
        }
        if let Some(at) = self.retry_at {
            problem.insert("retry_at".to_owned(), json!(at.to_string()));
        }
        let mut response = Response::new(Body::full(Value::Object(problem).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let media = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, media);
        headers.insert(SEMEL_ERROR, HeaderValue::from_static(code));
        if let Some(after) = self.retry_after {
            let seconds = after.as_millis().div_ceil(1_000).max(1);
            headers.insert(
                header::RETRY_AFTER,
                HeaderValue::from(u64::try_from(seconds).unwrap_or(1)),
            );
        }
        if !self.retryable {
            do_not_retry(headers);
        }
        if let Some(incident) = &self.incident {
            response.extensions_mut().insert(Incident::clone(incident));
        }
        response
    }
}

/// Tells SDKs that trying again is of no use.
pub(super) fn do_not_retry(headers: &mut http::HeaderMap) {
    for name in SHOULD_RETRY {
        headers.insert(name, HeaderValue::from_static("false"));
    }
}
