//! `semel backup` and `semel restore`

use std::fs;

use crate::run::Sandbox;

const SEND: &str = "echo x >> sent; echo sent";

#[test]
fn a_backup_can_be_read_and_nothing_can_be_claimed_in_it() {
    let sandbox = Sandbox::new();
    sandbox.run("a", SEND);
    let told = sandbox.say(&["backup", "copy.db"]);
    assert_eq!(told.exit, 0, "{told:?}");
    assert!(told.out().starts_with("copy.db: "), "{told:?}");
    let listed = sandbox.say(&["--store", "sqlite:copy.db", "list", "--json"]);
    assert_eq!(listed.json()["key"], "a", "{listed:?}");
    assert_eq!(
        sandbox.say(&["--store", "sqlite:copy.db", "verify"]).exit,
        0
    );
    let words = [
        "--store",
        "sqlite:copy.db",
        "run",
        "--key",
        "b",
        "--",
        "sh",
        "-c",
        SEND,
    ];
    let refused = sandbox.say(&words);
    assert_eq!(
        (refused.exit, sandbox.effects("sent")),
        (119, 1),
        "{refused:?}"
    );
    assert!(refused.err().contains("semel restore"), "{refused:?}");
    // A copy is a new file.
    assert_eq!(sandbox.say(&["backup", "copy.db"]).exit, 64);
}

#[test]
fn a_restored_store_goes_on_where_the_backup_was_made() {
    let sandbox = Sandbox::new();
    sandbox.run("a", SEND);
    sandbox.run("doubted", "kill -9 $$");
    sandbox.say(&["backup", "copy.db"]);
    // There is a store: it is not for us to remove.
    let refused = sandbox.say(&["restore", "copy.db"]);
    assert_eq!(refused.exit, 64, "{refused:?}");
    assert!(
        refused.err().contains("hint: move the old store away"),
        "{refused:?}"
    );
    fs::create_dir(sandbox.path("old")).expect("it can be made");
    for entry in fs::read_dir(sandbox.root()).expect("it can be read") {
        let entry = entry.expect("it can be read");
        if entry.file_name().to_string_lossy().starts_with("s.db") {
            fs::rename(entry.path(), sandbox.path("old").join(entry.file_name()))
                .expect("it moves");
        }
    }
    let would = sandbox.say(&["restore", "--dry-run", "copy.db"]);
    assert_eq!(
        (would.exit, sandbox.path("s.db").exists()),
        (0, false),
        "{would:?}"
    );
    let told = sandbox.say(&["restore", "copy.db"]);
    assert_eq!(told.exit, 0, "{told:?}");
    assert!(told.err().contains("cannot be known"), "{told:?}");
    assert_eq!(sandbox.run("a", SEND).out(), "sent\n");
    assert_eq!(sandbox.effects("sent"), 1);
    assert_eq!(sandbox.run("doubted", "kill -9 $$").exit, 120);
    sandbox.run("new", SEND);
    assert_eq!(sandbox.effects("sent"), 2);
    let fence = sandbox.record("a")["fence"].as_u64();
    assert!(fence.is_some_and(|fence| fence > 1 << 32), "{fence:?}");
    sandbox.verified();
    // What is a store already is not adopted again.
    assert_eq!(sandbox.say(&["restore"]).exit, 64);
}

#[test]
fn what_was_replayed_is_counted() {
    let sandbox = Sandbox::new();
    for _ in 0..3 {
        sandbox.run("a", "sleep 0.05");
    }
    let json = sandbox.say(&["stats", "--json"]).json();
    assert_eq!(json["replayed"]["count"], 2);
    assert!(
        json["replayed"]["saved_ms"]
            .as_u64()
            .is_some_and(|saved| saved >= 100),
        "{json}"
    );
}
