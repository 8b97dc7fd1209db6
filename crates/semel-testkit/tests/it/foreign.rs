//! Files that are no store of this version: each is refused by name, and left as it was.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rusqlite::Connection;
use semel_testkit::process::audit::{Seen, audit};
use semel_testkit::process::{Agent, Dice, Ended, Keys, Orders, Program, Scene, Word};

use crate::agent;

fn one_key(scene: &Scene, key: &str) -> Orders {
    Orders::new(scene, Keys::These(vec![key.to_owned()]))
}

/// Tries to use the file at the store's place; it must be refused with these words.
fn is_refused(scene: &Scene, case: &str, words: &[&str]) {
    let before = std::fs::read(scene.store()).expect("the file is there");
    let beside = ["-queue", "-turn", "-wal", "-shm"]
        .map(|suffix| PathBuf::from(format!("{}{suffix}", scene.store().display())));
    let there = beside.each_ref().map(|file| file.exists());
    let Ended { status, said } = agent().start(&one_key(scene, "hold-new")).wait();
    assert_eq!(status.code(), Some(3), "{case}: {said}");
    let path = scene.store().display().to_string();
    for word in [path.as_str()].iter().chain(words) {
        assert!(said.contains(word), "{case}: `{word}` is not in: {said}");
    }
    let executed = scene.sink().lines();
    assert!(
        executed.iter().all(|line| line.key != "hold-new"),
        "{case}: {executed:?}"
    );
    let after = std::fs::read(scene.store()).expect("the file is there");
    assert!(before == after, "{case}: the file was changed");
    let now = beside.each_ref().map(|file| file.exists());
    assert_eq!(there, now, "{case}: something was put beside the file");
}

fn make_store(scene: &Scene) {
    let ended = agent().start(&one_key(scene, "hold-0")).wait();
    assert!(ended.status.success(), "{}", ended.said);
}

fn connect(path: &Path) -> Connection {
    Connection::open(path).expect("SQLite opens the file")
}

#[test]
fn files_that_are_no_database_are_refused() {
    let mut garbage = vec![0; 64 * 1024];
    let mut dice = Dice::seeded(7);
    garbage.fill_with(|| dice.next().to_le_bytes()[0]);
    let text = "dear diary,\n".repeat(1_000).into_bytes();
    let short = b"SQLite format 3\0".to_vec();
    let zeros = vec![0; 8 * 1024];
    for (case, bytes) in [("garbage", garbage), ("text", text), ("zeros", zeros)] {
        let scene = Scene::new();
        std::fs::write(scene.store(), bytes).expect("it is written");
        is_refused(&scene, case, &["not a SQLite database"]);
    }
    // A header alone is a database that ends too early.
    let scene = Scene::new();
    std::fs::write(scene.store(), short).expect("it is written");
    is_refused(&scene, "header", &["not a SQLite database"]);
}

#[test]
fn the_database_of_another_program_is_refused() {
    for (case, setup) in [
        ("tables", "CREATE TABLE customers (id INTEGER PRIMARY KEY)"),
        ("application id", "PRAGMA application_id = 77"),
        ("version", "PRAGMA user_version = 1"),
        (
            "the same tables",
            "CREATE TABLE operations (id INTEGER PRIMARY KEY); CREATE TABLE log (x);",
        ),
    ] {
        let scene = Scene::new();
        connect(&scene.store())
            .execute_batch(setup)
            .expect("it is set up");
        is_refused(&scene, case, &["not a Semel store"]);
    }
}

#[test]
fn a_store_of_a_newer_version_is_refused() {
    let scene = Scene::new();
    make_store(&scene);
    connect(&scene.store())
        .execute_batch("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)")
        .expect("the version is raised");
    is_refused(&scene, "newer", &["format 99", "newer version of Semel"]);
}

#[test]
fn an_empty_file_becomes_a_store() {
    let scene = Scene::new();
    std::fs::write(scene.store(), []).expect("it is written");
    make_store(&scene);
    assert_eq!(scene.sink().lines().len(), 1);
}

/// Starts an agent whose store is open and waits, together with what lets it go.
fn opened(program: &Program, orders: &Orders) -> (Agent, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("there is a pipe");
    let orders = Orders {
        barrier: true,
        ..orders.clone()
    };
    let mut agent = program.start_with(&orders, Stdio::from(reader));
    agent.wait_until_ready();
    (agent, writer)
}

#[tokio::test]
async fn a_version_that_is_raised_while_an_older_process_has_the_store_open_stops_that_one() {
    let scene = Scene::new();
    make_store(&scene);
    let (older, let_go) = opened(&agent(), &one_key(&scene, "hold-1"));
    let own: i64 = connect(&scene.store())
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("the version is read");
    connect(&scene.store())
        .execute_batch("PRAGMA user_version = 99")
        .expect("a newer version comes");
    drop(let_go);
    let ended = older.wait();
    assert!(ended.status.success(), "{}", ended.said);
    let told = scene.told().words().pop().map(|(_, word)| word);
    let Some(Word::Error(text)) = told else {
        panic!("the older process went on: {told:?}");
    };
    assert!(
        text.contains("format 99") && text.contains("newer"),
        "{text}"
    );
    assert_eq!(scene.sink().lines().len(), 1, "nothing was executed");

    connect(&scene.store())
        .pragma_update(None, "user_version", own)
        .expect("the version is as it was");
    let engine = scene.open().await;
    let audited = audit(&engine, &scene, &mut Seen::default()).await;
    audited.expect("nothing was broken");
}
