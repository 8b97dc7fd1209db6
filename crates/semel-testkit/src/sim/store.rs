//! One process's view of the store: every call can fail, wait, lose its reply, or outlive its caller.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semel::Timestamp;
use semel::clock::Clock as _;
use semel::store::{
    AbsentAsOf, Change, Chunk, Commit, Current, Logged, Page, Pending, Place, Progress, Query,
    Result, Store, StoreError, Stored, Waiting,
};
use semel_core::KeyHash;
use semel_core::clock::{Reading, Stamp};
use semel_core::identity::Kin;
use semel_core::ledger::Fence;
use semel_core::queue::QueueHash;

use super::bugs::Bug;
use super::history::{Inner, Sim};
use super::process::{Point, Process};
use super::trace::Seen;

/// What a store can do to a command besides carrying it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing was written, and the caller is told so.
    Refused,
    /// Nothing was written, and the caller is told that nobody knows.
    NotWritten,
    /// It was written, and the caller is told that nobody knows.
    AckLost,
    /// It is written later, after the caller was told that nobody knows.
    WrittenLate,
    /// Nothing could be read.
    ReadFailed,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 5] = [
        Self::Refused,
        Self::NotWritten,
        Self::AckLost,
        Self::WrittenLate,
        Self::ReadFailed,
    ];
}

/// The store as one process sees it.
pub(crate) struct SimStore {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: Process,
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStore({})", self.process.name)
    }
}

impl SimStore {
    pub(crate) fn new(sim: &Arc<Sim>, process: &Process) -> Arc<Self> {
        Arc::new(Self {
            sim: Arc::clone(sim),
            process: process.clone(),
        })
    }

    fn draw_write_fault(&self) -> Option<Fault> {
        let rate = self.sim.plan.rates.store;
        self.sim.with(|s| {
            if !s.store_fails(rate) {
                return None;
            }
            let kinds = [
                Fault::Refused,
                Fault::NotWritten,
                Fault::AckLost,
                Fault::WrittenLate,
            ];
            let fault = s.rng.pick(&kinds);
            s.seen.note(Seen::Fault(fault));
            s.say(
                &self.process.name,
                format_args!("meets a store fault: {fault:?}"),
            );
            Some(fault)
        })
    }

    /// Reads something, between two points and unless the store fails.
    async fn read<T>(
        &self,
        (before, after): (Point, Point),
        read: impl FnOnce(&mut Inner) -> T,
    ) -> Result<T> {
        self.process.point(before).await;
        let rate = self.sim.plan.rates.store;
        let found = self.sim.with(|s| {
            if s.store_fails(rate) {
                s.seen.note(Seen::Fault(Fault::ReadFailed));
                return Err(StoreError::Unavailable("a read failed".to_owned()));
            }
            Ok(read(s))
        });
        self.process.point(after).await;
        found
    }

    /// Lets a change arrive when its sender no longer waits for it, dead or alive.
    fn write_later(&self, change: Change, delay: Duration) {
        let (sim, process) = (Arc::clone(&self.sim), self.process.clone());
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            // Nobody is told: whoever wants to know reads again.
            let _ = sim.commit(change, &process);
        });
    }

    async fn write(&self, change: Change) -> Result<Commit> {
        self.process.point(Point::BeforeCommit).await;
        let unknown = || StoreError::Unknown("the reply was lost".to_owned());
        match self.draw_write_fault() {
            Some(Fault::Refused) => {
                return Err(StoreError::Unavailable("a write failed".to_owned()));
            }
            Some(Fault::NotWritten) => {
                self.process.point(Point::InFlight).await;
                return Err(unknown());
            }
            Some(Fault::WrittenLate) => {
                let delay = self.sim.draw(|rng| rng.millis(1, 3_000));
                self.write_later(change, delay);
                self.process.point(Point::InFlight).await;
                return Err(unknown());
            }
            Some(Fault::AckLost) => {
                self.process.point(Point::InFlight).await;
                self.sim.commit(change, &self.process)?;
                return Err(unknown());
            }
            Some(Fault::ReadFailed) | None => {}
        }
        self.process.point(Point::InFlight).await;
        let commit = self.sim.commit(change, &self.process);
        self.process.point(Point::AfterCommit).await;
        commit
    }
}

