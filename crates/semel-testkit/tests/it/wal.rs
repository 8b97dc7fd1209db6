//! The write-ahead log after a crash: cut or damaged anywhere, what was committed before that place
//! survives as it was, and what comes after it is as if it had never been. Where the store was in
//! use, the loss is noticed, and nothing runs again behind anybody's back.

use std::path::PathBuf;

use rusqlite::Connection;
use semel::store::Logged;
use semel_testkit::process::audit::whole_log;
use semel_testkit::process::{
    CrashPoint, Dice, Ended, Keys, Orders, Scene, key, open, unsettled, wall,
};
use semel_testkit::scaled;

use crate::agent;

/// The bytes before the first frame, and before each page of one.
const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// A store whose process was killed, with all that it had committed in its log file.
struct Victim {
    database: Vec<u8>,
    wal: Vec<u8>,
    keys: Vec<String>,
    log: Vec<Logged>,
    /// Where each committed transaction ends.
    ends: Vec<usize>,
}

impl Victim {
    async fn make() -> Self {
        let scene = Scene::new();
        let keys: Vec<_> = (0..12).map(|number| format!("hold-{number}")).collect();
        let orders = Orders {
            crash: Some((CrashPoint::AfterEffect, keys.len())),
            ..Orders::new(&scene, Keys::These(keys.clone()))
        };
        assert!(agent().start(&orders).wait().was_killed());
        let read = |suffix: &str| {
            let path = scene.path().join(format!("store.db{suffix}"));
            std::fs::read(path).expect("the file is there")
        };
        let (database, wal) = (read(""), read("-wal"));
        let log = whole_log(&scene.open().await).await;
        assert_eq!(log.len(), 2 * keys.len() - 1, "all but one are settled");
        let ends = commits(&wal);
        assert!(ends.len() >= log.len(), "nothing was written back");
        Self {
            database,
            wal,
            keys,
            log,
            ends,
        }
    }

    /// Lays the files out with another log.
    fn lay_out(&self, wal: &[u8]) -> Scene {
        let scene = Scene::new();
        let write = |suffix: &str, bytes: &[u8]| {
            let path = scene.path().join(format!("store.db{suffix}"));
            std::fs::write(path, bytes).expect("a copy is written");
        };
        write("", &self.database);
        write("-wal", wal);
        scene
    }

    /// Opens the store with another log: exactly the transactions that lie before `sound` survive.
    async fn survives(&self, what: &str, wal: &[u8], sound: usize) {
        let scene = self.lay_out(wal);
        let engine = open(&scene.store()).await;
        let engine = engine.unwrap_or_else(|error| panic!("{what}: {error}"));
        let verified = engine.verify().await.expect("the store is verified");
        assert!(verified.is_clean(), "{what}: {verified:?}");
        let log = whole_log(&engine).await;
        assert_eq!(self.log.get(..log.len()), Some(log.as_slice()), "{what}");
        // The first transaction makes the tables, each of the others is one entry.
        let whole = self.ends.iter().filter(|end| **end <= sound).count();
        let expected = whole.saturating_sub(self.ends.len() - self.log.len());
        assert_eq!(log.len(), expected, "{what}");
        // What was lost is not found, and what is left has its own outcome.
        let settled = self.keys.len() - unsettled(&engine, &self.keys).await.len();
        assert_eq!(settled, expected / 2, "{what}");
        for text in &self.keys {
            let stored = engine.payload(&wall(), &key(text)).await.expect("it loads");
            let stored = stored.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let own = stored.is_none_or(|answer| answer.starts_with(&format!("\"{text} by")));
            assert!(own, "{what}: {text} has another one's answer");
        }
    }
}

/// Finds where the transactions of a log end: a frame that ends one carries the database's size.
fn commits(wal: &[u8]) -> Vec<usize> {
    let number = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().expect("four bytes"));
    let frame = FRAME_HEADER + number(8) as usize;
    let frames = (HEADER..wal.len()).step_by(frame);
    let ends = frames.filter(|start| start + frame <= wal.len() && number(start + 4) != 0);
    ends.map(|start| start + frame).collect()
}

#[tokio::test]
async fn a_log_that_is_cut_anywhere_keeps_what_was_committed_before_the_cut() {
    let victim = Victim::make().await;
    let mut cuts = vec![0, 1, HEADER - 1, HEADER, HEADER + 1];
    for end in &victim.ends {
        cuts.extend([end - 1, *end, end + 1, end + FRAME_HEADER]);
    }
    let (seed, mut dice) = Dice::fresh();
    for _ in 0..scaled(1_000, 40) {
        cuts.push(usize::try_from(dice.below(victim.wal.len() as u64)).unwrap_or(0));
    }
    for cut in cuts.into_iter().filter(|cut| *cut <= victim.wal.len()) {
        let what = format!("cut at {cut} of {} (seed {seed})", victim.wal.len());
        victim.survives(&what, &victim.wal[..cut], cut).await;
    }
}

