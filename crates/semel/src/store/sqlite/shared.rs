//! What a process knows of the file without reading it: the tail of the index and the last time.
//!
//! The writer learns it in its transactions. A reader looks whether another process has written
//! since, as an answer must rest on what is stored, and not on what was stored when this process
//! last wrote.

use std::sync::{OnceLock, PoisonError, RwLock};

use rusqlite::{Connection, OptionalExtension, Row};
use semel_core::clock::Stamp;

use super::body::{Group, gap, read_group};
use super::cache::Cache;
use super::files::{CopyCheck, OpenFiles};
use super::index::{Fold, Tail};
use super::{failed, schema};
use crate::store::Result;

/// What the writer and the readers of a process tell each other.
#[derive(Debug)]
pub(super) struct Shared {
    /// The rows that the narrow table does not have yet.
    pub(super) tail: RwLock<Tail>,
    /// The last stored time.
    pub(super) stamp: RwLock<Option<Stamp>>,
    /// Settled records, and whether anybody else has committed since this process last looked.
    pub(super) cache: Cache,
    /// Whether the file is the one that the store remembers.
    pub(super) check: CopyCheck,
    /// The files that are open, once they are.
    pub(super) files: OnceLock<OpenFiles>,
}

pub(super) fn poisoned<T>(error: PoisonError<T>) -> T {
    error.into_inner()
}

impl Shared {
    /// Refuses to write when a path of the store leads elsewhere by now.
    pub(super) fn check_files(&self) -> Result<()> {
        self.files.get().map_or(Ok(()), OpenFiles::check)
    }

    /// Learns what other processes have written, if they have.
    pub(super) fn look(&self, connection: &Connection) -> Result<()> {
        if self.cache.is_current() || self.knows_all(connection)? {
            return Ok(());
        }
        let snapshot = connection
            .unchecked_transaction()
            .map_err(|error| failed("look for changes", &error))?;
        schema::check_again(&snapshot)?;
        let fold = Fold::load(&snapshot)?;
        let last = last_group(&snapshot)?;
        let mut tail = self.tail.write().unwrap_or_else(poisoned);
        // Whoever came first may have seen a later state of the file, which this one must not
        // undo: the tail would then miss rows that it thinks are not in the table.
        if let Some((last_seq, stamp)) = last.filter(|(seq, _)| *seq > tail.known_through) {
            tail.advance(&fold);
            tail.learn(&snapshot)?;
            debug_assert_eq!(
                tail.known_through, last_seq,
                "the snapshot holds every group"
            );
            *self.stamp.write().unwrap_or_else(poisoned) = Some(stamp);
        }
        Ok(())
    }

    fn knows_all(&self, connection: &Connection) -> Result<bool> {
        let newest: Option<i64> = connection
            .prepare_cached("SELECT max(first_seq) FROM log")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|error| failed("look for changes", &error))?;
        let known = self.tail.read().unwrap_or_else(poisoned).known_through;
        Ok(newest.is_none_or(|first| first.cast_unsigned() <= known))
    }
}

impl Tail {
    /// Reads which rows were made after what is known.
    pub(super) fn learn(&mut self, connection: &Connection) -> Result<()> {
        let mut read = || {
            let mut statement = connection.prepare_cached(
                "SELECT first_seq, last_seq, stamp, fresh FROM log
                 WHERE first_seq > ?1 ORDER BY first_seq",
            )?;
            let mut rows = statement.query([self.known_through.cast_signed()])?;
            while let Some(row) = rows.next()? {
                let first = row.get::<_, i64>(0)?.cast_unsigned();
                let group = match group_of(row) {
                    // A group that is gone would hide the rows that it made.
                    Ok(_) if first != self.known_through + 1 => {
                        return Ok(Err(gap(self.known_through + 1, first)));
                    }
                    Ok(group) => group,
                    Err(error) => return Ok(Err(error)),
                };
                for (hash, id) in group.fresh {
                    self.add(hash, id);
                }
                self.known_through = group.last_seq;
            }
            Ok(Ok(()))
        };
        read().map_err(|error| failed("read the log", &error))?
    }
}

/// Reads the number and the time of the last group.
pub(super) fn last_group(connection: &Connection) -> Result<Option<(u64, Stamp)>> {
    let last = connection
        .prepare_cached(
            "SELECT first_seq, last_seq, stamp, fresh FROM log ORDER BY first_seq DESC LIMIT 1",
        )
        .and_then(|mut statement| statement.query_row([], |row| Ok(group_of(row))).optional())
        .map_err(|error| failed("read the log", &error))?
        .transpose()?;
    Ok(last.map(|group| (group.last_seq, group.stamp)))
}

/// Reads a row of the log: its numbers, its time and its new rows.
fn group_of(row: &Row<'_>) -> Result<Group> {
    let read = || {
        let (first, last): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (stamp, fresh) = (row.get_ref(2)?.as_blob()?, row.get_ref(3)?.as_blob()?);
        Ok(read_group(
            first.cast_unsigned(),
            last.cast_unsigned(),
            stamp,
            fresh,
        ))
    };
    read().map_err(|error: rusqlite::Error| failed("read the log", &error))?
}
