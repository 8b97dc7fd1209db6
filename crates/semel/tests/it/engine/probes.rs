//! Probes: a doubted effect is looked up before anything else is done about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::core::Digest;
use semel::core::ledger::{Rejection, StateKind};
use semel::{Admission, Effect, Engine, Error, Failure, Found, OnDoubt, Preview, Request};

use super::on_both_stores;
use super::world::{Effects, World, clean, data, key, order, permit, replay, state, until};

on_both_stores![
    what_the_probe_found_done_is_replayed_without_a_second_effect,
    what_the_probe_found_not_done_runs,
    what_the_probe_cannot_tell_stays_in_doubt,
    a_caller_without_a_probe_changes_nothing,
    no_probe_looks_before_the_lease_and_the_settle_delay_are_over,
    a_probe_that_is_dropped_leaves_the_doubt,
    one_of_two_probes_looks,
    another_probe_leaves_the_doubt_and_no_trace,
];

async fn doubt(engine: &Engine, effects: &Effects) {
    let ours = effects.clone();
    let call = engine.effect("create-order", key("order-7"));
    let failed = call.on_doubt(OnDoubt::Probe).run(|_| async move {
        ours.happen();
        Err::<(), _>(Failure::unknown("connection reset"))
    });
    failed.await.expect_err("it is in doubt");
    // Nothing that is in doubt may still act when it is looked up.
    tokio::time::sleep(Duration::from_secs(61)).await;
}

/// Runs with a probe that finds this, and counts how often it looked.
async fn probed(
    engine: &Engine,
    effects: &Effects,
    found: Found,
) -> (Result<(u32, bool), Error>, u32) {
    let looks = Arc::new(AtomicU32::new(0));
    let (counted, ours) = (Arc::clone(&looks), effects.clone());
    let call = engine.effect("create-order", key("order-7"));
    let call = call.probe(move |attempt| async move {
        assert_eq!(attempt.key().as_str(), "order-7");
        counted.fetch_add(1, Ordering::SeqCst);
        found
    });
    let done = call.run(|_| async move {
        ours.happen();
        Ok(7)
    });
    let done = done.await.map(|done| (done.value, done.replayed));
    (done, looks.load(Ordering::SeqCst))
}

async fn what_the_probe_found_done_is_replayed_without_a_second_effect(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    doubt(&engine, &effects).await;
    let found = Found::Done(serde_json::json!(42));
    let (done, looks) = probed(&engine, &effects, found).await;
    assert_eq!(done.expect("it is done"), (42, true));
    assert_eq!((looks, effects.count()), (1, 1));
    assert_eq!(data(&replay(&engine, order()).await), "42");
    clean(&engine).await;
}

async fn what_the_probe_found_not_done_runs(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    doubt(&engine, &effects).await;
    let (done, looks) = probed(&engine, &effects, Found::NotDone).await;
    assert_eq!(done.expect("it is done"), (7, false));
    assert_eq!((looks, effects.count()), (1, 2));
    clean(&engine).await;
}

async fn what_the_probe_cannot_tell_stays_in_doubt(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    doubt(&engine, &effects).await;
    for _ in 0..2 {
        let (done, looks) = probed(&engine, &effects, Found::Unknown).await;
        assert_eq!(done.map_err(|error| error.code()), Err("in_doubt"));
        assert_eq!((looks, effects.count()), (1, 1));
        assert_eq!(
            state(&engine, &key("order-7")).await,
            Some(StateKind::Doubtful)
        );
        tokio::time::sleep(Duration::from_secs(61)).await;
    }
    clean(&engine).await;
}

async fn a_caller_without_a_probe_changes_nothing(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    doubt(&engine, &effects).await;
    let ours = effects.clone();
    let call = engine.effect("create-order", key("order-7"));
    let done = call.run(|_| async move {
        ours.happen();
        Ok(())
    });
    let error = done.await.expect_err("it is in doubt");
    assert_eq!((error.code(), effects.count()), ("in_doubt", 1));
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Doubtful)
    );
    clean(&engine).await;
}

