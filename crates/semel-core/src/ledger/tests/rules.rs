//! The numbered rules of the design, each replayed as the trace that would go wrong without it.

use core::time::Duration;

use super::states::*;
use super::table::*;
use super::world::*;
use crate::effect::Effect;
use crate::ledger::Rejection::{Fenced, NotFound};
use crate::ledger::StateKind as S;
use crate::ledger::{
    ATTEMPTS_REMEMBERED, Command, Decision, Event, Fence, Order, Rejection, Reply, Reported,
    Resolution, Resolve, State, parent_permits,
};
use crate::policy::{Class, Policy};
use crate::retry::{BASE, CAP};
use crate::time::Timestamp;
use crate::verdict::Outcome;

/// Returns what a settled operation came to.
fn outcome(world: &World) -> Outcome {
    let settled = world.operation().settled();
    settled.expect("the operation is settled").outcome
}

/// Says whether a command gives a permit.
fn grants(world: &World, command: impl Fn(&World) -> Command) -> bool {
    match world.ask(command) {
        Ok(Decision::Answer(reply)) => matches!(reply, Reply::Granted(_)),
        Ok(Decision::Write(write)) => matches!(write.reply, Reply::Granted(_)),
        Err(_) => false,
    }
}

// Rule 1: operator commands name the version they were decided on.

#[test]
fn a_duplicated_resolution_licenses_one_attempt() {
    let doubt = doubtful(hold());
    let resolution = doubt.resolve_not_done();
    let licensed = doubt.then(World::resolve_not_done).then(|w| w.begin("b"));
    let repeat = ordered_again(S::Pending);

    // The duplicate arrives while the licensed attempt runs, and again when that is in doubt too.
    licensed.answers(|_| resolution.clone(), repeat.clone());
    let second_doubt = licensed.then(|w| w.unknown("b"));
    second_doubt.answers(|_| resolution.clone(), repeat);
    second_doubt.refuses(|w| w.begin("c"), IN_DOUBT);

    // After a resolution of the second doubt, the first one is not even the last any more.
    let resolved = second_doubt
        .then(World::resolve_not_done)
        .then(|w| w.begin("c"))
        .then(|w| w.unknown("c"));
    resolved.refuses(|_| resolution.clone(), Fenced);
    resolved.refuses(|w| w.begin("d"), IN_DOUBT);
}

#[test]
fn two_operators_who_decide_on_one_version_do_not_both_succeed() {
    let doubt = doubtful(hold());
    let by_bob = Command::Resolve(Resolve {
        order: Order {
            by: label("bob"),
            ..doubt.order()
        },
        resolution: Resolution::NotDone,
    });
    let by_ann = doubt.then(|w| w.resolve_done(GOOD));
    by_ann.refuses(|_| by_bob.clone(), Fenced);
    assert_eq!(outcome(&by_ann), GOOD);
}

#[test]
fn a_duplicated_retry_gives_fresh_attempts_once() {
    let before = failed();
    let order = before.retry();
    let failed_again = before
        .then(World::retry)
        .then(|w| w.begin("b"))
        .then(|w| w.done("b", BAD));
    let repeat = retried(Effect::Unknown, true);
    failed_again.answers(|_| order.clone(), repeat);
    assert_eq!(failed_again.kind(), Some(S::Failed));
}

#[test]
fn a_duplicated_forget_does_not_erase_what_came_after_it() {
    let before = succeeded();
    let order = before.forget();
    let reborn = before
        .then(World::forget)
        .then(|w| w.begin("b"))
        .then(|w| w.done("b", GOOD));
    reborn.refuses(|_| order.clone(), Fenced);
}

// Rule 2: an attempt's first definite verdict is final.

#[test]
fn an_attempt_that_said_not_done_cannot_say_done_later() {
    let in_running = running_after_release();
    let in_doubtful = running_after_release().then(|w| w.unknown("b"));
    let in_dead = dead();
    for world in [released(), in_running, in_doubtful, in_dead] {
        world.refuses(|w| w.done("a", GOOD), Fenced);
    }
}

