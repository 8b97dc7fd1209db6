//! The store that many nodes share: a schema in a PostgreSQL database.

mod batch;
mod fate;
mod fault;
mod listen;
mod pool;
mod reader;
mod schema;
mod statements;
mod time;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use semel_core::clock::{Reading, Stamp};
use semel_core::ledger::Fence;
use semel_core::{KeyHash, Timestamp};
use tokio::sync::{mpsc, oneshot};

use self::batch::Prepared;
use self::pool::Pool;
use self::schema::Opened;
use self::time::Time;
use self::writer::{Answer, Item};
use super::bytes::{pack, read_progress, read_stamp, write_progress, write_stamp};
use super::group::QUEUE_MAX;
use super::{
    Change, Chunk, Commit, Current, Logged, NewPayload, Page, Pending, Place, Progress, Query,
    Result, Store, StoreError, Stored,
};
use crate::clock::Clock;

/// The clocks of the last retention sweep.
const SWEEP: &str = "sweep";

/// How far the sweeps have come.
const PROGRESS: &str = "sweep-progress";

/// A store in the schema `semel` of a PostgreSQL database, shared by any number of nodes.
///
/// It lives in the runtime in which it was opened, which must drive input, output and time.
#[derive(Debug)]
pub struct PostgresStore {
    pool: Arc<Pool>,
    time: Arc<Time>,
    writer: mpsc::Sender<Item>,
    notes: Option<PathBuf>,
}

impl PostgresStore {
    /// Opens the store in the database at this URL, making its tables when they are not there.
    ///
    /// # Errors
    /// Says why the database cannot be used, and what to do about it.
    pub async fn open(url: &str) -> Result<Self> {
        let (store, opened) = Self::open_by(url, Time::of_database()).await?;
        Ok(Self {
            notes: notes(&opened.id),
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
        let time = Arc::new(time);
        reader::look(&pool, &time).await?;
        let (writer, items) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(writer::run(Arc::clone(&pool), Arc::clone(&time), items));
        let store = Self {
            pool,
            time,
            writer,
            notes: None,
        };
        Ok((store, opened))
    }

    /// Hands an item to the writer and waits for the answer.
    async fn ask<T>(&self, make: impl FnOnce(Answer<T>) -> Item) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        self.writer.try_send(make(sender)).map_err(|_| {
            StoreError::Unavailable("too many changes are waiting to be written".to_owned())
        })?;
        receiver.await.unwrap_or_else(|_| {
            let text = "the writer ended before it answered".to_owned();
            Err(StoreError::Unknown(text))
        })
    }
}

/// Notes and holds are this machine's: they lie with the user's other state, one directory for each
/// store.
fn notes(id: &str) -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = named("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(named("HOME")?).join(".local/state")))?;
    Some(state.join("semel").join(format!("postgres-{id}-notes")))
}

impl Store for PostgresStore {
    fn now(&self) -> Timestamp {
        self.time.now()
    }

    fn reading(&self) -> Reading {
        self.time.reading()
    }

    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        Box::pin(reader::load(&self.pool, &self.time, key))
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        Box::pin(reader::load_at(&self.pool, place))
    }

    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>> {
        Box::pin(async move {
            let packed = match &change.payload {
                NewPayload::Bytes { bytes, .. } => Some(pack(bytes)?),
                NewPayload::Keep | NewPayload::Stream(_) | NewPayload::Erase => None,
            };
            let prepared = Box::new(Prepared { change, packed });
            self.ask(|answer| Item::Change(prepared, answer)).await
        })
    }

    fn payload(&self, place: Place) -> Pending<'_, Result<Option<Vec<u8>>>> {
        Box::pin(reader::payload(&self.pool, place))
    }

    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let pack = |chunk: Chunk| Ok((chunk.stream, pack(&chunk.bytes)?));
            let chunks = chunks.into_iter().map(pack).collect::<Result<Vec<_>>>()?;
            self.ask(|answer| Item::Append(place, fence, chunks, answer))
                .await
        })
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        Box::pin(self.ask(move |answer| Item::Discard(place, fence, answer)))
    }

    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>> {
        Box::pin(reader::stream(&self.pool, place, fence))
    }

    fn list(&self, query: Query) -> Pending<'_, Result<Page>> {
        Box::pin(async move {
            // Lists are judged by the present time, too.
            reader::look(&self.pool, &self.time).await?;
            reader::list(&self.pool, &query).await
        })
    }

    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        Box::pin(reader::log(&self.pool, after, limit))
    }

    fn sweep_mark(&self, next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>> {
        Box::pin(async move {
            let stored = reader::mark(&self.pool, SWEEP).await?;
            if let Some(next) = next {
                let value = write_stamp(&next).to_vec();
                self.ask(|answer| Item::Mark(SWEEP, value, answer)).await?;
            }
            let stored = stored.map(|bytes| read_stamp(&bytes)).transpose()?;
            Ok(stored.map(|mark| self.time.mark(mark)))
        })
    }

    fn sweep_progress(&self, next: Option<Progress>) -> Pending<'_, Result<Progress>> {
        Box::pin(async move {
            let stored = reader::mark(&self.pool, PROGRESS).await?;
            if let Some(next) = next {
                let value = write_progress(&next);
                self.ask(|answer| Item::Mark(PROGRESS, value, answer))
                    .await?;
            }
            let progress = stored.map(|bytes| read_progress(&bytes)).transpose()?;
            Ok(progress.unwrap_or_default())
        })
    }

    fn listen(&self) -> Pending<'_, Result<Option<mpsc::Receiver<KeyHash>>>> {
        Box::pin(async { listen::listen(self.pool.config()).await.map(Some) })
    }

    fn notes(&self) -> Option<PathBuf> {
        self.notes.clone()
    }

    fn tidy(&self) -> Pending<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }
}
