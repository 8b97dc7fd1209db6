//! Housekeeping: ended leases, retention that waits for two sweeps, and what is never purged.

use std::num::NonZeroU32;
use std::time::Duration;

use semel::core::ledger::{STUB_KEPT, StateKind, TOMBSTONE_KEPT};
use semel::{Effect, Engine, Label, Namespace, Request, Retention, Swept};

use super::on_both_stores;
use super::world::{World, clean, key, order, permit, record, replay, state, until};

on_both_stores![
    ended_leases_become_doubts,
    retention_acts_only_when_two_sweeps_agree,
    a_clock_that_jumped_buries_nothing,
    nothing_open_is_ever_purged,
    a_settled_operation_becomes_a_tombstone_then_a_stub_then_nothing,
    every_retention_is_its_own,
    more_than_one_sweep_can_look_at_is_swept_in_the_end,
    the_engine_sweeps_by_itself,
];

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn sweep(engine: &Engine) -> Swept {
    engine.sweep().await.expect("it sweeps")
}

/// Sweeps twice, an hour apart, so that retention may act.
async fn sweep_for_real(world: &World, engine: &Engine) -> Swept {
    let first = sweep(engine).await;
    world.clock.skip(HOUR);
    let second = sweep(engine).await;
    Swept {
        expired: first.expired + second.expired,
        buried: first.buried + second.buried,
        dropped: first.dropped + second.dropped,
        unfinished: second.unfinished,
    }
}

async fn done(engine: &Engine, request: Request) {
    let permit = permit(engine, request).await;
    permit.done(Effect::Created, "answer").await.expect("taken");
}

async fn ended_leases_become_doubts(world: World) {
    let engine = world.engine().await;
    let mut permits = vec![];
    for n in 0..5 {
        permits.push(permit(&engine, Request::new("x", key(&format!("x-{n}")))).await);
    }
    assert_eq!(sweep(&engine).await, Swept::default());
    world.clock.skip(Duration::from_secs(61));
    let young = permit(&engine, order()).await;
    let swept = sweep(&world.another_engine().await).await;
    assert_eq!(swept.expired, 5);
    assert_eq!(sweep(&engine).await.expired, 0);
    assert_eq!(state(&engine, &key("x-3")).await, Some(StateKind::Doubtful));
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Running)
    );
    young.done(Effect::Created, &1).await.expect("taken");
    for permit in permits {
        permit.done(Effect::Created, &1).await.expect("late");
    }
    clean(&engine).await;
}

async fn retention_acts_only_when_two_sweeps_agree(world: World) {
    let engine = world.engine().await;
    done(&engine, order()).await;
    world.clock.skip(DAY * 31);
    // The first sweep that ever was, and those that follow too soon, bury nothing.
    for _ in 0..3 {
        assert_eq!(sweep(&engine).await.buried, 0);
        world.clock.skip(HOUR / 4);
    }
    replay(&engine, order()).await;
    world.clock.skip(HOUR / 4);
    assert_eq!(sweep(&engine).await.buried, 1);
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Tombstone)
    );
    clean(&engine).await;
}

async fn a_clock_that_jumped_buries_nothing(world: World) {
    let engine = world.engine().await;
    done(&engine, order()).await;
    sweep(&engine).await;
    world.clock.jump(DAY * 4_000);
    for _ in 0..10 {
        world.clock.skip(HOUR * 2);
        assert_eq!(sweep(&engine).await, Swept::default());
    }
    replay(&engine, order()).await;
}

async fn nothing_open_is_ever_purged(world: World) {
    let engine = world.engine().await;
    let short = Retention::new(Duration::from_secs(1)).expect("a valid retention");
    let request = |name: &str| Request::new("x", key(name)).retention(short);
    engine
        .submit(request("pending"), semel::Queueing::nobody())
        .await
        .expect("taken");
    let doubted = permit(&engine, request("doubtful")).await;
    doubted.unknown("reset").await.expect("taken");
    let dead = request("dead").max_attempts(NonZeroU32::MIN);
    let dead = permit(&engine, dead).await;
    dead.not_done("refused").await.expect("taken");
    let held = permit(&engine, request("running")).await;
    done(&engine, request("done")).await;
    for _ in 0..6 {
        sweep_for_real(&world, &engine).await;
        world.clock.skip(DAY * 400);
    }
    let states = [
        ("pending", Some(StateKind::Pending)),
        ("doubtful", Some(StateKind::Doubtful)),
        ("dead", Some(StateKind::Dead)),
        // Its lease is long over.
        ("running", Some(StateKind::Doubtful)),
        ("done", None),
    ];
    for (name, expected) in states {
        assert_eq!(state(&engine, &key(name)).await, expected, "{name}");
    }
    held.done(Effect::Created, &1).await.expect("late");
    clean(&engine).await;
}

