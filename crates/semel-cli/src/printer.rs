//! All that is written: data to standard output, everything else to standard error.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::visible;

/// Writes for people, or for programs.
#[derive(Debug)]
pub(crate) struct Printer {
    json: bool,
    quiet: bool,
    /// Why standard output takes nothing any more.
    closed: RefCell<Option<io::Error>>,
}

impl Printer {
    pub(crate) const fn new(json: bool, quiet: bool) -> Self {
        Self {
            json,
            quiet,
            closed: RefCell::new(None),
        }
    }

    /// Says whether programs read the answer.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Writes an answer: one JSON object, or lines for people.
    pub(crate) fn answer(&self, json: &impl Serialize, lines: &str) {
        if self.json {
            self.object(json);
        } else {
            self.line(lines);
        }
    }

    /// Writes one JSON object on a line of its own.
    pub(crate) fn object(&self, json: &impl Serialize) {
        match serde_json::to_string(json) {
            Ok(text) => self.write(&visible::json(&text)),
            Err(error) => self.close(io::Error::other(error)),
        }
    }

    /// Writes a line of data. What a terminal would hide, or show elsewhere, is escaped: it may be a name that was
    /// chosen to look like another one.
    pub(crate) fn line(&self, text: &str) {
        self.write(&visible::lines(text));
    }

    fn write(&self, text: &str) {
        if !self.is_closed() {
            let written = writeln!(anstream::stdout(), "{text}");
            written.unwrap_or_else(|error| self.close(error));
        }
    }

    /// Says whether nobody takes the data any more, so that there is no need to make more of it.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Says whether whoever read the data has gone, without writing anything.
    pub(crate) fn is_left(&self) -> bool {
        let stdout = io::stdout();
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        // What cannot be found out shows at the next write.
        let seen = poll(&mut watched, Some(&Timespec::default()));
        seen.is_ok()
            && watched[0]
                .revents()
                .intersects(PollFlags::ERR | PollFlags::HUP)
    }

    fn close(&self, error: io::Error) {
        *self.closed.borrow_mut() = Some(error);
    }

    /// Tells a person at a terminal what happened.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && io::stderr().is_terminal() {
            err(&format!("semel: {text}"));
        }
    }

    /// Tells what must be known, at a terminal or not.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            err(&format!("semel: {text}"));
        }
    }

    /// Says what to do next.
    pub(crate) fn hint(&self, text: &str) {
        if !self.quiet {
            err(&format!("hint: {text}"));
        }
    }

    /// Tells why it went wrong.
    pub(crate) fn failure(&self, failure: &Failure) -> ExitCode {
        if self.json {
            self.object(&failure_object(failure));
        }
        explain(&failure.message, failure.hint.as_deref());
        ExitCode::from(failure.exit())
    }

    /// Ends the process's output; data that could not be written is a failure of its own, unless
    /// whoever read it has read enough.
    pub(crate) fn finish(&self, code: ExitCode) -> ExitCode {
        match self.closed.take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let text = format!("standard output cannot be written: {error}");
                explain(&text, None);
                ExitCode::from(125)
            }
            Some(_) | None => code,
        }
    }
}

/// Makes the JSON of an error.
pub(crate) fn failure_object(failure: &Failure) -> serde_json::Value {
    let mut object = json!({
        "ok": false,
        "error": {
            "code": failure.code,
            "message": failure.message,
            "hint": failure.hint,
            "retryable": failure.retryable,
        },
    });
    if let Some(at) = &failure.retry_at {
        object["error"]["retry_at"] = json!(at);
    }
    if let Some(key) = &failure.key {
        object["key"] = json!(key);
    }
    object
}

/// Writes the lines for people.
pub(crate) fn explain(message: &str, hint: Option<&str>) {
    err(&format!("semel: {message}"));
    if let Some(hint) = hint {
        err(&format!("hint: {hint}"));
    }
}

// What cannot be said on standard error cannot be said at all.
fn err(text: &str) {
    // Some of it are the words of a server or of a file.
    let text = visible::value(text);
    drop(writeln!(anstream::stderr(), "{text}"));
}
