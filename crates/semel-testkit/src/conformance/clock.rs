//! A clock that moves only when it is told to.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel::Timestamp;
use semel::clock::Clock;
use semel_core::clock::Reading;

/// When every test begins: a moment in November 2026.
pub const START: Timestamp = Timestamp(1_794_744_000_000_000);

/// How long the machine of every test has been up when it begins.
const UP: Duration = Duration::from_secs(10 * 24 * 60 * 60);

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    reading: Mutex<Reading>,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self {
            reading: Mutex::new(Reading {
                wall: START,
                boot: 1,
                uptime: UP,
            }),
        }
    }
}

impl ManualClock {
    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time pass, on every clock of the machine.
    pub fn advance(&self, by: Duration) {
        let mut reading = self.lock();
        reading.wall = reading.wall.plus(by);
        reading.uptime += by;
    }

    /// Sets the wall clock forward while no time passes.
    pub fn jump_forward(&self, by: Duration) {
        let mut reading = self.lock();
        reading.wall = reading.wall.plus(by);
    }

    /// Sets the wall clock back while no time passes.
    pub fn jump_back(&self, by: Duration) {
        let mut reading = self.lock();
        reading.wall = reading.wall.minus(by);
    }

    /// Boots the machine anew: it has been off for a while and is up for a moment.
    pub fn reboot(&self, off: Duration, up: Duration) {
        let mut reading = self.lock();
        reading.wall = reading.wall.plus(off + up);
        reading.boot += 1;
        reading.uptime = up;
    }
}

impl Clock for ManualClock {
    fn read(&self) -> Reading {
        *self.lock()
    }
}
