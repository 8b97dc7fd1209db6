//! The machine's clocks.

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use semel_core::Timestamp;
use semel_core::clock::Reading;

/// Tells the time; tests bring their own.
pub trait Clock: Send + Sync + Debug {
    /// Reads all clocks at once.
    fn read(&self) -> Reading;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    boot: u128,
}

impl SystemClock {
    /// Finds out which boot of the machine this is.
    #[must_use]
    pub fn new() -> Self {
        Self {
            boot: boot_id().unwrap_or(0),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn read(&self) -> Reading {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Reading {
            wall: Timestamp(0).plus(since_epoch),
            boot: self.boot,
            uptime: uptime(),
        }
    }
}

/// Returns the kernel's id of this boot; `None` where the kernel gives none.
pub(crate) fn boot_id() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
}

/// Returns the time since boot, sleep included where the system counts it.
fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
