//! A process that is stopped while it has its turn to write: the others are told so within a bound,
//! what they gave up never happens, and all goes on when it is continued.

use std::fs::{File, TryLockError};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use semel::{Admission, Effect, Engine, Request};
use semel_testkit::process::audit::{Seen, audit};
use semel_testkit::process::{Agent, Ended, Keys, NAME, Orders, Scene, Word, key, wall};

use crate::agent;

/// How long anybody may wait for a stopped process: the store's own bound, and a slow machine.
const PATIENCE: Duration = Duration::from_secs(25);

/// Stops the agent at a moment when it has the turn.
fn stop_in_its_turn(agent: &mut Agent, scene: &Scene) {
    let path = scene.path().join("store.db-turn");
    let turn = File::open(path).expect("the turn file is there");
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        agent.signal(Signal::STOP);
        agent.wait_until_stopped();
        match turn.try_lock() {
            Err(TryLockError::WouldBlock) => return,
            Ok(()) => turn.unlock().expect("a lock is given back"),
            Err(TryLockError::Error(error)) => panic!("{error}"),
        }
        agent.signal(Signal::CONT);
        std::thread::yield_now();
    }
    panic!("the agent never has the turn");
}

fn orders(scene: &Scene, text: &str) -> Orders {
    Orders::new(scene, Keys::These(vec![text.to_owned()]))
}

async fn begin(engine: &Engine, text: &str) -> semel::Result<Admission> {
    engine
        .begin(Request::new(NAME, key(text)).input(text))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_holds_the_others_up_for_a_bounded_time_only() {
    let scene = Scene::new();
    let done = agent().start(&orders(&scene, "hold-done")).wait();
    assert!(done.status.success(), "{}", done.said);
    let engine = scene.open().await;
    let Ok(Admission::Execute(permit)) = begin(&engine, "hold-ours").await else {
        panic!("a new key is granted");
    };
    let (let_go, waiting) = {
        let (reader, writer) = std::io::pipe().expect("there is a pipe");
        let orders = Orders {
            barrier: true,
            ..orders(&scene, "hold-waits")
        };
        let mut waiting = agent().start_with(&orders, Stdio::from(reader));
        waiting.wait_until_ready();
        (writer, waiting)
    };
    let minute = Duration::from_secs(60);
    let busy = Orders::new(&scene, Keys::New("hold-busy-".to_owned(), minute));
    let mut busy = agent().start(&busy);
    // It has begun to work, and is stopped in the middle of it.
    while !scene
        .sink()
        .lines()
        .iter()
        .any(|line| line.key.starts_with("hold-busy"))
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop_in_its_turn(&mut busy, &scene);
    let stopped = Instant::now();

    // What is settled is read without a turn.
    let replay = begin(&engine, "hold-done").await;
    assert!(matches!(replay, Ok(Admission::Replay(_))), "{replay:?}");
    // A report is tried again until its lease ends, so that it outlives the stop.
    let line = scene.sink().cause("hold-ours", permit.fence(), || {});
    let report = tokio::spawn(async move { permit.done(Effect::Created, &line.answer()).await });
    drop(let_go);
    let opening = agent().start(&orders(&scene, "hold-opens"));
    let refused = begin(&engine, "hold-refused").await;
    let text = refused.expect_err("no claim without a turn").to_string();
    let names_the_cause =
        |text: &str| text.contains("store.db") && text.contains("turn") && text.contains("stopped");
    assert!(names_the_cause(&text), "{text}");
    let Ended { status, said } = opening.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(names_the_cause(&said), "{said}");
    assert!(waiting.wait().status.success());
    let mut told = scene.told().words().into_iter();
    let told = told.rfind(|(key, _)| key == "hold-waits");
    let Some((_, Word::Error(text))) = told else {
        panic!("a claim without a turn: {told:?}");
    };
    assert!(names_the_cause(&text), "{text}");
    // Whoever comes later is told at once.
    let again = Instant::now();
    assert!(begin(&engine, "hold-refused").await.is_err());
    assert!(
        again.elapsed() < Duration::from_secs(1),
        "{:?}",
        again.elapsed()
    );
    assert!(stopped.elapsed() < PATIENCE, "{:?}", stopped.elapsed());

    busy.signal(Signal::CONT);
    let receipt = report
        .await
        .expect("no panic")
        .expect("the report is stored");
    assert!(receipt.ok && !receipt.replayed);
    // What was given up did not happen behind anybody's back.
    for text in ["hold-waits", "hold-refused", "hold-opens"] {
        let record = engine.load(&wall(), &key(text)).await.expect("it loads");
        assert_eq!(record, None, "{text}");
    }
    let granted = begin(&engine, "hold-refused").await;
    assert!(matches!(granted, Ok(Admission::Execute(_))), "{granted:?}");
    busy.kill();
    assert!(busy.wait().was_killed());
    let audited = audit(&engine, &scene, &mut Seen::default()).await;
    audited.expect("world, ledger and callers agree");
}
