//! Where little can be done: a file system that only reads, and a process that may open few files.

use std::fs;
use std::process::Command;

use crate::run::{Sandbox, Told};

/// Runs `semel` where the sandbox's directory `d` cannot be written.
fn read_only(sandbox: &Sandbox, words: &[&str]) -> Told {
    read_only_on(sandbox, "sqlite:d/s.db", words)
}

fn read_only_on(sandbox: &Sandbox, store: &str, words: &[&str]) -> Told {
    let script = "mount --bind d d && mount -o remount,bind,ro d && exec \"$@\"";
    let mut command = sandbox.unshare();
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.args([env!("CARGO_BIN_EXE_semel"), "--store", store]);
    Told::from(command.args(words).output().expect("unshare runs"))
}

#[test]
fn store_on_a_read_only_file_system_can_be_looked_at() {
    let sandbox = Sandbox::new();
    let store = ["--store", "sqlite:d/s.db"];
    let run = ["run", "--key", "k", "--", "echo", "done"];
    assert_eq!(sandbox.say(&[&store[..], &run].concat()).exit, 0);
    // The newest entries are in the log, which is read, too.
    assert!(
        fs::metadata(sandbox.path("d/s.db-wal"))
            .expect("it is there")
            .len()
            > 0
    );
    for (words, said) in [
        (&["list"][..], "k"),
        (&["show", "k"], "k succeeded"),
        (&["log"], "settle"),
        (&["verify"], "all agree"),
        (&["stats"], "entries in the log     2"),
    ] {
        let told = read_only(&sandbox, words);
        assert_eq!(told.exit, 0, "{words:?}: {told:?}");
        assert!(told.out().contains(said), "{words:?}: {told:?}");
    }
    let replayed = read_only(&sandbox, &run);
    assert_eq!(
        (replayed.exit, replayed.out().as_str()),
        (0, "done\n"),
        "{replayed:?}"
    );
    let checked = read_only(&sandbox, &["doctor"]);
    assert_eq!(checked.exit, 1, "{checked:?}");
    assert!(checked.out().contains("can only be read"), "{checked:?}");
    let backed_up = read_only(&sandbox, &["backup", "bak.db"]);
    assert_eq!(backed_up.exit, 0, "{backed_up:?}");
    // A backup has no log beside it.
    fs::rename(sandbox.path("bak.db"), sandbox.path("d/bak.db")).expect("it is moved");
    let listed = read_only_on(&sandbox, "sqlite:d/bak.db", &["list"]);
    assert_eq!(listed.exit, 0, "{listed:?}");
}

#[test]
fn store_on_a_read_only_file_system_refuses_what_would_change_it() {
    let sandbox = Sandbox::new();
    let store = ["--store", "sqlite:d/s.db"];
    let doubted = ["run", "--key", "k", "--", "sh", "-c", "kill -9 $$"];
    sandbox.say(&[&store[..], &doubted].concat());
    for words in [
        &["run", "--key", "new", "--", "sh", "-c", "echo x >> effects"][..],
        &["submit", "q", "--key", "t"],
        &["resolve", "k", "--done", "--yes"],
        &["token", "create", "--scope", "read"],
        &["restore"],
    ] {
        let told = read_only(&sandbox, words);
        assert_eq!(told.exit, 119, "{words:?}: {told:?}");
        assert!(
            told.err().contains("Read-only file system"),
            "{words:?}: {told:?}"
        );
    }
    assert_eq!(sandbox.effects("effects"), 0);
}

#[test]
fn few_file_descriptors_are_an_error_and_never_a_panic() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run("first", "true").exit, 0);
    for limit in 3..=20 {
        for words in [
            "run --key k -- true",
            "list",
            "doctor",
            "serve --listen 127.0.0.1:0",
        ] {
            let mut command = Command::new("sh");
            sandbox.bare(&mut command);
            // A server that does start is told to end.
            let script = format!(
                "ulimit -n {limit}; exec timeout 10 {} {words}",
                env!("CARGO_BIN_EXE_semel")
            );
            let told = Told::from(command.args(["-c", &script]).output().expect("sh runs"));
            let text = told.err();
            assert!(!text.contains("panicked"), "{limit}, {words}: {text}");
            // 127 is the loader's, which needs a descriptor for each library.
            let clean = [0, 1, 64, 124, 125, 127].contains(&told.exit);
            assert!(clean, "{limit}, {words}: {told:?}");
            assert!(
                told.exit == 0 || !text.is_empty() || told.exit == 1,
                "{limit}, {words}"
            );
            if text.contains("listening") {
                break;
            }
        }
    }
}
