//! Records as bytes.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::breaker::{get_breaker, put_breaker};
use super::fields::{DecodeError, Reader, Writer};
use crate::digest::KeyHash;
use crate::fingerprint::Fingerprint;
use crate::ledger::record::{
    ATTEMPTS_REMEMBERED, Attempt, AttemptKind, Delivery, Fence, Holder, Operation, Order, Parent,
    Record, Resolved, Settled, Spec, State, StateKind, Stub, Tombstone, Version,
};
use crate::policy::{Class, OnDoubt, Policy};
use crate::queue::{Backoff, Priority, Task};
use crate::time::Retention;
use crate::verdict::VerdictKind;

/// Stands beside the number of attempts, which needs fewer bits: the operation was rejected.
const REJECTED: u8 = 0x80;

/// Stands there too: the operation has a task, which follows its start time.
const TASK: u8 = 0x40;

/// Writes a record as bytes.
#[must_use]
pub fn encode_record(record: &Record) -> Vec<u8> {
    let mut w = Writer::new();
    match record {
        Record::Operation(operation) => {
            w.byte(0);
            put_operation(&mut w, operation);
        }
        Record::Tombstone(tombstone) => {
            w.byte(1);
            put_tombstone(&mut w, tombstone);
        }
        Record::Stub(stub) => {
            w.byte(2);
            put_stub(&mut w, stub);
        }
        Record::Breaker(breaker) => {
            w.byte(3);
            put_breaker(&mut w, breaker);
        }
    }
    w.finish()
}

/// Reads a record from bytes.
///
/// # Errors
/// Refuses everything that [`encode_record`] cannot have written.
pub fn decode_record(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut r = Reader::new(bytes)?;
    let record = match r.byte("the kind of record")? {
        0 => Record::Operation(get_operation(&mut r)?),
        1 => Record::Tombstone(get_tombstone(&mut r)?),
        2 => Record::Stub(get_stub(&mut r)?),
        3 => Record::Breaker(Box::new(get_breaker(&mut r)?)),
        4.. => return Err(DecodeError::Invalid("the kind of record")),
    };
    r.finish()?;
    Ok(record)
}

fn put_operation(w: &mut Writer, operation: &Operation) {
    w.base(operation.created_at);
    w.number(operation.version.0);
    w.number(operation.fence.0);
    put_state(w, &operation.state);
    w.number(u64::from(operation.attempt));
    let count = u8::try_from(operation.attempts.len()).unwrap_or(u8::MAX);
    let rejected = if operation.rejected { REJECTED } else { 0 };
    let task = operation.task.as_ref().map_or(0, |_| TASK);
    w.byte(count | rejected | task);
    for attempt in &operation.attempts {
        put_attempt(w, attempt);
    }
    w.option(operation.forgotten_open, Writer::time);
    w.option(operation.queue.as_ref(), |w, queue| w.text(queue.as_str()));
    w.option(operation.run_at, Writer::time);
    if let Some(task) = &operation.task {
        put_task(w, task);
    }
    put_delivery(w, operation.delivery);
    w.option(operation.resolved.as_ref(), put_resolved);
    w.option(operation.last_order.as_ref(), put_order);
    put_spec(w, &operation.spec);
}

fn get_operation(r: &mut Reader<'_>) -> Result<Operation, DecodeError> {
    let created_at = r.base("the creation time")?;
    let version = Version(r.number("the version")?);
    let fence = Fence(r.number("the fence")?);
    let state = get_state(r)?;
    let attempt = r.number32("the attempt")?;
    let counted = r.byte("the attempts")?;
    let count = usize::from(counted & !(REJECTED | TASK));
    if count > ATTEMPTS_REMEMBERED {
        return Err(DecodeError::Invalid("the attempts"));
    }
    let attempts = (0..count)
        .map(|_| get_attempt(r))
        .collect::<Result<Vec<_>, _>>()?;
    if attempts.is_empty() && matches!(state, State::Running { .. }) {
        return Err(DecodeError::Invalid("the attempts"));
    }
    Ok(Operation {
        version,
        fence,
        created_at,
        state,
        attempt,
        rejected: counted & REJECTED != 0,
        attempts,
        forgotten_open: r.option("the open attempts", |r| r.time("the open attempts"))?,
        queue: r.option("the queue", |r| r.label("the queue"))?,
        run_at: r.option("the start time", |r| r.time("the start time"))?,
        task: if counted & TASK == 0 {
            None
        } else {
            Some(Arc::new(get_task(r)?))
        },
        delivery: get_delivery(r)?,
        resolved: r.option("the resolution", get_resolved)?,
        last_order: r.option("the last order", get_order)?,
        spec: Arc::new(get_spec(r)?),
    })
}

