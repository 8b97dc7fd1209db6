//! The first table of the design, by those who ask: Submit, Begin, and the clock.

use super::states::*;
use super::table::*;
use super::world::*;
use crate::ledger::Event as E;
use crate::ledger::Rejection::{Dead, Expired, Fenced, KeyReused};
use crate::ledger::Reply::{Kept, Replay};
use crate::ledger::StateKind as S;
use crate::time::Timestamp;

pub(super) const COLUMNS: [&str; 3] = ["submit", "begin", "expire"];

#[test]
fn every_cell_of_callers_decides_as_the_design_says() {
    let mut t = Table::default();
    nothing_stored(&mut t);
    pending(&mut t);
    running_alive(&mut t);
    running_exp(&mut t);
    in_doubt(&mut t);
    waived(&mut t);
    probed(&mut t);
    settled_or_dead(&mut t);
    t.finish(&COLUMNS);
}

fn begun(fence: u64, number: u32, now: Timestamp) -> Written {
    written(S::Running, act(fence, number, now), &[E::Begun]).fence(1)
}

fn nothing_stored(t: &mut Table) {
    cases! { t, w = absent();
        w.submit() => written(S::Pending, CREATED, &[E::Submitted]);
        w.queue("mail") => written(S::Pending, CREATED, &[E::Submitted]);
        w.begin("a") => begun(1, 1, START);
        w.work("a") => begun(1, 1, START);
        w.expire() => answered(Kept);
        w.gone("a") => answered(Kept);
    }
    // A stub continues version and fence; ids and fingerprint are forgotten.
    cases! { t, w = stub();
        w.submit() => written(S::Pending, CREATED, &[E::Submitted]);
        w.reused(&w.submit()) => written(S::Pending, CREATED, &[E::Submitted]);
        w.begin("b") => begun(2, 1, START);
        w.begin("a") => begun(2, 1, START);
        w.reused(&w.begin("b")) => begun(2, 1, START);
        w.expire() => answered(Kept);
        w.gone("a") => answered(Kept);
    }
}

fn pending(t: &mut Table) {
    cases! { t, w = submitted();
        w.submit() => answered(KNOWN);
        w.queue("mail") => written(S::Pending, KNOWN, &[E::QueueAttached]);
        w.reused(&w.queue("mail")) => rejected(KeyReused);
        w.begin("a") => begun(1, 1, START);
        w.work("a") => begun(1, 1, START);
        w.reused(&w.begin("a")) => rejected(KeyReused);
        w.expire() => answered(Kept);
    }
    // The first queue stays, and only its workers begin.
    cases! { t, w = queued();
        w.submit() => answered(KNOWN);
        w.queue("other") => answered(KNOWN);
        w.begin("a") => rejected(in_flight(None));
        w.work("a") => begun(1, 1, START);
    }
    // Not before its time, whoever asks.
    for queue in [Some("mail"), None] {
        let scheduled = absent().then(|w| w.submit_to(queue, Some(at(30))));
        cases! { t, w = scheduled.clone().wait(29);
            w.work("a") => rejected(in_flight(Some(at(30))));
            w.begin("a") => rejected(in_flight(Some(at(30))));
        }
        cases! { t, w = scheduled.clone().wait(30);
            w.work("a") => begun(1, 1, at(30));
        }
    }
    // An ended id is never a new claim; a new one is the next attempt.
    cases! { t, w = released();
        w.begin("a") => rejected(Fenced);
        w.begin("b") => begun(2, 2, START);
        w.reused(&w.begin("a")) => rejected(KeyReused);
    }
    cases! { t, w = released().then(|w| w.queue("mail"));
        w.begin("a") => rejected(Fenced);
        w.begin("b") => rejected(in_flight(None));
    }
    cases! { t, w = pending_with_open();
        w.begin("a") => rejected(Fenced);
        w.begin("c") => begun(3, 3, START).open(1);
        w.expire() => answered(Kept);
    }
}

fn running_alive(t: &mut Table) {
    let until = in_flight(Some(at(LEASE)));
    cases! { t, w = running(hold());
        w.submit() => answered(KNOWN);
        w.queue("mail") => written(S::Running, KNOWN, &[E::QueueAttached]);
        w.reused(&w.submit()) => rejected(KeyReused);
        w.begin("b") => rejected(until);
        w.reused(&w.begin("a")) => rejected(KeyReused);
        w.begin_seeing("b", "a", true) => rejected(until);
        w.begin_seeing("b", "a", false) => rejected(IN_DOUBT);
        w.begin_seeing("a", "a", false) => rejected(OWN_DOUBT);
        w.expire() => answered(Kept);
        w.gone("a") => written(S::Doubtful, Kept, &[E::HolderGone, E::Doubted]).open(1);
    }
    // The same permit again until the last moment of its lease, and not a longer one.
    cases! { t, w = running(hold()).wait(LEASE - 1);
        w.begin("a") => answered(act(1, 1, START));
        w.expire() => answered(Kept);
    }
    cases! { t, w = probing(probe());
        w.begin("p") => answered(look(2, 1, at(LEASE + 10)));
    }
    cases! { t, w = queued().then(|w| w.work("a"));
        w.queue("other") => answered(KNOWN);
    }
    // What was seen of another attempt says nothing about the one that runs.
    let waived = [E::HolderGone, E::Doubted, E::DoubtWaived, E::Begun];
    cases! { t, w = running_second(retry());
        w.begin("b") => answered(act(2, 2, START));
        w.begin("a") => rejected(until);
        w.begin_seeing("c", "a", false) => rejected(until);
        w.gone("a") => answered(Kept);
        w.begin_seeing("c", "b", false) =>
            written(S::Running, act(3, 3, START), &waived).fence(1).open(2);
    }
    let ends = [E::HolderGone, E::SettledLate];
    cases! { t, w = running_with_evidence();
        w.begin("c") => rejected(until);
        w.begin_seeing("c", "b", false) =>
            written(S::Succeeded, Replay, &ends).open(1).outcome(GOOD);
        w.gone("b") => written(S::Succeeded, Kept, &ends).open(1).outcome(GOOD);
    }
}

