//! The caller's transaction is one of `rusqlite`, on the ledger's own file.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use rusqlite::Transaction;
use semel_core::ledger::Action;
use semel_core::{Effect, Note, Verdict};
use serde::Serialize;

use super::{ROUNDS_MAX, Report, crowded, elsewhere};
use crate::engine::ledger::{Applied, Brought, Settling};
use crate::engine::permit::{Held, Permit};
use crate::error::{Error, Result};
use crate::receipt::Receipt;
use crate::store::sqlite::{Settled, SqliteStore, roll_back};
use crate::store::transaction::{Ended, Wrote};
use crate::store::{Store as _, StoreError};

impl Permit {
    /// Reports success in the caller's own SQLite transaction and commits it: the effect that it holds
    /// and the report of it are there together, or neither is. The transaction must be on the ledger's
    /// own file; [`SqliteStore::connect`] and [`SqliteStore::transaction`] give a fitting one.
    ///
    /// It blocks, as `rusqlite` does, and its transactions do not leave their thread: use it where you
    /// use those, for instance in `tokio::task::spawn_blocking`. Until it ends, nobody else can write the
    /// file, so await nothing while the transaction is open.
    ///
    /// Otherwise it is as [`Permit::commit`] says: an attempt that lost its turn cannot commit, and when
    /// another one has settled the operation, the answer is that one's receipt, `replayed`.
    ///
    /// # Errors
    /// After every error but [`StoreError::Unknown`] the transaction was rolled back: `fenced` when
    /// another attempt has the operation, and otherwise it may be begun again. After `Unknown`, begin
    /// again: the operation says what became of it.
    pub fn commit_sqlite<T: Serialize + ?Sized>(
        self,
        transaction: Transaction<'_>,
        effect: Effect,
        data: &T,
    ) -> Result<Receipt> {
        let held = Arc::clone(self.held());
        let settled = match (
            held.inner.ledger.store.as_sqlite(),
            self.report_with(effect, data),
        ) {
            (Some(store), Ok(report)) => settle_in(&held, store, &transaction, &report)
                .map(|settled| (store, report, settled)),
            (_, Err(error)) => Err(error),
            (None, Ok(_)) => Err(Error::InvalidInput(
                "the ledger is not in SQLite, so it cannot settle in its transaction".to_owned(),
            )),
        };
        let (store, report, (written, applied, after)) = match settled {
            Ok(settled) => settled,
            Err(error) => {
                return match roll_back(transaction) {
                    Ok(()) => self.lose_here(error),
                    Err(second) => self.lose_here(second.into()),
                };
            }
        };
        match store.commit_settled(transaction, &written) {
            Ended::Committed => {
                self.end_settled();
                held.inner.ledger.dispatch(&held.subject, &after);
                wait(held.receipt(&applied, &report.brought))
            }
            Ended::RolledBack(error) => self.lose_here(error.into()),
            Ended::Unknown(error) => {
                // The operation itself says what became of it, once the store is back.
                self.end_settled();
                Err(error.into())
            }
        }
    }

    /// Answers after a rollback: with the outcome that another attempt stored, or with the error, once
    /// the ledger knows that this one did nothing.
    fn lose_here(self, error: Error) -> Result<Receipt> {
        let held = Arc::clone(self.held());
        let error = match wait(held.fenced(error)) {
            Ok(receipt) => {
                self.end_settled();
                return Ok(receipt);
            }
            Err(error) => error,
        };
        if self.is_probe() {
            return Err(error);
        }
        let verdict = Verdict::NotDone {
            reject: false,
            error: Note::from_lossy(&error.to_string()),
            retry_after: None,
        };
        match wait(held.apply(&held.settle(verdict), &Brought::default())) {
            // A store that is not there is told later, in the background.
            Err(Error::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))) => {
                drop(self.give_back(&error));
            }
            // What it says is not this caller's answer.
            Ok(_) | Err(_) => self.end_settled(),
        }
        Err(error)
    }
}

/// Writes the report into the transaction.
fn settle_in(
    held: &Arc<Held>,
    store: &SqliteStore,
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
            // No refusal may rest on what this process remembers.
            Err(_) if !is_read => {
                current = wait(store.load(&held.subject.hash))?;
                is_read = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        match store.settle_in(transaction, change, (&held.attempt, held.fence))? {
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
                current = wait(store.load(&held.subject.hash))?;
                is_read = true;
            }
            #[cfg(feature = "postgres")]
            Wrote::Nested => return Err(elsewhere()),
        }
    }
    Err(crowded())
}

/// Waits for the store in this thread. SQLite's answers come from this very thread or from its writer's,
/// never from the runtime's, which this may be the only one of.
fn wait<T>(answer: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    // Within a task, a budget that is used up would make it wait for ever.
    let mut answer = pin!(tokio::task::unconstrained(answer));
    loop {
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}
