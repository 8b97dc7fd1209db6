//! Several callers at once, at one doorway and at several.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt;
use semel::core::ledger::{Delivery, StateKind};
use semel::store::KIN_MAX;
use semel_testkit::postgres::PostgresBed;
use tokio::task::JoinSet;

use super::*;
use crate::engine::store::Twisted;

fn postgres() -> Arc<dyn Bed> {
    Arc::new(PostgresBed::new(&Arc::new(ManualClock::default())))
}

/// Makes the same call at several doorways at once, and returns how often it took effect.
async fn race(bed: &Arc<dyn Bed>, doors: usize, callers: usize, call: Call) -> u32 {
    let effects = Arc::new(AtomicU32::new(0));
    let mut crowd = JoinSet::new();
    let mut all = vec![];
    for _ in 0..doors {
        all.push(start(bed).await);
    }
    for n in 0..callers {
        let (door, call) = (all[n % doors].clone(), call.clone());
        let effects = Arc::clone(&effects);
        crowd.spawn(async move {
            let entered = door.enter(&call, request().wait(5 * MINUTE)).await;
            let entered = entered.expect("it is judged");
            match entered.admission {
                Admission::Execute(permit) => {
                    effects.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    done(permit).await;
                }
                Admission::Replay(_) => {}
                other => panic!("neither run nor answered: {other:?}"),
            }
            // Nobody learns whether it arrived, so that the others are retries whenever they come.
            entered.ticket.expect("a ticket").see(Observation::Reset);
        });
    }
    while let Some(joined) = crowd.join_next().await {
        joined.expect("no caller fails");
    }
    effects.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_call_at_two_processes_on_one_file_runs_once() {
    for _ in 0..20 {
        assert_eq!(race(&sqlite(), 2, 16, call()).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_call_at_two_processes_on_one_database_runs_once() {
    for _ in 0..5 {
        assert_eq!(race(&postgres(), 2, 16, call()).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_at_two_processes_runs_once() {
    let keyed = Call {
        explicit: Some(text("order-7")),
        ..call()
    };
    for _ in 0..20 {
        assert_eq!(race(&sqlite(), 2, 16, keyed.clone()).await, 1);
    }
}

/// After an occurrence that is over, all of them want the next one: its number is taken once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_occurrence_at_two_processes_runs_once() {
    for bed in [sqlite(), sqlite(), sqlite(), postgres()] {
        let door = start(&bed).await;
        for _ in 0..3 {
            complete(&door, &call()).await;
        }
        door.flush().await.expect("the marks are stored");
        assert_eq!(race(&bed, 2, 16, call()).await, 1);
        assert_eq!(
            record(&door, &call().numbered(4)).await.kind(),
            StateKind::Succeeded
        );
    }
}

/// Each process lets the others go on whenever it asks the store, so this tries every order of their steps
/// that one coming later can bring about.
#[tokio::test]
async fn whenever_a_second_process_comes_the_call_runs_once() {
    for (over, late) in (0..3).flat_map(|over| (0..48).map(move |late| (over, late))) {
        let bed = memory();
        let door = start(&bed).await;
        for _ in 0..over {
            complete(&door, &call()).await;
        }
        door.flush().await.expect("the marks are stored");
        let (one, other) = (start_yielding(&bed).await, start_yielding(&bed).await);
        let first = tokio::spawn(async move { enter(&one, &call()).await });
        for _ in 0..late {
            tokio::task::yield_now().await;
        }
        let second = enter(&other, &call()).await;
        let both = [first.await.expect("it ends"), second];
        let runs = |entered: &&Entered| matches!(entered.admission, Admission::Execute(_));
        let ran = both.iter().filter(runs).count();
        assert_eq!(ran, 1, "{over} are over, {late} steps late: {both:?}");
    }
}

async fn start_yielding(bed: &Arc<dyn Bed>) -> Doorway {
    let builder = Engine::builder().store(Twisted::yielding(bed.open().await));
    let engine = builder.holder(None).sweep_every(None).start().await;
    Doorway::new(engine.expect("it starts"))
}

/// Each has a key of its own, so only the doorway can see that they are the same call.
#[tokio::test]
async fn identical_calls_with_different_ids_run_once_at_one_doorway() {
    let door = start_yielding(&memory()).await;
    let mut crowd = JoinSet::new();
    for n in 0..16 {
        let door = door.clone();
        crowd.spawn(async move {
            let entered = enter(&door, &with_id(&format!("toolu_{n}"))).await;
            let ran = matches!(entered.admission, Admission::Execute(_));
            (ran, entered)
        });
    }
    let entered = crowd.join_all().await;
    assert_eq!(entered.iter().filter(|(ran, _)| *ran).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_joined_gets_the_outcome_of_the_other() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (first, ticket, permit) = run(&door, &call()).await;
    let second = {
        let door = door.clone();
        tokio::spawn(async move { door.enter(&call(), request().wait(5 * MINUTE)).await })
    };
    let is_waiting = |door: &Doorway| {
        let mut refusals = door.engine().tally().refusals();
        refusals.any(|(code, times)| code == "in_flight" && times > 0)
    };
    while !is_waiting(&door) {
        tokio::task::yield_now().await;
    }
    done(permit).await;
    let joined = second.await.expect("it ends").expect("it is judged");
    assert_eq!(told(&joined.identity), as_a(Relation::Joined, 1));
    assert_eq!(joined.identity.key, first.key);
    assert!(matches!(joined.admission, Admission::Replay(_)));
    // Both have it; only then is it over.
    arrived(&ticket);
    let third = door.preview(&call(), request()).await.expect("judged");
    assert_eq!(third.identity.relation, Relation::Joined);
    arrived(joined.ticket.as_ref().expect("a ticket"));
    let fourth = complete(&door, &call()).await;
    assert_eq!(told(&fourth), as_a(Relation::IntendedRepeat, 2));
}

/// Else a client that has the second answer, and calls a third time, would be given the first outcome again.
#[tokio::test(start_paused = true)]
async fn a_joined_call_is_answered_after_the_call_it_joined() {
    for ends_by_leaving in [false, true] {
        let door = start(&memory()).await;
        let (_, first, permit) = run(&door, &call()).await;
        let second = enter(&door, &call()).await;
        assert_eq!(second.identity.relation, Relation::Joined);
        let second = second.ticket.expect("a ticket");
        done(permit).await;
        let mut in_order = Box::pin(second.earlier_answered());
        assert!((&mut in_order).now_or_never().is_none());
        if ends_by_leaving {
            drop(first);
        } else {
            first.see(Observation::Written);
        }
        assert!(in_order.now_or_never().is_some());
    }
}

/// A client that does not read its answer holds up another one for a while, and not for ever.
#[tokio::test(start_paused = true)]
async fn an_earlier_call_without_an_answer_delays_a_later_one_for_two_seconds() {
    let door = start(&memory()).await;
    let (_, first, permit) = run(&door, &call()).await;
    let second = enter(&door, &call()).await.ticket.expect("a ticket");
    done(permit).await;
    let before = tokio::time::Instant::now();
    second.earlier_answered().await;
    assert_eq!(before.elapsed().as_secs(), 2);
    drop(first);
}

#[tokio::test]
async fn a_caller_that_gave_up_while_it_waited_is_retried() {
    let bed = sqlite();
    let door = start(&bed).await;
    let distinct = Call {
        in_flight: InFlight::Distinct,
        ..call()
    };
    let (_, ticket, permit) = run(&door, &distinct).await;
    // It waits: both run.
    let (second, _ticket, other) = run(&door, &distinct).await;
    assert_eq!(told(&second), as_a(Relation::IntendedRepeat, 2));
    // It left: this is its retry.
    drop(ticket);
    let third = enter(&door, &distinct).await;
    assert_eq!(told(&third.identity), as_a(Relation::Retry, 1));
    assert!(matches!(third.admission, Admission::Wait { .. }));
    done(permit).await;
    done(other).await;
}

#[tokio::test]
async fn a_challenged_call_is_told_what_stands_in_its_way() {
    let bed = sqlite();
    let door = start(&bed).await;
    let careful = Call {
        in_flight: InFlight::Challenge,
        ..call()
    };
    let (first, _ticket, permit) = run(&door, &careful).await;
    let second = enter(&door, &careful).await;
    assert!(second.ticket.is_none());
    let Admission::Challenged { prior } = second.admission else {
        panic!("it is let in");
    };
    assert_eq!(prior.key_hash(), record(&door, &first.key).await.key_hash());
    // It says which one it knows of, and wants another.
    let knowing = Call {
        repeat_of: Some(first.key),
        ..careful
    };
    let (another, _ticket, other) = run(&door, &knowing).await;
    assert_eq!(told(&another), as_a(Relation::IntendedRepeat, 2));
    done(permit).await;
    done(other).await;
}

/// Makes the same call until no more can be judged, and ends each as told.
async fn crowd(door: &Doorway, known: bool) {
    let distinct = Call {
        in_flight: InFlight::Distinct,
        ..call()
    };
    let mut running = vec![];
    for n in 1..=u32::from(KIN_MAX) + 1 {
        let (identity, ticket, permit) = run(door, &distinct).await;
        assert_eq!(identity.occurrence, n);
        running.push((ticket, permit));
    }
    for (ticket, permit) in running {
        if known {
            done(permit).await;
        } else {
            permit.unknown("lost").await.expect("it is stored");
        }
        drop(ticket);
    }
}

#[tokio::test]
async fn more_doubts_than_can_be_judged_are_an_error_and_never_an_execution() {
    let door = start(&memory()).await;
    crowd(&door, false).await;
    let refused = door.enter(&call(), request()).await;
    assert_eq!(refused.expect_err("nothing runs").code(), "in_doubt");
}

#[tokio::test]
async fn what_lapsed_makes_room() {
    let bed = memory();
    let door = start(&bed).await;
    crowd(&door, true).await;
    assert!(door.enter(&call(), request()).await.is_err());
    bed.clock().advance(DAY);
    let next = complete(&door, &call()).await;
    assert_eq!(
        told(&next),
        as_a(Relation::IntendedRepeat, u32::from(KIN_MAX) + 2)
    );
    let first = record(&door, &call().numbered(1)).await;
    assert_eq!(
        first.operation().map(|it| it.delivery),
        Some(Delivery::Lapsed)
    );
}
