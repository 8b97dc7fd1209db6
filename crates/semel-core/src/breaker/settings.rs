//! When a breaker opens, and for how long.

use core::num::NonZeroU32;
use core::time::Duration;

/// The thresholds of a breaker. They come with each command: whoever calls a target says how much it bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many of a thousand calls may fail before it opens.
    pub failure_permille: u16,
    /// With fewer calls in the window than this their rate says nothing.
    pub minimum: NonZeroU32,
    /// How far back calls count.
    pub window: Duration,
    /// How many failures in a row open it, however many calls there were; `None` leaves it to the rate.
    pub failures: Option<NonZeroU32>,
    /// How long it stays open the first time; each probe that fails doubles it.
    pub cool_down: Duration,
    /// How long it stays open at most.
    pub cool_down_max: Duration,
}

/// Says why settings were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The rate is no rate.
    #[error("a failure rate is above 0 and at most 1")]
    Rate,
    /// A time is too short or too long to be of use.
    #[error("the window and the cool-downs of a breaker last from 100 milliseconds to 24 hours")]
    Length,
    /// The cool-down is longer than it may become.
    #[error("a cool-down is not longer than its maximum")]
    CoolDown,
}

impl Settings {
    /// The shortest window and cool-down: below it, calls to one target do not even meet.
    pub const LENGTH_MIN: Duration = Duration::from_millis(100);
    /// The longest window and cool-down: beyond it, nobody waits for a breaker, but closes it by hand.
    pub const LENGTH_MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Checks that the settings are of use.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn check(self) -> Result<Self, SettingsError> {
        let fits = |length: Duration| (Self::LENGTH_MIN..=Self::LENGTH_MAX).contains(&length);
        if !(1..=1_000).contains(&self.failure_permille) {
            return Err(SettingsError::Rate);
        }
        if !(fits(self.window) && fits(self.cool_down) && fits(self.cool_down_max)) {
            return Err(SettingsError::Length);
        }
        if self.cool_down > self.cool_down_max {
            return Err(SettingsError::CoolDown);
        }
        Ok(self)
    }

    /// Returns how long it stays open when it opens for the n-th time without having been closed.
    #[must_use]
    pub fn cool_down_of(&self, times: u32) -> Duration {
        let doublings = times.saturating_sub(1).min(31);
        let longer = self.cool_down.checked_mul(1 << doublings);
        longer.unwrap_or(Duration::MAX).min(self.cool_down_max)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failure_permille: 500,
            minimum: NonZeroU32::new(10).unwrap_or(NonZeroU32::MIN),
            window: Duration::from_secs(60),
            failures: NonZeroU32::new(5),
            cool_down: Duration::from_secs(10),
            cool_down_max: Duration::from_secs(5 * 60),
        }
    }
}
