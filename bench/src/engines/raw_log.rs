//! The least that could do the job: a log that is appended to and synced, and a map in memory.
//!
//! It has what a ledger of one process needs and nothing more: entries that tell when they are
//! torn, one sync for all who wait, refusal of duplicates, and answers for repeats. Whatever the
//! callers can do in their own threads is done there, so that the writer only writes and syncs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use semel::store::group::{Direct, Group, Sink};
use tokio::sync::oneshot;

use super::{Contender, Cycles, Embedded, now_micros};
use crate::keys::{Key, mix};

/// The parts of the map, each with a lock of its own: many more than there are cores.
const SHARDS: usize = 64;

const CLAIM: u8 = 1;
const SETTLE: u8 = 2;

pub(crate) struct RawLog {
    group: Group<Log>,
    shards: Vec<Mutex<HashMap<Key, Operation>>>,
    attempts: AtomicU64,
    seed: u64,
}

/// What is known of a key.
struct Operation {
    attempt: u128,
    result: Option<Arc<[u8]>>,
}

/// The file; whoever holds it writes.
struct Log {
    file: File,
    /// The entries of one group, so that they are written at once.
    buffer: Vec<u8>,
    /// What went wrong: a log whose sync has failed once must not be trusted again.
    broken: Option<String>,
}

struct Item {
    entry: Vec<u8>,
    answer: oneshot::Sender<std::result::Result<(), String>>,
}

impl Log {
    fn append(&mut self) -> std::io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.file.sync_data()
    }
}

impl Sink for Log {
    type Item = Item;

    fn try_ready(&mut self) -> bool {
        true
    }

    fn write(&mut self, items: &mut Vec<Item>) {
        self.buffer.clear();
        for item in items.iter() {
            self.buffer.extend_from_slice(&item.entry);
        }
        if self.broken.is_none() {
            self.broken = self.append().err().map(|error| error.to_string());
        }
        for item in items.drain(..) {
            let answer = match &self.broken {
                None => Ok(()),
                Some(error) => Err(error.clone()),
            };
            // A caller that went away does not hear its answer; what is stored is stored.
            let _ = item.answer.send(answer);
        }
    }
}

/// Makes one entry: length, kind, key, attempt, time, result, and a check over all of it.
fn entry(kind: u8, key: &Key, attempt: u128, result: &[u8]) -> Vec<u8> {
    let length = 4 + 1 + key.len() + 16 + 8 + result.len() + 8;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&attempt.to_le_bytes());
    bytes.extend_from_slice(&now_micros().to_le_bytes());
    bytes.extend_from_slice(result);
    let check = check(&bytes);
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes
}

/// A check that finds a torn entry, a word at a time.
fn check(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut sum = bytes.len() as u64;
    for word in &mut words {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        sum = (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    for byte in words.remainder() {
        sum = (sum.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    sum
}

impl RawLog {
    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Operation>> {
        // Keys are random, so a few of their bits choose well.
        let shard = (usize::from(key[0]) * 16 + usize::from(key[1])) % SHARDS;
        self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn new_attempt(&self) -> u128 {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        let first = mix(self.seed.wrapping_add(number));
        (u128::from(first) << 64) | u128::from(mix(first ^ self.seed))
    }

    async fn append(&self, entry: Vec<u8>) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.group
            .submit(Item { entry, answer }, Direct::here())
            .map_err(|_| anyhow!("too many entries wait"))?;
        let written = answered.await.context("the writer ended")?;
        written.map_err(|error| anyhow!("cannot append: {error}"))
    }

    /// Takes a key for an attempt; it counts for others at once, and for this one when durable.
    async fn claim(&self, key: &Key) -> Result<u128> {
        let attempt = self.new_attempt();
        match self.shard(key).entry(*key) {
            Entry::Vacant(place) => place.insert(Operation {
                attempt,
                result: None,
            }),
            Entry::Occupied(_) => bail!("the key is taken"),
        };
        let appended = self.append(entry(CLAIM, key, attempt, &[])).await;
        if appended.is_err() {
            self.shard(key).remove(key);
        }
        appended.map(|()| attempt)
    }

    async fn settle(&self, key: &Key, attempt: u128, result: &[u8]) -> Result<()> {
        let holder = self.shard(key).get(key).map(|found| found.attempt);
        ensure!(holder == Some(attempt), "another attempt holds the key");
        self.append(entry(SETTLE, key, attempt, result)).await?;
        if let Some(operation) = self.shard(key).get_mut(key) {
            operation.result = Some(Arc::from(result));
        }
        Ok(())
    }
}

impl Cycles for RawLog {
    async fn cycle(&self, key: Key, result: Vec<u8>) -> Result<()> {
        let attempt = self.claim(&key).await?;
        self.settle(&key, attempt, &result).await
    }
}

impl Contender for RawLog {
    type Found = Arc<[u8]>;

    async fn replay(&self, key: Key) -> Result<Arc<[u8]>> {
        let shard = self.shard(&key);
        let result = shard.get(&key).and_then(|found| found.result.clone());
        result.context("a settled key is not there")
    }
}

impl Embedded for RawLog {
    async fn open(directory: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(directory.join("log"))
            .context("cannot make the log")?;
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .context("cannot sync the log's directory")?;
        let log = Log {
            file,
            buffer: Vec::new(),
            broken: None,
        };
        Ok(Self {
            group: Group::start("raw-log", log).context("no thread for the writer")?,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            attempts: AtomicU64::new(0),
            seed: getrandom::u64().context("the system gives no randomness")?,
        })
    }

    fn tidy(_directory: &Path) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_sees_every_torn_or_changed_byte() {
        let whole = entry(SETTLE, &[b'k'; 32], 7, &[b'r'; 256]);
        let (bytes, stored) = whole.split_at(whole.len() - 8);
        assert_eq!(check(bytes).to_le_bytes(), stored);
        for at in 0..bytes.len() {
            assert_ne!(check(&bytes[..at]).to_le_bytes(), stored);
            let mut changed = bytes.to_vec();
            changed[at] ^= 1;
            assert_ne!(check(&changed).to_le_bytes(), stored);
        }
    }
}
