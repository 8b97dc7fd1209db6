//! The second table of the design: what operators, retention and a restore may do in each state,
//! and the delivery mark.

use std::collections::BTreeSet;

use super::states::*;
use super::table::*;
use super::world::*;
use super::{callers, holders};
use crate::effect::Effect;
use crate::ledger::Event as E;
use crate::ledger::Rejection::{Expired, Fenced, NotFound};
use crate::ledger::Reply::{Kept, Replay};
use crate::ledger::StateKind as S;
use crate::ledger::{Command, Decision, Delivery, Horizon};

const COLUMNS: [&str; 9] = [
    "resolve done",
    "resolve not_done",
    "retry",
    "cancel",
    "forget",
    "bury",
    "drop",
    "deliver",
    "adopt",
];

#[test]
fn every_cell_of_operators_and_retention_decides_as_the_design_says() {
    let mut t = Table::default();
    nothing_stored(&mut t);
    pending(&mut t);
    running_alive(&mut t);
    running_exp(&mut t);
    doubted(&mut t);
    settled(&mut t);
    retried_failures(&mut t);
    died(&mut t);
    buried(&mut t);
    repeats_of_accepted_orders(&mut t);
    orders_on_another_version(&mut t);
    t.finish(&COLUMNS);
}

#[test]
fn the_tables_have_a_column_for_every_command() {
    let columns = callers::COLUMNS.iter().chain(&holders::COLUMNS);
    let commands: BTreeSet<_> = columns
        .chain(&COLUMNS)
        .filter_map(|column| column.split(' ').next())
        // Breakers have a table of their own.
        .chain(["breaker"])
        .collect();
    assert_eq!(commands, Command::NAMES.into_iter().collect());
}

/// Makes an order in a world.
type Asked = fn(&World) -> Command;

/// An order leads to this state.
fn accepted(state: S, event: E) -> Written {
    written(state, ordered(state), &[event])
}

fn nothing_stored(t: &mut Table) {
    for nothing in [absent(), stub()] {
        cases! { t, w = nothing;
            w.resolve_done(GOOD) => rejected(NotFound);
            w.resolve_not_done() => rejected(NotFound);
            w.retry() => rejected(NotFound);
            w.cancel() => rejected(NotFound);
            w.forget() => answered(ordered(S::Stub));
            w.bury() => answered(Kept);
            w.drop() => answered(Kept);
            w.deliver() => rejected(NotFound);
        }
    }
    cases! { t, w = absent();
        w.adopt() => answered(Kept);
    }
    cases! { t, w = stub();
        off_by_one(w.forget()) => answered(ordered(S::Stub));
        off_by_one(w.retry()) => rejected(NotFound);
        w.adopt() => written(S::Stub, Kept, &[E::Adopted]).fence(STEP);
        Command::Drop(Horizon(at(YEAR))) => answered(Kept);
    }
    // The last trace goes after its time, and not because the clock alone jumped there.
    cases! { t, w = stub().wait(YEAR);
        w.drop() => written(None, Kept, &[E::Dropped]);
        w.bury() => answered(Kept);
        Command::Drop(Horizon(at(MONTH))) => answered(Kept);
    }
}

/// Retention never touches this, however old it is.
fn kept_for_ever(t: &mut Table, world: &World, state: S) {
    for age in [0, 2 * YEAR] {
        cases! { t, w = world.clone().wait(age);
            w.bury() => rejected(refused(state));
            w.drop() => rejected(refused(state));
        }
    }
}

fn pending(t: &mut Table) {
    // Nothing is open, so there is nothing to resolve.
    for waiting in [submitted(), queued(), released(), resolved_to_pending()] {
        cases! { t, w = waiting;
            w.resolve_done(GOOD) => rejected(refused(S::Pending));
            w.resolve_not_done() => rejected(refused(S::Pending));
            w.retry() => answered(ordered(S::Pending));
            w.cancel() => accepted(S::Failed, E::Cancelled).outcome(HARMLESS);
            w.forget() => rejected(refused(S::Pending));
            w.deliver() => written(S::Pending, Kept, &[E::Delivered]);
            w.adopt() => written(S::Pending, Kept, &[E::Adopted]).fence(STEP);
        }
        kept_for_ever(t, &waiting, S::Pending);
    }
    cases! { t, w = pending_with_open();
        w.resolve_done(GOOD) => accepted(S::Succeeded, E::Resolved).outcome(GOOD);
        w.resolve_done(BAD) => accepted(S::Failed, E::Resolved).outcome(BAD);
        w.resolve_not_done() => accepted(S::Pending, E::Resolved);
        w.retry() => answered(ordered(S::Pending));
        w.cancel() => rejected(IN_DOUBT);
        w.forget() => rejected(refused(S::Pending));
        w.deliver() => written(S::Pending, Kept, &[E::Delivered]).open(1);
        w.adopt() => written(S::Pending, Kept, &[E::Adopted]).fence(STEP).open(1);
    }
    kept_for_ever(t, &pending_with_open(), S::Pending);
}

