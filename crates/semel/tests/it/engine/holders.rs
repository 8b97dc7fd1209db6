//! A holder that is provably gone: the next caller meets the doubt, not a minute of waiting.

use std::time::Duration;

use semel::core::ledger::{Event, Holder, StateKind};
use semel::{Admission, Class, Effect, Engine, Fault, Namespace, Point};

use super::actions::in_doubt;
use super::on_both_stores;
use super::world::{World, clean, key, order, permit, state};

on_both_stores![
    a_holder_that_is_gone_leaves_a_doubt_at_once,
    a_holder_that_nobody_can_see_is_waited_for,
    a_doubt_left_by_a_process_that_is_gone_can_be_retried_at_once,
    an_operator_notices_a_holder_that_is_gone_and_no_other,
];

/// This process under its number, but started at another time: such a one is gone.
fn gone() -> Holder {
    let this = semel::holder::this_process().expect("this system tells who we are");
    Holder {
        started: this.started + 1,
        ..this
    }
}

async fn engine_of(world: &World, holder: Holder) -> Engine {
    let builder = Engine::builder().store(world.another()).sweep_every(None);
    let started = builder.holder(Some(holder)).start().await;
    started.expect("the engine starts")
}

/// Claims, and vanishes without a word.
async fn vanish(engine: &Engine, request: semel::Request) {
    // A claim whose reply is lost is one that nobody holds, as after a crash.
    engine.inject_error(Point::Begin, Fault::LoseReply, super::faults::ALL);
    engine.begin(request).await.expect_err("the reply is lost");
}

async fn a_holder_that_is_gone_leaves_a_doubt_at_once(world: World) {
    let crashed = engine_of(&world, gone()).await;
    vanish(&crashed, order()).await;
    drop(crashed);
    let engine = world.engine().await;
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Running)
    );
    in_doubt(&engine, order()).await;
    // The doubt is stored, so that a person can resolve it at once.
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Doubtful)
    );
    let log = engine.store().log(0, 10).await.expect("the log reads");
    let seen = |one: &semel::store::Logged| one.entry.events.contains(&Event::HolderGone);
    assert!(log.iter().any(seen));
    clean(&engine).await;
}

async fn a_holder_that_nobody_can_see_is_waited_for(world: World) {
    let elsewhere = Holder { boot: 7, ..gone() };
    let crashed = engine_of(&world, elsewhere).await;
    vanish(&crashed, order()).await;
    drop(crashed);
    let engine = world.engine().await;
    let admission = engine.begin(order().wait(Duration::from_secs(30))).await;
    assert!(
        matches!(admission, Ok(Admission::Wait { .. })),
        "{admission:?}"
    );
    let admission = engine.begin(order().wait(Duration::from_secs(40))).await;
    assert!(
        matches!(admission, Ok(Admission::InDoubt(_))),
        "{admission:?}"
    );
    clean(&engine).await;
}

async fn a_doubt_left_by_a_process_that_is_gone_can_be_retried_at_once(world: World) {
    let request = || order().class(Class::Idempotent);
    let crashed = engine_of(&world, gone()).await;
    vanish(&crashed, request()).await;
    drop(crashed);
    let engine = world.engine().await;
    let permit = permit(&engine, request()).await;
    assert_eq!(permit.fence().0, 2);
    permit.done(Effect::Created, &1).await.expect("taken");
    clean(&engine).await;
}

async fn an_operator_notices_a_holder_that_is_gone_and_no_other(world: World) {
    let engine = world.engine().await;
    let notice = async |name: &str| {
        let noticed = engine.notice_gone(&Namespace::default(), &key(name)).await;
        let record = noticed.expect("the store answers");
        record.map(|record| record.kind())
    };
    assert_eq!(notice("order-7").await, None);
    let _held = permit(&engine, order()).await;
    assert_eq!(notice("order-7").await, Some(StateKind::Running));
    let crashed = engine_of(&world, gone()).await;
    vanish(
        &crashed,
        semel::Request::new("create-order", key("order-8")),
    )
    .await;
    assert_eq!(notice("order-8").await, Some(StateKind::Doubtful));
    let entries = engine.last_entry().await.expect("the log has an end");
    assert_eq!(notice("order-8").await, Some(StateKind::Doubtful));
    let after = engine.last_entry().await.expect("the log has an end");
    assert_eq!(entries, after, "noticing it again writes nothing");
    clean(&engine).await;
}
