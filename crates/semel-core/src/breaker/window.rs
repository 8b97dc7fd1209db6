//! What became of the latest calls, counted in slices of time.

use core::time::Duration;

use super::settings::Settings;
use crate::time::Timestamp;

/// Into how many slices a window is cut: what leaves it leaves by a sixth.
const SLICES: i64 = 6;

/// The most slices that are kept or reported: callers with other windows cut them elsewhere.
pub const SLICES_MAX: usize = 16;

/// How many calls ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that the target answered.
    pub succeeded: u32,
    /// Those that it did not, or in a way that counts as a failure.
    pub failed: u32,
}

impl Counts {
    /// Returns how many there were.
    #[must_use]
    pub const fn calls(self) -> u32 {
        self.succeeded.saturating_add(self.failed)
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            succeeded: self.succeeded.saturating_add(other.succeeded),
            failed: self.failed.saturating_add(other.failed),
        }
    }
}

/// The calls that ended in one slice of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// When the slice begins.
    pub at: Timestamp,
    /// What became of them.
    pub counts: Counts,
}

/// The calls of the latest time, and how many failures there were since the last success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The slices, oldest first, each beginning at another time.
    pub slices: Vec<Slice>,
    /// The failures since the last success.
    pub in_row: u32,
}

impl Window {
    /// Counts one call.
    pub fn count(&mut self, ok: bool, settings: &Settings, now: Timestamp) {
        let counts = Counts {
            succeeded: u32::from(ok),
            failed: u32::from(!ok),
        };
        self.in_row = if ok { 0 } else { self.in_row.saturating_add(1) };
        let at = slice_at(settings.window, now);
        self.put(Slice { at, counts });
        self.forget(settings, now);
    }

    /// Adds what somebody else counted. What they saw is later than what was known, as far as anybody can tell.
    pub fn add(&mut self, later: &Self, settings: &Settings, now: Timestamp) {
        let total = later.total();
        self.in_row = if total.succeeded > 0 {
            later.in_row
        } else {
            self.in_row.saturating_add(total.failed)
        };
        for slice in &later.slices {
            // A caller whose clock is ahead has counted nothing in the future.
            let at = slice.at.min(now);
            self.put(Slice { at, ..*slice });
        }
        self.forget(settings, now);
    }

    /// Returns what counts as of now.
    #[must_use]
    pub fn counts(&self, settings: &Settings, now: Timestamp) -> Counts {
        let slices = self.slices.iter();
        let counting = slices.filter(|slice| is_within(slice, settings, now));
        counting.fold(Counts::default(), |sum, slice| sum.plus(slice.counts))
    }

    /// Returns how many of the latest calls failed one after the other, as far as they count as of now.
    #[must_use]
    pub fn failures_in_row(&self, settings: &Settings, now: Timestamp) -> u32 {
        self.in_row.min(self.counts(settings, now).failed)
    }

    /// Returns all that is in it.
    #[must_use]
    pub fn total(&self) -> Counts {
        let slices = self.slices.iter();
        slices.fold(Counts::default(), |sum, slice| sum.plus(slice.counts))
    }

    /// Says whether a target with these calls is to be left alone.
    #[must_use]
    pub fn is_too_bad(&self, settings: &Settings, now: Timestamp) -> bool {
        let in_row = self.failures_in_row(settings, now);
        if settings.failures.is_some_and(|limit| in_row >= limit.get()) {
            return true;
        }
        let counts = self.counts(settings, now);
        let (failed, calls) = (u64::from(counts.failed), u64::from(counts.calls()));
        counts.calls() >= settings.minimum.get()
            && failed * 1_000 >= calls * u64::from(settings.failure_permille)
    }

    fn put(&mut self, slice: Slice) {
        match self.slices.binary_search_by_key(&slice.at, |one| one.at) {
            Ok(found) => self.slices[found].counts = self.slices[found].counts.plus(slice.counts),
            Err(place) => self.slices.insert(place, slice),
        }
    }

    /// Drops what counts no more. After the clock has gone back, that is also what lies ahead.
    fn forget(&mut self, settings: &Settings, now: Timestamp) {
        self.slices.retain(|slice| is_within(slice, settings, now));
        let extra = self.slices.len().saturating_sub(SLICES_MAX);
        self.slices.drain(..extra);
    }
}

fn is_within(slice: &Slice, settings: &Settings, now: Timestamp) -> bool {
    slice.at <= now && now.since(slice.at) < settings.window
}

/// Returns when the slice begins that a time lies in.
fn slice_at(window: Duration, now: Timestamp) -> Timestamp {
    let length = i64::try_from(window.as_micros()).unwrap_or(i64::MAX) / SLICES;
    Timestamp(now.0 - now.0.rem_euclid(length.max(1)))
}
