//! The first table of the design, by those who hold or held a permit: Renew and Settle.

use super::states::*;
use super::table::*;
use super::world::*;
use crate::ledger::Event as E;
use crate::ledger::Rejection::{Expired, Fenced, NotFound};
use crate::ledger::Reply::{Refused, Renewed};
use crate::ledger::StateKind as S;
use crate::time::Timestamp;
use crate::verdict::Outcome;

pub(super) const COLUMNS: [&str; 4] = ["renew", "settle done", "settle not_done", "settle unknown"];

#[test]
fn every_cell_of_holders_decides_as_the_design_says() {
    let mut t = Table::default();
    nothing_stored(&mut t);
    pending(&mut t);
    running_alive_by_its_holder(&mut t);
    running_alive_with_evidence(&mut t);
    running_alive_by_older_attempts(&mut t);
    running_exp(&mut t);
    running_exp_with_evidence(&mut t);
    running_exp_with_nothing_in_doubt(&mut t);
    harmless_failures(&mut t);
    doubtful_by_the_latest(&mut t);
    doubtful_by_older_attempts(&mut t);
    settled(&mut t);
    dead_or_buried(&mut t);
    strangers(&mut t);
    t.finish(&COLUMNS);
}

/// The report decides, in time.
fn taken(state: S, event: E) -> Written {
    written(state, heard(state), &[event])
}

/// A late `done` settles.
fn late(outcome: Outcome) -> Written {
    let state = if outcome.ok { S::Succeeded } else { S::Failed };
    written(state, heard_late(state), &[E::SettledLate]).outcome(outcome)
}

fn renewed(lease_until: Timestamp) -> Written {
    written(S::Running, Renewed { lease_until }, &[E::Renewed])
}

fn nothing_stored(t: &mut Table) {
    let unplaced = |state: Option<S>| written(state, Refused(NotFound), &[E::Unplaced]);
    cases! { t, w = absent();
        w.renew("a") => rejected(NotFound);
        w.done("a", GOOD) => unplaced(None);
        w.not_done("a") => unplaced(None);
        w.unknown("a") => unplaced(None);
    }
    cases! { t, w = stub();
        w.renew("a") => rejected(NotFound);
        w.done("a", GOOD) => unplaced(Some(S::Stub));
        w.not_done("a") => unplaced(Some(S::Stub));
        w.unknown("a") => unplaced(Some(S::Stub));
    }
}

fn pending(t: &mut Table) {
    let cleared = || written(S::Pending, FENCED, &[E::MarkCleared]);
    let logged = || written(S::Pending, FENCED, &[E::Unplaced]);
    // `a` has spoken: it may only repeat itself.
    cases! { t, w = released();
        w.renew("a") => rejected(Fenced);
        w.done("a", GOOD) => rejected(Fenced);
        w.not_done("a") => answered(heard_again(S::Pending));
        w.unknown("a") => logged();
    }
    cases! { t, w = running_after_release().then(|w| w.not_done("b"));
        w.not_done("a") => rejected(Fenced);
        w.not_done("b") => answered(heard_again(S::Pending));
    }
    // `a` is older, open and unspoken; `b` is the latest and has spoken.
    cases! { t, w = pending_with_open();
        w.renew("a") => rejected(Fenced);
        w.done("a", GOOD) => late(GOOD);
        w.done("a", BAD) => late(BAD);
        w.done("b", GOOD) => rejected(Fenced);
        w.not_done("a") => cleared();
        w.not_done("b") => answered(heard_again(S::Pending));
        w.unknown("a") => logged().open(1);
    }
    // `a` is the latest and unspoken, and a person cleared its mark, which stays cleared.
    cases! { t, w = resolved_to_pending();
        w.done("a", OTHER) => late(OTHER);
        w.not_done("a") => cleared();
        w.unknown("a") => logged();
    }
    // After a Retry, whoever settled it has spoken.
    cases! { t, w = failed().then(World::retry);
        w.done("a", BAD) => rejected(Fenced);
        w.not_done("a") => rejected(Fenced);
        w.unknown("a") => logged();
    }
}

