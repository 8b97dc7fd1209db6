//! Begin: who may act, and who may not.

use super::command::Begin;
use super::decide::{no_operation, write};
use super::decision::{Decision, Event, Grant, Rejection, Reply};
use super::lease::{Ending, Judged, judge};
use super::record::{
    ATTEMPTS_REMEMBERED, Attempt, AttemptKind, Fence, Operation, Record, State, Version,
};
use super::submit::fresh;
use crate::policy::OnDoubt;
use crate::time::Timestamp;

pub(super) fn decide(
    current: Option<&Record>,
    begin: &Begin,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let operation = match current {
        None => return Ok(grant_new(begin, Version(0), Fence(0), now)),
        Some(Record::Stub(stub)) => return Ok(grant_new(begin, stub.version, stub.fence, now)),
        Some(Record::Tombstone(tombstone)) => {
            return if tombstone.fingerprint == begin.spec.fingerprint {
                Err(Rejection::Expired)
            } else {
                Err(Rejection::KeyReused)
            };
        }
        Some(breaker @ Record::Breaker(_)) => return Err(no_operation(breaker)),
        Some(Record::Operation(operation)) => operation,
    };
    if operation.spec.fingerprint != begin.spec.fingerprint {
        return Err(Rejection::KeyReused);
    }
    let judged = judge(operation, now, Ending::seen(operation, begin.sighting));
    match judged.operation.state {
        State::Pending => pending(judged, begin, now),
        State::Running { .. } => running(&judged.operation, begin, now),
        State::Doubtful => doubtful(judged, begin, now),
        State::Succeeded(_) | State::Failed(_) => Ok(judged.answer(Reply::Replay)),
        State::Dead => Err(Rejection::Dead),
    }
}

fn pending(judged: Judged<'_>, begin: &Begin, now: Timestamp) -> Result<Decision, Rejection> {
    let Judged {
        operation,
        mut events,
    } = judged;
    if knows(&operation, begin) {
        return Err(Rejection::Fenced);
    }
    let too_early = operation.run_at.is_some_and(|run_at| now < run_at);
    if too_early || (operation.queue.is_some() && !begin.worker) {
        return Err(Rejection::InFlight {
            until: operation.run_at,
        });
    }
    // A waiver holds for its window only: after it an upstream may have forgotten the key that an
    // open attempt was sent with. A Retry since then was a person's own decision.
    let waived = operation.spec.policy.on_doubt == OnDoubt::Retry && operation.attempt > 0;
    if waived && operation.open_since().is_some() && !in_window(&operation, now) {
        return Err(Rejection::InDoubt {
            own: false,
            probe_at: None,
        });
    }
    events.push(Event::Begun);
    Ok(grant(
        operation.into_owned(),
        begin,
        AttemptKind::Act,
        events,
        now,
    ))
}

/// Says whether the oldest open attempt began so lately that its doubt may be waived.
fn in_window(operation: &Operation, now: Timestamp) -> bool {
    let window = operation.spec.policy.retry_within;
    operation
        .open_since()
        .is_some_and(|since| now < since.plus(window))
}

fn running(operation: &Operation, begin: &Begin, now: Timestamp) -> Result<Decision, Rejection> {
    match operation.latest() {
        // A lease that has ended is no permit, even for a holder that is seen alive.
        Some(own) if own.id == begin.attempt && now >= own.lease_until => Err(Rejection::InDoubt {
            own: true,
            probe_at: None,
        }),
        // The reply to an earlier Begin of this very permit was lost: the same grant again.
        Some(own) if own.id == begin.attempt => Ok(Decision::Answer(Reply::Granted(terms(own)))),
        Some(_) | None => Err(Rejection::InFlight {
            until: operation.lease_until(),
        }),
    }
}

