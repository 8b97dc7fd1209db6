//! A ledger whose tables were partitioned as `docs/scale.md` says. The conformance suite runs on one, too.

use std::sync::Arc;

use semel::store::postgres::PostgresStore;
use semel::{Admission, Engine, Key, Request};
use semel_testkit::postgres::Cluster;

/// The partitions of each table that `docs/sql/partition.sql` makes.
const PARTITIONS: usize = 16;

fn name(url: &str) -> &str {
    url.rsplit('/').next().expect("a database")
}

async fn node(url: &str) -> Engine {
    let store = PostgresStore::open(url).await.expect("the store opens");
    let store = Arc::new(store.without_notes());
    let engine = Engine::builder().store(store).sweep_every(None);
    engine.start().await.expect("an engine starts")
}

fn key(number: usize) -> Key {
    Key::new(&format!("order-{number}")).expect("a key")
}

async fn pay(engine: &Engine, number: usize) -> usize {
    let call = engine.effect("pay", key(number));
    let outcome = call.run(|_| async move { Ok(number) }).await;
    outcome.expect("it runs").value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_in_use_is_partitioned_and_keeps_what_it_had() {
    let (cluster, url) = (Cluster::shared(), Cluster::shared().database());
    let before = node(&url).await;
    for number in 0..20 {
        assert_eq!(pay(&before, number).await, number);
    }
    let open = before.begin(Request::new("pay", key(20))).await;
    let Ok(Admission::Execute(permit)) = open else {
        panic!("nobody else was there: {open:?}");
    };
    cluster.partition(name(&url));
    // A node that was there goes on, with the plans that it had.
    permit
        .done(semel::Effect::Created, &20)
        .await
        .expect("it settles");
    let after = node(&url).await;
    for engine in [&before, &after] {
        for number in 0..=20 {
            let met = engine.begin(Request::new("pay", key(number))).await;
            assert!(matches!(met, Ok(Admission::Replay(_))), "{met:?}");
        }
    }
    assert_eq!(pay(&before, 21).await, 21);
    let verified = after.verify().await.expect("it is looked through");
    assert_eq!((verified.records, verified.difference), (22, None));
    let stray = "SELECT count(*) FROM semel.operations o JOIN pg_class c ON c.oid = o.tableoid \
                 WHERE c.relname <> 'operations_' || lpad((o.bucket / 16)::text, 3, '0')";
    assert_eq!(cluster.sql(name(&url), stray), "0");
}

/// Four keys, two of which lie in one partition: their buckets and their hashes.
const BUCKETS: &str = "ARRAY[0, 17, 18, 255]::smallint[]";
const HASHES: &str = "ARRAY['\\x00', '\\x11', '\\x12', '\\xff']::bytea[]";

/// How many partitions of `operations` this transaction has looked into.
const TOUCHED: &str = "SELECT count(*) FROM pg_stat_xact_user_tables \
                       WHERE schemaname = 'semel' AND relname LIKE 'operations\\_%' AND idx_scan + seq_scan > 0";

/// Asks for four keys, or changes what is not there, and returns how many partitions that touched.
fn touched(database: &str, settings: &str, call: &str) -> usize {
    let sql = format!("{settings} SELECT count(*) FROM {call}; {TOUCHED}");
    let said = Cluster::shared().sql(database, &sql);
    let last = said.lines().last().and_then(|line| line.parse().ok());
    last.unwrap_or_else(|| panic!("no number: {said}"))
}

#[tokio::test]
async fn a_call_looks_into_the_partitions_of_its_keys_only() {
    let (cluster, url) = (Cluster::shared(), Cluster::shared().database());
    drop(node(&url).await);
    cluster.partition(name(&url));
    let look = format!("semel.look({BUCKETS}, {HASHES}, 0)");
    let apply = |plain: bool| {
        let kinds = "ARRAY[1, 1, 1, 1]::smallint[]";
        let keys = format!("{BUCKETS}, {BUCKETS}, {HASHES}");
        let places = "ARRAY[256, 273, 274, 511]::bigint[]";
        let rest = ["NULL"; 28].join(", ");
        format!("semel.apply(7, '1s', 0, {plain}, {kinds}, {keys}, {places}, {places}, {rest})")
    };
    for call in [look, apply(true), apply(false)] {
        assert_eq!(touched(name(&url), "", &call), 3, "{call}");
        let without = "SET enable_partition_pruning = off;";
        assert_eq!(touched(name(&url), without, &call), PARTITIONS, "{call}");
    }
}

#[tokio::test]
async fn a_ledger_is_partitioned_once() {
    let (cluster, url) = (Cluster::shared(), Cluster::shared().database());
    let partition = || {
        let database = name(&url).to_owned();
        std::thread::spawn(move || cluster.partition(&database)).join()
    };
    assert!(partition().is_err(), "there is no ledger yet");
    drop(node(&url).await);
    assert!(partition().is_ok(), "it is partitioned");
    assert!(partition().is_err(), "it was partitioned before");
}
