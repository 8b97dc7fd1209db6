//! Whether a key that nobody has read yet is probably new.
//!
//! A claim of a new key that is sent without having looked saves a round trip. A claim of a key that is
//! there costs the server more than a look. So what came last decides what is tried next.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::store::Current;

/// How many keys of one kind in a row it takes to be certain.
const CERTAIN: i32 = 32;

/// Above zero when the keys of late were there already.
#[derive(Debug, Default)]
pub(super) struct Guess(AtomicI32);

impl Guess {
    /// Learns what was found under a key. Two who learn at once may count as one.
    pub(super) fn learn(&self, found: &Current) {
        let known = self.0.load(Ordering::Relaxed);
        let known = match found {
            Current::Absent(_) => known - 1,
            Current::Stored(_) => known + 1,
        };
        self.0
            .store(known.clamp(-CERTAIN, CERTAIN), Ordering::Relaxed);
    }

    pub(super) fn is_new(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use semel_core::ledger::{Fence, Record, Stub, Version};
    use semel_core::{Digest, KeyHash};

    use super::*;
    use crate::store::{AbsentAsOf, Place, Stored};

    #[test]
    fn what_came_last_decides_and_no_past_is_too_long_to_be_overcome() {
        let absent = Current::Absent(AbsentAsOf::default());
        let stub = Record::Stub(Stub {
            key_hash: KeyHash(Digest([1; 32])),
            fence: Fence(1),
            version: Version(1),
            since: semel_core::Timestamp(0),
        });
        let stored = Current::Stored(Stored::new(Arc::new(stub), Place(1)));
        let guess = Guess::default();
        assert!(guess.is_new());
        for _ in 0..1_000 {
            guess.learn(&stored);
        }
        assert!(!guess.is_new());
        for _ in 0..CERTAIN {
            guess.learn(&absent);
        }
        assert!(guess.is_new());
    }
}
