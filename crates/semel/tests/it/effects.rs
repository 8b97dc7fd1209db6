//! Changes that say what they did, in both databases.

use semel::Effect;
use semel::effects::{EffectError, postgres, sqlite};
use semel::rusqlite::{Connection, TransactionBehavior};
use semel_testkit::postgres::Cluster;
use semel_testkit::scaled;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

/// A name that only a quoted identifier can have.
const TABLE: &str = r#"my "odd" table"#;

const ODD: &str = r#"
    CREATE TABLE "my ""odd"" table" (
        "select" integer NOT NULL, kind text NOT NULL, name text, "Size" integer,
        PRIMARY KEY ("select", kind));"#;

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("it connects");
    // Its end is told to whoever waits for an answer.
    tokio::spawn(async move { drop(connection.await) });
    client
}

async fn database(tables: &str) -> (String, Client) {
    let url = Cluster::shared().database();
    let client = connect(&url).await;
    client.batch_execute(tables).await.expect("they are made");
    (url, client)
}

fn file(tables: &str) -> Connection {
    let connection = Connection::open_in_memory().expect("it opens");
    connection.execute_batch(tables).expect("they are made");
    connection
}

/// What an upsert is asked for, one after the other, and what it does.
const STEPS: [(Option<&str>, Option<i32>, Effect); 8] = [
    (Some("a"), Some(1), Effect::Created),
    (Some("a"), Some(1), Effect::Noop),
    (Some("b"), Some(1), Effect::Updated),
    (Some("b"), None, Effect::Updated),
    (Some("b"), None, Effect::Noop),
    (Some("B"), None, Effect::Updated),
    (None, None, Effect::Updated),
    (None, None, Effect::Noop),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_says_what_it_did_in_postgres() {
    let (_, mut client) = database(ODD).await;
    // Each in a transaction of its own, then all in one.
    let mut together = client.transaction().await.expect("it begins");
    for (kind, alone) in [("alone", true), ("together", false)] {
        for (name, size, effect) in STEPS {
            let transaction = together.transaction().await.expect("it begins");
            let key: [postgres::Column<'_>; 2] = [("select", &7), ("kind", &kind)];
            let set: [postgres::Column<'_>; 2] = [("name", &name), ("Size", &size)];
            let done = postgres::upsert(&transaction, TABLE, &key, &set).await;
            assert_eq!(
                done.expect("it is done"),
                effect,
                "{kind}: {name:?} {size:?}"
            );
            transaction.commit().await.expect("it is committed");
            if alone {
                together.commit().await.expect("it is committed");
                together = client.transaction().await.expect("it begins");
            }
        }
        let key: [postgres::Column<'_>; 2] = [("select", &7), ("kind", &kind)];
        let sql = format!(
            "SELECT count(*) FROM \"{}\" WHERE name IS NULL",
            TABLE.replace('"', "\"\"")
        );
        let rows: i64 = together.query_one(&sql, &[]).await.expect("a row").get(0);
        assert_eq!(rows, 1);
        for effect in [Effect::Deleted, Effect::Noop] {
            let deleted = postgres::delete(&together, TABLE, &key).await;
            assert_eq!(deleted.expect("it is done"), effect);
        }
        for effect in [Effect::Created, Effect::Noop] {
            let made = postgres::upsert(&together, TABLE, &key, &[]).await;
            assert_eq!(made.expect("it is done"), effect);
        }
        postgres::delete(&together, TABLE, &key)
            .await
            .expect("it is done");
    }
}

#[test]
fn an_upsert_says_what_it_did_in_sqlite() {
    let mut connection = file(ODD);
    let transaction = connection.transaction().expect("it begins");
    let key: [sqlite::Column<'_>; 2] = [("select", &7), ("kind", &"a")];
    for (name, size, effect) in STEPS {
        let set: [sqlite::Column<'_>; 2] = [("name", &name), ("Size", &size)];
        let done = sqlite::upsert(&transaction, TABLE, &key, &set);
        assert_eq!(done.expect("it is done"), effect, "{name:?} {size:?}");
    }
    for effect in [Effect::Deleted, Effect::Noop] {
        let deleted = sqlite::delete(&transaction, TABLE, &key);
        assert_eq!(deleted.expect("it is done"), effect);
    }
    for effect in [Effect::Created, Effect::Noop] {
        let made = sqlite::upsert(&transaction, TABLE, &key, &[]);
        assert_eq!(made.expect("it is done"), effect);
    }
}

#[test]
fn what_a_collation_calls_equal_is_changed_all_the_same_in_sqlite() {
    let mut connection = file("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE)");
    let transaction = connection.transaction().expect("it begins");
    for (name, effect) in [
        ("a", Effect::Created),
        ("A", Effect::Updated),
        ("A", Effect::Noop),
    ] {
        let done = sqlite::upsert(&transaction, "main.t", &[("id", &1)], &[("name", &name)]);
        assert_eq!(done.expect("it is done"), effect);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_upsert_one_row_at_once_one_creates_it() {
    let (url, _client) = database("CREATE TABLE t (id integer PRIMARY KEY, by integer)").await;
    let keys = i32::try_from(scaled(500, 25)).expect("it is small");
    let mut callers = JoinSet::new();
    for number in 0..4 {
        let mut client = connect(&url).await;
        callers.spawn(async move {
            let mut effects = vec![];
            for id in 0..keys {
                let transaction = client.transaction().await.expect("it begins");
                // All write the same at even keys, and each its own at odd ones.
                let by = if id % 2 == 0 { 0 } else { number };
                let done =
                    postgres::upsert(&transaction, "t", &[("id", &id)], &[("by", &by)]).await;
                effects.push(done.expect("it is done"));
                transaction.commit().await.expect("it is committed");
            }
            effects
        });
    }
    let effects = callers.join_all().await;
    for id in 0..usize::try_from(keys).expect("it is small") {
        let of = |wanted| effects.iter().filter(|done| done[id] == wanted).count();
        let changed = if id % 2 == 0 { (1, 0, 3) } else { (1, 3, 0) };
        assert_eq!(
            (of(Effect::Created), of(Effect::Updated), of(Effect::Noop)),
            changed,
            "{id}"
        );
    }
}

#[test]
fn in_sqlite_a_snapshot_that_was_overtaken_creates_nothing() {
    let directory = tempfile::tempdir().expect("a directory is made");
    let path = directory.path().join("t.db");
    let open = || Connection::open(&path).expect("it opens");
    let sql = "PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, by INTEGER)";
    open().execute_batch(sql).expect("it is made");
    let (mut slow, mut quick) = (open(), open());
    let late = slow
        .transaction_with_behavior(TransactionBehavior::Deferred)
        .expect("it begins");
    let count = "SELECT count(*) FROM t";
    let seen: i64 = late.query_row(count, [], |row| row.get(0)).expect("a row");
    assert_eq!(seen, 0);
    let first = quick.transaction().expect("it begins");
    let done = sqlite::upsert(&first, "t", &[("id", &1)], &[("by", &1)]);
    assert_eq!(done.expect("it is done"), Effect::Created);
    first.commit().expect("it is committed");
    let done = sqlite::upsert(&late, "t", &[("id", &1)], &[("by", &2)]);
    assert!(matches!(done, Err(EffectError::Database(_))), "{done:?}");
}

const STATES: &str = "CREATE TABLE orders (id integer PRIMARY KEY, state text);
    INSERT INTO orders VALUES (1, 'new'), (2, 'shipped'), (3, NULL)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transition_says_what_it_did_or_where_the_row_is() {
    let (_, mut client) = database(STATES).await;
    let far = client.transaction().await.expect("it begins");
    let mut connection = file(STATES);
    let near = connection.transaction().expect("it begins");
    let refused = |state: Option<&str>| {
        let text = state.map_or_else(|| "NULL".to_owned(), |state| format!("`{state}`"));
        Err(format!(
            "the row in orders is in the state {text}, from which it cannot get there"
        ))
    };
    let missing = Err("there is no such row in orders".to_owned());
    for (id, from, to, wanted) in [
        (1, "new", "paid", Ok(Effect::Updated)),
        (1, "new", "paid", Ok(Effect::Noop)),
        (1, "paid", "paid", Ok(Effect::Noop)),
        (2, "new", "paid", refused(Some("shipped"))),
        (3, "new", "paid", refused(None)),
        (4, "new", "paid", missing),
    ] {
        let key: [postgres::Column<'_>; 1] = [("id", &id)];
        let done = postgres::transition(&far, "orders", &key, "state", &from, &to);
        let done = done.await.map_err(|error| error.to_string());
        assert_eq!(done, wanted, "{id}");
        let done = sqlite::transition(&near, "orders", &[("id", &id)], "state", &from, &to);
        assert_eq!(done.map_err(|error| error.to_string()), wanted, "{id}");
    }
    let nothing = postgres::delete(&far, "orders", &[]).await;
    assert!(matches!(nothing, Err(EffectError::NoKey { .. })));
    let nothing = sqlite::delete(&near, "orders", &[]);
    assert!(matches!(nothing, Err(EffectError::NoKey { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_move_one_row_at_once_one_updates_it() {
    let (url, _client) = database(STATES).await;
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let mut client = connect(&url).await;
        callers.spawn(async move {
            let transaction = client.transaction().await.expect("it begins");
            let key: [postgres::Column<'_>; 1] = [("id", &1)];
            let done =
                postgres::transition(&transaction, "orders", &key, "state", &"new", &"paid").await;
            let done = done.expect("it is done");
            transaction.commit().await.expect("it is committed");
            done
        });
    }
    let mut effects = callers.join_all().await;
    effects.sort_by_key(|effect| *effect == Effect::Noop);
    let expected = [Effect::Updated, Effect::Noop, Effect::Noop, Effect::Noop];
    assert_eq!(effects, expected);
}
