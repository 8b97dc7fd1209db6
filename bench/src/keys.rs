//! Fresh random keys and their results, made again from a number instead of being remembered.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

/// The bytes of a key: 128 random bits in hexadecimal digits.
pub(crate) const KEY_BYTES: usize = 32;

/// The bytes of a result.
pub(crate) const RESULT_BYTES: usize = 256;

/// A key as every engine is given it: printable bytes.
pub(crate) type Key = [u8; KEY_BYTES];

/// Hands out keys that no other run has.
#[derive(Debug)]
pub(crate) struct Keys {
    seed: u64,
    next: AtomicU64,
}

impl Keys {
    pub(crate) fn new() -> Result<Self> {
        let seed = getrandom::u64().context("the system gives no randomness")?;
        Ok(Self {
            seed,
            next: AtomicU64::new(0),
        })
    }

    /// Returns the keys that another process has written.
    pub(crate) const fn written(seed: u64, taken: u64) -> Self {
        Self {
            seed,
            next: AtomicU64::new(taken),
        }
    }

    /// What the keys are made from.
    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Takes the number of a key that nobody has had.
    pub(crate) fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// How many keys have been taken.
    pub(crate) fn taken(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    pub(crate) fn key(&self, number: u64) -> Key {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let first = mix(self.seed.wrapping_add(number.wrapping_mul(ODD)));
        let mut bits = (u128::from(first) << 64) | u128::from(mix(first ^ self.seed));
        let mut key = [0; KEY_BYTES];
        for digit in &mut key {
            *digit = DIGITS[(bits & 15) as usize];
            bits >>= 4;
        }
        key
    }

    /// Makes the result of a key: a JSON string, so that a receipt can carry it, of characters
    /// that cannot be compressed to much less.
    pub(crate) fn result(&self, number: u64) -> Vec<u8> {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        const PER_WORD: usize = 10;
        let mut result = vec![b'"'; RESULT_BYTES];
        let mut state = mix(self.seed ^ number);
        for letters in result[1..RESULT_BYTES - 1].chunks_mut(PER_WORD) {
            state = state.wrapping_add(ODD);
            let mut bits = mix(state);
            for letter in letters {
                *letter = LETTERS[(bits & 63) as usize];
                bits >>= 6;
            }
        }
        result
    }
}

/// Any odd number with well spread bits: adding it over and over visits every number once.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Turns numbers that follow each other into ones that look random; no two give the same.
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Chooses numbers at random, quickly.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Chooses a number below a limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(ODD);
        ((u128::from(mix(self.0)) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_differ_and_can_be_made_again() {
        let keys = Keys::new().unwrap();
        let mut seen = HashSet::new();
        for _ in 0..10_000 {
            let number = keys.take();
            assert_eq!(keys.key(number), keys.key(number));
            assert!(seen.insert(keys.key(number)));
        }
        assert_eq!(keys.taken(), 10_000);
        assert_ne!(keys.key(0), Keys::new().unwrap().key(0));
        let elsewhere = Keys::written(keys.seed(), keys.taken());
        assert_eq!(elsewhere.key(9_999), keys.key(9_999));
        assert_eq!(elsewhere.taken(), 10_000);
    }

    #[test]
    fn results_are_json_strings_of_the_promised_size() {
        let keys = Keys::new().unwrap();
        let (one, other) = (keys.result(0), keys.result(1));
        assert_eq!(one.len(), RESULT_BYTES);
        assert_ne!(one, other);
        serde_json::from_slice::<String>(&one).unwrap();
    }

    #[test]
    fn dice_reach_every_number_below_the_limit() {
        let mut dice = Dice::new(1);
        let seen: HashSet<_> = (0..1_000).map(|_| dice.below(10)).collect();
        assert_eq!(seen, (0..10).collect());
    }
}
