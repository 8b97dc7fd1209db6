//! Queues: leaving tasks for workers, and taking them.

mod asks;
mod due;
mod settings;
mod take;
mod turn;
mod work;

use std::sync::Arc;

use semel_core::queue::{Backoff, Priority, Task};
use semel_core::{Key, Label, Payload, Timestamp};

pub use self::settings::QueueSettings;
pub(super) use self::settings::Queues;
pub use self::take::{Kept, Take, Taken};
pub(super) use self::turn::Turns;
pub use self::work::{Job, Worked, Worker};

/// Says whose workers carry an operation out, and how they go about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queueing {
    pub(super) queue: Option<Label>,
    pub(super) run_at: Option<Timestamp>,
    priority: Priority,
    lane: Option<Label>,
    backoff: Option<Backoff>,
}

impl Queueing {
    /// Leaves it to whoever begins it first.
    #[must_use]
    pub fn nobody() -> Self {
        Self::default()
    }

    /// Leaves it to the workers of a queue.
    #[must_use]
    pub fn on(queue: Label) -> Self {
        Self {
            queue: Some(queue),
            ..Self::default()
        }
    }

    /// Not before this time.
    #[must_use]
    pub fn at(mut self, run_at: Timestamp) -> Self {
        self.run_at = Some(run_at);
        self
    }

    /// Before those of a lower priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// In this lane, instead of that of its key ([`Task::lane_of`]): lanes take turns, so that nobody's many tasks hold
    /// up somebody's few.
    #[must_use]
    pub fn lane(mut self, lane: Label) -> Self {
        self.lane = Some(lane);
        self
    }

    /// With these waits between attempts, instead of the queue's.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// Makes what the ledger stores of it beside the queue and the time.
    pub(super) fn task(&self, key: &Key, input: Option<&[u8]>) -> Option<Arc<Task>> {
        self.queue.as_ref()?;
        Some(Arc::new(Task {
            priority: self.priority,
            lane: self.lane.clone().or_else(|| Task::lane_of(key)),
            input: input.map(Payload::of),
            backoff: self.backoff.unwrap_or_default(),
        }))
    }
}
