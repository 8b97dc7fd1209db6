//! The named moments at which an agent dies, or is stopped.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Signal, getpid, kill_process};

/// A moment between two steps of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Nothing was asked yet.
    BeforeClaim,
    /// The claim is granted, the effect has not begun.
    AfterClaim,
    /// The effect is there, but the agent has not seen its end.
    MidEffect,
    /// The effect has ended, nothing was reported.
    AfterEffect,
    /// The outcome is recorded, nobody was told.
    AfterSettle,
}

impl CrashPoint {
    /// All moments, in the order in which an attempt meets them.
    pub const ALL: [Self; 5] = [
        Self::BeforeClaim,
        Self::AfterClaim,
        Self::MidEffect,
        Self::AfterEffect,
        Self::AfterSettle,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::BeforeClaim => "before-claim",
            Self::AfterClaim => "after-claim",
            Self::MidEffect => "mid-effect",
            Self::AfterEffect => "after-effect",
            Self::AfterSettle => "after-settle",
        }
    }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CrashPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|point| point.name() == text);
        known.ok_or_else(|| format!("`{text}` is no crash point"))
    }
}

/// Kills or stops this process at its appointed moment.
#[derive(Debug)]
pub(super) struct Fate {
    appointed: Option<(CrashPoint, usize)>,
    signal: Signal,
    reached: AtomicUsize,
}

impl Fate {
    pub(super) fn new(appointed: Option<(CrashPoint, usize)>, signal: Signal) -> Self {
        Self {
            appointed,
            signal,
            reached: AtomicUsize::new(0),
        }
    }

    /// Says that this moment has come; the process may not survive it. Returns whether it was the
    /// appointed one: a process that was stopped goes on from here.
    pub(super) fn reach(&self, point: CrashPoint) -> bool {
        let Some((appointed, nth)) = self.appointed else {
            return false;
        };
        let now = appointed == point && self.reached.fetch_add(1, Ordering::SeqCst) + 1 == nth;
        if now {
            kill_process(getpid(), self.signal).expect("a process may signal itself");
        }
        now
    }
}
