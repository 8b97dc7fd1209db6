//! Broken rules: each wraps the true ones and gets one thing wrong.
//!
//! They change what the true rules see, or what they answer; everything else stays as it is, so
//! that the log and the records agree with the broken rule and only the invariants can tell.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use semel::core::Verdict;
use semel::{Effect, Outcome, Timestamp};
use semel_core::ledger::{
    Begin, Command, Decision, Event, Operation, Order, Record, Rejection, Renew, Resolve, Settle,
    Spec, State, StateKind, decide,
};

type Decided = Result<Decision, Rejection>;

/// Lets the true rules decide on an operation that was tampered with.
fn on(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
    tamper: impl FnOnce(&mut Operation),
) -> Decided {
    let Some(Record::Operation(operation)) = current else {
        return decide(current, command, now);
    };
    let mut operation = operation.clone();
    tamper(&mut operation);
    decide(Some(&Record::Operation(operation)), command, now)
}

fn kind_at(current: Option<&Record>, now: Timestamp) -> Option<StateKind> {
    match current? {
        Record::Operation(operation) => Some(operation.kind_at(now)),
        record @ (Record::Tombstone(_) | Record::Stub(_) | Record::Breaker(_)) => {
            Some(record.kind())
        }
    }
}

fn is_begin(command: &Command) -> bool {
    matches!(command, Command::Begin(_))
}

fn done_of(command: &Command) -> Option<(&Settle, Outcome)> {
    match command {
        Command::Settle(settle) => match settle.verdict {
            Verdict::Done(outcome) => Some((settle, outcome)),
            Verdict::NotDone { .. } | Verdict::Unknown { .. } => None,
        },
        _ => None,
    }
}

pub(super) fn fence_unchecked(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let latest = current
        .and_then(Record::operation)
        .and_then(Operation::latest)
        .map(|attempt| (attempt.id.clone(), attempt.fence));
    let command = match (command, latest) {
        (Command::Settle(settle), Some((attempt, fence))) => Cow::Owned(Command::Settle(Settle {
            attempt,
            fence,
            verdict: settle.verdict.clone(),
        })),
        (Command::Renew(renew), Some((attempt, fence))) => Cow::Owned(Command::Renew(Renew {
            attempt,
            fence,
            lease: renew.lease,
        })),
        (command, _) => Cow::Borrowed(command),
    };
    decide(current, &command, now)
}

/// Puts the stored version into an operator's command.
fn with_version(current: Option<&Record>, command: &Command) -> Option<Command> {
    let version = current?.version();
    let order = |order: &Order| Order {
        version,
        ..order.clone()
    };
    match command {
        Command::Resolve(resolve) => Some(Command::Resolve(Resolve {
            order: order(&resolve.order),
            resolution: resolve.resolution,
        })),
        Command::Retry(retry) => Some(Command::Retry(order(retry))),
        Command::Cancel(cancel) => Some(Command::Cancel(order(cancel))),
        Command::Forget(forget) => Some(Command::Forget(order(forget))),
        _ => None,
    }
}

pub(super) fn order_without_version(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    match with_version(current, command) {
        Some(ordered) => decide(current, &ordered, now),
        None => decide(current, command, now),
    }
}

pub(super) fn order_repeated(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let repeats = current
        .and_then(Record::operation)
        .and_then(|operation| operation.last_order.as_ref())
        .is_some_and(|last| last.digest == command.digest());
    match with_version(current, command) {
        Some(ordered) if repeats => decide(current, &ordered, now),
        Some(_) | None => decide(current, command, now),
    }
}

pub(super) fn late_done_refused(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let open = kind_at(current, now).is_some_and(StateKind::is_open);
    let running = kind_at(current, now) == Some(StateKind::Running);
    if done_of(command).is_some() && open && !running {
        return Err(Rejection::Fenced);
    }
    decide(current, command, now)
}

pub(super) fn settle_accepted_twice(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    if !matches!(command, Command::Settle(_)) {
        return decide(current, command, now);
    }
    on(current, command, now, |operation| {
        for attempt in &mut operation.attempts {
            attempt.verdict = None;
        }
    })
}

pub(super) fn fence_restarts_after_forget(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    match (current, command) {
        (Some(Record::Stub(_)), Command::Begin(_) | Command::Submit(_)) => {
            decide(None, command, now)
        }
        (current, command) => decide(current, command, now),
    }
}

pub(super) fn doubt_is_rerun(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    if !is_begin(command) || kind_at(current, now) != Some(StateKind::Doubtful) {
        return decide(current, command, now);
    }
    on(current, command, now, |operation| {
        operation.state = State::Pending;
    })
}

pub(super) fn waiver_not_logged(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let mut decided = decide(current, command, now)?;
    if let Decision::Write(write) = &mut decided {
        write.events.retain(|event| *event != Event::DoubtWaived);
    }
    Ok(decided)
}

pub(super) fn evidence_dropped(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let decided = decide(current, command, now)?;
    match &decided {
        Decision::Write(write) if write.events.contains(&Event::EvidenceKept) => {
            Err(Rejection::Fenced)
        }
        Decision::Write(_) | Decision::Answer(_) => Ok(decided),
    }
}

pub(super) fn evidence_overruled(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let not_done = matches!(command, Command::Settle(_)) && done_of(command).is_none();
    if !not_done {
        return decide(current, command, now);
    }
    on(current, command, now, |operation| {
        if let State::Running { evidence } = &mut operation.state {
            *evidence = None;
        }
    })
}

pub(super) fn lapsed_lease_renewed(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    if !matches!(command, Command::Renew(_)) {
        return decide(current, command, now);
    }
    on(current, command, now, |operation| {
        if let Some(attempt) = operation.attempts.last_mut() {
            let later = now.plus(Duration::from_micros(1));
            attempt.lease_until = attempt.lease_until.max(later);
        }
    })
}

