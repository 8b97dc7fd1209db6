//! What a task brings along.

use core::fmt;
use core::time::Duration;

use crate::retry;
use crate::text::Key;
use crate::text::Label;
use crate::verdict::Payload;

/// What a queue's workers are given, and how they go about it; fixed by the Submit that put the operation on its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Which of those that wait goes first.
    pub priority: Priority,
    /// Whose task it is: lanes take turns, so that nobody's many tasks hold up somebody's few.
    pub lane: Option<Label>,
    /// What the workers are given. The bytes lie apart, as those of answers do.
    pub input: Option<Payload>,
    /// How long it waits after an attempt that did not act.
    pub backoff: Backoff,
}

impl Task {
    /// Returns the lane of a task that names none: what its key has in common with those of the same agent, up to the
    /// first `/` or `:`. A key without either is in the lane of all such.
    #[must_use]
    pub fn lane_of(key: &Key) -> Option<Label> {
        let (prefix, _) = key.as_str().split_once(['/', ':'])?;
        // It is a piece of a key, and at most empty.
        Label::new(prefix).ok()
    }
}

/// Says which of the tasks that wait goes first: the highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i16);

/// The number is no priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a priority lies between -100 and 100")]
pub struct PriorityError;

impl Priority {
    /// How far from zero a priority may lie: each that is in use is looked for when a worker asks.
    pub const MAX: i16 = 100;

    /// Makes a priority of a number.
    ///
    /// # Errors
    /// Refuses what lies further from zero than [`Priority::MAX`].
    pub fn new(number: i64) -> Result<Self, PriorityError> {
        i16::try_from(number)
            .ok()
            .filter(|number| number.unsigned_abs() <= Self::MAX.unsigned_abs())
            .map(Self)
            .ok_or(PriorityError)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> i16 {
        self.0
    }

    /// Returns where it stands in a line: the first is the smallest.
    #[must_use]
    pub const fn rank(self) -> i16 {
        -self.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The longest that an upstream or a handler can put a task off: beyond it, it is as good as lost.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long a task waits after an attempt that did not act: between nothing and a ceiling, which begins with `base`
/// and doubles with each attempt up to `cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

/// The durations are no backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a backoff begins with at least 1 ms and ends with at most 24 h, and not before it begins")]
pub struct BackoffError;

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: retry::BASE,
            cap: retry::CAP,
        }
    }
}

impl Backoff {
    /// Below it, a failing task would be tried without a pause.
    const MIN: Duration = Duration::from_millis(1);
    /// Beyond it, a target that is back would not be noticed for more than a day.
    const MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Makes a backoff.
    ///
    /// # Errors
    /// Refuses durations outside of 1 ms to 24 h, and a cap below the base.
    pub fn new(base: Duration, cap: Duration) -> Result<Self, BackoffError> {
        let fits = Self::MIN <= base && base <= cap && cap <= Self::MAX;
        fits.then_some(Self { base, cap }).ok_or(BackoffError)
    }

    /// Returns the ceiling after the first attempt.
    #[must_use]
    pub const fn base(self) -> Duration {
        self.base
    }

    /// Returns the highest ceiling.
    #[must_use]
    pub const fn cap(self) -> Duration {
        self.cap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_lie_around_zero() {
        for (number, fits) in [
            (0, true),
            (100, true),
            (-100, true),
            (101, false),
            (i64::MIN, false),
        ] {
            assert_eq!(Priority::new(number).is_ok(), fits, "{number}");
        }
        let [low, high] = [-1, 7].map(|number| Priority::new(number).unwrap());
        assert!(high.rank() < low.rank());
    }

    #[test]
    fn a_lane_is_what_keys_begin_with() {
        for (key, lane) in [
            ("agent-1/mail-7", Some("agent-1")),
            ("agent-1:mail/7", Some("agent-1")),
            ("mail-7", None),
            ("/7", None),
        ] {
            let lane = lane.map(|lane| Label::new(lane).unwrap());
            assert_eq!(Task::lane_of(&Key::new(key).unwrap()), lane, "{key}");
        }
    }

    #[test]
    fn a_backoff_has_bounds() {
        let ms = Duration::from_millis;
        for (base, cap, fits) in [
            (ms(1), ms(1), true),
            (ms(0), ms(1), false),
            (ms(2), ms(1), false),
            (ms(1), ms(86_400_000), true),
            (ms(1), ms(86_400_001), false),
        ] {
            assert_eq!(Backoff::new(base, cap).is_ok(), fits, "{base:?} {cap:?}");
        }
    }
}
