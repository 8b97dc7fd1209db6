//! What one would write first, and as well as it can be done: one table by key, a row inserted by
//! the claim and updated by the settlement, the same group commit.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use semel::store::group::{Direct, Group, Sink};
use tokio::sync::oneshot;

use super::{Contender, Cycles, Embedded, now_micros, write_log_back};
use crate::keys::{Key, mix};

/// Connections that read beside the writer, as many as Semel's store has.
const READERS_MAX: usize = 4;

/// The page cache of each connection: no less than that of Semel's store. Measured: this table is
/// no faster with 8 MiB or with 64.
const CACHE_KIB: i64 = 32 * 1024;

/// The pages after which the write-ahead log is written back. Measured: 1,000 costs many callers
/// a tenth, 8,000 costs a single one a quarter, and this is the best of both.
const CHECKPOINT_PAGES: i64 = 4_000;

const FILE: &str = "naive.db";

const TABLE: &str = "
CREATE TABLE operations (
    key BLOB PRIMARY KEY,
    attempt BLOB NOT NULL,
    claimed_at INTEGER NOT NULL,
    settled_at INTEGER,
    result BLOB
) STRICT, WITHOUT ROWID";

pub(crate) struct NaiveSqlite {
    group: Group<Writer>,
    readers: Vec<Mutex<Connection>>,
    next_reader: AtomicUsize,
    attempts: AtomicU64,
    seed: u64,
}

struct Writer {
    connection: Connection,
}

/// The time is the caller's, so that the writer need not look at the clock.
enum Work {
    Claim {
        key: Key,
        attempt: [u8; 16],
        at: i64,
    },
    Settle {
        key: Key,
        attempt: [u8; 16],
        at: i64,
        result: Vec<u8>,
    },
}

struct Item {
    work: Work,
    answer: oneshot::Sender<std::result::Result<bool, String>>,
}

impl Writer {
    fn execute(&self, statement: &str) -> rusqlite::Result<()> {
        let mut prepared = self.connection.prepare_cached(statement)?;
        prepared.execute([]).map(drop)
    }

    /// Does one piece of work; `false` when another attempt has the key.
    fn apply(&self, work: &Work) -> rusqlite::Result<bool> {
        let changed = match work {
            Work::Claim { key, attempt, at } => self
                .connection
                .prepare_cached(
                    "INSERT INTO operations (key, attempt, claimed_at) VALUES (?1, ?2, ?3)
                     ON CONFLICT DO NOTHING",
                )?
                .execute((key, attempt, at))?,
            Work::Settle {
                key,
                attempt,
                at,
                result,
            } => self
                .connection
                .prepare_cached(
                    "UPDATE operations SET settled_at = ?3, result = ?4
                     WHERE key = ?1 AND attempt = ?2 AND settled_at IS NULL",
                )?
                .execute((key, attempt, at, result))?,
        };
        Ok(changed == 1)
    }

    fn transact(&self, items: &[Item]) -> rusqlite::Result<Vec<bool>> {
        self.execute("BEGIN IMMEDIATE")?;
        let applied: rusqlite::Result<Vec<bool>> =
            items.iter().map(|item| self.apply(&item.work)).collect();
        self.execute(if applied.is_ok() {
            "COMMIT"
        } else {
            "ROLLBACK"
        })?;
        applied
    }
}

impl Sink for Writer {
    type Item = Item;

    fn try_ready(&mut self) -> bool {
        true
    }

    fn write(&mut self, items: &mut Vec<Item>) {
        // A caller that went away does not hear its answer; what is stored is stored.
        match self.transact(items) {
            Ok(applied) => {
                for (item, done) in items.drain(..).zip(applied) {
                    let _ = item.answer.send(Ok(done));
                }
            }
            Err(error) => {
                for item in items.drain(..) {
                    let _ = item.answer.send(Err(error.to_string()));
                }
            }
        }
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    // Without this, binding a value prepares a statement anew to see whether another plan suits it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

impl NaiveSqlite {
    /// Borrows a connection that nobody else reads with.
    fn reader(&self) -> MutexGuard<'_, Connection> {
        let start = self.next_reader.fetch_add(1, Ordering::Relaxed);
        let count = self.readers.len();
        let free = (0..count).find_map(|at| self.readers[(start + at) % count].try_lock().ok());
        free.unwrap_or_else(|| {
            let busy = self.readers[start % count].lock();
            busy.unwrap_or_else(PoisonError::into_inner)
        })
    }

    fn new_attempt(&self) -> [u8; 16] {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        let first = mix(self.seed.wrapping_add(number));
        ((u128::from(first) << 64) | u128::from(mix(first ^ self.seed))).to_le_bytes()
    }

    async fn write(&self, work: Work) -> Result<bool> {
        let (answer, answered) = oneshot::channel();
        self.group
            .submit(Item { work, answer }, Direct::here())
            .map_err(|_| anyhow!("too many changes wait"))?;
        let written = answered.await.context("the writer ended")?;
        written.map_err(|error| anyhow!("cannot write: {error}"))
    }
}

impl Cycles for NaiveSqlite {
    async fn cycle(&self, key: Key, result: Vec<u8>) -> Result<()> {
        let attempt = self.new_attempt();
        let at = now_micros();
        let claimed = self.write(Work::Claim { key, attempt, at }).await?;
        ensure!(claimed, "the key is taken");
        let at = now_micros();
        let settle = Work::Settle {
            key,
            attempt,
            at,
            result,
        };
        ensure!(self.write(settle).await?, "another attempt holds the key");
        Ok(())
    }
}

impl Contender for NaiveSqlite {
    type Found = Vec<u8>;

    async fn replay(&self, key: Key) -> Result<Vec<u8>> {
        let reader = self.reader();
        let found: Option<Option<Vec<u8>>> = reader
            .prepare_cached("SELECT result FROM operations WHERE key = ?1")
            .and_then(|mut statement| statement.query_row([key], |row| row.get(0)).optional())
            .context("cannot read a row")?;
        match found.flatten() {
            Some(result) => Ok(result),
            None => bail!("a settled key is not there"),
        }
    }
}

impl Embedded for NaiveSqlite {
    async fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let connection = connect(&path).context("cannot make the table's file")?;
        connection
            .execute_batch(TABLE)
            .context("cannot make the table")?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let readers = (0..cores.clamp(1, READERS_MAX))
            .map(|_| connect(&path).map(Mutex::new))
            .collect::<rusqlite::Result<Vec<_>>>()
            .context("cannot open a reader")?;
        let group = Group::start("naive-sqlite", Writer { connection });
        Ok(Self {
            group: group.context("no thread for the writer")?,
            readers,
            next_reader: AtomicUsize::new(0),
            attempts: AtomicU64::new(0),
            seed: getrandom::u64().context("the system gives no randomness")?,
        })
    }

    fn tidy(directory: &Path) -> Result<()> {
        write_log_back(&directory.join(FILE))
    }
}
