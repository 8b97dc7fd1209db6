//! The one function that decides, and what its parts share.

use super::command::Command;
use super::decision::{Action, Decision, Event, Rejection, Reply, Write};
use super::lease::Ending;
use super::record::{AttemptKind, Fence, Operation, Record, State, Stub, Tombstone};
use super::{begin, lease, order, retention, settle, submit};
use crate::breaker;
use crate::time::Timestamp;

/// Decides what a command does to what is stored under its key.
///
/// # Errors
/// A [`Rejection`] means that nothing is to be written. A refusal that leaves evidence is a
/// [`Decision::Write`] whose reply is [`Reply::Refused`].
pub fn decide(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    match command {
        Command::Submit(submit) => submit::decide(current, submit, now),
        Command::Begin(begin) => begin::decide(current, begin, now),
        Command::Renew(renew) => lease::renew(current, renew, now),
        Command::Settle(settle) => settle::decide(current, settle, now),
        Command::Expire(expire) => lease::expire(current, *expire, now),
        Command::Resolve(resolve) => order::resolve(current, resolve, command, now),
        Command::Retry(retry) => order::retry(current, retry, command, now),
        Command::Cancel(cancel) => order::cancel(current, cancel, command, now),
        Command::Forget(forget) => order::forget(current, forget, now),
        Command::Bury(horizon) => retention::bury(current, *horizon, now),
        Command::Drop(horizon) => retention::drop(current, *horizon, now),
        Command::Deliver(delivery) => retention::deliver(current, *delivery),
        Command::Adopt(adopt) => retention::adopt(current, adopt, now),
        Command::Breaker(ask) => breaker::decide(current, ask, command, now),
    }
}

/// Refuses a permit to probe to a caller whose probe is not the recorded one: the operation stays in doubt.
///
/// This is no part of [`decide`], because that also replays the log, and logs from before the digests hold such
/// permits.
///
/// # Errors
/// [`Rejection::InDoubt`] where the caller brings no probe or another one.
pub fn admit_probe(
    current: Option<&Record>,
    command: &Command,
    decision: Decision,
) -> Result<Decision, Rejection> {
    let (Command::Begin(begin), Decision::Write(write)) = (command, &decision) else {
        return Ok(decision);
    };
    let probes = matches!(&write.reply, Reply::Granted(grant) if grant.kind == AttemptKind::Probe);
    let operation = current.and_then(Record::operation).filter(|_| probes);
    let given = begin.spec.probe_digest.as_ref();
    match operation.map(|operation| operation.spec.match_probe(given)) {
        Some(matched) if matched.refusal().is_some() => Err(Rejection::InDoubt {
            own: false,
            probe_at: None,
        }),
        Some(_) | None => Ok(decision),
    }
}

/// Says whether a child may begin: its parent must be running with the fence that the child names.
///
/// The store checks in the child's own commit that the parent has not changed since, so an attempt
/// that lost its fence cannot start its next step.
///
/// # Errors
/// [`Rejection::Fenced`] when the parent is not running with that fence, or its lease has ended.
pub fn parent_permits(
    parent: Option<&Record>,
    fence: Fence,
    now: Timestamp,
) -> Result<(), Rejection> {
    let operation = parent
        .and_then(Record::operation)
        .ok_or(Rejection::Fenced)?;
    let running = lease::lapse(operation, now, Ending::Lease).is_none()
        && matches!(operation.state, State::Running { .. });
    if running && operation.fence == fence {
        Ok(())
    } else {
        Err(Rejection::Fenced)
    }
}

/// Says that a command for operations met a breaker: their hashes lie in different domains, so that only a command
/// that names a hash of its own gets here.
pub(super) const fn no_operation(record: &Record) -> Rejection {
    Rejection::Refused {
        state: record.kind(),
    }
}

/// Stores an operation: every accepted command bumps the version, once.
pub(super) fn write(mut next: Operation, events: Vec<Event>, reply: Reply) -> Decision {
    next.version = next.version.next();
    let after = actions(&next);
    Decision::Write(Box::new(Write {
        next: Some(Record::Operation(next)),
        events,
        reply,
        after,
    }))
}

pub(super) fn write_tombstone(mut next: Tombstone, event: Event, reply: Reply) -> Decision {
    next.version = next.version.next();
    let next = Some(Record::Tombstone(next));
    Decision::Write(Box::new(Write {
        next,
        events: vec![event],
        reply,
        after: vec![Action::Wake],
    }))
}

pub(super) fn write_stub(mut next: Stub, event: Event, reply: Reply) -> Decision {
    next.version = next.version.next();
    let next = Some(Record::Stub(next));
    Decision::Write(Box::new(Write {
        next,
        events: vec![event],
        reply,
        after: vec![Action::Wake],
    }))
}

/// Leaves a trace in the log only.
pub(super) fn write_nothing(event: Event, reply: Reply) -> Decision {
    Decision::Write(Box::new(Write {
        next: None,
        events: vec![event],
        reply,
        after: vec![],
    }))
}

fn actions(next: &Operation) -> Vec<Action> {
    match &next.state {
        State::Running { .. } => next
            .lease_until()
            .map(Action::LookAgain)
            .into_iter()
            .collect(),
        State::Pending => {
            let later = next.run_at.map(Action::LookAgain);
            later.into_iter().chain([Action::Wake]).collect()
        }
        State::Succeeded(_) | State::Failed(_) | State::Doubtful | State::Dead => {
            vec![Action::Wake]
        }
    }
}
