//! When the store fails after the effect, a note keeps the outcome, and the next open delivers it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semel::core::ledger::codec::encode_command;
use semel::core::ledger::{
    Adopt, Command, Event, Expire, Order, Resolution, Resolve, Settle, StateKind,
};
use semel::core::{Digest, KeyHash, Verdict};
use semel::store::PAYLOAD_MAX;
use semel::{Admission, Effect, Engine, Error, Label, Namespace, Outcome, Payload, Request};
use tokio::time::Instant;

use super::actions::in_doubt;
use super::store::{Twist, Twisted, unavailable};
use super::world::{
    Effects, World, clean, data, engine_on, key, lease, order, permit, replay, state, until,
};

/// An engine whose store takes claims, and nothing after them.
async fn deaf(world: &World) -> Engine {
    let store = Twisted::new(world.another(), |change| match &change.entry.command {
        Command::Begin(_) => Twist::Pass,
        _ => Twist::Fail(unavailable()),
    });
    engine_on(store).await
}

fn notes(world: &World) -> Vec<PathBuf> {
    let directory = world.store.notes().expect("SQLite keeps notes");
    let Ok(entries) = std::fs::read_dir(directory) else {
        return vec![];
    };
    let paths = entries.map(|entry| entry.expect("it lists").path());
    paths
        .filter(|path| path.file_name().is_none_or(|name| name != "saved"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_could_not_be_stored_is_delivered_by_the_next_open() {
    let world = World::sqlite();
    let effects = Effects::default();
    let engine = deaf(&world).await;
    let ours = effects.clone();
    let started = Instant::now();
    let call = engine.effect("create-order", key("order-7"));
    let unstored = call.run(|_| async move {
        ours.happen();
        Ok(42)
    });
    let Err(Error::Unstored { payload, noted, .. }) = unstored.await else {
        panic!("the outcome cannot be stored");
    };
    assert_eq!((payload.as_deref(), noted), (Some(&b"42"[..]), true));
    let elapsed = started.elapsed();
    assert!(
        (Duration::from_secs(58)..=Duration::from_secs(60)).contains(&elapsed),
        "it is tried for as long as the lease lasts: {elapsed:?}"
    );
    drop(engine);
    let kept = notes(&world);
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].extension().and_then(|it| it.to_str()), Some("note"));
    tokio::time::sleep(Duration::from_secs(5)).await;

    let engine = engine_on(world.another()).await;
    assert!(notes(&world).is_empty(), "delivered once");
    let again = replay(&engine, order()).await;
    assert_eq!((again.ok, data(&again)), (true, "42".to_owned()));
    assert_eq!(effects.count(), 1);
    let log = engine.store().log(0, 100).await.expect("the log reads");
    let last = log.last().expect("there is one");
    assert!(last.entry.events.contains(&Event::SettledLate));
    clean(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn until_its_note_is_delivered_the_operation_is_in_doubt() {
    let world = World::sqlite();
    let watching = world.engine().await;
    let engine = deaf(&world).await;
    let permit = permit(&engine, order().lease(lease(2))).await;
    let unstored = permit.failed(Effect::Noop, "no").await;
    assert_eq!(
        unstored.map_err(|error| error.code()).err(),
        Some("in_doubt")
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    in_doubt(&watching, order()).await;
    drop(engine);
    let engine = engine_on(world.another()).await;
    assert!(!replay(&engine, order()).await.ok);
    assert!(!replay(&watching, order()).await.ok);
    clean(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_note_that_is_delivered_twice_changes_nothing() {
    let world = World::sqlite();
    let engine = deaf(&world).await;
    let permit = permit(&engine, order().lease(lease(1))).await;
    permit
        .done(Effect::Created, &42)
        .await
        .expect_err("unstored");
    drop(engine);
    let note = notes(&world).pop().expect("it was kept");
    let bytes = std::fs::read(&note).expect("it reads");
    for _ in 0..3 {
        std::fs::write(&note, &bytes).expect("it is put back");
        let engine = engine_on(world.another()).await;
        assert!(notes(&world).is_empty());
        assert_eq!(data(&replay(&engine, order()).await), "42");
        let log = engine.store().log(0, 100).await.expect("the log reads");
        assert_eq!(log.len(), 2);
        clean(&engine).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_note_stops_nobody_and_stays_for_a_person() {
    let world = World::sqlite();
    let engine = deaf(&world).await;
    let permit = permit(&engine, order().lease(lease(1))).await;
    permit
        .done(Effect::Created, &42)
        .await
        .expect_err("unstored");
    drop(engine);
    let note = notes(&world).pop().expect("it was kept");
    let mut bytes = std::fs::read(&note).expect("it reads");
    *bytes.last_mut().expect("it is not empty") ^= 1;
    std::fs::write(&note, &bytes).expect("it is damaged");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let engine = engine_on(world.another()).await;
    assert_eq!(notes(&world), [note]);
    in_doubt(&engine, order()).await;
    let other = super::world::permit(&engine, Request::new("x", key("x"))).await;
    other.done(Effect::Created, &1).await.expect("taken");
    clean(&engine).await;
}

/// A note that no store will ever take must not keep everybody out of it.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_is_a_doubt_and_the_store_opens_again() {
    let world = World::sqlite();
    let engine = world.engine().await;
    let permit = permit(&engine, order().lease(lease(1))).await;
    let huge = vec![b'x'; PAYLOAD_MAX + 1];
    let unstored = permit.finish(true, Effect::Created, Some(huge)).await;
    let Err(Error::Unstored { payload, noted, .. }) = unstored else {
        panic!(
            "it is too large: {:?}",
            unstored.map(|receipt| receipt.state)
        );
    };
    assert_eq!(payload.map(|bytes| bytes.len()), Some(PAYLOAD_MAX + 1));
    assert!(!noted, "no store will ever take it");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let builder = Engine::builder().store(world.another()).sweep_every(None);
    let again = builder.start().await.expect("the store opens");
    in_doubt(&again, order()).await;
    clean(&again).await;
}

/// Lays a note out as a process with other limits might have.
fn note(key: KeyHash, command: &Command, payload: &[u8]) -> Vec<u8> {
    let command = encode_command(command);
    let mut body = vec![];
    for part in [&key.0.0[..], &command, &[1], payload] {
        body.extend_from_slice(&(part.len() as u64).to_le_bytes());
        body.extend_from_slice(part);
    }
    [&Digest::of(&body).0[..], &body].concat()
}

#[tokio::test(start_paused = true)]
async fn a_note_that_no_store_takes_stops_nobody_and_stays_for_a_person() {
    let world = World::sqlite();
    let engine = world.engine().await;
    let permit = permit(&engine, order().lease(lease(1))).await;
    let huge = vec![b'x'; PAYLOAD_MAX + 1];
    let settle = Command::Settle(Settle {
        attempt: permit.attempt_id().clone(),
        fence: permit.fence(),
        verdict: Verdict::Done(Outcome {
            ok: true,
            effect: Effect::Created,
            payload: Some(Payload::of(&huge)),
        }),
    });
    let hash = KeyHash::of(&Namespace::default(), &key("order-7"));
    let directory = world.store.notes().expect("SQLite keeps notes");
    std::fs::create_dir_all(&directory).expect("it is made");
    let path = directory.join("large.note");
    std::fs::write(&path, note(hash, &settle, &huge)).expect("it is written");
    let builder = Engine::builder().store(world.another()).sweep_every(None);
    let again = builder.start().await.expect("the store opens");
    assert_eq!(notes(&world), [path]);
    drop(permit);
    until(&again, &key("order-7"), StateKind::Doubtful).await;
    clean(&again).await;
}

#[tokio::test(start_paused = true)]
async fn note_that_is_no_report_of_an_attempt_is_left_and_changes_nothing() {
    let world = World::sqlite();
    let engine = world.engine().await;
    let permit = permit(&engine, order().lease(lease(1))).await;
    drop(permit);
    until(&engine, &key("order-7"), StateKind::Doubtful).await;
    let (namespace, key) = (Namespace::default(), key("order-7"));
    let record = engine.load(&namespace, &key).await.expect("it loads");
    let record = record.expect("it is there");
    let by = Label::new("mallory").expect("a word");
    let by_order = || Order {
        version: record.version(),
        by: by.clone(),
        note: None,
    };
    let outcome = Outcome {
        ok: true,
        effect: Effect::Created,
        payload: None,
    };
    let commands = [
        Command::Resolve(Resolve {
            order: by_order(),
            resolution: Resolution::Done(outcome),
        }),
        Command::Resolve(Resolve {
            order: by_order(),
            resolution: Resolution::NotDone,
        }),
        Command::Retry(by_order()),
        Command::Cancel(by_order()),
        Command::Forget(by_order()),
        Command::Adopt(Adopt {
            fence_step: 1,
            by: by.clone(),
        }),
        Command::Expire(Expire { gone: None }),
    ];
    let directory = world.store.notes().expect("SQLite keeps notes");
    std::fs::create_dir_all(&directory).expect("it is made");
    let hash = KeyHash::of(&namespace, &key);
    for (number, command) in commands.iter().enumerate() {
        let path = directory.join(format!("{number}.note"));
        std::fs::write(path, note(hash, command, b"")).expect("it is written");
    }
    let end = engine.last_entry().await.expect("the log has an end");
    let again = engine_on(world.another()).await;
    assert_eq!(notes(&world).len(), commands.len(), "all are left");
    let after = again.last_entry().await.expect("the log has an end");
    assert_eq!(after, end, "nothing was accepted");
}

#[tokio::test(start_paused = true)]
async fn a_verdict_without_an_outcome_is_noted_too() {
    let world = World::sqlite();
    let engine = deaf(&world).await;
    let released = permit(&engine, order().lease(lease(1))).await;
    released.not_done("refused").await.expect_err("unstored");
    drop(engine);
    let engine = engine_on(world.another()).await;
    // It said that nothing happened, so the key is free.
    let again = permit(&engine, order()).await;
    assert_eq!(again.attempt(), 2);
    again.done(Effect::Created, &1).await.expect("taken");
    clean(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_place_for_notes_the_caller_is_told() {
    let world = World::memory();
    let store = Twisted::new(Arc::clone(&world.store), |change| {
        match &change.entry.command {
            Command::Settle(_) => Twist::Fail(unavailable()),
            _ => Twist::Pass,
        }
    });
    let engine = engine_on(store).await;
    let permit = permit(&engine, order().lease(lease(1))).await;
    let unstored = permit.done(Effect::Created, &42).await;
    let Err(Error::Unstored { noted: false, .. }) = unstored else {
        panic!("memory keeps no notes: {unstored:?}");
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    let admission = world.engine().await.begin(order()).await;
    assert!(
        matches!(admission, Ok(Admission::InDoubt(_))),
        "{admission:?}"
    );
    let engine = world.engine().await;
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Running),
        "its lease end is judged, written or not"
    );
}
