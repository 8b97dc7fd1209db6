//! Settling in a transaction of the caller's own, on the store's file: the effect and its settlement
//! are one.
//!
//! Such a transaction is to the store what another process's group is. It does not wait for a turn, as
//! it may hold SQLite's write lock already, for which somebody waits whose turn it is. That lock alone
//! keeps others from committing beside it, and marks are only ever left by those who hold it.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use semel_core::AttemptId;
use semel_core::ledger::Fence;

use super::lock::Turnstile;
use super::writer::{no_turn, outside, unlocked};
use super::{SqliteStore, failed, open, reader, unique};
use crate::store::transaction::{Ended, Wrote};
use crate::store::{Change, Commit, Current, Expected, Result, StoreError};

/// The tables that the store writes: a temporary one with such a name would be written instead.
const OURS: &str = "'operations', 'slots', 'collisions', 'open_operations', 'log', 'payloads', \
                    'chunks', 'fold', 'marks'";

/// Takes SQLite's write lock and changes nothing.
const TAKE_LOCK: &str = "DELETE FROM open_operations WHERE 0";

/// `PRAGMA synchronous` from which on COMMIT means that it is on disk.
const SYNCHRONOUS_FULL: i64 = 2;

/// A settlement that is written and not yet committed.
pub(crate) type Settled = outside::Group;

impl SqliteStore {
    /// Opens another connection to the store's file, for tables of the caller's own beside those of the
    /// ledger. What it commits is on disk, as
    /// [`Permit::commit_sqlite`](crate::Permit::commit_sqlite) asks for.
    ///
    /// # Errors
    /// Says why the file cannot be opened.
    pub fn connect(&self) -> Result<Connection> {
        if let Some(refusal) = self.only_reads() {
            return self.named(Err(refusal.clone()));
        }
        self.named(open::connect(&self.path, open::Role::Outside))
    }

