//! A full disk: clear errors, nothing executed without a claim, and work goes on when there is room.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::Connection;
use semel::{Engine, Label, Lease};
use semel_testkit::process::audit::{Audited, Seen, audit};
use semel_testkit::process::{
    Agent, Ended, Keys, Orders, Program, Scene, Word, resolve_truthfully, unsettled,
};
use semel_testkit::scaled;

use crate::{agent, all_private, mounter};

/// How many keys an agent is sent for at once: a command line has its limits.
const AT_ONCE: usize = 1_000;

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("hold-{number}")).collect()
}

/// Orders whose lease is short, as a report is tried again until its end.
fn orders(scene: &Scene, keys: &[String]) -> Orders {
    Orders {
        lease: Lease::MIN,
        ..Orders::new(scene, Keys::These(keys.to_vec()))
    }
}

/// A write beyond the file limit is an error, as on a full disk, instead of a signal.
fn told_of_limits() -> Program {
    agent().through_shell("trap '' XFSZ; umask 0; exec \"$@\"")
}

/// With room on the disk again: all agree, doubts are resolved, and each key took effect once.
async fn recovers(scene: &Scene, keys: &[String]) -> Audited {
    let mut seen = Seen::default();
    for _ in 0..8 {
        let engine = scene.open().await;
        let audited = audit(&engine, scene, &mut seen).await;
        let audited = audited.expect("world, ledger and callers agree");
        resolve_truthfully(&engine, scene, keys).await;
        let left = unsettled(&engine, keys).await;
        if left.is_empty() {
            assert_eq!(audited.effects, keys.len(), "each key took effect once");
            return audited;
        }
        let some = &left[..left.len().min(AT_ONCE)];
        let ended = agent().start(&orders(scene, some)).wait();
        assert!(ended.status.success(), "{}", ended.said);
    }
    panic!("some keys are never settled: {:?}", scene.told().words());
}

/// Says what a full disk looks like, whether the system calls it full or too large a file.
fn is_clear(text: &str, scene: &Scene) -> bool {
    let cause = [
        "disk is full",
        "disk I/O error",
        "File too large",
        "No space",
    ];
    let named = text.contains(&scene.store().display().to_string());
    named && cause.iter().any(|cause| text.contains(cause))
}

#[tokio::test]
async fn a_disk_that_is_full_from_the_start_lets_nothing_begin() {
    for limit in [0, 1, 512, 4_096, 8_192] {
        let scene = Scene::new();
        let orders = Orders {
            file_limit: Some(limit),
            ..orders(&scene, &keys(2))
        };
        let Ended { status, said } = told_of_limits().start(&orders).wait();
        assert_eq!(status.code(), Some(3), "{limit}: {said}");
        assert!(said.starts_with("store_unavailable"), "{limit}: {said}");
        assert!(is_clear(&said, &scene), "{limit}: {said}");
        assert_eq!(scene.sink().lines(), [], "nothing was executed");
        // The half-made store is finished once there is room.
        recovers(&scene, &keys(2)).await;
    }
}

#[tokio::test]
async fn a_disk_that_fills_up_refuses_claims_and_keeps_outcomes() {
    let mut told = BTreeMap::<&str, usize>::new();
    for step in 1..=scaled(60, 12) {
        let limit = 56 * 1024 + step * 7_001;
        let scene = Scene::new();
        let keys = keys(40);
        let orders = Orders {
            file_limit: Some(limit),
            ..orders(&scene, &keys)
        };
        let ended = told_of_limits().start(&orders).wait();
        assert!(ended.status.success(), "{limit}: {}", ended.said);
        let notes = scene.path().join("store.db-notes");
        if notes.exists() {
            all_private(&notes);
        }
        for (key, word) in scene.told().words() {
            let kind = match &word {
                Word::Done(_) => "done",
                Word::Unstored(noted) => {
                    assert!(*noted, "a note is a small file: {key}");
                    "unstored"
                }
                Word::Error(text) => {
                    assert!(is_clear(text, &scene), "{limit}: {text}");
                    "refused"
                }
                other => panic!("{limit}: {key}: {other:?}"),
            };
            *told.entry(kind).or_default() += 1;
        }
        recovers(&scene, &keys).await;
    }
    // The limits above fall on claims and on reports; otherwise this test would prove nothing.
    let kinds: Vec<_> = told.keys().copied().collect();
    assert_eq!(kinds, ["done", "refused", "unstored"], "{told:?}");
}

#[tokio::test]
async fn a_disk_that_fills_up_and_empties_again_under_many_callers_loses_nothing() {
    let scene = Scene::new();
    let orders = Orders {
        file_limit: Some(400_000),
        lift_after: Some(40),
        tasks: 16,
        threads: 2,
        // Long enough for the reports that wait for room.
        lease: Duration::from_secs(20),
        ..Orders::new(
            &scene,
            Keys::New("hold-".to_owned(), Duration::from_secs(3)),
        )
    };
    let ended = told_of_limits().start(&orders).wait();
    assert!(ended.status.success(), "{}", ended.said);
    work_went_on(&scene).await;
}

