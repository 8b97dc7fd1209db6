//! Settling in a transaction of the caller's own: the effect and its settlement are one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_postgres::Transaction;

use super::PostgresStore;
use super::batch::{APPLY, Arguments, Call, Prepared, written};
use super::fate::{Found, Lost};
use super::fault::{failed, told};
use super::notify::tell;
use super::writer::{PATIENCE_ALONE, random, woken};
use crate::store::{Change, Commit, Result, StoreError};

/// A settlement that is written and not yet committed.
#[derive(Debug)]
pub(crate) struct Settled {
    prepared: Prepared,
    batch: i64,
    after: u64,
    woken: Vec<semel_core::KeyHash>,
}

/// How the caller's transaction ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Committed,
    /// Nothing of it is there, neither the effect nor the settlement.
    RolledBack(StoreError),
    Unknown(StoreError),
}

impl PostgresStore {
    /// Writes a settlement into the caller's transaction; the second value is there when it was written.
    pub(crate) async fn settle_in(
        &self,
        transaction: &Transaction<'_>,
        change: Change,
    ) -> Result<(Commit, Option<Settled>)> {
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
        let sent = self.time.uptime();
        let applied = transaction.query_typed(APPLY, &parameters);
        let rows = applied
            .await
            .map_err(|error| failed("settle in the transaction", &error))?;
        let mut written = written(&rows, &changes)?;
        self.time.hear(written.clock, sent);
        let mut keys = woken(&written, &changes);
        if !written.heard {
            keys.clear();
        }
        let commit = written
            .commits
            .pop()
            .ok_or_else(|| StoreError::Corrupt("`semel.apply` left a change out".to_owned()))??;
        let settled = matches!(commit, Commit::Done(_)).then_some(Settled {
            prepared,
            batch,
            after,
            woken: keys,
        });
        Ok((commit, settled))
    }

    /// Commits the caller's transaction. An answer that is lost is looked for.
    pub(crate) async fn commit_settled(
        &self,
        transaction: Transaction<'_>,
        settled: Settled,
    ) -> Ended {
        let error = match transaction.commit().await {
            Ok(()) => {
                self.tell_others(&settled);
                return Ended::Committed;
            }
            // A server that says why has rolled back, unless it was going down meanwhile.
            Err(error) if error.code().is_some() && !super::fault::is_lost(&error) => {
                return Ended::RolledBack(failed("commit the transaction", &error));
            }
            Err(error) => told(&error),
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
            Found::Nothing => Ended::RolledBack(StoreError::Unavailable(error)),
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
