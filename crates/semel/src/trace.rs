//! Traces: which call of whose something is part of (W3C Trace Context).
//!
//! A trace passes from door to door: in the `traceparent` header of requests, and in the environment variable
//! `TRACEPARENT` of processes.

use std::fmt;

/// The environment variable that carries a trace to another process.
pub const VARIABLE: &str = "TRACEPARENT";

/// The header that carries a trace to another service.
pub const HEADER: &str = "traceparent";

/// A place in a trace: what is done here is one span of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    id: u128,
    span: u64,
    parent: Option<u64>,
    sampled: bool,
}

impl Trace {
    /// Starts a trace that nobody asked to be recorded.
    #[must_use]
    pub fn start() -> Self {
        Self {
            id: chance(),
            span: chance_of_span(),
            parent: None,
            sampled: false,
        }
    }

    /// Goes on with the trace that a caller wrote, in a span of its own; `None` when it wrote none.
    #[must_use]
    pub fn follow(line: &str) -> Option<Self> {
        let (id, caller, sampled) = read(line)?;
        Some(Self {
            id,
            span: chance_of_span(),
            parent: Some(caller),
            sampled,
        })
    }

    /// Goes on with the trace of whoever started this process, if there is one.
    #[must_use]
    pub fn of_process() -> Option<Self> {
        let line = std::env::var(VARIABLE).ok()?;
        Self::follow(&line)
    }

    /// Says whether it may be recorded: the caller said so, or there is none.
    #[must_use]
    pub const fn is_recorded(self) -> bool {
        self.sampled || self.parent.is_none()
    }

    /// Returns the number that the whole trace has.
    #[must_use]
    pub const fn id(self) -> u128 {
        self.id
    }

    /// Returns the number of this span.
    #[must_use]
    pub const fn span(self) -> u64 {
        self.span
    }

    /// Returns the number of the caller's span.
    #[must_use]
    pub const fn parent(self) -> Option<u64> {
        self.parent
    }
}

/// Writes it for the next hop, or for the answer.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.id, self.span)
    }
}

/// Reads the trace's id, the caller's span and whether it is recorded.
fn read(line: &str) -> Option<(u128, u64, bool)> {
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
    let span = u64::from_str_radix(span, 16).ok();
    let span = span.filter(|span| *span != 0)?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some((id, span, flags & 1 == 1))
}

/// Draws an id; where the system gives no randomness a trace is not worth failing for.
fn chance() -> u128 {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_le_bytes(bytes).max(1),
        Err(_) => 1,
    }
}

fn chance_of_span() -> u64 {
    u64::try_from(chance() >> 64).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_caller_s_trace_goes_on_with_a_span_of_its_own() {
        let trace = Trace::follow(LINE).expect("it is one");
        let text = trace.to_string();
        assert!(
            text.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"),
            "{text}"
        );
        assert!(text.ends_with("-01") && text != LINE, "{text}");
        assert_eq!(trace.parent(), Some(0x00f0_67aa_0ba9_02b7));
        let next = Trace::follow(&text).expect("it is one");
        assert_eq!((next.id(), next.parent()), (trace.id(), Some(trace.span())));
    }

    #[test]
    fn a_new_trace_is_unlike_others() {
        let (a, b) = (Trace::start(), Trace::start());
        assert_ne!(a.id(), b.id());
        assert!(a.parent().is_none() && a.to_string().ends_with("-00"));
    }

    #[test]
    fn what_is_no_trace_is_not_followed() {
        for line in [
            "",
            "00-0-0-0",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert_eq!(Trace::follow(line), None, "{line}");
        }
    }
}
