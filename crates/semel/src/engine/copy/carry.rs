//! Carrying log entries over: each is decided again by the same rules, at its own time, on what the
//! target holds, and must come to the same.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::ledger::{Command, Decision, Entry, Fence, Write};
use semel_core::{Digest, KeyHash, Payload};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::damaged;
use crate::engine::Engine;
use crate::engine::ledger::{Brought, Bytes, Rules, Subject, change, payload_of};
use crate::error::{Error, Result};
use crate::store::group::GROUP_MAX;
use crate::store::{Chunk, Commit, Current, INPUT, Logged, PAGE_MAX, Place, Store, StoreError};

/// Operations that are carried at once: two groups, so that one can be made while the other is
/// written.
const TASKS_MAX: usize = 2 * GROUP_MAX;

/// Places whose keys are remembered; of others the first log entry is read again.
const NAMES_MAX: usize = 1 << 17;

/// The bytes of answers that may be in memory at once, in KiB; a larger answer goes alone.
const ANSWERS_KIB_MAX: u32 = 64 * 1024;

/// The bytes of a stream that are appended at once.
const APPEND_MAX: usize = 4 * 1024 * 1024;

/// Carries entries from one store to another.
#[derive(Debug)]
pub(super) struct Carrier {
    from: Arc<dyn Store>,
    to: Arc<dyn Store>,
    rules: Rules,
    names: Mutex<HashMap<Place, KeyHash>>,
    answers: Semaphore,
    /// Operations whose answer was gone before it could be copied: a later entry says why.
    missing: Mutex<HashSet<KeyHash>>,
}

/// What is to be carried of a window.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    /// The entries of each key, in their order.
    pub(super) by_key: Vec<(KeyHash, Vec<Logged>)>,
    pub(super) entries: u64,
    /// How many the target has already.
    pub(super) skipped: u64,
}

impl Carrier {
    pub(super) fn new(from: &Engine, to: &Engine) -> Self {
        Self {
            from: Arc::clone(from.store()),
            to: Arc::clone(to.store()),
            rules: from.inner.ledger.rules,
            names: Mutex::default(),
            answers: Semaphore::new(ANSWERS_KIB_MAX as usize),
            missing: Mutex::default(),
        }
    }

    /// Says whether every answer is there that some record of the target speaks of.
    pub(super) fn misses_nothing(&self) -> bool {
        self.missing().is_empty()
    }

    fn missing(&self) -> MutexGuard<'_, HashSet<KeyHash>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the entries that the target holds beyond a number, by key.
    pub(super) async fn there(&self, after: u64) -> Result<HashMap<KeyHash, VecDeque<Entry>>> {
        let mut there: HashMap<KeyHash, VecDeque<Entry>> = HashMap::new();
        let mut after = after;
        loop {
            let page = self.to.log(after, PAGE_MAX).await?;
            let Some(last) = page.last() else {
                return Ok(there);
            };
            after = last.seq;
            for logged in page {
                let key = key_of(&self.to, &logged).await?;
                there.entry(key).or_default().push_back(logged.entry);
            }
        }
    }

    /// Sorts a window by key, and leaves out what is there already.
    pub(super) async fn sorted(
        &self,
        window: Vec<Logged>,
        there: &mut HashMap<KeyHash, VecDeque<Entry>>,
    ) -> Result<Sorted> {
        let mut sorted = Sorted::default();
        let mut at: HashMap<KeyHash, usize> = HashMap::new();
        for logged in window {
            let key = self.named(&logged).await?;
            if let Some(left) = there.get_mut(&key) {
                if left.pop_front().as_ref() != Some(&logged.entry) {
                    return Err(Error::InvalidInput(format!(
                        "the target holds something else than log entry {} of the source",
                        logged.seq
                    )));
                }
                if left.is_empty() {
                    there.remove(&key);
                }
                sorted.skipped += 1;
                continue;
            }
            sorted.entries += 1;
            let index = *at.entry(key).or_insert_with(|| {
                sorted.by_key.push((key, vec![]));
                sorted.by_key.len() - 1
            });
            sorted.by_key[index].1.push(logged);
        }
        Ok(sorted)
    }