fn running_alive_by_its_holder(t: &mut Table) {
    let settled = |outcome| taken(S::Succeeded, E::Settled).outcome(outcome);
    cases! { t, w = running(hold()).wait(20);
        w.renew("a") => renewed(at(20 + LEASE));
        w.renew_for("a", 1) => renewed(at(LEASE));
        w.done("a", GOOD) => settled(GOOD);
        w.done("a", BAD) => taken(S::Failed, E::Settled).outcome(BAD);
        w.not_done("a") => taken(S::Pending, E::Released);
        w.reject("a") => taken(S::Dead, E::Died);
        w.unknown("a") => taken(S::Doubtful, E::Doubted).open(1);
    }
    cases! { t, w = running(hold()).wait(LEASE - 1);
        w.renew("a") => renewed(at(2 * LEASE - 1));
    }
    // Out of attempts: dead, unless something is open.
    cases! { t, w = running(limited(1, hold()));
        w.not_done("a") => taken(S::Dead, E::Died);
    }
    cases! { t, w = running_second(limited(2, retry()));
        w.not_done("b") => taken(S::Doubtful, E::Doubted).open(1);
    }
    cases! { t, w = running_second(retry());
        w.not_done("b") => taken(S::Pending, E::Released).open(1);
        w.reject("b") => taken(S::Doubtful, E::Doubted).open(1);
    }
    // A probe that finds nothing speaks for everything in doubt; its silence adds no doubt.
    cases! { t, w = probing(probe());
        w.done("p", GOOD) => settled(GOOD).open(1);
        w.not_done("p") => taken(S::Pending, E::Released);
        w.unknown("p") => taken(S::Doubtful, E::Doubted).open(1);
    }
    cases! { t, w = probing(limited(1, probe()));
        w.not_done("p") => taken(S::Dead, E::Died);
    }
    // With nothing left to look up, its silence leaves nothing to doubt.
    cases! { t, w = probing_nothing(probe());
        w.done("p", GOOD) => settled(GOOD);
        w.not_done("p") => taken(S::Pending, E::Released);
        w.reject("p") => taken(S::Dead, E::Died);
        w.unknown("p") => taken(S::Pending, E::Released);
        w.not_done("a") => rejected(Fenced);
    }
    cases! { t, w = probing_nothing(limited(1, probe()));
        w.not_done("p") => taken(S::Dead, E::Died);
        w.unknown("p") => taken(S::Dead, E::Died);
    }
}

/// Any end but `done` settles by the evidence.
fn running_alive_with_evidence(t: &mut Table) {
    let by_evidence = || taken(S::Succeeded, E::SettledLate).outcome(GOOD);
    let conflict = [E::Settled, E::Conflict];
    cases! { t, w = running_with_evidence();
        w.renew("b") => renewed(at(LEASE)).evidence(GOOD);
        w.not_done("b") => by_evidence();
        w.reject("b") => by_evidence();
        w.unknown("b") => by_evidence().open(1);
        w.done("b", GOOD) => taken(S::Succeeded, E::Settled).outcome(GOOD);
        w.done("b", OTHER) =>
            written(S::Succeeded, contradicted(S::Succeeded), &conflict).outcome(OTHER);
    }
}

fn running_alive_by_older_attempts(t: &mut Table) {
    let kept = |events: &[E]| written(S::Running, FENCED, events).evidence(GOOD);
    cases! { t, w = running_second(retry());
        w.renew("a") => rejected(Fenced);
        w.done("a", GOOD) => kept(&[E::EvidenceKept]);
        w.not_done("a") => written(S::Running, FENCED, &[E::MarkCleared]);
        w.unknown("a") => rejected(Fenced);
    }
    // The first evidence stays.
    let third = doubtful_twice(retry())
        .then(|w| w.begin("c"))
        .then(|w| w.done("a", GOOD));
    cases! { t, w = third;
        w.done("b", GOOD) => kept(&[E::EvidenceKept]);
        w.done("b", OTHER) => kept(&[E::EvidenceKept, E::Conflict]);
        w.not_done("b") => kept(&[E::MarkCleared]);
    }
    // Who has spoken is not heard again.
    for spoken in [running_after_release(), running_with_evidence()] {
        cases! { t, w = spoken;
            w.renew("a") => rejected(Fenced);
            w.done("a", OTHER) => rejected(Fenced);
            w.not_done("a") => rejected(Fenced);
            w.unknown("a") => rejected(Fenced);
        }
    }
}

