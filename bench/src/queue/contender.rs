//! What is measured: queues that workers take tasks from, given the same tasks.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;

use crate::keys::Key;

/// A queue of one measurement.
pub(super) trait Queue: Sized + Send + Sync + 'static {
    type Submitter: Submitter;
    type Worker: Worker;

    /// Makes one who submits tasks, with a connection of its own where there are connections.
    fn submitter(&self) -> impl Future<Output = Result<Self::Submitter>> + Send;

    /// Makes one who carries tasks out, with a connection of its own where there are connections.
    fn worker(&self) -> impl Future<Output = Result<Self::Worker>> + Send;
}

/// Submits tasks.
pub(super) trait Submitter: Send + 'static {
    /// Submits a task; it is durable when this returns.
    fn submit(&mut self, key: Key, input: Vec<u8>) -> impl Future<Output = Result<()>> + Send;

    /// Makes the two durable commits of a task that starts, one after the other, and wakes nobody with them; returns
    /// how long both took.
    fn commits(
        &mut self,
        keys: [Key; 2],
        input: Vec<u8>,
    ) -> impl Future<Output = Result<Duration>> + Send;
}

/// Carries tasks out.
pub(super) trait Worker: Send + 'static {
    /// A task in its hands.
    type Held: Send;

    /// Takes a task, durably, and returns what it is given; waits this long at most.
    fn lease(
        &mut self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<(Self::Held, Vec<u8>)>>> + Send;

    /// Reports the result of a task; it is durable when this returns.
    fn settle(
        &mut self,
        held: Self::Held,
        result: Vec<u8>,
    ) -> impl Future<Output = Result<()>> + Send;
}
