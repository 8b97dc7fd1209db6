//! Messages that end with their line, as programs that speak over pipes send them.

use std::fmt;
use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::message::{MESSAGE_MAX, Malformed, Message};

/// How much is read at once: what a pipe holds.
const READ_SIZE: usize = 64 * 1024;

/// How many bytes are shown of something that is no message.
const SHOWN_MAX: usize = 120;

/// Reads messages, one on each line.
///
/// Whatever is no message is told as such and passed over. No line is kept beyond its limit.
pub(crate) struct Lines<R> {
    from: R,
    held: BytesMut,
    /// How much of what is held is known to have no line end.
    scanned: usize,
    /// Whether the rest of a line that was too long is to be passed over.
    passing_over: bool,
    ended: bool,
    limit: usize,
}

/// What a line holds.
#[derive(Debug)]
pub(crate) enum Line {
    /// A message.
    Message(Message),
    /// Something else.
    Noise(Noise),
}

/// A line that is no message.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Noise {
    /// Why it is none.
    pub(crate) why: Malformed,
    /// The id in it, for the answer that somebody may wait for.
    pub(crate) id: Option<String>,
    /// How it begins, printable whatever it is.
    pub(crate) start: String,
}

impl fmt::Debug for Noise {
    /// Shows why, and not what it says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noise")
            .field("why", &self.why)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Noise {
    fn of(line: &[u8], why: Malformed) -> Self {
        Self {
            id: Message::id_in(line),
            start: shown(line),
            why,
        }
    }

    fn too_long(line: &[u8]) -> Self {
        Self {
            why: Malformed::TooLarge,
            // A part of a message is not JSON; looking for its id would be a guess.
            id: None,
            start: shown(line),
        }
    }
}

impl<R> fmt::Debug for Lines<R> {
    /// Shows how much is held, and not what it says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Starts to read.
    pub(crate) fn new(from: R) -> Self {
        Self::with_limit(from, MESSAGE_MAX)
    }

    pub(super) fn with_limit(from: R, limit: usize) -> Self {
        Self {
            from,
            held: BytesMut::new(),
            scanned: 0,
            passing_over: false,
            ended: false,
            limit,
        }
    }

    /// Returns the next line that is not blank; `None` at the end. The last line needs no line end.
    ///
    /// Giving it up while it waits loses nothing.
    ///
    /// # Errors
    /// Whatever reading says.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.whole_line() {
                if let Some(line) = self.judged(&line) {
                    return Ok(Some(line));
                }
                continue;
            }
            // A carriage return may follow the longest line.
            if self.held.len() > self.limit + 1 {
                let start = self.held.split();
                self.scanned = 0;
                // Said at once, as the line end may never come; and once.
                if !std::mem::replace(&mut self.passing_over, true) {
                    return Ok(Some(Line::Noise(Noise::too_long(&start))));
                }
            }
            if self.ended {
                let line = self.held.split().freeze();
                self.scanned = 0;
                return Ok(self.judged(&line));
            }
            self.held.reserve(READ_SIZE);
            self.ended = self.from.read_buf(&mut self.held).await? == 0;
        }
    }

    /// Takes a line off what is held, without its end.
    fn whole_line(&mut self) -> Option<Bytes> {
        let fresh = &self.held[self.scanned..];
        let Some(end) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.held.len();
            return None;
        };
        let mut line = self.held.split_to(self.scanned + end + 1);
        self.scanned = 0;
        line.truncate(line.len() - 1);
        Some(line.freeze())
    }

    /// Says what a line holds; nothing for a blank one, and for the rest of one that was too long.
    fn judged(&mut self, line: &Bytes) -> Option<Line> {
        if std::mem::take(&mut self.passing_over) {
            return None;
        }
        let line = match line.strip_suffix(b"\r") {
            Some(rest) => line.slice(..rest.len()),
            None => line.clone(),
        };
        if line.trim_ascii().is_empty() {
            return None;
        }
        if line.len() > self.limit {
            return Some(Line::Noise(Noise::too_long(&line)));
        }
        Some(match Message::read(line.clone()) {
            Ok(message) => Line::Message(message),
            Err(why) => Line::Noise(Noise::of(&line, why)),
        })
    }
}

/// Shows how something begins, in printable ASCII.
fn shown(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(SHOWN_MAX)];
    let cut = if start.len() < bytes.len() { "…" } else { "" };
    format!("{}{cut}", start.escape_ascii())
}