fn running_alive(t: &mut Table) {
    let until = in_flight(Some(at(LEASE)));
    for alive in [
        running(hold()),
        running_second(retry()),
        running_with_evidence(),
    ] {
        cases! { t, w = alive;
            w.resolve_done(GOOD) => rejected(until);
            w.resolve_not_done() => rejected(until);
            w.retry() => rejected(until);
            w.cancel() => rejected(until);
            w.forget() => rejected(refused(S::Running));
            w.bury() => rejected(refused(S::Running));
            w.drop() => rejected(refused(S::Running));
        }
    }
    let adopted = [E::HolderGone, E::Doubted, E::Adopted];
    cases! { t, w = running(hold());
        w.deliver() => written(S::Running, Kept, &[E::Delivered]);
        w.adopt() => written(S::Doubtful, Kept, &adopted).fence(STEP).open(1);
    }
    let adopted = [E::HolderGone, E::SettledLate, E::Adopted];
    cases! { t, w = running_with_evidence();
        w.deliver() => written(S::Running, Kept, &[E::Delivered]).evidence(GOOD);
        w.adopt() => written(S::Succeeded, Kept, &adopted).fence(STEP).open(1).outcome(GOOD);
    }
}

fn running_exp(t: &mut Table) {
    let events = [E::LeaseEnded, E::Doubted, E::Resolved];
    let resolved = |state| written(state, ordered(state), &events);
    let adopted = [E::HolderGone, E::Doubted, E::Adopted];
    cases! { t, w = running(hold()).wait(LEASE);
        w.resolve_done(GOOD) => resolved(S::Succeeded).outcome(GOOD);
        w.resolve_done(BAD) => resolved(S::Failed).outcome(BAD);
        w.resolve_not_done() => resolved(S::Pending);
        w.retry() => rejected(IN_DOUBT);
        w.cancel() => rejected(IN_DOUBT);
        w.forget() => rejected(refused(S::Doubtful));
        w.deliver() => written(S::Running, Kept, &[E::Delivered]);
        w.adopt() => written(S::Doubtful, Kept, &adopted).fence(STEP).open(1);
    }
    cases! { t, w = running(limited(1, hold())).wait(LEASE);
        w.resolve_not_done() => resolved(S::Dead);
    }
    kept_for_ever(t, &running(hold()).wait(LEASE), S::Running);

    // A silent probe had nothing left to look up, so the orders meet what waits or is dead.
    let cancelled = |event| {
        let events = [E::LeaseEnded, event, E::Cancelled];
        written(S::Failed, ordered(S::Failed), &events).outcome(HARMLESS)
    };
    cases! { t, w = probing_nothing(probe()).wait(LEASE);
        w.resolve_done(GOOD) => rejected(refused(S::Pending));
        w.resolve_not_done() => rejected(refused(S::Pending));
        w.retry() => answered(ordered(S::Pending));
        w.cancel() => cancelled(E::Released);
        w.forget() => rejected(refused(S::Pending));
        w.adopt() =>
            written(S::Pending, Kept, &[E::HolderGone, E::Released, E::Adopted]).fence(STEP);
    }
    let retried = |effect| {
        written(
            S::Pending,
            retried(effect, false),
            &[E::LeaseEnded, E::Died, E::Retried],
        )
    };
    cases! { t, w = probing_nothing(limited(1, probe())).wait(LEASE);
        w.resolve_not_done() => answered(ordered(S::Dead));
        w.retry() => retried(Effect::Noop);
        w.cancel() => cancelled(E::Died);
    }

    // The evidence has settled it, so the orders meet an outcome; retention waits for the write.
    let ends = [E::LeaseEnded, E::SettledLate];
    cases! { t, w = running_with_evidence().wait(LEASE);
        w.resolve_done(OTHER) => rejected(refused(S::Succeeded));
        w.resolve_not_done() => rejected(refused(S::Succeeded));
        w.retry() => written(S::Succeeded, Replay, &ends).open(1).outcome(GOOD);
        w.cancel() => rejected(refused(S::Succeeded));
        w.forget() => accepted(S::Stub, E::Forgotten);
    }
    kept_for_ever(t, &running_with_evidence().wait(LEASE), S::Running);
}

