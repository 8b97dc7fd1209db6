//! Exactly once in the caller's own transaction. Accounts in the same database are the independent
//! sink: whatever is cut, dropped or killed, each transfer moves its money once.

use std::sync::Arc;
use std::time::Duration;

use semel::core::ledger::StateKind;
use semel::store::StoreError;
use semel::store::postgres::PostgresStore;
use semel::{Admission, Effect, Engine, Error, Key, Lease, Namespace, Permit, Request};
use semel_testkit::conformance::ManualClock;
use semel_testkit::postgres::Cluster;
use semel_testkit::process::Dice;
use semel_testkit::scaled;
use tokio::task::JoinSet;
use tokio_postgres::{Client, IsolationLevel, NoTls, Transaction};

use crate::proxy::Proxy;

/// How a transaction is committed, on the wire.
const COMMIT: &[u8] = b"COMMIT\0";

/// What every account holds at first.
const OPENING: i64 = 1_000;

/// The longest that a caller in a hurry waits for its commit: about as long as one takes.
const HURRY_MAX: Duration = Duration::from_millis(5);

const TABLES: &str = "
    CREATE TABLE account (id integer PRIMARY KEY, balance bigint NOT NULL);
    CREATE TABLE moved (key text NOT NULL);
    INSERT INTO account SELECT n, 1000 FROM generate_series(1, 4) AS n";

/// A ledger and accounts in one database.
struct Bank {
    url: String,
    clock: Arc<ManualClock>,
    client: Client,
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("it connects");
    // Its end is told to whoever waits for an answer.
    tokio::spawn(async move { drop(connection.await) });
    client
}

impl Bank {
    async fn open() -> Self {
        let url = Cluster::shared().database();
        let client = connect(&url).await;
        client
            .batch_execute(TABLES)
            .await
            .expect("the tables are made");
        Self {
            url,
            clock: Arc::default(),
            client,
        }
    }

    /// A node whose leases end when the test's clock says so.
    async fn node(&self) -> Engine {
        let store = PostgresStore::open_with(&self.url, Arc::clone(&self.clock) as _);
        start(store.await.expect("the store opens")).await
    }

    /// Lets every lease run out.
    fn lapse(&self) {
        self.clock.advance(Lease::DEFAULT.length() * 2);
    }

    async fn balance(&self, account: i32) -> i64 {
        let sql = "SELECT balance FROM account WHERE id = $1";
        let row = self.client.query_one(sql, &[&account]).await;
        row.expect("it is there").get(0)
    }

    /// Asserts that money was moved this often, by what both accounts hold.
    async fn assert_moved(&self, times: i64) {
        let held = (self.balance(1).await, self.balance(2).await);
        assert_eq!(held, (OPENING - 10 * times, OPENING + 10 * times));
    }
}

