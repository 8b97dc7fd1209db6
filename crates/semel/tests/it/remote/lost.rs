//! Requests and answers that are lost: nothing runs twice, and nothing is in doubt that need not be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::core::ledger::StateKind;
use semel::store::StoreError;
use semel::store::memory::MemoryStore;
use semel::{Effect, Error, Label, Namespace};
use semel_testkit::remote::{Server, Trouble};

use super::{key, open, order, permit, run, server, stored};

const LOSSES: [Trouble; 5] = [
    Trouble::LoseRequest,
    Trouble::LoseReply,
    Trouble::HalfAnAnswer,
    Trouble::Garbage,
    Trouble::Fail,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_and_a_report_whose_answers_are_lost_are_sent_again() {
    for first in LOSSES {
        for second in LOSSES {
            let server = server().await;
            let engine = open(&server, None).await;
            let count = Arc::new(AtomicU32::new(0));
            server.plan(&[first, second]);
            let done = run(&engine, &count).await;
            let done = done.unwrap_or_else(|error| panic!("{first:?} {second:?}: {error}"));
            assert!(!done.replayed && server.is_untroubled());
            assert_eq!(count.load(Ordering::SeqCst), 1);
            let operation = stored(&server, "order-7").await;
            assert_eq!(operation.state.kind(), StateKind::Succeeded);
            assert_eq!((operation.attempt, operation.fence.0), (1, 1));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_and_an_order_whose_answers_are_lost_are_carried_out_once() {
    for trouble in LOSSES {
        let server = server().await;
        let engine = open(&server, None).await;
        let held = permit(&engine, order()).await;
        server.plan(&[trouble]);
        let receipt = held.unknown("nobody knows").await.expect("it is stored");
        assert_eq!(receipt.state, StateKind::Doubtful);
        let record = engine.load(&Namespace::default(), &key("order-7")).await;
        let version = record.expect("it loads").expect("it is there").version();
        let by = Label::new("ann").expect("a valid name");
        let operator = engine.operator(&Namespace::default(), &key("order-7"), version, by);
        if trouble == Trouble::Garbage {
            // Nobody asks again what was answered with something else: a person looks.
            continue;
        }
        server.plan(&[trouble]);
        let resolved = operator.resolve_not_done().await.expect("it is resolved");
        assert_eq!(resolved.state, StateKind::Pending);
        let operation = stored(&server, "order-7").await;
        assert_eq!(operation.version.0, version.0 + 1, "{trouble:?}");
    }
}

/// Its pieces would be stored twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_piece_of_a_stream_is_not_sent_again() {
    let server = server().await;
    let engine = open(&server, None).await;
    let held = permit(&engine, order()).await;
    let piece = || semel::store::Chunk {
        stream: 1,
        bytes: b"x".to_vec(),
    };
    server.plan(&[Trouble::LoseReply]);
    let lost = held.append(vec![piece()]).await;
    let unknown = matches!(lost, Err(Error::Store(StoreError::Unknown(_))));
    assert!(unknown, "{lost:?}");
    let fence = held.fence();
    let (namespace, key) = (Namespace::default(), key("order-7"));
    let stream = engine.partial(&namespace, &key, fence).await;
    assert_eq!(stream.expect("it loads"), vec![piece()]);
    held.done(Effect::Created, "x").await.expect("it is stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_has_written_nothing() {
    let server = server().await;
    let engine = open(&server, None).await;
    server.stop().await;
    let refused = engine.begin(order()).await;
    let nothing = matches!(refused, Err(Error::Store(StoreError::Unavailable(_))));
    assert!(nothing, "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_outlives_the_restart_of_its_server() {
    let store = Arc::new(MemoryStore::default());
    let server = Server::start(Arc::clone(&store) as _).await;
    let engine = open(&server, None).await;
    let held = permit(&engine, order()).await;
    let address = server.address().to_string();
    server.stop().await;
    held.renew().await.expect_err("nobody is there");
    let report = tokio::spawn(held.done(Effect::Created, "x"));
    let server = Server::start_at(store, &address).await;
    let receipt = report.await.expect("it ends").expect("it is stored");
    assert_eq!((receipt.state, receipt.fence), (StateKind::Succeeded, 1));
    assert_eq!(server.commands().last().map(String::as_str), Some("settle"));
}
