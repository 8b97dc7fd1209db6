//! Chance for tests that want to hit anything.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A small generator (SplitMix64): good enough to choose moments and offsets.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Starts from a number, to do the same again.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Starts from chance, or from `SEMEL_TEST_SEED`; the seed is for the message of a failure.
    #[must_use]
    pub fn fresh() -> (u64, Self) {
        let wanted = std::env::var("SEMEL_TEST_SEED").ok();
        let seed = wanted
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
        (seed, Self(seed))
    }

    /// Returns the next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below this one.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// Returns a time up to this one.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.below(micros))
    }

    /// Puts a list into another order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.below(last as u64 + 1);
            list.swap(last, usize::try_from(other).unwrap_or(0));
        }
    }
}