#[test]
fn a_not_done_that_came_too_late_to_matter_is_final_too() {
    let heard = [
        resolved_to_pending().then(|w| w.not_done("a")),
        resolved_to_dead().then(|w| w.not_done("a")),
        running_second(retry()).then(|w| w.not_done("a")),
        doubtful_twice(retry()).then(|w| w.not_done("a")),
    ];
    for world in heard {
        world.refuses(|w| w.done("a", GOOD), Fenced);
    }
}

#[test]
fn an_unknown_may_be_followed_by_one_definite_verdict() {
    let settled = doubtful(hold()).then(|w| w.done("a", GOOD));
    assert_eq!(outcome(&settled), GOOD);
    let released = doubtful(hold()).then(|w| w.not_done("a"));
    assert_eq!(released.kind(), Some(S::Pending));
    released.refuses(|w| w.done("a", GOOD), Fenced);
}

#[test]
fn a_report_that_agreed_with_a_resolution_cannot_undo_a_later_retry() {
    // A person resolved the doubt as failed, and the attempt then reported exactly that. Its
    // duplicate comes after the Retry and must not settle the operation again.
    let resolved = doubtful(hold()).then(|w| w.resolve_done(BAD));
    let heard = resolved.then(|w| w.done("a", BAD));
    let fresh = heard.then(World::retry);
    fresh.refuses(|w| w.done("a", BAD), Fenced);
    assert!(grants(&fresh, |w| w.begin("b")));
}

#[test]
fn an_ended_id_never_begins_again() {
    let worlds = [
        released(),
        pending_with_open(),
        resolved_to_pending(),
        running_second(retry()),
        running_second(retry()).wait(LEASE),
        doubtful(retry()),
        doubtful_twice(retry()),
        lapsed(retry()),
        doubtful(probe()).wait(LEASE + 10),
        failed().then(World::retry),
        dead().then(World::retry),
        dead(),
        succeeded(),
        doubtful(retry()).then(World::adopt),
    ];
    for world in worlds {
        assert!(!grants(&world, |w| w.begin("a")), "{:?}", world.record);
        assert!(!grants(&world, |w| w.work("a")), "{:?}", world.record);
    }
}

#[test]
fn the_last_sixteen_attempts_are_remembered_and_older_marks_are_not_lost() {
    let mut world = World::new(limited(17, retry())).then(|w| w.begin("oldest"));
    world = world.wait(1).then(|w| w.unknown("oldest"));
    for number in 0..ATTEMPTS_REMEMBERED - 1 {
        let name = format!("n{number}");
        world = world.then(|w| w.begin(&name)).then(|w| w.not_done(&name));
    }
    assert_eq!(world.operation().attempts.len(), ATTEMPTS_REMEMBERED);
    world.refuses(|w| w.begin("oldest"), Fenced);

    let last = world.then(|w| w.begin("last"));
    assert_eq!(last.operation().attempts.len(), ATTEMPTS_REMEMBERED);
    last.refuses(|w| w.done("oldest", GOOD), Fenced);

    // Out of attempts, and the attempt that nobody remembers by name may still have acted.
    let exhausted = last.then(|w| w.not_done("last"));
    assert_eq!(exhausted.kind(), Some(S::Doubtful));
    assert_eq!(exhausted.operation().open_since(), Some(START));
    let resolved = exhausted.then(World::resolve_not_done);
    assert_eq!(resolved.kind(), Some(S::Dead));
    assert_eq!(resolved.operation().open_since(), None);
}

#[test]
fn a_forgotten_open_attempt_still_limits_the_window() {
    let mut world = doubtful(retry()).wait(WINDOW / 2);
    for number in 0..ATTEMPTS_REMEMBERED {
        let name = format!("n{number}");
        world = world.then(|w| w.begin(&name)).then(|w| w.unknown(&name));
    }
    assert!(grants(&world, |w| w.begin("within")));
    world
        .wait(WINDOW / 2)
        .refuses(|w| w.begin("after"), IN_DOUBT);
}

// Rule 3: a late `done` is never thrown away.

#[test]
fn a_late_done_settles_whatever_is_not_running() {
    let worlds = [
        pending_with_open(),
        resolved_to_pending(),
        doubtful(hold()),
        lapsed(hold()),
        doubtful_twice(retry()),
        exhausted_with_open(),
        resolved_to_dead(),
        running(hold()).wait(LEASE),
        running(hold()).then(World::adopt),
    ];
    for world in worlds {
        let mut settled = world.clone();
        let reply = settled.apply(&world.done("a", GOOD));
        assert_eq!(reply, heard_late(S::Succeeded));
        assert_eq!(outcome(&settled), GOOD);
        settled.answers(|w| w.begin("z"), Reply::Replay);
    }
}

