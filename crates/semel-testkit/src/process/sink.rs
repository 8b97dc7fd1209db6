//! The world that effects happen in: a file of lines that knows nothing of Semel.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use semel_core::ledger::Fence;

/// One effect that happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// Whose effect it is.
    pub key: String,
    /// The fence of the attempt that caused it.
    pub fence: u64,
    /// The process that caused it.
    pub pid: u32,
}

impl Line {
    /// Returns what an action answers that caused this line: unlike any other's answer.
    #[must_use]
    pub fn answer(&self) -> String {
        format!(
            "{} by process {} with fence {}",
            self.key, self.pid, self.fence
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let line = Self {
            key: words.next()?.to_owned(),
            fence: words.next()?.parse().ok()?,
            pid: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(line)
    }
}

/// Counts effects.
#[derive(Clone, Debug)]
pub struct Sink {
    path: PathBuf,
}

impl Sink {
    /// Names the file; it is made with the first effect.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Causes one effect: a synced line. `half_way` runs when the line is there and not synced.
    ///
    /// # Panics
    /// When the line cannot be written: nothing could be said about the effect then.
    pub fn cause(&self, key: &str, fence: Fence, half_way: impl FnOnce()) -> Line {
        let line = Line {
            key: key.to_owned(),
            fence: fence.0,
            pid: std::process::id(),
        };
        let mut file = append_to(&self.path);
        let text = format!("{} {} {}\n", line.key, line.fence, line.pid);
        // One call: lines of several processes never mix, and half a line is never there.
        let written = file.write(text.as_bytes()).expect("the effect happens");
        assert_eq!(written, text.len(), "the effect happens as a whole");
        half_way();
        file.sync_data().expect("the effect is synced");
        line
    }

    /// Returns every effect, in the order in which they happened.
    ///
    /// # Panics
    /// When the file holds something else.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let text = match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return vec![],
            read => read.expect("the sink can be read"),
        };
        let parse = |line| Line::parse(line).unwrap_or_else(|| panic!("`{line}` is no effect"));
        text.lines().map(parse).collect()
    }

    /// Returns the last effect of a key.
    #[must_use]
    pub fn last_of(&self, key: &str) -> Option<Line> {
        let lines = self.lines();
        lines.into_iter().rev().find(|line| line.key == key)
    }
}

pub(super) fn append_to(path: &PathBuf) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap_or_else(|error| panic!("{} can be appended to: {error}", path.display()))
}
