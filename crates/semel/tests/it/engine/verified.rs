//! Verify: clean after everything, and it names the first difference in a store that was tampered
//! with.

use std::time::Duration;

use rusqlite::Connection;
use semel::core::ledger::codec::{decode_entry, decode_record, encode_entry, encode_record};
use semel::core::ledger::{Delivery, Entry, Event, Record, StateKind};
use semel::store::StoreError;
use semel::store::sqlite::SqliteStore;
use semel::{Effect, Engine, Label, Namespace, Queueing, Request, Verified};
use semel_testkit::conformance::scratch;

use super::on_both_stores;
use super::world::{World, clean, engine_on, key, permit, record};

on_both_stores![an_empty_store_is_clean, a_store_with_every_state_is_clean,];

async fn an_empty_store_is_clean(world: World) {
    let engine = world.engine().await;
    let verified = engine.verify().await.expect("it verifies");
    assert_eq!(verified, Verified::default());
}

/// Fills a store with an operation in every state, and returns how many of them there are.
async fn fill(engine: &Engine) -> u64 {
    let request = |name: &str| Request::new("x", key(name));
    for n in 0..5 {
        let name = format!("done-{n}");
        let permit = permit(engine, request(&name)).await;
        let answer = name.repeat(1 + n * 50);
        permit.done(Effect::Created, &answer).await.expect("taken");
    }
    let failed = permit(engine, request("failed")).await;
    failed.failed(Effect::Noop, "no").await.expect("taken");
    let doubted = permit(engine, request("doubtful")).await;
    doubted.unknown("reset").await.expect("taken");
    let dead = permit(engine, request("dead")).await;
    dead.reject("never").await.expect("taken");
    let pending = permit(engine, request("pending")).await;
    pending.not_done("refused").await.expect("taken");
    let forgotten = permit(engine, request("forgotten")).await;
    forgotten
        .done(Effect::Created, "secret")
        .await
        .expect("taken");
    let version = record(engine, &key("forgotten")).await.expect("stored");
    let by = Label::new("ann").expect("a valid name");
    let wall = Namespace::default();
    let operator = engine.operator(&wall, &key("forgotten"), version.version(), by);
    operator.forget().await.expect("forgotten");
    10
}

async fn a_store_with_every_state_is_clean(world: World) {
    let engine = world.engine().await;
    let count = fill(&engine).await;
    let running = permit(&engine, Request::new("x", key("running"))).await;
    for tidied in [false, true] {
        for engine in [&engine, &world.another_engine().await] {
            let verified = engine.verify().await.expect("it verifies");
            assert!(verified.is_clean(), "{:?}", verified.difference);
            assert_eq!((verified.records, verified.payloads), (count + 1, 6));
            assert_eq!(verified.entries, 22);
        }
        assert!(tidied || !engine.store().tidy().await.expect("it tidies up"));
    }
    running.done(Effect::Created, &1).await.expect("taken");
}

