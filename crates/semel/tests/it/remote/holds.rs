//! What this machine knows and the server cannot: processes that are alive, and outcomes that wait.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use semel::core::ledger::StateKind;
use semel::remote::RemoteStore;
use semel::store::memory::MemoryStore;
use semel::{Admission, Effect, Error, Lease, OnDoubt};
use semel_testkit::conformance::{ManualClock, scratch};
use semel_testkit::remote::Server;

use super::{engine_on, order, permit, stored};

/// More than a lease lasts.
const LATER: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_is_alive_on_this_machine_is_in_flight_for_the_server_too() {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
    let server = Server::start(store).await;
    let notes = scratch();
    let open = async || {
        let store = RemoteStore::open(&server.url(), None).await;
        let store = store.expect("the server answers");
        engine_on(store.with_notes(Some(notes.path().to_owned()))).await
    };
    let request = || order().on_doubt(OnDoubt::Retry);
    let held = permit(&open().await, request()).await;
    let hold = held.hold().expect("it is free");
    let mut cat = Command::new("cat");
    let mut child = hold.spawn(cat.stdin(Stdio::piped())).expect("cat runs");
    drop(hold);
    clock.advance(LATER);
    let second = open().await.begin(request()).await;
    assert!(matches!(second, Ok(Admission::Wait { .. })), "{second:?}");
    drop(child.stdin.take());
    child.wait().expect("it ends");
    let third = open().await.begin(request()).await;
    assert!(matches!(third, Ok(Admission::Execute(_))), "{third:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_the_server_did_not_hear_is_delivered_by_the_next_open() {
    let store = Arc::new(MemoryStore::default());
    let server = Server::start(Arc::clone(&store) as _).await;
    let address = server.address().to_string();
    let notes = scratch();
    let open = async |url: &str| {
        let store = RemoteStore::open(url, None).await;
        let store = store.expect("the server answers");
        engine_on(store.with_notes(Some(notes.path().to_owned()))).await
    };
    let engine = open(&server.url()).await;
    let shortest = Lease::new(Duration::from_secs(1)).expect("a valid lease");
    let held = permit(&engine, order().lease(shortest)).await;
    server.stop().await;
    match held.done(Effect::Created, "x").await {
        Err(Error::Unstored { noted, .. }) => assert!(noted),
        other => panic!("nobody was there: {other:?}"),
    }
    let server = Server::start_at(store, &address).await;
    open(&server.url()).await;
    let operation = stored(&server, "order-7").await;
    assert_eq!(operation.state.kind(), StateKind::Succeeded);
    let notes = std::fs::read_dir(notes.path()).expect("it lists");
    let left = notes.filter_map(Result::ok).map(|it| it.path());
    assert_eq!(
        left.filter(|it| it.extension().is_some_and(|end| end == "note"))
            .count(),
        0
    );
}