#[test]
fn a_late_done_becomes_the_outcome_however_the_newer_attempt_ends() {
    let ends: [fn(World) -> World; 7] = [
        |w| w.then(|w| w.not_done("b")),
        |w| w.then(|w| w.reject("b")),
        |w| w.then(|w| w.unknown("b")),
        |w| w.then(|w| w.gone("b")),
        |w| w.wait(LEASE).then(World::expire),
        |w| w.wait(LEASE).then(|w| w.begin("c")),
        |w| w.then(World::adopt),
    ];
    for end in ends {
        let settled = end(running_with_evidence());
        assert_eq!(outcome(&settled), GOOD);
        settled.answers(|w| w.begin("z"), Reply::Replay);
    }
    // Only the newer attempt's own `done` goes before it, and the difference is not hidden.
    let settled = running_with_evidence();
    let Ok(Decision::Write(write)) = settled.ask(|w| w.done("b", OTHER)) else {
        panic!("the holder's report is taken");
    };
    assert!(write.events.contains(&Event::Conflict));
    assert_eq!(outcome(&settled.then(|w| w.done("b", OTHER))), OTHER);
}

#[test]
fn a_late_done_of_an_attempt_before_a_retry_settles() {
    let fresh = doubtful(hold())
        .then(|w| w.resolve_done(BAD))
        .then(World::retry);
    assert_eq!(outcome(&fresh.then(|w| w.done("a", GOOD))), GOOD);
}

// Rule 4: `dead` and `noop` always mean: not applied.

#[test]
fn out_of_attempts_with_an_open_attempt_is_a_doubt() {
    let world = exhausted_with_open();
    assert_eq!(world.kind(), Some(S::Doubtful));
    world.refuses(World::cancel, IN_DOUBT);
    world.refuses(|w| w.begin("c"), IN_DOUBT);

    // The doubt ends by proof, by a resolution, or by the effect itself.
    let by_proof = world.clone().then(|w| w.not_done("a"));
    assert_eq!(by_proof.kind(), Some(S::Dead));
    let by_person = world.clone().then(World::resolve_not_done);
    assert_eq!(by_person.kind(), Some(S::Dead));
    assert_eq!(outcome(&world.then(|w| w.done("a", GOOD))), GOOD);
}

#[test]
fn a_rejection_with_an_open_attempt_is_a_doubt() {
    let world = rejected_with_open();
    assert_eq!(world.kind(), Some(S::Doubtful));
}

#[test]
fn a_doubt_is_always_about_something() {
    // A queued operation waits before it is tried again, counted from the end of the lease, so that
    // every reader sees the same.
    let probing = World::new(limited(3, probe()))
        .then(|w| w.queue("mail"))
        .then(|w| w.work("a"))
        .then(|w| w.unknown("a"))
        .wait(LEASE + 10)
        .then(|w| w.work("p"))
        .then(|w| w.not_done("a"));
    let end = probing.operation().lease_until().expect("it runs");
    let ended = [0, 1, 1_000].map(|late| {
        let silent = probing.clone().wait(LEASE + late);
        silent.then(World::expire).operation().clone()
    });
    for operation in &ended {
        assert_eq!(operation, &ended[0]);
        assert_eq!(operation.state, State::Pending);
        let run_at = operation.run_at.expect("a wait before the next");
        assert!(run_at >= end && run_at <= end.plus(BASE));
    }
    // The rejection of an operation outlives the silence of the probe, too.
    let rejected = probing_rejected().then(|w| w.not_done("a"));
    for silent in [
        rejected.clone().then(|w| w.unknown("q")),
        rejected.wait(LEASE).then(World::expire),
    ] {
        assert_eq!(silent.kind(), Some(S::Dead));
    }
}

#[test]
fn what_may_have_been_applied_cannot_be_cancelled_as_noop() {
    let open = [
        pending_with_open(),
        doubtful(hold()),
        running(hold()).wait(LEASE),
    ];
    for world in open {
        world.refuses(World::cancel, IN_DOUBT);
    }
    let cancelled = resolved_to_pending().then(World::cancel);
    assert_eq!(outcome(&cancelled), HARMLESS);
}