fn running_exp(t: &mut Table) {
    let with = |event| [E::LeaseEnded, E::Doubted, event];
    let late = |state, event| written(state, heard_late(state), &with(event));
    let doubt = || {
        written(
            S::Doubtful,
            heard_late(S::Doubtful),
            &[E::LeaseEnded, E::Doubted],
        )
    };
    cases! { t, w = running(hold()).wait(LEASE);
        w.renew("a") => rejected(Fenced);
        w.done("a", GOOD) => late(S::Succeeded, E::SettledLate).outcome(GOOD);
        w.done("a", BAD) => late(S::Failed, E::SettledLate).outcome(BAD);
        w.not_done("a") => late(S::Pending, E::Released);
        w.reject("a") => late(S::Dead, E::Died);
        w.unknown("a") => doubt().open(1);
    }
    cases! { t, w = running(limited(1, hold())).wait(LEASE);
        w.not_done("a") => late(S::Dead, E::Died);
    }
    // `a` is open and unspoken, and the lease of `b` has ended.
    cases! { t, w = running_second(limited(2, retry())).wait(LEASE);
        w.renew("a") => rejected(Fenced);
        w.not_done("b") => doubt().open(1);
        w.done("a", GOOD) => late(S::Succeeded, E::SettledLate).open(1).outcome(GOOD);
        w.not_done("a") => written(S::Doubtful, FENCED, &with(E::MarkCleared)).open(1);
        w.unknown("a") => answered(heard_again_late(S::Doubtful));
    }
    cases! { t, w = running_second(retry()).wait(LEASE);
        w.not_done("b") => late(S::Pending, E::Released).open(1);
    }
    cases! { t, w = running_after_release().wait(LEASE);
        w.done("a", GOOD) => rejected(Fenced);
        w.not_done("a") => rejected(Fenced);
    }
    // A silent probe leaves nothing open, so what clears the last mark releases.
    let released = [E::LeaseEnded, E::Doubted, E::Released, E::MarkCleared];
    cases! { t, w = probing(probe()).wait(LEASE);
        w.not_done("p") => late(S::Pending, E::Released);
        w.not_done("a") => written(S::Pending, FENCED, &released);
    }
}

/// A silent probe had nothing left to look up: the operation went on when its lease ended.
fn running_exp_with_nothing_in_doubt(t: &mut Table) {
    let late = |state, events: &[E]| written(state, heard_late(state), events);
    let released = [E::LeaseEnded, E::Released];
    let and = |event| [E::LeaseEnded, E::Released, event];
    cases! { t, w = probing_nothing(probe()).wait(LEASE);
        w.renew("p") => rejected(Fenced);
        w.done("p", GOOD) => late(S::Succeeded, &and(E::SettledLate)).outcome(GOOD);
        w.not_done("p") => late(S::Pending, &released);
        w.reject("p") => late(S::Dead, &and(E::Died));
        w.unknown("p") => late(S::Pending, &released);
        w.not_done("a") => rejected(Fenced);
        w.unknown("a") => written(S::Pending, FENCED, &and(E::Unplaced));
    }
    let died = [E::LeaseEnded, E::Died];
    cases! { t, w = probing_nothing(limited(1, probe())).wait(LEASE);
        w.done("p", GOOD) =>
            late(S::Succeeded, &[E::LeaseEnded, E::Died, E::SettledLate]).outcome(GOOD);
        w.not_done("p") => late(S::Dead, &died);
        w.unknown("p") => late(S::Dead, &died);
        w.unknown("a") => rejected(Fenced);
    }
}