async fn no_probe_looks_before_the_lease_and_the_settle_delay_are_over(world: World) {
    let engine = world.engine().await;
    let request = || {
        let request = order().on_doubt(OnDoubt::Probe);
        request.settle_delay(Duration::from_secs(30))
    };
    let first = permit(&engine, request()).await;
    first.unknown("connection reset").await.expect("taken");
    // Its lease lasts another minute, in which what was sent may still arrive.
    for (seconds, may) in [(0, false), (59, false), (30, false), (2, true)] {
        world.clock.skip(Duration::from_secs(seconds));
        let admission = engine.begin(request()).await.expect("it is answered");
        match admission {
            Admission::InDoubt(_) => assert!(!may),
            Admission::Probe(probe) => {
                assert!(may && probe.is_probe());
                probe.done(Effect::Created, &1).await.expect("taken");
            }
            other => panic!("{other:?}"),
        }
    }
    replay(&engine, request()).await;
    clean(&engine).await;
}

async fn a_probe_that_is_dropped_leaves_the_doubt(world: World) {
    let engine = world.engine().await;
    doubt(&engine, &Effects::default()).await;
    let request = || order().on_doubt(OnDoubt::Probe);
    let Ok(Admission::Probe(probe)) = engine.begin(request()).await else {
        panic!("a probe was expected");
    };
    drop(probe);
    until(&engine, &key("order-7"), StateKind::Doubtful).await;
    // It touched nothing, so the next one need not wait for it.
    let Ok(Admission::Probe(probe)) = engine.begin(request()).await else {
        panic!("a probe was expected");
    };
    probe.not_done("nothing there").await.expect("taken");
    let permit = permit(&engine, request()).await;
    permit.done(Effect::Created, &1).await.expect("taken");
    clean(&engine).await;
}

async fn another_probe_leaves_the_doubt_and_no_trace(world: World) {
    let engine = world.engine().await;
    let (mine, other) = (Digest::of(b"mine"), Digest::of(b"other"));
    let request = || order().on_doubt(OnDoubt::Probe);
    let attempt = permit(&engine, request().probe_digest(mine)).await;
    attempt.unknown("lost").await.expect("it is taken");
    tokio::time::sleep(Duration::from_secs(61)).await;
    let before = engine.last_entry().await.expect("the log has an end");
    for asked in [request(), request().probe_digest(other)] {
        let preview = engine.preview(asked.clone()).await;
        assert!(matches!(preview, Ok(Preview::InDoubt(_))), "{preview:?}");
        let admission = engine.begin(asked).await;
        assert!(
            matches!(admission, Ok(Admission::InDoubt(_))),
            "{admission:?}"
        );
    }
    assert_eq!(engine.last_entry().await.ok(), Some(before));
    let admission = engine.begin(request().probe_digest(mine)).await;
    let Ok(Admission::Probe(probe)) = admission else {
        panic!("a probe was expected: {admission:?}");
    };
    assert_eq!(probe.probe_digest(), Some(mine));
    probe.not_done("nothing there").await.expect("taken");
    clean(&engine).await;
}

async fn one_of_two_probes_looks(world: World) {
    let engine = world.engine().await;
    doubt(&engine, &Effects::default()).await;
    let request = || Request::new("create-order", key("order-7")).on_doubt(OnDoubt::Probe);
    let admissions = tokio::join!(engine.begin(request()), engine.begin(request()));
    // Either of them may come first.
    let probe = match admissions {
        (Ok(Admission::Probe(probe)), Ok(Admission::Wait { .. }))
        | (Ok(Admission::Wait { .. }), Ok(Admission::Probe(probe))) => probe,
        other => panic!("{other:?}"),
    };
    let fence = probe.fence();
    probe.done(Effect::Created, &1).await.expect("taken");
    assert_eq!(fence.0, 2);
    let refused = engine.begin(request().input(&"other")).await;
    let refused = refused.err().and_then(|error| error.rejection());
    assert_eq!(refused, Some(Rejection::KeyReused));
}