fn doubted(t: &mut Table) {
    for doubt in [doubtful(hold()), lapsed(hold()), doubtful_twice(retry())] {
        cases! { t, w = doubt;
            w.resolve_done(GOOD) => accepted(S::Succeeded, E::Resolved).outcome(GOOD);
            w.resolve_done(BAD) => accepted(S::Failed, E::Resolved).outcome(BAD);
            w.resolve_not_done() => accepted(S::Pending, E::Resolved);
            w.retry() => rejected(IN_DOUBT);
            w.cancel() => rejected(IN_DOUBT);
            w.forget() => rejected(refused(S::Doubtful));
        }
        kept_for_ever(t, &doubt, S::Doubtful);
    }
    cases! { t, w = doubtful(limited(1, hold()));
        w.resolve_not_done() => accepted(S::Dead, E::Resolved);
        w.deliver() => written(S::Doubtful, Kept, &[E::Delivered]).open(1);
        w.adopt() => written(S::Doubtful, Kept, &[E::Adopted]).fence(STEP).open(1);
    }
    for ended in [exhausted_with_open(), rejected_with_open()] {
        cases! { t, w = ended;
            w.resolve_not_done() => accepted(S::Dead, E::Resolved);
        }
    }
}

fn settled(t: &mut Table) {
    for (settled, state, outcome) in [
        (succeeded(), S::Succeeded, GOOD),
        (failed(), S::Failed, BAD),
    ] {
        cases! { t, w = settled;
            w.resolve_done(outcome) => rejected(refused(state));
            w.resolve_not_done() => rejected(refused(state));
            w.cancel() => rejected(refused(state));
            w.forget() => accepted(S::Stub, E::Forgotten);
            w.drop() => rejected(refused(state));
            w.deliver() => written(state, Kept, &[E::Delivered]).outcome(outcome);
            w.adopt() => written(state, Kept, &[E::Adopted]).fence(STEP).outcome(outcome);
        }
        // Buried after its retention, and not because the clock alone jumped there.
        cases! { t, w = settled;
            w.bury() => answered(Kept);
            Command::Bury(Horizon(at(MONTH))) => answered(Kept);
        }
        cases! { t, w = settled.clone().wait(MONTH);
            w.bury() => written(S::Tombstone, Kept, &[E::Buried]);
            w.drop() => rejected(refused(state));
            Command::Bury(Horizon(START)) => answered(Kept);
        }
    }
    // The delivery mark may go down again, and is not written twice.
    cases! { t, w = succeeded().then(World::deliver);
        w.deliver() => answered(Kept);
        Command::Deliver(Delivery::Undelivered) =>
            written(S::Succeeded, Kept, &[E::Delivered]).outcome(GOOD);
    }
}

/// A failure that may have left something behind is told apart from one that has not.
fn retried_failures(t: &mut Table) {
    let fresh = |effect| written(S::Pending, retried(effect, false), &[E::Retried]);
    cases! { t, w = succeeded();
        w.retry() => answered(Replay);
    }
    cases! { t, w = failed();
        w.retry() => fresh(Effect::Unknown);
    }
    cases! { t, w = running(hold()).then(|w| w.done("a", HARMLESS));
        w.retry() => fresh(Effect::Noop);
    }
    cases! { t, w = submitted().then(World::cancel);
        w.retry() => fresh(Effect::Noop);
    }
    // One attempt's harmless failure proves nothing about another that is still open.
    let harmless = running_second(retry())
        .then(|w| w.done("a", HARMLESS))
        .then(|w| w.unknown("b"));
    cases! { t, w = harmless;
        w.retry() => fresh(Effect::Unknown).open(1);
    }
}

