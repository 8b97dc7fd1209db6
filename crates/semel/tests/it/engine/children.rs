//! Children: a step begins only while its parent runs with the fence that the step was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::core::ledger::{Command, Fence, StateKind};
use semel::{Admission, Effect, Engine, Request};

use super::on_both_stores;
use super::store::{Twist, Twisted};
use super::world::{Effects, World, clean, engine_on, key, order, permit, state};

on_both_stores![
    a_child_begins_while_its_parent_runs_with_that_fence,
    a_child_of_what_does_not_run_is_fenced,
    a_child_of_an_older_attempt_is_fenced,
    a_child_whose_parent_ends_before_its_commit_is_fenced,
    a_child_whose_parent_is_renewed_before_its_commit_begins,
    a_parent_whose_lease_is_over_begins_no_child,
];

fn child(fence: Fence) -> Request {
    Request::new("charge", key("order-7/charge")).parent(key("order-7"), fence)
}

async fn fenced(engine: &Engine, request: Request) {
    let refused = engine.begin(request).await;
    assert_eq!(refused.map_err(|error| error.code()).err(), Some("fenced"));
    assert_eq!(
        state(engine, &key("order-7/charge")).await,
        None,
        "nothing was written"
    );
}

async fn a_child_begins_while_its_parent_runs_with_that_fence(world: World) {
    let engine = world.engine().await;
    let parent = permit(&engine, order()).await;
    // From another process, which has to look for the parent first.
    let other = world.another_engine().await;
    let step = permit(&other, child(parent.fence())).await;
    step.done(Effect::Created, &1).await.expect("taken");
    parent.done(Effect::Created, &2).await.expect("taken");
    clean(&engine).await;
}

async fn a_child_of_what_does_not_run_is_fenced(world: World) {
    let engine = world.engine().await;
    fenced(&engine, child(Fence(1))).await;
    engine
        .submit(order(), semel::Queueing::nobody())
        .await
        .expect("taken");
    fenced(&engine, child(Fence(0))).await;
    let parent = permit(&engine, order()).await;
    let fence = parent.fence();
    parent.done(Effect::Created, &1).await.expect("taken");
    fenced(&engine, child(fence)).await;
    clean(&engine).await;
}

async fn a_child_of_an_older_attempt_is_fenced(world: World) {
    let engine = world.engine().await;
    let first = permit(&engine, order()).await;
    let lost = first.fence();
    first.not_done("refused").await.expect("taken");
    let second = permit(&engine, order()).await;
    fenced(&engine, child(lost)).await;
    let effects = Effects::default();
    let ours = effects.clone();
    let call = engine.effect("charge", key("order-7/charge"));
    let refused = call.parent(key("order-7"), lost).run(|_| async move {
        ours.happen();
        Ok(())
    });
    refused.await.expect_err("its parent lost its fence");
    assert_eq!(effects.count(), 0);
    let step = permit(&engine, child(second.fence())).await;
    step.done(Effect::Created, &1).await.expect("taken");
    second.done(Effect::Created, &1).await.expect("taken");
}

/// Makes an engine on which something happens once, just before a child's claim is committed.
async fn just_before_the_child<F>(world: &World, happens: F) -> Engine
where
    F: Fn() -> semel::store::Pending<'static, ()> + Send + Sync + 'static,
{
    let happened = AtomicBool::new(false);
    let store = Twisted::new(Arc::clone(&world.store), move |change| {
        let is_child = matches!(&change.entry.command, Command::Begin(begin)
            if begin.spec.parent.is_some());
        if is_child && !happened.swap(true, Ordering::SeqCst) {
            Twist::After(happens())
        } else {
            Twist::Pass
        }
    });
    engine_on(store).await
}

async fn a_child_whose_parent_ends_before_its_commit_is_fenced(world: World) {
    let engine = world.engine().await;
    let parent = permit(&engine, order()).await;
    let fence = parent.fence();
    let parent = std::sync::Mutex::new(Some(parent));
    let racing = just_before_the_child(&world, move || {
        let parent = parent.lock().expect("no panic").take();
        Box::pin(async move {
            let parent = parent.expect("it happens once");
            parent.done(Effect::Created, &1).await.expect("taken");
        })
    });
    let racing = racing.await;
    fenced(&racing, child(fence)).await;
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Succeeded)
    );
    clean(&engine).await;
}

async fn a_child_whose_parent_is_renewed_before_its_commit_begins(world: World) {
    let engine = world.engine().await;
    let parent = Arc::new(permit(&engine, order()).await);
    let renewing = Arc::clone(&parent);
    let racing = just_before_the_child(&world, move || {
        let parent = Arc::clone(&renewing);
        Box::pin(async move { parent.renew().await.expect("it is renewed") })
    });
    let racing = racing.await;
    let step = permit(&racing, child(parent.fence())).await;
    step.done(Effect::Created, &1).await.expect("taken");
    clean(&engine).await;
}

async fn a_parent_whose_lease_is_over_begins_no_child(world: World) {
    let engine = world.engine().await;
    let parent = permit(&engine, order()).await;
    world.clock.skip(Duration::from_secs(60));
    // Written or not, the lease is over.
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Running)
    );
    fenced(&engine, child(parent.fence())).await;
    let admission = engine.begin(order()).await;
    assert!(
        matches!(admission, Ok(Admission::InDoubt(_))),
        "{admission:?}"
    );
    drop(parent);
}