/// There was work before the disk was full, and after it had room again; nothing was lost.
async fn work_went_on(scene: &Scene) {
    let mut words = scene.told().words();
    let room = words
        .iter()
        .position(|(_, word)| matches!(word, Word::Room(_)));
    let after = words.split_off(room.expect("the disk was full"));
    for words in [&words, &after] {
        let done = |(_, word): &&(String, Word)| matches!(word, Word::Done(_));
        assert!(words.iter().filter(done).count() > 16, "{words:?}");
    }
    // The first of what came after is that there is room.
    let keys: Vec<_> = words
        .iter()
        .chain(&after[1..])
        .map(|(key, _)| key.clone())
        .collect();
    recovers(scene, &keys).await;
}

#[tokio::test]
async fn the_first_claim_of_a_store_may_fail_and_the_next_one_is_still_its_first_entry() {
    let mut failed_first = 0;
    for step in 0..12 {
        let scene = Scene::new();
        let keys = keys(3);
        drop(scene.open().await);
        // A table of the caller's own makes the log long, and an open reader keeps it from being begun anew:
        // so the limit falls on what the first claim appends.
        let sqlite = Connection::open(scene.store()).expect("SQLite opens the store");
        let filled = sqlite.execute_batch(
            "PRAGMA wal_autocheckpoint = 0; CREATE TABLE ballast (bytes BLOB); \
             INSERT INTO ballast VALUES (zeroblob(60000)); BEGIN; SELECT count(*) FROM ballast",
        );
        filled.expect("the log grows");
        let log = std::fs::metadata(scene.path().join("store.db-wal"));
        let orders = Orders {
            file_limit: Some(log.expect("there is a log").len() + step * 8_192),
            lift_after: Some(1),
            ..orders(&scene, &keys)
        };
        if told_of_limits().start(&orders).wait().status.success() {
            let words = scene.told().words();
            let first = words.iter().find(|(key, _)| key != "-");
            let failed = matches!(first, Some((_, Word::Error(_))));
            failed_first += usize::from(failed);
        }
        drop(sqlite);
        recovers(&scene, &keys).await;
    }
    assert!(failed_first > 0, "no limit fell on the first claim");
}

#[tokio::test]
async fn a_process_that_a_file_limit_kills_in_the_middle_of_a_write_leaves_a_sound_store() {
    for step in 1..=scaled(100, 15) {
        let scene = Scene::new();
        let keys = keys(30);
        let orders = Orders {
            file_limit: Some(40_000 + step * 4_567),
            tasks: 4,
            threads: 2,
            ..orders(&scene, &keys)
        };
        // Without a handler the signal kills, after as much was written as there is room for.
        let ended: Vec<_> = [agent().start(&orders), agent().start(&orders)]
            .into_iter()
            .map(Agent::wait)
            .collect();
        for Ended { status, said } in ended {
            assert_ne!(status.code(), Some(3), "{said}");
        }
        recovers(&scene, &keys).await;
    }
}

#[tokio::test]
async fn a_full_file_system_refuses_claims_and_takes_them_again_when_there_is_room() {
    let scene = Scene::new();
    let mounter = mounter(&scene);
    let disk = scene.path().join("disk");
    std::fs::create_dir(&disk).expect("a mount point is made");
    // Nearly all is taken at first. The store is copied out, as the mount ends with its shell.
    let script = format!(
        "cd {disk} && mount -t tmpfs -o size=32m tmpfs . && cd {disk} &&
         head -c 31m /dev/zero > ballast && \"$@\"; status=$?;
         cp -r store.db* .. && exit $status",
        disk = disk.display(),
    );
    let orders = Orders {
        store: disk.join("store.db"),
        ballast: Some(disk.join("ballast")),
        lift_after: Some(40),
        tasks: 16,
        threads: 2,
        lease: Duration::from_secs(20),
        ..Orders::new(
            &scene,
            Keys::New("hold-".to_owned(), Duration::from_secs(3)),
        )
    };
    let program = agent().through_shell(&script).through(mounter);
    let ended = program.start(&orders).wait();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.said);
    let words = scene.told().words();
    let errors = words.iter().filter_map(|(_, word)| match word {
        Word::Error(text) => Some(text),
        _ => None,
    });
    let unclear: Vec<_> = errors
        .filter(|text| !text.contains("disk is full"))
        .collect();
    assert!(unclear.is_empty(), "{unclear:?}");
    // The file was copied, so the store is only read until it is adopted.
    let copy = Engine::open_copy(&format!("sqlite:{}", scene.store().display())).await;
    let by = Label::new("tester").expect("a word");
    let adopted = copy.expect("it opens").adopt(by).await;
    adopted.expect("the copy is adopted");
    work_went_on(&scene).await;
}
