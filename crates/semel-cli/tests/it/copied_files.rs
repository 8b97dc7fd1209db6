//! Stores whose files were copied by means other than Semel's, and stores that were only renamed.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::run::{Sandbox, Told};

const SEND: &str = "echo x >> sent; echo sent";

/// Makes a store with a settled operation and one that still runs, as far as the ledger knows.
fn made() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run("settled", SEND);
    let mut died = sandbox.semel(&[
        "run", "--key", "ran", "--lease", "1h", "--", "sh", "-c", SEND,
    ]);
    died.env("SEMEL_INJECT", "die-after-claim");
    died.output().expect("semel runs");
    sandbox
}

/// Runs a command of the shell in the sandbox.
fn shell(sandbox: &Sandbox, script: &str) {
    let mut command = Command::new("sh");
    sandbox.bare(&mut command);
    let output = command.args(["-ec", script]).output().expect("sh runs");
    assert!(output.status.success(), "{script}: {output:?}");
}

fn run_in(sandbox: &Sandbox, store: &str, key: &str, set: &[(&str, &str)]) -> Told {
    let store = format!("sqlite:{store}");
    let words = [
        "--store", &store, "run", "--key", key, "--", "sh", "-c", SEND,
    ];
    let mut command = sandbox.semel(&words);
    command.envs(set.iter().copied());
    Told::from(command.output().expect("semel runs"))
}

fn say_in(sandbox: &Sandbox, store: &str, words: &[&str]) -> Told {
    let store = format!("sqlite:{store}");
    sandbox.say(&[&["--store", &store], words].concat())
}

/// Ways to copy a store, and where the copy is then.
const COPIES: [(&str, &str); 7] = [
    ("mkdir c && cp s.db s.db-* c/ 2>/dev/null || true", "c/s.db"),
    ("cp s.db c.db", "c.db"),
    ("cp -a s.db c.db && cp -a s.db-wal c.db-wal", "c.db"),
    ("mkdir c && cp -r s.db s.db-* c/", "c/s.db"),
    (
        "tar cf - s.db s.db-wal | (mkdir c && cd c && tar xf -)",
        "c/s.db",
    ),
    (
        "cp -a s.db-wal w && cat s.db > c.db && chmod 600 c.db && mv w c.db-wal",
        "c.db",
    ),
    // The copy takes the place of the original, whose files beside it stay.
    ("cp s.db c.db && mv c.db s.db", "s.db"),
];

#[test]
fn copied_file_is_only_read_and_names_the_original() {
    for (script, copy) in COPIES {
        let sandbox = made();
        shell(&sandbox, script);
        let refused = run_in(&sandbox, copy, "new", &[]);
        assert_eq!(refused.exit, 119, "{script}: {refused:?}");
        let original = sandbox.path("s.db").canonicalize().expect("it is there");
        let text = refused.err();
        for said in [original.to_str().expect("text"), "hint: `semel restore`"] {
            assert!(text.contains(said), "{script}: {text}");
        }
        assert_eq!(sandbox.effects("sent"), 1, "{script}: nothing was run");
        for words in [&["list"][..], &["log"], &["verify"], &["doctor"]] {
            let told = say_in(&sandbox, copy, words);
            assert_eq!(told.exit, 0, "{script}: {words:?}: {told:?}");
        }
        let words = ["list", "--json", "--state", "doubtful"];
        assert_eq!(
            say_in(&sandbox, copy, &words).out(),
            "",
            "{script}: nothing was changed"
        );
        let told = Told::from(
            sandbox
                .semel(&["--json", "submit", "q", "--key", "t"])
                .env("SEMEL_STORE", format!("sqlite:{copy}"))
                .output()
                .expect("semel runs"),
        );
        let error = &told.json()["error"];
        assert_eq!(
            (&error["code"], &error["retryable"]),
            (&json!("store_unusable"), &json!(false)),
            "{script}: {told:?}"
        );
    }
}

#[test]
fn copied_file_is_adopted_by_restore_and_the_original_goes_on() {
    let sandbox = made();
    shell(&sandbox, "mkdir c && cp -r s.db s.db-* c/");
    let would = say_in(&sandbox, "c/s.db", &["restore", "--dry-run"]);
    assert_eq!(would.exit, 0, "{would:?}");
    assert_eq!(run_in(&sandbox, "c/s.db", "new", &[]).exit, 119);
    let adopted = say_in(&sandbox, "c/s.db", &["restore", "--json"]).json();
    assert_eq!(
        (&adopted["records"], &adopted["doubtful"]),
        (&json!(2), &json!(1)),
        "{adopted}"
    );
    assert_eq!(run_in(&sandbox, "c/s.db", "ran", &[]).exit, 120);
    assert_eq!(run_in(&sandbox, "c/s.db", "new", &[]).exit, 0);
    let record = say_in(&sandbox, "c/s.db", &["show", "settled", "--json"]).json();
    assert!(record["fence"].as_u64() > Some(1 << 32), "{record}");
    // It is an original itself now, and so is the first one still.
    assert_eq!(run_in(&sandbox, "s.db", "of-the-original", &[]).exit, 0);
    assert_eq!(
        say_in(&sandbox, "c/s.db", &["restore"]).exit,
        64,
        "nothing to adopt"
    );
    assert_eq!(say_in(&sandbox, "c/s.db", &["verify"]).exit, 0);
}

