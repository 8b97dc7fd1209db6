//! Where a store lies: every spelling of its path is the same store, and only its owner reads it.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use semel::{Admission, Effect, Engine, Request};
use semel_testkit::process::audit::{Seen, audit};
use semel_testkit::process::{
    CrashPoint, Keys, Orders, Program, Scene, Word, key, open, resolve_truthfully, wall,
};

use crate::{agent, all_private};

fn keys(count: usize) -> Keys {
    Keys::These((0..count).map(|number| format!("hold-{number}")).collect())
}

/// Sends an agent and returns what it was told, key by key.
fn send(program: &Program, scene: &Scene, orders: &Orders) -> Vec<(String, Word)> {
    let before = scene.told().words().len();
    let ended = program.start(orders).wait();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.said);
    scene.told().words().split_off(before)
}

#[tokio::test]
async fn symlinks_relative_paths_and_absolute_ones_are_the_same_store() {
    let scene = Scene::new();
    let made = Orders::new(&scene, keys(3));
    send(&agent(), &scene, &made);

    let elsewhere = Scene::new();
    let (file_link, directory_link) = (
        elsewhere.path().join("link.db"),
        elsewhere.path().join("directory"),
    );
    symlink(scene.store(), &file_link).expect("a link is made");
    symlink(scene.path(), &directory_link).expect("a link is made");
    let spellings = [
        PathBuf::from("store.db"),
        PathBuf::from("./store.db"),
        PathBuf::from("../")
            .join(scene.path().file_name().expect("a name"))
            .join("store.db"),
        scene.path().join(".").join("store.db"),
        file_link,
        directory_link.join("store.db"),
    ];
    for store in spellings {
        let orders = Orders {
            store: store.clone(),
            ..made.clone()
        };
        let words = send(&agent().in_directory(scene.path()), &scene, &orders);
        let replayed = |(_, word): &(String, Word)| matches!(word, Word::Replayed(_));
        assert!(
            words.len() == 3 && words.iter().all(replayed),
            "{store:?}: {words:?}"
        );
    }
    assert_eq!(scene.sink().lines().len(), 3, "every effect happened once");
    // The lock files belong to the file, not to the link, or writers would not meet.
    let beside = |suffix: &str| elsewhere.path().join(format!("link.db{suffix}"));
    for suffix in ["-wal", "-shm", "-queue", "-turn"] {
        assert!(!beside(suffix).exists(), "{suffix}");
    }
}

async fn carry_out(engine: &Engine, text: &str) {
    let request = Request::new("say", key(text));
    let Admission::Execute(permit) = engine.begin(request).await.expect("a claim") else {
        panic!("{text} is new");
    };
    let done = permit.done(Effect::Created, text).await;
    assert!(done.expect("an outcome is stored").ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_in_one_process_are_one_store() {
    let scene = Scene::new();
    let (first, second) = (scene.open().await, scene.open().await);
    for round in 0..20 {
        let (by_first, by_second) = (format!("a-{round}"), format!("b-{round}"));
        tokio::join!(carry_out(&first, &by_first), carry_out(&second, &by_second));
        for (engine, text) in [(&first, &by_second), (&second, &by_first)] {
            let stored = engine.payload(&wall(), &key(text)).await;
            let stored = stored.expect("a payload loads");
            let expected = format!("\"{text}\"").into_bytes();
            assert_eq!(stored, Some(expected), "{text} is seen by the other handle");
            let again = engine.begin(Request::new("say", key(text))).await;
            assert!(matches!(again, Ok(Admission::Replay(_))), "{again:?}");
        }
    }
    drop(first);
    // Closing one handle must not take the other one's locks away.
    carry_out(&second, "after").await;
    let verified = second.verify().await.expect("the store is verified");
    assert!(
        verified.is_clean() && verified.records == 41,
        "{verified:?}"
    );
}

#[tokio::test]
async fn everything_that_is_made_is_readable_by_its_owner_only() {
    let scene = Scene::new();
    let home = scene.path().join("made/by/semel");
    let orders = Orders {
        store: home.join("store.db"),
        // Dies with the store open, so that the files of a crash are looked at too.
        crash: Some((CrashPoint::AfterSettle, 3)),
        ..Orders::new(&scene, keys(3))
    };
    let careless = agent().through_shell("umask 0; exec \"$@\"");
    assert!(careless.start(&orders).wait().was_killed());

    let mut names: Vec<_> = all_private(&scene.path().join("made"))
        .iter()
        .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    let expected = [
        "by",
        "made",
        "semel",
        "store.db",
        "store.db-queue",
        "store.db-shm",
        "store.db-turn",
        "store.db-wal",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn a_store_whose_process_was_killed_opens_at_once_with_its_log_and_locks_in_place() {
    let scene = Scene::new();
    let orders = Orders {
        crash: Some((CrashPoint::AfterClaim, 3)),
        ..Orders::new(&scene, keys(5))
    };
    assert!(agent().start(&orders).wait().was_killed());
    for suffix in ["-wal", "-shm", "-queue", "-turn"] {
        let file = scene.path().join(format!("store.db{suffix}"));
        assert!(file.exists(), "{} is left behind", file.display());
    }
    let healthy = Orders {
        crash: None,
        ..orders
    };
    send(&agent(), &scene, &healthy);
    let engine = scene.open().await;
    let doubts = resolve_truthfully(&engine, &scene, &all(&healthy.keys)).await;
    assert_eq!(doubts, 1, "the claim of the dead is in doubt");
    send(&agent(), &scene, &healthy);
    let audited = audit(&engine, &scene, &mut Seen::default()).await;
    assert_eq!(audited.expect("all agree").effects, 5);
}

fn all(keys: &Keys) -> Vec<String> {
    match keys {
        Keys::These(keys) => keys.clone(),
        Keys::New(..) | Keys::Crowd(..) => vec![],
    }
}

#[tokio::test]
async fn a_store_without_a_directory_makes_it_and_one_that_is_a_directory_is_refused() {
    let scene = Scene::new();
    let nested = scene.path().join("a/b/store.db");
    carry_out(&open(&nested).await.expect("directories are made"), "k").await;
    let taken = scene.path().join("a/b");
    let refused = open(&taken).await.expect_err("a directory is no store");
    let text = refused.to_string();
    assert!(text.contains(&taken.display().to_string()), "{text}");
}