#[test]
fn a_harmless_failure_speaks_only_for_its_own_attempt() {
    let evidence = running_second(retry()).then(|w| w.done("a", HARMLESS));
    let in_doubt = [
        running_second(retry()).then(|w| w.done("b", HARMLESS)),
        doubtful_twice(retry()).then(|w| w.done("a", HARMLESS)),
        evidence.clone().then(|w| w.unknown("b")),
        evidence.clone().then(|w| w.gone("b")),
        evidence.clone().then(World::adopt),
        evidence.clone().wait(LEASE).then(World::expire),
        evidence.clone().wait(LEASE).then(|w| w.begin("c")),
        evidence.clone().wait(LEASE).then(World::submit),
    ];
    for world in in_doubt {
        assert_eq!(outcome(&world), BAD, "{:?}", world.record);
        world.answers(|w| w.begin("z"), Reply::Replay);
        let mut retrying = world.clone();
        let reply = retrying.apply(&world.retry());
        assert_eq!(reply, retried(Effect::Unknown, false));
    }
    let proven = [
        evidence.clone().then(|w| w.not_done("b")),
        evidence.then(|w| w.done("b", HARMLESS)),
        doubtful(hold()).then(|w| w.done("a", HARMLESS)),
        // A person's word is a proof, whatever was open.
        doubtful_twice(retry()).then(|w| w.resolve_done(HARMLESS)),
    ];
    for world in proven {
        assert_eq!(outcome(&world), HARMLESS, "{:?}", world.record);
        let mut retrying = world.clone();
        assert_eq!(retrying.apply(&world.retry()), retried(Effect::Noop, false));
    }
}

#[test]
fn a_harmless_failure_does_not_speak_for_an_attempt_that_nobody_remembers() {
    let mut world = doubtful(retry());
    for number in 0..ATTEMPTS_REMEMBERED {
        let name = format!("n{number}");
        world = world.then(|w| w.begin(&name)).then(|w| w.not_done(&name));
    }
    assert!(world.operation().attempts.iter().all(|a| !a.open));
    let settled = world.then(|w| w.begin("z")).then(|w| w.done("z", HARMLESS));
    assert_eq!(outcome(&settled), BAD);
}

#[test]
fn a_mark_that_a_person_cleared_stays_cleared() {
    // `a` repeats that it does not know, after the doubt about it was resolved and the lease of
    // `c` ended.
    let world = resolved_to_pending()
        .then(|w| w.begin("b"))
        .then(|w| w.unknown("b"))
        .then(World::resolve_not_done)
        .then(|w| w.begin("c"))
        .then(|w| w.done("b", HARMLESS))
        .wait(LEASE)
        .then(|w| w.unknown("a"));
    assert_eq!(world.kind(), Some(S::Failed));
    let open = world.operation().attempts.iter().filter(|a| a.open);
    let open: Vec<_> = open.map(|attempt| attempt.id.as_str()).collect();
    assert_eq!(open, ["c"]);
}

// Rule 5: policies are fixed by the first Submit or Begin.

#[test]
fn a_later_call_cannot_loosen_the_policy() {
    let loose = limited(99, retry());
    doubtful(hold())
        .asking(loose)
        .refuses(|w| w.begin("b"), IN_DOUBT);
    let one_attempt = World::new(limited(1, hold())).then(World::submit);
    let world = one_attempt.asking(loose).then(|w| w.begin("a"));
    assert_eq!(world.operation().spec.policy, limited(1, hold()));
    assert_eq!(world.then(|w| w.not_done("a")).kind(), Some(S::Dead));
    let attached = submitted().asking(loose).then(|w| w.queue("mail"));
    assert_eq!(attached.operation().spec.policy, hold());
}

#[test]
fn doubts_of_idempotent_operations_are_retried_and_of_others_held() {
    let doubt = |class| doubtful(Policy::direct(class));
    assert!(grants(&doubt(Class::Idempotent), |w| w.begin("b")));
    doubt(Class::Unsafe).refuses(|w| w.begin("b"), IN_DOUBT);
    doubt(Class::Safe).refuses(|w| w.begin("b"), IN_DOUBT);
}

