//! The end of a lease, and its renewal.

use std::borrow::Cow;

use super::command::{Expire, Renew, Sighting};
use super::decide::{no_operation, write};
use super::decision::{Decision, Event, Rejection, Reply};
use super::record::{Operation, Record, State};
use super::settle::{doubt, proven};
use crate::time::Timestamp;

/// Why a lease is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The clock decides.
    Lease,
    /// The holder is provably gone, so there is nothing to wait for.
    HolderGone,
    /// The holder is provably alive, so the operation is in flight whatever the clock says.
    HolderAlive,
}

impl Ending {
    /// Takes a door's sighting into account; one of another attempt says nothing about this one.
    pub(super) fn seen(operation: &Operation, sighting: Option<Sighting>) -> Self {
        match sighting {
            Some(Sighting { fence, alive }) if fence == operation.fence => {
                if alive {
                    Self::HolderAlive
                } else {
                    Self::HolderGone
                }
            }
            Some(_) | None => Self::Lease,
        }
    }
}

/// Returns the operation after its lease ended, and what that led to, or `None` when it has not.
///
/// Evidence settles it, as the attempt ended in another way than `done`; without any it is in doubt,
/// unless a probe was silent that had nothing to look up any more.
///
/// What follows from a lease's end is dated to that end, never to `now`: readers apply this function to a
/// record that no command has written back yet, and two reads must show the same operation.
pub(super) fn lapse(
    operation: &Operation,
    now: Timestamp,
    ending: Ending,
) -> Option<(Operation, Event)> {
    let State::Running { evidence } = &operation.state else {
        return None;
    };
    let lease_until = operation.lease_until()?;
    let ended_at = match ending {
        Ending::Lease if now >= lease_until => lease_until,
        Ending::HolderGone => now.min(lease_until),
        Ending::Lease | Ending::HolderAlive => return None,
    };
    let mut next = operation.clone();
    if let Some(attempt) = next.attempts.last_mut() {
        attempt.end(None, None, ended_at);
    }
    let event = match evidence {
        Some(outcome) => {
            next.state = State::settled(proven(&next, *outcome), ended_at);
            Event::SettledLate
        }
        None => doubt(&mut next, ended_at),
    };
    Some((next, event))
}

/// An operation with its due lease end applied, and the events of that.
pub(super) struct Judged<'a> {
    pub(super) operation: Cow<'a, Operation>,
    pub(super) events: Vec<Event>,
}

impl Judged<'_> {
    /// Answers from this view of the operation; a lease end that the answer rests on is stored first.
    pub(super) fn answer(self, reply: Reply) -> Decision {
        match self.operation {
            Cow::Borrowed(_) => Decision::Answer(reply),
            Cow::Owned(next) => write(next, self.events, reply),
        }
    }
}

/// Applies a due lease end before anything else is looked at.
pub(super) fn judge(operation: &Operation, now: Timestamp, ending: Ending) -> Judged<'_> {
    match lapse(operation, now, ending) {
        None => Judged {
            operation: Cow::Borrowed(operation),
            events: vec![],
        },
        Some((next, what)) => {
            let why = if ending == Ending::HolderGone {
                Event::HolderGone
            } else {
                Event::LeaseEnded
            };
            Judged {
                operation: Cow::Owned(next),
                events: vec![why, what],
            }
        }
    }
}

pub(super) fn renew(
    current: Option<&Record>,
    renew: &Renew,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let operation = match current {
        None | Some(Record::Stub(_)) => return Err(Rejection::NotFound),
        Some(Record::Tombstone(_)) => return Err(Rejection::Fenced),
        Some(breaker @ Record::Breaker(_)) => return Err(no_operation(breaker)),
        Some(Record::Operation(operation)) => operation,
    };
    let Judged { operation, .. } = judge(operation, now, Ending::Lease);
    match operation.state {
        State::Running { .. } => {}
        State::Pending | State::Succeeded(_) | State::Failed(_) | State::Doubtful | State::Dead => {
            return Err(Rejection::Fenced);
        }
    }
    let mut next = operation.into_owned();
    match next.attempts.last_mut() {
        Some(own) if own.id == renew.attempt && own.fence == renew.fence => {
            own.lease_until = own.lease_until.max(now.plus(renew.lease.length()));
            let reply = Reply::Renewed {
                lease_until: own.lease_until,
            };
            Ok(write(next, vec![Event::Renewed], reply))
        }
        Some(_) | None => Err(Rejection::Fenced),
    }
}

pub(super) fn expire(
    current: Option<&Record>,
    expire: Expire,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let operation = match current {
        None | Some(Record::Stub(_) | Record::Tombstone(_)) => {
            return Ok(Decision::Answer(Reply::Kept));
        }
        Some(breaker @ Record::Breaker(_)) => return Err(no_operation(breaker)),
        Some(Record::Operation(operation)) => operation,
    };
    let ending = Ending::seen(
        operation,
        expire.gone.map(|fence| Sighting {
            fence,
            alive: false,
        }),
    );
    Ok(judge(operation, now, ending).answer(Reply::Kept))
}
