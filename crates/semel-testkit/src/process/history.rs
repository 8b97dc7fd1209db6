//! What callers asked and heard, and when: a file of lines that all processes of a scene append to.
//!
//! Times are those of the monotonic clock, which all processes of a machine share. A call is written
//! before it is made and its return after it came, so that what lies between is certain; a call
//! without a return may have happened at any time since, or never.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::sink::append_to;

/// What a caller asks of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To act.
    Begin,
    /// To settle, as the attempt with this fence, by this answer.
    Done(u64, String),
    /// To release, as the attempt with this fence.
    NotDone(u64),
    /// To settle a doubt by this answer, or as not done: an operator's word.
    Resolve(Option<String>),
}

/// What a caller hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Act, with this fence, for this long.
    Granted {
        /// The attempt's.
        fence: u64,
        /// The attempt's.
        lease: Duration,
    },
    /// Look up, with this fence, for this long.
    Probing {
        /// The attempt's.
        fence: u64,
        /// The attempt's.
        lease: Duration,
    },
    /// It was done before, with this answer.
    Replay(String),
    /// Another attempt runs.
    InFlight,
    /// Nobody knows.
    InDoubt,
    /// This call has settled it, with this answer.
    Settled(String),
    /// It is settled with this answer, whatever this call said.
    Stored(String),
    /// Somebody else may act.
    Released,
    /// The attempt has lost its right to speak.
    Fenced,
    /// The doubt is settled.
    Resolved,
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => f.write_str("begin"),
            Self::Done(fence, answer) => write!(f, "done {fence} {answer}"),
            Self::NotDone(fence) => write!(f, "not-done {fence}"),
            Self::Resolve(Some(answer)) => write!(f, "resolve-done {answer}"),
            Self::Resolve(None) => f.write_str("resolve-not-done"),
        }
    }
}

impl Ask {
    fn parse(text: &str) -> Option<Self> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match verb {
            "begin" => Self::Begin,
            "done" => {
                let (fence, answer) = rest.split_once(' ')?;
                Self::Done(fence.parse().ok()?, answer.to_owned())
            }
            "not-done" => Self::NotDone(rest.parse().ok()?),
            "resolve-done" => Self::Resolve(Some(rest.to_owned())),
            "resolve-not-done" => Self::Resolve(None),
            _ => return None,
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { fence, lease } => write!(f, "granted {fence} {}", lease.as_millis()),
            Self::Probing { fence, lease } => write!(f, "probing {fence} {}", lease.as_millis()),
            Self::Replay(answer) => write!(f, "replay {answer}"),
            Self::InFlight => f.write_str("in-flight"),
            Self::InDoubt => f.write_str("in-doubt"),
            Self::Settled(answer) => write!(f, "settled {answer}"),
            Self::Stored(answer) => write!(f, "stored {answer}"),
            Self::Released => f.write_str("released"),
            Self::Fenced => f.write_str("fenced"),
            Self::Resolved => f.write_str("resolved"),
        }
    }
}

impl Answer {
    fn parse(text: &str) -> Option<Self> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let grant = || {
            let (fence, millis) = rest.split_once(' ')?;
            let lease = Duration::from_millis(millis.parse().ok()?);
            Some((fence.parse().ok()?, lease))
        };
        Some(match verb {
            "granted" => {
                let (fence, lease) = grant()?;
                Self::Granted { fence, lease }
            }
            "probing" => {
                let (fence, lease) = grant()?;
                Self::Probing { fence, lease }
            }
            "replay" => Self::Replay(rest.to_owned()),
            "in-flight" => Self::InFlight,
            "in-doubt" => Self::InDoubt,
            "settled" => Self::Settled(rest.to_owned()),
            "stored" => Self::Stored(rest.to_owned()),
            "released" => Self::Released,
            "fenced" => Self::Fenced,
            "resolved" => Self::Resolved,
            _ => return None,
        })
    }
}

/// One call and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Which process called.
    pub pid: u32,
    /// What was asked.
    pub ask: Ask,
    /// When, in nanoseconds of the monotonic clock.
    pub called: u64,
    /// What came back, and when; `None` when nothing did that proves anything.
    pub back: Option<(u64, Answer)>,
}

