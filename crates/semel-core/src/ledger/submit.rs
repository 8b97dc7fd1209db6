//! Submit: an operation that somebody else will carry out.

use super::command::Submit;
use super::decide::{no_operation, write};
use super::decision::{Decision, Event, Rejection, Reply};
use super::lease::{Ending, Judged, judge};
use super::record::{Delivery, Fence, Operation, Record, State, Version};
use crate::time::Timestamp;

pub(super) fn decide(
    current: Option<&Record>,
    submit: &Submit,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let operation = match current {
        None => return Ok(create(submit, Version(0), Fence(0), now)),
        Some(Record::Stub(stub)) => return Ok(create(submit, stub.version, stub.fence, now)),
        Some(Record::Tombstone(tombstone)) => {
            return if tombstone.fingerprint == submit.spec.fingerprint {
                Err(Rejection::Expired)
            } else {
                Err(Rejection::KeyReused)
            };
        }
        Some(breaker @ Record::Breaker(_)) => return Err(no_operation(breaker)),
        Some(Record::Operation(operation)) => operation,
    };
    if operation.spec.fingerprint != submit.spec.fingerprint {
        return Err(Rejection::KeyReused);
    }
    let judged = judge(operation, now, Ending::Lease);
    match judged.operation.state {
        State::Pending | State::Running { .. } => Ok(attach(judged, submit)),
        State::Doubtful => Err(Rejection::InDoubt {
            own: false,
            probe_at: None,
        }),
        State::Succeeded(_) | State::Failed(_) => Ok(judged.answer(Reply::Replay)),
        State::Dead => Err(Rejection::Dead),
    }
}

fn create(submit: &Submit, version: Version, fence: Fence, now: Timestamp) -> Decision {
    let next = Operation {
        queue: submit.queue.clone(),
        run_at: submit.run_at,
        task: submit.task.clone(),
        ..fresh(&submit.spec, version, fence, now)
    };
    write(
        next,
        vec![Event::Submitted],
        Reply::Submitted { created: true },
    )
}

/// Attaches a queue to an operation that has none; the first one stays.
fn attach(judged: Judged<'_>, submit: &Submit) -> Decision {
    let Judged {
        operation,
        mut events,
    } = judged;
    let reply = Reply::Submitted { created: false };
    match (&operation.queue, &submit.queue) {
        (None, Some(queue)) => {
            let mut next = operation.into_owned();
            next.queue = Some(queue.clone());
            next.task = submit.task.clone();
            if next.state == State::Pending {
                next.run_at = submit.run_at;
            }
            events.push(Event::QueueAttached);
            write(next, events, reply)
        }
        (None | Some(_), None) | (Some(_), Some(_)) => Decision::Answer(reply),
    }
}

/// Makes a pending operation that continues the version and fence of what was there before.
pub(super) fn fresh(
    spec: &std::sync::Arc<super::record::Spec>,
    version: Version,
    fence: Fence,
    now: Timestamp,
) -> Operation {
    Operation {
        spec: std::sync::Arc::clone(spec),
        version,
        fence,
        created_at: now,
        state: State::Pending,
        attempt: 0,
        rejected: false,
        attempts: vec![],
        forgotten_open: None,
        queue: None,
        run_at: None,
        task: None,
        delivery: Delivery::Unknown,
        resolved: None,
        last_order: None,
    }
}
