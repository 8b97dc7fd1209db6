//! The rule of breakers.

use core::time::Duration;

use super::command::{Act, Admit, Admitted, Ask, Order, Reply, Report};
use super::record::{Breaker, Forced, Open, Phase, Probe};
use super::settings::Settings;
use super::window::Window;
use crate::digest::Digest;
use crate::ledger::{Action, Command, Decision, Event, Fence, Record, Rejection, Version, Write};
use crate::time::Timestamp;

/// When it is worth asking again while a probe is under way: it may be over any moment.
pub const HALF_OPEN_RETRY: Duration = Duration::from_secs(1);

/// Decides what is asked of a breaker; `command` is what it came in, for its digest.
///
/// # Errors
/// [`Rejection::BreakerOpen`] refuses a call. Orders are refused on another fence, and where there is nothing to close.
pub fn decide(
    current: Option<&Record>,
    ask: &Ask,
    command: &Command,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let breaker = match current {
        None => None,
        Some(Record::Breaker(breaker)) => Some(&**breaker),
        // Their hashes lie in another domain.
        Some(other @ (Record::Operation(_) | Record::Tombstone(_) | Record::Stub(_))) => {
            return Err(Rejection::Refused {
                state: other.kind(),
            });
        }
    };
    match &ask.act {
        Act::Admit(wanted) => admit(breaker, ask, wanted, now),
        Act::Report(said) => Ok(report(breaker, ask, said, now)),
        Act::Open(order, length) => {
            let again = repeated(breaker, order, command)?;
            Ok(again.unwrap_or_else(|| open(breaker, ask, order, *length, command, now)))
        }
        Act::Close(order) => {
            let breaker = breaker.ok_or(Rejection::NotFound)?;
            let again = repeated(Some(breaker), order, command)?;
            Ok(again.unwrap_or_else(|| close(breaker, command, now)))
        }
        Act::Reset(order) => {
            let breaker = breaker.ok_or(Rejection::NotFound)?;
            let again = repeated(Some(breaker), order, command)?;
            Ok(again.unwrap_or_else(|| reset(breaker, command, now)))
        }
    }
}

/// Takes over a restored or copied breaker: whoever probes for the original does not for this one.
pub(crate) fn adopt(breaker: &Breaker, fence: Fence, now: Timestamp) -> Decision {
    let mut next = breaker.clone();
    next.fence = fence;
    if let Phase::HalfOpen(probe) = &breaker.phase {
        next.phase = Phase::Open(Open {
            until: Some(now),
            times: probe.times,
            forced: None,
        });
        next.since = now;
    }
    write(next, Event::Adopted, crate::ledger::Reply::Kept)
}

fn admit(
    breaker: Option<&Breaker>,
    ask: &Ask,
    admit: &Admit,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let Some(breaker) = breaker else {
        return Ok(through(Fence::default()));
    };
    let refused = |retry_at| Err(Rejection::BreakerOpen { retry_at });
    match &breaker.phase {
        Phase::Closed(_) => Ok(through(breaker.fence)),
        Phase::Open(Open { until: None, .. }) => refused(None),
        Phase::Open(Open {
            until: Some(until),
            times,
            ..
        }) => {
            if breaker.is_over(*until, now) {
                Ok(probe(breaker, ask, admit, *times, now))
            } else {
                refused(Some(*until))
            }
        }
        Phase::HalfOpen(held) if held.id == admit.id => Ok(go_on(breaker, held, admit, now)),
        Phase::HalfOpen(held) => {
            if breaker.is_over(held.until, now) {
                Ok(probe(breaker, ask, admit, held.times, now))
            } else {
                refused(Some(held.until.min(now.plus(HALF_OPEN_RETRY))))
            }
        }
    }
}

fn through(fence: Fence) -> Decision {
    let admitted = Admitted {
        fence,
        probe_until: None,
    };
    answer(Reply::Admitted(admitted))
}

/// Lets one call through, to find out whether the target is back.
fn probe(breaker: &Breaker, ask: &Ask, admit: &Admit, times: u32, now: Timestamp) -> Decision {
    let until = now.plus(admit.lease.length());
    let probe = Probe {
        id: admit.id.clone(),
        until,
        times,
    };
    let mut next = moved(breaker, Phase::HalfOpen(probe), now);
    next.settings = ask.settings;
    let admitted = Admitted {
        fence: next.fence,
        probe_until: Some(until),
    };
    let reply = crate::ledger::Reply::Breaker(Reply::Admitted(admitted));
    write(next, Event::BreakerHalfOpen, reply)
}

/// Lets the probe go on: it says that it is alive, or did not hear that it was admitted.
fn go_on(breaker: &Breaker, held: &Probe, admit: &Admit, now: Timestamp) -> Decision {
    let mut next = breaker.clone();
    let until = held.until.max(now.plus(admit.lease.length()));
    next.phase = Phase::HalfOpen(Probe {
        until,
        ..held.clone()
    });
    let admitted = Admitted {
        fence: next.fence,
        probe_until: Some(until),
    };
    let reply = crate::ledger::Reply::Breaker(Reply::Admitted(admitted));
    write(next, Event::BreakerProbeRenewed, reply)
}