/// A call that was made.
#[derive(Debug)]
pub(super) struct Call(String);

/// Writes calls and returns down, or nothing where it has no file.
#[derive(Debug)]
pub struct History {
    path: Option<PathBuf>,
    /// When this process began to write: process ids are used again.
    since: u64,
    calls: AtomicU64,
}

impl History {
    /// Names the file.
    #[must_use]
    pub fn at(path: Option<PathBuf>) -> Self {
        Self {
            path,
            since: now(),
            calls: AtomicU64::new(0),
        }
    }

    pub(super) fn call(&self, key: &str, ask: &Ask) -> Call {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = Call(format!("{} {}-{number}", std::process::id(), self.since));
        self.write(&format!("call {} {} {key} {ask}\n", call.0, now()));
        call
    }

    pub(super) fn back(&self, call: Call, answer: &Answer) {
        let at = now();
        self.write(&format!("back {} {at} {answer}\n", call.0));
    }

    fn write(&self, text: &str) {
        let Some(path) = &self.path else { return };
        let written = append_to(path).write(text.as_bytes());
        assert_eq!(written.expect("a history can be written"), text.len());
    }

    /// Returns what was asked of each key, in the order of the calls.
    ///
    /// # Panics
    /// When the file holds something else.
    #[must_use]
    pub fn exchanges(&self) -> BTreeMap<String, Vec<Exchange>> {
        let path = self.path.as_ref().expect("there is a history");
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.expect("the history can be read"),
        };
        let mut calls: BTreeMap<(u32, &str), (&str, Exchange)> = BTreeMap::new();
        for line in text.lines() {
            let known = read_line(line, &mut calls);
            assert!(known.is_some(), "`{line}` is no part of a history");
        }
        let mut keys: BTreeMap<String, Vec<Exchange>> = BTreeMap::new();
        for (key, exchange) in calls.into_values() {
            keys.entry(key.to_owned()).or_default().push(exchange);
        }
        let in_order = |exchange: &Exchange| exchange.called;
        keys.values_mut().for_each(|of| of.sort_by_key(in_order));
        keys
    }
}

fn read_line<'a>(
    line: &'a str,
    calls: &mut BTreeMap<(u32, &'a str), (&'a str, Exchange)>,
) -> Option<()> {
    let mut words = line.splitn(5, ' ');
    let verb = words.next()?;
    let pid = words.next()?.parse().ok()?;
    let id = (pid, words.next()?);
    let at = words.next()?.parse().ok()?;
    let rest = words.next()?;
    if verb == "call" {
        let (key, ask) = rest.split_once(' ')?;
        let exchange = Exchange {
            pid,
            ask: Ask::parse(ask)?,
            called: at,
            back: None,
        };
        calls.insert(id, (key, exchange));
    } else {
        let (_, exchange) = calls.get_mut(&id)?;
        exchange.back = Some((at, Answer::parse(rest)?));
    }
    Some(())
}

/// The time that all processes of this machine agree on.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let history = History::at(Some(directory.path().join("history")));
        let asked = [
            Ask::Begin,
            Ask::Done(3, "a b by c".to_owned()),
            Ask::NotDone(4),
            Ask::Resolve(Some("it was".to_owned())),
            Ask::Resolve(None),
        ];
        let lease = Duration::from_secs(2);
        let heard = [
            Answer::Granted { fence: 7, lease },
            Answer::Settled("a b by c".to_owned()),
            Answer::Fenced,
            Answer::Resolved,
        ];
        for (number, ask) in asked.iter().enumerate() {
            let call = history.call("hold-1", ask);
            if let Some(answer) = heard.get(number) {
                history.back(call, answer);
            }
        }
        let read = history.exchanges();
        let read = &read["hold-1"];
        let asks: Vec<_> = read.iter().map(|exchange| &exchange.ask).collect();
        assert_eq!(asks, asked.iter().collect::<Vec<_>>());
        let backs = read.iter().filter_map(|exchange| exchange.back.as_ref());
        let backs: Vec<_> = backs.map(|(_, answer)| answer).collect();
        assert_eq!(backs, heard.iter().collect::<Vec<_>>());
        assert_eq!(read[4].back, None, "the last call never returned");
    }
}
