//! Server-sent events: messages within a response of HTTP that goes on.

use std::fmt;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::message::{MESSAGE_MAX, Message};

/// The longest event id that is kept, in bytes: it comes back in a header.
const ID_MAX: usize = 4 * 1024;

/// One event.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// What kind it is; `message` where it does not say.
    pub(crate) kind: String,
    /// What it holds.
    pub(crate) data: Bytes,
}

/// An event was larger than a message may be, and was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event may have {MESSAGE_MAX} bytes; this one has more")]
pub(crate) struct TooLarge;

/// Reads events from bytes as they come, cut anywhere.
pub(crate) struct Decoder {
    line: Vec<u8>,
    data: Vec<u8>,
    kind: String,
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
    /// Whether anything came yet: a byte order mark may only stand first.
    begun: bool,
    /// Whether the last byte was a carriage return: a line feed after it ends no other line.
    after_return: bool,
    /// Whether the event is too large and its rest is passed over.
    passing_over: bool,
    /// Whether the line has anything in it, also where it is not kept.
    line_is_blank: bool,
    limit: usize,
}

impl fmt::Debug for Event {
    /// Shows what it is and not what it says, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .field("size", &self.data.len())
            .finish()
    }
}

impl fmt::Debug for Decoder {
    /// Shows how far it is, and not what it read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("last_id", &self.last_id)
            .field("held", &(self.line.len() + self.data.len()))
            .finish_non_exhaustive()
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::with_limit(MESSAGE_MAX)
    }
}

impl Decoder {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            kind: String::new(),
            id: None,
            last_id: None,
            retry: None,
            begun: false,
            after_return: false,
            passing_over: false,
            line_is_blank: true,
            limit,
        }
    }

    /// Takes the next bytes and returns the events that end in them. What follows the last whole
    /// event when the stream ends is no event.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Result<Event, TooLarge>> {
        let mut events = Vec::new();
        for byte in bytes {
            let follows_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => events.extend(self.end_line().map(Ok)),
                byte => {
                    if self.keep(*byte).is_err() {
                        events.push(Err(TooLarge));
                    }
                }
            }
        }
        events
    }

    /// Returns the id of the last whole event, from where the stream can be taken up again.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Returns how long the server asks to wait before that.
    pub(crate) const fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Keeps a byte of a line; fails once for an event that is too large.
    fn keep(&mut self, byte: u8) -> Result<(), TooLarge> {
        self.line_is_blank = false;
        if self.passing_over {
            return Ok(());
        }
        self.line.push(byte);
        if !self.begun && self.line == [0xEF, 0xBB, 0xBF] {
            self.line.clear();
            self.line_is_blank = true;
            self.begun = true;
        }
        if self.line.len() + self.data.len() > self.limit {
            self.passing_over = true;
            self.line = Vec::new();
            self.data = Vec::new();
            return Err(TooLarge);
        }
        Ok(())
    }

    fn end_line(&mut self) -> Option<Event> {
        self.begun = true;
        if std::mem::replace(&mut self.line_is_blank, true) {
            return self.end_event();
        }
        let line = std::mem::take(&mut self.line);
        if !self.passing_over {
            self.field(&line);
        }
        // Its room serves the next line.
        self.line = line;
        self.line.clear();
        None
    }

    fn field(&mut self, line: &[u8]) {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => self.kind = String::from_utf8_lossy(value).into_owned(),
            b"id" if value.len() <= ID_MAX && !value.contains(&0) => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let millis = std::str::from_utf8(value)
                    .ok()
                    .and_then(|it| it.parse().ok());
                self.retry = millis.map(Duration::from_millis).or(self.retry);
            }
            // A comment has no name; names that nobody knows say nothing.
            _ => {}
        }
    }

    fn end_event(&mut self) -> Option<Event> {
        let kind = std::mem::take(&mut self.kind);
        let mut data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.passing_over) {
            // An event that was passed over is not behind us: taken up again, it may come again.
            self.id = None;
            return None;
        }
        if let Some(id) = self.id.take() {
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        if data.pop().is_none() || data.is_empty() {
            return None;
        }
        Some(Event {
            kind: if kind.is_empty() {
                "message".to_owned()
            } else {
                kind
            },
            data: data.into(),
        })
    }
}

/// Writes a message as one event.
pub(crate) fn event(message: &Message, id: Option<&str>) -> Bytes {
    let line = message.line();
    let mut out = BytesMut::with_capacity(line.len() + 64);
    out.put_slice(b"event: message\n");
    if let Some(id) = id {
        // A line break would end the field, and what follows it would be another one.
        let id = id.split(['\r', '\n']).next().unwrap_or_default();
        out.put_slice(b"id: ");
        out.put_slice(id.as_bytes());
        out.put_slice(b"\n");
    }
    out.put_slice(b"data: ");
    out.put_slice(&line);
    out.put_slice(b"\n\n");
    out.freeze()
}
