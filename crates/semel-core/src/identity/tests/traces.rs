//! Traces that break without one of the rules; the ledger that decides is the real one.

use proptest::prelude::*;

use super::Observation::*;
use super::world::{Held, World, done, failed, not_done, outcome};
use super::*;
use crate::ledger::Resolution;
use crate::verdict::Verdict;

fn proxy() -> Call {
    call(InFlight::Distinct)
}

fn mcp() -> Call {
    call(InFlight::Join)
}

const TOLD: [Observation; 2] = [Written, Acknowledged];

#[test]
fn a_lost_answer_is_replayed_to_its_retry() {
    for lost in [
        &[Cancelled, Written][..],
        &[Written, Reset],
        &[NotWritten],
        &[Written],
    ] {
        let mut world = World::new();
        let first = world.call(&proxy());
        world.settle(&first, done());
        world.see(&first, lost);
        let retry = world.call(&proxy());
        assert_eq!(
            (retry.relation(), retry.ran()),
            (Relation::Retry, false),
            "{lost:?}"
        );
        assert_eq!(
            (world.state(&retry), world.effects),
            (StateKind::Succeeded, 1)
        );
    }
}

#[test]
fn two_intended_calls_run_twice_and_a_third_thrice() {
    let mut world = World::new();
    for n in 1..=3 {
        let held = world.call(&mcp());
        assert_eq!((held.identity.occurrence, held.ran()), (n, true));
        world.settle(&held, done());
        world.see(&held, &TOLD);
    }
    assert_eq!(world.effects, 3);
}

#[test]
fn one_lost_answer_excuses_one_repeat_and_not_every_later_one() {
    let mut world = World::new();
    let first = world.call(&mcp());
    world.settle(&first, done());
    world.see(&first, &[Reset]);
    let retry = world.call(&mcp());
    world.see(&retry, &TOLD);
    let repeat = world.call(&mcp());
    assert_eq!(
        (repeat.relation(), repeat.ran()),
        (Relation::IntendedRepeat, true)
    );
    assert_eq!(world.effects, 2);
}

#[test]
fn a_caller_that_left_while_it_ran_is_joined_by_its_retry_at_every_door() {
    for policy in POLICIES {
        let mut world = World::new();
        let first = world.call(&call(policy));
        world.see(&first, &[Closed]);
        let retry = world.call(&call(policy));
        assert_eq!((retry.relation(), retry.ran()), (Relation::Retry, false));
        world.settle(&first, done());
        world.see(&retry, &TOLD);
        let repeat = world.call(&call(policy));
        let expected = match policy {
            InFlight::Distinct | InFlight::Join => (Relation::IntendedRepeat, 2),
            InFlight::Challenge => (Relation::Challenged, 1),
        };
        assert_eq!((repeat.relation(), world.effects), expected);
    }
}

#[test]
fn identical_calls_at_once_run_both_join_or_are_refused() {
    for (policy, relation, effects) in [
        (InFlight::Distinct, Relation::IntendedRepeat, 2),
        (InFlight::Join, Relation::Joined, 1),
        (InFlight::Challenge, Relation::Challenged, 1),
    ] {
        let mut world = World::new();
        world.call(&call(policy));
        let second = world.call(&call(policy));
        assert_eq!((second.relation(), world.effects), (relation, effects));
    }
}

#[test]
fn of_two_joined_callers_the_one_without_an_answer_is_not_forgotten() {
    let mut world = World::new();
    let first = world.call(&mcp());
    let second = world.call(&mcp());
    world.settle(&first, done());
    world.see(&second, &[Reset]);
    world.see(&first, &TOLD);
    let retry = world.call(&mcp());
    assert_eq!((retry.relation(), world.effects), (Relation::Retry, 1));
}

#[test]
fn two_lost_calls_are_found_by_two_retries_one_each() {
    let mut world = World::new();
    let calls = [world.call(&proxy()), world.call(&proxy())];
    for held in &calls {
        world.settle(held, done());
        world.see(held, &[Reset]);
    }
    let first = world.call(&proxy());
    world.see(&first, &TOLD);
    let second = world.call(&proxy());
    world.see(&second, &TOLD);
    assert_eq!(
        (first.identity.occurrence, second.identity.occurrence),
        (1, 2)
    );
    assert_eq!((second.relation(), world.effects), (Relation::Retry, 2));
    // Also where the second comes before the first one is answered.
    let mut world = World::new();
    let calls = [world.call(&proxy()), world.call(&proxy())];
    for held in &calls {
        world.settle(held, done());
        world.see(held, &[Reset]);
    }
    let retries = [world.call(&proxy()), world.call(&proxy())];
    assert_eq!(retries.map(|held| held.identity.occurrence), [1, 2]);
    assert_eq!(world.effects, 2);
}

