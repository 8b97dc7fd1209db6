//! Commands as bytes, as the log keeps them.

use std::sync::Arc;

use super::breaker::{get_ask, put_ask};
use super::fields::{DecodeError, Reader, Writer};
use super::record::{
    get_delivery, get_holder, get_spec, get_task, put_delivery, put_holder, put_spec, put_task,
};
use crate::ledger::command::{
    Adopt, Begin, Command, Expire, Horizon, Order, Renew, Resolution, Resolve, Settle, Sighting,
    Submit,
};
use crate::ledger::record::{Fence, Version};
use crate::time::Lease;
use crate::verdict::Verdict;

/// Stands for a Submit that brings a task; one without is as old as the log.
const SUBMIT_TASK: u8 = 64;

/// Stands for a `not_done` that says how long to wait.
const NOT_DONE_FOR: u8 = 3;

/// Writes a command as bytes.
#[must_use]
pub fn encode_command(command: &Command) -> Vec<u8> {
    let mut w = Writer::new();
    put_command(&mut w, command);
    w.finish()
}

/// Reads a command from bytes. A command that is not in the log yet comes from a client: the text of a probe, which
/// earlier clients send, is refused.
///
/// # Errors
/// Refuses everything that [`encode_command`] cannot have written.
pub fn decode_command(bytes: &[u8]) -> Result<Command, DecodeError> {
    let mut r = Reader::new(bytes)?;
    let command = get_command(&mut r)?;
    if r.has_probe_text() {
        return Err(DecodeError::ProbeText);
    }
    r.finish()?;
    Ok(command)
}

pub(super) fn put_command(w: &mut Writer, command: &Command) {
    match command {
        Command::Submit(submit) => {
            w.byte(if submit.task.is_some() {
                SUBMIT_TASK
            } else {
                0
            });
            put_spec(w, &submit.spec);
            w.option(submit.queue.as_ref(), |w, queue| w.text(queue.as_str()));
            w.option(submit.run_at, Writer::time);
            if let Some(task) = &submit.task {
                put_task(w, task);
            }
        }
        Command::Begin(begin) => {
            w.byte(1);
            put_begin(w, begin);
        }
        Command::Renew(renew) => {
            w.byte(2);
            w.text(renew.attempt.as_str());
            w.number(renew.fence.0);
            w.duration(renew.lease.length());
        }
        Command::Settle(settle) => {
            w.byte(3);
            w.text(settle.attempt.as_str());
            w.number(settle.fence.0);
            put_verdict(w, &settle.verdict);
        }
        Command::Expire(expire) => {
            w.byte(4);
            w.option(expire.gone, |w, fence| w.number(fence.0));
        }
        Command::Resolve(resolve) => {
            w.byte(5);
            put_order(w, &resolve.order);
            let outcome = match &resolve.resolution {
                Resolution::Done(outcome) => Some(outcome),
                Resolution::NotDone => None,
            };
            w.option(outcome, Writer::outcome);
        }
        Command::Retry(order) => {
            w.byte(6);
            put_order(w, order);
        }
        Command::Cancel(order) => {
            w.byte(7);
            put_order(w, order);
        }
        Command::Forget(order) => {
            w.byte(8);
            put_order(w, order);
        }
        Command::Bury(horizon) => {
            w.byte(9);
            w.time(horizon.0);
        }
        Command::Drop(horizon) => {
            w.byte(10);
            w.time(horizon.0);
        }
        Command::Deliver(delivery) => {
            w.byte(11);
            put_delivery(w, *delivery);
        }
        Command::Adopt(adopt) => {
            w.byte(12);
            w.number(adopt.fence_step);
            w.text(adopt.by.as_str());
        }
        Command::Breaker(ask) => {
            w.byte(13);
            put_ask(w, ask);
        }
    }
}

