//! Bytes that changed on the disk: whatever they hit, `verify` says so, and a store that says it is
//! clean answers as before.
//!
//! SQLite keeps no checksum of its pages; records, log entries and marks have their own. A byte that
//! changes in the index can make one key look absent, which nothing but `verify` notices; everything
//! else that is damaged is an error, and nothing that was settled is ever let run again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use semel::{Admission, Effect, Engine, Error, Label, Namespace, NewToken, Request, Scope};
use semel_testkit::process::{Dice, Scene, key, open};
use semel_testkit::scaled;

/// What a sound store answers to a Begin of each key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Replay(String),
    InDoubt,
    /// The store could not tell.
    Error(String),
    /// The store let the caller act.
    Execute,
}

const SETTLED: usize = 40;
const DOUBTFUL: usize = 8;

fn keys() -> Vec<String> {
    (0..SETTLED + DOUBTFUL)
        .map(|number| format!("key-{number}"))
        .collect()
}

async fn begin(engine: &Engine, text: &str) -> Answer {
    let request = Request::new("act", key(text)).input(text);
    match engine.begin(request).await {
        Ok(Admission::Replay(receipt)) => Answer::Replay(format!(
            "{:?} {:?}",
            receipt.original_effect,
            receipt.data()
        )),
        Ok(Admission::InDoubt(_)) => Answer::InDoubt,
        Ok(Admission::Execute(permit)) => {
            // Given back, so that the answers that follow are not disturbed.
            permit.not_done("only a test").await.map(drop).unwrap_or(());
            Answer::Execute
        }
        Ok(other) => Answer::Error(format!("{other:?}")),
        Err(error) => Answer::Error(error.to_string()),
    }
}

/// How the rows of a store are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundBy {
    Index,
    /// By what the log says of its newest rows.
    Tail,
}

/// Makes a store with all kinds of rows in its main file, and says what it answers.
async fn make(scene: &Scene, found_by: FoundBy) -> BTreeMap<String, Answer> {
    let engine = scene.open().await;
    for (number, text) in keys().iter().enumerate() {
        let request = Request::new("act", key(text)).input(text);
        let Admission::Execute(permit) = engine.begin(request).await.expect("a claim") else {
            panic!("{text} is new");
        };
        let answer = format!("{text} {}", "x".repeat(number * 16));
        let settled = if number < SETTLED {
            permit.done(Effect::Created, &answer).await
        } else {
            permit.unknown("only a test").await
        };
        settled.expect("an outcome is stored");
    }
    if found_by == FoundBy::Index {
        engine.sweep().await.expect("the index is filled");
    }
    let mut answers = BTreeMap::new();
    for text in keys() {
        answers.insert(text.clone(), begin(&engine, &text).await);
    }
    drop(engine);
    let written_back = Connection::open(scene.store())
        .and_then(|sqlite| sqlite.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)"));
    written_back.expect("the log is written back");
    answers
}

/// What came of many damages.
#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    found: usize,
    unharmed: usize,
}

/// The pages of the index, by their offset: damage to them is the known limit.
fn index_pages(store: &Path) -> BTreeSet<usize> {
    let sqlite = Connection::open(store).expect("the store opens");
    let mut pages = sqlite
        .prepare("SELECT pgoffset FROM dbstat WHERE name IN ('slots', 'collisions')")
        .expect("SQLite knows its pages");
    let pages = pages.query_map([], |row| row.get::<_, i64>(0));
    let pages = pages.expect("the pages are listed");
    pages
        .map(|page| usize::try_from(page.expect("a number")).expect("it is in the file"))
        .collect()
}

/// Returns the size of a store's pages.
fn page_size(store: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([store[16], store[17]]))
}

/// Where a store was damaged.
struct Damage {
    what: String,
    in_index: bool,
}