/// The evidence has settled it, so every report meets an outcome.
fn running_exp_with_evidence(t: &mut Table) {
    let ends = [E::LeaseEnded, E::SettledLate];
    let spoken = [E::LeaseEnded, E::SettledLate, E::MarkCleared];
    let conflict = [E::LeaseEnded, E::SettledLate, E::Conflict];
    let settled = |reply, events: &[E]| written(S::Succeeded, reply, events).outcome(GOOD);
    cases! { t, w = running_with_evidence().wait(LEASE);
        w.renew("b") => rejected(Fenced);
        w.done("b", GOOD) => settled(heard_late(S::Succeeded), &spoken);
        w.done("b", OTHER) => settled(contradicted_late(S::Succeeded), &conflict);
        w.not_done("b") => settled(contradicted_late(S::Succeeded), &conflict);
        w.unknown("b") => settled(heard_late(S::Succeeded), &ends).open(1);
        w.done("a", GOOD) => settled(heard_late(S::Succeeded), &ends).open(1);
    }
}

/// A failure that changed nothing is `noop` only where nothing else may have changed something.
fn harmless_failures(t: &mut Table) {
    let settled = |outcome| taken(S::Failed, E::Settled).outcome(outcome);
    cases! { t, w = running_after_release();
        w.done("b", HARMLESS) => settled(HARMLESS);
    }
    cases! { t, w = running_second(retry());
        w.done("b", HARMLESS) => settled(BAD).open(1);
        w.done("b", QUIET) => taken(S::Succeeded, E::Settled).outcome(QUIET).open(1);
    }
    cases! { t, w = pending_with_open();
        w.done("a", HARMLESS) => late(HARMLESS);
    }
    for doubt in [doubtful_twice(retry()), doubtful_twice(limited(2, retry()))] {
        cases! { t, w = doubt;
            w.done("a", HARMLESS) => late(BAD).open(1);
            w.done("b", HARMLESS) => late(BAD).open(1);
            w.done("a", QUIET) => late(QUIET).open(1);
        }
    }
    cases! { t, w = resolved_to_dead();
        w.done("a", HARMLESS) => late(HARMLESS);
    }
    // As evidence it is kept as it was said, and counts for what it proves in the end.
    let evidence = running_second(retry()).then(|w| w.done("a", HARMLESS));
    let by_evidence = |outcome| taken(S::Failed, E::SettledLate).outcome(outcome);
    cases! { t, w = evidence;
        w.renew("b") => renewed(at(LEASE)).evidence(HARMLESS);
        w.done("b", HARMLESS) => settled(HARMLESS);
        w.not_done("b") => by_evidence(HARMLESS);
        w.reject("b") => by_evidence(HARMLESS);
        w.unknown("b") => by_evidence(BAD).open(1);
    }
    let (ends, spoken) = ([E::LeaseEnded, E::SettledLate], E::MarkCleared);
    let after = |events: &[E]| written(S::Failed, heard_late(S::Failed), events).outcome(BAD);
    cases! { t, w = evidence.wait(LEASE);
        w.unknown("b") => after(&ends).open(1);
        w.done("b", HARMLESS) => after(&[ends[0], ends[1], spoken]);
        w.done("a", HARMLESS) => after(&ends).open(1);
        // The end of the lease counts first, whatever comes with it.
        w.not_done("b") =>
            written(S::Failed, contradicted_late(S::Failed), &[ends[0], ends[1], E::Conflict])
                .outcome(BAD);
    }
    // Who contradicts it was applied, or may have been.
    let conflict = [E::Settled, E::Conflict];
    cases! { t, w = running_with_evidence();
        w.done("b", HARMLESS) =>
            written(S::Failed, contradicted(S::Failed), &conflict).outcome(BAD);
    }
    let third = doubtful_twice(retry())
        .then(|w| w.begin("c"))
        .then(|w| w.done("a", HARMLESS));
    let kept = [E::EvidenceKept, E::Conflict];
    cases! { t, w = third;
        w.done("b", GOOD) => written(S::Running, FENCED, &kept).evidence(BAD);
        w.done("b", HARMLESS) =>
            written(S::Running, FENCED, &[E::EvidenceKept]).evidence(HARMLESS);
    }
    // A probe looked at everything that was in doubt.
    for probe in [probing(probe()), probing(probe()).then(|w| w.unknown("p"))] {
        let reply = if probe.kind() == Some(S::Running) {
            settled
        } else {
            late
        };
        cases! { t, w = probe;
            w.done("p", HARMLESS) => reply(HARMLESS);
        }
    }
    // What is stored says less than was reported, which is no contradiction.
    let again = || answered(heard_again(S::Failed));
    let conflict = || written(S::Failed, contradicted(S::Failed), &[E::Conflict]).outcome(BAD);
    cases! { t, w = running_second(retry()).then(|w| w.done("b", HARMLESS));
        w.done("b", HARMLESS) => again();
        w.done("b", GOOD) => conflict().open(1);
        w.unknown("a") => again();
        w.done("a", HARMLESS) => taken(S::Failed, E::MarkCleared).outcome(BAD);
        w.done("a", GOOD) => conflict();
    }
}