pub(super) fn put_task(w: &mut Writer, task: &Task) {
    w.number((i64::from(task.priority.get()) + i64::from(Priority::MAX)).cast_unsigned());
    w.option(task.lane.as_ref(), |w, lane| w.text(lane.as_str()));
    w.payload(task.input.as_ref());
    // Most tasks wait as all do: one byte says so.
    let special = (task.backoff != Backoff::default()).then_some(task.backoff);
    w.option(special, |w, backoff| {
        w.duration(backoff.base());
        w.duration(backoff.cap());
    });
}

pub(super) fn get_task(r: &mut Reader<'_>) -> Result<Task, DecodeError> {
    let priority = r.number32("the priority")?;
    Ok(Task {
        priority: Priority::new(i64::from(priority) - i64::from(Priority::MAX))
            .map_err(|_| DecodeError::Invalid("the priority"))?,
        lane: r.option("the lane", |r| r.label("the lane"))?,
        input: r.payload()?,
        backoff: get_backoff(r)?,
    })
}

fn get_backoff(r: &mut Reader<'_>) -> Result<Backoff, DecodeError> {
    let invalid = DecodeError::Invalid("the backoff");
    let special = r.option("the backoff", |r| {
        let (base, cap) = (r.duration("the backoff")?, r.duration("the backoff")?);
        Backoff::new(base, cap).map_err(|_| DecodeError::Invalid("the backoff"))
    })?;
    match special {
        None => Ok(Backoff::default()),
        Some(backoff) if backoff == Backoff::default() => Err(invalid),
        Some(backoff) => Ok(backoff),
    }
}

fn put_state(w: &mut Writer, state: &State) {
    match state {
        State::Pending => w.byte(0),
        State::Running { evidence } => {
            w.byte(1);
            w.option(evidence.as_ref(), Writer::outcome);
        }
        State::Succeeded(settled) | State::Failed(settled) => {
            w.byte(2);
            w.outcome(&settled.outcome);
            w.time(settled.at);
        }
        State::Doubtful => w.byte(3),
        State::Dead => w.byte(4),
    }
}

fn get_state(r: &mut Reader<'_>) -> Result<State, DecodeError> {
    match r.byte("the state")? {
        0 => Ok(State::Pending),
        1 => Ok(State::Running {
            evidence: r.option("the evidence", Reader::outcome)?,
        }),
        2 => {
            let settled = Settled {
                outcome: r.outcome()?,
                at: r.time("the settling time")?,
            };
            Ok(State::settled(settled.outcome, settled.at))
        }
        3 => Ok(State::Doubtful),
        4 => Ok(State::Dead),
        5.. => Err(DecodeError::Invalid("the state")),
    }
}

fn put_attempt(w: &mut Writer, attempt: &Attempt) {
    w.text(attempt.id.as_str());
    w.number(attempt.fence.0);
    w.number(u64::from(attempt.number));
    w.bool(attempt.kind == AttemptKind::Probe);
    w.option(attempt.holder.as_ref(), put_holder);
    w.time(attempt.started_at);
    w.time(attempt.lease_until);
    w.option(attempt.ended_at, Writer::time);
    w.byte(match attempt.verdict {
        None => 0,
        Some(VerdictKind::Done) => 1,
        Some(VerdictKind::NotDone) => 2,
        Some(VerdictKind::Unknown) => 3,
    });
    w.bool(attempt.open);
    w.option(attempt.error.as_ref(), |w, error| w.text(error.as_str()));
}