/// Lays a damaged copy out, opens and verifies it, and asks for every key.
async fn examine(
    bytes: &[u8],
    damage: &Damage,
    sound: &BTreeMap<String, Answer>,
    tally: &mut Tally,
) {
    let Damage { what, in_index } = damage;
    let scene = Scene::new();
    std::fs::write(scene.store(), bytes).expect("a damaged copy is written");
    let engine = match open(&scene.store()).await {
        Ok(engine) => engine,
        Err(error) => {
            let text = error.to_string();
            let named = text.contains(&scene.store().display().to_string());
            assert!(named, "{what}: {text}");
            tally.refused += 1;
            return;
        }
    };
    let clean = match engine.verify().await {
        Ok(verified) => verified.is_clean(),
        Err(Error::Store(_)) => false,
        Err(other) => panic!("{what}: {other}"),
    };
    for (text, expected) in sound {
        let answer = begin(&engine, text).await;
        let same = answer == *expected;
        assert!(
            same || !clean,
            "{what}: verify was clean, but {text}: {answer:?}"
        );
        assert!(
            answer != Answer::Execute || *in_index,
            "{what}: {text} may run again"
        );
        // An answer that is given is the right one, or none is: never another key's, or half of it.
        if let (Answer::Replay(given), Answer::Replay(right)) = (&answer, expected) {
            let data = |answer: &str| answer.split_once(' ').map(|(_, data)| data.to_owned());
            assert_eq!(data(given), data(right), "{what}: {text}");
        }
    }
    if clean {
        tally.unharmed += 1;
    } else {
        tally.found += 1;
    }
}

#[tokio::test]
async fn a_changed_byte_is_found_or_changes_no_answer() {
    change_bytes(FoundBy::Index).await;
}

#[tokio::test]
async fn a_changed_byte_in_a_store_that_is_not_indexed_yet_lets_nothing_run_again() {
    change_bytes(FoundBy::Tail).await;
}

async fn change_bytes(found_by: FoundBy) {
    let scene = Scene::new();
    let sound = make(&scene, found_by).await;
    let original = std::fs::read(scene.store()).expect("the store is read");
    let (index, page) = (index_pages(&scene.store()), page_size(&original));
    let (seed, mut dice) = Dice::fresh();
    let mut tally = Tally::default();
    for round in 0..scaled(10_000, 300) {
        let mut bytes = original.clone();
        let offset = usize::try_from(dice.below(bytes.len() as u64)).unwrap_or(0);
        let flip = 1 + dice.below(255).to_le_bytes()[0];
        bytes[offset] ^= flip;
        let what = format!("seed {seed}, round {round}: byte {offset} ^ {flip:#x}");
        let in_index = found_by == FoundBy::Index && index.contains(&(offset / page * page));
        examine(&bytes, &Damage { what, in_index }, &sound, &mut tally).await;
    }
    // Most bytes of a small store are free, or the log of something settled; the rest is noticed.
    let noticed = tally.refused + tally.found;
    assert!(noticed > 0 && tally.unharmed > 0, "{tally:?}");
}

#[tokio::test]
async fn a_record_whose_key_was_damaged_is_an_error_and_not_a_new_operation() {
    let scene = Scene::new();
    let sound = make(&scene, FoundBy::Index).await;
    let original = std::fs::read(scene.store()).expect("the store is read");
    let (text, expected) = sound.iter().next().expect("there are keys");
    let places: Vec<_> = original
        .windows(text.len())
        .enumerate()
        .filter_map(|(at, bytes)| (bytes == text.as_bytes()).then_some(at))
        .collect();
    assert!(places.len() >= 2, "it is in its record and in the log");
    let mut errors = 0;
    for at in places {
        let mut bytes = original.clone();
        bytes[at] ^= 0x20;
        let damaged = Scene::new();
        std::fs::write(damaged.store(), bytes).expect("a damaged copy is written");
        let engine = damaged.open().await;
        match begin(&engine, text).await {
            Answer::Error(said) if said.contains("its checksum is wrong") => errors += 1,
            Answer::Error(said) => assert!(said.contains("does not match its digest"), "{said}"),
            // What was damaged is the log, which a begin does not look at.
            answer => assert_eq!(answer, *expected, "byte {at}"),
        }
    }
    assert_eq!(errors, 1, "the record was damaged once");
}

