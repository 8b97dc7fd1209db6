//! An engine whose ledger a server keeps: over a real socket, with answers that are lost.

mod holds;
mod lost;
mod strange;
mod tls;
mod walls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::core::ledger::{Operation, Record};
use semel::remote::RemoteStore;
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::{Admission, Engine, Key, Permit, Request};
use semel_testkit::remote::Server;

async fn server() -> Server {
    Server::start(Arc::new(MemoryStore::default())).await
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a test's key is valid")
}

fn order() -> Request {
    Request::new("create-order", key("order-7"))
}

/// Opens the ledger of a server, with notes nowhere.
async fn open(server: &Server, token: Option<&str>) -> Engine {
    let store = RemoteStore::open(&server.url(), token).await;
    engine_on(store.expect("the server answers").with_notes(None)).await
}

async fn engine_on(store: RemoteStore) -> Engine {
    let builder = Engine::builder().store(Arc::new(store) as Arc<dyn Store>);
    builder.start().await.expect("the engine starts")
}

async fn permit(engine: &Engine, request: Request) -> Permit {
    match engine.begin(request).await {
        Ok(Admission::Execute(permit)) => permit,
        other => panic!("a permit was expected: {other:?}"),
    }
}

/// Returns what the server itself has stored.
async fn stored(server: &Server, text: &str) -> Operation {
    let engine = server.engine();
    let record = engine.load(&engine.namespace(), &key(text)).await;
    let record = record.expect("it loads").expect("it is there");
    Record::operation(&record).expect("it lives").clone()
}

/// Runs the order's action, and counts.
async fn run(engine: &Engine, count: &Arc<AtomicU32>) -> semel::Result<semel::Completed<u32>> {
    let count = Arc::clone(count);
    let action = move |_| async move {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(42)
    };
    let effect = engine.effect("create-order", key("order-7"));
    effect.run(action).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_runs_once_whoever_asks() {
    let server = server().await;
    let count = Arc::new(AtomicU32::new(0));
    for replayed in [false, true, true] {
        let engine = open(&server, None).await;
        let done = run(&engine, &count).await.expect("it is done");
        assert_eq!((done.value, done.replayed), (42, replayed));
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let engine = open(&server, None).await;
    let verified = engine.verify().await.expect_err("it is verified elsewhere");
    assert!(
        verified.to_string().contains("where the store is"),
        "{verified}"
    );
    assert!(engine.sweep().await.is_ok(), "the server sweeps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_hears_of_the_end() {
    let server = server().await;
    let (here, there) = (open(&server, None).await, open(&server, None).await);
    let permit = permit(&here, order()).await;
    let wait = std::time::Duration::from_secs(30);
    let waiting = tokio::spawn(async move { there.begin(order().wait(wait)).await });
    permit
        .done(semel::Effect::Created, "x")
        .await
        .expect("it is stored");
    match waiting.await.expect("it waits") {
        Ok(Admission::Replay(receipt)) => assert_eq!(receipt.data(), Some("\"x\"")),
        other => panic!("the answer was expected: {other:?}"),
    }
}
