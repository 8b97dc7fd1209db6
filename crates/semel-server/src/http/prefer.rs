//! What a caller would like (RFC 7240): how long to wait for an answer.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;

/// Reads `Prefer: wait=SECONDS`; what cannot be read is no preference.
pub(super) fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all("prefer").into_iter();
    let preferences = lines.filter_map(|line| line.to_str().ok());
    let mut preferences = preferences.flat_map(|line| line.split(','));
    let seconds = preferences.find_map(|preference| {
        let preference = preference.split(';').next().unwrap_or_default();
        let (name, value) = preference.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim()
            .eq_ignore_ascii_case("wait")
            .then(|| value.parse::<u32>().ok())?
    });
    seconds.map(|seconds| Duration::from_secs(seconds.into()))
}

/// Says how long was waited at most, where a wait was asked for.
pub(super) fn waited(mut response: Response, wait: Option<Duration>) -> Response {
    let value = wait.map(|wait| HeaderValue::try_from(format!("wait={}", wait.as_secs())));
    if let Some(Ok(value)) = value {
        let name = HeaderName::from_static("preference-applied");
        response.headers_mut().insert(name, value);
    }
    response
}