// Rule 6: `on_doubt = retry` has a window.

#[test]
fn a_doubt_outside_its_window_is_held() {
    let hour = Policy {
        retry_within: Duration::from_secs(3_600),
        ..retry()
    };
    for doubt in [
        doubtful(hour),
        running(hour).then(|w| w.renew_for("a", 3_000)),
    ] {
        assert!(grants(&doubt.clone().wait(3_599), |w| w.begin("b")));
        doubt.wait(3_600).refuses(|w| w.begin("b"), IN_DOUBT);
    }
}

#[test]
fn a_waived_doubt_that_waits_for_another_attempt_is_held_after_its_window() {
    // The first attempt is open, the second proved that it did nothing.
    let waiting = doubtful(retry())
        .then(|w| w.begin("b"))
        .then(|w| w.not_done("b"));
    assert_eq!(waiting.kind(), Some(S::Pending));
    assert!(grants(&waiting, |w| w.begin("c")));
    let late = waiting.wait(WINDOW);
    late.refuses(|w| w.begin("c"), IN_DOUBT);
    // A person who knows more than the window does lets it go on.
    let resolved = late.then(World::resolve_not_done);
    assert!(grants(&resolved, |w| w.begin("c")));
}

#[test]
fn every_waived_doubt_is_in_the_log_before_the_attempt_that_it_permits() {
    let mut world = doubtful(retry());
    for name in ["b", "c", "d"] {
        let Ok(Decision::Write(write)) = world.ask(|w| w.begin(name)) else {
            panic!("the doubt is waived");
        };
        assert_eq!(write.events, [Event::DoubtWaived, Event::Begun]);
        world = world.then(|w| w.begin(name)).then(|w| w.unknown(name));
    }
}

// Rule 7: a lease that has ended is not renewed, and silence does not free the key.

#[test]
fn a_renewal_at_or_after_the_end_of_the_lease_is_refused() {
    let world = running(hold()).wait(LEASE - 1);
    assert!(world.ask(|w| w.renew("a")).is_ok());
    for late in [1, 2, LEASE] {
        world.clone().wait(late).refuses(|w| w.renew("a"), Fenced);
    }
    // Written or not, the end of the lease is the end.
    lapsed(hold()).refuses(|w| w.renew("a"), Fenced);
    running(hold())
        .then(|w| w.gone("a"))
        .refuses(|w| w.renew("a"), Fenced);
}

#[test]
fn a_renewal_never_shortens_the_lease() {
    let world = running(hold()).then(|w| w.renew_for("a", 1));
    assert_eq!(world.operation().lease_until(), Some(at(LEASE)));
    let world = world.wait(LEASE - 1).then(|w| w.renew("a"));
    assert_eq!(world.operation().lease_until(), Some(at(2 * LEASE - 1)));
}

#[test]
fn a_dropped_permit_blocks_until_its_lease_ends_and_is_a_doubt_then() {
    let silent = running(hold());
    let until = in_flight(Some(at(LEASE)));
    silent
        .clone()
        .wait(LEASE - 1)
        .refuses(|w| w.begin("b"), until);
    silent.wait(LEASE).refuses(|w| w.begin("b"), IN_DOUBT);
}

// Rule 8: what a door saw of the holder.

#[test]
fn a_lapsed_lease_whose_holder_is_alive_is_in_flight() {
    let world = running(retry()).wait(LEASE);
    let in_flight = in_flight(Some(at(LEASE)));
    world.refuses(|w| w.begin_seeing("b", "a", true), in_flight);
    assert!(grants(&world, |w| w.begin("b")));
    // Even the holder itself gets no permit that its lease does not cover.
    assert!(!grants(&world, |w| w.begin_seeing("a", "a", true)));
}

#[test]
fn a_live_lease_whose_holder_is_gone_meets_the_doubt_at_once() {
    let world = running(hold());
    world.refuses(|w| w.begin_seeing("b", "a", false), IN_DOUBT);
    assert_eq!(world.then(|w| w.gone("a")).kind(), Some(S::Doubtful));
    assert!(grants(&running(retry()), |w| w.begin_seeing("b", "a", false)));
}