#[tokio::test]
async fn a_page_that_is_lost_is_found_or_changes_no_answer() {
    let scene = Scene::new();
    let sound = make(&scene, FoundBy::Index).await;
    let original = std::fs::read(scene.store()).expect("the store is read");
    let (index, page) = (index_pages(&scene.store()), page_size(&original));
    let (mut zeroed, mut cut, mut doubled) = Default::default();
    for start in (0..original.len()).step_by(page) {
        let mut bytes = original.clone();
        bytes[start..start + page].fill(0);
        let in_index = index.contains(&start);
        let what = format!("zeros at {start} of {}", original.len());
        examine(&bytes, &Damage { what, in_index }, &sound, &mut zeroed).await;

        let what = format!("cut at {start} of {}", original.len());
        let damage = Damage {
            what,
            in_index: false,
        };
        if start > 0 {
            examine(&original[..start], &damage, &sound, &mut cut).await;
        }
        // A write that went to the wrong place.
        let from = (start + page) % original.len();
        let mut bytes = original.clone();
        bytes.copy_within(from..from + page, start);
        let what = format!("page {from} at {start} of {}", original.len());
        examine(&bytes, &Damage { what, in_index }, &sound, &mut doubled).await;
    }
    let all: [&Tally; 3] = [&zeroed, &cut, &doubled];
    assert!(
        all.iter().all(|tally| tally.refused + tally.found > 0),
        "{all:?}"
    );
    assert_eq!(cut.unharmed, 0, "a store that was cut never looks whole");
}

/// A token that was damaged must not lead behind another wall, allow more, or come back to life.
#[tokio::test]
async fn a_token_whose_row_was_damaged_is_an_error_or_not_there() {
    let scene = Scene::new();
    let engine = scene.open().await;
    let wanted = NewToken {
        namespace: Namespace::new("team-a").expect("a namespace"),
        scope: Scope::Read,
        label: Some(Label::new("the build").expect("a label")),
        expires_in: Some(Duration::from_secs(1)),
    };
    let (token, _) = engine.create_token(wanted).await.expect("it is made");
    let revoked = engine.revoke_token(token.id, None).await;
    let sound = revoked.expect("it is taken").expect("it was there").token;
    drop(engine);
    let sqlite = Connection::open(scene.store()).expect("the store opens");
    let page: usize = sqlite
        .query_row(
            "SELECT pgoffset FROM dbstat WHERE name = 'tokens'",
            [],
            |row| row.get::<_, i64>(0),
        )
        .map(|page| usize::try_from(page).expect("it is in the file"))
        .expect("SQLite knows its pages");
    let written_back = sqlite.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
    written_back.expect("the log is written back");
    drop(sqlite);
    let original = std::fs::read(scene.store()).expect("the store is read");
    let id = token.id.to_string();
    let size = page_size(&original);
    let places = original[page..page + size]
        .windows(id.len())
        .position(|bytes| bytes == id.as_bytes());
    let start = page + places.expect("the row is in its page");
    let (mut errors, mut absent) = (0, 0);
    // The row, which is the last thing in its page, and the bytes before it that say how it is laid out.
    for offset in start - 16..page + size {
        for flip in [0x01, 0x20, 0x80] {
            let mut bytes = original.clone();
            bytes[offset] ^= flip;
            let damaged = Scene::new();
            std::fs::write(damaged.store(), bytes).expect("a damaged copy is written");
            let Ok(engine) = open(&damaged.store()).await else {
                errors += 1;
                continue;
            };
            match engine.token(token.id).await {
                Ok(None) => absent += 1,
                Ok(Some(found)) => assert_eq!(found, sound, "byte {offset} ^ {flip:#x}"),
                Err(error) => {
                    assert!(matches!(error, Error::Store(_)), "{error}");
                    errors += 1;
                    let clean = engine.verify().await.map(|verified| verified.is_clean());
                    assert_ne!(clean.ok(), Some(true), "byte {offset} ^ {flip:#x}");
                }
            }
        }
    }
    assert!(
        errors > 100 && absent > 0,
        "{errors} errors, {absent} absent"
    );
}
