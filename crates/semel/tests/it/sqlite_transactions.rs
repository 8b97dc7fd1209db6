//! Exactly once in the caller's own SQLite transaction, on the ledger's file. Accounts in that file are
//! the independent sink.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semel::core::ledger::StateKind;
use semel::core::redact::OutputRule;
use semel::rusqlite::{Connection, Transaction, TransactionBehavior};
use semel::store::sqlite::SqliteStore;
use semel::{Admission, Effect, Engine, Error, Key, Lease, Namespace, Permit, Redactor, Request};
use semel_testkit::conformance::{ManualClock, scratch};
use semel_testkit::process::Dice;
use semel_testkit::scaled;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// What every account holds at first.
const OPENING: i64 = 1_000;

const TABLES: &str = "
    CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
    CREATE TABLE moved (key TEXT NOT NULL);
    CREATE TABLE receipt (account INTEGER REFERENCES account DEFERRABLE INITIALLY DEFERRED);
    INSERT INTO account VALUES (1, 1000), (2, 1000), (3, 1000), (4, 1000);";

/// One of those who share the file, as a process of its own would.
struct Node {
    store: Arc<SqliteStore>,
    engine: Engine,
}

/// A ledger and accounts in one file.
struct Bank {
    directory: TempDir,
    clock: Arc<ManualClock>,
    connection: Connection,
}

impl Bank {
    async fn open() -> (Self, Node) {
        let directory = scratch();
        let clock: Arc<ManualClock> = Arc::default();
        let node = node(&directory, &clock).await;
        let connection = node.store.connect().expect("it connects");
        connection
            .execute_batch(TABLES)
            .expect("the tables are made");
        let bank = Self {
            directory,
            clock,
            connection,
        };
        (bank, node)
    }

    /// Lets every lease run out.
    fn lapse(&self) {
        self.clock.advance(Lease::DEFAULT.length() * 2);
    }

    fn number(&self, sql: &str) -> i64 {
        let number = self.connection.query_row(sql, [], |row| row.get(0));
        number.expect("it is there")
    }

    /// Asserts that money was moved this often, by what both accounts hold.
    fn assert_moved(&self, times: i64) {
        let balance = |id| self.number(&format!("SELECT balance FROM account WHERE id = {id}"));
        let held = (balance(1), balance(2));
        assert_eq!(held, (OPENING - 10 * times, OPENING + 10 * times));
    }
}

