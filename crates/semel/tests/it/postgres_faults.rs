//! What a node says of a server that is broken, or that does not let it in; that nothing runs
//! meanwhile; and that it goes on by itself once somebody has mended the cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::core::KeyHash;
use semel::store::postgres::PostgresStore;
use semel::store::{Current, Store as _, StoreError};
use semel::{Engine, Error, Key, Namespace};
use semel_testkit::postgres::{Cluster, Setup};
use tokio_postgres::NoTls;

/// The password of the user `locked`; nothing may show it.
const PASSWORD: &str = "s3cret";

async fn open(url: &str) -> Result<PostgresStore, StoreError> {
    Ok(PostgresStore::open(url).await?.without_notes())
}

async fn node(url: &str) -> Engine {
    let store = open(url).await.expect("the store opens");
    let engine = Engine::builder().store(Arc::new(store)).sweep_every(None);
    engine.start().await.expect("an engine starts")
}

/// Says what kind of error it is: whether trying again may help, and what was said.
fn kind(error: &StoreError) -> (&'static str, &str) {
    match error {
        StoreError::Unavailable(text) => ("unavailable", text),
        StoreError::Refused(text) => ("refused", text),
        StoreError::Unusable { text, .. } => ("unusable", text),
        StoreError::Corrupt(text) => ("corrupt", text),
        StoreError::Unknown(text) => ("unknown", text),
        StoreError::Unauthorized(text) => ("unauthorized", text),
        StoreError::Forbidden(text) => ("forbidden", text),
        StoreError::TooLarge { what, .. } => ("too large", what),
    }
}

#[track_caller]
fn expect(case: &str, error: &StoreError, class: &str, said: &str) {
    let (found, text) = kind(error);
    assert_eq!(found, class, "{case}: {text}");
    assert!(text.contains(said), "{case}: {text}");
    assert!(!text.contains(PASSWORD), "{case}: {text}");
}

/// A node, and the effects of what it was asked to do.
struct Node {
    engine: Engine,
    effects: AtomicU32,
}

impl Node {
    async fn new(url: &str) -> Self {
        Self {
            engine: node(url).await,
            effects: AtomicU32::new(0),
        }
    }

    async fn pay(&self, key: &str) -> Result<(), Error> {
        let call = self.engine.effect("pay", Key::new(key).expect("a key"));
        let paid = call.run(|_| async {
            self.effects.fetch_add(1, Ordering::Relaxed);
            Ok(42)
        });
        paid.await.map(|paid| assert_eq!(paid.value, 42))
    }

    /// Expects this of the store, and that nothing runs.
    async fn fails(&self, case: &str, class: &str, said: &str) {
        let before = self.effects.load(Ordering::Relaxed);
        let error = self.pay(case).await.expect_err(case);
        let Error::Store(stored) = &error else {
            panic!("{case}: {error:?}");
        };
        expect(case, stored, class, said);
        let corrupt = class == "corrupt";
        let code = if corrupt {
            "internal"
        } else {
            "store_unavailable"
        };
        assert_eq!(
            (error.code(), error.retryable()),
            (code, !corrupt),
            "{case}"
        );
        assert!(error.hint().is_some(), "{case}");
        assert_eq!(self.effects.load(Ordering::Relaxed), before, "{case} ran");
    }

    /// Expects that what failed runs once now.
    async fn recovers(&self, case: &str) {
        let before = self.effects.load(Ordering::Relaxed);
        for _ in 0..2 {
            let paid = self.pay(case).await;
            paid.unwrap_or_else(|error| panic!("{case}: {error}"));
        }
        assert_eq!(self.effects.load(Ordering::Relaxed), before + 1, "{case}");
    }
}

/// Ends the connections of the nodes, so that they need new ones.
const CUT: &str = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity \
                   WHERE application_name = 'semel'";

/// Keeps everybody from the tables until its connection is closed.
async fn lock_tables(cluster: &Cluster, name: &str) -> tokio_postgres::Client {
    let url = cluster.url("semel", name);
    let (client, driver) = tokio_postgres::connect(&url, NoTls)
        .await
        .expect("it connects");
    tokio::spawn(driver);
    let lock = "BEGIN; DO $$ DECLARE t regclass; BEGIN FOR t IN \
                SELECT c.oid FROM pg_class c WHERE relnamespace = 'semel'::regnamespace AND relkind = 'r' \
                LOOP EXECUTE format('LOCK TABLE %s', t); END LOOP; END $$";
    client.batch_execute(lock).await.expect("it locks");
    client
}

