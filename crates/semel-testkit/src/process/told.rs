//! What agents were told: a file of lines, written after the answer and before anything else.

use std::fmt;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use super::sink::append_to;

/// What an agent was told about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// This very call did it, and this is the answer.
    Done(String),
    /// It was done before, and this is the answer.
    Replayed(String),
    /// Another attempt runs.
    Wait,
    /// Nobody knows.
    InDoubt,
    /// The effect happened, its outcome could not be stored; whether a note keeps it.
    Unstored(bool),
    /// An error, with its code and its text.
    Error(String),
    /// The disk was full, and has room from here on; after this many errors.
    Room(usize),
    /// An attempt that was stopped asked for more time, and got this: `renewed`, or an error's code.
    Renewal(String),
    /// What the process takes for the time, in seconds since 1970.
    Time(u64),
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(answer) => write!(f, "done {answer}"),
            Self::Replayed(answer) => write!(f, "replayed {answer}"),
            Self::Wait => f.write_str("wait "),
            Self::InDoubt => f.write_str("in-doubt "),
            Self::Unstored(noted) => write!(f, "unstored {noted}"),
            Self::Error(text) => write!(f, "error {}", text.replace('\n', " ")),
            Self::Room(errors) => write!(f, "room {errors}"),
            Self::Renewal(answer) => write!(f, "renewal {answer}"),
            Self::Time(seconds) => write!(f, "time {seconds}"),
        }
    }
}

impl Word {
    fn parse(text: &str) -> Option<Self> {
        let (verb, rest) = text.split_once(' ')?;
        match verb {
            "done" => Some(Self::Done(rest.to_owned())),
            "replayed" => Some(Self::Replayed(rest.to_owned())),
            "wait" => Some(Self::Wait),
            "in-doubt" => Some(Self::InDoubt),
            "unstored" => rest.parse().ok().map(Self::Unstored),
            "error" => Some(Self::Error(rest.to_owned())),
            "room" => rest.parse().ok().map(Self::Room),
            "renewal" => Some(Self::Renewal(rest.to_owned())),
            "time" => rest.parse().ok().map(Self::Time),
            _ => None,
        }
    }

    /// Returns the answer of an action that was said to have happened.
    #[must_use]
    pub fn answer(&self) -> Option<&str> {
        match self {
            Self::Done(answer) | Self::Replayed(answer) => Some(answer),
            Self::Wait
            | Self::InDoubt
            | Self::Unstored(_)
            | Self::Error(_)
            | Self::Room(_)
            | Self::Renewal(_)
            | Self::Time(_) => None,
        }
    }
}

/// Remembers what agents were told.
#[derive(Clone, Debug)]
pub struct Told {
    path: PathBuf,
}

impl Told {
    /// Names the file.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Remembers one answer.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn remember(&self, key: &str, word: &Word) {
        let text = format!("{key} {word}\n");
        let written = append_to(&self.path).write(text.as_bytes());
        assert_eq!(written.expect("an answer is remembered"), text.len());
    }

    /// Returns every answer, in order.
    ///
    /// # Panics
    /// When the file holds something else.
    #[must_use]
    pub fn words(&self) -> Vec<(String, Word)> {
        let text = match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return vec![],
            read => read.expect("the file of answers can be read"),
        };
        let parse = |line: &str| {
            let (key, rest) = line.split_once(' ')?;
            Some((key.to_owned(), Word::parse(rest)?))
        };
        let parsed = text
            .lines()
            .map(|line| parse(line).unwrap_or_else(|| panic!("`{line}` is no answer")));
        parsed.collect()
    }
}