fn doubtful_by_the_latest(t: &mut Table) {
    // `a` said `unknown`, which a definite verdict may follow.
    cases! { t, w = doubtful(hold());
        w.renew("a") => rejected(Fenced);
        w.done("a", GOOD) => late(GOOD);
        w.done("a", BAD) => late(BAD);
        w.not_done("a") => taken(S::Pending, E::Released);
        w.reject("a") => taken(S::Dead, E::Died);
        w.unknown("a") => answered(heard_again(S::Doubtful));
    }
    // `a` said nothing yet.
    cases! { t, w = lapsed(hold());
        w.renew("a") => rejected(Fenced);
        w.done("a", GOOD) => late(GOOD);
        w.not_done("a") => taken(S::Pending, E::Released);
        w.unknown("a") => taken(S::Doubtful, E::Doubted).open(1);
    }
    cases! { t, w = doubtful(limited(1, hold()));
        w.not_done("a") => taken(S::Dead, E::Died);
    }
    // `a` is open too.
    cases! { t, w = doubtful_twice(limited(2, retry()));
        w.done("b", GOOD) => late(GOOD).open(1);
        w.not_done("b") => taken(S::Doubtful, E::Doubted).open(1);
    }
    cases! { t, w = doubtful_twice(retry());
        w.not_done("b") => taken(S::Pending, E::Released).open(1);
    }
    // `b` has spoken.
    cases! { t, w = exhausted_with_open();
        w.renew("b") => rejected(Fenced);
        w.done("b", GOOD) => rejected(Fenced);
        w.not_done("b") => answered(heard_again(S::Doubtful));
        w.unknown("b") => answered(heard_again(S::Doubtful));
    }
    cases! { t, w = probing(probe()).then(|w| w.unknown("p"));
        w.done("p", GOOD) => late(GOOD).open(1);
        w.not_done("p") => taken(S::Pending, E::Released);
    }
}

fn doubtful_by_older_attempts(t: &mut Table) {
    // `b` is open too.
    cases! { t, w = doubtful_twice(limited(2, retry()));
        w.renew("a") => rejected(Fenced);
        w.done("a", GOOD) => late(GOOD).open(1);
        w.not_done("a") => written(S::Doubtful, FENCED, &[E::MarkCleared]).open(1);
        w.unknown("a") => answered(heard_again(S::Doubtful));
    }
    cases! { t, w = doubtful_twice(retry()).then(|w| w.not_done("a"));
        w.done("a", GOOD) => rejected(Fenced);
        w.not_done("a") => rejected(Fenced);
    }
    // Only `a` is open: once it says `not_done`, nothing is in doubt any more.
    cases! { t, w = exhausted_with_open();
        w.done("a", GOOD) => late(GOOD);
        w.not_done("a") => written(S::Dead, FENCED, &[E::Died, E::MarkCleared]);
    }
    // `b` rejected it: attempts that are left do not matter any more.
    cases! { t, w = rejected_with_open();
        w.done("a", GOOD) => late(GOOD);
        w.not_done("a") => written(S::Dead, FENCED, &[E::Died, E::MarkCleared]);
        w.not_done("b") => answered(heard_again(S::Doubtful));
        w.unknown("a") => answered(heard_again(S::Doubtful));
    }
    cases! { t, w = probing(probe()).then(|w| w.unknown("p"));
        w.done("a", GOOD) => late(GOOD);
        w.not_done("a") => written(S::Pending, FENCED, &[E::Released, E::MarkCleared]);
    }
}

