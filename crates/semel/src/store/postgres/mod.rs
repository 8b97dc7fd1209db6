//! The store that many nodes share: a schema in a PostgreSQL database.

mod batch;
mod durable;
mod fate;
mod fault;
mod fill;
mod gate;
mod guess;
mod listen;
mod log;
mod notify;
mod pool;
mod principal_key;
mod reader;
mod schema;
mod servers;
mod standing;
mod tls;
mod tokens;
mod transaction;
mod url;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use semel_core::clock::{Reading, Stamp};
use semel_core::identity::Kin;
use semel_core::ledger::Fence;
use semel_core::queue::QueueHash;
use semel_core::{KeyHash, PrincipalKey, Timestamp, TokenId, TokenRecord};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;

use self::batch::{Prepared, bucket_at, number};
use self::gate::Gate;
use self::guess::Guess;
use self::log::Horizon;
use self::pool::{Parameter, Pool};
use self::schema::Opened;
use self::tokens::Tokens;
pub(crate) use self::transaction::Settled;
use self::writer::{Item, Writer};
use super::bytes::{pack, read_progress, read_stamp, write_progress, write_stamp};
use super::time::Time;
use super::{
    AbsentAsOf, Change, Chunk, Commit, Current, Expected, Logged, Moved, Origin, Page, Pending,
    Place, Progress, Query, Result, Sizes, Standing, Store, StoreError, Stored, Waiting,
    state_directory,
};
use crate::clock::Clock;

/// Batches of one node that may be under way at once: while one is synced, the next is written. With more
/// of them each is smaller, and the server has more to do.
const WRITERS: usize = 2;

/// Loads of one node that may be under way at once.
const LOADERS: usize = 2;

/// The clocks of the last retention sweep.
const SWEEP: &str = "sweep";

/// How far the sweeps have come.
const PROGRESS: &str = "sweep-progress";

/// What the store was copied from, and how far.
const ORIGIN: &str = "origin";

/// A store in the schema `semel` of a PostgreSQL database, shared by any number of nodes.
///
/// It lives in the runtime in which it was opened, which must drive input, output and time.
#[derive(Debug)]
pub struct PostgresStore {
    pool: Arc<Pool>,
    time: Arc<Time>,
    writer: Arc<Writer>,
    changes: Gate<Item>,
    loads: Gate<Load>,
    horizon: Horizon,
    guess: Guess,
    notes: Option<PathBuf>,
    id: String,
    /// How changes go into a copy that is being filled or adopted.
    filling: Option<Gate<Item>>,
}

/// What is stored under a new key.
const NOTHING: Current = Current::Absent(AbsentAsOf(0));

/// A key to load, and who waits for it.
type Load = (KeyHash, oneshot::Sender<Result<Current>>);

impl PostgresStore {
    /// Opens the store in the database at this URL, making its tables when they are not there.
    ///
    /// # Errors
    /// Says why the database cannot be used, and what to do about it.
    pub async fn open(url: &str) -> Result<Self> {
        let (store, opened) = Self::open_by(url, Time::of_server()).await?;
        Ok(Self {
            notes: state_directory(&format!("postgres-{}-notes", opened.id)),
            ..store
        })
    }

