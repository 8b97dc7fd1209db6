//! What time takes away, what a restore must not bring back, and the delivery mark.

use core::time::Duration;

use super::command::{Adopt, Horizon};
use super::decide::{no_operation, write, write_nothing, write_stub, write_tombstone};
use super::decision::{Decision, Event, Rejection, Reply};
use super::lease::{Ending, Judged, judge};
use super::order::stub;
use super::record::{Delivery, Fence, Operation, Record, State, Tombstone};
use crate::breaker;
use crate::time::Timestamp;

/// How long a tombstone answers `expired` before only a stub is left.
pub const TOMBSTONE_KEPT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a stub keeps its fence.
pub const STUB_KEPT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) fn bury(
    current: Option<&Record>,
    horizon: Horizon,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let operation = match current {
        None | Some(Record::Stub(_) | Record::Tombstone(_)) => {
            return Ok(Decision::Answer(Reply::Kept));
        }
        Some(breaker @ Record::Breaker(_)) => return Err(no_operation(breaker)),
        Some(Record::Operation(operation)) => operation,
    };
    let state = operation.state.kind();
    match &operation.state {
        State::Succeeded(settled) | State::Failed(settled) => {
            let kept_until = settled.at.plus(operation.spec.policy.retention.length());
            if kept_until > horizon.0.min(now) {
                return Ok(Decision::Answer(Reply::Kept));
            }
            let tombstone = Tombstone {
                namespace: operation.spec.namespace.clone(),
                key: operation.spec.key.clone(),
                fingerprint: operation.spec.fingerprint,
                ok: settled.outcome.ok,
                effect: settled.outcome.effect,
                settled_at: settled.at,
                buried_at: now,
                fence: operation.fence,
                version: operation.version,
                delivery: operation.delivery,
                occurrence: operation.spec.occurrence,
            };
            Ok(write_tombstone(tombstone, Event::Buried, Reply::Kept))
        }
        // Nothing that may still matter is ever purged.
        State::Pending | State::Running { .. } | State::Doubtful | State::Dead => {
            Err(Rejection::Refused { state })
        }
    }
}

pub(super) fn drop(
    current: Option<&Record>,
    horizon: Horizon,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let due = |since: Timestamp, kept: Duration| since.plus(kept) <= horizon.0.min(now);
    match current {
        None => Ok(Decision::Answer(Reply::Kept)),
        Some(record @ Record::Tombstone(tombstone)) => {
            if due(tombstone.buried_at, TOMBSTONE_KEPT) {
                Ok(write_stub(stub(record, now), Event::Dropped, Reply::Kept))
            } else {
                Ok(Decision::Answer(Reply::Kept))
            }
        }
        Some(Record::Stub(stub)) => {
            if due(stub.since, STUB_KEPT) {
                Ok(write_nothing(Event::Dropped, Reply::Kept))
            } else {
                Ok(Decision::Answer(Reply::Kept))
            }
        }
        Some(breaker @ Record::Breaker(_)) => Err(no_operation(breaker)),
        Some(Record::Operation(operation)) => Err(Rejection::Refused {
            state: operation.state.kind(),
        }),
    }
}

pub(super) fn deliver(current: Option<&Record>, delivery: Delivery) -> Result<Decision, Rejection> {
    match current {
        None | Some(Record::Stub(_)) => Err(Rejection::NotFound),
        Some(breaker @ Record::Breaker(_)) => Err(no_operation(breaker)),
        Some(Record::Tombstone(tombstone)) => {
            if tombstone.delivery == delivery {
                return Ok(Decision::Answer(Reply::Kept));
            }
            let next = Tombstone {
                delivery,
                ..tombstone.clone()
            };
            Ok(write_tombstone(next, Event::Delivered, Reply::Kept))
        }
        Some(Record::Operation(operation)) => {
            if operation.delivery == delivery {
                return Ok(Decision::Answer(Reply::Kept));
            }
            let next = Operation {
                delivery,
                ..operation.clone()
            };
            Ok(write(next, vec![Event::Delivered], Reply::Kept))
        }
    }
}

pub(super) fn adopt(
    current: Option<&Record>,
    adopt: &Adopt,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let raised = |fence: Fence| Fence(fence.0.saturating_add(adopt.fence_step));
    match current {
        None => Ok(Decision::Answer(Reply::Kept)),
        Some(Record::Breaker(breaker)) => Ok(breaker::adopt(breaker, raised(breaker.fence), now)),
        Some(Record::Stub(stub)) => {
            let mut next = *stub;
            next.fence = raised(stub.fence);
            Ok(write_stub(next, Event::Adopted, Reply::Kept))
        }
        Some(Record::Tombstone(tombstone)) => {
            let next = Tombstone {
                fence: raised(tombstone.fence),
                ..tombstone.clone()
            };
            Ok(write_tombstone(next, Event::Adopted, Reply::Kept))
        }
        Some(Record::Operation(operation)) => {
            // Whoever held a lease in the original may have gone on without this copy.
            let Judged {
                operation,
                mut events,
            } = judge(operation, now, Ending::HolderGone);
            let mut next = operation.into_owned();
            next.fence = raised(next.fence);
            events.push(Event::Adopted);
            Ok(write(next, events, Reply::Kept))
        }
    }
}
