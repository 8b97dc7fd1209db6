//! Streams of events whose last event says that it is the last.
//!
//! Clients of language models stop reading there, before the answer itself has ended. So that event is an end as well,
//! and is told when the answer is stored.

/// How the last event of a stream begins, on a line of its own: completions as OpenAI writes them, its responses, and
/// messages as Anthropic writes them.
const LAST: [&[u8]; 7] = [
    b"data: [DONE]",
    b"data:[DONE]",
    b"event: message_stop",
    b"event:message_stop",
    b"event: response.completed",
    b"event: response.incomplete",
    b"event: response.failed",
];

/// Looks for the last event of a stream.
#[derive(Clone, Debug)]
pub struct LastEvent {
    /// The end of what came, as far as it may be the beginning of what is looked for.
    tail: Vec<u8>,
}

impl LastEvent {
    /// Looks for it in an answer of this type; `None` where there is none.
    #[must_use]
    pub fn of(content_type: Option<&str>) -> Option<Self> {
        let essence = content_type?.split(';').next()?.trim();
        // What comes first begins a line.
        let tail = vec![b'\n'];
        essence
            .eq_ignore_ascii_case("text/event-stream")
            .then_some(Self { tail })
    }

    /// Says whether a piece has the last event in it, or what is left of its beginning.
    pub fn is_in(&mut self, piece: &[u8]) -> bool {
        let longest = LAST.iter().map(|last| last.len()).max().unwrap_or(0);
        self.tail.extend_from_slice(piece);
        let begins = |line: &[u8]| LAST.iter().any(|last| line.starts_with(last));
        let mut lines = self.tail.split(|byte| matches!(byte, b'\n' | b'\r'));
        // What stands before the first end of a line began earlier than what is kept.
        lines.next();
        let is_in = lines.any(begins);
        let start = self.tail.len().saturating_sub(longest + 1);
        self.tail.drain(..start);
        is_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked_for() -> LastEvent {
        LastEvent::of(Some("text/event-stream; charset=utf-8")).unwrap()
    }

    #[test]
    fn the_last_event_is_found_wherever_it_is_cut() {
        for text in [
            "data: {\"a\": 1}\n\ndata: [DONE]\n\n",
            "event: x\ndata: 1\n\nevent: message_stop\ndata: {}\n\n",
            "data: [DONE]\n\n",
            "event: response.completed\r\ndata: {}\r\n\r\n",
        ] {
            assert!(looked_for().is_in(text.as_bytes()), "{text}");
            for cut in 0..text.len() {
                let mut last = looked_for();
                let (one, other) = text.as_bytes().split_at(cut);
                assert!(last.is_in(one) | last.is_in(other), "{text} at {cut}");
            }
            let mut last = looked_for();
            let found = text.as_bytes().iter().filter(|byte| last.is_in(&[**byte]));
            assert!(found.count() > 0, "{text} byte by byte");
        }
    }

    #[test]
    fn nothing_else_is_taken_for_it() {
        let text = "data: \"data: [DONE]\"\n\ndata: [DONE\n\nevent: message_start\nid: event: message_stop\n\n";
        for cut in 0..text.len() {
            let mut last = looked_for();
            let (one, other) = text.as_bytes().split_at(cut);
            assert!(!(last.is_in(one) | last.is_in(other)), "at {cut}");
        }
        assert!(LastEvent::of(Some("application/json")).is_none());
        assert!(LastEvent::of(None).is_none());
    }
}