#[test]
fn a_crash_before_the_mark_swallows_one_intended_repeat_visibly() {
    let mut world = World::new();
    let first = world.call(&mcp());
    world.settle(&first, done());
    world.see(&first, &TOLD);
    world.crash();
    let swallowed = world.call(&mcp());
    assert_eq!(
        (swallowed.relation(), swallowed.ran()),
        (Relation::Retry, false)
    );
    world.see(&swallowed, &TOLD);
    let next = world.call(&mcp());
    assert_eq!(
        (next.relation(), world.effects),
        (Relation::IntendedRepeat, 2)
    );
}

#[test]
fn a_crash_after_the_mark_swallows_nothing() {
    let mut world = World::new();
    let first = world.call(&mcp());
    world.settle(&first, done());
    world.see(&first, &TOLD);
    world.group_commits();
    world.crash();
    let next = world.call(&mcp());
    assert_eq!(
        (next.relation(), world.effects),
        (Relation::IntendedRepeat, 2)
    );
}

#[test]
fn a_crash_in_the_window_is_a_doubt_that_a_retry_meets_even_after_a_day() {
    let mut world = World::new();
    world.call(&proxy());
    world.crash();
    for _ in 0..2 {
        world.pass(DAY);
        let retry = world.call(&proxy());
        assert_eq!((retry.relation(), retry.ran()), (Relation::Retry, false));
        assert_eq!(world.state(&retry), StateKind::Doubtful);
        // It is told of the doubt, and that does not make it somebody who has the outcome.
        world.see(&retry, &[PutOff, WentOn]);
    }
    assert_eq!(world.effects, 1);
}

#[test]
fn whoever_was_told_of_a_doubt_gets_the_outcome_that_it_was_resolved_to() {
    let mut world = World::new();
    let first = world.call(&mcp());
    world.settle(&first, Verdict::Unknown { error: None });
    world.see(&first, &[PutOff, Acknowledged, WentOn]);
    world.group_commits();
    world.resolve(&first, Resolution::Done(outcome()));
    let retry = world.call(&mcp());
    assert_eq!((retry.relation(), retry.ran()), (Relation::Retry, false));
    assert_eq!(
        (world.state(&retry), world.effects),
        (StateKind::Succeeded, 1)
    );
}

#[test]
fn a_delivered_failure_followed_by_the_same_call_runs_and_a_lost_one_is_told_again() {
    for (seen, ran) in [(&TOLD[..], true), (&[Written, Reset][..], false)] {
        let mut world = World::new();
        let first = world.call(&mcp());
        world.settle(&first, failed());
        world.see(&first, seen);
        let second = world.call(&mcp());
        assert_eq!(
            (second.ran(), second.identity.occurrence),
            (ran, 1 + u32::from(ran))
        );
    }
}

#[test]
fn a_call_that_was_not_applied_runs_under_its_own_number() {
    let mut world = World::new();
    for _ in 0..3 {
        let refused = world.call(&proxy());
        assert_eq!((refused.identity.occurrence, refused.ran()), (1, true));
        world.settle(&refused, not_done());
        world.see(&refused, &TOLD);
    }
    let last = world.call(&proxy());
    world.settle(&last, done());
    assert_eq!((world.records.len(), world.effects), (1, 1));
}

#[test]
fn a_suspect_past_its_window_is_over() {
    let mut world = World::new();
    let first = world.call(&mcp());
    world.settle(&first, done());
    world.see(&first, &[Reset]);
    world.pass(WINDOW);
    let repeat = world.call(&mcp());
    assert_eq!(
        (repeat.relation(), world.effects),
        (Relation::IntendedRepeat, 2)
    );
}

#[test]
fn another_scope_runs_its_own() {
    let mut world = World::new();
    world.call(&mcp());
    let mut other = mcp();
    other.scope.principal = Some("bob".to_owned());
    let second = world.call(&other);
    assert_eq!((second.relation(), world.effects), (Relation::First, 2));
}

#[test]
fn a_model_that_plans_anew_after_a_lost_answer_does_not_pay_twice() {
    let mut world = World::new();
    let first = world.call(&call_with_id("toolu_1"));
    world.see(&first, &[Cancelled]);
    world.settle(&first, done());
    // The model gave up, asks again, and its harness repeats that call after it was answered.
    let planned_anew = world.call(&call_with_id("toolu_2"));
    world.see(&planned_anew, &TOLD);
    let harness = world.call(&call_with_id("toolu_2"));
    for held in [&planned_anew, &harness] {
        assert_eq!((held.relation(), held.ran()), (Relation::Retry, false));
    }
    world.see(&harness, &TOLD);
    let wish = world.call(&call_with_id("toolu_3"));
    assert_eq!(
        (wish.relation(), world.effects),
        (Relation::IntendedRepeat, 2)
    );
}

