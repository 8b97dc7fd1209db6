//! Breakers, and what is asked of them, as bytes.

use core::num::NonZeroU32;

use super::fields::{DecodeError, Reader, Writer};
use crate::breaker::{
    Act, Admit, Ask, Breaker, Counts, Forced, Open, Order, Phase, Probe, Report, SLICES_MAX,
    Settings, Slice, Window,
};
use crate::ledger::record::{Fence, Version};
use crate::time::Lease;

pub(super) fn put_breaker(w: &mut Writer, breaker: &Breaker) {
    w.base(breaker.created_at);
    w.number(breaker.version.0);
    w.number(breaker.fence.0);
    w.time(breaker.since);
    w.text(breaker.namespace.as_str());
    w.text(breaker.name.as_str());
    put_settings(w, &breaker.settings);
    put_phase(w, &breaker.phase);
    w.option(breaker.last_order.as_ref(), Writer::digest);
}

pub(super) fn get_breaker(r: &mut Reader<'_>) -> Result<Breaker, DecodeError> {
    Ok(Breaker {
        created_at: r.base("the creation time")?,
        version: Version(r.number("the version")?),
        fence: Fence(r.number("the fence")?),
        since: r.time("the phase's time")?,
        namespace: r.namespace()?,
        name: r.key()?,
        settings: get_settings(r)?,
        phase: get_phase(r)?,
        last_order: r.option("the last order", |r| r.digest("the last order"))?,
    })
}

fn put_phase(w: &mut Writer, phase: &Phase) {
    match phase {
        Phase::Closed(window) => {
            w.byte(0);
            put_window(w, window);
        }
        Phase::Open(open) => {
            w.byte(1);
            w.option(open.until, Writer::time);
            w.number(u64::from(open.times));
            w.option(open.forced.as_ref(), |w, forced| {
                w.text(forced.by.as_str());
                w.option(forced.note.as_ref(), |w, note| w.text(note.as_str()));
            });
        }
        Phase::HalfOpen(probe) => {
            w.byte(2);
            w.text(probe.id.as_str());
            w.time(probe.until);
            w.number(u64::from(probe.times));
        }
    }
}

fn get_phase(r: &mut Reader<'_>) -> Result<Phase, DecodeError> {
    Ok(match r.byte("the phase")? {
        0 => Phase::Closed(get_window(r)?),
        1 => Phase::Open(Open {
            until: r.option("the next try", |r| r.time("the next try"))?,
            times: r.number32("the openings")?,
            forced: r.option("the order", |r| {
                Ok(Forced {
                    by: r.label("the operator")?,
                    note: r.option("the note", |r| r.note("the note"))?,
                })
            })?,
        }),
        2 => Phase::HalfOpen(Probe {
            id: r.attempt_id()?,
            until: r.time("the probe's end")?,
            times: r.number32("the openings")?,
        }),
        3.. => return Err(DecodeError::Invalid("the phase")),
    })
}

fn put_window(w: &mut Writer, window: &Window) {
    w.number(window.slices.len() as u64);
    for slice in &window.slices {
        w.time(slice.at);
        w.number(u64::from(slice.counts.succeeded));
        w.number(u64::from(slice.counts.failed));
    }
    w.number(u64::from(window.in_row));
}

fn get_window(r: &mut Reader<'_>) -> Result<Window, DecodeError> {
    let count = r.number("the counts")?;
    if count > SLICES_MAX as u64 {
        return Err(DecodeError::Invalid("the counts"));
    }
    let mut slices: Vec<Slice> = vec![];
    for _ in 0..count {
        let slice = Slice {
            at: r.time("the counts")?,
            counts: Counts {
                succeeded: r.number32("the counts")?,
                failed: r.number32("the counts")?,
            },
        };
        if slices.last().is_some_and(|before| before.at >= slice.at) {
            return Err(DecodeError::Invalid("the counts"));
        }
        slices.push(slice);
    }
    let in_row = r.number32("the failures in a row")?;
    Ok(Window { slices, in_row })
}

fn put_settings(w: &mut Writer, settings: &Settings) {
    w.number(u64::from(settings.failure_permille));
    w.number(u64::from(settings.minimum.get()));
    w.duration(settings.window);
    w.number(settings.failures.map_or(0, |limit| u64::from(limit.get())));
    w.duration(settings.cool_down);
    w.duration(settings.cool_down_max);
}

fn get_settings(r: &mut Reader<'_>) -> Result<Settings, DecodeError> {
    let wrong = DecodeError::Invalid("the thresholds");
    let permille = r.number("the thresholds")?;
    let settings = Settings {
        failure_permille: u16::try_from(permille)
            .map_err(|_| DecodeError::Invalid("the thresholds"))?,
        minimum: NonZeroU32::new(r.number32("the thresholds")?)
            .ok_or(DecodeError::Invalid("the thresholds"))?,
        window: r.duration("the thresholds")?,
        failures: NonZeroU32::new(r.number32("the thresholds")?),
        cool_down: r.duration("the thresholds")?,
        cool_down_max: r.duration("the thresholds")?,
    };
    settings.check().map_err(|_| wrong)
}

pub(super) fn put_ask(w: &mut Writer, ask: &Ask) {
    w.text(ask.namespace.as_str());
    w.text(ask.name.as_str());
    put_settings(w, &ask.settings);
    match &ask.act {
        Act::Admit(admit) => {
            w.byte(0);
            w.text(admit.id.as_str());
            w.duration(admit.lease.length());
        }
        Act::Report(report) => {
            w.byte(1);
            w.number(report.fence.0);
            w.option(report.probe.as_ref(), |w, id| w.text(id.as_str()));
            put_window(w, &report.calls);
        }
        Act::Open(order, length) => {
            w.byte(2);
            put_order(w, order);
            w.option(*length, Writer::duration);
        }
        Act::Close(order) => {
            w.byte(3);
            put_order(w, order);
        }
        Act::Reset(order) => {
            w.byte(4);
            put_order(w, order);
        }
    }
}

pub(super) fn get_ask(r: &mut Reader<'_>) -> Result<Ask, DecodeError> {
    Ok(Ask {
        namespace: r.namespace()?,
        name: r.key()?,
        settings: get_settings(r)?,
        act: get_act(r)?,
    })
}

fn get_act(r: &mut Reader<'_>) -> Result<Act, DecodeError> {
    Ok(match r.byte("what is asked of a breaker")? {
        0 => Act::Admit(Admit {
            id: r.attempt_id()?,
            lease: Lease::new(r.duration("the lease")?)
                .map_err(|_| DecodeError::Invalid("the lease"))?,
        }),
        1 => Act::Report(Report {
            fence: Fence(r.number("the fence")?),
            probe: r.option("the probe", Reader::attempt_id)?,
            calls: get_window(r)?,
        }),
        2 => Act::Open(
            get_order(r)?,
            r.option("the length", |r| r.duration("the length"))?,
        ),
        3 => Act::Close(get_order(r)?),
        4 => Act::Reset(get_order(r)?),
        5.. => return Err(DecodeError::Invalid("what is asked of a breaker")),
    })
}

fn put_order(w: &mut Writer, order: &Order) {
    w.number(order.fence.0);
    w.text(order.by.as_str());
    w.option(order.note.as_ref(), |w, note| w.text(note.as_str()));
}

fn get_order(r: &mut Reader<'_>) -> Result<Order, DecodeError> {
    Ok(Order {
        fence: Fence(r.number("the fence")?),
        by: r.label("the operator")?,
        note: r.option("the note", |r| r.note("the note"))?,
    })
}