fn get_attempt(r: &mut Reader<'_>) -> Result<Attempt, DecodeError> {
    Ok(Attempt {
        id: r.attempt_id()?,
        fence: Fence(r.number("the attempt's fence")?),
        number: r.number32("the attempt's number")?,
        kind: if r.bool("the kind of attempt")? {
            AttemptKind::Probe
        } else {
            AttemptKind::Act
        },
        holder: r.option("the holder", get_holder)?,
        started_at: r.time("the attempt's start")?,
        lease_until: r.time("the lease")?,
        ended_at: r.option("the attempt's end", |r| r.time("the attempt's end"))?,
        verdict: match r.byte("the verdict")? {
            0 => None,
            1 => Some(VerdictKind::Done),
            2 => Some(VerdictKind::NotDone),
            3 => Some(VerdictKind::Unknown),
            4.. => return Err(DecodeError::Invalid("the verdict")),
        },
        open: r.bool("the open mark")?,
        error: r.option("the error", |r| r.note("the error"))?,
    })
}

pub(super) fn put_holder(w: &mut Writer, holder: &Holder) {
    w.text(holder.host.as_str());
    w.number(u64::from(holder.pid));
    w.wide(holder.boot);
    w.number(holder.pid_namespace);
    w.number(holder.started);
}

pub(super) fn get_holder(r: &mut Reader<'_>) -> Result<Holder, DecodeError> {
    Ok(Holder {
        host: r.label("the host")?,
        pid: r.number32("the process id")?,
        boot: r.wide("the boot")?,
        pid_namespace: r.number("the process namespace")?,
        started: r.number("the process start")?,
    })
}

pub(super) fn put_spec(w: &mut Writer, spec: &Spec) {
    w.text(spec.namespace.as_str());
    w.text(spec.key.as_str());
    w.option(spec.client_key.as_ref(), |w, key| w.text(key.as_str()));
    w.text(spec.name.as_str());
    w.digest(&spec.fingerprint.0);
    put_policy(w, &spec.policy);
    w.option(spec.door.as_ref(), |w, door| w.text(door.as_str()));
    w.option(spec.principal.as_ref(), |w, principal| {
        w.text(principal.as_str())
    });
    w.option(spec.parent.as_ref(), |w, parent| {
        w.text(parent.key.as_str());
        w.number(parent.fence.0);
        w.text(parent.root.as_str());
    });
    w.number(u64::from(spec.occurrence));
    w.probe_digest(spec.probe_digest.as_ref());
}

pub(super) fn get_spec(r: &mut Reader<'_>) -> Result<Spec, DecodeError> {
    Ok(Spec {
        namespace: r.namespace()?,
        key: r.key()?,
        client_key: r.option("the client's key", |r| r.note("the client's key"))?,
        name: r.label("the name")?,
        fingerprint: Fingerprint(r.digest("the fingerprint")?),
        policy: get_policy(r)?,
        door: r.option("the door", |r| r.label("the door"))?,
        principal: r.option("the principal", |r| r.label("the principal"))?,
        parent: r.option("the parent", |r| {
            Ok(Parent {
                key: r.key()?,
                fence: Fence(r.number("the parent's fence")?),
                root: r.key()?,
            })
        })?,
        occurrence: r.number32("the occurrence")?,
        probe_digest: r.probe_digest()?,
    })
}

fn put_policy(w: &mut Writer, policy: &Policy) {
    w.byte(match policy.class {
        Class::Safe => 0,
        Class::Idempotent => 1,
        Class::Unsafe => 2,
    });
    // Most operations have the policy of their class: one byte says so.
    let ordinary = *policy == Policy::direct(policy.class);
    w.option((!ordinary).then_some(policy), |w, policy| {
        w.byte(match policy.on_doubt {
            OnDoubt::Hold => 0,
            OnDoubt::Retry => 1,
            OnDoubt::Probe => 2,
        });
        w.number(
            policy
                .max_attempts
                .map_or(0, |limit| u64::from(limit.get())),
        );
        w.duration(policy.retry_within);
        w.duration(policy.settle_delay);
        w.duration(policy.retention.length());
    });
}