fn settled(t: &mut Table) {
    for (settled, state, outcome) in [
        (succeeded(), S::Succeeded, GOOD),
        (failed(), S::Failed, BAD),
    ] {
        let conflict = || written(state, contradicted(state), &[E::Conflict]).outcome(outcome);
        cases! { t, w = settled;
            w.renew("a") => rejected(Fenced);
            w.done("a", outcome) => answered(heard_again(state));
            w.done("a", OTHER) => conflict();
            w.not_done("a") => conflict();
            w.unknown("a") => answered(heard_again(state));
        }
    }
    // A stale duplicate of what an attempt said before contradicts nothing.
    cases! { t, w = running_after_release().then(|w| w.done("b", GOOD));
        w.not_done("a") => answered(heard_again(S::Succeeded));
    }
    // An attempt's first definite verdict is stored, even when it changes nothing else.
    cases! { t, w = doubtful_twice(retry()).then(|w| w.done("a", GOOD));
        w.done("b", GOOD) => taken(S::Succeeded, E::MarkCleared).outcome(GOOD);
        w.done("b", OTHER) =>
            written(S::Succeeded, contradicted(S::Succeeded), &[E::Conflict]).outcome(GOOD);
        w.unknown("b") => answered(heard_again(S::Succeeded));
    }
}

fn dead_or_buried(t: &mut Table) {
    // `a` has spoken.
    cases! { t, w = dead();
        w.renew("a") => rejected(Fenced);
        w.done("a", GOOD) => rejected(Fenced);
        w.not_done("a") => rejected(Fenced);
        w.unknown("a") => rejected(Fenced);
    }
    // `a` has not; its first definite verdict is stored, whatever it is.
    cases! { t, w = resolved_to_dead();
        w.done("a", GOOD) => late(GOOD);
        w.not_done("a") => written(S::Dead, FENCED, &[E::MarkCleared]);
        w.unknown("a") => rejected(Fenced);
    }
    let expired = || written(S::Tombstone, Refused(Expired), &[E::Unplaced]);
    cases! { t, w = tombstone();
        w.renew("a") => rejected(Fenced);
        w.done("a", GOOD) => expired();
        w.not_done("a") => expired();
        w.unknown("a") => expired();
    }
}

/// Who names no attempt of this operation is fenced in every state: by a strange id, or by a known
/// id with a strange fence.
fn strangers(t: &mut Table) {
    let states = [
        submitted(),
        queued(),
        released(),
        pending_with_open(),
        resolved_to_pending(),
        running(hold()),
        running_second(retry()),
        running_with_evidence(),
        running(hold()).wait(LEASE),
        running_with_evidence().wait(LEASE),
        doubtful(hold()),
        doubtful_twice(retry()),
        exhausted_with_open(),
        succeeded(),
        failed(),
        dead(),
        resolved_to_dead(),
    ];
    for state in states {
        cases! { t, w = state;
            w.renew("stranger") => rejected(Fenced);
            w.done("stranger", GOOD) => rejected(Fenced);
            w.not_done("stranger") => rejected(Fenced);
            w.unknown("stranger") => rejected(Fenced);
            off_by_one(w.renew("a")) => rejected(Fenced);
            off_by_one(w.done("a", GOOD)) => rejected(Fenced);
            off_by_one(w.not_done("a")) => rejected(Fenced);
            off_by_one(w.unknown("a")) => rejected(Fenced);
        }
    }
}