fn running_exp(t: &mut Table) {
    let end = at(LEASE);
    let doubted = || written(S::Doubtful, Kept, &[E::LeaseEnded, E::Doubted]);
    cases! { t, w = running(hold()).wait(LEASE);
        w.submit() => rejected(IN_DOUBT);
        w.queue("mail") => rejected(IN_DOUBT);
        w.reused(&w.submit()) => rejected(KeyReused);
        w.begin("a") => rejected(OWN_DOUBT);
        w.begin("b") => rejected(IN_DOUBT);
        w.reused(&w.begin("b")) => rejected(KeyReused);
        w.begin_seeing("b", "a", true) => rejected(in_flight(Some(end)));
        w.begin_seeing("b", "a", false) => rejected(IN_DOUBT);
        w.expire() => doubted().open(1);
    }
    // A permit whose lease has ended is not given again, even to a holder that is seen alive.
    cases! { t, w = running(hold()).wait(LEASE);
        w.begin_seeing("a", "a", true) => rejected(OWN_DOUBT);
    }
    // Whether the end of the lease was stored or not makes no difference to one that is seen alive;
    // one that has said that it does not know is not waited for.
    for policy in [hold(), retry(), probe()] {
        cases! { t, w = running(policy).wait(LEASE + 10).then(World::expire);
            w.begin_seeing("b", "a", true) => rejected(in_flight(None));
            w.begin_seeing("a", "a", true) => rejected(OWN_DOUBT);
        }
    }
    cases! { t, w = running(hold()).wait(LEASE).then(World::expire);
        w.begin_seeing("b", "a", false) => rejected(IN_DOUBT);
    }
    cases! { t, w = running(hold()).then(|w| w.unknown("a"));
        w.begin_seeing("b", "a", true) => rejected(IN_DOUBT);
    }
    let waived = [E::LeaseEnded, E::Doubted, E::DoubtWaived, E::Begun];
    cases! { t, w = running(retry()).wait(LEASE);
        w.begin("b") => written(S::Running, act(2, 2, end), &waived).fence(1).open(1);
    }
    cases! { t, w = running(retry()).then(|w| w.renew_for("a", WINDOW)).wait(WINDOW);
        w.begin("b") => rejected(IN_DOUBT);
    }
    cases! { t, w = running(limited(1, retry())).wait(LEASE);
        w.begin("b") => rejected(IN_DOUBT);
    }
    cases! { t, w = running_second(retry()).wait(LEASE);
        w.begin("a") => rejected(Fenced);
        w.begin("b") => rejected(OWN_DOUBT);
    }
    // A probe waits for the lease's end and the time that the world needs to settle.
    let looked = [E::LeaseEnded, E::Doubted, E::ProbeBegun];
    cases! { t, w = running(probe()).wait(LEASE);
        w.begin("p") => rejected(probe_at(at(LEASE + 10)));
    }
    cases! { t, w = running(probe()).wait(LEASE + 10);
        w.begin("p") => written(S::Running, look(2, 1, w.now), &looked).fence(1).open(1);
    }
    // A silent probe adds no doubt to the one it was to settle.
    cases! { t, w = probing(probe()).wait(LEASE);
        w.expire() => doubted().open(1);
    }
    // Nor does it leave one, when what it was to look up was cleared meanwhile.
    let (nothing, released) = (probing_nothing(probe()), [E::LeaseEnded, E::Released]);
    let and = |event| [released[0], released[1], event];
    cases! { t, w = nothing.clone().wait(LEASE);
        w.submit() => answered(KNOWN);
        w.queue("mail") => written(S::Pending, KNOWN, &and(E::QueueAttached));
        w.begin("b") => written(S::Running, act(3, 2, w.now), &and(E::Begun)).fence(1);
        w.begin("p") => rejected(Fenced);
        w.begin_seeing("b", "p", true) => rejected(in_flight(w.operation().lease_until()));
        w.expire() => written(S::Pending, Kept, &released);
    }
    cases! { t, w = nothing;
        w.begin_seeing("b", "p", false) =>
            written(S::Running, act(3, 2, w.now), &[E::HolderGone, E::Released, E::Begun]).fence(1);
        w.gone("p") => written(S::Pending, Kept, &[E::HolderGone, E::Released]);
    }
    cases! { t, w = probing_nothing(limited(1, probe())).wait(LEASE);
        w.submit() => rejected(Dead);
        w.begin("b") => rejected(Dead);
        w.expire() => written(S::Dead, Kept, &[E::LeaseEnded, E::Died]);
    }
    // An answer that rests on evidence stores the end that it rests on.
    let ends = [E::LeaseEnded, E::SettledLate];
    cases! { t, w = running_with_evidence().wait(LEASE);
        w.submit() => written(S::Succeeded, Replay, &ends).open(1).outcome(GOOD);
        w.begin("c") => written(S::Succeeded, Replay, &ends).open(1).outcome(GOOD);
        w.expire() => written(S::Succeeded, Kept, &ends).open(1).outcome(GOOD);
    }
}