    /// Begins a transaction on a connection to the store's file, once it is its turn among all who
    /// write the file. It blocks for at most ten seconds, and as long as the connection's busy timeout.
    ///
    /// While the transaction lasts, nobody else can write: keep it short, and await nothing in it. Those
    /// who wait for it give up after ten seconds and answer `store_unavailable`.
    ///
    /// # Errors
    /// Says that others have not ended in time.
    pub fn transaction<'c>(&self, connection: &'c mut Connection) -> Result<Transaction<'c>> {
        let turn = Turnstile::open(&self.path, self.owner).and_then(Turnstile::enter_in_time);
        let turn = turn.map_err(|error| unlocked(&error));
        let turn = self.named(turn.and_then(|turn| turn.ok_or_else(no_turn)))?;
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        // The write lock is ours now, or cannot be had: whoever comes next waits for that.
        drop(turn);
        self.named(begun.map_err(|error| failed("begin the transaction", &error)))
    }

    /// Writes the settlement of an attempt into the caller's transaction.
    pub(crate) fn settle_in(
        &self,
        transaction: &Transaction<'_>,
        change: Change,
        attempt: (&AttemptId, Fence),
    ) -> Result<Wrote<Settled>> {
        let Expected::Version(place, version) = change.expected else {
            return Ok(Wrote::Elsewhere);
        };
        if !self.is_file_of(transaction) {
            return Ok(Wrote::Elsewhere);
        }
        self.shared.check_files()?;
        fit(transaction)?;
        transaction
            .execute(TAKE_LOCK, [])
            .map_err(|error| failed("settle in the transaction", &error))?;
        let Some(stored) = reader::row(transaction, place.0)? else {
            return Ok(Wrote::Elsewhere);
        };
        // The attempt's random id is in no other ledger, whatever the file is called.
        let (id, fence) = attempt;
        let operation = stored.record.operation();
        if operation.is_none_or(|operation| operation.find(id, fence).is_none()) {
            return Ok(Wrote::Elsewhere);
        }
        if stored.record.version() != version {
            return Ok(Wrote::Changed(Current::Stored(stored)));
        }
        let prepared = Self::prepare(change)?;
        let wrote = outside::write(transaction, &self.shared, &*self.clock, &prepared)?;
        match wrote {
            (Commit::Done(current), settled) => {
                // Nobody may answer from memory once this is committed, not even this process.
                let mark = unique()?;
                Turnstile::open(&self.path, self.owner)
                    .and_then(|turn| turn.mark(&mark))
                    .map_err(|error| unlocked(&error))?;
                Ok(Wrote::Settled(Box::new(settled), current))
            }
            (Commit::Conflict(current), _) => Ok(Wrote::Changed(current)),
            (Commit::GuardChanged, _) => Ok(Wrote::Elsewhere),
        }
    }

    /// Commits the caller's transaction. A failed COMMIT tells nothing: what is stored is read.
    pub(crate) fn commit_settled(&self, transaction: Transaction<'_>, settled: &Settled) -> Ended {
        if let Err(error) = transaction.execute_batch("COMMIT") {
            let error = failed("commit the transaction", &error);
            if !transaction.is_autocommit() {
                // Still open, so nothing was committed.
                return match roll_back(transaction) {
                    Ok(()) => Ended::RolledBack(error),
                    Err(second) => Ended::RolledBack(StoreError::Unavailable(format!(
                        "{error}; then {second}"
                    ))),
                };
            }
            match self.is_stored(settled) {
                Ok(true) => {}
                Ok(false) => return Ended::RolledBack(error),
                Err(second) => {
                    return Ended::Unknown(StoreError::Unknown(format!("{error}; then {second}")));
                }
            }
        }
        // Without this note a lost log might not be noticed; what is written is written. Others may
        // have noted more meanwhile, and a note that is behind does no harm.
        let _unnoted =
            Turnstile::open(&self.path, self.owner).and_then(|turn| match turn.committed()? {
                Some(last) if last >= settled.last_seq => Ok(()),
                Some(_) | None => turn.note_committed(settled.last_seq),
            });
        // What cannot be looked at now is looked at by whoever reads next.
        let _seen = self.shared.look(&self.reader());
        Ended::Committed
    }

    fn is_stored(&self, settled: &Settled) -> rusqlite::Result<bool> {
        let stored: Option<Vec<u8>> = self
            .reader()
            .query_row(
                "SELECT body FROM log WHERE first_seq = ?1",
                [settled.first_seq.cast_signed()],
                |row| row.get(0),
            )
            .optional()?;
        Ok(stored.is_some_and(|body| body == settled.body))
    }

    /// Says whether a connection's main database is the store's file.
    fn is_file_of(&self, connection: &Connection) -> bool {
        let named = connection.path().filter(|name| !name.is_empty());
        let found = named.and_then(|name| Path::new(name).canonicalize().ok());
        found.is_some_and(|found| found == self.path)
    }
}

/// Rolls the caller's transaction back, whatever it was told to do when it is dropped.
pub(crate) fn roll_back(transaction: Transaction<'_>) -> Result<()> {
    if transaction.is_autocommit() {
        return Ok(());
    }
    transaction
        .rollback()
        .map_err(|error| failed("roll the transaction back", &error))
}

/// Refuses a connection whose COMMIT would not do what is promised.
fn fit(connection: &Connection) -> Result<()> {
    let refused = |text: &str| Err(StoreError::Refused(text.to_owned()));
    if connection.is_autocommit() {
        return refused("the transaction has ended already");
    }
    let synchronous: i64 = connection
        .pragma_query_value(None, "synchronous", |row| row.get(0))
        .map_err(|error| failed("examine the connection", &error))?;
    if synchronous < SYNCHRONOUS_FULL {
        return refused(
            "the connection does not wait until its commits are on disk: set `PRAGMA synchronous = FULL` \
             before the transaction",
        );
    }
    let sql = format!(
        "SELECT count(*) FROM sqlite_temp_schema WHERE name IN ({OURS}) OR tbl_name IN ({OURS})"
    );
    let hidden: i64 = connection
        .query_row(&sql, [], |row| row.get(0))
        .map_err(|error| failed("examine the connection", &error))?;
    if hidden > 0 {
        return refused("the connection has a temporary table or trigger in place of the ledger's");
    }
    Ok(())
}
