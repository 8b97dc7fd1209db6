//! Stores with one bug each, to prove that a difference would be found.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use semel::Timestamp;
use semel::store::memory::MemoryStore;
use semel::store::{
    Change, Chunk, Commit, Current, Expected, Logged, NewPayload, Page, Pending, Place, Progress,
    Query, Result, Store, Stored, Waiting,
};
use semel_core::KeyHash;
use semel_core::clock::{Reading, Stamp};
use semel_core::identity::Kin;
use semel_core::ledger::Fence;
use semel_core::queue::QueueHash;

use crate::conformance::{Bed, ManualClock};

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A change is acknowledged and not written.
    DropWrite,
    /// A key is answered as it was before its last change.
    StaleLoad,
    /// A change is taken whatever it was decided on.
    NoCompareAndSwap,
    /// A payload is not stored.
    LosePayload,
    /// Only the beginning of a payload comes back.
    CutPayload,
    /// A payload that was to be erased stays.
    KeepErased,
    /// The pieces of a stream are stored in another order.
    ShuffleStream,
    /// An entry of the log is left out.
    SkipLogEntry,
    /// The log forgets which record it was that was dropped.
    UnplaceDrop,
    /// The newest record is not listed.
    ListMissesNewest,
    /// A list ends one record too early.
    ListMissesTail,
    /// The next page begins with the last record of this one.
    ListRepeatsCursor,
    /// A list does not look at states.
    ListIgnoresStates,
    /// What begins to count is not put into the index of kin.
    KinMissed,
    /// What counts no more stays in the index of kin.
    KinStays,
    /// A task does not take its place in its line.
    LineMissed,
    /// A task that stands elsewhere also stays in its place.
    LineStays,
    /// What a task is given is not stored.
    LoseInput,
    /// Time is whatever the wall clock says.
    BelieveTheClock,
    /// What was written through one handle is not there in the next.
    ForgetOnReopen,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Self; 20] = [
        Self::DropWrite,
        Self::StaleLoad,
        Self::NoCompareAndSwap,
        Self::LosePayload,
        Self::CutPayload,
        Self::KeepErased,
        Self::ShuffleStream,
        Self::SkipLogEntry,
        Self::UnplaceDrop,
        Self::ListMissesNewest,
        Self::ListMissesTail,
        Self::ListRepeatsCursor,
        Self::ListIgnoresStates,
        Self::KinMissed,
        Self::KinStays,
        Self::LineMissed,
        Self::LineStays,
        Self::LoseInput,
        Self::BelieveTheClock,
        Self::ForgetOnReopen,
    ];
}

/// Makes stores in memory with a bug in them.
#[derive(Debug)]
pub struct PlantedBed {
    clock: Arc<ManualClock>,
    bug: Bug,
    store: Arc<Planted>,
}

impl PlantedBed {
    /// Plants a bug in a store with this clock.
    #[must_use]
    pub fn new(bug: Bug, clock: &Arc<ManualClock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            bug,
            store: Arc::new(Planted::new(bug, clock)),
        }
    }
}

impl Bed for PlantedBed {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async {
            if self.bug == Bug::ForgetOnReopen {
                Arc::new(Planted::new(self.bug, &self.clock)) as Arc<dyn Store>
            } else {
                Arc::clone(&self.store) as Arc<dyn Store>
            }
        })
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }
}

/// A store in memory with a bug in it.
#[derive(Debug)]
struct Planted {
    store: MemoryStore,
    bug: Bug,
    calls: AtomicU64,
    before: Mutex<BTreeMap<KeyHash, Current>>,
}

impl Planted {
    fn new(bug: Bug, clock: &Arc<ManualClock>) -> Self {
        Self {
            store: MemoryStore::new(Arc::clone(clock) as _),
            bug,
            calls: AtomicU64::new(0),
            before: Mutex::default(),
        }
    }

    /// Says whether the bug is this one and strikes now: not always, as a bug that always strikes
    /// is too easily found.
    fn strikes(&self, bug: Bug) -> bool {
        self.bug == bug && self.calls.fetch_add(1, Ordering::Relaxed) % 5 == 4
    }