fn report(breaker: Option<&Breaker>, ask: &Ask, report: &Report, now: Timestamp) -> Decision {
    let new = fresh(ask, now);
    let breaker = breaker.unwrap_or(&new);
    // Calls from before the last change say nothing about what came after it.
    if report.fence != breaker.fence {
        return answer(Reply::Ignored);
    }
    match &breaker.phase {
        Phase::Closed(window) => counted(breaker, ask, window, &report.calls, now),
        Phase::Open(_) => answer(Reply::Ignored),
        Phase::HalfOpen(probe) => {
            if report.probe.as_ref() != Some(&probe.id) {
                return answer(Reply::Ignored);
            }
            if report.calls.total().calls() == 0 {
                return returned(breaker, probe.times, now);
            }
            if report.calls.total().failed == 0 {
                let next = moved(breaker, Phase::Closed(Window::default()), now);
                return write(next, Event::BreakerClosed, said(Reply::Counted));
            }
            opened(breaker, ask, probe.times.saturating_add(1), now)
        }
    }
}

/// Lets another call be the probe: the one that was to be it never came to call the target.
fn returned(breaker: &Breaker, times: u32, now: Timestamp) -> Decision {
    let phase = Phase::Open(Open {
        until: Some(now),
        times,
        forced: None,
    });
    let next = moved(breaker, phase, now);
    write(next, Event::BreakerProbeReturned, said(Reply::Ignored))
}

fn counted(
    breaker: &Breaker,
    ask: &Ask,
    window: &Window,
    calls: &Window,
    now: Timestamp,
) -> Decision {
    let mut window = window.clone();
    window.add(calls, &ask.settings, now);
    // Only a failure opens it: what was good enough does not become worse by a success.
    if calls.total().failed > 0 && window.is_too_bad(&ask.settings, now) {
        return opened(breaker, ask, 1, now);
    }
    let mut next = breaker.clone();
    next.settings = ask.settings;
    next.phase = Phase::Closed(window);
    write(next, Event::BreakerCounted, said(Reply::Counted))
}

fn opened(breaker: &Breaker, ask: &Ask, times: u32, now: Timestamp) -> Decision {
    let phase = Phase::Open(Open {
        until: Some(now.plus(ask.settings.cool_down_of(times))),
        times,
        forced: None,
    });
    let mut next = moved(breaker, phase, now);
    next.settings = ask.settings;
    write(next, Event::BreakerOpened, said(Reply::Counted))
}

/// Returns the answer to the exact repeat of the last order; `None` for one that was decided on what is stored.
fn repeated(
    breaker: Option<&Breaker>,
    order: &Order,
    command: &Command,
) -> Result<Option<Decision>, Rejection> {
    if let Some(breaker) = breaker
        && breaker.last_order == Some(command.digest())
    {
        return Ok(Some(ordered_already(breaker)));
    }
    let fence = breaker.map_or_else(Fence::default, |breaker| breaker.fence);
    if fence == order.fence {
        Ok(None)
    } else {
        Err(Rejection::Fenced)
    }
}

fn open(
    breaker: Option<&Breaker>,
    ask: &Ask,
    order: &Order,
    length: Option<Duration>,
    command: &Command,
    now: Timestamp,
) -> Decision {
    let new = fresh(ask, now);
    let breaker = breaker.unwrap_or(&new);
    let phase = Phase::Open(Open {
        until: length.map(|length| now.plus(length)),
        // A probe that fails later waits as after the first opening.
        times: 0,
        forced: Some(Forced {
            by: order.by.clone(),
            note: order.note.clone(),
        }),
    });
    accept(moved(breaker, phase, now), Event::BreakerOpened, command)
}

fn close(breaker: &Breaker, command: &Command, now: Timestamp) -> Decision {
    match &breaker.phase {
        Phase::Closed(_) => ordered_already(breaker),
        Phase::Open(_) | Phase::HalfOpen(_) => {
            let next = moved(breaker, Phase::Closed(Window::default()), now);
            accept(next, Event::BreakerClosed, command)
        }
    }
}

fn reset(breaker: &Breaker, command: &Command, now: Timestamp) -> Decision {
    let next = moved(breaker, Phase::Closed(Window::default()), now);
    accept(next, Event::BreakerReset, command)
}

fn accept(mut next: Breaker, event: Event, command: &Command) -> Decision {
    let last: Digest = command.digest();
    next.last_order = Some(last);
    let reply = said(Reply::Ordered {
        phase: next.kind(),
        repeated: false,
    });
    write(next, event, reply)
}

fn ordered_already(breaker: &Breaker) -> Decision {
    answer(Reply::Ordered {
        phase: breaker.kind(),
        repeated: true,
    })
}

/// Returns the breaker in another phase: what was admitted before says nothing from now on.
fn moved(breaker: &Breaker, phase: Phase, now: Timestamp) -> Breaker {
    Breaker {
        fence: Fence(breaker.fence.0.saturating_add(1)),
        since: now,
        phase,
        ..breaker.clone()
    }
}

/// Makes the breaker of a target that nobody knew anything about.
fn fresh(ask: &Ask, now: Timestamp) -> Breaker {
    let settings: Settings = ask.settings;
    Breaker {
        namespace: ask.namespace.clone(),
        name: ask.name.clone(),
        version: Version(0),
        fence: Fence(0),
        created_at: now,
        since: now,
        settings,
        phase: Phase::Closed(Window::default()),
        last_order: None,
    }
}

const fn said(reply: Reply) -> crate::ledger::Reply {
    crate::ledger::Reply::Breaker(reply)
}

const fn answer(reply: Reply) -> Decision {
    Decision::Answer(said(reply))
}

fn write(mut next: Breaker, event: Event, reply: crate::ledger::Reply) -> Decision {
    next.version = next.version.next();
    Decision::Write(Box::new(Write {
        next: Some(Record::Breaker(Box::new(next))),
        events: vec![event],
        reply,
        after: vec![Action::Wake],
    }))
}
