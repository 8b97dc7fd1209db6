//! Leases: renewed while the holder lives, lost when it does not, and never outlived by an action.

use std::sync::Arc;
use std::time::Duration;

use semel::core::ledger::{Command, Event, StateKind};
use semel::{Admission, Effect, Engine, Failure, Fault, Point};
use tokio::time::Instant;

use super::actions::in_doubt;
use super::on_both_stores;
use super::store::{Twist, Twisted};
use super::world::{
    Effects, World, clean, data, engine_on, key, lease, operation, order, permit, replay, state,
};

on_both_stores![
    a_long_action_keeps_its_lease,
    a_permit_that_outlives_its_engine_keeps_its_lease,
    a_renewal_that_fails_is_tried_again,
    a_renewal_whose_reply_was_lost_is_no_loss,
    a_holder_that_slept_through_its_lease_cannot_renew,
    a_late_outcome_settles_the_doubt,
    a_late_outcome_is_kept_while_another_attempt_runs,
    no_action_starts_after_its_deadline,
    a_permit_without_renewals_dies_at_its_deadline,
    an_ended_permit_is_not_renewed,
];

async fn renewals(engine: &Engine) -> usize {
    let log = engine.store().log(0, 1_000).await.expect("the log reads");
    let renewed = log
        .iter()
        .filter(|one| one.entry.events == [Event::Renewed]);
    renewed.count()
}

async fn a_long_action_keeps_its_lease(world: World) {
    let (engine, other) = (world.engine().await, world.another_engine().await);
    let effects = Effects::default();
    let ours = effects.clone();
    let call = engine.effect("create-order", key("order-7"));
    let running = call.lease(lease(1)).run(|_| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        ours.happen();
        Ok(42)
    });
    let watching = async {
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(1_111)).await;
            let admission = other.begin(order()).await;
            assert!(
                matches!(admission, Ok(Admission::Wait { .. })),
                "{admission:?}"
            );
            other.sweep().await.expect("it sweeps");
        }
    };
    let (done, ()) = tokio::join!(running, watching);
    assert!(!done.expect("it is done").replayed);
    assert_eq!(effects.count(), 1);
    let operation = operation(&engine, &key("order-7")).await;
    assert_eq!((operation.fence.0, operation.attempts.len()), (1, 1));
    // At a third of the lease, and not much more often.
    let renewed = renewals(&engine).await;
    assert!((150..=200).contains(&renewed), "{renewed}");
    clean(&engine).await;
}

async fn a_permit_that_outlives_its_engine_keeps_its_lease(world: World) {
    let engine = world.engine().await;
    let permit = permit(&engine, order().lease(lease(1))).await;
    drop(engine);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(permit.is_alive());
    let other = world.another_engine().await;
    let admission = other.begin(order()).await;
    assert!(
        matches!(admission, Ok(Admission::Wait { .. })),
        "{admission:?}"
    );
    permit.done(Effect::Created, &1).await.expect("taken");
    replay(&other, order()).await;
}

async fn a_renewal_that_fails_is_tried_again(world: World) {
    let engine = world.engine().await;
    let permit = permit(&engine, order().lease(lease(6))).await;
    engine.inject_error(Point::Renew, Fault::Refuse, 5);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(permit.is_alive());
    permit.done(Effect::Created, &1).await.expect("taken");
    let operation = operation(&engine, &key("order-7")).await;
    assert_eq!(operation.fence.0, 1);
    clean(&engine).await;
}

async fn a_renewal_whose_reply_was_lost_is_no_loss(world: World) {
    let engine = world.engine().await;
    let permit = permit(&engine, order().lease(lease(6))).await;
    engine.inject_error(Point::Renew, Fault::LoseReply, 3);
    engine.inject_repeat(Point::Renew, 3);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(permit.is_alive());
    let receipt = permit.done(Effect::Created, &1).await.expect("taken");
    assert_eq!((receipt.state, receipt.fence), (StateKind::Succeeded, 1));
    clean(&engine).await;
}

async fn a_holder_that_slept_through_its_lease_cannot_renew(world: World) {
    let engine = world.engine().await;
    let permit = permit(&engine, order()).await;
    world.clock.skip(Duration::from_secs(60));
    let refused = permit.renew().await;
    assert_eq!(refused.map_err(|error| error.code()), Err("fenced"));
    in_doubt(&world.another_engine().await, order()).await;
    // Nor by itself, later: the lease does not come back.
    tokio::time::sleep(Duration::from_secs(59)).await;
    in_doubt(&engine, order()).await;
    assert_eq!(renewals(&engine).await, 0);
    drop(permit);
}

