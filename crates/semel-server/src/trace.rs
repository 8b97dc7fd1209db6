//! The trace of a request: it goes on with its caller's, and its answer says so.

use axum::http::{HeaderMap, HeaderValue};
use semel::trace::{HEADER, Trace};

/// Goes on with the caller's trace, or starts one.
pub(crate) fn of(headers: &HeaderMap) -> Trace {
    let mut lines = headers.get_all(HEADER).into_iter();
    let line = lines.next().and_then(|line| line.to_str().ok());
    let line = line.filter(|_| lines.next().is_none());
    line.and_then(Trace::follow).unwrap_or_else(Trace::start)
}

/// Writes a trace for the answer.
pub(crate) fn header(trace: Trace) -> HeaderValue {
    // Digits and hyphens only.
    HeaderValue::try_from(trace.to_string()).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_traces_are_none() {
        let line = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut headers = HeaderMap::new();
        headers.append(HEADER, HeaderValue::from_static(line));
        let id = of(&headers).id();
        assert_eq!(id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        headers.append(HEADER, HeaderValue::from_static(line));
        assert_ne!(of(&headers).id(), id);
    }
}