fn doubtful(judged: Judged<'_>, begin: &Begin, now: Timestamp) -> Result<Decision, Rejection> {
    let Judged {
        operation,
        mut events,
    } = judged;
    if operation
        .latest()
        .is_some_and(|own| own.id == begin.attempt)
    {
        return Err(Rejection::InDoubt {
            own: true,
            probe_at: None,
        });
    }
    if knows(&operation, begin) {
        return Err(Rejection::Fenced);
    }
    // A lease that has ended is the same, written or not: while its holder is seen alive, the
    // operation is in flight.
    if lapsed_alive(&operation, begin) {
        return Err(Rejection::InFlight { until: None });
    }
    let held = Rejection::InDoubt {
        own: false,
        probe_at: None,
    };
    // A queued operation is its workers' to try again.
    if operation.queue.is_some() && !begin.worker {
        return Err(held);
    }
    match operation.spec.policy.on_doubt {
        OnDoubt::Hold => Err(held),
        OnDoubt::Retry => {
            if !in_window(&operation, now) || !operation.attempts_left() {
                return Err(held);
            }
            events.extend([Event::DoubtWaived, Event::Begun]);
            Ok(grant(
                operation.into_owned(),
                begin,
                AttemptKind::Act,
                events,
                now,
            ))
        }
        OnDoubt::Probe => {
            let probe_at = operation.probe_at();
            if now < probe_at {
                return Err(Rejection::InDoubt {
                    own: false,
                    probe_at: Some(probe_at),
                });
            }
            events.push(Event::ProbeBegun);
            Ok(grant(
                operation.into_owned(),
                begin,
                AttemptKind::Probe,
                events,
                now,
            ))
        }
    }
}

/// Says whether the newest attempt ended by its lease alone, and its holder is provably alive.
fn lapsed_alive(operation: &Operation, begin: &Begin) -> bool {
    let silent = operation
        .latest()
        .is_some_and(|attempt| attempt.open && attempt.verdict.is_none());
    silent && Ending::seen(operation, begin.sighting) == Ending::HolderAlive
}

fn knows(operation: &Operation, begin: &Begin) -> bool {
    operation
        .attempts
        .iter()
        .any(|attempt| attempt.id == begin.attempt)
}

fn grant_new(begin: &Begin, version: Version, fence: Fence, now: Timestamp) -> Decision {
    let operation = fresh(&begin.spec, version, fence, now);
    grant(operation, begin, AttemptKind::Act, vec![Event::Begun], now)
}

fn grant(
    mut next: Operation,
    begin: &Begin,
    kind: AttemptKind,
    events: Vec<Event>,
    now: Timestamp,
) -> Decision {
    next.fence = next.fence.next();
    next.state = State::Running { evidence: None };
    next.run_at = None;
    match kind {
        AttemptKind::Act => next.attempt = next.attempt.saturating_add(1),
        AttemptKind::Probe => {}
    }
    let attempt = Attempt {
        id: begin.attempt.clone(),
        fence: next.fence,
        number: next.attempt,
        kind,
        holder: begin.holder.clone(),
        started_at: now,
        lease_until: now.plus(begin.lease.length()),
        ended_at: None,
        verdict: None,
        open: false,
        error: None,
    };
    let reply = Reply::Granted(terms(&attempt));
    remember(&mut next, attempt);
    write(next, events, reply)
}

/// Adds an attempt; the oldest one beyond the limit leaves only the memory of its being open.
fn remember(operation: &mut Operation, attempt: Attempt) {
    while operation.attempts.len() >= ATTEMPTS_REMEMBERED {
        let oldest = operation.attempts.remove(0);
        if oldest.open {
            let since = operation
                .forgotten_open
                .map_or(oldest.started_at, |s| s.min(oldest.started_at));
            operation.forgotten_open = Some(since);
        }
    }
    operation.attempts.push(attempt);
}

fn terms(attempt: &Attempt) -> Grant {
    Grant {
        kind: attempt.kind,
        fence: attempt.fence,
        number: attempt.number,
        lease_until: attempt.lease_until,
    }
}