#[tokio::test]
async fn a_log_that_is_damaged_anywhere_keeps_what_was_committed_before_the_damage() {
    let victim = Victim::make().await;
    let (seed, mut dice) = Dice::fresh();
    for round in 0..scaled(2_000, 120) {
        let mut wal = victim.wal.clone();
        let at = usize::try_from(dice.below(wal.len() as u64)).unwrap_or(0);
        // One byte, or all that follows.
        let damaged = if round % 2 == 0 { at + 1 } else { wal.len() };
        wal[at..damaged].iter_mut().for_each(|byte| *byte ^= 0x5a);
        let what = format!("damage at {at} of {} (seed {seed})", wal.len());
        victim.survives(&what, &wal, at).await;
    }
}

#[tokio::test]
async fn a_log_that_was_written_back_and_then_cut_is_found_out_or_harmless() {
    let victim = Victim::make().await;
    let whole = victim.lay_out(&victim.wal);
    let sqlite = Connection::open(whole.store()).expect("SQLite opens the store");
    let written_back = sqlite.execute_batch("PRAGMA wal_checkpoint(PASSIVE)");
    written_back.expect("the log is written back");
    let database = std::fs::read(whole.store()).expect("the store is read");
    drop(sqlite);
    assert!(
        database.len() > victim.database.len(),
        "it is in the main file now"
    );
    let newer = Victim { database, ..victim };
    for cut in &newer.ends {
        // No crash does this, as the log is synced before it is written back; but somebody may.
        let scene = newer.lay_out(&newer.wal[..*cut]);
        let Ok(engine) = open(&scene.store()).await else {
            continue;
        };
        if !engine
            .verify()
            .await
            .is_ok_and(|verified| verified.is_clean())
        {
            continue;
        }
        let log = whole_log(&engine).await;
        assert_eq!(
            newer.log.get(..log.len()),
            Some(log.as_slice()),
            "cut at {cut}"
        );
        let settled = newer.keys.len() - unsettled(&engine, &newer.keys).await.len();
        assert_eq!(settled, log.len() / 2, "cut at {cut}");
    }
}

/// Takes something away from a store that was killed, and returns what is said about it then.
fn refused_without(damage: impl FnOnce(&Scene)) -> String {
    let scene = Scene::new();
    let orders = Orders {
        crash: Some((CrashPoint::AfterSettle, 4)),
        ..Orders::new(
            &scene,
            Keys::These((0..6).map(|n| format!("hold-{n}")).collect()),
        )
    };
    assert!(agent().start(&orders).wait().was_killed());
    let before = scene.sink().lines();
    assert_eq!(before.len(), 4);
    damage(&scene);
    let again = Orders {
        crash: None,
        ..orders
    };
    let Ended { status, said } = agent().start(&again).wait();
    assert_eq!(status.code(), Some(3), "{said}");
    assert_eq!(scene.sink().lines(), before, "nothing was executed");
    assert!(
        said.contains(&scene.store().display().to_string()),
        "{said}"
    );
    // An operator who has looked into it may go on with what is left.
    std::fs::remove_file(beside(&scene, "-turn")).expect("it was there");
    let ended = agent().start(&again).wait();
    assert!(ended.status.success(), "{}", ended.said);
    said
}

fn beside(scene: &Scene, suffix: &str) -> PathBuf {
    scene.path().join(format!("store.db{suffix}"))
}

#[test]
fn a_store_whose_log_was_removed_is_refused() {
    let said = refused_without(|scene| {
        std::fs::remove_file(beside(scene, "-wal")).expect("it was there");
    });
    assert!(
        said.contains("log entries 1 to 8 were committed and are gone"),
        "{said}"
    );
}

#[test]
fn a_store_whose_last_commit_was_cut_off_is_refused() {
    let said = refused_without(|scene| {
        let path = beside(scene, "-wal");
        let wal = std::fs::read(&path).expect("it was there");
        let ends = commits(&wal);
        let cut = std::fs::write(&path, &wal[..ends[ends.len() - 2]]);
        cut.expect("the log is cut");
    });
    assert!(
        said.contains("log entries 8 to 8 were committed and are gone"),
        "{said}"
    );
}

#[test]
fn a_store_that_was_emptied_or_replaced_by_a_new_one_is_refused() {
    let said = refused_without(|scene| {
        std::fs::remove_file(beside(scene, "-wal")).expect("it was there");
        std::fs::write(scene.store(), []).expect("the file is emptied");
    });
    assert!(
        said.contains("log entries 1 to 8 were committed and are gone"),
        "{said}"
    );
}