fn in_doubt(t: &mut Table) {
    for doubt in [doubtful(hold()), lapsed(hold())] {
        cases! { t, w = doubt;
            w.submit() => rejected(IN_DOUBT);
            w.queue("mail") => rejected(IN_DOUBT);
            w.reused(&w.submit()) => rejected(KeyReused);
            w.begin("a") => rejected(OWN_DOUBT);
            w.begin("b") => rejected(IN_DOUBT);
            w.begin_seeing("b", "a", false) => rejected(IN_DOUBT);
            w.reused(&w.begin("b")) => rejected(KeyReused);
            w.expire() => answered(Kept);
            w.gone("a") => answered(Kept);
        }
    }
}

/// The window counts from the start of the oldest open attempt.
fn waived(t: &mut Table) {
    let waived = |fence, number, now| {
        let events = [E::DoubtWaived, E::Begun];
        written(S::Running, act(fence, number, now), &events).fence(1)
    };
    cases! { t, w = doubtful(retry()).wait(WINDOW - 1);
        w.begin("a") => rejected(OWN_DOUBT);
        w.begin("b") => waived(2, 2, w.now).open(1);
    }
    cases! { t, w = doubtful(retry()).wait(WINDOW);
        w.begin("b") => rejected(IN_DOUBT);
    }
    let twice = doubtful(retry())
        .wait(WINDOW - 1)
        .then(|w| w.begin("b"))
        .then(|w| w.unknown("b"));
    cases! { t, w = twice;
        w.begin("a") => rejected(Fenced);
        w.begin("c") => waived(3, 3, w.now).open(2);
    }
    cases! { t, w = twice.wait(1);
        w.begin("c") => rejected(IN_DOUBT);
    }
    cases! { t, w = doubtful_twice(limited(2, retry()));
        w.begin("c") => rejected(IN_DOUBT);
    }
    // A queued operation is its workers' to try again.
    let queued = World::new(limited(10, retry()))
        .then(|w| w.queue("mail"))
        .then(|w| w.work("a"))
        .then(|w| w.unknown("a"));
    cases! { t, w = queued;
        w.begin("b") => rejected(IN_DOUBT);
        w.work("b") => waived(2, 2, START).open(1);
    }
}

/// The lease's end counts, however early the doubt was told; a probe does not count as an attempt.
fn probed(t: &mut Table) {
    cases! { t, w = doubtful(probe()).wait(LEASE + 9);
        w.begin("p") => rejected(probe_at(at(LEASE + 10)));
        w.begin("a") => rejected(OWN_DOUBT);
    }
    cases! { t, w = doubtful(limited(1, probe())).wait(LEASE + 10);
        w.begin("p") => written(S::Running, look(2, 1, w.now), &[E::ProbeBegun]).fence(1).open(1);
    }
}

fn settled_or_dead(t: &mut Table) {
    for settled in [succeeded(), failed()] {
        cases! { t, w = settled;
            w.submit() => answered(Replay);
            w.queue("mail") => answered(Replay);
            w.reused(&w.submit()) => rejected(KeyReused);
            w.begin("b") => answered(Replay);
            w.begin("a") => answered(Replay);
            w.reused(&w.begin("b")) => rejected(KeyReused);
            w.expire() => answered(Kept);
            w.gone("a") => answered(Kept);
        }
    }
    for dead in [dead(), resolved_to_dead()] {
        cases! { t, w = dead;
            w.submit() => rejected(Dead);
            w.queue("mail") => rejected(Dead);
            w.reused(&w.submit()) => rejected(KeyReused);
            w.begin("b") => rejected(Dead);
            w.begin("a") => rejected(Dead);
            w.reused(&w.begin("b")) => rejected(KeyReused);
            w.expire() => answered(Kept);
        }
    }
    cases! { t, w = tombstone();
        w.submit() => rejected(Expired);
        w.reused(&w.submit()) => rejected(KeyReused);
        w.begin("b") => rejected(Expired);
        w.begin("a") => rejected(Expired);
        w.reused(&w.begin("b")) => rejected(KeyReused);
        w.expire() => answered(Kept);
    }
}
