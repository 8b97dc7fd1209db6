//! Breakers through the library: what a call costs, and what others see.

use std::sync::Arc;
use std::time::Duration;

use semel::breaker::{Breaker, Decided, Settings};
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::{Engine, Error, Key, Label};
use semel_testkit::conformance::{Bed, ManualClock, MemoryBed, SqliteBed};

async fn engine(store: Arc<dyn Store>) -> Engine {
    let builder = Engine::builder().store(store).sweep_every(None);
    builder.start().await.expect("it starts")
}

fn bank(engine: &Engine) -> Breaker {
    let name = Key::new("bank").expect("a valid name");
    let breaker = engine.breaker(name, Settings::default());
    breaker.expect("the usual settings are of use")
}

async fn fail(breaker: &Breaker, times: u32) {
    for _ in 0..times {
        let pass = breaker.admit().await.expect("it is let through");
        pass.failed().await;
    }
}

fn refused(error: &Error) -> &'static str {
    error.code()
}

#[tokio::test(start_paused = true)]
async fn while_all_is_well_a_call_writes_nothing() {
    let engine = engine(Arc::new(MemoryStore::default())).await;
    let breaker = bank(&engine);
    // The first one makes the breaker known.
    breaker.admit().await.expect("through").succeeded().await;
    breaker.flush().await.expect("it is written");
    let end = engine.last_entry().await.expect("there is a log");
    for _ in 0..1_000 {
        breaker.admit().await.expect("through").succeeded().await;
    }
    // Longer than counts wait, in virtual time.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(engine.last_entry().await.expect("there is a log"), end);
    // They are not forgotten: with the next failure they are written.
    fail(&breaker, 1).await;
    breaker.flush().await.expect("it is written");
    let view = breaker
        .view()
        .await
        .expect("it is read")
        .expect("it is there");
    assert_eq!((view.calls, view.failures), (1_002, 1));
}

#[tokio::test]
async fn two_processes_on_one_file_share_it() {
    let bed = SqliteBed::new(&Arc::new(ManualClock::default()));
    let (one, other) = (
        engine(bed.open().await).await,
        engine(bed.open().await).await,
    );
    fail(&bank(&one), 5).await;
    let error = bank(&other).admit().await.expect_err("it is open");
    assert_eq!(refused(&error), "breaker_open");
    assert!(error.retryable() && error.retry_at().is_some());
    bed.clock().advance(Duration::from_secs(11));
    let probe = bank(&other).admit().await.expect("its time has come");
    assert!(probe.is_probe());
    assert!(bank(&one).admit().await.is_err(), "one at a time");
    probe.succeeded().await;
    assert!(!bank(&one).admit().await.expect("it is closed").is_probe());
    let verified = one.verify().await.expect("it is verified");
    assert!(verified.is_clean(), "{verified:?}");
}

#[tokio::test]
async fn a_probe_that_is_dropped_gives_its_place_back() {
    let bed = MemoryBed::new(&Arc::new(ManualClock::default()));
    let engine = engine(bed.open().await).await;
    let breaker = bank(&engine);
    fail(&breaker, 5).await;
    bed.clock().advance(Duration::from_secs(11));
    drop(breaker.admit().await.expect("it is the probe"));
    let mut tries = 0;
    let probe = loop {
        match breaker.admit().await {
            Ok(pass) => break pass,
            Err(error) => assert_eq!(refused(&error), "breaker_open"),
        }
        tries += 1;
        assert!(tries < 10_000, "its place is never given back");
        tokio::task::yield_now().await;
    };
    assert!(probe.is_probe());
}

#[tokio::test]
async fn what_was_let_through_before_a_person_decided_says_nothing_afterwards() {
    let engine = engine(Arc::new(MemoryStore::default())).await;
    let breaker = bank(&engine);
    let by = Label::new("ann").expect("a valid name");
    let early = breaker.admit().await.expect("it is closed");
    let opened = breaker.open(Decided::by(by.clone()), None).await;
    opened.expect("opened");
    assert_eq!(breaker.admit().await.expect_err("open").retry_at(), None);
    early.succeeded().await;
    breaker.flush().await.expect("nothing to write");
    assert!(breaker.admit().await.is_err(), "only a person closes it");
    let closed = breaker.close(Decided::by(by)).await.expect("closed");
    assert!(!closed.repeated);
    assert!(breaker.admit().await.is_ok());
}
