//! The SQL that `docs/postgres.md` shows, tried out on ledgers that hold something.

use std::sync::Arc;

use semel::store::postgres::PostgresStore;
use semel::{Admission, Engine, Key, Permit, Request};
use semel_testkit::postgres::Cluster;

const PAGE: &str = include_str!("../../../../docs/postgres.md");
const VACUUM: &str = include_str!("../../../../docs/sql/vacuum.sql");

/// Returns the blocks of a page that are marked `sql`.
fn blocks() -> Vec<&'static str> {
    let parts = PAGE.split("\n```sql\n").skip(1);
    let blocks: Option<Vec<_>> = parts
        .map(|part| part.split_once("\n```\n").map(|(block, _)| block))
        .collect();
    blocks.expect("every block ends")
}

fn is_query(block: &str) -> bool {
    block.starts_with("SELECT") || block.starts_with("WITH")
}

/// Makes a ledger in which every query finds something, as long as the permit is kept.
async fn ledger(url: &str) -> Permit {
    let store = PostgresStore::open(url).await.expect("the store opens");
    let store = Arc::new(store.without_notes());
    let engine = Engine::builder().store(store).sweep_every(None);
    let engine = engine.start().await.expect("an engine starts");
    let key = |text| Key::new(text).expect("a key");
    let call = engine.effect("pay", key("order-7"));
    call.run(|_| async { Ok(42) }).await.expect("it runs");
    let begin = async |order| match engine.begin(Request::new("pay", key(order))).await {
        Ok(Admission::Execute(permit)) => permit,
        other => panic!("nobody else was there: {other:?}"),
    };
    let doubted = begin("order-8").await;
    doubted.unknown("lost").await.expect("it is stored");
    begin("order-9").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queries_of_the_page_find_what_they_are_about() {
    let (cluster, url) = (Cluster::shared(), Cluster::shared().database());
    let name = url.rsplit('/').next().expect("a database");
    let _running = ledger(&url).await;
    let queries: Vec<_> = blocks().into_iter().filter(|it| is_query(it)).collect();
    assert!(queries.len() >= 5, "{queries:?}");
    let answer = |query: &&str| cluster.sql(name, query);
    let whole: Vec<String> = queries.iter().map(answer).collect();
    for (query, answer) in queries.iter().zip(&whole) {
        assert!(!answer.is_empty(), "nothing is found: {query}");
    }
    cluster.sql(name, VACUUM);
    cluster.partition(name);
    cluster.sql(name, VACUUM);
    for query in queries {
        assert!(!answer(&query).is_empty(), "nothing is found: {query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_role_of_the_page_reads_what_happened_and_nothing_else() {
    // A role is the whole server's.
    let cluster = Cluster::start();
    let url = cluster.database();
    let name = url.rsplit('/').next().expect("a database");
    drop(ledger(&url).await);
    for block in blocks().into_iter().filter(|block| !is_query(block)) {
        cluster.sql(name, block);
    }
    let as_reader = |sql: &str| {
        let role = "SET ROLE ledger_reader";
        // An error that is caught here tells that it was refused, whatever else is wrong ends the test.
        let tried = format!(
            "{role}; DO $try$ BEGIN EXECUTE $sql${sql}$sql$; RAISE USING ERRCODE = 'P0004'; \
             EXCEPTION WHEN insufficient_privilege THEN \
             PERFORM set_config('test.refused', 'yes', false); \
             WHEN assert_failure THEN NULL; END $try$; \
             SELECT coalesce(current_setting('test.refused', true), 'no')"
        );
        cluster.sql(name, &tried)
    };
    for allowed in [
        "SELECT namespace, key, state, lease_until FROM semel.operations",
        "SELECT seq, at, command FROM semel.log",
    ] {
        assert_eq!(as_reader(allowed), "no", "{allowed}");
    }
    for refused in [
        "SELECT record FROM semel.operations",
        "SELECT entry FROM semel.log",
        "SELECT packed FROM semel.payloads",
        "SELECT packed FROM semel.chunks",
        "SELECT digest FROM semel.tokens",
        "UPDATE semel.operations SET state = 'succeeded'",
        "DELETE FROM semel.log",
        "SELECT nextval('semel.numbers')",
        "SELECT * FROM semel.look(ARRAY[1]::smallint[], ARRAY['\\x01']::bytea[], 0)",
    ] {
        assert_eq!(as_reader(refused), "yes", "{refused}");
    }
}
