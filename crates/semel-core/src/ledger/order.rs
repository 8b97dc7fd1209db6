//! The operator's commands: each names the version that it was decided on.

use super::command::{Command, Order, Resolution, Resolve};
use super::decide::{no_operation, write, write_stub};
use super::decision::{Decision, Event, Ordered, Rejection, Reply};
use super::lease::{Ending, Judged, judge};
use super::record::{
    Operation, Order as LastOrder, Record, Resolved, State, StateKind, Stub, Version,
};
use super::settle::clear_marks;
use crate::effect::Effect;
use crate::time::Timestamp;
use crate::verdict::Outcome;

/// What an operator's command meets: the operation, unless the answer is already clear.
enum Met<'a> {
    Operation(Box<Judged<'a>>),
    Repeat(Reply),
}

/// Looks at what is stored: the exact repeat of the last accepted command gets the same answer,
/// and another version is refused, as one duplicated resolution would license three effects.
fn meet<'a>(
    current: Option<&'a Record>,
    version: Version,
    command: &Command,
    now: Timestamp,
) -> Result<Met<'a>, Rejection> {
    let operation = match current {
        None | Some(Record::Stub(_)) => return Err(Rejection::NotFound),
        Some(Record::Tombstone(_)) => return Err(Rejection::Expired),
        Some(breaker @ Record::Breaker(_)) => return Err(no_operation(breaker)),
        Some(Record::Operation(operation)) => operation,
    };
    if let Some(last) = &operation.last_order
        && last.digest == command.digest()
    {
        let (state, previous_effect) = (last.state, last.previous_effect);
        let reply = Reply::Ordered(Ordered {
            state,
            repeated: true,
            previous_effect,
        });
        return Ok(Met::Repeat(reply));
    }
    if operation.version != version {
        return Err(Rejection::Fenced);
    }
    Ok(Met::Operation(Box::new(judge(
        operation,
        now,
        Ending::Lease,
    ))))
}

/// Stores an accepted command, so that its repeat is recognised.
fn accept(
    mut next: Operation,
    mut events: Vec<Event>,
    event: Event,
    command: &Command,
    previous_effect: Option<Effect>,
) -> Decision {
    let state = next.state.kind();
    next.last_order = Some(LastOrder {
        digest: command.digest(),
        state,
        previous_effect,
    });
    events.push(event);
    write(
        next,
        events,
        Reply::Ordered(Ordered {
            state,
            repeated: false,
            previous_effect,
        }),
    )
}

/// Answers that the operation already is what was asked for.
fn same(state: StateKind) -> Decision {
    Decision::Answer(Reply::Ordered(Ordered {
        state,
        repeated: false,
        previous_effect: None,
    }))
}

pub(super) fn resolve(
    current: Option<&Record>,
    resolve: &Resolve,
    command: &Command,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let judged = match meet(current, resolve.order.version, command, now)? {
        Met::Repeat(reply) => return Ok(Decision::Answer(reply)),
        Met::Operation(judged) => judged,
    };
    let state = judged.operation.state.kind();
    let open = judged.operation.open_since().is_some();
    match (state, resolve.resolution) {
        (StateKind::Pending, _) if !open => Err(Rejection::Refused { state }),
        (StateKind::Running, _) => Err(Rejection::InFlight {
            until: judged.operation.lease_until(),
        }),
        (StateKind::Pending | StateKind::Doubtful | StateKind::Dead, Resolution::Done(outcome)) => {
            Ok(resolve_done(*judged, &resolve.order, outcome, command, now))
        }
        (StateKind::Pending | StateKind::Doubtful, Resolution::NotDone) => {
            Ok(resolve_not_done(*judged, &resolve.order, command, now))
        }
        (StateKind::Dead, Resolution::NotDone) => Ok(same(state)),
        (
            StateKind::Succeeded
            | StateKind::Failed
            | StateKind::Tombstone
            | StateKind::Stub
            | StateKind::Breaker(_),
            Resolution::Done(_) | Resolution::NotDone,
        ) => Err(Rejection::Refused { state }),
    }
}

fn resolve_done(
    judged: Judged<'_>,
    order: &Order,
    outcome: Outcome,
    command: &Command,
    now: Timestamp,
) -> Decision {
    let mut next = judged.operation.into_owned();
    clear_marks(&mut next);
    next.state = State::settled(outcome, now);
    next.run_at = None;
    next.resolved = Some(resolved(order, now));
    accept(next, judged.events, Event::Resolved, command, None)
}

