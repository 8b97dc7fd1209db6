//! Settled records that were read lately, and when they may answer.
//!
//! A settled record may answer from memory only while nothing can have changed it. Changes of this
//! process remove it here before they are committed. Changes of other processes are told by the
//! *mark* in the turn file: whoever is about to commit, and was not the last one to do so, first
//! writes its own mark there. While the mark is ours, nobody else has committed since we looked.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::KeyHash;

use crate::store::{Place, Stored};

/// Records in each of the two generations.
const RECORDS_MAX: usize = 16_384;

/// Bytes of payloads in each of the two generations.
const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest payload that is kept: a few large ones must not push all others out.
const PAYLOAD_MAX: usize = 16 * 1024;

/// The settled records of one store.
#[derive(Debug)]
pub(super) struct Cache {
    turn: File,
    /// This process's mark, unlike any other's.
    mark: [u8; 16],
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Grows with every change of a settled record: what was read before must not be kept after.
    age: u64,
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    records: HashMap<KeyHash, Stored>,
    payloads: HashMap<Place, Arc<[u8]>>,
    payload_bytes: usize,
}

/// Permission to keep what is read from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age(u64);

impl Cache {
    pub(super) fn open(turn: &Path, mark: [u8; 16]) -> std::io::Result<Self> {
        Ok(Self {
            turn: File::open(turn)?,
            mark,
            inner: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether nobody else has committed since this process last looked.
    pub(super) fn is_current(&self) -> bool {
        let mut found = [0; 16];
        matches!(self.turn.read_at(&mut found, 0), Ok(16)) && found == self.mark
    }

    /// Returns a settled record, if it may answer; otherwise permission to keep it once read.
    pub(super) fn record(&self, key: &KeyHash) -> Result<Stored, Option<Age>> {
        if !self.is_current() {
            return Err(None);
        }
        let mut inner = self.lock();
        if let Some(stored) = inner.young.records.get(key) {
            return Ok(stored.clone());
        }
        match inner.old.records.remove(key) {
            Some(stored) => {
                inner.keep(*key, stored.clone());
                Ok(stored)
            }
            None => Err(Some(Age(inner.age))),
        }
    }

    pub(super) fn keep(&self, age: Age, key: KeyHash, stored: &Stored) {
        let mut inner = self.lock();
        if inner.age == age.0 {
            inner.keep(key, stored.clone());
        }
    }

    /// Returns the payload at a place, if it may answer.
    pub(super) fn payload(&self, place: Place) -> Result<Arc<[u8]>, Option<Age>> {
        if !self.is_current() {
            return Err(None);
        }
        let inner = self.lock();
        let found = inner
            .young
            .payloads
            .get(&place)
            .or_else(|| inner.old.payloads.get(&place));
        found.cloned().ok_or(Some(Age(inner.age)))
    }

    pub(super) fn keep_payload(&self, age: Age, place: Place, payload: &[u8]) {
        if payload.len() > PAYLOAD_MAX {
            return;
        }
        let mut inner = self.lock();
        if inner.age == age.0 {
            inner.keep_payload(place, payload.into());
        }
    }

    /// Returns this process's mark.
    pub(super) const fn mark(&self) -> &[u8; 16] {
        &self.mark
    }

    /// Forgets a record that is about to change, or has just changed.
    pub(super) fn forget(&self, key: &KeyHash, place: Place) {
        let mut inner = self.lock();
        inner.age += 1;
        let Inner { young, old, .. } = &mut *inner;
        for generation in [young, old] {
            generation.records.remove(key);
            generation.payloads.remove(&place);
        }
    }

    /// Forgets everything: somebody else may have changed it.
    pub(super) fn clear(&self) {
        let mut inner = self.lock();
        let age = inner.age + 1;
        *inner = Inner {
            age,
            ..Inner::default()
        };
    }
}

impl Inner {
    fn keep(&mut self, key: KeyHash, stored: Stored) {
        self.young.records.insert(key, stored);
        self.age_out();
    }

    fn keep_payload(&mut self, place: Place, payload: Arc<[u8]>) {
        self.young.payload_bytes += payload.len();
        self.young.payloads.insert(place, payload);
        self.age_out();
    }

    /// Lets the older half go when the younger one is full.
    fn age_out(&mut self) {
        let full = self.young.records.len() >= RECORDS_MAX
            || self.young.payload_bytes >= PAYLOAD_BYTES_MAX;
        if full {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::ledger::{Fence, Record, Stub, Version};
    use semel_core::{Digest, Timestamp};

    use super::*;
    use crate::store::sqlite::lock::{TURN, Turnstile, beside};

    fn key(n: u8) -> KeyHash {
        KeyHash(Digest([n; 32]))
    }

    fn stored(n: u8) -> Stored {
        let (fence, version, since) = (Fence(1), Version(1), Timestamp(0));
        let record = Record::Stub(Stub {
            key_hash: key(n),
            fence,
            version,
            since,
        });
        Stored {
            record: Arc::new(record),
            place: Place(u64::from(n)),
        }
    }

    fn cache(directory: &tempfile::TempDir, mark: u8) -> (Cache, Turnstile) {
        let store = directory.path().join("store");
        let lock = Turnstile::open(&store).expect("lock files are made");
        (
            Cache::open(&beside(&store, TURN), [mark; 16]).expect("it opens"),
            lock,
        )
    }

    fn age(cache: &Cache, n: u8) -> Age {
        cache
            .record(&key(n))
            .expect_err("it is not kept yet")
            .expect("nobody else commits")
    }

    #[test]
    fn memory_answers_only_while_the_mark_is_ours() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (ours, lock) = cache(&directory, 1);
        assert!(
            matches!(ours.record(&key(1)), Err(None)),
            "nobody has left a mark yet"
        );
        lock.mark(ours.mark()).expect("the mark is written");
        ours.keep(age(&ours, 1), key(1), &stored(1));
        assert!(ours.record(&key(1)).is_ok());

        let (theirs, lock) = cache(&directory, 2);
        assert!(!lock.mark(theirs.mark()).expect("the mark is written"));
        assert!(matches!(ours.record(&key(1)), Err(None)));
        assert!(ours.payload(Place(1)).is_err());
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (cache, lock) = cache(&directory, 1);
        lock.mark(cache.mark()).expect("the mark is written");
        let before = age(&cache, 1);
        cache.forget(&key(1), Place(1));
        cache.keep(before, key(1), &stored(1));
        cache.keep_payload(before, Place(1), b"old");
        assert!(cache.record(&key(1)).is_err() && cache.payload(Place(1)).is_err());

        cache.keep(age(&cache, 1), key(1), &stored(1));
        assert!(cache.record(&key(1)).is_ok());
        cache.forget(&key(1), Place(1));
        assert!(cache.record(&key(1)).is_err());
    }

    #[test]
    fn memory_stays_bounded_and_keeps_what_is_used() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (cache, lock) = cache(&directory, 1);
        lock.mark(cache.mark()).expect("the mark is written");
        let now = age(&cache, 255);
        cache.keep(now, key(255), &stored(255));
        for n in 0..u64::try_from(RECORDS_MAX).expect("it is small") * 3 {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&n.to_le_bytes());
            cache.keep(now, KeyHash(Digest(hash)), &stored(1));
            assert!(n % 1_000 != 0 || cache.record(&key(255)).is_ok());
        }
        let inner = cache.lock();
        assert!(inner.young.records.len() + inner.old.records.len() <= 2 * RECORDS_MAX);
    }

    #[test]
    fn large_payloads_are_not_kept() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (cache, lock) = cache(&directory, 1);
        lock.mark(cache.mark()).expect("the mark is written");
        let now = age(&cache, 1);
        cache.keep_payload(now, Place(1), &vec![0; PAYLOAD_MAX + 1]);
        cache.keep_payload(now, Place(2), &vec![0; PAYLOAD_MAX]);
        assert!(cache.payload(Place(1)).is_err() && cache.payload(Place(2)).is_ok());
    }
}
