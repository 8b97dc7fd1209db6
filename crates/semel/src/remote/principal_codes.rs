//! Codes that a server has given: a proxy asks for that of each request's credentials, mostly the same few.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use semel_core::Digest;

/// How many codes one generation holds: with two generations and 64 bytes each, about half a mebibyte.
const GENERATION_MAX: usize = 4_096;

/// A bounded cache. When the younger generation is full it becomes the older one, and what was in the older one and
/// not used since is forgotten.
#[derive(Debug, Default)]
pub(super) struct PrincipalCodes(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    younger: HashMap<Digest, Digest>,
    older: HashMap<Digest, Digest>,
}

impl PrincipalCodes {
    pub(super) fn get(&self, digest: &Digest) -> Option<Digest> {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = generations.younger.get(digest) {
            return Some(*code);
        }
        let code = generations.older.get(digest).copied()?;
        generations.keep(*digest, code);
        Some(code)
    }

    pub(super) fn keep(&self, digest: Digest, code: Digest) {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generations.keep(digest, code);
    }
}

impl Generations {
    fn keep(&mut self, digest: Digest, code: Digest) {
        if self.younger.len() >= GENERATION_MAX {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(digest, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_is_bounded_and_keeps_what_is_used() {
        let codes = PrincipalCodes::default();
        let digest = |number: usize| Digest::of(&number.to_le_bytes());
        for number in 0..10 * GENERATION_MAX {
            codes.keep(digest(number), digest(number + 1));
            assert_eq!(codes.get(&digest(0)), Some(digest(1)), "{number}");
        }
        let generations = codes.0.lock().expect("no test panics with it");
        assert!(generations.younger.len() <= GENERATION_MAX);
        assert!(generations.older.len() <= GENERATION_MAX);
        drop(generations);
        assert_eq!(codes.get(&digest(1)), None, "it was not used for long");
    }
}