pub(super) fn unknown_is_not_done(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    match command {
        Command::Settle(settle) => match &settle.verdict {
            Verdict::Unknown { error } => {
                let verdict = Verdict::NotDone {
                    reject: false,
                    error: error.clone(),
                    retry_after: None,
                };
                let settle = Settle {
                    verdict,
                    ..settle.clone()
                };
                decide(current, &Command::Settle(settle), now)
            }
            Verdict::Done(_) | Verdict::NotDone { .. } => decide(current, command, now),
        },
        command => decide(current, command, now),
    }
}

pub(super) fn dead_despite_doubt(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let mut decided = decide(current, command, now)?;
    let not_done = matches!(
        command,
        Command::Settle(settle) if matches!(settle.verdict, Verdict::NotDone { .. })
    );
    if let Decision::Write(write) = &mut decided
        && not_done
        && let Some(Record::Operation(operation)) = &mut write.next
        && operation.state == State::Doubtful
    {
        operation.state = State::Dead;
    }
    Ok(decided)
}

pub(super) fn noop_despite_doubt(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let mut decided = decide(current, command, now)?;
    let evidence = match current.and_then(Record::operation).map(|o| &o.state) {
        Some(State::Running { evidence }) => *evidence,
        Some(_) | None => None,
    };
    let said = done_of(command).map(|(_, outcome)| outcome);
    if let Decision::Write(write) = &mut decided
        && let Some(Record::Operation(operation)) = &mut write.next
        && let State::Failed(settled) = &mut operation.state
    {
        let harmless = Outcome {
            effect: Effect::Noop,
            ..settled.outcome
        };
        if [said, evidence].contains(&Some(harmless)) {
            settled.outcome = harmless;
        }
    }
    Ok(decided)
}

pub(super) fn rejection_forgotten(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    on(current, command, now, |operation| {
        operation.rejected = false
    })
}

pub(super) fn probe_too_early(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    if !is_begin(command) || kind_at(current, now) != Some(StateKind::Doubtful) {
        return decide(current, command, now);
    }
    on(current, command, now, |operation| {
        for attempt in &mut operation.attempts {
            attempt.lease_until = attempt.lease_until.min(now);
        }
        let mut spec = Spec::clone(&operation.spec);
        spec.policy.settle_delay = Duration::ZERO;
        operation.spec = Arc::new(spec);
    })
}

pub(super) fn grant_while_running(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    if !is_begin(command) || kind_at(current, now) != Some(StateKind::Running) {
        return decide(current, command, now);
    }
    on(current, command, now, |operation| {
        operation.state = State::Pending;
    })
}

pub(super) fn failure_is_rerun(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    if !is_begin(command) || kind_at(current, now) != Some(StateKind::Failed) {
        return decide(current, command, now);
    }
    on(current, command, now, |operation| {
        operation.state = State::Pending;
    })
}

pub(super) fn conflict_overwrites(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let mut decided = decide(current, command, now)?;
    if let Decision::Write(write) = &mut decided
        && write.events.contains(&Event::Conflict)
        && let Some((_, outcome)) = done_of(command)
        && let Some(Record::Operation(operation)) = &mut write.next
    {
        operation.state = State::settled(outcome, now);
    }
    Ok(decided)
}

pub(super) fn open_is_buried(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let settled = kind_at(current, now).is_some_and(|kind| !kind.is_open());
    if !matches!(command, Command::Bury(_)) || settled {
        return decide(current, command, now);
    }
    on(current, command, now, |operation| {
        let outcome = Outcome {
            ok: false,
            effect: Effect::Unknown,
            payload: None,
        };
        operation.state = State::settled(outcome, Timestamp(0));
    })
}

pub(super) fn doubt_is_forgotten(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let doubtful = kind_at(current, now) == Some(StateKind::Doubtful);
    if !matches!(command, Command::Forget(_)) || !doubtful {
        return decide(current, command, now);
    }
    on(current, command, now, |operation| {
        let outcome = Outcome {
            ok: false,
            effect: Effect::Unknown,
            payload: None,
        };
        operation.state = State::settled(outcome, now);
    })
}

pub(super) fn input_uncompared(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let stored = match current {
        Some(Record::Operation(operation)) => Some(operation.spec.fingerprint),
        Some(Record::Tombstone(tombstone)) => Some(tombstone.fingerprint),
        Some(Record::Stub(_) | Record::Breaker(_)) | None => None,
    };
    match (command, stored) {
        (Command::Begin(begin), Some(fingerprint)) => {
            let spec = Arc::new(Spec {
                fingerprint,
                ..Spec::clone(&begin.spec)
            });
            let begin = Begin {
                spec,
                ..begin.clone()
            };
            decide(current, &Command::Begin(begin), now)
        }
        (command, _) => decide(current, command, now),
    }
}

pub(super) fn tombstone_runs_again(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    match (current, command) {
        (Some(Record::Tombstone(tombstone)), Command::Begin(begin)) => {
            let spec = Arc::clone(&begin.spec);
            let stub = semel_core::ledger::Stub {
                key_hash: semel_core::KeyHash::of(&spec.namespace, &spec.key),
                fence: tombstone.fence,
                version: tombstone.version,
                since: now,
            };
            decide(Some(&Record::Stub(stub)), command, now)
        }
        (current, command) => decide(current, command, now),
    }
}

pub(super) fn forget_leaves_nothing(
    current: Option<&Record>,
    command: &Command,
    now: Timestamp,
) -> Decided {
    let mut decided = decide(current, command, now)?;
    if let Decision::Write(write) = &mut decided
        && write.events.contains(&Event::Forgotten)
    {
        write.next = None;
    }
    Ok(decided)
}