    /// Returns the key that an entry of the source is about.
    async fn named(&self, logged: &Logged) -> Result<KeyHash> {
        let Some(place) = logged.place else {
            return key_of(&self.from, logged).await;
        };
        if let Some(key) = self.names().get(&place) {
            return Ok(*key);
        }
        let key = key_of(&self.from, logged).await?;
        let mut names = self.names();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(place, key);
        Ok(key)
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Place, KeyHash>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries the entries of many keys, each key's in their order.
    pub(super) async fn carry(self: Arc<Self>, by_key: Vec<(KeyHash, Vec<Logged>)>) -> Result<()> {
        let mut tasks = JoinSet::new();
        for (key, entries) in by_key {
            if tasks.len() >= TASKS_MAX {
                joined(tasks.join_next().await)?;
            }
            tasks.spawn(Arc::clone(&self).carry_key(key, entries));
        }
        while !tasks.is_empty() {
            joined(tasks.join_next().await)?;
        }
        Ok(())
    }

    async fn carry_key(self: Arc<Self>, key: KeyHash, entries: Vec<Logged>) -> Result<()> {
        let mut current = self.to.load(&key).await?;
        for logged in entries {
            current = self.carry_entry(&key, &current, logged).await?;
        }
        Ok(())
    }

    async fn carry_entry(
        &self,
        key: &KeyHash,
        current: &Current,
        logged: Logged,
    ) -> Result<Current> {
        let Logged { seq, place, entry } = logged;
        let decision = (self.rules)(current.record(), &entry.command, entry.at);
        let Ok(Decision::Write(write)) = decision else {
            let what = format!("`{}` was not to be accepted", entry.command.name());
            return Err(damaged(seq, &what));
        };
        let (old, new) = (
            current.record().and_then(payload_of),
            write.next.as_ref().and_then(payload_of),
        );
        let wanted = place.zip(new.filter(|_| old != new));
        // Held until the change is written.
        let (payload, _room) = match wanted {
            Some((place, payload)) => {
                let room = self.room(payload).await?;
                let fence = spoke(&entry.command);
                let bytes = self.answer(key, place, payload, fence, current).await?;
                (bytes, Some(room))
            }
            None => (None, None),
        };
        if old != new {
            if wanted.is_some() && payload.is_none() {
                self.missing().insert(*key);
            } else {
                self.missing().remove(key);
            }
        }
        let brought = Brought {
            payload,
            input: self.task_input(&entry.command, place).await?,
            ..Brought::default()
        };
        self.write(key, current, seq, &entry, *write, &brought)
            .await
    }

    /// Brings what the workers of a task are given, if it is still there: it goes with the operation.
    async fn task_input(
        &self,
        command: &Command,
        place: Option<Place>,
    ) -> Result<Option<Arc<[u8]>>> {
        let (Command::Submit(submit), Some(place)) = (command, place) else {
            return Ok(None);
        };
        let Some(payload) = submit.task.as_ref().and_then(|task| task.input) else {
            return Ok(None);
        };
        let chunks = self.from.stream(place, INPUT).await?;
        let bytes: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.bytes).collect();
        Ok((Digest::of(&bytes) == payload.digest).then(|| bytes.into()))
    }

    async fn write(
        &self,
        key: &KeyHash,
        current: &Current,
        seq: u64,
        entry: &Entry,
        write: Write,
        brought: &Brought,
    ) -> Result<Current> {
        let subject = Subject::unnamed(*key);
        let command = &entry.command;
        let (change, _, _) = change(&subject, current, command, write, brought, None, entry.at);
        if change.entry != *entry {
            let what = format!(
                "`{}` leads to {:?} with {:?}, the log says {:?} with {:?}",
                command.name(),
                change.entry.state,
                change.entry.events,
                entry.state,
                entry.events
            );
            return Err(damaged(seq, &what));
        }
        match self.to.commit(change).await? {
            Commit::Done(current) => Ok(current),
            Commit::Conflict(_) | Commit::GuardChanged => {
                let text = "somebody else writes to the target".to_owned();
                Err(StoreError::Unavailable(text).into())
            }
        }
    }