const LOAD: (Point, Point) = (Point::BeforeLoad, Point::AfterLoad);
const OTHER: (Point, Point) = (Point::BeforeOther, Point::AfterOther);

impl Store for SimStore {
    fn now(&self) -> Timestamp {
        self.sim.now()
    }

    fn reading(&self) -> Reading {
        self.sim.clock.read()
    }

    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        let stale = self.sim.has(Bug::StaleRead);
        Box::pin(self.read(LOAD, move |s| {
            if stale && s.rng.chance(250) {
                s.shelf.load_stale(key)
            } else {
                s.shelf.load(key)
            }
        }))
    }

    fn assumed(&self) -> Option<Current> {
        // As a store does that would rather be told of a conflict than asked first.
        let guesses = self.sim.draw(|rng| rng.chance(300));
        guesses.then(|| Current::Absent(AbsentAsOf::default()))
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        Box::pin(
            self.read(LOAD, move |s| match s.shelf.current(Some(place)) {
                Current::Absent(_) => None,
                Current::Stored(stored) => Some(stored),
            }),
        )
    }

    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>> {
        Box::pin(self.write(change))
    }

    fn payload(&self, place: Place) -> Pending<'_, Result<Option<Vec<u8>>>> {
        Box::pin(self.read(OTHER, move |s| s.shelf.payload(place)))
    }

    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>> {
        Box::pin(self.read(OTHER, move |s| {
            let stream = s.shelf.chunks.entry((place, fence)).or_default();
            stream.extend(chunks);
        }))
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        Box::pin(self.read(OTHER, move |s| {
            s.shelf.chunks.remove(&(place, fence));
        }))
    }

    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>> {
        Box::pin(self.read(OTHER, move |s| {
            let stream = s.shelf.chunks.get(&(place, fence));
            stream.cloned().unwrap_or_default()
        }))
    }

    fn kin(&self, kin: Kin) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(self.read(OTHER, move |s| s.shelf.kin(kin)))
    }

    fn waiting(&self, ask: Waiting) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(self.read(OTHER, move |s| s.shelf.waiting(&ask)))
    }

    fn taken(
        &self,
        queue: QueueHash,
        lane: Option<u64>,
        limit: usize,
    ) -> Pending<'_, Result<usize>> {
        Box::pin(self.read(OTHER, move |s| s.shelf.taken(queue, lane, limit)))
    }

    fn list(&self, query: Query) -> Pending<'_, Result<Page>> {
        Box::pin(self.read(OTHER, move |s| s.shelf.list(&query)))
    }

    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        Box::pin(self.read(OTHER, move |s| {
            let start = usize::try_from(after).unwrap_or(usize::MAX);
            let page = s.shelf.log.iter().skip(start).take(limit);
            page.cloned().collect()
        }))
    }

    fn sweep_mark(&self, next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>> {
        Box::pin(self.read(OTHER, move |s| s.mark(next)))
    }

    fn sweep_progress(&self, next: Option<Progress>) -> Pending<'_, Result<Progress>> {
        Box::pin(self.read(OTHER, move |s| {
            let stored = s.shelf.progress;
            s.shelf.progress = next.unwrap_or(stored);
            stored
        }))
    }

    fn notes(&self) -> Option<PathBuf> {
        let directory = self.sim.notes.as_ref()?;
        Some(directory.path().to_owned())
    }

    fn tidy(&self) -> Pending<'_, Result<bool>> {
        Box::pin(self.read(OTHER, |_| false))
    }
}
