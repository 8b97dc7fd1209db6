//! Waiting for what becomes of a task that workers carry out.

use std::time::Duration;

use semel::core::ledger::StateKind;
use semel::{Effect, Engine, Error, Label, Lease, OnDoubt, Queueing, Take, Taken};
use tokio::time::Instant;

use super::on_both_stores;
use super::world::{World, clean, data, key, order};

on_both_stores![
    whoever_waits_is_woken_by_the_outcome,
    whoever_waits_too_short_is_told_where_it_stands,
    a_doubt_that_workers_take_up_is_not_the_end,
    a_doubt_that_is_held_is_the_end_though_nobody_wrote_it_down,
    what_is_not_there_is_not_waited_for,
];

/// When the worker is done: at none of the moments at which a waiter polls.
const BUSY: Duration = Duration::from_millis(10_107);

/// How far virtual time may run on between a wake-up and its answer.
const SLACK: Duration = Duration::from_millis(3);

const WAIT: Duration = Duration::from_secs(60);

fn mails() -> Label {
    Label::new("mails").expect("a label")
}

async fn take(engine: &Engine) -> Taken {
    let take = Take {
        lease: Lease::new(Duration::from_secs(1)).expect("a lease"),
        is_elsewhere: true,
        ..Take::one(mails())
    };
    let taken = engine.take(&engine.namespace(), &take).await;
    taken.expect("the store works").pop().expect("there is one")
}

async fn whoever_waits_is_woken_by_the_outcome(world: World) {
    let engine = world.engine().await;
    let to = Queueing::on(mails());
    engine.submit(order(), to).await.expect("it is taken");
    let (permit, _) = take(&engine).await.permit();
    let started = Instant::now();
    let settling = async {
        tokio::time::sleep(BUSY).await;
        permit.done(Effect::Created, &42).await.expect("taken");
    };
    let namespace = engine.namespace();
    let key = key("order-7");
    let waiting = engine.settled(&namespace, &key, WAIT);
    let (receipt, ()) = tokio::join!(waiting, settling);
    let receipt = receipt.expect("it is there");
    assert_eq!((receipt.ok, receipt.effect), (true, Effect::Created));
    assert_eq!(data(&receipt), "42");
    let waited = started.elapsed();
    assert!((BUSY..BUSY + SLACK).contains(&waited), "{waited:?}");
    clean(&engine).await;
}

async fn whoever_waits_too_short_is_told_where_it_stands(world: World) {
    let engine = world.engine().await;
    let to = Queueing::on(mails());
    engine.submit(order(), to).await.expect("it is taken");
    let started = Instant::now();
    let receipt = engine
        .settled(&engine.namespace(), &key("order-7"), WAIT)
        .await;
    let receipt = receipt.expect("it is there");
    assert_eq!((receipt.ok, receipt.state), (true, StateKind::Pending));
    assert!(started.elapsed() >= WAIT);
}

async fn a_doubt_that_workers_take_up_is_not_the_end(world: World) {
    let engine = world.engine().await;
    let request = order().on_doubt(OnDoubt::Retry);
    let to = Queueing::on(mails());
    engine.submit(request, to).await.expect("it is taken");
    let kept = take(&engine).await.keep();
    let working = async {
        // Nobody hears of the first attempt again.
        while engine.sweep().await.expect("the store works").expired == 0 {
            tokio::time::sleep(BUSY).await;
        }
        let (permit, _) = take(&engine).await.permit();
        assert!(permit.fence() > kept.fence);
        permit.done(Effect::Updated, &7).await.expect("taken");
    };
    let namespace = engine.namespace();
    let key = key("order-7");
    let waiting = engine.settled(&namespace, &key, WAIT);
    let (receipt, ()) = tokio::join!(waiting, working);
    assert_eq!(data(&receipt.expect("it is there")), "7");
}

async fn a_doubt_that_is_held_is_the_end_though_nobody_wrote_it_down(world: World) {
    let engine = world.engine().await;
    let to = Queueing::on(mails());
    engine.submit(order(), to).await.expect("it is taken");
    let kept = take(&engine).await.keep();
    let started = Instant::now();
    let receipt = engine.settled(&engine.namespace(), &kept.key, WAIT).await;
    let receipt = receipt.expect("it is there");
    assert_eq!((receipt.ok, receipt.state), (false, StateKind::Doubtful));
    assert_eq!(receipt.effect, Effect::Unknown);
    assert!(started.elapsed() < WAIT);
}

async fn what_is_not_there_is_not_waited_for(world: World) {
    let engine = world.engine().await;
    let key = key("nothing");
    let missing = engine.settled(&engine.namespace(), &key, WAIT).await;
    let Err(Error::Refused(refusal)) = missing else {
        panic!("{missing:?}");
    };
    assert_eq!(refusal.rejection, semel::core::ledger::Rejection::NotFound);
}