async fn a_settled_operation_becomes_a_tombstone_then_a_stub_then_nothing(world: World) {
    let engine = world.engine().await;
    done(&engine, order()).await;
    world.clock.skip(DAY * 31);
    assert_eq!(sweep_for_real(&world, &engine).await.buried, 1);
    let wall = Namespace::default();
    let payload = engine.payload(&wall, &key("order-7")).await;
    assert_eq!(payload.expect("it loads"), None, "the answer is gone");
    let expired = engine.begin(order()).await;
    assert_eq!(expired.map_err(|error| error.code()).err(), Some("expired"));
    let reused = engine.begin(order().input(&"other")).await;
    let reused = reused.map_err(|error| error.code()).err();
    assert_eq!(reused, Some("key_reused"), "looked at before anything else");

    world.clock.skip(TOMBSTONE_KEPT);
    assert_eq!(sweep_for_real(&world, &engine).await.dropped, 1);
    assert_eq!(state(&engine, &key("order-7")).await, Some(StateKind::Stub));
    clean(&engine).await;

    world.clock.skip(STUB_KEPT);
    assert_eq!(sweep_for_real(&world, &engine).await.dropped, 1);
    assert_eq!(state(&engine, &key("order-7")).await, None);
    clean(&engine).await;
    let anew = permit(&world.another_engine().await, order()).await;
    assert_eq!(anew.fence().0, 1);
    anew.done(Effect::Created, &2).await.expect("taken");
    clean(&engine).await;
}

async fn every_retention_is_its_own(world: World) {
    let engine = world.engine().await;
    for days in [1, 10, 100] {
        let retention = Retention::new(DAY * days).expect("a valid retention");
        let request = Request::new("x", key(&format!("{days}-days")));
        done(&engine, request.retention(retention)).await;
    }
    world.clock.skip(DAY * 11);
    assert_eq!(sweep_for_real(&world, &engine).await.buried, 2);
    assert_eq!(
        state(&engine, &key("100-days")).await,
        Some(StateKind::Succeeded)
    );
}

async fn more_than_one_sweep_can_look_at_is_swept_in_the_end(world: World) {
    const MANY: usize = 2_300;
    let engine = world.engine().await;
    let mut crowd = tokio::task::JoinSet::new();
    for n in 0..MANY {
        let engine = engine.clone();
        let request = Request::new("x", key(&format!("x-{n}")));
        crowd.spawn(async move { done(&engine, request).await });
    }
    crowd.join_all().await;
    world.clock.skip(DAY * 31);
    let mut buried = sweep_for_real(&world, &engine).await.buried;
    // What is due is due: the rest follows with the next sweeps, not hours later.
    // Another process goes on where the last one stopped.
    for _ in 0..2 {
        let next = sweep(&world.another_engine().await).await.buried;
        assert!(next > 0, "{buried} of {MANY}");
        buried += next;
    }
    assert_eq!(buried, MANY);
    clean(&engine).await;
}

async fn the_engine_sweeps_by_itself(world: World) {
    let builder = Engine::builder().store(world.another());
    let pause = Some(Duration::from_secs(30));
    let sweeping = builder.sweep_every(pause).holder(None).start().await;
    let sweeping = sweeping.expect("the engine starts");
    let engine = world.engine().await;
    let held = permit(&engine, order()).await;
    world.clock.skip(Duration::from_secs(61));
    until(&sweeping, &key("order-7"), StateKind::Doubtful).await;
    held.done(Effect::Created, &1).await.expect("late");
    let by = Label::new("ann").expect("a valid name");
    let version = record(&engine, &key("order-7")).await.expect("stored");
    let wall = Namespace::default();
    let operator = engine.operator(&wall, &key("order-7"), version.version(), by);
    operator.forget().await.expect("forgotten");
    clean(&engine).await;
}
