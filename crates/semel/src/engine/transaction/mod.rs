//! Exactly once: the report is committed in the transaction that holds the effect.

#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

use std::sync::Arc;

use semel_core::ledger::Command;
use semel_core::{Effect, Note, Outcome, Payload, Verdict};
use serde::Serialize;
use tokio::task::JoinHandle;

use super::ledger::{Brought, Bytes};
use super::permit::{Held, Permit, to_json};
use crate::error::{Error, Result};
use crate::receipt::Receipt;
use crate::store::StoreError;

/// How often a report is decided anew before it is given up: each round lost means that another
/// command on the same operation won.
const ROUNDS_MAX: usize = 16;

/// A report of success that is to be committed with its effect.
struct Report {
    command: Command,
    brought: Brought,
}

impl Report {
    fn new<T: Serialize + ?Sized>(held: &Held, effect: Effect, data: &T) -> Result<Self> {
        let bytes = to_json(data)?;
        let payload = Payload::of(&bytes);
        let outcome = Outcome {
            ok: true,
            effect,
            payload: Some(payload),
        };
        Ok(Self {
            command: held.settle(Verdict::Done(outcome)),
            brought: Brought {
                payload: Some(Bytes::Here(bytes.into())),
                ..Brought::default()
            },
        })
    }
}

impl Permit {
    /// Makes the report of an effect that is to be committed with it, or says why it cannot be.
    fn report_with<T: Serialize + ?Sized>(&self, effect: Effect, data: &T) -> Result<Report> {
        if self.is_probe() {
            return Err(Error::InvalidInput(
                "the permit is a probe: it may look, and change nothing".to_owned(),
            ));
        }
        Report::new(self.held(), effect, data)
    }

    /// The operation is settled, or will say so itself: nothing is reported any more.
    fn end_settled(mut self) {
        self.set_ended();
        self.held().stop_renewing();
    }

    /// Says in the background that nothing was done: what was written was rolled back.
    fn give_back(mut self, error: impl ToString) -> Option<JoinHandle<Result<Receipt>>> {
        if self.is_probe() {
            // It was to look an earlier attempt up, and `not_done` would be about that one.
            return None;
        }
        self.set_ended();
        let error = Note::from_lossy(&error.to_string());
        let verdict = Verdict::NotDone {
            reject: false,
            error,
            retry_after: None,
        };
        let held = Arc::clone(self.held());
        let runtime = held.inner.runtime.clone();
        Some(runtime.spawn(async move { held.report(verdict, None).await }))
    }
}

/// The transaction does not see the operation, or not this attempt of it.
fn elsewhere() -> Error {
    Error::InvalidInput(
        "the transaction does not see the operation: it must be in the database that the ledger is in, \
         and begin after the permit was given"
            .to_owned(),
    )
}

fn crowded() -> Error {
    let crowd = "too many others change this operation at the same time".to_owned();
    StoreError::Unavailable(crowd).into()
}