    async fn spoil(&self, change: &mut Change) -> Result<()> {
        if self.strikes(Bug::NoCompareAndSwap) {
            let current = self.store.load(&change.key).await?;
            change.expected = Expected::from(&current);
        }
        let spoilt = match &change.payload {
            NewPayload::Bytes { .. } => self.strikes(Bug::LosePayload),
            NewPayload::Erase => self.strikes(Bug::KeepErased),
            NewPayload::Keep | NewPayload::Stream(_) => false,
        };
        if spoilt {
            change.payload = NewPayload::Keep;
        }
        if change.kin.enters.is_some() && self.strikes(Bug::KinMissed) {
            change.kin.enters = None;
        }
        if change.kin.leaves.is_some() && self.strikes(Bug::KinStays) {
            change.kin.leaves = None;
        }
        if change.line.enters.is_some() && self.strikes(Bug::LineMissed) {
            change.line.enters = None;
        }
        if change.line.leaves.is_some() && self.strikes(Bug::LineStays) {
            change.line.leaves = None;
        }
        // Few tasks are new, so this one always strikes.
        if self.bug == Bug::LoseInput {
            change.input = None;
        }
        Ok(())
    }

    async fn commit_wrongly(&self, mut change: Change) -> Result<Commit> {
        let current = self.store.load(&change.key).await?;
        if let (Current::Stored(stored), Some(next), true) =
            (&current, &change.next, self.strikes(Bug::DropWrite))
        {
            return Ok(Commit::Done(Current::Stored(Stored::new(
                Arc::clone(next),
                stored.place,
            ))));
        }
        self.spoil(&mut change).await?;
        let key = change.key;
        let commit = self.store.commit(change).await?;
        if matches!(commit, Commit::Done(_)) {
            let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            before.insert(key, current);
        }
        Ok(commit)
    }

    async fn list_wrongly(&self, mut query: Query) -> Result<Page> {
        if self.strikes(Bug::ListIgnoresStates) {
            query.states = vec![];
        }
        if self.strikes(Bug::ListRepeatsCursor) {
            let back = if query.oldest_first { -1 } else { 1 };
            query.cursor = query
                .cursor
                .map(|place| Place(place.0.saturating_add_signed(back)));
        }
        let newest_first = !query.oldest_first;
        let mut page = self.store.list(query).await?;
        if newest_first && !page.items.is_empty() && self.strikes(Bug::ListMissesNewest) {
            page.items.remove(0);
        }
        if self.strikes(Bug::ListMissesTail) {
            page.items.pop();
        }
        Ok(page)
    }
}

impl Store for Planted {
    fn now(&self) -> Timestamp {
        if self.bug == Bug::BelieveTheClock {
            self.store.reading().wall
        } else {
            self.store.now()
        }
    }

    fn reading(&self) -> Reading {
        self.store.reading()
    }

    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        if self.strikes(Bug::StaleLoad) {
            let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(current) = before.get(key).cloned() {
                return Box::pin(async { Ok(current) });
            }
        }
        self.store.load(key)
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        self.store.load_at(place)
    }

    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>> {
        Box::pin(self.commit_wrongly(change))
    }

    fn payload(&self, place: Place) -> Pending<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            let mut payload = self.store.payload(place).await?;
            if let (Some(bytes), Bug::CutPayload) = (&mut payload, self.bug) {
                bytes.truncate(512);
            }
            Ok(payload)
        })
    }

    fn append(
        &self,
        place: Place,
        fence: Fence,
        mut chunks: Vec<Chunk>,
    ) -> Pending<'_, Result<()>> {
        if self.bug == Bug::ShuffleStream {
            chunks.reverse();
        }
        self.store.append(place, fence, chunks)
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        self.store.discard(place, fence)
    }

    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>> {
        self.store.stream(place, fence)
    }

    fn kin(&self, kin: Kin) -> Pending<'_, Result<Vec<Stored>>> {
        self.store.kin(kin)
    }

    fn waiting(&self, ask: Waiting) -> Pending<'_, Result<Vec<Stored>>> {
        self.store.waiting(ask)
    }

    fn taken(
        &self,
        queue: QueueHash,
        lane: Option<u64>,
        limit: usize,
    ) -> Pending<'_, Result<usize>> {
        self.store.taken(queue, lane, limit)
    }

    fn list(&self, query: Query) -> Pending<'_, Result<Page>> {
        Box::pin(self.list_wrongly(query))
    }

    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        Box::pin(async move {
            let mut log = self.store.log(after, limit).await?;
            match self.bug {
                Bug::SkipLogEntry => log.retain(|logged| logged.seq % 50 != 0),
                Bug::UnplaceDrop => log
                    .iter_mut()
                    .filter(|logged| logged.entry.state.is_none())
                    .for_each(|logged| logged.place = None),
                _ => {}
            }
            Ok(log)
        })
    }

    fn sweep_mark(&self, next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>> {
        self.store.sweep_mark(next)
    }

    fn sweep_progress(&self, next: Option<Progress>) -> Pending<'_, Result<Progress>> {
        self.store.sweep_progress(next)
    }

    fn notes(&self) -> Option<PathBuf> {
        self.store.notes()
    }

    fn tidy(&self) -> Pending<'_, Result<bool>> {
        self.store.tidy()
    }
}
