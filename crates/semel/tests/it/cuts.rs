//! A connection to PostgreSQL that is lost at the worst moment: while a batch is being written.

use std::sync::Arc;

use semel::store::Store;
use semel::store::postgres::PostgresStore;
use semel_testkit::conformance::ManualClock;
use semel_testkit::conformance::hand::{begin, spec};
use semel_testkit::postgres::Cluster;

use crate::proxy::Proxy;

/// How a batch is asked for.
const APPLY: &[u8] = b"semel.apply(";

async fn open() -> (Proxy, PostgresStore) {
    let cluster = Cluster::shared();
    let proxy = Proxy::start(cluster, APPLY);
    let url = proxy.url(&cluster.database());
    let store = PostgresStore::open_with(&url, Arc::new(ManualClock::default()));
    let store = store.await.expect("the store opens");
    (proxy, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_reply_is_lost_is_found() {
    let (proxy, store) = open().await;
    proxy.lose_reply();
    let begun = begin(&spec("order-7"), 1).apply(&store, None).await;
    assert!(begun.expect("it is found").wrote);
    assert!(proxy.has_cut());
    assert_eq!(store.log(0, 10).await.expect("it reads").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_sent_again() {
    let (proxy, store) = open().await;
    proxy.lose_request();
    let begun = begin(&spec("order-7"), 1).apply(&store, None).await;
    assert!(begun.expect("it is sent again").wrote);
    assert!(proxy.has_cut());
    assert_eq!(store.log(0, 10).await.expect("it reads").len(), 1);
}