async fn node(directory: &TempDir, clock: &Arc<ManualClock>) -> Node {
    let path = directory.path().join("bank.db");
    let store = SqliteStore::open_with(path, Arc::clone(clock) as _).expect("the store opens");
    let store = Arc::new(store);
    let builder = Engine::builder()
        .store(Arc::clone(&store) as _)
        .sweep_every(None);
    let engine = builder.start().await.expect("an engine starts");
    Node { store, engine }
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn order() -> Request {
    Request::new("transfer", key("order-7")).transactional()
}

async fn permit(engine: &Engine, request: Request) -> Permit {
    match engine.begin(request).await {
        Ok(Admission::Execute(permit)) => permit,
        other => panic!("it may act: {other:?}"),
    }
}

/// Moves ten from the first account to the second.
fn transfer(transaction: &Transaction<'_>) {
    let sql =
        "UPDATE account SET balance = balance + CASE id WHEN 1 THEN -10 ELSE 10 END WHERE id < 3";
    assert_eq!(transaction.execute(sql, []).expect("it is moved"), 2);
}

async fn state(engine: &Engine) -> StateKind {
    let record = engine.load(&Namespace::default(), &key("order-7")).await;
    record.expect("it loads").expect("it is there").kind()
}

/// Begins again, transfers, and commits.
async fn again(node: &Node) {
    let permit = permit(&node.engine, order()).await;
    let mut connection = node.store.connect().expect("it connects");
    let transaction = node.store.transaction(&mut connection).expect("it begins");
    transfer(&transaction);
    let receipt = permit.commit_sqlite(transaction, Effect::Updated, &"again");
    assert!(!receipt.expect("it is committed").replayed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_effect_and_its_settlement_are_committed_together() {
    let (bank, here) = Bank::open().await;
    let there = node(&bank.directory, &bank.clock).await;
    let permit = permit(&here.engine, order()).await;
    // The other one was the last to write, and has answered from what it knows.
    let call = there.engine.effect("other", key("order-8"));
    call.run(|_| async { Ok(1) }).await.expect("it runs");
    assert_eq!(state(&there.engine).await, StateKind::Running);

    let mut connection = here.store.connect().expect("it connects");
    let transaction = here.store.transaction(&mut connection).expect("it begins");
    transfer(&transaction);
    let receipt = permit.commit_sqlite(transaction, Effect::Updated, &42);
    let receipt = receipt.expect("it is committed");
    assert_eq!((receipt.effect, receipt.replayed), (Effect::Updated, false));
    bank.assert_moved(1);

    for node in [&here, &there, &node(&bank.directory, &bank.clock).await] {
        let Ok(Admission::Replay(receipt)) = node.engine.begin(order()).await else {
            panic!("it was done before");
        };
        assert_eq!(receipt.payload.as_deref(), Some(b"42".as_slice()));
        let call = node.engine.effect("other", key("order-8"));
        let other = call.run(|_| async { Ok(2) }).await.expect("it replays");
        assert_eq!(other.value, 1);
        let verified = node.engine.verify().await.expect("it is verified");
        assert_eq!(verified.difference, None);
    }
    // The log goes on after it, for both.
    for (node, name) in [(&here, "order-9"), (&there, "order-10")] {
        let call = node.engine.effect("other", key(name));
        call.run(|_| async { Ok(3) }).await.expect("it runs");
        let verified = node.engine.verify().await.expect("it is verified");
        assert_eq!(verified.difference, None);
    }
    bank.assert_moved(1);
}

#[tokio::test]
async fn what_a_rule_names_is_not_committed_with_the_effect() {
    let (bank, node) = Bank::open().await;
    let rule = OutputRule::new("/pin").expect("a rule");
    let builder = Engine::builder()
        .store(Arc::clone(&node.store) as _)
        .redactor(Redactor::default().outputs([rule]));
    let engine = builder.start().await.expect("an engine starts");
    let permit = permit(&engine, order()).await;
    let mut connection = node.store.connect().expect("it connects");
    let transaction = node.store.transaction(&mut connection).expect("it begins");
    transfer(&transaction);
    let answer = BTreeMap::from([("pin", 1_234)]);
    let receipt = permit.commit_sqlite(transaction, Effect::Updated, &answer);
    let receipt = receipt.expect("it is committed");
    bank.assert_moved(1);
    let Ok(Admission::Replay(replayed)) = node.engine.begin(order()).await else {
        panic!("it was done before");
    };
    for told in [receipt, replayed] {
        assert_eq!(
            (told.data(), told.redacted),
            (Some(r#"{"pin":"[redacted]"}"#), true)
        );
    }
}

#[tokio::test]
async fn it_works_in_the_only_thread_of_a_runtime() {
    let (bank, node) = Bank::open().await;
    again(&node).await;
    bank.assert_moved(1);
    let late = permit(&node.engine, order().key(key("order-8"))).await;
    let mut connection = Connection::open_in_memory().expect("it opens");
    let transaction = connection.transaction().expect("it begins");
    let refused = late.commit_sqlite(transaction, Effect::Updated, &42);
    assert_eq!(refused.expect_err("elsewhere").code(), "invalid_input");
    // It was given back before the answer.
    drop(permit(&node.engine, order().key(key("order-8"))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_successor_committed_is_rolled_back_and_hears_its_outcome() {
    let (bank, slow) = Bank::open().await;
    let quick = node(&bank.directory, &bank.clock).await;
    let late = permit(&slow.engine, order()).await;
    bank.lapse();
    again(&quick).await;
    let mut connection = slow.store.connect().expect("it connects");
    let transaction = slow.store.transaction(&mut connection).expect("it begins");
    transfer(&transaction);
    let receipt = late.commit_sqlite(transaction, Effect::Updated, &"late");
    let receipt = receipt.expect("it hears the other's outcome");
    assert!(receipt.replayed);
    assert_eq!(receipt.payload.as_deref(), Some(br#""again""#.as_slice()));
    bank.assert_moved(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_successor_runs_is_rolled_back_and_fenced() {
    let (bank, slow) = Bank::open().await;
    let quick = node(&bank.directory, &bank.clock).await;
    let late = permit(&slow.engine, order()).await;
    bank.lapse();
    let successor = permit(&quick.engine, order()).await;
    for (permit, node, fenced) in [(late, &slow, true), (successor, &quick, false)] {
        let mut connection = node.store.connect().expect("it connects");
        let transaction = node.store.transaction(&mut connection).expect("it begins");
        transfer(&transaction);
        match permit.commit_sqlite(transaction, Effect::Updated, &42) {
            Ok(receipt) => assert!(!fenced && !receipt.replayed),
            Err(error) => assert!(fenced && error.code() == "fenced", "{error:?}"),
        }
        bank.assert_moved(i64::from(!fenced));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_ends_before_its_commit_runs_again() {
    let (bank, node) = Bank::open().await;
    let dropped = permit(&node.engine, order()).await;
    let mut connection = node.store.connect().expect("it connects");
    let transaction = node.store.transaction(&mut connection).expect("it begins");
    transfer(&transaction);
    drop(transaction);
    drop(dropped);
    // Once more, as a process that ends without a word does.
    let second = loop {
        match node.engine.begin(order()).await.expect("it answers") {
            Admission::Execute(permit) => break permit,
            Admission::Wait { .. } => tokio::task::yield_now().await,
            other => panic!("a doubt is retried: {other:?}"),
        }
    };
    assert_eq!(second.attempt(), 2);
    std::mem::forget(second);
    bank.lapse();
    again(&node).await;
    bank.assert_moved(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_and_rolled_back() {
    let (bank, node) = Bank::open().await;
    let (elsewhere, other) = Bank::open().await;
    std::mem::forget(permit(&other.engine, order()).await);
    let copy = bank.directory.path().join("copy.db");
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    let written_back = bank.connection.query_row(checkpoint, [], |_| Ok(()));
    written_back.expect("it is written back");
    std::fs::copy(node.store.path(), &copy).expect("it is copied");
    let open = |prepare: &str| {
        let connection = node.store.connect().expect("it connects");
        connection.execute_batch(prepare).expect("it is prepared");
        connection
    };
    let cases = [
        (
            other.store.connect().expect("it connects"),
            "that the ledger is in",
        ),
        (
            Connection::open(&copy).expect("it opens"),
            "that the ledger is in",
        ),
        (open("PRAGMA synchronous = NORMAL"), "synchronous = FULL"),
        (open("CREATE TEMP TABLE log (a)"), "temporary table"),
        (
            open("CREATE TEMP TRIGGER t AFTER INSERT ON log BEGIN SELECT 1; END"),
            "temporary table",
        ),
    ];
    for (mut connection, said) in cases {
        let permit = permit(&node.engine, order()).await;
        let transaction = connection.transaction().expect("it begins");
        transfer(&transaction);
        let answer = permit.commit_sqlite(transaction, Effect::Updated, &42);
        let error = answer.expect_err("it is refused");
        assert!(error.to_string().contains(said), "{error}");
        assert!(connection.is_autocommit(), "it was rolled back");
    }
    // A transaction that has ended without the permit holds nothing any more.
    let ended = permit(&node.engine, order()).await;
    let mut connection = node.store.connect().expect("it connects");
    let transaction = connection.transaction().expect("it begins");
    transaction.execute_batch("ROLLBACK").expect("it ends");
    let answer = ended.commit_sqlite(transaction, Effect::Updated, &42);
    let error = answer.expect_err("it is refused");
    assert!(error.to_string().contains("has ended"), "{error}");

    bank.assert_moved(0);
    elsewhere.assert_moved(0);
    again(&node).await;
    bank.assert_moved(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_in_another_kind_of_store_refuses() {
    let engine = Engine::open("memory:").await.expect("it opens");
    let permit = permit(&engine, order()).await;
    let mut connection = Connection::open_in_memory().expect("it opens");
    let transaction = connection.transaction().expect("it begins");
    let answer = permit.commit_sqlite(transaction, Effect::Updated, &42);
    assert_eq!(answer.expect_err("refused").code(), "invalid_input");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_that_fails_at_commit_is_an_error_and_can_be_begun_again() {
    let (bank, node) = Bank::open().await;
    let permit = permit(&node.engine, order()).await;
    let mut connection = node.store.connect().expect("it connects");
    connection
        .pragma_update(None, "foreign_keys", true)
        .expect("it is set");
    let transaction = node.store.transaction(&mut connection).expect("it begins");
    transfer(&transaction);
    let sql = "INSERT INTO receipt VALUES (99)";
    transaction.execute(sql, []).expect("it is deferred");
    let answer = permit.commit_sqlite(transaction, Effect::Updated, &42);
    let error = answer.expect_err("there is no such account");
    assert!(error.to_string().contains("FOREIGN KEY"), "{error}");
    bank.assert_moved(0);
    again(&node).await;
    bank.assert_moved(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_others_have_overtaken_is_an_error_and_can_be_begun_again() {
    let (bank, node) = Bank::open().await;
    let mut connection = node.store.connect().expect("it connects");
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Deferred)
        .expect("it begins");
    let seen: i64 = transaction
        .query_row("SELECT balance FROM account WHERE id = 1", [], |row| {
            row.get(0)
        })
        .expect("it reads");
    assert_eq!(seen, OPENING);
    let permit = permit(&node.engine, order()).await;
    let answer = permit.commit_sqlite(transaction, Effect::Updated, &seen);
    let error = answer.expect_err("it is too old");
    assert_eq!(error.code(), "store_unavailable", "{error:?}");
    assert!(error.to_string().contains("begin it anew"), "{error}");
    again(&node).await;
    bank.assert_moved(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_does_not_end_makes_the_store_unavailable_and_not_for_ever() {
    let (bank, node) = Bank::open().await;
    let mut connection = node.store.connect().expect("it connects");
    let transaction = node.store.transaction(&mut connection).expect("it begins");
    transfer(&transaction);
    let answer = node.engine.begin(order().key(key("order-8"))).await;
    let error = answer.expect_err("nobody else can write");
    assert_eq!(error.code(), "store_unavailable", "{error:?}");
    assert!(error.to_string().contains("has not ended"), "{error}");
    transaction.commit().expect("it is committed");
    bank.assert_moved(1);
    drop(permit(&node.engine, order().key(key("order-8"))).await);
}

/// One caller under load: it transfers until it hears that each of its transfers is done.
fn teller(runtime: &Handle, node: &Node, keys: Vec<String>, mut dice: Dice) {
    let mut connection = node.store.connect().expect("it connects");
    for name in keys {
        loop {
            let request = Request::new("transfer", key(&name))
                .transactional()
                .wait(Duration::from_secs(60));
            let permit = match runtime.block_on(node.engine.begin(request)) {
                Ok(Admission::Execute(permit)) => permit,
                Ok(Admission::Replay(_)) => break,
                Ok(Admission::Wait { .. }) => continue,
                Ok(other) => panic!("nothing is in doubt for long: {other:?}"),
                Err(error) => panic!("the store is there: {error:?}"),
            };
            if dice.below(8) == 0 {
                drop(permit);
                continue;
            }
            let transaction = node.store.transaction(&mut connection).expect("it begins");
            let from = dice.below(4) + 1;
            let to = from % 4 + 1;
            let sql = "UPDATE account SET balance = balance + CASE id WHEN ?1 THEN -1 ELSE 1 END
                       WHERE id IN (?1, ?2)";
            let moved = transaction.execute(sql, [from.cast_signed(), to.cast_signed()]);
            assert_eq!(moved.expect("it is moved"), 2);
            let sql = "INSERT INTO moved VALUES (?1)";
            transaction.execute(sql, [&name]).expect("it is written");
            if dice.below(8) == 0 {
                drop((transaction, permit));
                continue;
            }
            match permit.commit_sqlite(transaction, Effect::Updated, &name) {
                Ok(_) => {
                    let sql = "SELECT count(*) FROM moved WHERE key = ?1";
                    let moved = connection.query_row(sql, [&name], |row| row.get::<_, i64>(0));
                    assert_eq!(moved.expect("it counts"), 1, "{name} was told to be done");
                    break;
                }
                Err(error) => assert_eq!(error.code(), "fenced", "{error:?}"),
            }
        }
    }
}

/// Keeps the writers of both nodes busy with what is not in a transaction.
async fn busy(engine: Engine, number: u64, count: u64) -> Result<(), Error> {
    for n in 0..count {
        let call = engine.effect("other", key(&format!("busy-{number}-{n}")));
        call.run(|_| async { Ok(n) }).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_each_transfer_happens_once_whatever_is_dropped() {
    let (seed, mut dice) = Dice::fresh();
    let (bank, first) = Bank::open().await;
    let nodes = [
        Arc::new(first),
        Arc::new(node(&bank.directory, &bank.clock).await),
    ];
    let keys: Vec<String> = (0..scaled(2_000, 100)).map(|n| format!("t-{n}")).collect();
    let mut tellers = JoinSet::new();
    for number in 0..6 {
        let mut keys = keys.clone();
        dice.shuffle(&mut keys);
        // Each transfer is asked for by half of the callers, at both nodes.
        keys.truncate(keys.len() / 2);
        let (node, dice) = (Arc::clone(&nodes[number % 2]), Dice::seeded(dice.next()));
        tellers.spawn_blocking(move || teller(&Handle::current(), &node, keys, dice));
    }
    for number in 0..4 {
        let engine = nodes[number % 2].engine.clone();
        let count = scaled(2_000, 100);
        tellers.spawn(async move {
            let done = busy(engine, number as u64, count).await;
            done.expect("nobody is starved");
        });
    }
    while let Some(ended) = tellers.join_next().await {
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let sum = bank.number("SELECT sum(balance) FROM account");
    assert_eq!(sum, 4 * OPENING, "seed {seed}");
    let moves = bank.number("SELECT count(*) FROM moved");
    let keys = bank.number("SELECT count(DISTINCT key) FROM moved");
    assert!(keys > 0);
    assert_eq!(moves, keys, "seed {seed}: a transfer happened twice");
    for node in &nodes {
        let verified = node.engine.verify().await.expect("it is verified");
        assert_eq!(verified.difference, None, "seed {seed}");
    }
    // Succeeded is state 2 in the stored rows.
    let settled = bank.number("SELECT count(*) FROM operations WHERE state = 2");
    let others = 4 * i64::try_from(scaled(2_000, 100)).expect("it is small");
    assert_eq!(settled, moves + others, "seed {seed}: a transfer was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_put_in_place_of_another_is_not_mistaken_for_it() {
    let (bank, old) = Bank::open().await;
    let path = old.store.path().to_owned();
    std::mem::forget(permit(&old.engine, order()).await);
    let mut connection = old.store.connect().expect("it connects");
    for suffix in ["", "-wal", "-shm", "-turn", "-queue"] {
        let named = |stem: &str| format!("{stem}{suffix}");
        let from = named(&path.display().to_string());
        let to = named(&path.with_file_name("old.db").display().to_string());
        std::fs::rename(from, to).expect("it is moved");
    }
    // The same key, place and version, by the same name; and yet another ledger.
    let new = node(&bank.directory, &bank.clock).await;
    let permit = permit(&new.engine, order()).await;
    let transaction = connection.transaction().expect("it begins");
    transfer(&transaction);
    let answer = permit.commit_sqlite(transaction, Effect::Updated, &42);
    let error = answer.expect_err("it is another file");
    assert_eq!(error.code(), "invalid_input", "{error:?}");
    bank.assert_moved(0);
}