#[test]
fn renamed_and_moved_store_goes_on_and_remembers_its_new_path() {
    let sandbox = made();
    shell(
        &sandbox,
        "for s in '' -wal -shm -turn -queue -notes; do mv s.db$s t.db$s; done",
    );
    assert_eq!(run_in(&sandbox, "t.db", "settled", &[]).exit, 0);
    assert_eq!(run_in(&sandbox, "t.db", "new", &[]).exit, 0);
    shell(&sandbox, "mkdir d && mv t.db* d/ && mv d e");
    assert_eq!(run_in(&sandbox, "e/t.db", "newer", &[]).exit, 0);
    assert_eq!(sandbox.effects("sent"), 3);
    shell(&sandbox, "cp e/t.db c.db");
    let refused = run_in(&sandbox, "c.db", "newest", &[]);
    assert!(refused.err().contains("/e/t.db"), "{refused:?}");
}

#[test]
fn store_that_moved_to_another_file_system_is_a_copy() {
    let elsewhere = Path::new("/dev/shm");
    let sandbox = made();
    let one = rustix::fs::stat(sandbox.root())
        .expect("it is there")
        .st_dev;
    let other = rustix::fs::stat(elsewhere)
        .expect("Linux has shared memory")
        .st_dev;
    assert_ne!(
        one, other,
        "set TMPDIR to a directory that is not in /dev/shm"
    );
    let directory = tempfile::tempdir_in(elsewhere).expect("a directory is made");
    let target = directory.path().display().to_string();
    shell(&sandbox, &format!("mv s.db s.db-* {target}/"));
    let moved = format!("{target}/s.db");
    assert_eq!(run_in(&sandbox, &moved, "new", &[]).exit, 119);
    assert_eq!(say_in(&sandbox, &moved, &["restore"]).exit, 0);
    assert_eq!(run_in(&sandbox, &moved, "new", &[]).exit, 0);
}

#[test]
fn setting_adopts_or_ignores_copies() {
    for (how, doubtful) in [("adopt", true), ("ignore", false)] {
        let table = format!("[store]\nurl = 'sqlite:c.db'\ncopied = '{how}'\n");
        for by_file in [false, true] {
            let sandbox = made();
            shell(&sandbox, "cp s.db c.db && cp s.db-wal c.db-wal");
            let told = if by_file {
                fs::write(sandbox.path("semel.toml"), &table).expect("it is written");
                let words = ["run", "--key", "new", "--", "sh", "-c", SEND];
                let mut command = sandbox.semel(&words);
                Told::from(
                    command
                        .env_remove("SEMEL_STORE")
                        .output()
                        .expect("semel runs"),
                )
            } else {
                run_in(&sandbox, "c.db", "new", &[("SEMEL_STORE_COPIED", how)])
            };
            assert_eq!(told.exit, 0, "{how}: {told:?}");
            fs::remove_file(sandbox.path("semel.toml")).ok();
            let list = ["list", "--json", "--state", "doubtful"];
            let doubts = say_in(&sandbox, "c.db", &list).out();
            assert_eq!(doubts.contains("\"ran\""), doubtful, "{how}: {doubts}");
            // Adopting makes it an original; ignoring remembers nothing.
            let next = run_in(&sandbox, "c.db", "newer", &[]).exit;
            assert_eq!(next, if doubtful { 0 } else { 119 }, "{how}");
        }
    }
    let sandbox = Sandbox::new();
    let wrong = run_in(&sandbox, "s.db", "k", &[("SEMEL_STORE_COPIED", "maybe")]);
    assert_eq!(wrong.exit, 64, "{wrong:?}");
}

#[test]
fn processes_that_adopt_a_copy_at_the_same_time_run_each_key_once() {
    let sandbox = made();
    shell(&sandbox, "cp s.db c.db && cp s.db-wal c.db-wal");
    let commands = (0..6).map(|_| {
        let words = [
            "--store",
            "sqlite:c.db",
            "run",
            "--key",
            "new",
            "--",
            "sh",
            "-c",
            SEND,
        ];
        let mut command = sandbox.semel(&words);
        command.env("SEMEL_STORE_COPIED", "adopt");
        crate::run::piped(&mut command).spawn().expect("semel runs")
    });
    let commands: Vec<_> = commands.collect();
    for command in commands {
        let told = crate::run::told(command);
        assert_eq!(told.exit, 0, "{told:?}");
    }
    assert_eq!(sandbox.effects("sent"), 2);
}

#[test]
fn file_with_two_names_is_refused() {
    let sandbox = made();
    shell(&sandbox, "ln s.db other.db");
    for name in ["s.db", "other.db"] {
        let refused = run_in(&sandbox, name, "new", &[]);
        assert_eq!(refused.exit, 119, "{refused:?}");
        assert!(refused.err().contains("hard links"), "{refused:?}");
    }
    shell(&sandbox, "rm other.db");
    assert_eq!(run_in(&sandbox, "s.db", "new", &[]).exit, 0);
}

#[test]
fn doctor_says_whether_a_copy_would_be_noticed() {
    let sandbox = made();
    let checked = |set: &[(&str, &str)]| {
        let mut command = sandbox.semel(&["doctor", "--json"]);
        command.envs(set.iter().copied());
        let told = Told::from(command.output().expect("semel runs")).json();
        let checks = told["checks"].as_array().expect("a list").clone();
        let found = checks.into_iter().find(|check| check["name"] == "copies");
        found.expect("it is checked")
    };
    assert_eq!(checked(&[])["status"], "ok");
    let ignored = checked(&[("SEMEL_STORE_COPIED", "ignore")]);
    assert_eq!(ignored["status"], "warn", "{ignored}");
}
