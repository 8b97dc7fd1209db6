//! What happened in a history: a hash always, readable lines on request, and what was covered.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use semel_core::ledger::Event;

use super::process::Point;
use super::store::Fault;

/// The story of one history.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: Fnv,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(recording: bool) -> Self {
        Self {
            hash: Fnv(0xCBF2_9CE4_8422_2325),
            lines: recording.then(Vec::new),
        }
    }

    /// Adds a line; its text counts for the hash whether it is kept or not.
    pub(crate) fn say(&mut self, at: Duration, who: &str, what: fmt::Arguments<'_>) {
        // Writing into a number cannot fail.
        let _ = write!(self.hash, "{} {who} {what}", at.as_micros());
        if let Some(lines) = &mut self.lines {
            let seconds = at.as_secs_f64();
            lines.push(format!("{seconds:>12.6}  {who:<6} {what}"));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.0
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// FNV-1a: two runs of a seed are compared by it, nothing else rests on it.
#[derive(Debug)]
struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        Ok(())
    }
}

/// Something that a history can go through, counted so that no part of the simulator sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// A process died at this point.
    Crash(Point),
    /// A process was stopped at this point, and came back.
    Pause(Point),
    /// The store did this to a command.
    Fault(Fault),
    /// A command of this kind was accepted.
    Command(&'static str),
    /// An accepted command led to this.
    Event(Event),
    /// A command of this kind was delivered again, and accepted.
    RepeatAccepted(&'static str),
    /// A command of this kind was delivered again, and refused or answered without a write.
    RepeatRefused(&'static str),
    /// A caller was told this.
    Told(&'static str),
    /// The clocks did this.
    Clock(&'static str),
    /// An operator or a caller did this.
    Did(&'static str),
    /// The outside world did this.
    World(&'static str),
}

/// How often each thing happened.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<Seen, u64>,
}

impl Coverage {
    pub(crate) fn note(&mut self, seen: Seen) {
        *self.counts.entry(seen).or_default() += 1;
    }

    /// Adds what another history went through.
    pub fn merge(&mut self, other: &Self) {
        for (seen, count) in &other.counts {
            *self.counts.entry(*seen).or_default() += count;
        }
    }

    /// Returns how often this happened.
    #[must_use]
    pub fn count(&self, seen: Seen) -> u64 {
        self.counts.get(&seen).copied().unwrap_or(0)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (seen, count) in &self.counts {
            writeln!(f, "{count:>10}  {seen:?}")?;
        }
        Ok(())
    }
}
