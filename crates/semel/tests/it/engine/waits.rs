//! Waiting for another caller's attempt: woken inside a process, polling across processes.

use std::time::Duration;

use semel::core::ledger::StateKind;
use semel::{Admission, Effect, Engine};
use semel_testkit::conformance::scratch;
use tokio::time::Instant;

use super::on_both_stores;
use super::world::{World, clean, data, key, order, permit, state};

on_both_stores![
    a_waiter_is_woken_by_the_outcome,
    a_waiter_is_woken_by_a_doubt,
    a_waiter_takes_over_what_was_not_done,
    a_waiter_gives_up_in_time,
    a_crowd_that_waits_is_woken_together,
    a_waiter_on_another_handle_polls,
];

/// When the first caller is done: at none of the moments at which a waiter polls.
const BUSY: Duration = Duration::from_millis(10_107);

/// How far virtual time may run on between a wake-up and its answer.
const SLACK: Duration = Duration::from_millis(3);

async fn a_waiter_is_woken_by_the_outcome(world: World) {
    let engine = world.engine().await;
    let first = permit(&engine, order()).await;
    let started = Instant::now();
    let settling = async {
        tokio::time::sleep(BUSY).await;
        first.done(Effect::Created, &42).await.expect("taken");
    };
    let waiting = engine.begin(order().wait(Duration::from_secs(60)));
    let (admission, ()) = tokio::join!(waiting, settling);
    let Ok(Admission::Replay(receipt)) = admission else {
        panic!("{admission:?}");
    };
    assert_eq!(data(&receipt), "42");
    let waited = started.elapsed();
    assert!((BUSY..BUSY + SLACK).contains(&waited), "{waited:?}");
    clean(&engine).await;
}

async fn a_waiter_is_woken_by_a_doubt(world: World) {
    let engine = world.engine().await;
    let first = permit(&engine, order()).await;
    let started = Instant::now();
    let dropping = async {
        tokio::time::sleep(BUSY).await;
        drop(first);
    };
    let waiting = engine.begin(order().wait(Duration::from_secs(60)));
    let (admission, ()) = tokio::join!(waiting, dropping);
    assert!(
        matches!(admission, Ok(Admission::InDoubt(_))),
        "{admission:?}"
    );
    let waited = started.elapsed();
    assert!((BUSY..BUSY + SLACK).contains(&waited), "{waited:?}");
}

async fn a_waiter_takes_over_what_was_not_done(world: World) {
    let engine = world.engine().await;
    let first = permit(&engine, order()).await;
    let started = Instant::now();
    let releasing = async {
        tokio::time::sleep(BUSY).await;
        first.not_done("refused").await.expect("taken");
    };
    let waiting = engine.begin(order().wait(Duration::from_secs(60)));
    let (admission, ()) = tokio::join!(waiting, releasing);
    let Ok(Admission::Execute(second)) = admission else {
        panic!("{admission:?}");
    };
    assert!(started.elapsed() < BUSY + SLACK);
    // Its deadline counts from its own claim, not from when it began to wait.
    assert!(second.is_alive());
    assert_eq!(second.fence().0, 2);
    second.done(Effect::Created, &1).await.expect("taken");
    clean(&engine).await;
}

async fn a_waiter_gives_up_in_time(world: World) {
    let engine = world.engine().await;
    let first = permit(&engine, order()).await;
    let started = Instant::now();
    let bound = Duration::from_millis(1_234);
    let admission = engine.begin(order().wait(bound)).await;
    assert!(
        matches!(admission, Ok(Admission::Wait { .. })),
        "{admission:?}"
    );
    let waited = started.elapsed();
    assert!((bound..bound + SLACK).contains(&waited), "{waited:?}");
    // Without a wait the answer comes at once.
    let started = Instant::now();
    let admission = engine.begin(order()).await;
    let Ok(Admission::Wait { retry_after }) = admission else {
        panic!("{admission:?}");
    };
    assert!(started.elapsed() < SLACK && !retry_after.is_zero());
    let call = engine.effect("create-order", key("order-7"));
    let error = call.run(|_| async { Ok(()) }).await.expect_err("it runs");
    assert_eq!((error.code(), error.retryable()), ("in_flight", true));
    first.done(Effect::Created, &1).await.expect("taken");
}

async fn a_crowd_that_waits_is_woken_together(world: World) {
    let engine = world.engine().await;
    let first = permit(&engine, order()).await;
    let started = Instant::now();
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let engine = engine.clone();
        crowd.spawn(async move {
            let admission = engine.begin(order().wait(Duration::from_secs(60))).await;
            let Ok(Admission::Replay(receipt)) = admission else {
                panic!("{admission:?}");
            };
            data(&receipt)
        });
    }
    tokio::time::sleep(BUSY).await;
    first.done(Effect::Created, &42).await.expect("taken");
    let answers = crowd.join_all().await;
    assert!(answers.iter().all(|answer| answer == "42"));
    assert!(started.elapsed() < BUSY + SLACK);
}

async fn a_waiter_on_another_handle_polls(world: World) {
    let (here, there) = (world.engine().await, world.another_engine().await);
    let first = permit(&here, order()).await;
    let started = Instant::now();
    let settling = async {
        tokio::time::sleep(BUSY).await;
        first.done(Effect::Created, &42).await.expect("taken");
    };
    let waiting = there.begin(order().wait(Duration::from_secs(60)));
    let (admission, ()) = tokio::join!(waiting, settling);
    assert!(
        matches!(admission, Ok(Admission::Replay(_))),
        "{admission:?}"
    );
    // At most one pause between two looks later, and that is a quarter of a second.
    let waited = started.elapsed();
    assert!(waited < BUSY + Duration::from_millis(260), "{waited:?}");
    assert_eq!(
        state(&there, &key("order-7")).await,
        Some(StateKind::Succeeded)
    );
}

/// The same in real time, with threads and syncs as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_on_one_file_wait_for_each_other() {
    let directory = scratch();
    let url = format!("sqlite:{}", directory.path().join("semel.db").display());
    let here = Engine::open(&url).await.expect("it opens");
    let there = Engine::open(&url).await.expect("it opens");
    for n in 0..10 {
        let request = move || semel::Request::new("create-order", key(&format!("order-{n}")));
        let first = permit(&here, request()).await;
        let waiting = tokio::spawn({
            let there = there.clone();
            async move { there.begin(request().wait(Duration::from_secs(60))).await }
        });
        tokio::task::yield_now().await;
        first.done(Effect::Created, &n).await.expect("taken");
        let settled = std::time::Instant::now();
        let admission = waiting.await.expect("it runs");
        assert!(
            matches!(admission, Ok(Admission::Replay(_))),
            "{admission:?}"
        );
        // Far below the wait, and far above what a busy machine needs.
        assert!(settled.elapsed() < Duration::from_secs(20));
    }
    clean(&here).await;
}