    /// Waits until there is room for an answer in memory.
    async fn room(&self, payload: Payload) -> Result<tokio::sync::SemaphorePermit<'_>> {
        let kib = u32::try_from(payload.size / 1024 + 1).unwrap_or(u32::MAX);
        let room = self.answers.acquire_many(kib.min(ANSWERS_KIB_MAX)).await;
        room.map_err(|error| StoreError::Unavailable(error.to_string()).into())
    }

    /// Brings an answer that an entry speaks of, if it is still there; what was erased or replaced
    /// since stays so, and a later entry says it.
    async fn answer(
        &self,
        key: &KeyHash,
        place: Place,
        payload: Payload,
        fence: Option<Fence>,
        current: &Current,
    ) -> Result<Option<Bytes>> {
        let fits = |bytes: &[u8]| Digest::of(bytes) == payload.digest;
        loop {
            let Current::Stored(stored) = self.from.load(key).await? else {
                return Ok(None);
            };
            if stored.place != place || payload_of(&stored.record) != Some(payload) {
                return Ok(None);
            }
            if let Some(bytes) = stored.payload.filter(|bytes| fits(bytes)) {
                return Ok(Some(Bytes::Here(bytes)));
            }
            if let (Some(fence), Current::Stored(target)) = (fence, current) {
                let chunks = self.from.stream(place, fence).await?;
                if !chunks.is_empty() && fits(&joined_bytes(&chunks)) {
                    put_stream(&self.to, target.place, fence, chunks).await?;
                    return Ok(Some(Bytes::Streamed(fence)));
                }
            }
            let bytes = self.from.payload(place).await?;
            if let Some(bytes) = bytes.filter(|bytes| fits(bytes)) {
                return Ok(Some(Bytes::Here(bytes.into())));
            }
            let now = self.from.load_at(place).await?;
            if now.is_some_and(|now| now.record.version() == stored.record.version()) {
                return Err(StoreError::Corrupt(format!(
                    "record {} of the source: its payload is gone or does not match its digest",
                    place.0
                ))
                .into());
            }
        }
    }
}

/// Makes a stream of the target what it is in the source; pieces that an interrupted copy left are
/// taken away first.
pub(super) async fn put_stream(
    to: &Arc<dyn Store>,
    place: Place,
    fence: Fence,
    chunks: Vec<Chunk>,
) -> Result<()> {
    to.discard(place, fence).await?;
    let (mut part, mut size) = (vec![], 0);
    for chunk in chunks {
        size += chunk.bytes.len();
        part.push(chunk);
        if size >= APPEND_MAX {
            to.append(place, fence, std::mem::take(&mut part)).await?;
            size = 0;
        }
    }
    if !part.is_empty() {
        to.append(place, fence, part).await?;
    }
    Ok(())
}

fn joined_bytes(chunks: &[Chunk]) -> Vec<u8> {
    let pieces = chunks.iter().map(|chunk| chunk.bytes.as_slice());
    pieces.collect::<Vec<_>>().concat()
}

/// Returns the fence of the attempt that a command speaks for.
const fn spoke(command: &Command) -> Option<Fence> {
    match command {
        Command::Settle(settle) => Some(settle.fence),
        Command::Submit(_)
        | Command::Begin(_)
        | Command::Renew(_)
        | Command::Expire(_)
        | Command::Resolve(_)
        | Command::Retry(_)
        | Command::Cancel(_)
        | Command::Forget(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_)
        | Command::Breaker(_) => None,
    }
}

/// Returns the key that an entry names itself.
fn own_key(entry: &Entry) -> Option<KeyHash> {
    let spec = match &entry.command {
        Command::Begin(begin) => &begin.spec,
        Command::Submit(submit) => &submit.spec,
        Command::Breaker(ask) => return Some(ask.hash()),
        Command::Renew(_)
        | Command::Settle(_)
        | Command::Expire(_)
        | Command::Resolve(_)
        | Command::Retry(_)
        | Command::Cancel(_)
        | Command::Forget(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_) => return entry.unplaced,
    };
    Some(KeyHash::of(&spec.namespace, &spec.key))
}

/// Returns the key that an entry is about: its own, or that of the first entry at its place.
async fn key_of(store: &Arc<dyn Store>, logged: &Logged) -> Result<KeyHash> {
    if let Some(key) = own_key(&logged.entry) {
        return Ok(key);
    }
    let first = match logged.place {
        Some(place) => store.log(place.0.saturating_sub(1), 1).await?,
        None => vec![],
    };
    let first = first.first();
    let first = first.filter(|first| Some(Place(first.seq)) == logged.place);
    first
        .and_then(|first| own_key(&first.entry))
        .ok_or_else(|| damaged(logged.seq, "no entry says which operation it is about"))
}

/// Hears how a task ended.
pub(super) fn joined<T>(
    ended: Option<std::result::Result<Result<T>, tokio::task::JoinError>>,
) -> Result<Option<T>> {
    match ended {
        None => Ok(None),
        Some(Ok(result)) => result.map(Some),
        Some(Err(error)) => {
            Err(StoreError::Unavailable(format!("copying was interrupted: {error}")).into())
        }
    }
}
