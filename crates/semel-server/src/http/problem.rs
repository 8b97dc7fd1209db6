//! Problems: what went wrong, as RFC 9457 writes it, with the codes that every door uses.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use semel::breaker::BreakerView;
use semel::core::ledger::{Record, Rejection};
use semel::view::RecordView;
use semel::{Error, Key, Redactor, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::schema;
use crate::incident;

/// The media type of a problem.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// How long a caller is told to wait when the store does not answer.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// What went wrong, kept small for those whom nothing goes wrong for.
#[derive(Debug)]
pub(crate) struct Problem(Box<Said>);

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Said {
    /// The page that explains the code.
    #[serde(rename = "type")]
    #[schema(format = "uri-reference", example = "/errors/in_flight")]
    kind: String,
    /// The code, in words.
    title: &'static str,
    /// The status, once more.
    #[serde(serialize_with = "number")]
    #[schema(value_type = u16, minimum = 400, maximum = 599)]
    status: StatusCode,
    /// What happened this time.
    detail: String,
    /// The stable code.
    #[schema(value_type = schema::Code)]
    code: &'static str,
    /// What to do next.
    hint: Option<String>,
    /// Whether the same call may succeed later without anybody doing anything.
    retryable: bool,
    /// When it is worth asking again, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
    /// The operation that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    key: Option<String>,
    /// What is stored of it, where the refusal rests on that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = schema::Record)]
    record: Option<Box<RecordView>>,
    /// The same, where it is about a breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = schema::Breaker)]
    breaker: Option<Box<BreakerView>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

/// All codes, with their status, whether trying again can help, and their title.
const CODES: [(&str, StatusCode, bool, &str); 17] = [
    (
        "in_flight",
        StatusCode::CONFLICT,
        true,
        "Another attempt is under way",
    ),
    (
        "breaker_open",
        StatusCode::SERVICE_UNAVAILABLE,
        true,
        "The way out is closed for now",
    ),
    (
        "in_doubt",
        StatusCode::CONFLICT,
        false,
        "Nobody knows whether it took effect",
    ),
    (
        "key_reused",
        StatusCode::UNPROCESSABLE_ENTITY,
        false,
        "The key belongs to another action",
    ),
    (
        "dead",
        StatusCode::CONFLICT,
        false,
        "Out of attempts, and not applied",
    ),
    (
        "expired",
        StatusCode::GONE,
        false,
        "Settled, and past its retention",
    ),
    (
        "fenced",
        StatusCode::CONFLICT,
        false,
        "Something newer came first",
    ),
    (
        "invalid_key",
        StatusCode::BAD_REQUEST,
        false,
        "The key breaks its rule",
    ),
    (
        "invalid_input",
        StatusCode::BAD_REQUEST,
        false,
        "The request cannot be understood",
    ),
    (
        "too_large",
        StatusCode::PAYLOAD_TOO_LARGE,
        false,
        "Too large",
    ),
    (
        "not_found",
        StatusCode::NOT_FOUND,
        false,
        "There is no such thing",
    ),
    (
        "unauthorized",
        StatusCode::UNAUTHORIZED,
        false,
        "Not proven who asks",
    ),
    ("forbidden", StatusCode::FORBIDDEN, false, "Not allowed"),
    (
        "rate_limited",
        StatusCode::TOO_MANY_REQUESTS,
        true,
        "Too many requests",
    ),
    (
        "store_unavailable",
        StatusCode::SERVICE_UNAVAILABLE,
        true,
        "The store does not answer",
    ),
    (
        "store_unusable",
        StatusCode::SERVICE_UNAVAILABLE,
        false,
        "The store may not be written",
    ),
    (
        "internal",
        StatusCode::INTERNAL_SERVER_ERROR,
        false,
        "Something is broken",
    ),
];

/// Returns all codes.
pub(crate) fn codes() -> impl Iterator<Item = &'static str> {
    CODES.iter().map(|(code, ..)| *code)
}

impl Problem {
    pub(crate) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        let known = CODES.iter().find(|(known, ..)| *known == code);
        let (_, status, retryable, title) = known.copied().unwrap_or(CODES[CODES.len() - 1]);
        Self(Box::new(Said {
            kind: format!("/errors/{code}"),
            title,
            status,
            detail: detail.into(),
            code,
            hint: None,
            retryable,
            retry_after_ms: None,
            key: None,
            record: None,
            breaker: None,
        }))
    }

    /// Names it without a page: the path of one leads elsewhere, as before a proxy.
    pub(crate) fn without_page(mut self) -> Self {
        self.0.kind = semel::http::error_type(self.0.code);
        self
    }

    /// A request that cannot be understood.
    pub(crate) fn input(detail: impl Into<String>) -> Self {
        Self::new("invalid_input", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new("not_found", detail)
    }

    /// The store did not answer in time; what was asked may have been done.
    pub(crate) fn timeout(deadline: Duration) -> Self {
        let seconds = deadline.as_secs_f64();
        Self::new(
            "store_unavailable",
            format!("the store did not answer within {seconds} s"),
        )
        .hint("send the same request again: it does no more than once")
        .after(STORE_PAUSE)
    }

    /// A path that has other methods.
    pub(crate) fn method() -> Self {
        Self::input("this path has other methods")
            .hint("Allow says which")
            .with_status(StatusCode::METHOD_NOT_ALLOWED)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn after(mut self, pause: Duration) -> Self {
        self.0.retry_after_ms = Some(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        self
    }

    pub(crate) fn about(mut self, key: &Key) -> Self {
        self.0.key = Some(key.to_string());
        self
    }

    /// Shows what is stored.
    pub(crate) fn resting_on(mut self, record: Option<RecordView>) -> Self {
        let record = record.map(|record| record.shown(&Redactor::default()));
        self.0.record = record.map(Box::new);
        self
    }

    /// Makes the problem of an engine's error, as of a moment. The cause of a store's failure goes to the log.
    pub(crate) fn of(error: &Error, now: Timestamp) -> Self {
        let concealed = incident::conceal_from(error);
        let error = concealed.as_ref().unwrap_or(error);
        let code = match error.code() {
            // Doors that act for others answer with receipts; here only reports and claims are.
            "failed" | "not_done" => "internal",
            code => code,
        };
        let mut problem = Self::new(code, error.to_string());
        problem.0.hint = error.hint().map(str::to_owned);
        problem.0.retryable = error.retryable();
        if code == "store_unavailable" {
            problem = problem.after(STORE_PAUSE);
        }
        if let Error::Refused(refusal) = error {
            problem.0.key = refusal.key.as_ref().map(ToString::to_string);
            // Another fingerprint must not learn what the key's own callers know.
            if refusal.rejection != Rejection::KeyReused {
                let record = refusal.record.as_deref();
                problem = problem.resting_on(record.and_then(|it| RecordView::of(it, now)));
                if let Some(breaker) = record.and_then(Record::breaker) {
                    problem.0.breaker = Some(Box::new(BreakerView::of(breaker, now)));
                }
            }
            if refusal.rejection == Rejection::Fenced && problem.0.breaker.is_some() {
                problem = problem.hint("read the breaker again and decide on what it says now");
            }
            if let Rejection::BreakerOpen { retry_at } = refusal.rejection {
                problem = problem.after(retry_at.map_or(STORE_PAUSE, |at| at.since(now)));
            }
            if let Rejection::InFlight { until } = refusal.rejection {
                let pause = until.map_or(STORE_PAUSE, |until| until.since(now));
                problem = problem.after(pause.min(STORE_PAUSE));
            }
        }
        problem
    }

    /// Answers with another status than the code's own.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    pub(crate) fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    pub(crate) fn code(&self) -> &'static str {
        self.0.code
    }

    /// Returns what happened this time.
    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Returns the operation that it is about.
    pub(crate) fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        // Strings and numbers only: writing them cannot fail.
        serde_json::to_vec(&self.0).unwrap_or_default()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.0.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if let Some(pause) = self.0.retry_after_ms {
            // The header has whole seconds; the member says it exactly.
            headers.insert(header::RETRY_AFTER, pause.div_ceil(1_000).max(1).into());
        }
        if self.0.code == "unauthorized" {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page() {
        let pages = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        for (code, status, retryable, _) in CODES {
            let page = std::fs::read_to_string(pages.join(format!("{code}.md")));
            let page = page.unwrap_or_else(|error| panic!("{code}: {error}"));
            let row = page.lines().filter(|line| line.starts_with("| ")).nth(1);
            let row = row.unwrap_or_else(|| panic!("{code}: no table"));
            assert!(row.contains(status.as_str()), "{code}: {row}");
            assert!(
                row.contains(if retryable { "yes" } else { "no" }),
                "{code}: {row}"
            );
        }
    }
}