pub(super) fn get_command(r: &mut Reader<'_>) -> Result<Command, DecodeError> {
    Ok(match r.byte("the kind of command")? {
        kind @ (0 | SUBMIT_TASK) => Command::Submit(Submit {
            spec: Arc::new(get_spec(r)?),
            queue: r.option("the queue", |r| r.label("the queue"))?,
            run_at: r.option("the start time", |r| r.time("the start time"))?,
            task: if kind == SUBMIT_TASK {
                Some(Arc::new(get_task(r)?))
            } else {
                None
            },
        }),
        1 => Command::Begin(get_begin(r)?),
        2 => Command::Renew(Renew {
            attempt: r.attempt_id()?,
            fence: Fence(r.number("the fence")?),
            lease: get_lease(r)?,
        }),
        3 => Command::Settle(Settle {
            attempt: r.attempt_id()?,
            fence: Fence(r.number("the fence")?),
            verdict: get_verdict(r)?,
        }),
        4 => Command::Expire(Expire {
            gone: r.option("the holder's end", |r| r.number("the fence").map(Fence))?,
        }),
        5 => Command::Resolve(Resolve {
            order: get_order(r)?,
            resolution: r
                .option("the resolution", Reader::outcome)?
                .map_or(Resolution::NotDone, Resolution::Done),
        }),
        6 => Command::Retry(get_order(r)?),
        7 => Command::Cancel(get_order(r)?),
        8 => Command::Forget(get_order(r)?),
        9 => Command::Bury(Horizon(r.time("the horizon")?)),
        10 => Command::Drop(Horizon(r.time("the horizon")?)),
        11 => Command::Deliver(get_delivery(r)?),
        12 => Command::Adopt(Adopt {
            fence_step: r.number("the step")?,
            by: r.label("the adopter")?,
        }),
        13 => Command::Breaker(Box::new(get_ask(r)?)),
        14.. => return Err(DecodeError::Invalid("the kind of command")),
    })
}

fn put_begin(w: &mut Writer, begin: &Begin) {
    put_spec(w, &begin.spec);
    w.text(begin.attempt.as_str());
    w.duration(begin.lease.length());
    w.option(begin.holder.as_ref(), put_holder);
    w.bool(begin.worker);
    w.option(begin.sighting, |w, sighting| {
        w.number(sighting.fence.0);
        w.bool(sighting.alive);
    });
}

fn get_begin(r: &mut Reader<'_>) -> Result<Begin, DecodeError> {
    Ok(Begin {
        spec: Arc::new(get_spec(r)?),
        attempt: r.attempt_id()?,
        lease: get_lease(r)?,
        holder: r.option("the holder", get_holder)?,
        worker: r.bool("the worker")?,
        sighting: r.option("the sighting", |r| {
            Ok(Sighting {
                fence: Fence(r.number("the sighting")?),
                alive: r.bool("the sighting")?,
            })
        })?,
    })
}

fn get_lease(r: &mut Reader<'_>) -> Result<Lease, DecodeError> {
    Lease::new(r.duration("the lease")?).map_err(|_| DecodeError::Invalid("the lease"))
}

fn put_verdict(w: &mut Writer, verdict: &Verdict) {
    match verdict {
        Verdict::Done(outcome) => {
            w.byte(0);
            w.outcome(outcome);
        }
        Verdict::NotDone {
            reject,
            error,
            retry_after,
        } => {
            w.byte(retry_after.map_or(1, |_| NOT_DONE_FOR));
            w.bool(*reject);
            w.option(error.as_ref(), |w, error| w.text(error.as_str()));
            if let Some(retry_after) = retry_after {
                w.duration(*retry_after);
            }
        }
        Verdict::Unknown { error } => {
            w.byte(2);
            w.option(error.as_ref(), |w, error| w.text(error.as_str()));
        }
    }
}

fn get_verdict(r: &mut Reader<'_>) -> Result<Verdict, DecodeError> {
    match r.byte("the verdict")? {
        0 => Ok(Verdict::Done(r.outcome()?)),
        kind @ (1 | NOT_DONE_FOR) => Ok(Verdict::NotDone {
            reject: r.bool("the verdict")?,
            error: r.option("the error", |r| r.note("the error"))?,
            retry_after: if kind == NOT_DONE_FOR {
                Some(r.duration("the wait")?)
            } else {
                None
            },
        }),
        2 => Ok(Verdict::Unknown {
            error: r.option("the error", |r| r.note("the error"))?,
        }),
        4.. => Err(DecodeError::Invalid("the verdict")),
    }
}

fn put_order(w: &mut Writer, order: &Order) {
    w.number(order.version.0);
    w.text(order.by.as_str());
    w.option(order.note.as_ref(), |w, note| w.text(note.as_str()));
}

fn get_order(r: &mut Reader<'_>) -> Result<Order, DecodeError> {
    Ok(Order {
        version: Version(r.number("the version")?),
        by: r.label("the operator")?,
        note: r.option("the note", |r| r.note("the note"))?,
    })
}