async fn start(store: PostgresStore) -> Engine {
    let engine = Engine::builder().store(Arc::new(store)).sweep_every(None);
    engine.start().await.expect("an engine starts")
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
async fn transfer(transaction: &Transaction<'_>) {
    let sql =
        "UPDATE account SET balance = balance + CASE id WHEN 1 THEN -10 ELSE 10 END WHERE id < 3";
    transaction.execute(sql, &[]).await.expect("it is moved");
}

/// The state that is stored.
async fn state(engine: &Engine) -> StateKind {
    let record = engine.load(&Namespace::default(), &key("order-7")).await;
    record.expect("it loads").expect("it is there").kind()
}

/// Begins again, transfers, and commits.
async fn again(bank: &Bank, engine: &Engine) {
    let permit = permit(engine, order()).await;
    let mut client = connect(&bank.url).await;
    let transaction = client.transaction().await.expect("it begins");
    transfer(&transaction).await;
    let receipt = permit.commit(transaction, Effect::Updated, &"again").await;
    assert!(!receipt.expect("it is committed").replayed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_effect_and_its_settlement_are_committed_together() {
    let bank = Bank::open().await;
    let engine = bank.node().await;
    let permit = permit(&engine, order()).await;
    let mut client = connect(&bank.url).await;
    let transaction = client.transaction().await.expect("it begins");
    transfer(&transaction).await;
    let receipt = permit.commit(transaction, Effect::Updated, &42).await;
    let receipt = receipt.expect("it is committed");
    assert_eq!((receipt.effect, receipt.replayed), (Effect::Updated, false));
    bank.assert_moved(1).await;
    assert_eq!(state(&engine).await, StateKind::Succeeded);

    for engine in [engine, bank.node().await] {
        let Ok(Admission::Replay(receipt)) = engine.begin(order()).await else {
            panic!("it was done before");
        };
        assert_eq!(receipt.payload.as_deref(), Some(b"42".as_slice()));
        let verified = engine.verify().await.expect("it is verified");
        assert_eq!(verified.difference, None);
    }
    bank.assert_moved(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_successor_committed_is_rolled_back_and_hears_its_outcome() {
    let bank = Bank::open().await;
    let (slow, quick) = (bank.node().await, bank.node().await);
    let late = permit(&slow, order()).await;
    let mut client = connect(&bank.url).await;
    let transaction = client.transaction().await.expect("it begins");
    let sql = "INSERT INTO moved VALUES ('late')";
    transaction.execute(sql, &[]).await.expect("it is written");
    bank.lapse();
    again(&bank, &quick).await;
    let receipt = late.commit(transaction, Effect::Updated, &"late").await;
    let receipt = receipt.expect("it hears the other's outcome");
    assert!(receipt.replayed);
    assert_eq!(receipt.payload.as_deref(), Some(br#""again""#.as_slice()));
    bank.assert_moved(1).await;
    let row = bank.client.query_one("SELECT count(*) FROM moved", &[]);
    assert_eq!(row.await.expect("it counts").get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_successor_runs_is_rolled_back_and_fenced() {
    let bank = Bank::open().await;
    let (slow, quick) = (bank.node().await, bank.node().await);
    let late = permit(&slow, order()).await;
    bank.lapse();
    let successor = permit(&quick, order()).await;
    for (permit, fenced) in [(late, true), (successor, false)] {
        let mut client = connect(&bank.url).await;
        let transaction = client.transaction().await.expect("it begins");
        transfer(&transaction).await;
        let answer = permit.commit(transaction, Effect::Updated, &42).await;
        match answer {
            Ok(receipt) => assert!(!fenced && !receipt.replayed),
            Err(error) => assert!(fenced && error.code() == "fenced", "{error:?}"),
        }
        bank.assert_moved(i64::from(!fenced)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_reported_without_its_transaction_is_not_repeated_in_one() {
    let bank = Bank::open().await;
    let (slow, quick) = (bank.node().await, bank.node().await);
    let late = permit(&slow, order()).await;
    bank.lapse();
    let successor = permit(&quick, order()).await;
    // It happened elsewhere, and the ledger keeps that as evidence.
    let kept = late.done(Effect::Updated, &42).await;
    assert_eq!(kept.expect_err("another one runs").code(), "fenced");
    let mut client = connect(&bank.url).await;
    let transaction = client.transaction().await.expect("it begins");
    transfer(&transaction).await;
    let answer = successor.commit(transaction, Effect::Updated, &42).await;
    assert_eq!(answer.expect_err("it was done before").code(), "fenced");
    bank.assert_moved(0).await;
    assert_eq!(state(&quick).await, StateKind::Succeeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_ends_before_its_commit_runs_again() {
    let bank = Bank::open().await;
    let engine = bank.node().await;
    let dropped = permit(&engine, order()).await;
    let mut client = connect(&bank.url).await;
    let transaction = client.transaction().await.expect("it begins");
    transfer(&transaction).await;
    drop(transaction);
    drop(dropped);
    // Once more, as a process that ends without a word does.
    let second = loop {
        match engine.begin(order()).await.expect("it answers") {
            Admission::Execute(permit) => break permit,
            Admission::Wait { .. } => tokio::task::yield_now().await,
            other => panic!("a doubt is retried: {other:?}"),
        }
    };
    assert_eq!(second.attempt(), 2);
    std::mem::forget(second);
    bank.lapse();
    again(&bank, &engine).await;
    bank.assert_moved(1).await;
    let replayed = engine.begin(order()).await;
    assert!(matches!(replayed, Ok(Admission::Replay(_))), "{replayed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_reply_is_lost_is_found() {
    let bank = Bank::open().await;
    let proxy = Proxy::start(Cluster::shared(), COMMIT);
    let engine = bank.node().await;
    let permit = permit(&engine, order()).await;
    let mut client = connect(&proxy.url(&bank.url)).await;
    let transaction = client.transaction().await.expect("it begins");
    transfer(&transaction).await;
    proxy.lose_reply();
    let receipt = permit.commit(transaction, Effect::Updated, &42).await;
    assert!(!receipt.expect("it is found").replayed);
    assert!(proxy.has_cut());
    bank.assert_moved(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_rolled_back_and_can_be_begun_again() {
    let bank = Bank::open().await;
    let proxy = Proxy::start(Cluster::shared(), COMMIT);
    let engine = bank.node().await;
    let permit = permit(&engine, order()).await;
    let mut client = connect(&proxy.url(&bank.url)).await;
    let transaction = client.transaction().await.expect("it begins");
    transfer(&transaction).await;
    proxy.lose_request();
    let answer = permit.commit(transaction, Effect::Updated, &42).await;
    assert!(
        matches!(answer, Err(Error::Store(StoreError::Unavailable(_)))),
        "{answer:?}"
    );
    assert!(proxy.has_cut());
    bank.assert_moved(0).await;
    again(&bank, &engine).await;
    bank.assert_moved(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_elsewhere_is_refused_and_rolled_back() {
    let bank = Bank::open().await;
    let engine = bank.node().await;
    // One has no ledger, one has its own, in which the same key was begun.
    let (bare, other) = (Bank::open().await, Bank::open().await);
    std::mem::forget(permit(&other.node().await, order()).await);
    for (elsewhere, said) in [
        (&bare, "the database that the ledger is in"),
        (&other, "the database that the ledger is in"),
    ] {
        let permit = permit(&engine, order()).await;
        let mut client = connect(&elsewhere.url).await;
        let transaction = client.transaction().await.expect("it begins");
        transfer(&transaction).await;
        let answer = permit.commit(transaction, Effect::Updated, &42).await;
        let error = answer.expect_err("it is refused");
        assert!(error.to_string().contains(said), "{error}");
        elsewhere.assert_moved(0).await;
    }
    again(&bank, &engine).await;
    bank.assert_moved(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_rights_on_the_ledger_is_told_what_to_grant() {
    let bank = Bank::open().await;
    let engine = bank.node().await;
    let name = bank.url.rsplit('/').next().expect("a database");
    let cluster = Cluster::shared();
    cluster.sql(
        name,
        "CREATE ROLE teller LOGIN; GRANT ALL ON account TO teller",
    );
    let permit = permit(&engine, order()).await;
    let mut client = connect(&cluster.url("teller", name)).await;
    let transaction = client.transaction().await.expect("it begins");
    transfer(&transaction).await;
    let answer = permit.commit(transaction, Effect::Updated, &42).await;
    let error = answer.expect_err("it is refused");
    assert!(error.to_string().contains("GRANT USAGE"), "{error}");
    bank.assert_moved(0).await;

    // With what it says, it works.
    cluster.sql(
        name,
        "GRANT USAGE ON SCHEMA semel TO teller; GRANT ALL ON ALL TABLES IN SCHEMA semel TO teller; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA semel TO teller",
    );
    let permit = self::permit(&engine, order()).await;
    let transaction = client.transaction().await.expect("it begins");
    transfer(&transaction).await;
    let answer = permit.commit(transaction, Effect::Updated, &42).await;
    answer.expect("it is committed");
    bank.assert_moved(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_is_no_commit() {
    let bank = Bank::open().await;
    let engine = bank.node().await;
    let permit = permit(&engine, order()).await;
    let mut client = connect(&bank.url).await;
    let mut outer = client.transaction().await.expect("it begins");
    let inner = outer.transaction().await.expect("it begins");
    transfer(&inner).await;
    let answer = permit.commit(inner, Effect::Updated, &42).await;
    let error = answer.expect_err("the outer one may be rolled back");
    assert!(error.to_string().contains("savepoint"), "{error}");
    outer.commit().await.expect("it goes on");
    bank.assert_moved(0).await;
    again(&bank, &engine).await;
    bank.assert_moved(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_does_not_see_the_present_operation_is_an_error_and_can_be_begun_again() {
    let bank = Bank::open().await;
    let engine = bank.node().await;
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        // Renewed after the snapshot was taken; begun after it was taken.
        for renewed in [true, false] {
            let mut client = connect(&bank.url).await;
            let early = match renewed {
                true => Some(permit(&engine, order()).await),
                false => None,
            };
            let transaction = client.build_transaction().isolation_level(level).start();
            let transaction = transaction.await.expect("it begins");
            transfer(&transaction).await;
            let permit = match early {
                Some(permit) => {
                    permit.renew().await.expect("it is renewed");
                    permit
                }
                None => permit(&engine, order()).await,
            };
            let answer = permit.commit(transaction, Effect::Updated, &42).await;
            answer.expect_err("it is too old");
            bank.assert_moved(0).await;
        }
    }
    again(&bank, &engine).await;
    bank.assert_moved(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serializable_transactions_that_contradict_each_other_are_not_both_committed() {
    let bank = Bank::open().await;
    let engine = bank.node().await;
    let request = |name: &str| Request::new("transfer", key(name)).transactional();
    let mut clients = [connect(&bank.url).await, connect(&bank.url).await];
    let mut begun = vec![];
    // Each takes what both accounts held together, from another account.
    for (client, account) in clients.iter_mut().zip([1, 2]) {
        let permit = permit(&engine, request(&format!("order-{account}"))).await;
        let level = IsolationLevel::Serializable;
        let transaction = client.build_transaction().isolation_level(level).start();
        let transaction = transaction.await.expect("it begins");
        let sql = "SELECT sum(balance)::bigint FROM account WHERE id < 3";
        let sum: i64 = transaction.query_one(sql, &[]).await.expect("a sum").get(0);
        assert_eq!(sum, 2 * OPENING);
        let sql = "UPDATE account SET balance = balance - $1 WHERE id = $2";
        let taken = transaction.execute(sql, &[&sum, &account]).await;
        taken.expect("it is taken");
        begun.push((permit, transaction));
    }
    let mut answers = vec![];
    for (permit, transaction) in begun {
        answers.push(permit.commit(transaction, Effect::Updated, &42).await);
    }
    assert!(answers[0].is_ok(), "{answers:?}");
    let error = answers.pop().expect("two").expect_err("not both");
    assert_eq!(error.code(), "store_unavailable", "{error:?}");
    assert_eq!(bank.balance(1).await, -OPENING);
    assert_eq!(bank.balance(2).await, OPENING);
    drop(permit(&engine, request("order-2")).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_that_fails_at_commit_is_an_error_and_can_be_begun_again() {
    let bank = Bank::open().await;
    let engine = bank.node().await;
    let sql = "CREATE TABLE receipt (
        account integer REFERENCES account DEFERRABLE INITIALLY DEFERRED)";
    bank.client.batch_execute(sql).await.expect("it is made");
    let permit = permit(&engine, order()).await;
    let mut client = connect(&bank.url).await;
    let transaction = client.transaction().await.expect("it begins");
    transfer(&transaction).await;
    let sql = "INSERT INTO receipt VALUES (99)";
    transaction.execute(sql, &[]).await.expect("it is deferred");
    let answer = permit.commit(transaction, Effect::Updated, &42).await;
    let error = answer.expect_err("there is no such account");
    assert!(error.to_string().contains("foreign key"), "{error}");
    bank.assert_moved(0).await;
    again(&bank, &engine).await;
    bank.assert_moved(1).await;
}

/// Cuts all connections of the nodes.
const CUT_NODES: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
    WHERE application_name = 'semel' AND datname = current_database()";

/// One caller under load: it transfers until it hears that each of its transfers is done.
async fn teller(bank: Arc<Bank>, engine: Engine, keys: Vec<String>, mut dice: Dice) {
    let killer = connect(&bank.url).await;
    let mut client = connect(&bank.url).await;
    for name in keys {
        loop {
            if client.is_closed() {
                client = connect(&bank.url).await;
            }
            let request = Request::new("transfer", key(&name))
                .transactional()
                .wait(Duration::from_secs(60));
            let permit = match engine.begin(request).await {
                Ok(Admission::Execute(permit)) => permit,
                Ok(Admission::Replay(receipt)) => {
                    assert!(receipt.ok);
                    break;
                }
                Ok(Admission::Wait { .. }) => continue,
                Ok(other) => panic!("nothing is in doubt for long: {other:?}"),
                Err(error) => {
                    assert_eq!(error.code(), "store_unavailable", "{error:?}");
                    continue;
                }
            };
            if dice.below(8) == 0 {
                drop(permit);
                continue;
            }
            if dice.below(32) == 0 {
                killer.batch_execute(CUT_NODES).await.expect("they are cut");
            }
            match act(&mut client, &killer, permit, &name, &mut dice).await {
                Ok(()) => {
                    let sql = "SELECT count(*) FROM moved WHERE key = $1";
                    let row = killer.query_one(sql, &[&name]).await;
                    let moved: i64 = row.expect("it counts").get(0);
                    assert_eq!(moved, 1, "{name} was told to be done");
                    break;
                }
                // It is asked again, and says what became of it.
                Err(None) => {}
                Err(Some(error)) => {
                    assert!(
                        ["store_unavailable", "fenced"].contains(&error.code()),
                        "{error:?}"
                    );
                }
            }
        }
    }
}

/// Moves money and commits, unless something comes between; `Err(None)` is a failure before that.
async fn act(
    client: &mut Client,
    killer: &Client,
    permit: Permit,
    name: &str,
    dice: &mut Dice,
) -> Result<(), Option<Error>> {
    let from = i32::try_from(dice.below(4)).expect("it is small") + 1;
    let to = from % 4 + 1;
    let before = |_: tokio_postgres::Error| None;
    let transaction = client.transaction().await.map_err(before)?;
    let pid: i32 = transaction
        .query_one("SELECT pg_backend_pid()", &[])
        .await
        .map_err(before)?
        .get(0);
    let sql = "UPDATE account SET balance = balance + CASE id WHEN $1 THEN -1 ELSE 1 END
               WHERE id IN ($1, $2)";
    transaction
        .execute(sql, &[&from, &to])
        .await
        .map_err(before)?;
    let sql = "INSERT INTO moved VALUES ($1)";
    transaction.execute(sql, &[&name]).await.map_err(before)?;
    if dice.below(8) == 0 {
        return Err(None);
    }
    let commit = permit.commit(transaction, Effect::Updated, &name);
    let answer = match dice.below(8) {
        0 | 1 => {
            let sql = format!("SELECT pg_terminate_backend({pid})");
            let (answer, killed) = tokio::join!(commit, killer.batch_execute(&sql));
            killed.expect("it is killed, or gone");
            answer
        }
        // The caller goes away in the middle, wherever that is.
        2 => match tokio::time::timeout(dice.up_to(HURRY_MAX), commit).await {
            Ok(answer) => answer,
            Err(_) => return Err(None),
        },
        _ => commit.await,
    };
    answer.map(drop).map_err(Some)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_each_transfer_happens_once_whatever_is_dropped_or_killed() {
    let (seed, mut dice) = Dice::fresh();
    let bank = Arc::new(Bank::open().await);
    let mut engines = vec![];
    for _ in 0..2 {
        let store = PostgresStore::open(&bank.url).await;
        engines.push(start(store.expect("the store opens").without_notes()).await);
    }
    let keys: Vec<String> = (0..scaled(2_000, 100)).map(|n| format!("t-{n}")).collect();
    let mut tellers = JoinSet::new();
    for number in 0..8 {
        let mut keys = keys.clone();
        dice.shuffle(&mut keys);
        // Each transfer is asked for by half of the callers, at both nodes.
        keys.truncate(keys.len() / 2);
        let (bank, engine) = (Arc::clone(&bank), engines[number % 2].clone());
        tellers.spawn(teller(bank, engine, keys, Dice::seeded(dice.next())));
    }
    while let Some(ended) = tellers.join_next().await {
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let sum = "SELECT sum(balance)::bigint FROM account";
    let sum: i64 = bank.client.query_one(sum, &[]).await.expect("a sum").get(0);
    assert_eq!(sum, 4 * OPENING, "seed {seed}");
    let sql = "SELECT count(*), count(DISTINCT key) FROM moved";
    let row = bank.client.query_one(sql, &[]).await.expect("it counts");
    let (moves, keys): (i64, i64) = (row.get(0), row.get(1));
    assert!(keys > 0);
    assert_eq!(moves, keys, "seed {seed}: a transfer happened twice");
    let settled = bank.client.query_one(
        "SELECT count(*) FROM semel.operations WHERE state = 'succeeded'",
        &[],
    );
    let settled: i64 = settled.await.expect("it counts").get(0);
    assert_eq!(settled, moves, "seed {seed}: a transfer was lost");
    let verified = engines[0].verify().await.expect("it is verified");
    assert_eq!(verified.difference, None, "seed {seed}");
}
