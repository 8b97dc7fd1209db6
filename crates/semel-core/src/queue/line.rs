//! Lines: where a store finds the tasks that a queue's workers may take, and those that they have.
//!
//! | a task | stands |
//! |---|---|
//! | pending | waiting, from its `run_at` on |
//! | running | taken |
//! | in doubt, with attempts left and `on_doubt` retry | waiting, after a pause and until its window is over |
//! | in doubt, with `on_doubt` probe | waiting behind all others, from the time on when a probe may look |
//! | in doubt otherwise, settled, dead, a tombstone, a stub | in no line |
//!
//! Whoever changes a record knows it before and after, and compare-and-swap proves that it was this one: so what the
//! change does to the line is committed with it ([`LineChange::between`]), and a store decides nothing. Whether a task
//! may really begin is decided by its record.

use crate::digest::{Digest, KeyHash};
use crate::ledger::{Operation, Record, State};
use crate::policy::OnDoubt;
use crate::queue::Priority;
use crate::retry::backoff;
use crate::text::{Label, Namespace};
use crate::time::Timestamp;

/// Names a queue behind its wall: 64 bits of a hash, which lead to candidates. Whether one is on the queue is told by its
/// record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueHash(pub u64);

/// Where doubts stand that have to be looked up: behind all priorities, as most workers cannot, and whoever finds nothing
/// else that is due has found all there is.
const LOOK_UP_RANK: i16 = Priority::MAX + 1;

/// Separates the hashes of this scheme from every other use of SHA-256.
const SCHEME: &[u8] = b"semel-q1\0";

impl QueueHash {
    /// Hashes a namespace and a queue; no two pairs share their bytes, as a namespace holds no NUL.
    #[must_use]
    pub fn of(namespace: &Namespace, queue: &Label) -> Self {
        Self(hash(&[
            SCHEME,
            namespace.as_str().as_bytes(),
            b"\0",
            queue.as_str().as_bytes(),
        ]))
    }
}

impl QueueHash {
    /// Returns what those wait for who wait for tasks of the queue: a hash that no key has, and that only wakes.
    #[must_use]
    pub fn bell(self) -> KeyHash {
        KeyHash(Digest::of_parts(&[
            SCHEME,
            b"bell\0",
            &self.0.to_be_bytes(),
        ]))
    }
}

/// Hashes a lane; zero is the lane of tasks that have none.
#[must_use]
pub fn lane_hash(lane: Option<&Label>) -> u64 {
    lane.map_or(0, |lane| {
        hash(&[SCHEME, b"lane\0", lane.as_str().as_bytes()]).max(1)
    })
}

fn hash(parts: &[&[u8]]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = Digest::of_parts(parts).0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Where a task stands in the line of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The queue.
    pub queue: QueueHash,
    /// The lane.
    pub lane: u64,
    /// How it stands there.
    pub standing: Standing,
}

/// How a task stands in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It can be taken.
    Waiting {
        /// Its priority, the first being the smallest.
        rank: i16,
        /// From this time on.
        at: Timestamp,
        /// And before this one.
        until: Option<Timestamp>,
    },
    /// A worker has it.
    Taken,
}

impl Spot {
    /// Returns where a record stands, if it stands in a line.
    #[must_use]
    pub fn of(record: &Record) -> Option<Self> {
        let operation = record.operation()?;
        let queue = operation.queue.as_ref()?;
        let standing = standing(operation)?;
        let task = operation.task.as_deref();
        Some(Self {
            queue: QueueHash::of(&operation.spec.namespace, queue),
            lane: lane_hash(task.and_then(|task| task.lane.as_ref())),
            standing,
        })
    }
}

impl Spot {
    /// Says whether some worker gets it, now or later, by itself: those that have to be looked up need one that can.
    #[must_use]
    pub fn comes_up(&self, now: Timestamp) -> bool {
        match self.standing {
            Standing::Taken => true,
            Standing::Waiting { rank, until, .. } => {
                rank != LOOK_UP_RANK && until.is_none_or(|until| now < until)
            }
        }
    }
}

fn standing(operation: &Operation) -> Option<Standing> {
    let task = operation.task.as_deref();
    let rank = task.map_or(0, |task| task.priority.rank());
    let waiting = |at, until| Standing::Waiting { rank, at, until };
    match &operation.state {
        State::Pending => {
            let at = operation.run_at.unwrap_or(operation.created_at);
            let until = waived(operation).then(|| window(operation)).flatten();
            Some(waiting(at, until))
        }
        State::Running { .. } => Some(Standing::Taken),
        State::Doubtful => match operation.spec.policy.on_doubt {
            OnDoubt::Hold => None,
            OnDoubt::Retry => operation
                .attempts_left()
                .then(|| waiting(waived_at(operation), window(operation))),
            OnDoubt::Probe => Some(Standing::Waiting {
                rank: LOOK_UP_RANK,
                at: operation.probe_at(),
                until: None,
            }),
        },
        State::Succeeded(_) | State::Failed(_) | State::Dead => None,
    }
}

/// Returns from when on the workers of a queue waive a doubt: they go about it as about what was not done, so that a
/// target in trouble is not asked again and again.
fn waived_at(operation: &Operation) -> Timestamp {
    let times = operation.task.as_deref().map(|task| task.backoff);
    let ended = operation.latest().and_then(|attempt| {
        let pause = backoff(times.unwrap_or_default(), operation.attempt, &attempt.id);
        Some(attempt.ended_at?.plus(pause))
    });
    ended.unwrap_or(operation.created_at)
}

/// Says whether a doubt was waived for the attempt that the task waits for.
fn waived(operation: &Operation) -> bool {
    operation.spec.policy.on_doubt == OnDoubt::Retry && operation.attempt > 0
}

/// Returns when a doubt may be waived no more.
fn window(operation: &Operation) -> Option<Timestamp> {
    let window = operation.spec.policy.retry_within;
    operation.open_since().map(|since| since.plus(window))
}

/// What a store's lines have to do when one record follows another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineChange {
    /// Where the record stands from now on.
    pub enters: Option<Spot>,
    /// Where it stands no more.
    pub leaves: Option<Spot>,
}

impl LineChange {
    /// Compares what was stored with what follows it.
    #[must_use]
    pub fn between(before: Option<&Record>, after: Option<&Record>) -> Self {
        let (before, after) = (before.and_then(Spot::of), after.and_then(Spot::of));
        if before == after {
            return Self::default();
        }
        Self {
            enters: after,
            leaves: before,
        }
    }

    /// Returns the queue that has a task more for its workers to take.
    #[must_use]
    pub fn offers(&self) -> Option<QueueHash> {
        let spot = self.enters?;
        match spot.standing {
            Standing::Waiting { .. } => Some(spot.queue),
            Standing::Taken => None,
        }
    }
}
