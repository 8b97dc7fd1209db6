//! What is measured: three ways to remember what was done, given the same work.

mod naive_sqlite;
mod raw_log;
mod semel;

use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::ValueEnum;

pub(crate) use self::naive_sqlite::NaiveSqlite;
pub(crate) use self::raw_log::RawLog;
pub(crate) use self::semel::Semel;
use crate::keys::Key;

/// Does something once for each key.
pub(crate) trait Cycles: Sized + Send + Sync + 'static {
    /// Claims a key that nobody has claimed and then settles it; each is durable when it returns.
    fn cycle(&self, key: Key, result: Vec<u8>) -> impl Future<Output = Result<()>> + Send;

    /// Does the same, and returns how long the part of it took that counts: all of it.
    fn timed(&self, key: Key, result: Vec<u8>) -> impl Future<Output = Result<Duration>> + Send {
        async move {
            let began = Instant::now();
            self.cycle(key, result).await?;
            Ok(began.elapsed())
        }
    }
}

/// Remembers what was done.
pub(crate) trait Contender: Cycles {
    /// A stored result.
    type Found: AsRef<[u8]> + Send;

    /// Begins a settled key once more, which gives its result.
    fn replay(&self, key: Key) -> impl Future<Output = Result<Self::Found>> + Send;
}

/// Keeps it in files of its own.
pub(crate) trait Embedded: Contender {
    /// Opens an empty store in this directory.
    fn open(directory: &Path) -> impl Future<Output = Result<Self>> + Send;

    /// Brings the files of a closed store to the state in which they rest.
    fn tidy(directory: &Path) -> Result<()>;
}

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// The ledger itself, on its embedded store.
    Semel,
    /// A log file that grows, with a map in memory.
    RawLog,
    /// The obvious table.
    NaiveSqlite,
}

impl Name {
    pub(crate) const ALL: [Self; 3] = [Self::Semel, Self::RawLog, Self::NaiveSqlite];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Semel => "semel",
            Self::RawLog => "raw-log",
            Self::NaiveSqlite => "naive-sqlite",
        }
    }
}

/// Returns the engines that were asked for, in their usual order; all when none was.
pub(crate) fn chosen(only: &[Name]) -> Vec<Name> {
    let wanted = |name: &Name| only.is_empty() || only.contains(name);
    Name::ALL.into_iter().filter(wanted).collect()
}

/// The time as the baselines store it.
fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(0))
}

/// Writes a SQLite file's log back into it: the log's size is bounded and no key's own.
fn write_log_back(file: &Path) -> Result<()> {
    let connection = rusqlite::Connection::open(file).context("cannot open the store again")?;
    let busy: bool = connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .context("cannot write the log back")?;
    anyhow::ensure!(!busy, "somebody still uses the store that was closed");
    Ok(())
}

#[cfg(test)]
mod tests;
