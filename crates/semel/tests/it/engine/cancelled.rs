//! Futures that are dropped at every await: the operation is as if asked, or as if not asked.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use semel::core::VerdictKind;
use semel::core::ledger::{AttemptKind, Record, StateKind};
use semel::{Admission, Effect, Engine, OnDoubt, Request};

use super::on_both_stores;
use super::store::Twisted;
use super::world::{
    Effects, World, clean, data, engine_on, key, operation, order, permit, record, replay, state,
};

on_both_stores![
    a_claim_dropped_at_any_await_leaves_the_key_free,
    a_probe_dropped_at_any_await_says_nothing_about_the_doubt,
    a_report_dropped_at_any_await_is_stored,
    a_run_dropped_at_any_await_is_honest,
    a_waiter_that_went_away_claims_nothing,
];

/// More awaits than any of these futures has.
const POLLS_MAX: usize = 2_000;

/// Polls a future this often, letting the runtime work in between; returns its answer, or drops it.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for _ in 0..times {
        if let Poll::Ready(answer) = once(future.as_mut()) {
            return Some(answer);
        }
        breathe().await;
    }
    None
}

fn once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets everything run that can.
async fn breathe() {
    // Virtual time stands still while anything else can run, blocking tasks included.
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Lets what was handed to the runtime come to its end.
async fn settle_down(engine: &Engine) -> Option<Arc<Record>> {
    for _ in 0..50 {
        breathe().await;
    }
    record(engine, &key("order-7")).await
}

async fn a_claim_dropped_at_any_await_leaves_the_key_free(world: World) {
    for polls in 0..POLLS_MAX {
        let fresh = if polls == 0 { None } else { Some(()) };
        let request = order_number(polls);
        let engine = engine_on(Twisted::yielding(Arc::clone(&world.store))).await;
        let answer = polled(engine.begin(request.clone()), polls).await;
        if let Some(answer) = answer {
            assert!(fresh.is_some(), "nothing was polled");
            assert!(polls > 4, "there were awaits to be dropped at: {polls}");
            let Ok(Admission::Execute(permit)) = answer else {
                panic!("{answer:?}");
            };
            permit.done(Effect::Created, &1).await.expect("taken");
            clean(&engine).await;
            return;
        }
        for _ in 0..50 {
            breathe().await;
        }
        let key = key(&format!("order-{polls}"));
        match record(&engine, &key).await {
            None => {}
            Some(record) => {
                let operation = record.operation().expect("it lives");
                assert_eq!(record.kind(), StateKind::Pending, "after {polls} polls");
                let attempt = operation.latest().expect("it was begun");
                assert_eq!(attempt.verdict, Some(VerdictKind::NotDone));
                assert!(!attempt.open, "nobody had the permit");
            }
        }
        let permit = permit(&engine, request).await;
        permit.done(Effect::Created, &1).await.expect("taken");
    }
    panic!("it never came to its end");
}

fn order_number(n: usize) -> Request {
    Request::new("create-order", key(&format!("order-{n}")))
}

/// Leaves an operation in doubt that a probe may look up by now.
async fn doubted(engine: &Engine, request: Request) {
    let doubted = permit(engine, request).await;
    doubted.unknown("connection reset").await.expect("taken");
    tokio::time::sleep(Duration::from_secs(61)).await;
}

async fn a_probe_dropped_at_any_await_says_nothing_about_the_doubt(world: World) {
    let mut silent = 0;
    for polls in 0..POLLS_MAX {
        let request = order_number(polls).on_doubt(OnDoubt::Probe);
        let engine = engine_on(Twisted::yielding(Arc::clone(&world.store))).await;
        doubted(&engine, request.clone()).await;
        let answer = polled(engine.begin(request.clone()), polls).await;
        let ended = answer.is_some();
        if let Some(answer) = answer {
            assert!(polls > 4, "there were awaits to be dropped at: {polls}");
            let Ok(Admission::Probe(probe)) = answer else {
                panic!("{answer:?}");
            };
            drop(probe);
        }
        for _ in 0..50 {
            breathe().await;
        }
        let operation = operation(&engine, &key(&format!("order-{polls}"))).await;
        let state = operation.state.kind();
        assert_eq!(state, StateKind::Doubtful, "after {polls} polls");
        assert!(operation.attempts[0].open, "after {polls} polls");
        for probe in &operation.attempts[1..] {
            assert_eq!(probe.kind, AttemptKind::Probe, "after {polls} polls");
            assert_eq!(probe.verdict, Some(VerdictKind::Unknown));
            silent += 1;
        }
        assert!(operation.attempts.len() <= 2, "one claim was made");
        // The next one looks at once, and its word counts.
        let Ok(Admission::Probe(probe)) = engine.begin(request).await else {
            panic!("a probe was expected after {polls} polls");
        };
        probe.not_done("nothing there").await.expect("taken");
        if ended {
            assert!(silent > 1, "some were dropped after the claim was stored");
            clean(&engine).await;
            return;
        }
    }
    panic!("it never came to its end");
}

async fn a_report_dropped_at_any_await_is_stored(world: World) {
    for polls in 0..POLLS_MAX {
        let engine = engine_on(Twisted::yielding(Arc::clone(&world.store))).await;
        let key = key(&format!("order-{polls}"));
        let permit = permit(&engine, order_number(polls)).await;
        let answer = polled(permit.done(Effect::Created, "answer"), polls).await;
        for _ in 0..50 {
            breathe().await;
        }
        if polls == 0 {
            // Never polled, it was never a report: the permit was dropped.
            assert_eq!(state(&engine, &key).await, Some(StateKind::Doubtful));
            continue;
        }
        let again = replay(&engine, order_number(polls)).await;
        assert_eq!(data(&again), "\"answer\"", "after {polls} polls");
        if answer.is_some() {
            assert!(polls > 2, "there were awaits to be dropped at: {polls}");
            clean(&engine).await;
            return;
        }
    }
    panic!("it never came to its end");
}

async fn a_run_dropped_at_any_await_is_honest(world: World) {
    let mut seen = std::collections::BTreeSet::new();
    for polls in 0..POLLS_MAX {
        let engine = engine_on(Twisted::yielding(Arc::clone(&world.store))).await;
        let key = key(&format!("order-{polls}"));
        let effects = Effects::default();
        let ours = effects.clone();
        let call = engine.effect("create-order", key.clone());
        let run = call.run(|_| async move {
            tokio::task::yield_now().await;
            ours.happen();
            tokio::task::yield_now().await;
            Ok(1)
        });
        let answer = polled(run, polls).await;
        for _ in 0..50 {
            breathe().await;
        }
        let state = state(&engine, &key).await;
        seen.insert(state);
        match state {
            None | Some(StateKind::Pending) => assert_eq!(effects.count(), 0),
            Some(StateKind::Succeeded) => assert_eq!(effects.count(), 1),
            // In doubt, it had the permit: it may have acted, and it may not.
            Some(StateKind::Doubtful) => {}
            Some(other) => panic!("{other:?} after {polls} polls"),
        }
        if answer.is_some() {
            let every = [
                None,
                Some(StateKind::Pending),
                Some(StateKind::Succeeded),
                Some(StateKind::Doubtful),
            ];
            assert_eq!(seen, every.into(), "every way it can end was met");
            clean(&engine).await;
            return;
        }
    }
    panic!("it never came to its end");
}

/// Otherwise callers that gave up would use the attempts up, one after the other.
async fn a_waiter_that_went_away_claims_nothing(world: World) {
    let engine = world.engine().await;
    let limited = || order().max_attempts(NonZeroU32::new(3).expect("three"));
    let first = permit(&engine, limited()).await;
    let waiting = engine.begin(limited().wait(Duration::from_secs(600)));
    assert!(polled(waiting, 20).await.is_none(), "it waits");
    first.not_done("connection refused").await.expect("taken");
    settle_down(&engine).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let operation = operation(&engine, &key("order-7")).await;
    assert_eq!(operation.state.kind(), StateKind::Pending);
    assert_eq!(operation.attempts.len(), 1, "nobody was there to try it");
    clean(&engine).await;
}
