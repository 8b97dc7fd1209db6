//! The caller's transaction is one of `tokio_postgres`.

use std::sync::Arc;
use std::time::Duration;

use semel_core::Effect;
use semel_core::ledger::Action;
use serde::Serialize;
use tokio::time::timeout;
use tokio_postgres::Transaction;

use super::{ROUNDS_MAX, Report, crowded, elsewhere};
use crate::engine::ledger::{Applied, Settling};
use crate::engine::permit::{Held, Permit};
use crate::error::{Error, Result};
use crate::receipt::Receipt;
use crate::store::Store as _;
use crate::store::postgres::{PostgresStore, Settled};
use crate::store::transaction::{Ended, Wrote};

/// How long an answer waits until the ledger knows that nothing was done, so that whoever begins again
/// at once may act; a store that is not there then is told later.
const GIVE_BACK_WAIT: Duration = Duration::from_secs(5);

impl Permit {
    /// Reports success in the caller's own transaction and commits it: the effect that it holds and
    /// the report of it are there together, or neither is. The transaction must be in the ledger's
    /// database, and not within another one (a savepoint).
    ///
    /// An attempt that lost its turn cannot commit: its transaction is rolled back. So a doubt about an
    /// action that ends this way may be retried (see [`Request::transactional`](crate::Request::transactional)),
    /// and it still happens exactly once.
    ///
    /// When another attempt has settled the operation, the transaction is rolled back and the answer is
    /// that one's receipt, `replayed`.
    ///
    /// # Errors
    /// After every error but [`StoreError::Unknown`](crate::store::StoreError::Unknown) the transaction
    /// was rolled back: `fenced` when another attempt has the operation, and otherwise it may be begun
    /// again. After `Unknown`, begin again: the operation says what became of it.
    pub async fn commit<T: Serialize + ?Sized>(
        self,
        transaction: Transaction<'_>,
        effect: Effect,
        data: &T,
    ) -> Result<Receipt> {
        let held = Arc::clone(self.held());
        let settled = match (
            held.inner.ledger.store.as_postgres(),
            self.report_with(effect, data),
        ) {
            (Some(store), Ok(report)) => settle_in(&held, store, &transaction, &report)
                .await
                .map(|settled| (store, report, settled)),
            (_, Err(error)) => Err(error),
            (None, Ok(_)) => Err(Error::InvalidInput(
                "the ledger is not in PostgreSQL, so it cannot settle in its transaction"
                    .to_owned(),
            )),
        };
        let (store, report, (written, applied, after)) = match settled {
            Ok(settled) => settled,
            Err(error) => {
                // Where the connection is lost, the server rolls back by itself.
                drop(transaction.rollback().await);
                return self.lose(error).await;
            }
        };
        match store.commit_settled(transaction, written).await {
            Ended::Committed => {
                self.end_settled();
                held.inner.ledger.dispatch(&held.subject, &after);
                held.receipt(&applied, &report.brought).await
            }
            Ended::RolledBack(error) => self.lose(error.into()).await,
            Ended::Unknown(error) => {
                // The operation itself says what became of it, once the store is back.
                self.end_settled();
                Err(error.into())
            }
        }
    }

    /// Answers after a rollback: with the outcome that another attempt stored, or with the error, once
    /// the ledger knows that this one did nothing.
    async fn lose(self, error: Error) -> Result<Receipt> {
        let held = Arc::clone(self.held());
        match held.fenced(error).await {
            Ok(receipt) => {
                self.end_settled();
                Ok(receipt)
            }
            Err(error) => {
                if let Some(told) = self.give_back(&error) {
                    // What it says is not this caller's answer.
                    drop(timeout(GIVE_BACK_WAIT, told).await);
                }
                Err(error)
            }
        }
    }
}

/// Writes the report into the transaction.
async fn settle_in(
    held: &Arc<Held>,
    store: &PostgresStore,
    transaction: &Transaction<'_>,
    report: &Report,
) -> Result<(Settled, Applied, Vec<Action>)> {
    let ledger = &held.inner.ledger;
    let mut current = held.current();
    let mut is_read = false;
    for _ in 0..ROUNDS_MAX {
        let (command, brought) = (&report.command, &report.brought);
        let settling =
            ledger.settle_with_effect(&held.subject, &current, command, brought, store.now());
        let Settling {
            change,
            reply,
            after,
            at,
        } = match settling {
            Ok(settling) => settling,
            // No refusal may rest on what this process remembers, or on an old snapshot.
            Err(_) if !is_read => {
                current = store.load(&held.subject.hash).await?;
                is_read = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        let attempt = (&held.attempt, held.fence);
        match store.settle_in(transaction, change, attempt).await? {
            Wrote::Settled(settled, current) => {
                let applied = Applied { reply, current, at };
                return Ok((*settled, applied, after));
            }
            Wrote::Changed(found) => {
                current = found;
                is_read = false;
            }
            Wrote::Elsewhere if is_read => return Err(elsewhere()),
            // The ledger may have forgotten this attempt, or the whole operation, meanwhile.
            Wrote::Elsewhere => {
                current = store.load(&held.subject.hash).await?;
                is_read = true;
            }
            Wrote::Nested => {
                return Err(Error::InvalidInput(
                    "the transaction is within another one (a savepoint), which may still be rolled \
                     back: give the outermost one"
                        .to_owned(),
                ));
            }
        }
    }
    Err(crowded())
}