#[test]
fn the_losers_of_a_race_for_a_number_judge_again_and_join() {
    let mut world = World::new();
    // Two processes judged before either had claimed.
    let judged = identify(&mcp(), &world.known(), NOW);
    let winner = world.call(&mcp());
    assert_eq!(judged.key, winner.identity.key);
    world.callers.clear();
    assert!(world.begin(&proxy(), &judged).is_none());
    let loser = world.call(&proxy());
    assert_eq!((loser.relation(), world.effects), (Relation::Joined, 1));
}

#[test]
fn a_caller_that_another_process_holds_keeps_the_mark_from_saying_delivered() {
    let mut world = World::new();
    let elsewhere = world.call(&proxy());
    world.callers.clear();
    let joined = world.call(&proxy());
    assert_eq!(joined.relation(), Relation::Joined);
    world.settle(&elsewhere, done());
    world.see(&joined, &TOLD);
    world.group_commits();
    // The other one may not have got it, and this may be its retry.
    let retry = world.call(&proxy());
    assert_eq!((retry.relation(), world.effects), (Relation::Retry, 1));
    world.see(&retry, &TOLD);
    let repeat = world.call(&proxy());
    assert_eq!(
        (repeat.relation(), world.effects),
        (Relation::IntendedRepeat, 2)
    );
}

/// What becomes of one call of a client that calls again until it has its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Told,
    /// Told, and the process crashes before the mark is durable.
    ToldThenCrash,
    LeftWhileItRan,
    LostAfterTheWrite,
    CrashThenDone,
    CrashThenNotDone,
    CrashAfterTheOutcome,
    Refused,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        4 => Just(Fate::Told),
        1 => Just(Fate::ToldThenCrash),
        1 => Just(Fate::LeftWhileItRan),
        1 => Just(Fate::LostAfterTheWrite),
        1 => Just(Fate::CrashThenDone),
        1 => Just(Fate::CrashThenNotDone),
        1 => Just(Fate::CrashAfterTheOutcome),
        1 => Just(Fate::Refused),
    ];
    proptest::collection::vec(fate, 1..40)
}

/// Plays one call; says whether its client has the outcome now.
fn play(world: &mut World, held: &Held, fate: Fate) -> bool {
    if held.ran() {
        match fate {
            Fate::CrashThenDone => {
                world.crash();
                world.resolve(held, Resolution::Done(outcome()));
                return false;
            }
            Fate::CrashThenNotDone => {
                world.crash();
                world.resolve(held, Resolution::NotDone);
                return false;
            }
            Fate::Refused => {
                world.settle(held, not_done());
                world.see(held, &TOLD);
                return false;
            }
            Fate::LeftWhileItRan => {
                world.see(held, &[Cancelled]);
                world.settle(held, done());
                return false;
            }
            Fate::Told
            | Fate::ToldThenCrash
            | Fate::LostAfterTheWrite
            | Fate::CrashAfterTheOutcome => world.settle(held, done()),
        }
    }
    match fate {
        Fate::Told | Fate::Refused | Fate::CrashThenDone | Fate::CrashThenNotDone => {
            world.see(held, &TOLD);
            world.group_commits();
            true
        }
        Fate::ToldThenCrash => {
            world.see(held, &TOLD);
            world.crash();
            true
        }
        Fate::LeftWhileItRan => {
            world.see(held, &[Cancelled]);
            false
        }
        Fate::LostAfterTheWrite => {
            world.see(held, &[Written, Reset]);
            false
        }
        Fate::CrashAfterTheOutcome => {
            world.crash();
            false
        }
    }
}

proptest! {
    /// Every intent has one effect, but for the one that each crash before a mark may swallow.
    #[test]
    fn intents_and_effects_are_equally_many(fates in fates(), with_ids in any::<bool>()) {
        let mut world = World::new();
        let mut swallowed = 0;
        let mut told_then_crash = 0;
        let mut intents = 0;
        let mut wants = true;
        for (n, fate) in fates.into_iter().chain([Fate::Told, Fate::Told]).enumerate() {
            let call = if with_ids { call_with_id(&format!("toolu_{n}")) } else { proxy() };
            let held = world.call(&call);
            if wants {
                intents += 1;
                swallowed += u32::from(held.relation() == Relation::Retry);
            }
            wants = play(&mut world, &held, fate);
            told_then_crash += u32::from(fate == Fate::ToldThenCrash);
        }
        prop_assert!(swallowed <= told_then_crash);
        prop_assert!(wants);
        prop_assert_eq!(world.effects + swallowed, intents);
    }
}
