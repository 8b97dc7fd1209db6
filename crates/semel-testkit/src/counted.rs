//! Shows a store whose numbers have gaps, and whose time is another machine's, as the suite and the
//! model see a store: numbers without gaps, and a clock that a test moves.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel::clock::Clock as _;
use semel::store::{
    AbsentAsOf, Change, Chunk, Commit, Current, Expected, Guard, Logged, PAGE_MAX, Page, Pending,
    Place, Progress, Query, Result, Store, Stored, Waiting,
};
use semel::{Timestamp, TokenId, TokenRecord};
use semel_core::clock::{Reading, Stamp, judge};
use semel_core::identity::Kin;
use semel_core::ledger::Fence;
use semel_core::queue::QueueHash;
use semel_core::{KeyHash, PrincipalKey};

use crate::conformance::ManualClock;

/// What all handles on one store share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The number of each log entry, in their order.
    numbers: Vec<u64>,
    /// The last stored time.
    last: Option<Stamp>,
    counting: Arc<tokio::sync::Mutex<()>>,
    /// How often it was begun to count.
    counts: u64,
}

/// A handle on such a store.
#[derive(Debug)]
pub struct Counted {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    shared: Arc<Mutex<Shared>>,
}

/// Where nothing lies.
const NOWHERE: u64 = u64::MAX >> 1;

impl Counted {
    /// Looks at a store.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: &Arc<ManualClock>,
        shared: &Arc<Mutex<Shared>>,
    ) -> Self {
        Self {
            store,
            clock: Arc::clone(clock),
            shared: Arc::clone(shared),
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what was logged since.
    async fn count(&self) -> Result<u64> {
        // One after the other: of a crowd that came meanwhile, one counts for all.
        let (counting, counts) = {
            let shared = self.shared();
            (Arc::clone(&shared.counting), shared.counts)
        };
        let _turn = counting.lock().await;
        {
            let mut shared = self.shared();
            if shared.counts > counts {
                return Ok(shared.numbers.len() as u64);
            }
            shared.counts += 1;
        }
        loop {
            let after = self.shared().numbers.last().copied().unwrap_or(0);
            let page = self.store.log(after, PAGE_MAX).await?;
            let mut shared = self.shared();
            if page.is_empty() {
                return Ok(shared.numbers.len() as u64);
            }
            shared.numbers.extend(page.iter().map(|logged| logged.seq));
        }
    }

    /// Returns the store's number for one without gaps.
    async fn real(&self, number: u64) -> Result<u64> {
        let Some(index) = number.checked_sub(1) else {
            return Ok(0);
        };
        self.count().await?;
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let real = self.shared().numbers.get(index).copied();
        Ok(real.unwrap_or(NOWHERE))
    }

    async fn place(&self, place: Place) -> Result<Place> {
        self.real(place.0).await.map(Place)
    }

    /// Returns the number without gaps for the store's.
    async fn counted(&self, place: Place) -> Result<Place> {
        if self.shared().numbers.binary_search(&place.0).is_err() {
            self.count().await?;
        }
        let found = self.shared().numbers.binary_search(&place.0);
        Ok(Place(found.map_or(NOWHERE, |index| index as u64 + 1)))
    }

    async fn stored(&self, stored: Stored) -> Result<Stored> {
        let place = self.counted(stored.place).await?;
        Ok(Stored { place, ..stored })
    }

    async fn current(&self, current: Current) -> Result<Current> {
        Ok(match current {
            Current::Absent(_) => Current::Absent(AbsentAsOf(self.count().await?)),
            Current::Stored(stored) => Current::Stored(self.stored(stored).await?),
        })
    }

    async fn commit_counted(&self, change: Change) -> Result<Commit> {
        let expected = match change.expected {
            absent @ Expected::Absent(_) => absent,
            Expected::Version(place, version) => {
                Expected::Version(self.place(place).await?, version)
            }
        };
        let guard = match change.guard {
            None => None,
            Some(Guard::Version { place, version }) => {
                let place = self.place(place).await?;
                Some(Guard::Version { place, version })
            }
            Some(bounds @ Guard::Bounds(_)) => Some(bounds),
        };
        let committed = self.store.commit(Change {
            expected,
            guard,
            ..change
        });
        Ok(match committed.await? {
            Commit::Done(current) => {
                let (at, Reading { boot, uptime, .. }) = (self.now(), self.reading());
                self.shared().last = Some(Stamp { at, boot, uptime });
                Commit::Done(self.current(current).await?)
            }
            Commit::Conflict(current) => Commit::Conflict(self.current(current).await?),
            Commit::GuardChanged => Commit::GuardChanged,
        })
    }

    async fn list_counted(&self, mut query: Query) -> Result<Page> {
        query.cursor = match query.cursor {
            None => None,
            Some(place) => Some(self.place(place).await?),
        };
        let page = self.store.list(query).await?;
        let next = match page.next {
            None => None,
            Some(place) => Some(self.counted(place).await?),
        };
        let mut items = vec![];
        for stored in page.items {
            items.push(self.stored(stored).await?);
        }
        Ok(Page { items, next })
    }

    async fn log_counted(&self, after: u64, limit: usize) -> Result<Vec<Logged>> {
        let after = self.real(after).await?;
        let mut page = self.store.log(after, limit).await?;
        for logged in &mut page {
            logged.seq = self.counted(Place(logged.seq)).await?.0;
            if let Some(place) = logged.place {
                logged.place = Some(self.counted(place).await?);
            }
        }
        Ok(page)
    }
}

impl Store for Counted {
    fn now(&self) -> Timestamp {
        judge(self.shared().last.as_ref(), &self.reading())
    }

    fn reading(&self) -> Reading {
        self.clock.read()
    }

    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        Box::pin(async move { self.current(self.store.load(key).await?).await })
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        Box::pin(async move {
            match self.store.load_at(self.place(place).await?).await? {
                None => Ok(None),
                Some(stored) => self.stored(stored).await.map(Some),
            }
        })
    }

    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>> {
        Box::pin(self.commit_counted(change))
    }

    fn payload(&self, place: Place) -> Pending<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move { self.store.payload(self.place(place).await?).await })
    }

    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let place = self.place(place).await?;
            self.store.append(place, fence, chunks).await
        })
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let place = self.place(place).await?;
            self.store.discard(place, fence).await
        })
    }

    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>> {
        Box::pin(async move { self.store.stream(self.place(place).await?, fence).await })
    }

    fn kin(&self, kin: Kin) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(async move {
            let mut found = vec![];
            for stored in self.store.kin(kin).await? {
                found.push(self.stored(stored).await?);
            }
            Ok(found)
        })
    }

    fn waiting(&self, ask: Waiting) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(async move {
            let mut found = vec![];
            for stored in self.store.waiting(ask).await? {
                found.push(self.stored(stored).await?);
            }
            Ok(found)
        })
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
        Box::pin(self.list_counted(query))
    }

    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        Box::pin(self.log_counted(after, limit))
    }

    fn end(&self) -> Pending<'_, Result<u64>> {
        Box::pin(self.count())
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

    fn principal_key(&self) -> Pending<'_, Result<Option<PrincipalKey>>> {
        self.store.principal_key()
    }

    fn offer_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<PrincipalKey>> {
        self.store.offer_principal_key(key)
    }

    fn replace_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<()>> {
        self.store.replace_principal_key(key)
    }

    fn add_token(&self, token: TokenRecord) -> Pending<'_, Result<bool>> {
        self.store.add_token(token)
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
        self.store.revoke_token(id, at)
    }

    fn note_token_use(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<()>> {
        self.store.note_token_use(id, at)
    }
}
