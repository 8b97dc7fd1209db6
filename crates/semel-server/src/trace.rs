//! Traces: which call of whose this one is part of (W3C Trace Context).

use std::fmt;

use axum::http::{HeaderMap, HeaderValue};

/// A place in a trace: what is done here is one span of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    id: u128,
    span: u64,
    sampled: bool,
}

impl Trace {
    /// Goes on with the caller's trace, or starts one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all("traceparent").into_iter();
        let line = lines.next().and_then(|line| line.to_str().ok());
        let caller = line.filter(|_| lines.next().is_none()).and_then(read);
        let (id, sampled) = caller.unwrap_or_else(|| (chance(), false));
        let span = u64::try_from(chance() >> 64).unwrap_or(1).max(1);
        Self { id, span, sampled }
    }

    /// Writes itself for the next hop, or for the answer.
    pub(crate) fn header(self) -> HeaderValue {
        let flags = u8::from(self.sampled);
        let text = format!("00-{:032x}-{:016x}-{flags:02x}", self.id, self.span);
        // Digits and hyphens only.
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.id)
    }
}

/// Reads the trace's id and whether it is recorded.
fn read(line: &str) -> Option<(u128, bool)> {
    let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = line.trim().split('-');
    let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let sizes = [(version, 2), (id, 32), (span, 16), (flags, 2)];
    let fits = sizes
        .iter()
        .all(|(text, size)| text.len() == *size && is_hex(text));
    // A later version may have more parts; this one has none.
    if !fits || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let id = u128::from_str_radix(id, 16).ok().filter(|id| *id != 0)?;
    u64::from_str_radix(span, 16)
        .ok()
        .filter(|span| *span != 0)?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some((id, flags & 1 == 1))
}

/// Draws an id; where the system gives no randomness a trace is not worth failing for.
fn chance() -> u128 {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_le_bytes(bytes).max(1),
        Err(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_caller_s_trace_goes_on_with_a_span_of_its_own() {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", HeaderValue::from_static(LINE));
        let header = Trace::of(&headers).header();
        let text = header.to_str().expect("it is text");
        assert!(
            text.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"),
            "{text}"
        );
        assert!(text.ends_with("-01") && text != LINE, "{text}");
    }

    #[test]
    fn what_is_no_trace_starts_a_new_one() {
        for line in [
            "",
            "00-0-0-0",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
