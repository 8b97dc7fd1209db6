//! What is said about a queue beforehand: how its tasks are tried, and how many at once.

use std::collections::HashMap;
use std::num::NonZeroU32;

use semel_core::queue::{Backoff, Limits, Rate};
use semel_core::{Label, OnDoubt};

use super::Queueing;
use crate::engine::Request;

/// How the tasks of a queue are tried where their submission does not say, and what its workers keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// How many attempts there may be.
    pub max_attempts: Option<NonZeroU32>,
    /// The waits between attempts.
    pub backoff: Option<Backoff>,
    /// What happens when a worker vanished.
    pub on_doubt: Option<OnDoubt>,
    /// How many tasks workers may have at once.
    pub concurrency: Option<NonZeroU32>,
    /// How many of one lane.
    pub lane_concurrency: Option<NonZeroU32>,
    /// How often a task may be taken, by the workers of one process.
    pub rate: Option<Rate>,
    /// How often one of the same lane.
    pub lane_rate: Option<Rate>,
    /// How often a task may be tried again, by the workers of one process: those beyond it wait longer.
    pub retry_budget: Rate,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            max_attempts: None,
            backoff: None,
            on_doubt: None,
            concurrency: None,
            lane_concurrency: None,
            rate: None,
            lane_rate: None,
            retry_budget: retry_budget(),
        }
    }
}

impl QueueSettings {
    /// How many tasks workers may have at once.
    pub(super) const fn limits(&self) -> Limits {
        Limits {
            queue: self.concurrency,
            lane: self.lane_concurrency,
        }
    }
}

/// Many tasks that fail together come back at most this often, unless their queue says otherwise: what they call has
/// trouble enough.
fn retry_budget() -> Rate {
    Rate::per_second(100).unwrap_or_else(|_| unreachable!("it is a rate"))
}

/// What is said about queues, by their names.
#[derive(Debug, Default)]
pub(in crate::engine) struct Queues(pub(in crate::engine) HashMap<Label, QueueSettings>);

impl Queues {
    pub(super) fn of(&self, queue: &Label) -> QueueSettings {
        self.0.get(queue).copied().unwrap_or_default()
    }

    /// Says what the submission does not say.
    pub(in crate::engine) fn complete(
        &self,
        request: Request,
        mut to: Queueing,
    ) -> (Request, Queueing) {
        let Some(settings) = to.queue.as_ref().map(|queue| self.of(queue)) else {
            return (request, to);
        };
        to.backoff = to.backoff.or(settings.backoff);
        let request = request.unless_said(settings.max_attempts, settings.on_doubt);
        (request, to)
    }
}