#[test]
fn the_sighting_of_an_older_attempt_ends_nothing() {
    // The door looked before `b` began, so what it saw is the end of `a`.
    let world = running_second(retry());
    assert!(!grants(&world, |w| w.begin_seeing("c", "a", false)));
    world.answers(|w| w.gone("a"), Reply::Kept);
    // Nor does the life of `a` keep alive a lease of `b` that has ended.
    let lapsed = world.wait(LEASE);
    assert!(grants(&lapsed, |w| w.begin_seeing("c", "a", true)));
}

// Rule 9: a door answers from what Settle returned.

#[test]
fn a_report_is_answered_with_what_is_stored() {
    // `b` learned of a success, but the operation was resolved as failed meanwhile.
    let world = doubtful(hold()).then(|w| w.resolve_done(BAD));
    let mut told = world.clone();
    assert_eq!(told.apply(&world.done("a", GOOD)), contradicted(S::Failed));
    assert_eq!(outcome(&told), BAD);
    let reported = Reply::Reported(Reported {
        state: S::Failed,
        repeated: true,
        late: false,
        conflict: false,
    });
    told.answers(|w| w.unknown("a"), reported);
    told.answers(|w| w.begin("b"), Reply::Replay);
}

// Rule 10: children check their parent.

#[test]
fn a_child_begins_only_while_its_parent_runs_with_the_fence_it_names() {
    let permits =
        |parent: &World, fence| parent_permits(parent.record.as_ref(), Fence(fence), parent.now);
    assert_eq!(permits(&running(hold()), 1), Ok(()));
    assert_eq!(permits(&running_second(retry()), 2), Ok(()));
    assert_eq!(permits(&running_with_evidence(), 2), Ok(()));
    let last_moment = running(hold()).wait(LEASE - 1);
    assert_eq!(permits(&last_moment, 1), Ok(()));

    // A parent that lost its fence cannot start its next step, nor one that is not running.
    assert_eq!(permits(&running_second(retry()), 1), Err(Fenced));
    assert_eq!(permits(&running(hold()), 2), Err(Fenced));
    let not_running = [
        absent(),
        stub(),
        submitted(),
        released(),
        running(hold()).wait(LEASE),
        doubtful(hold()),
        succeeded(),
        failed(),
        dead(),
        tombstone(),
    ];
    for parent in not_running {
        let fence = parent.fence();
        let answer = parent_permits(parent.record.as_ref(), fence, parent.now);
        assert_eq!(answer, Err(Fenced), "{:?}", parent.record);
    }
}

// Rule 11: fences survive.

#[test]
fn fences_and_versions_go_on_after_forget_and_drop() {
    let forgotten = stub();
    let dropped = tombstone().wait(YEAR).then(World::drop);
    for before in [forgotten, dropped] {
        let (fence, version) = (before.fence(), before.version());
        assert_eq!(before.kind(), Some(S::Stub));
        let begun = before.clone().then(|w| w.begin("b"));
        assert_eq!(begun.fence(), fence.next());
        assert_eq!(begun.version(), version.next());
        let submitted = before.then(World::submit).then(|w| w.begin("b"));
        assert_eq!(submitted.fence(), fence.next());
        assert_eq!(submitted.version(), version.next().next());
    }
}

#[test]
fn a_holder_from_before_a_forget_cannot_act_on_what_came_after() {
    // The key is used again by an attempt that even has the same id, but not the same fence.
    let old = succeeded();
    let (done, renew) = (old.done("a", OTHER), old.renew("a"));
    let stub = old.then(World::forget);
    stub.refuses(|_| renew.clone(), NotFound);
    let again = stub.then(|w| w.begin("a"));
    again.refuses(|_| done.clone(), Fenced);
    again.refuses(|_| renew.clone(), Fenced);
}

#[test]
fn an_adopted_store_outruns_every_fence_of_the_gap() {
    // The original went on after the copy was taken: its fences lie above the copy's.
    let copied = running(retry());
    let original = copied.clone().wait(LEASE).then(|w| w.begin("gap"));
    let adopted = copied.then(World::adopt);
    assert_eq!(adopted.kind(), Some(S::Doubtful));
    let begun = adopted.then(|w| w.begin("b"));
    assert!(begun.fence() > original.fence());
    assert_eq!(begun.fence(), Fence(1 + STEP + 1));
    let gap = original.done("gap", GOOD);
    begun.refuses(|_| gap.clone(), Fenced);

    // What the copy remembers may still come back late.
    assert_eq!(begun.ask(|w| w.renew("a")), Err(Fenced));
    let evidence = begun.then(|w| w.done("a", GOOD));
    let state = &evidence.operation().state;
    assert_eq!(
        *state,
        State::Running {
            evidence: Some(GOOD)
        }
    );
}

