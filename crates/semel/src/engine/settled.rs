//! Waiting for what becomes of an operation that somebody else carries out.

use std::time::Duration;

use semel_core::ledger::{Operation, Record, Rejection, StateKind};
use semel_core::queue::Spot;
use semel_core::{Key, Namespace, OnDoubt, Timestamp};
use tokio::time::Instant;

use super::Engine;
use super::ledger::Subject;
use super::request::WAIT_MAX;
use super::wait::{POLL_FIRST, POLL_MAX};
use crate::error::Result;
use crate::receipt::Receipt;
use crate::store::Current;

impl Engine {
    /// Waits until an operation is over, at most this long and at most [`WAIT_MAX`]; returns where it stands then.
    ///
    /// It is over when it is settled, dead, or in a doubt that no worker of its queue takes up. Nothing is written, but that
    /// its worker is provably gone: whoever goes away meanwhile leaves nothing behind.
    ///
    /// # Errors
    /// `not_found` when there is no such operation, `expired` when it is past its retention. Fails when the store does.
    pub async fn settled(
        &self,
        namespace: &Namespace,
        key: &Key,
        wait: Duration,
    ) -> Result<Receipt> {
        let subject = Subject::new(namespace, key);
        let ledger = &self.inner.ledger;
        let deadline = Instant::now() + wait.min(WAIT_MAX);
        let mut pause = POLL_FIRST;
        loop {
            // Registered before the look, so that no wake-up falls in between.
            let waiter = ledger.waiters.register(subject.hash);
            let notified = waiter.notified();
            let current = ledger.store.load(&subject.hash).await?;
            let now = ledger.store.now();
            let record = current.record();
            let Some(operation) = record.and_then(Record::operation) else {
                return Err(subject.refused(absence(&current), &current));
            };
            // Nobody else may look: its worker is gone, and so is what it started.
            if operation.queue.is_some() && self.inner.expire_if_gone(&subject, &current).await? {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || record.is_some_and(|record| is_over(record, operation, now)) {
                let state = operation.kind_at(now);
                let mut receipt = self.inner.receipt(&current, false, None, now).await?;
                // A lease that is over is a doubt, written or not.
                receipt.state = state;
                // It waits or runs: what was asked for, to be known, is so.
                receipt.ok |= matches!(state, StateKind::Pending | StateKind::Running);
                return Ok(receipt);
            }
            self.inner.listens();
            tokio::select! {
                biased;
                () = notified => {}
                () = tokio::time::sleep(pause.min(left)) => {}
            }
            pause = (pause * 2).min(POLL_MAX);
        }
    }
}

fn absence(current: &Current) -> Rejection {
    match current.record() {
        Some(Record::Tombstone(_)) => Rejection::Expired,
        None | Some(Record::Operation(_) | Record::Stub(_) | Record::Breaker(_)) => {
            Rejection::NotFound
        }
    }
}

/// Says whether nothing more happens to an operation by itself.
fn is_over(record: &Record, operation: &Operation, now: Timestamp) -> bool {
    match operation.kind_at(now) {
        StateKind::Succeeded | StateKind::Failed | StateKind::Dead => true,
        StateKind::Doubtful => !is_taken_up(record, operation),
        StateKind::Pending
        | StateKind::Running
        | StateKind::Tombstone
        | StateKind::Stub
        | StateKind::Breaker(_) => false,
    }
}

/// Says whether a worker takes a doubt up: it stands in the line of its queue, or will once its lapsed lease is written
/// down.
fn is_taken_up(record: &Record, operation: &Operation) -> bool {
    let may_be = operation.queue.is_some() && operation.spec.policy.on_doubt != OnDoubt::Hold;
    may_be && Spot::of(record).is_some()
}