fn get_policy(r: &mut Reader<'_>) -> Result<Policy, DecodeError> {
    let class = match r.byte("the class")? {
        0 => Class::Safe,
        1 => Class::Idempotent,
        2 => Class::Unsafe,
        3.. => return Err(DecodeError::Invalid("the class")),
    };
    let ordinary = Policy::direct(class);
    let special = r.option("the policy", |r| {
        Ok(Policy {
            class,
            on_doubt: match r.byte("the policy")? {
                0 => OnDoubt::Hold,
                1 => OnDoubt::Retry,
                2 => OnDoubt::Probe,
                3.. => return Err(DecodeError::Invalid("the policy")),
            },
            max_attempts: NonZeroU32::new(r.number32("the attempt limit")?),
            retry_within: r.duration("the retry window")?,
            settle_delay: r.duration("the settle delay")?,
            retention: Retention::new(r.duration("the retention")?)
                .map_err(|_| DecodeError::Invalid("the retention"))?,
        })
    })?;
    match special {
        None => Ok(ordinary),
        Some(policy) if policy == ordinary => Err(DecodeError::Invalid("the policy")),
        Some(policy) => Ok(policy),
    }
}

pub(super) fn put_delivery(w: &mut Writer, delivery: Delivery) {
    w.byte(match delivery {
        Delivery::Unknown => 0,
        Delivery::Delivered => 1,
        Delivery::Undelivered => 2,
        Delivery::Lapsed => 3,
    });
}

pub(super) fn get_delivery(r: &mut Reader<'_>) -> Result<Delivery, DecodeError> {
    match r.byte("the delivery")? {
        0 => Ok(Delivery::Unknown),
        1 => Ok(Delivery::Delivered),
        2 => Ok(Delivery::Undelivered),
        3 => Ok(Delivery::Lapsed),
        4.. => Err(DecodeError::Invalid("the delivery")),
    }
}

fn put_resolved(w: &mut Writer, resolved: &Resolved) {
    w.text(resolved.by.as_str());
    w.time(resolved.at);
    w.option(resolved.note.as_ref(), |w, note| w.text(note.as_str()));
}

fn get_resolved(r: &mut Reader<'_>) -> Result<Resolved, DecodeError> {
    Ok(Resolved {
        by: r.label("the resolver")?,
        at: r.time("the resolution's time")?,
        note: r.option("the note", |r| r.note("the note"))?,
    })
}

fn put_order(w: &mut Writer, order: &Order) {
    w.digest(&order.digest);
    w.byte(order.state.code());
    w.option(order.previous_effect, Writer::effect);
}

fn get_order(r: &mut Reader<'_>) -> Result<Order, DecodeError> {
    Ok(Order {
        digest: r.digest("the last order")?,
        state: StateKind::from_code(r.byte("the last order")?)
            .ok_or(DecodeError::Invalid("the last order"))?,
        previous_effect: r.option("the last order", Reader::effect)?,
    })
}

fn put_tombstone(w: &mut Writer, tombstone: &Tombstone) {
    w.base(tombstone.settled_at);
    w.time(tombstone.buried_at);
    w.text(tombstone.namespace.as_str());
    w.text(tombstone.key.as_str());
    w.digest(&tombstone.fingerprint.0);
    w.bool(tombstone.ok);
    w.effect(tombstone.effect);
    w.number(tombstone.fence.0);
    w.number(tombstone.version.0);
    put_delivery(w, tombstone.delivery);
    w.number(u64::from(tombstone.occurrence));
}

fn get_tombstone(r: &mut Reader<'_>) -> Result<Tombstone, DecodeError> {
    Ok(Tombstone {
        settled_at: r.base("the settling time")?,
        buried_at: r.time("the burial")?,
        namespace: r.namespace()?,
        key: r.key()?,
        fingerprint: Fingerprint(r.digest("the fingerprint")?),
        ok: r.bool("the outcome")?,
        effect: r.effect()?,
        fence: Fence(r.number("the fence")?),
        version: Version(r.number("the version")?),
        delivery: get_delivery(r)?,
        occurrence: r.number32("the occurrence")?,
    })
}

fn put_stub(w: &mut Writer, stub: &Stub) {
    w.base(stub.since);
    w.digest(&stub.key_hash.0);
    w.number(stub.fence.0);
    w.number(stub.version.0);
}

fn get_stub(r: &mut Reader<'_>) -> Result<Stub, DecodeError> {
    Ok(Stub {
        since: r.base("the forgetting")?,
        key_hash: KeyHash(r.digest("the key's hash")?),
        fence: Fence(r.number("the fence")?),
        version: Version(r.number("the version")?),
    })
}
