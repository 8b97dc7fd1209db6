//! Exactly once: the report is committed in the transaction that holds the effect.

use std::sync::Arc;

use semel_core::ledger::{Action, Command, Settle};
use semel_core::{Digest, Effect, Note, Outcome, Payload, Verdict};
use serde::Serialize;

use super::ledger::{Applied, Brought, Bytes, Settling};
use super::permit::{Held, Permit, to_json};
use crate::error::{Error, Result};
use crate::receipt::Receipt;
#[cfg(feature = "postgres")]
use crate::store::postgres::{Ended, PostgresStore, Settled};
use crate::store::{Commit, Current};

/// How often a report is decided anew before it is given up: each round lost means that another
/// command on the same operation won.
const ROUNDS_MAX: usize = 16;

/// A report of success that is to be committed with its effect.
pub(crate) struct Report {
    pub(crate) command: Command,
    pub(crate) brought: Brought,
}

impl Report {
    pub(crate) fn new<T: Serialize + ?Sized>(
        held: &Held,
        effect: Effect,
        data: &T,
    ) -> Result<Self> {
        let bytes = to_json(data)?;
        let payload = Payload {
            digest: Digest::of(&bytes),
            size: bytes.len() as u64,
        };
        let outcome = Outcome {
            ok: true,
            effect,
            payload: Some(payload),
        };
        Ok(Self {
            command: Command::Settle(Settle {
                attempt: held.attempt.clone(),
                fence: held.fence,
                verdict: Verdict::Done(outcome),
            }),
            brought: Brought {
                payload: Some(Bytes::Here(bytes.into())),
                parent: None,
            },
        })
    }
}

#[cfg(feature = "postgres")]
impl Permit {
    /// Reports success in the caller's own transaction and commits it: the effect that it holds and
    /// the report of it are there together, or neither is. The transaction must be in the ledger's
    /// database.
    ///
    /// An attempt that lost its turn cannot commit: its transaction is rolled back. So a doubt about an
    /// action that ends this way may be retried (see [`Request::transactional`](crate::Request::transactional)),
    /// and it still happens exactly once.
    ///
    /// # Errors
    /// After every error but [`StoreError::Unknown`](crate::store::StoreError::Unknown) the transaction
    /// was rolled back, and the operation may be begun again. When another attempt has settled it, the
    /// answer is that one's receipt, `replayed`.
    pub async fn commit<T: Serialize + ?Sized>(
        self,
        transaction: tokio_postgres::Transaction<'_>,
        effect: Effect,
        data: &T,
    ) -> Result<Receipt> {
        let held = Arc::clone(self.held());
        let Some(store) = held.inner.ledger.store.as_postgres() else {
            self.give_back("the ledger is not in PostgreSQL");
            return Err(Error::InvalidInput(
                "the ledger is not in PostgreSQL, so it cannot settle in its transaction"
                    .to_owned(),
            ));
        };
        let report = match Report::new(&held, effect, data) {
            Ok(report) => report,
            Err(error) => {
                self.give_back(&error);
                return Err(error);
            }
        };
        let settled = settle_in(&held, store, &transaction, &report).await;
        let (written, applied, after) = match settled {
            Ok(settled) => settled,
            Err(error) => {
                // Dropping it would do the same, later.
                drop(transaction.rollback().await);
                return if error.rejection().is_some() {
                    self.lose(error).await
                } else {
                    self.give_back(&error);
                    Err(error)
                };
            }
        };
        match store.commit_settled(transaction, written).await {
            Ended::Committed => {
                self.end_settled();
                held.inner.ledger.dispatch(&held.subject, &after);
                held.receipt(&applied, &report.brought).await
            }
            Ended::RolledBack(error) => {
                self.give_back(&error);
                Err(error.into())
            }
            Ended::Unknown(error) => {
                // The operation itself says what became of it, once the store is back.
                self.end_settled();
                Err(error.into())
            }
        }
    }
}

/// Writes the report into the transaction.
#[cfg(feature = "postgres")]
async fn settle_in(
    held: &Arc<Held>,
    store: &PostgresStore,
    transaction: &tokio_postgres::Transaction<'_>,
    report: &Report,
) -> Result<(Settled, Applied, Vec<Action>)> {
    use crate::store::{Store as _, StoreError};

    let ledger = &held.inner.ledger;
    let mut current = held.current();
    let mut is_read = false;
    for _ in 0..ROUNDS_MAX {
        let now = store.now();
        let (command, brought) = (&report.command, &report.brought);
        let settling = ledger.settle_with_effect(&held.subject, &current, command, brought, now);
        let Settling {
            change,
            reply,
            after,
            at,
        } = match settling {
            Ok(settling) => settling,
            // No refusal may rest on what this process remembers.
            Err(_) if !is_read => {
                current = store.load(&held.subject.hash).await?;
                is_read = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        match store.settle_in(transaction, change).await? {
            (Commit::Done(current), Some(settled)) => {
                let applied = Applied { reply, current, at };
                return Ok((settled, applied, after));
            }
            (Commit::Conflict(Current::Absent(_)), _) => {
                return Err(Error::InvalidInput(
                    "the transaction's database does not have the operation: it must be the one that \
                     the ledger is in"
                        .to_owned(),
                ));
            }
            (Commit::Conflict(found), _) => {
                current = found;
                is_read = true;
            }
            (Commit::GuardChanged | Commit::Done(_), _) => break,
        }
    }
    let crowd = "too many others change this operation at the same time".to_owned();
    Err(StoreError::Unavailable(crowd).into())
}

impl Permit {
    /// The operation is settled, or will say so itself: nothing is reported any more.
    fn end_settled(mut self) {
        self.set_ended();
        self.held().stop_renewing();
    }

    /// Says in the background that nothing was done: what was written was rolled back.
    fn give_back(mut self, error: impl ToString) {
        self.set_ended();
        let error = Note::from_lossy(&error.to_string());
        let verdict = Verdict::NotDone {
            reject: false,
            error,
        };
        let held = Arc::clone(self.held());
        let runtime = held.inner.runtime.clone();
        runtime.spawn(async move { held.report(verdict, None).await });
    }

    /// Another attempt has come first: answers with its outcome, if it has one.
    async fn lose(mut self, error: Error) -> Result<Receipt> {
        self.set_ended();
        self.held().stop_renewing();
        self.held().fenced(error).await
    }
}
