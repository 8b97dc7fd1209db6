//! Settled records that were stored or read lately, and when they may answer.
//!
//! A settled record may answer from memory only while nothing can have changed it. Changes of this
//! process remove it here before they are committed. Changes of other processes are told by the
//! *mark* in the turn file: whoever is about to commit, and was not the last one to do so, first
//! writes its own mark there. While the mark is ours, nobody else has committed since we looked.
//!
//! Records are kept as they are stored, with their payloads: decoding one costs less than a read,
//! and twice as many fit. Retries come soon, so the oldest goes first.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::KeyHash;
use semel_core::ledger::StateKind;

use super::index::Hash;
use super::reader;
use crate::store::bytes::unpack;
use crate::store::{Place, Result as StoreResult, Stored};

/// The most memory that the records of one store take.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Parts that are locked apart, so that callers seldom wait for each other.
const SHARDS: usize = 32;

/// What a record takes besides its bytes: its place in a map that is half empty, and in the order.
const OVERHEAD: usize = 128;

/// The largest packed payload that is kept: a few large ones must not push all others out.
pub(super) const PAYLOAD_MAX: u16 = 16 * 1024;

/// The settled records of one store.
#[derive(Debug)]
pub(super) struct Cache {
    /// The turn file; without it nothing may answer from memory.
    turn: Option<File>,
    /// This process's mark, unlike any other's.
    mark: [u8; 16],
    shards: Vec<Mutex<Shard>>,
}

#[derive(Debug, Default)]
struct Shard {
    /// Grows with every change of a settled record: what was read before must not be kept after.
    age: u64,
    kept: HashMap<Hash, Kept>,
    /// The oldest first; what was forgotten stays until its turn comes.
    order: VecDeque<Hash>,
    bytes: usize,
}

/// A settled record as it is stored: its bytes, then those of its payload, if it is at hand.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    place: Place,
    bytes: Arc<[u8]>,
    record_length: usize,
}

impl Kept {
    /// Takes a settled record; `None` when its payload is too large.
    pub(super) fn new(place: Place, sealed: &[u8], packed: Option<&[u8]>) -> Option<Self> {
        let packed = packed.unwrap_or_default();
        (packed.len() <= usize::from(PAYLOAD_MAX)).then(|| Self {
            place,
            bytes: [sealed, packed].concat().into(),
            record_length: sealed.len(),
        })
    }

    fn stored(&self) -> StoreResult<Stored> {
        let (sealed, packed) = self.bytes.split_at(self.record_length);
        let record = reader::unsealed_record(self.place.0, sealed)?;
        let payload = if packed.is_empty() {
            None
        } else {
            unpack(packed)?.map(Arc::from)
        };
        Ok(Stored {
            record: Arc::new(record),
            place: self.place,
            payload,
        })
    }
}

/// Says whether records in this state may be kept.
pub(super) const fn keeps(state: StateKind) -> bool {
    matches!(state, StateKind::Succeeded | StateKind::Failed)
}

/// Permission to keep what is stored or read from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age(u64);

impl Cache {
    pub(super) fn new(turn: Option<File>, mark: [u8; 16]) -> Self {
        Self {
            turn,
            mark,
            shards: std::iter::repeat_with(Mutex::default)
                .take(SHARDS)
                .collect(),
        }
    }

    fn shard(&self, hash: Hash) -> MutexGuard<'_, Shard> {
        let number = usize::try_from(hash.0 % SHARDS as u128).unwrap_or(0);
        self.shards[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether nobody else has committed since this process last looked.
    pub(super) fn is_current(&self) -> bool {
        let mut found = [0; 16];
        let read = self.turn.as_ref().map(|turn| turn.read_at(&mut found, 0));
        matches!(read, Some(Ok(16))) && found == self.mark
    }

    /// Returns a settled record, if it may answer; otherwise permission to keep it once read.
    pub(super) fn record(&self, key: &KeyHash) -> Result<Stored, Option<Age>> {
        if !self.is_current() {
            return Err(None);
        }
        let shard = self.shard(Hash::of(key));
        let age = Some(Age(shard.age));
        let kept = shard.kept.get(&Hash::of(key)).cloned();
        drop(shard);
        // Half of the hash is what it was found by; the record has the key itself. What memory
        // has spoiled is read again.
        match kept.map(|kept| kept.stored()) {
            Some(Ok(stored)) if stored.record.key_hash() == *key => Ok(stored),
            Some(_) | None => Err(age),
        }
    }

    /// Returns permission to keep what is committed from now on.
    pub(super) fn age(&self, key: &KeyHash) -> Age {
        Age(self.shard(Hash::of(key)).age)
    }

    /// Keeps a record, unless it may have changed since the permission was given.
    pub(super) fn keep(&self, age: Age, key: &KeyHash, kept: Kept) {
        let mut shard = self.shard(Hash::of(key));
        if shard.age == age.0 {
            shard.keep(Hash::of(key), kept);
        }
    }

    /// Returns this process's mark.
    pub(super) const fn mark(&self) -> &[u8; 16] {
        &self.mark
    }

    /// Forgets a record that is about to change, or has just changed.
    pub(super) fn forget(&self, key: &KeyHash) {
        let mut shard = self.shard(Hash::of(key));
        shard.age += 1;
        shard.remove(Hash::of(key));
    }

    /// Forgets everything: somebody else may have changed it.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            *shard = Shard {
                age: shard.age + 1,
                ..Shard::default()
            };
        }
    }
}