fn died(t: &mut Table) {
    let rejected_by_handler = running(hold()).then(|w| w.reject("a"));
    for dead in [dead(), resolved_to_dead(), rejected_by_handler] {
        cases! { t, w = dead;
            w.resolve_done(GOOD) => accepted(S::Succeeded, E::Resolved).outcome(GOOD);
            w.resolve_done(BAD) => accepted(S::Failed, E::Resolved).outcome(BAD);
            w.resolve_not_done() => answered(ordered(S::Dead));
            w.retry() => written(S::Pending, retried(Effect::Noop, false), &[E::Retried]);
            w.cancel() => accepted(S::Failed, E::Cancelled).outcome(HARMLESS);
            w.forget() => rejected(refused(S::Dead));
            w.deliver() => written(S::Dead, Kept, &[E::Delivered]);
            w.adopt() => written(S::Dead, Kept, &[E::Adopted]).fence(STEP);
        }
        kept_for_ever(t, &dead, S::Dead);
    }
}

fn buried(t: &mut Table) {
    cases! { t, w = tombstone();
        w.resolve_done(GOOD) => rejected(Expired);
        w.resolve_not_done() => rejected(Expired);
        w.retry() => rejected(Expired);
        w.cancel() => rejected(Expired);
        off_by_one(w.cancel()) => rejected(Expired);
        w.forget() => accepted(S::Stub, E::Forgotten);
        off_by_one(w.forget()) => rejected(Fenced);
        w.bury() => answered(Kept);
        w.drop() => answered(Kept);
        w.deliver() => written(S::Tombstone, Kept, &[E::Delivered]);
        w.adopt() => written(S::Tombstone, Kept, &[E::Adopted]).fence(STEP);
        Command::Drop(Horizon(at(2 * YEAR))) => answered(Kept);
    }
    cases! { t, w = tombstone().then(World::deliver);
        w.deliver() => answered(Kept);
    }
    cases! { t, w = tombstone().wait(YEAR);
        w.drop() => written(S::Stub, Kept, &[E::Dropped]);
        w.bury() => answered(Kept);
        Command::Drop(Horizon(START)) => answered(Kept);
    }
}

/// The repeat of the last accepted order gets the same answer, in whatever state it led to.
fn repeats_of_accepted_orders(t: &mut Table) {
    let given: [(World, Asked, S); 7] = [
        (doubtful(hold()), |w| w.resolve_done(GOOD), S::Succeeded),
        (doubtful(hold()), |w| w.resolve_done(BAD), S::Failed),
        (doubtful(hold()), World::resolve_not_done, S::Pending),
        (resolvable_to_dead(), World::resolve_not_done, S::Dead),
        (pending_with_open(), World::resolve_not_done, S::Pending),
        (submitted(), World::cancel, S::Failed),
        (dead(), World::cancel, S::Failed),
    ];
    for (before, order, state) in given {
        let again = order(&before);
        let after = before.then(order);
        cases! { t, w = after;
            again.clone() => answered(ordered_again(state));
            off_by_one(w.retry()) => rejected(Fenced);
        }
        // The same order on the new version is another order.
        let same = Ok(Decision::Answer(ordered_again(state)));
        assert_ne!(after.ask(order), same);
    }
    for (before, effect) in [(failed(), Effect::Unknown), (dead(), Effect::Noop)] {
        let again = before.retry();
        cases! { t, w = before.then(World::retry);
            again.clone() => answered(retried(effect, true));
        }
    }
    // Forget leaves nothing that could remember it: the stub alone says that it is done.
    for before in [succeeded(), failed(), tombstone()] {
        let again = before.forget();
        cases! { t, w = before.then(World::forget);
            again.clone() => answered(ordered(S::Stub));
        }
    }
    cases! { t, w = doubtful(hold()).then(|w| w.resolve_done(GOOD));
        w.resolve_done(GOOD) => rejected(refused(S::Succeeded));
        w.resolve_done(OTHER) => rejected(refused(S::Succeeded));
    }
    cases! { t, w = submitted().then(World::cancel);
        w.cancel() => rejected(refused(S::Failed));
    }
}

/// An order that was decided on another version is refused wherever there is a version to compare.
fn orders_on_another_version(t: &mut Table) {
    let states = [
        submitted(),
        released(),
        pending_with_open(),
        running(hold()),
        running(hold()).wait(LEASE),
        running_with_evidence().wait(LEASE),
        doubtful(hold()),
        succeeded(),
        failed(),
        dead(),
    ];
    for state in states {
        cases! { t, w = state;
            off_by_one(w.resolve_done(GOOD)) => rejected(Fenced);
            off_by_one(w.resolve_not_done()) => rejected(Fenced);
            off_by_one(w.retry()) => rejected(Fenced);
            off_by_one(w.cancel()) => rejected(Fenced);
            off_by_one(w.forget()) => rejected(Fenced);
        }
    }
}