    /// Opens the store to fill it as a copy, or to adopt it. Until it is adopted, `open` gives a store
    /// that can be read only.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub async fn open_copy(url: &str) -> Result<Self> {
        let store = Self::open(url).await?;
        let (pool, time) = (Arc::clone(&store.pool), Arc::clone(&store.time));
        let filling = Gate::open(WRITERS, move |items| {
            fill::fill(Arc::clone(&pool), Arc::clone(&time), items)
        });
        Ok(Self {
            filling: Some(filling),
            ..store
        })
    }

    /// Keeps no notes on this machine, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn without_notes(self) -> Self {
        Self {
            notes: None,
            ..self
        }
    }

    /// Opens the store with another clock and without notes, for tests.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub async fn open_with(url: &str, clock: Arc<dyn Clock>) -> Result<Self> {
        let (store, _) = Self::open_by(url, Time::given(clock)).await?;
        Ok(store)
    }

    async fn open_by(url: &str, time: Time) -> Result<(Self, Opened)> {
        let pool = Arc::new(Pool::new(pool::config(url)?));
        let opened = schema::prepare(&pool).await?;
        if opened.elsewhere {
            standing::recognise(&pool).await?;
        }
        let time = Arc::new(time);
        let handed_out = reader::look(&pool, &time).await?;
        let writer = Arc::new(Writer {
            pool: Arc::clone(&pool),
            time: Arc::clone(&time),
            handed_out: AtomicU64::new(handed_out),
        });
        let writing = Arc::clone(&writer);
        let changes = Gate::open(WRITERS, move |items| {
            let writer = Arc::clone(&writing);
            async move { writer.write(items).await }
        });
        let (loading, at) = (Arc::clone(&pool), Arc::clone(&time));
        let loads = Gate::open(LOADERS, move |items| {
            load_all(Arc::clone(&loading), Arc::clone(&at), items)
        });
        let store = Self {
            pool,
            time,
            writer,
            changes,
            loads,
            horizon: Horizon::default(),
            guess: Guess::default(),
            notes: None,
            id: opened.id.clone(),
            filling: None,
        };
        Ok((store, opened))
    }

    const fn token_table(&self) -> Tokens<'_> {
        Tokens {
            pool: &self.pool,
            filling: self.filling.is_some(),
        }
    }

    async fn put_mark(&self, name: &str, value: Vec<u8>) -> Result<()> {
        let sql = "INSERT INTO semel.marks (name, value) VALUES ($1, $2) \
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        let parameters: [Parameter<'_>; 2] = [(&name, Type::TEXT), (&value, Type::BYTEA)];
        self.pool.write("write a mark", sql, &parameters).await
    }

    async fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Result<()> {
        let (mut streams, mut packed) = (vec![], vec![]);
        for chunk in chunks {
            streams.push(i16::from(chunk.stream));
            packed.push(pack(&chunk.bytes)?);
        }
        let sql = "INSERT INTO semel.chunks (place, bucket, fence, n, stream, packed) \
                   SELECT $1, $2, $3, c.n + (SELECT coalesce(max(n), 0) FROM semel.chunks \
                   WHERE place = $1 AND bucket = $2 AND fence = $3), c.stream, c.packed \
                   FROM unnest($4, $5) WITH ORDINALITY AS c (stream, packed, n)";
        let (at, bucket, fence) = (number(place), bucket_at(place), fence.0.cast_signed());
        let parameters: [Parameter<'_>; 5] = [
            (&at, Type::INT8),
            (&bucket, Type::INT2),
            (&fence, Type::INT8),
            (&streams, Type::INT2_ARRAY),
            (&packed, Type::BYTEA_ARRAY),
        ];
        self.pool.write("store a stream", sql, &parameters).await
    }

    async fn discard(&self, place: Place, fence: Fence) -> Result<()> {
        // Never one that is the answer.
        let sql = "DELETE FROM semel.chunks WHERE place = $1 AND bucket = $2 AND fence = $3 \
                   AND NOT EXISTS (SELECT FROM semel.operations o \
                   WHERE o.place = $1 AND o.bucket = $2 AND o.stream_fence = $3)";
        let (at, bucket, fence) = (number(place), bucket_at(place), fence.0.cast_signed());
        let parameters: [Parameter<'_>; 3] = [
            (&at, Type::INT8),
            (&bucket, Type::INT2),
            (&fence, Type::INT8),
        ];
        self.pool.write("discard a stream", sql, &parameters).await
    }
}

/// Loads many keys in one round trip and answers each.
async fn load_all(pool: Arc<Pool>, time: Arc<Time>, items: Vec<Load>) {
    let keys: Vec<KeyHash> = items.iter().map(|(key, _)| *key).collect();
    let found = match reader::load(&pool, &time, &keys).await {
        Ok(found) => found.into_iter().map(Ok).collect(),
        Err(error) => keys.iter().map(|_| Err(error.clone())).collect::<Vec<_>>(),
    };
    for ((_, answer), found) in items.into_iter().zip(found) {
        // Whoever asked may have gone.
        drop(answer.send(found));
    }
}

/// Waits for what a worker answers.
async fn answer<T>(receiver: oneshot::Receiver<Result<T>>) -> Result<T> {
    receiver.await.unwrap_or_else(|_| {
        let text = "the connection's worker ended before it answered".to_owned();
        Err(StoreError::Unknown(text))
    })
}

impl Store for PostgresStore {
    fn now(&self) -> Timestamp {
        self.time.now()
    }