fn resolve_not_done(
    judged: Judged<'_>,
    order: &Order,
    command: &Command,
    now: Timestamp,
) -> Decision {
    let mut next = judged.operation.into_owned();
    clear_marks(&mut next);
    let waits = next.state == State::Pending || next.attempts_left();
    next.state = if waits { State::Pending } else { State::Dead };
    next.resolved = Some(resolved(order, now));
    accept(next, judged.events, Event::Resolved, command, None)
}

fn resolved(order: &Order, at: Timestamp) -> Resolved {
    Resolved {
        by: order.by.clone(),
        at,
        note: order.note.clone(),
    }
}

pub(super) fn retry(
    current: Option<&Record>,
    order: &Order,
    command: &Command,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let judged = match meet(current, order.version, command, now)? {
        Met::Repeat(reply) => return Ok(Decision::Answer(reply)),
        Met::Operation(judged) => judged,
    };
    let previous_effect = match &judged.operation.state {
        State::Pending => return Ok(same(StateKind::Pending)),
        State::Running { .. } => {
            return Err(Rejection::InFlight {
                until: judged.operation.lease_until(),
            });
        }
        State::Doubtful => {
            return Err(Rejection::InDoubt {
                own: false,
                probe_at: None,
            });
        }
        State::Succeeded(_) => return Ok(judged.answer(Reply::Replay)),
        State::Failed(settled) => match settled.outcome.effect {
            Effect::Noop => Effect::Noop,
            Effect::Created
            | Effect::Updated
            | Effect::Deleted
            | Effect::WouldCreate
            | Effect::WouldUpdate
            | Effect::WouldDelete
            | Effect::Unknown => Effect::Unknown,
        },
        State::Dead => Effect::Noop,
    };
    let mut next = judged.operation.into_owned();
    next.state = State::Pending;
    next.attempt = 0;
    next.rejected = false;
    next.run_at = None;
    Ok(accept(
        next,
        judged.events,
        Event::Retried,
        command,
        Some(previous_effect),
    ))
}

pub(super) fn cancel(
    current: Option<&Record>,
    order: &Order,
    command: &Command,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let judged = match meet(current, order.version, command, now)? {
        Met::Repeat(reply) => return Ok(Decision::Answer(reply)),
        Met::Operation(judged) => judged,
    };
    let state = judged.operation.state.kind();
    match &judged.operation.state {
        State::Running { .. } => Err(Rejection::InFlight {
            until: judged.operation.lease_until(),
        }),
        State::Doubtful => Err(Rejection::InDoubt {
            own: false,
            probe_at: None,
        }),
        State::Pending if judged.operation.open_since().is_some() => Err(Rejection::InDoubt {
            own: false,
            probe_at: None,
        }),
        State::Succeeded(_) | State::Failed(_) => Err(Rejection::Refused { state }),
        State::Pending | State::Dead => {
            let outcome = Outcome {
                ok: false,
                effect: Effect::Noop,
                payload: None,
            };
            let mut next = judged.operation.into_owned();
            next.state = State::settled(outcome, now);
            next.run_at = None;
            Ok(accept(next, judged.events, Event::Cancelled, command, None))
        }
    }
}

pub(super) fn forget(
    current: Option<&Record>,
    order: &Order,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let record = match current {
        // Forgotten before, or never known: the repeat changes nothing.
        None | Some(Record::Stub(_)) => return Ok(same(StateKind::Stub)),
        Some(breaker @ Record::Breaker(_)) => return Err(no_operation(breaker)),
        Some(record @ (Record::Tombstone(_) | Record::Operation(_))) => record,
    };
    if record.version() != order.version {
        return Err(Rejection::Fenced);
    }
    let state = match record {
        Record::Operation(operation) => judge(operation, now, Ending::Lease).operation.state.kind(),
        Record::Tombstone(_) | Record::Stub(_) | Record::Breaker(_) => record.kind(),
    };
    match state {
        StateKind::Succeeded | StateKind::Failed | StateKind::Tombstone => {
            let ordered = Ordered {
                state: StateKind::Stub,
                repeated: false,
                previous_effect: None,
            };
            Ok(write_stub(
                stub(record, now),
                Event::Forgotten,
                Reply::Ordered(ordered),
            ))
        }
        StateKind::Pending
        | StateKind::Running
        | StateKind::Doubtful
        | StateKind::Dead
        | StateKind::Stub
        | StateKind::Breaker(_) => Err(Rejection::Refused { state }),
    }
}

/// Keeps only what stops fences from going back.
pub(super) fn stub(record: &Record, since: Timestamp) -> Stub {
    Stub {
        key_hash: record.key_hash(),
        fence: record.fence(),
        version: record.version(),
        since,
    }
}