async fn a_late_outcome_settles_the_doubt(world: World) {
    let engine = world.engine().await;
    for swept in [false, true] {
        let request = || semel::Request::new("create-order", key(&format!("order-{swept}")));
        let slow = permit(&engine, request()).await;
        world.clock.skip(Duration::from_secs(61));
        if swept {
            let swept = engine.sweep().await.expect("it sweeps");
            assert_eq!(swept.expired, 1);
        }
        in_doubt(&engine, request()).await;
        let receipt = slow.done(Effect::Created, "late").await.expect("taken");
        assert_eq!((receipt.ok, data(&receipt)), (true, "\"late\"".to_owned()));
        assert_eq!(data(&replay(&engine, request()).await), "\"late\"");
        let log = engine.store().log(0, 1_000).await.expect("the log reads");
        let last = log.last().expect("there is one");
        assert!(last.entry.events.contains(&Event::SettledLate));
    }
    clean(&engine).await;
}

async fn a_late_outcome_is_kept_while_another_attempt_runs(world: World) {
    let engine = world.engine().await;
    let request = || order().class(semel::Class::Idempotent);
    let slow = permit(&engine, request()).await;
    world.clock.skip(Duration::from_secs(61));
    let second = permit(&engine, request()).await;
    let fenced = slow.done(Effect::Created, "first").await;
    assert_eq!(fenced.map_err(|error| error.code()).err(), Some("fenced"));
    let receipt = second.not_done("refused").await.expect("taken");
    assert_eq!(
        receipt.state,
        StateKind::Succeeded,
        "the evidence settles it"
    );
    assert_eq!(data(&replay(&engine, request()).await), "\"first\"");
    clean(&engine).await;
}

async fn no_action_starts_after_its_deadline(world: World) {
    // The claim is taken at once, and its answer takes longer than the lease.
    let slow = Twisted::new(Arc::clone(&world.store), |change| {
        match &change.entry.command {
            Command::Begin(_) => {
                Twist::Before(Box::pin(tokio::time::sleep(Duration::from_secs(3))))
            }
            _ => Twist::Pass,
        }
    });
    let engine = engine_on(slow).await;
    let effects = Effects::default();
    let ours = effects.clone();
    let call = engine.effect("create-order", key("order-7"));
    let late = call.lease(lease(1)).run(|_| async move {
        ours.happen();
        Ok(())
    });
    late.await.expect_err("it was too late");
    assert_eq!(effects.count(), 0);
    // It says so, as nothing was done: the next one may try.
    let patient = world.engine().await;
    let call = patient.effect("create-order", key("order-7"));
    let ours = effects.clone();
    let done = call.run(|_| async move {
        ours.happen();
        Ok(())
    });
    done.await.expect("it is done");
    assert_eq!(effects.count(), 1);
    clean(&patient).await;
}

async fn a_permit_without_renewals_dies_at_its_deadline(world: World) {
    let engine = world.engine().await;
    engine.inject_error(Point::Renew, Fault::Refuse, 10_000);
    let started = Instant::now();
    let permit = permit(&engine, order().lease(lease(10))).await;
    let deadline = permit.deadline().duration_since(started.into_std());
    assert!(deadline <= Duration::from_secs(10), "{deadline:?}");
    tokio::time::sleep_until(started + Duration::from_millis(9_900)).await;
    assert!(permit.is_alive());
    tokio::time::sleep_until(started + Duration::from_millis(10_001)).await;
    assert!(!permit.is_alive());
    in_doubt(&world.another_engine().await, order()).await;
    permit
        .done(Effect::Created, &1)
        .await
        .expect("a late report is taken");
    clean(&engine).await;
}

async fn an_ended_permit_is_not_renewed(world: World) {
    let engine = world.engine().await;
    let call = engine.effect("create-order", key("order-7"));
    let failed = call
        .lease(lease(3))
        .run(|_| async { Err::<(), _>(Failure::unknown("reset")) });
    failed.await.expect_err("it is in doubt");
    let second = permit(&engine, semel::Request::new("x", key("x")).lease(lease(3))).await;
    second.done(Effect::Created, &1).await.expect("taken");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(renewals(&engine).await, 0);
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Doubtful)
    );
}