/// Changes that come while it looks are no differences.
async fn verify_in_use(engine: &Engine) {
    const ROUNDS: usize = 150;
    let mut crowd = tokio::task::JoinSet::new();
    for n in 0..4 {
        let engine = engine.clone();
        crowd.spawn(async move {
            for round in 0..ROUNDS {
                // The same few keys again and again, so that records move on while they are read,
                // and new ones beside them.
                let old = Request::new("x", key(&format!("old-{n}")));
                let released = permit(&engine, old).await;
                released.not_done(round).await.expect("taken");
                let new = Request::new("x", key(&format!("new-{n}-{round}")));
                let done = permit(&engine, new).await;
                done.done(Effect::Created, &round).await.expect("taken");
            }
        });
    }
    let mut looks = 0;
    while !crowd.is_empty() {
        clean(engine).await;
        looks += 1;
        while let Some(ended) = crowd.try_join_next() {
            ended.expect("it works");
        }
    }
    assert!(looks > 2, "it looked while others worked");
    let verified = engine.verify().await.expect("it verifies");
    assert!(verified.is_clean(), "{verified:?}");
    assert_eq!(verified.entries, 4 * 4 * ROUNDS as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_is_clean() {
    verify_in_use(&Engine::open("memory:").await.expect("it opens")).await;
    let directory = scratch();
    let url = format!("sqlite:{}", directory.path().join("semel.db").display());
    verify_in_use(&Engine::open(&url).await.expect("it opens")).await;
}

/// Returns the place of a record.
async fn place(engine: &Engine, name: &str) -> i64 {
    let record = record(engine, &key(name)).await.expect("stored");
    let store = engine.store();
    let found = store.load(&record.key_hash()).await.expect("it loads");
    match found {
        semel::store::Current::Stored(stored) => stored.place.0.cast_signed(),
        semel::store::Current::Absent(_) => panic!("{name} is not there"),
    }
}

/// Fills a store, tampers with its file, and returns what a fresh look at it finds.
async fn tampered(with: impl FnOnce(&Connection, i64)) -> String {
    let world = World::sqlite();
    let engine = world.engine().await;
    fill(&engine).await;
    while engine.store().tidy().await.expect("it tidies up") {}
    clean(&engine).await;
    let place = place(&engine, "done-2").await;
    let connection = Connection::open(world.path()).expect("the file opens");
    with(&connection, place);
    drop(connection);
    let fresh = engine_on(world.another()).await;
    let verified = fresh.verify().await.expect("it answers");
    let difference = verified.difference.expect("it must be found");
    difference.to_string()
}

fn blob(connection: &Connection, query: &str, id: i64) -> Vec<u8> {
    let read = connection.query_row(query, [id], |row| row.get(0));
    read.expect("the bytes are there")
}

fn execute(connection: &Connection, statement: &str, parameters: impl rusqlite::Params) {
    let changed = connection.execute(statement, parameters);
    assert_eq!(changed.expect("it is carried out"), 1, "{statement}");
}

/// Returns stored bytes without their checksum.
fn unsealed(bytes: &[u8]) -> &[u8] {
    let (bytes, _) = bytes.split_last_chunk::<4>().expect("a checksum");
    bytes
}

/// Adds the checksum that a store expects: whoever tampers with it may know how.
fn sealed(mut bytes: Vec<u8>, beside: &[i64]) -> Vec<u8> {
    let mut sum = crc32fast::Hasher::new();
    beside
        .iter()
        .for_each(|number| sum.update(&number.to_le_bytes()));
    sum.update(&bytes);
    bytes.extend_from_slice(&sum.finalize().to_le_bytes());
    bytes
}

fn change_record(connection: &Connection, place: i64, change: impl FnOnce(&mut Record)) {
    let bytes = blob(
        connection,
        "SELECT record FROM operations WHERE id = ?1",
        place,
    );
    let mut record = decode_record(unsealed(&bytes)).expect("it is a record");
    change(&mut record);
    execute(
        connection,
        "UPDATE operations SET record = ?2, version = ?3, state = ?4 WHERE id = ?1",
        (
            place,
            sealed(encode_record(&record), &[]),
            record.version().0.cast_signed(),
            record.kind().code(),
        ),
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_record_is_named() {
    let found = tampered(|connection, place| {
        change_record(connection, place, |record| {
            let Record::Operation(operation) = record else {
                panic!("it lives");
            };
            operation.delivery = Delivery::Delivered;
        });
    });
    assert_eq!(found.await, "record 5: the log folds to another record");
}

#[tokio::test(start_paused = true)]
async fn a_record_of_an_older_version_is_named() {
    let found = tampered(|connection, place| {
        change_record(connection, place, |record| {
            let Record::Operation(operation) = record else {
                panic!("it lives");
            };
            operation.version.0 -= 1;
        });
    });
    assert_eq!(found.await, "record 5: the log folds to another record");
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_newer_version_is_named() {
    let found = tampered(|connection, place| {
        change_record(connection, place, |record| {
            let Record::Operation(operation) = record else {
                panic!("it lives");
            };
            operation.version.0 += 1;
        });
    });
    assert_eq!(
        found.await,
        "record 5: the stored record is ahead of the log"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_is_named() {
    for statement in [
        "UPDATE operations SET record = x'00' WHERE id = ?1",
        "UPDATE operations SET record = substr(record, 1, 30) WHERE id = ?1",
        "UPDATE operations SET version = version + 1 WHERE id = ?1",
        "UPDATE operations SET state = 4 WHERE id = ?1",
    ] {
        let found = tampered(|connection, place| {
            execute(connection, statement, [place]);
        });
        let found = found.await;
        assert!(found.contains("record 5"), "{statement}: {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_record_is_named() {
    let found = tampered(|connection, place| {
        execute(connection, "DELETE FROM operations WHERE id = ?1", [place]);
    });
    assert_eq!(found.await, "record 5: the record has vanished");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_log_does_not_know_is_named() {
    let found = tampered(|connection, place| {
        execute(
            connection,
            "INSERT INTO operations (id, version, state, record)
             SELECT 2, version, state, record FROM operations WHERE id = ?1",
            [place],
        );
    });
    assert_eq!(found.await, "11 records are stored, the log knows 10");
}

/// Changes the last entry of the group that holds this one.
fn change_entry(connection: &Connection, seq: i64, change: impl FnOnce(&mut Entry)) {
    let body = blob(
        connection,
        "SELECT body FROM log WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1",
        seq,
    );
    // Alone in its group: a place, a length, and the entry.
    let (head, bytes) = unsealed(&body).split_at(12);
    let mut entry = decode_entry(bytes).expect("it is an entry");
    change(&mut entry);
    let bytes = encode_entry(&entry);
    let length = u32::try_from(bytes.len()).expect("an entry is small");
    let body = [&head[..8], &length.to_le_bytes(), &bytes].concat();
    let body = sealed(body, &[seq, seq]);
    execute(
        connection,
        "UPDATE log SET body = ?2 WHERE first_seq = ?1",
        (seq, body),
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_log_entry_is_named() {
    let found = tampered(|connection, place| {
        change_entry(connection, place + 1, |entry| {
            entry.events.push(Event::Conflict);
        });
    });
    let found = found.await;
    assert!(
        found.starts_with("log entry 6: `settle` leads to"),
        "{found}"
    );
    let found = tampered(|connection, place| {
        change_entry(connection, place + 1, |entry| {
            entry.at = entry.at.plus(Duration::from_secs(1));
        });
    });
    assert_eq!(found.await, "record 5: the log folds to another record");
    let found = tampered(|connection, place| {
        change_entry(connection, place + 1, |entry| {
            entry.state = Some(StateKind::Failed);
        });
    });
    let found = found.await;
    assert!(
        found.starts_with("log entry 6: `settle` leads to"),
        "{found}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_log_entry_that_was_removed_is_named() {
    let found = tampered(|connection, place| {
        execute(
            connection,
            "DELETE FROM log WHERE first_seq = ?1",
            [place + 1],
        );
    });
    assert_eq!(found.await, "log entry 7: entry 6 is missing");
}

#[tokio::test(start_paused = true)]
async fn a_log_whose_end_is_gone_is_noticed_by_what_is_stored() {
    for (statement, end) in [
        (
            "DELETE FROM log WHERE first_seq = (SELECT max(first_seq) FROM log)",
            20,
        ),
        ("DELETE FROM log", 0),
    ] {
        let world = World::sqlite();
        let engine = world.engine().await;
        fill(&engine).await;
        while engine.store().tidy().await.expect("it tidies up") {}
        let connection = Connection::open(world.path()).expect("the file opens");
        connection.execute(statement, []).expect("it is cut");
        forget_the_end(&connection);
        let refused = SqliteStore::open(world.path()).expect_err("it is refused");
        let text = refused.to_string();
        let expected = format!("the log ends with entry {end}, but there are records up to");
        assert!(
            matches!(refused, StoreError::Corrupt(_)) && text.contains(&expected),
            "{text}"
        );
    }
}

/// Removes the file by which a store notices, as soon as it is opened, that its end is gone.
fn forget_the_end(connection: &Connection) {
    let path = connection.path().expect("it is a file");
    std::fs::remove_file(format!("{path}-turn")).expect("it was there");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_is_named() {
    let found = tampered(|connection, place| {
        let cut = "UPDATE log SET body = substr(body, 1, 20) WHERE first_seq = ?1";
        execute(connection, cut, [place + 1]);
    });
    let found = found.await;
    assert!(found.contains("log"), "{found}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_payload_is_named() {
    let found = tampered(|connection, place| {
        let row: i64 = connection
            .query_row(
                "SELECT payload_row FROM operations WHERE id = ?1",
                [place],
                |row| row.get(0),
            )
            .expect("it has a payload");
        let mut body = blob(connection, "SELECT body FROM payloads WHERE id = ?1", row);
        let middle = body.len() / 2;
        body[middle] ^= 1;
        execute(
            connection,
            "UPDATE payloads SET body = ?2 WHERE id = ?1",
            (row, body),
        );
    });
    let found = found.await;
    assert!(found.starts_with("record 5: "), "{found}");
    assert!(found.contains("payload"), "{found}");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_was_removed_is_named() {
    let found = tampered(|connection, place| {
        execute(
            connection,
            "DELETE FROM payloads WHERE id = (SELECT payload_row FROM operations WHERE id = ?1)",
            [place],
        );
    });
    assert_eq!(found.await, "record 5: its payload is gone");
}

#[tokio::test(start_paused = true)]
async fn what_a_task_is_given_is_named_when_it_is_gone() {
    let world = World::sqlite();
    let engine = world.engine().await;
    let mails = Queueing::on(Label::new("mails").expect("a label"));
    let request = Request::new("send", key("mail-7")).input(&"ann");
    engine.submit(request, mails).await.expect("taken");
    clean(&engine).await;
    let connection = Connection::open(world.path()).expect("it opens");
    let removed = connection.execute("DELETE FROM chunks WHERE fence = 0", ());
    assert_eq!(removed, Ok(1));
    let verified = engine.verify().await.expect("it verifies");
    let found = verified.difference.expect("it is found").to_string();
    assert!(
        found.contains("the input of mail-7 is not what was submitted"),
        "{found}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_no_longer_leads_to_its_record_is_named() {
    let found = tampered(|connection, place| {
        execute(connection, "DELETE FROM slots WHERE id = ?1", [place]);
    });
    assert_eq!(found.await, "record 5: its key does not lead to it");
    let found = tampered(|connection, place| {
        execute(connection, "UPDATE slots SET id = 1 WHERE id = ?1", [place]);
    });
    let found = found.await;
    assert!(found.starts_with("record 5: "), "{found}");
}

/// Unlisted, it would never be swept: a doubt that nobody sees.
#[tokio::test(start_paused = true)]
async fn an_open_operation_that_is_not_listed_is_named() {
    let found = tampered(|connection, _| {
        let one = "DELETE FROM open_operations WHERE id = (SELECT min(id) FROM open_operations)";
        execute(connection, one, []);
    });
    let found = found.await;
    assert!(found.contains("open"), "{found}");
}