/// A cluster with a database that belongs to `locked`, who has a password.
fn locked(setup: &Setup) -> (Cluster, String) {
    let cluster = Cluster::start_with(setup);
    let sql = format!("CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'");
    cluster.sql("postgres", &sql);
    cluster.sql("postgres", "CREATE DATABASE ledger OWNER locked");
    let url = cluster.url(&format!("locked:{PASSWORD}"), "ledger");
    (cluster, format!("{url}?connect_timeout=1"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_says_what_is_wrong_runs_nothing_and_goes_on_when_it_is_mended() {
    let (cluster, url) = locked(&Setup::default());
    let node = Node::new(&url).await;
    node.recovers("before").await;
    // What breaks, what mends; what is said in between.
    let right = format!("ALTER ROLE locked PASSWORD '{PASSWORD}'");
    for (broken, mended, class, said) in [
        (
            "ALTER ROLE locked PASSWORD 'other'",
            right.as_str(),
            "refused",
            "check user and password",
        ),
        (
            "ALTER ROLE locked NOLOGIN",
            "ALTER ROLE locked LOGIN",
            "refused",
            "check the user in the URL",
        ),
        (
            "ALTER DATABASE ledger RENAME TO elsewhere",
            "ALTER DATABASE elsewhere RENAME TO ledger",
            "refused",
            "create the database first",
        ),
        (
            "ALTER ROLE locked SET default_transaction_read_only = on",
            "ALTER ROLE locked RESET default_transaction_read_only",
            "unavailable",
            "the URL must lead to the primary",
        ),
    ] {
        cluster.sql("postgres", CUT);
        cluster.sql("postgres", broken);
        node.fails(broken, class, said).await;
        cluster.sql("postgres", mended);
        node.recovers(broken).await;
    }

    cluster.crash();
    node.fails("down", "unavailable", "is it running").await;
    cluster.start_again();
    node.recovers("down").await;

    cluster.sql("postgres", CUT);
    let stopped = cluster.stop_listening();
    node.fails("silent", "unavailable", "did not answer within 1 s")
        .await;
    drop(stopped);
    node.recovers("silent").await;

    // Nobody makes an empty schema in place of the one that is gone: every key would run again.
    cluster.sql("ledger", "ALTER SCHEMA semel RENAME TO hidden");
    node.fails("schema", "corrupt", "the schema `semel` is not what it was")
        .await;
    cluster.sql("ledger", "ALTER SCHEMA hidden RENAME TO semel");
    node.recovers("schema").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_may_not_take_their_time_are_said_and_idle_ones_do_no_harm() {
    let (cluster, url) = locked(&Setup::default());
    let node = Node::new(&url).await;
    // Semel sets its own limit in its transactions.
    let idle = "ALTER ROLE locked SET idle_in_transaction_session_timeout = '1ms'";
    cluster.sql("postgres", idle);
    cluster.sql("postgres", CUT);
    node.recovers("idle").await;

    let short = "ALTER ROLE locked SET statement_timeout = '50ms'";
    cluster.sql("postgres", short);
    cluster.sql("postgres", CUT);
    let lock = lock_tables(&cluster, "ledger").await;
    node.fails("statement", "unavailable", "statement_timeout is too short")
        .await;
    drop(lock);
    cluster.sql("postgres", "ALTER ROLE locked RESET statement_timeout");
    node.recovers("statement").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_knows_of_a_statement_timeout_that_was_mended() {
    let (cluster, url) = locked(&Setup::default());
    let store = open(&url).await.expect("the store opens");
    let short = "ALTER ROLE locked SET statement_timeout = '50ms'";
    cluster.sql("postgres", short);
    cluster.sql("postgres", CUT);
    let lock = lock_tables(&cluster, "ledger").await;
    let hash = KeyHash::of(&Namespace::default(), &Key::new("order-7").expect("a key"));
    let error = store.load(&hash).await.expect_err("it may not wait");
    expect(
        "read",
        &error,
        "unavailable",
        "statement_timeout is too short",
    );

    cluster.sql("postgres", "ALTER ROLE locked RESET statement_timeout");
    let reading = tokio::spawn(async move { store.load(&hash).await });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel' \
                   AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > '200ms'";
    while cluster.sql("postgres", waiting) != "1" {
        assert!(!reading.is_finished(), "it may still not wait");
    }
    drop(lock);
    let read = reading.await.expect("it ends").expect("it is read");
    assert!(matches!(read, Current::Absent(_)), "{read:?}");
}

#[tokio::test]
async fn what_a_person_must_change_before_a_store_opens_is_said() {
    let (cluster, url) = locked(&Setup::default());
    cluster.sql("postgres", "CREATE ROLE poor LOGIN");
    let poor = cluster.url("poor", "ledger");
    for (url, said) in [
        (
            cluster.url("locked:s3cret-not", "ledger"),
            "check user and password",
        ),
        (
            cluster.url("locked", "ledger"),
            "put the password into the URL",
        ),
        (cluster.url("nobody", "ledger"), "check the user in the URL"),
        (cluster.url("semel", "nowhere"), "create the database first"),
        (poor.clone(), "GRANT CREATE ON DATABASE"),
        (format!("{url}&sslmode=require"), "Unix socket"),
        (format!("{url}&ssl=true"), "no parameter `ssl`"),
    ] {
        let error = open(&url).await.expect_err("it is refused");
        expect(&url, &error, "refused", said);
    }
    // Nothing was left behind that would stand in the way.
    cluster.sql("postgres", "GRANT CREATE ON DATABASE ledger TO poor");
    open(&poor).await.expect("it may now");
    let stranger = "the right to make a schema is not the right to use another's";
    let error = open(&url).await.expect_err(stranger);
    expect(stranger, &error, "refused", "permission denied");

    cluster.sql(
        "postgres",
        "CREATE DATABASE bare ENCODING 'LATIN1' TEMPLATE template0",
    );
    let error = open(&cluster.url("semel", "bare"))
        .await
        .expect_err("it is no UTF8");
    expect("encoding", &error, "refused", "--encoding=UTF8");
}

/// The connections that others than a superuser may have.
const SLOTS: usize = 5;

/// Takes all connections, as others might.
async fn fill(cluster: &Cluster) -> Vec<tokio_postgres::Client> {
    let url = cluster.url(&format!("locked:{PASSWORD}"), "ledger");
    let mut taken = Vec::new();
    while let Ok((client, driver)) = tokio_postgres::connect(&url, NoTls).await {
        tokio::spawn(driver);
        taken.push(client);
        assert!(taken.len() <= SLOTS, "there is no limit");
    }
    taken
}

fn crowded() -> Setup {
    Setup {
        settings: format!(
            "max_connections = {}\nsuperuser_reserved_connections = 3\n",
            SLOTS + 3
        ),
        ..Setup::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_asked_again_until_it_has_room() {
    let (cluster, url) = locked(&crowded());
    drop(open(&url).await.expect("there is room"));
    cluster.sql("postgres", CUT);
    let taken = fill(&cluster).await;
    let before = cluster.refused_connections();
    let opening = tokio::spawn(async move { Node::new(&url).await.recovers("full").await });
    // It has been sent away twice: so it waits.
    while cluster.refused_connections() < before + 2 {
        assert!(!opening.is_finished(), "it did not ask again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(taken);
    opening.await.expect("it went on when there was room");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_full_is_said_to_be() {
    let (cluster, url) = locked(&crowded());
    let node = Node::new(&url).await;
    cluster.sql("postgres", CUT);
    let taken = fill(&cluster).await;
    node.fails("full", "unavailable", "raise max_connections")
        .await;
    drop(taken);
    node.recovers("full").await;
}

/// The room of a disk that is soon full: an empty database takes about 8 MB of it.
const DISK: u64 = 16 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_said_and_nothing_runs_until_there_is_room() {
    let cluster = Cluster::start_with(&Setup {
        small: Some(DISK),
        ..Setup::default()
    });
    let place = cluster.directory().join("small");
    let sql = format!("CREATE TABLESPACE small LOCATION '{}'", place.display());
    cluster.sql("postgres", &sql);
    cluster.sql("postgres", "CREATE DATABASE ledger TABLESPACE small");
    let node = Node::new(&cluster.url("semel", "ledger")).await;
    node.recovers("before").await;
    cluster.sql("ledger", "CREATE TABLE filler (text text)");
    let fill = "DO $$ BEGIN LOOP INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 10); \
                END LOOP; EXCEPTION WHEN disk_full THEN NULL; END $$";
    cluster.sql("ledger", fill);
    // The last pages take a few more: then a claim finds no room.
    let mut last = 0;
    let error = loop {
        let (before, key) = (
            node.effects.load(Ordering::Relaxed),
            format!("order-{last}"),
        );
        match node.pay(&key).await {
            Ok(()) => last += 1,
            Err(Error::Store(error)) => {
                assert_eq!(node.effects.load(Ordering::Relaxed), before, "{key} ran");
                break error;
            }
            // The claim fitted, its settlement did not: it is in doubt.
            Err(Error::Unstored { .. }) => last += 1,
            Err(error) => panic!("{key}: {error:?}"),
        }
        assert!(last < 10_000, "the disk is not full");
    };
    expect("disk", &error, "unavailable", "make room on it");
    cluster.sql("ledger", "DROP TABLE filler");
    node.recovers(&format!("order-{last}")).await;
    let verified = node.engine.verify().await.expect("it is verified");
    assert_eq!(verified.difference, None);
}