#[test]
fn adopting_raises_the_fence_of_everything_that_has_one() {
    for world in [
        stub(),
        submitted(),
        released(),
        succeeded(),
        dead(),
        tombstone(),
    ] {
        let (kind, fence) = (world.kind(), world.fence());
        let adopted = world.then(World::adopt);
        assert_eq!(adopted.kind(), kind);
        assert_eq!(adopted.fence(), Fence(fence.0 + STEP));
    }
}

// Rule 12: limits and waits.

#[test]
fn direct_operations_have_no_attempt_limit_and_no_backoff() {
    let mut world = World::new(Policy::direct(Class::Unsafe));
    for number in 1..=100 {
        let name = format!("n{number}");
        world = world.then(|w| w.begin(&name)).then(|w| w.not_done(&name));
        assert_eq!(world.kind(), Some(S::Pending));
        assert_eq!(world.operation().attempt, number);
        assert_eq!(world.operation().run_at, None);
    }
}

#[test]
fn queued_operations_wait_between_ten_attempts_and_die() {
    let mut world = World::new(Policy::queued(Class::Unsafe)).then(|w| w.queue("mail"));
    for number in 1..=9 {
        let name = format!("n{number}");
        world = world.then(|w| w.work(&name)).then(|w| w.not_done(&name));
        let run_at = world.operation().run_at.expect("a wait before the next");
        let ceiling = BASE.saturating_mul(1 << (number - 1)).min(CAP);
        assert!(run_at >= world.now && run_at <= world.now.plus(ceiling));
        if run_at > world.now {
            let mut early = world.clone();
            early.now = run_at.minus(Duration::from_micros(1));
            early.refuses(|w| w.work("early"), in_flight(Some(run_at)));
        }
        world.now = run_at;
    }
    let world = world.then(|w| w.work("n10")).then(|w| w.not_done("n10"));
    assert_eq!(world.kind(), Some(S::Dead));

    // A person may give fresh attempts, which start at once and count from one.
    let fresh = world.then(World::retry).then(|w| w.work("again"));
    assert_eq!(fresh.operation().attempt, 1);
}

#[test]
fn a_queue_that_is_attached_later_brings_its_start_time() {
    let queued = submitted().then(|w| w.submit_to(Some("mail"), Some(at(500))));
    assert_eq!(queued.operation().run_at, Some(at(500)));
}

#[test]
fn a_rejected_task_is_dead_at_once() {
    let world = queued().then(|w| w.work("a")).then(|w| w.reject("a"));
    assert_eq!(world.kind(), Some(S::Dead));
    world.refuses(|w| w.work("b"), Rejection::Dead);
    assert_eq!(world.operation().run_at, None::<Timestamp>);
}

#[test]
fn a_rejected_operation_is_dead_once_nothing_is_in_doubt() {
    // Not even `on_doubt = retry` tries again what a handler said is pointless.
    rejected_with_open().refuses(|w| w.begin("c"), IN_DOUBT);

    let probed = probing_rejected();
    let silent = probed.clone().wait(LEASE).then(World::expire);
    assert_eq!(silent.kind(), Some(S::Doubtful));

    let late = running_second(retry())
        .wait(LEASE)
        .then(|w| w.reject("b"))
        .then(|w| w.not_done("a"));
    let cleared = [
        rejected_with_open().then(|w| w.not_done("a")),
        rejected_with_open().then(World::resolve_not_done),
        probed.then(|w| w.not_done("q")),
        silent.then(|w| w.not_done("a")),
        late,
    ];
    for world in cleared {
        assert_eq!(world.kind(), Some(S::Dead), "{:?}", world.record);
        // A person may give fresh attempts, as ever.
        let fresh = world.then(World::retry).then(|w| w.begin("z"));
        assert_eq!(fresh.then(|w| w.not_done("z")).kind(), Some(S::Pending));
    }
}
