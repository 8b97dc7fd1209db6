//! Which time it is, when the wall clock cannot be trusted, and how far retention may look.
//!
//! A clock that jumps forward is the dangerous one: it ends leases that are alive and outlives
//! retentions that are not over. So time is judged against what was stored and against the
//! machine's own monotonic progress.

use core::time::Duration;

use crate::time::Timestamp;

/// How far the wall clock may be from the expected time before it is no longer believed.
pub const DISAGREEMENT: Duration = Duration::from_secs(60 * 60);

/// How much proven time must lie between two sweeps before retention acts.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// What the machine's clocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock.
    pub wall: Timestamp,
    /// The boot of the machine that `uptime` counts from.
    pub boot: u128,
    /// Monotonic time since that boot, sleep included.
    pub uptime: Duration,
}

/// A time that was judged and stored, and the monotonic clock beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The judged time.
    pub at: Timestamp,
    /// The boot of the machine.
    pub boot: u128,
    /// Monotonic time since that boot.
    pub uptime: Duration,
}

impl Stamp {
    /// Returns how much time has provably passed since this stamp: after a reboot, only the time
    /// since the boot is known.
    #[must_use]
    pub fn elapsed(&self, reading: &Reading) -> Duration {
        if self.boot == reading.boot {
            reading.uptime.saturating_sub(self.uptime)
        } else {
            reading.uptime
        }
    }
}

/// Judges which time it is: the wall clock, or the last stored time plus monotonic progress when
/// they disagree by more than [`DISAGREEMENT`].
///
/// After a reboot a wall clock that is ahead is believed, as the machine may have been off.
#[must_use]
pub fn judge(last: Option<&Stamp>, reading: &Reading) -> Timestamp {
    let Some(last) = last else {
        return reading.wall;
    };
    let expected = last.at.plus(last.elapsed(reading));
    let behind = expected.since(reading.wall) > DISAGREEMENT;
    let ahead = reading.wall.since(expected) > DISAGREEMENT && last.boot == reading.boot;
    if behind || ahead {
        expected
    } else {
        reading.wall
    }
}

/// Returns the mark to store after a sweep, and up to when this sweep may act.
///
/// The mark's time is the retention horizon. It moves only by time that provably passed between
/// two sweeps at least [`SWEEP_INTERVAL`] apart, and never beyond `now`: so a clock that jumped
/// forward by years makes nothing due that one interval does not explain. Until then the old mark
/// stays.
#[must_use]
pub fn sweep(
    mark: Option<&Stamp>,
    now: Timestamp,
    reading: &Reading,
) -> (Stamp, Option<Timestamp>) {
    let Some(mark) = mark else {
        return (
            Stamp {
                at: now,
                boot: reading.boot,
                uptime: reading.uptime,
            },
            None,
        );
    };
    let elapsed = mark.elapsed(reading);
    if elapsed < SWEEP_INTERVAL {
        return (*mark, None);
    }
    let horizon = mark.at.plus(elapsed).min(now);
    (
        Stamp {
            at: horizon,
            boot: reading.boot,
            uptime: reading.uptime,
        },
        Some(horizon),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    const NOON: Timestamp = Timestamp(1_794_744_000_000_000);

    fn reading(wall: Timestamp, boot: u128, uptime: Duration) -> Reading {
        Reading { wall, boot, uptime }
    }

    fn stamp(at: Timestamp, boot: u128, uptime: Duration) -> Stamp {
        Stamp { at, boot, uptime }
    }

    #[test]
    fn a_wall_clock_that_agrees_is_believed() {
        let last = stamp(NOON, 1, HOUR);
        for drift in [NOON.plus(HOUR), NOON.minus(HOUR / 2), NOON.plus(HOUR / 2)] {
            assert_eq!(judge(Some(&last), &reading(drift, 1, HOUR)), drift);
        }
        assert_eq!(judge(None, &reading(NOON, 9, HOUR)), NOON);
    }

    #[test]
    fn a_jump_in_either_direction_is_replaced_by_monotonic_progress() {
        let last = stamp(NOON, 1, HOUR);
        for jumped in [NOON.plus(YEAR), NOON.minus(YEAR), NOON.plus(HOUR * 4)] {
            assert_eq!(
                judge(Some(&last), &reading(jumped, 1, HOUR * 2)),
                NOON.plus(HOUR)
            );
        }
    }

    #[test]
    fn after_a_reboot_time_may_be_ahead_but_never_behind_what_was_stored() {
        let last = stamp(NOON, 1, HOUR * 9);
        assert_eq!(
            judge(Some(&last), &reading(NOON.plus(YEAR), 2, HOUR)),
            NOON.plus(YEAR)
        );
        assert_eq!(
            judge(Some(&last), &reading(NOON.minus(YEAR), 2, HOUR)),
            NOON.plus(HOUR)
        );
    }

    #[test]
    fn the_first_sweep_and_a_hasty_one_do_nothing() {
        let (mark, act) = sweep(None, NOON, &reading(NOON, 1, HOUR));
        assert_eq!((mark, act), (stamp(NOON, 1, HOUR), None));
        let soon = reading(NOON.plus(HOUR / 2), 1, HOUR + HOUR / 2);
        assert_eq!(sweep(Some(&mark), soon.wall, &soon), (mark, None));
    }

    #[test]
    fn a_clock_years_ahead_moves_the_horizon_by_one_interval_only() {
        let mark = stamp(NOON, 1, HOUR);
        let jumped = reading(NOON.plus(YEAR), 1, HOUR * 3);
        let (next, act) = sweep(Some(&mark), jumped.wall, &jumped);
        assert_eq!(act, Some(NOON.plus(HOUR * 2)));
        assert_eq!(next, stamp(NOON.plus(HOUR * 2), 1, HOUR * 3));
    }

    #[test]
    fn the_horizon_never_passes_the_present() {
        let mark = stamp(NOON, 1, HOUR);
        let back = reading(NOON.minus(HOUR), 1, HOUR * 3);
        assert_eq!(
            sweep(Some(&mark), back.wall, &back).1,
            Some(NOON.minus(HOUR))
        );
    }

    #[test]
    fn a_reboot_counts_only_the_time_since_it() {
        let mark = stamp(NOON, 1, HOUR * 100);
        let early = reading(NOON.plus(HOUR * 50), 2, HOUR / 2);
        assert_eq!(sweep(Some(&mark), early.wall, &early), (mark, None));
        let later = reading(NOON.plus(HOUR * 51), 2, HOUR + HOUR / 2);
        assert_eq!(
            sweep(Some(&mark), later.wall, &later).1,
            Some(NOON.plus(HOUR + HOUR / 2))
        );
    }
}
