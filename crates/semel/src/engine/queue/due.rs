//! Whether there is anything to take, for those who must know that before they take it.

use std::collections::BTreeSet;
use std::time::Duration;

use semel_core::queue::{QueueHash, Spot};
use semel_core::{Key, Label, Namespace};
use tokio::time::Instant;

use super::take::{Take, lane_if_meant};
use crate::engine::wait::{POLL_FIRST, POLL_MAX};
use crate::engine::{Engine, Inner};
use crate::error::Result;
use crate::store::{Stored, WAITING_MAX, Waiting};

/// How many tasks are looked at, at first: as a rule the one at the head can be taken.
const LOOK: usize = 8;

impl Engine {
    /// Says whether a task of a queue is due, and waits for one as long as asked. Nothing is taken: this is for those who
    /// have to know it before they take a place elsewhere, such as the only one of a breaker that is half-open. Whether
    /// the queue's limits let it be taken is not looked at.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn has_due(
        &self,
        namespace: &Namespace,
        queue: &Label,
        wait: Duration,
    ) -> Result<bool> {
        let hash = QueueHash::of(namespace, queue);
        let take = Take::one(queue.clone());
        let deadline = Instant::now() + wait;
        let mut pause = POLL_FIRST;
        loop {
            let waiter = self.inner.ledger.waiters.register(hash.bell());
            let notified = waiter.notified();
            let is_due = self.inner.is_due(namespace, hash, &take).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            if is_due || left.is_zero() {
                return Ok(is_due);
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

impl Engine {
    /// Says whether a queue is empty, as far as a worker can wait for that: no task is due, and none of those comes up again
    /// that it has begun itself; they are forgotten here as they end. A task that may not be taken now, as its queue or lane
    /// has as many as it may, is due all the same.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn is_drained(
        &self,
        namespace: &Namespace,
        queue: &Label,
        begun: &mut BTreeSet<Key>,
    ) -> Result<bool> {
        while let Some(key) = begun.first() {
            let record = self.load(namespace, key).await?;
            let now = self.store().now();
            if record.is_some_and(|record| Spot::of(&record).is_some_and(|it| it.comes_up(now))) {
                return Ok(false);
            }
            begun.pop_first();
        }
        Ok(!self.has_due(namespace, queue, Duration::ZERO).await?)
    }
}

impl Inner {
    /// Looks whether one could be taken now.
    async fn is_due(&self, namespace: &Namespace, queue: QueueHash, take: &Take) -> Result<bool> {
        for limit in [LOOK, WAITING_MAX] {
            let ask = Waiting {
                queue,
                now: self.ledger.store.now(),
                after_lane: 0,
                skip: 0,
                limit,
                taken: false,
                inputs: false,
            };
            let found = self.ledger.store.waiting(ask).await?;
            let is_meant = |stored: &Stored| lane_if_meant(stored, namespace, take).is_some();
            if found.iter().any(is_meant) {
                return Ok(true);
            }
            if found.len() < limit {
                break;
            }
        }
        Ok(false)
    }
}
