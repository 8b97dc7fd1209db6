//! Settling in a transaction of the caller's own: the effect and its settlement are one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use semel_core::AttemptId;
use semel_core::ledger::Fence;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row, Transaction};

use super::PostgresStore;
use super::batch::{APPLY, Arguments, Call, Prepared, bucket_at, number, written};
use super::fate::{Found, Lost};
use super::fault::{failed, is_lost, told};
use super::notify::tell;
use super::pool::{Parameter, in_time};
use super::reader::{column, decode};
use super::writer::{PATIENCE_ALONE, random, woken};
use crate::store::transaction::{Ended, Wrote};
use crate::store::{Change, Commit, Expected, Place, Result, StoreError};

/// Reads the operation as the transaction sees it.
const BEFORE: &str = "SELECT record FROM semel.operations WHERE place = $1 AND bucket = $2";

/// Says whether the operation was written by the outermost transaction: a savepoint has a number of its
/// own, and its release is no COMMIT.
const OUTERMOST: &str = "SELECT xmin = pg_current_xact_id()::xid FROM semel.operations \
                         WHERE place = $1 AND bucket = $2";

/// A settlement that is written and not yet committed.
#[derive(Debug)]
pub(crate) struct Settled {
    prepared: Prepared,
    batch: i64,
    after: u64,
    woken: Vec<semel_core::KeyHash>,
}

impl PostgresStore {
    /// Writes the settlement of an attempt into the caller's transaction, in one round trip.
    pub(crate) async fn settle_in(
        &self,
        transaction: &Transaction<'_>,
        change: Change,
        attempt: (&AttemptId, Fence),
    ) -> Result<Wrote<Settled>> {
        let Expected::Version(place, _) = change.expected else {
            return Ok(Wrote::Elsewhere);
        };
        let prepared = Prepared::new(change)?;
        let batch = random()?;
        let after = self.writer.handed_out.load(Ordering::Relaxed);
        let call = Call {
            batch,
            patience: PATIENCE_ALONE,
        };
        let changes = [&prepared];
        let arguments = Arguments::new(call, &changes);
        let parameters = arguments.parameters();
        let (place_number, bucket) = (number(place), bucket_at(place));
        let lies: [Parameter<'_>; 2] = [(&place_number, Type::INT8), (&bucket, Type::INT2)];
        let sent = self.time.uptime();
        // Sent together, and carried out in this order.
        let (before, rows, outermost) = tokio::join!(
            biased;
            transaction.query_typed(BEFORE, &lies),
            transaction.query_typed(APPLY, &parameters),
            transaction.query_typed(OUTERMOST, &lies),
        );
        if !sees(&before.map_err(|error| refused(&error))?, place, attempt)? {
            return Ok(Wrote::Elsewhere);
        }
        let rows = rows.map_err(|error| refused(&error))?;
        let mut written = written(&rows, &changes)?;
        self.time.hear(written.clock, sent);
        let mut keys = woken(&written, &changes);
        if !written.heard {
            keys.clear();
        }
        let current = match written.commits.pop().transpose()? {
            Some(Commit::Done(current)) => current,
            Some(Commit::Conflict(current)) => return Ok(Wrote::Changed(current)),
            Some(Commit::GuardChanged) | None => {
                let text = "`semel.apply` left a change out".to_owned();
                return Err(StoreError::Corrupt(text));
            }
        };
        let outermost = outermost.map_err(|error| refused(&error))?;
        let is_outermost = outermost.first().map(|row| column(row, 0)).transpose()?;
        if is_outermost != Some(true) {
            return Ok(Wrote::Nested);
        }
        let settled = Settled {
            prepared,
            batch,
            after,
            woken: keys,
        };
        Ok(Wrote::Settled(Box::new(settled), current))
    }

    /// Commits the caller's transaction. An answer that is lost is looked for.
    pub(crate) async fn commit_settled(
        &self,
        transaction: Transaction<'_>,
        settled: Settled,
    ) -> Ended {
        let error = match in_time(transaction.commit()).await {
            Ok(Ok(())) => {
                self.tell_others(&settled);
                return Ended::Committed;
            }
            // A server that says why has rolled back, unless it was going down meanwhile.
            Ok(Err(error)) if error.code().is_some() && !is_lost(&error) => {
                return Ended::RolledBack(failed("commit the transaction", &error));
            }
            Ok(Err(error)) => told(&error),
            Err(late) => late.to_string(),
        };
        let lost = Lost {
            batch: settled.batch,
            after: settled.after,
            error: error.clone(),
        };
        match lost
            .find(&self.pool, &self.time, &[&settled.prepared])
            .await
        {
            Found::Written(_) => {
                self.tell_others(&settled);
                Ended::Committed
            }
            Found::Nothing => Ended::RolledBack(StoreError::Unavailable(format!(
                "the connection to PostgreSQL was lost before COMMIT: {error}"
            ))),
            Found::Unknown => Ended::Unknown(StoreError::Unknown(error)),
        }
    }

    fn tell_others(&self, settled: &Settled) {
        self.time.stored(settled.prepared.change.entry.at);
        if settled.woken.is_empty() {
            return;
        }
        let (pool, keys) = (Arc::clone(&self.pool), settled.woken.clone());
        tokio::spawn(async move {
            // Who is not told finds out by polling.
            if let Ok(connection) = pool.take().await {
                tell(connection, &keys).await;
            }
        });
    }
}

/// Says whether the transaction sees the attempt: its random id is in no other ledger.
fn sees(rows: &[Row], place: Place, attempt: (&AttemptId, Fence)) -> Result<bool> {
    let Some(row) = rows.first() else {
        return Ok(false);
    };
    let (id, fence) = attempt;
    let stored = decode(place, column(row, 0)?)?;
    let operation = stored.record.operation();
    Ok(operation.is_some_and(|operation| operation.find(id, fence).is_some()))
}

/// Says why the caller's transaction does not take a settlement.
fn refused(error: &Error) -> StoreError {
    let refused = |hint: &str| {
        let text = told(error);
        StoreError::Refused(format!("cannot settle in the transaction: {text}; {hint}"))
    };
    match error.code() {
        Some(
            &SqlState::UNDEFINED_TABLE
            | &SqlState::UNDEFINED_FUNCTION
            | &SqlState::INVALID_SCHEMA_NAME,
        ) => refused("it must be in the database that the ledger is in"),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => refused(
            "let its user write the ledger (`GRANT USAGE ON SCHEMA semel TO user`, and `GRANT ALL ON ALL \
             TABLES IN SCHEMA semel`, `ON ALL SEQUENCES`)",
        ),
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
            refused("it was begun to read only, or its server is not the primary")
        }
        Some(_) | None => failed("settle in the transaction", error),
    }
}
