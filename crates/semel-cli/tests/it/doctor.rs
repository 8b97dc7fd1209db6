//! `semel doctor`

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use semel::Effect;
use serde_json::json;

use crate::harness::{Behind, Ran, World, permit, request};
use crate::samples::world;

fn healthy() -> World {
    let world = World::new();
    world.past(|engine| async move {
        let done = permit(&engine, request("order-1")).await;
        done.done(Effect::Created, &1).await.expect("taken");
    });
    world
}

/// Returns the status and the message of a check.
fn check(ran: &Ran, name: &str) -> (String, String) {
    let answer = ran.json().remove(0);
    let checks = answer["checks"].as_array().expect("a list");
    let found = checks.iter().find(|check| check["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name}: {answer}"));
    let text = |field: &str| found[field].as_str().expect("text").to_owned();
    (text("status"), text("message"))
}

fn allow(path: &Path, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("modes can be set");
}

#[test]
fn a_healthy_ledger_is_told_line_by_line() {
    let ran = healthy().semel(&["doctor"]);
    let mut lines: Vec<String> = ran.stdout.lines().map(str::to_owned).collect();
    // What depends on the machine and on the version that is built in.
    assert!(
        lines[1].starts_with("ok    sqlite       3."),
        "{}",
        lines[1]
    );
    assert!(lines[3].ends_with(" MiB free"), "{}", lines[3]);
    (lines[1], lines[3]) = (String::new(), String::new());
    assert_eq!(
        lines,
        [
            "ok    store        sqlite:DIR/data/semel.db",
            "",
            "ok    permissions  only the owner can read the store",
            "",
            "ok    copies       a copy of the file would be noticed (inode and birth time)",
            "ok    clock        TIME",
            "ok    notes        none waiting",
            "ok    leases       no attempt is past its lease",
            "ok    doubts       none",
            "ok    dead         none",
            "ok    log          ends with entry 2, TIME",
        ]
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[test]
fn doubts_are_a_warning_until_they_are_too_old() {
    let world = world();
    let ran = world.semel(&["doctor", "--json"]);
    assert_eq!((ran.code, &ran.json()[0]["ok"]), (0, &json!(true)));
    let warn = |text: &str| ("warn".to_owned(), text.to_owned());
    assert_eq!(check(&ran, "doubts"), warn("2, the oldest for 10 min"));
    assert_eq!(
        check(&ran, "leases"),
        warn("1 past their lease without a word")
    );
    assert_eq!(check(&ran, "dead"), warn("1"));
    let old = "2, the oldest for 10 min; 2 older than 1 min".to_owned();
    let ran = world.semel(&["doctor", "--json", "--doubt-limit", "1m"]);
    assert_eq!((ran.code, &ran.json()[0]["ok"]), (1, &json!(false)));
    assert_eq!(check(&ran, "doubts"), ("bad".to_owned(), old));
    let mut command = world.command(&["doctor"]);
    let ran = world.run(command.env("SEMEL_DOCTOR_DOUBT_LIMIT", "1m"));
    assert_eq!(ran.code, 1);
    let hint = "hint: `semel list --state doubtful` names them; find out what happened and resolve";
    assert!(ran.stdout.contains(hint), "{}", ran.stdout);
}

#[test]
fn a_ledger_that_others_can_read_is_bad() {
    let world = healthy();
    allow(&world.path("data"), 0o755);
    let ran = world.semel(&["doctor", "--json"]);
    let text = "DIR/data has mode 0755".to_owned();
    assert_eq!(
        (check(&ran, "permissions"), ran.code),
        (("warn".to_owned(), text), 0)
    );
    // Volumes are often open to a group.
    for (mode, grade, code) in [(0o640, "warn", 0), (0o660, "warn", 0), (0o644, "bad", 1)] {
        allow(&world.path("data/semel.db"), mode);
        let ran = world.semel(&["doctor", "--json"]);
        let text = format!("DIR/data/semel.db has mode {mode:04o}");
        assert_eq!(
            (check(&ran, "permissions"), ran.code),
            ((grade.to_owned(), text), code)
        );
    }
}

#[test]
fn a_clock_that_jumped_is_bad() {
    let world = World::new();
    // The wall clock moves on by two hours while no time passes.
    let slow = Behind {
        wall: Duration::from_secs(7_200),
        uptime: Duration::ZERO,
    };
    world.by_clock(slow, None, |engine| async move {
        let done = permit(&engine, request("order-1")).await;
        done.done(Effect::Created, &1).await.expect("taken");
    });
    let ran = world.semel(&["doctor", "--json"]);
    let text = "the clock says TIME, and the ledger believes TIME".to_owned();
    assert_eq!(
        (check(&ran, "clock"), ran.code),
        (("bad".to_owned(), text), 1)
    );
}

#[test]
fn notes_that_cannot_be_delivered_are_counted() {
    let world = healthy();
    let notes = world.path("data/semel.db-notes");
    std::fs::create_dir(&notes).expect("a directory can be made");
    allow(&notes, 0o700);
    std::fs::write(notes.join("damaged.note"), "?").expect("a file can be written");
    let ran = world.semel(&["doctor", "--json"]);
    let text = "1 could not be delivered".to_owned();
    assert_eq!(check(&ran, "notes"), ("warn".to_owned(), text));
}

#[test]
fn a_store_that_is_not_there_or_not_ours_is_bad() {
    let world = World::new();
    let ran = world.semel(&["doctor"]);
    ran.expect(
        1,
        "bad   store        the store is not available: there is no store at DIR/data/semel.db
                   hint: the first operation makes it; or name another with --store
",
        "",
    );
    assert!(!world.path("data").exists());
    std::fs::create_dir(world.path("data")).expect("a directory can be made");
    std::fs::write(
        world.path("data/semel.db"),
        "not a database, but long enough",
    )
    .expect("a file can be written");
    let ran = world.semel(&["doctor", "--json"]);
    assert_eq!((ran.code, check(&ran, "store").0), (1, "bad".to_owned()));
}
