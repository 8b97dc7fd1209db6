//! The virtual clock: true time moves only when nothing else can, and the wall can lie about it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use semel::Timestamp;
use semel::clock::Clock;
use semel_core::clock::Reading;
use tokio::time::Instant;

/// What the wall clock says when a history begins.
const START: Timestamp = Timestamp(1_800_000_000_000_000);

/// How long the machine had been up by then.
const UP_BEFORE: Duration = Duration::from_secs(1_000_000);

/// The machine's clocks, on the runtime's paused time.
#[derive(Debug)]
pub(crate) struct SimClock {
    start: Instant,
    state: Mutex<Skew>,
}

#[derive(Clone, Copy, Debug)]
struct Skew {
    /// By how many microseconds the wall is ahead of the truth.
    wall: i64,
    boot: u128,
    /// The true time that counted as the boot, less what the machine had been up before.
    booted: Option<Duration>,
}

impl SimClock {
    /// Starts now; needs a runtime.
    pub(crate) fn new() -> Self {
        let state = Skew {
            wall: 0,
            boot: 1,
            booted: None,
        };
        Self {
            start: Instant::now(),
            state: Mutex::new(state),
        }
    }

    /// Returns the true time since the history began: what every monotonic clock counts.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Moves the wall clock by this many microseconds, forward or back.
    pub(crate) fn jump(&self, micros: i64) {
        self.skew(|skew| skew.wall += micros);
    }

    /// Starts the machine anew.
    pub(crate) fn reboot(&self) {
        let now = self.elapsed();
        self.skew(|skew| {
            skew.boot += 1;
            skew.booted = Some(now);
        });
    }

    fn skew<T>(&self, work: impl FnOnce(&mut Skew) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clock for SimClock {
    fn read(&self) -> Reading {
        let elapsed = self.elapsed();
        let Skew { wall, boot, booted } = self.skew(|skew| *skew);
        let honest = START.plus(elapsed);
        Reading {
            wall: Timestamp(honest.0.saturating_add(wall)),
            boot,
            uptime: match booted {
                None => UP_BEFORE + elapsed,
                Some(booted) => elapsed.saturating_sub(booted),
            },
        }
    }
}