impl Shard {
    fn keep(&mut self, hash: Hash, kept: Kept) {
        self.remove(hash);
        self.bytes += kept.bytes.len() + OVERHEAD;
        self.kept.insert(hash, kept);
        self.order.push_back(hash);
        while self.bytes > BYTES_MAX / SHARDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest);
            self.bytes = self.bytes.saturating_sub(OVERHEAD);
        }
    }

    /// Takes a record out; its place in the order is freed when its turn comes.
    fn remove(&mut self, hash: Hash) {
        if let Some(kept) = self.kept.remove(&hash) {
            self.bytes = self.bytes.saturating_sub(kept.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::ledger::codec::encode_record;
    use semel_core::ledger::{Fence, Record, Stub, Version};
    use semel_core::{Digest, Timestamp};

    use super::*;
    use crate::store::sqlite::lock::{TURN, Turnstile, beside};
    use crate::store::sqlite::seal::seal;

    fn key(n: u64) -> KeyHash {
        let mut hash = [0; 32];
        // Both halves of what it is found by differ.
        hash[..8].copy_from_slice(&n.to_le_bytes());
        hash[8..16].copy_from_slice(&n.to_be_bytes());
        KeyHash(Digest(hash))
    }

    fn kept(n: u64, payload: usize) -> Option<Kept> {
        let (fence, version, since) = (Fence(1), Version(1), Timestamp(0));
        let record = Record::Stub(Stub {
            key_hash: key(n),
            fence,
            version,
            since,
        });
        let mut bytes = encode_record(&record);
        seal(&mut bytes, &[]);
        Kept::new(Place(n), &bytes, Some(&vec![0; payload]))
    }

    fn cache(directory: &tempfile::TempDir, mark: u8) -> (Cache, Turnstile) {
        let store = directory.path().join("store");
        let owner = crate::owned::FileOwner::this_process();
        let lock = Turnstile::open(&store, owner).expect("lock files are made");
        (
            Cache::new(File::open(beside(&store, TURN)).ok(), [mark; 16]),
            lock,
        )
    }

    fn keep(cache: &Cache, age: Age, n: u64) {
        cache.keep(age, &key(n), kept(n, 4).expect("it is small"));
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
        keep(&ours, ours.age(&key(1)), 1);
        let stored = ours.record(&key(1)).expect("it is kept");
        assert_eq!(stored.payload.as_deref(), Some([0; 3].as_slice()));

        let (theirs, lock) = cache(&directory, 2);
        assert!(!lock.mark(theirs.mark()).expect("the mark is written"));
        assert!(matches!(ours.record(&key(1)), Err(None)));
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (cache, lock) = cache(&directory, 1);
        lock.mark(cache.mark()).expect("the mark is written");
        for change in [(|cache| cache.forget(&key(1))) as fn(&Cache), |cache| {
            cache.clear()
        }] {
            let before = cache.age(&key(1));
            change(&cache);
            keep(&cache, before, 1);
            assert!(cache.record(&key(1)).is_err());

            keep(&cache, cache.age(&key(1)), 1);
            assert!(cache.record(&key(1)).is_ok());
            change(&cache);
            assert!(cache.record(&key(1)).is_err());
        }
    }

    #[test]
    fn another_key_with_the_same_half_of_its_hash_is_not_answered_for() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (cache, lock) = cache(&directory, 1);
        lock.mark(cache.mark()).expect("the mark is written");
        keep(&cache, cache.age(&key(1)), 1);
        let mut other = key(1);
        other.0.0[31] = 1;
        assert!(cache.record(&key(1)).is_ok() && cache.record(&other).is_err());
    }

    #[test]
    fn memory_stays_bounded_and_keeps_the_newest() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (cache, lock) = cache(&directory, 1);
        lock.mark(cache.mark()).expect("the mark is written");
        let count = 40_000;
        for n in 0..count {
            let kept = kept(n, 4_000).expect("it is small enough");
            cache.keep(cache.age(&key(n)), &key(n), kept);
            // One that comes and goes leaves nothing behind.
            keep(&cache, cache.age(&key(u64::MAX)), u64::MAX);
            cache.forget(&key(u64::MAX));
        }
        assert!(cache.record(&key(count - 1)).is_ok() && cache.record(&key(0)).is_err());
        for shard in &cache.shards {
            let shard = shard.lock().expect("nobody panicked");
            let bytes: usize = shard.kept.values().map(|kept| kept.bytes.len()).sum();
            assert_eq!(bytes + shard.order.len() * OVERHEAD, shard.bytes);
            assert!(shard.bytes <= BYTES_MAX / SHARDS);
        }
    }

    #[test]
    fn large_payloads_are_not_kept() {
        let most = usize::from(PAYLOAD_MAX);
        assert!(kept(1, most).is_some() && kept(1, most + 1).is_none());
    }
}