    fn reading(&self) -> Reading {
        self.time.reading()
    }

    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            self.loads.enter((*key, sender))?;
            let found = answer(receiver).await?;
            self.guess.learn(&found);
            Ok(found)
        })
    }

    fn assumed(&self) -> Option<Current> {
        let is_new = self.guess.is_new();
        is_new.then_some(NOTHING)
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        Box::pin(reader::load_at(&self.pool, place))
    }

    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>> {
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let makes = matches!(change.expected, Expected::Absent(_));
            let gate = self.filling.as_ref().unwrap_or(&self.changes);
            gate.enter((Prepared::new(change)?, sender))?;
            let commit = answer(receiver).await?;
            match &commit {
                Commit::Done(_) if makes => self.guess.learn(&NOTHING),
                Commit::Conflict(found) if makes => self.guess.learn(found),
                Commit::Done(_) | Commit::Conflict(_) | Commit::GuardChanged => {}
            }
            Ok(commit)
        })
    }

    fn payload(&self, place: Place) -> Pending<'_, Result<Option<Vec<u8>>>> {
        Box::pin(reader::payload(&self.pool, place))
    }

    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>> {
        Box::pin(self.append(place, fence, chunks))
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        Box::pin(self.discard(place, fence))
    }

    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>> {
        Box::pin(reader::stream(&self.pool, place, fence))
    }

    fn kin(&self, kin: Kin) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(reader::kin(&self.pool, &self.time, kin))
    }

    fn waiting(&self, ask: Waiting) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(async move { reader::waiting(&self.pool, &self.time, &ask).await })
    }

    fn taken(
        &self,
        queue: QueueHash,
        lane: Option<u64>,
        limit: usize,
    ) -> Pending<'_, Result<usize>> {
        Box::pin(reader::taken(&self.pool, queue, lane, limit))
    }

    fn list(&self, query: Query) -> Pending<'_, Result<Page>> {
        Box::pin(async move {
            // Lists are judged by the present time, too.
            reader::look(&self.pool, &self.time).await?;
            reader::list(&self.pool, &query).await
        })
    }

    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        Box::pin(self.horizon.log(&self.pool, after, limit))
    }

    fn end(&self) -> Pending<'_, Result<u64>> {
        Box::pin(self.horizon.end(&self.pool))
    }

    fn has_gaps(&self) -> bool {
        true
    }

    fn sizes(&self) -> Option<&Sizes> {
        Some(self.changes.sizes())
    }

    fn sweep_mark(&self, next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>> {
        Box::pin(async move {
            let stored = reader::mark(&self.pool, SWEEP).await?;
            if let Some(next) = next {
                let value = write_stamp(&next).to_vec();
                self.put_mark(SWEEP, value).await?;
            }
            let stored = stored.map(|bytes| read_stamp(&bytes)).transpose()?;
            Ok(stored.map(|mark| self.time.mark(mark)))
        })
    }

    fn sweep_progress(&self, next: Option<Progress>) -> Pending<'_, Result<Progress>> {
        Box::pin(async move {
            let stored = reader::mark(&self.pool, PROGRESS).await?;
            if let Some(next) = next {
                self.put_mark(PROGRESS, write_progress(&next)).await?;
            }
            let progress = stored.map(|bytes| read_progress(&bytes)).transpose()?;
            Ok(progress.unwrap_or_default())
        })
    }

    fn listen(&self) -> Pending<'_, Result<Option<mpsc::Receiver<KeyHash>>>> {
        Box::pin(async {
            let servers = self.pool.config();
            if servers.connections == 1 {
                // Who is to use one connection polls.
                return Ok(None);
            }
            listen::listen(servers).await.map(Some)
        })
    }

    fn as_postgres(&self) -> Option<&PostgresStore> {
        Some(self)
    }

    fn notes(&self) -> Option<PathBuf> {
        self.notes.clone()
    }

    fn id(&self) -> Pending<'_, Result<String>> {
        Box::pin(async { Ok(self.id.clone()) })
    }

    fn standing(&self) -> Pending<'_, Result<Standing>> {
        Box::pin(standing::standing(&self.pool))
    }

    fn become_copy(&self) -> Pending<'_, Result<()>> {
        Box::pin(standing::become_copy(&self.pool, &self.horizon))
    }

    fn close(&self, moved: Moved) -> Pending<'_, Result<()>> {
        Box::pin(async move { standing::close(&self.pool, &self.horizon, &moved).await })
    }

    fn origin(&self, next: Option<Origin>) -> Pending<'_, Result<Option<Origin>>> {
        Box::pin(async move {
            let stored = reader::mark(&self.pool, ORIGIN).await?;
            if let Some(next) = next {
                self.put_mark(ORIGIN, next.to_bytes()).await?;
            }
            stored.map(|bytes| Origin::from_bytes(&bytes)).transpose()
        })
    }

    fn adopted(&self) -> Pending<'_, Result<()>> {
        Box::pin(standing::adopted(&self.pool))
    }

    fn tidy(&self) -> Pending<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    fn principal_key(&self) -> Pending<'_, Result<Option<PrincipalKey>>> {
        Box::pin(principal_key::load(&self.pool))
    }

    fn offer_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<PrincipalKey>> {
        Box::pin(principal_key::offer(&self.pool, key))
    }

    fn replace_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<()>> {
        Box::pin(principal_key::replace(&self.pool, key))
    }

    fn add_token(&self, token: TokenRecord) -> Pending<'_, Result<bool>> {
        Box::pin(self.token_table().add(token))
    }

    fn token(&self, id: TokenId) -> Pending<'_, Result<Option<TokenRecord>>> {
        Box::pin(self.token_table().load(id))
    }

    fn tokens(
        &self,
        after: Option<TokenId>,
        limit: usize,
    ) -> Pending<'_, Result<Vec<TokenRecord>>> {
        Box::pin(self.token_table().list(after, limit))
    }

    fn revoke_token(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<bool>> {
        Box::pin(self.token_table().revoke(id, at))
    }

    fn note_token_use(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<()>> {
        Box::pin(self.token_table().note_use(id, at))
    }
}
