//! Stores around stores: one that suits virtual time, and one that misbehaves when told to.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use semel::core::KeyHash;
use semel::core::clock::{Reading, Stamp};
use semel::core::identity::Kin;
use semel::core::ledger::Fence;
use semel::core::queue::QueueHash;
use semel::store::{
    Change, Chunk, Commit, Current, Logged, Page, Pending, Place, Progress, Query, Result, Store,
    StoreError, Stored, Waiting,
};
use semel::{Timestamp, TokenId, TokenRecord};
use tokio::runtime::Handle;

/// A store whose own threads count as work.
///
/// Virtual time runs on as soon as the runtime has nothing to do, and it knows nothing of a thread
/// that syncs a file. Waiting in a blocking task makes time stand still meanwhile.
#[derive(Debug)]
pub(super) struct Patient {
    store: Arc<dyn Store>,
}

impl Patient {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    fn wait<T, F>(&self, ask: F) -> Pending<'_, Result<T>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Store) -> Pending<'_, Result<T>> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            let waiting = tokio::task::spawn_blocking(move || {
                // Spelt out, as the answer borrows the store.
                let asked = ask(&*store);
                Handle::current().block_on(asked)
            });
            waiting.await.expect("the store answers")
        })
    }
}

impl Store for Patient {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn reading(&self) -> Reading {
        self.store.reading()
    }

    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        // Read in the caller's own thread.
        self.store.load(key)
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        self.store.load_at(place)
    }

    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>> {
        self.wait(move |store| store.commit(change))
    }

    fn payload(&self, place: Place) -> Pending<'_, Result<Option<Vec<u8>>>> {
        self.store.payload(place)
    }

    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>> {
        self.wait(move |store| store.append(place, fence, chunks))
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        self.wait(move |store| store.discard(place, fence))
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
        self.store.list(query)
    }

    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        self.store.log(after, limit)
    }

    fn sweep_mark(&self, next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>> {
        self.wait(move |store| store.sweep_mark(next))
    }

    fn sweep_progress(&self, next: Option<Progress>) -> Pending<'_, Result<Progress>> {
        self.wait(move |store| store.sweep_progress(next))
    }

    fn notes(&self) -> Option<PathBuf> {
        self.store.notes()
    }

    fn tidy(&self) -> Pending<'_, Result<bool>> {
        self.wait(|store| store.tidy())
    }

    fn add_token(&self, token: TokenRecord) -> Pending<'_, Result<bool>> {
        self.wait(move |store| store.add_token(token))
    }

    fn token(&self, id: TokenId) -> Pending<'_, Result<Option<TokenRecord>>> {
        self.store.token(id)
    }

    fn tokens(
        &self,
        after: Option<TokenId>,
        limit: usize,
    ) -> Pending<'_, Result<Vec<TokenRecord>>> {
        self.store.tokens(after, limit)
    }

    fn revoke_token(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<bool>> {
        self.wait(move |store| store.revoke_token(id, at))
    }

    fn note_token_use(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<()>> {
        self.wait(move |store| store.note_token_use(id, at))
    }
}

/// What happens to a commit.
pub(crate) enum Twist {
    /// Nothing.
    Pass,
    /// It never reaches the store.
    Fail(StoreError),
    /// Something else happens first.
    After(Pending<'static, ()>),
    /// Its answer comes late.
    Before(Pending<'static, ()>),
}

type Plan = dyn Fn(&Change) -> Twist + Send + Sync;

/// A store whose commits go as a test plans them.
pub(crate) struct Twisted {
    store: Arc<dyn Store>,
    plan: Box<Plan>,
    /// Whether every call first lets others run, so that there is an await to be dropped at.
    yielding: bool,
}

impl fmt::Debug for Twisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Twisted").field(&self.store).finish()
    }
}

impl Twisted {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        plan: impl Fn(&Change) -> Twist + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            plan: Box::new(plan),
            yielding: false,
        })
    }

    /// Makes a store that lets others run before and after everything that it is asked.
    pub(crate) fn yielding(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            plan: Box::new(|_| Twist::Pass),
            yielding: true,
        })
    }

    fn ask<'a, T: Send + 'a>(&'a self, asked: Pending<'a, T>) -> Pending<'a, T> {
        if !self.yielding {
            return asked;
        }
        Box::pin(async move {
            tokio::task::yield_now().await;
            let answer = asked.await;
            tokio::task::yield_now().await;
            answer
        })
    }

    async fn twisted(&self, change: Change) -> Result<Commit> {
        match (self.plan)(&change) {
            Twist::Pass => self.store.commit(change).await,
            Twist::Fail(error) => Err(error),
            Twist::After(first) => {
                first.await;
                self.store.commit(change).await
            }
            Twist::Before(then) => {
                let answer = self.store.commit(change).await;
                then.await;
                answer
            }
        }
    }
}

impl Store for Twisted {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn reading(&self) -> Reading {
        self.store.reading()
    }

    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        self.ask(self.store.load(key))
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        self.ask(self.store.load_at(place))
    }

    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>> {
        self.ask(Box::pin(self.twisted(change)))
    }

    fn payload(&self, place: Place) -> Pending<'_, Result<Option<Vec<u8>>>> {
        self.ask(self.store.payload(place))
    }

    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>> {
        self.ask(self.store.append(place, fence, chunks))
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        self.ask(self.store.discard(place, fence))
    }

    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>> {
        self.ask(self.store.stream(place, fence))
    }

    fn kin(&self, kin: Kin) -> Pending<'_, Result<Vec<Stored>>> {
        self.ask(self.store.kin(kin))
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
        self.ask(self.store.list(query))
    }

    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        self.ask(self.store.log(after, limit))
    }

    fn sweep_mark(&self, next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>> {
        self.ask(self.store.sweep_mark(next))
    }

    fn sweep_progress(&self, next: Option<Progress>) -> Pending<'_, Result<Progress>> {
        self.ask(self.store.sweep_progress(next))
    }

    fn notes(&self) -> Option<PathBuf> {
        self.store.notes()
    }

    fn tidy(&self) -> Pending<'_, Result<bool>> {
        self.ask(self.store.tidy())
    }
}

/// An error as of a store whose disk is away.
pub(super) fn unavailable() -> StoreError {
    StoreError::Unavailable("the disk is away".to_owned())
}
