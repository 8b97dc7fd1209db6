//! Faults on purpose: effects stay once, and answers stay honest.

use std::time::Duration;

use semel::core::ledger::StateKind;
use semel::{Admission, Effect, Engine, Error, Fault, Label, Namespace, Point};
use tokio::time::Instant;

use super::actions::in_doubt;
use super::on_both_stores;
use super::world::{Effects, World, clean, data, key, lease, order, permit, record, replay, state};

on_both_stores![
    a_claim_that_never_arrived_runs_nothing_and_leaves_the_key_free,
    a_claim_whose_reply_was_lost_is_asked_for_again,
    a_claim_whose_replies_are_all_lost_runs_nothing,
    a_claim_that_arrives_twice_is_one_grant,
    a_report_that_fails_is_tried_again,
    a_report_whose_reply_was_lost_is_stored_once,
    a_report_that_arrives_twice_changes_nothing,
    a_report_that_never_arrives_ends_with_the_lease,
];

async fn run(engine: &Engine, effects: &Effects) -> Result<(u32, bool), Error> {
    let ours = effects.clone();
    let call = engine.effect("create-order", key("order-7"));
    let done = call.run(|_| async move {
        ours.happen();
        Ok(42)
    });
    done.await.map(|done| (done.value, done.replayed))
}

async fn a_claim_that_never_arrived_runs_nothing_and_leaves_the_key_free(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    engine.inject_error(Point::Begin, Fault::Refuse, 2);
    for _ in 0..2 {
        let error = run(&engine, &effects).await.expect_err("a fault");
        assert_eq!(
            (error.code(), error.retryable()),
            ("store_unavailable", true)
        );
        assert_eq!(state(&engine, &key("order-7")).await, None);
    }
    assert_eq!(effects.count(), 0);
    assert_eq!(run(&engine, &effects).await.expect("done"), (42, false));
    assert_eq!(effects.count(), 1);
    clean(&engine).await;
}

async fn a_claim_whose_reply_was_lost_is_asked_for_again(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    engine.inject_error(Point::Begin, Fault::LoseReply, 2);
    assert_eq!(run(&engine, &effects).await.expect("done"), (42, false));
    let record = record(&engine, &key("order-7")).await.expect("stored");
    assert_eq!((record.fence().0, record.version().0), (1, 2), "one claim");
    assert_eq!(effects.count(), 1);
    clean(&engine).await;
}

/// More often than a claim is sent.
pub(super) const ALL: u32 = 5;

/// The claim is there and nobody knows it: that is a doubt in the end, and never a second effect.
async fn a_claim_whose_replies_are_all_lost_runs_nothing(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    engine.inject_error(Point::Begin, Fault::LoseReply, ALL);
    run(&engine, &effects).await.expect_err("the reply is lost");
    assert_eq!(effects.count(), 0);
    let admission = engine.begin(order()).await;
    assert!(
        matches!(admission, Ok(Admission::Wait { .. })),
        "{admission:?}"
    );
    tokio::time::sleep(Duration::from_secs(61)).await;
    in_doubt(&engine, order()).await;
    engine.sweep().await.expect("it sweeps");
    let stored = record(&engine, &key("order-7")).await.expect("stored");
    let by = Label::new("ann").expect("a valid name");
    let wall = Namespace::default();
    let operator = engine.operator(&wall, &key("order-7"), stored.version(), by);
    operator.resolve_not_done().await.expect("resolved");
    assert_eq!(run(&engine, &effects).await.expect("done"), (42, false));
    assert_eq!(effects.count(), 1);
    clean(&engine).await;
}

async fn a_claim_that_arrives_twice_is_one_grant(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    engine.inject_repeat(Point::Begin, 1);
    assert_eq!(run(&engine, &effects).await.expect("done"), (42, false));
    let record = record(&engine, &key("order-7")).await.expect("stored");
    assert_eq!((record.fence().0, record.version().0), (1, 2));
    assert_eq!(effects.count(), 1);
    clean(&engine).await;
}

async fn a_report_that_fails_is_tried_again(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    engine.inject_error(Point::Settle, Fault::Refuse, 5);
    assert_eq!(run(&engine, &effects).await.expect("done"), (42, false));
    assert_eq!(run(&engine, &effects).await.expect("done"), (42, true));
    assert_eq!(effects.count(), 1);
    clean(&engine).await;
}

async fn a_report_whose_reply_was_lost_is_stored_once(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    engine.inject_error(Point::Settle, Fault::LoseReply, 3);
    assert_eq!(run(&engine, &effects).await.expect("done"), (42, false));
    let stored = record(&engine, &key("order-7")).await.expect("stored");
    assert_eq!(stored.version().0, 2);
    assert_eq!(run(&engine, &effects).await.expect("done"), (42, true));
    assert_eq!(effects.count(), 1);
    // The same for a report of failure, whose answer is read back.
    engine.inject_error(Point::Settle, Fault::LoseReply, 1);
    let failed = permit(&engine, semel::Request::new("x", key("x"))).await;
    let receipt = failed.failed(Effect::Noop, "no").await.expect("taken");
    assert_eq!((receipt.ok, data(&receipt)), (false, "\"no\"".to_owned()));
    clean(&engine).await;
}

async fn a_report_that_arrives_twice_changes_nothing(world: World) {
    let engine = world.engine().await;
    engine.inject_repeat(Point::Settle, 3);
    let done = permit(&engine, order()).await;
    let receipt = done.done(Effect::Created, "yes").await.expect("taken");
    assert_eq!(
        (receipt.state, data(&receipt)),
        (StateKind::Succeeded, "\"yes\"".to_owned())
    );
    assert_eq!(data(&replay(&engine, order()).await), "\"yes\"");
    let request = || semel::Request::new("x", key("x"));
    let released = permit(&engine, request()).await;
    let receipt = released.not_done("refused").await.expect("taken");
    assert_eq!(receipt.state, StateKind::Pending);
    let doubted = permit(&engine, request()).await;
    let receipt = doubted.unknown("reset").await.expect("taken");
    assert_eq!(receipt.state, StateKind::Doubtful);
    clean(&engine).await;
}

/// Renewals go on, so the lease never ends by itself; the caller must not wait for ever.
async fn a_report_that_never_arrives_ends_with_the_lease(world: World) {
    let engine = world.engine().await;
    engine.inject_error(Point::Settle, Fault::Refuse, 1_000_000);
    let permit = permit(&engine, order().lease(lease(10))).await;
    let started = Instant::now();
    let unstored = permit.done(Effect::Created, "answer").await;
    let Err(error @ Error::Unstored { .. }) = unstored else {
        panic!("{unstored:?}");
    };
    assert!(started.elapsed() <= Duration::from_secs(10));
    assert_eq!(error.code(), "in_doubt");
    let Error::Unstored { payload, noted, .. } = error else {
        unreachable!("it was matched above");
    };
    assert_eq!(payload.as_deref(), Some(&b"\"answer\""[..]));
    assert_eq!(noted, engine.store().notes().is_some());
    tokio::time::sleep(Duration::from_secs(11)).await;
    in_doubt(&engine, order()).await;
    clean(&engine).await;
}
