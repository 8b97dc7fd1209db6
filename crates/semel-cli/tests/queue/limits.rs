//! `[queues.NAME]`: what the file says about a queue holds for everybody who uses it.

use std::collections::BTreeSet;
use std::fs;

use semel_testkit::postgres::Cluster;
use serde_json::json;

use crate::harness::World;
use crate::workers::{Process, wait_until};

fn world(settings: &str) -> World {
    let world = World::new();
    fs::write(world.path("semel.toml"), settings).expect("it can be written");
    world
}

fn submit(world: &World, key: &str) {
    let ran = world.semel(&["submit", "mail", "--key", key, "--input", "1"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn attempts_and_doubts_are_as_the_file_says() {
    let world = world(
        "[queues.mail]\nmax_attempts = 2\non_doubt = \"retry\"\nbackoff_base = \"1ms\"\nbackoff_cap = \"2ms\"\n",
    );
    submit(&world, "a");
    let record = world.semel(&["show", "a", "--json"]).json().remove(0);
    assert_eq!(
        (&record["max_attempts"], &record["on_doubt"]),
        (&json!(2), &json!("retry"))
    );
    let work = [
        "work",
        "mail",
        "--until-empty",
        "--json",
        "--",
        "sh",
        "-c",
        "exit 75",
    ];
    let done = world.semel(&work).json();
    let states: Vec<_> = done.iter().map(|it| it["state"].as_str()).collect();
    assert_eq!(states, [Some("pending"), Some("dead")]);
}

/// Each command notes when it begins and when it ends, and holds the door open until it is told to go.
const NOTED: &str = "echo + >> log; while [ ! -e go ]; do sleep 0.01; done; echo - >> log";

#[test]
fn no_more_run_at_once_than_the_queue_allows() {
    let world = world("[queues.mail]\nconcurrency = 2\n");
    for n in 0..6 {
        submit(&world, &format!("t{n}"));
    }
    let words = [
        "work",
        "mail",
        "--concurrency",
        "5",
        "--until-empty",
        "--",
        "sh",
        "-c",
        NOTED,
    ];
    let mut worker = Process::start(&mut world.command(&words));
    let begun = || fs::read_to_string(world.path("log")).unwrap_or_default();
    wait_until("two run", || begun().lines().count() >= 2);
    // Another one finds them due, and waits for its turn.
    let mut another = Process::start(&mut world.command(&words));
    assert_eq!(begun().lines().count(), 2);
    fs::write(world.path("go"), "").expect("it can be written");
    wait_until("all are done", || worker.has_ended() && another.has_ended());
    let (mut now, mut most) = (0, 0);
    for line in begun().lines() {
        now += if line == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!((now, most), (0, 2), "{}", begun());
}

/// A folder can be made once: whoever finds it there runs beside another one.
const ALONE: &str = "mkdir busy || echo beside >> beside; echo \"$SEMEL_KEY\" >> sink; rmdir busy 2>/dev/null; true";

/// Many processes ask at once, each for more than one task, and only one command runs at any time.
fn processes_take_turns(store: impl FnOnce(&World) -> String) {
    let world = world("[queues.mail]\nconcurrency = 1\n");
    let store = store(&world);
    let tasks = 120;
    let lines: String = (0..tasks)
        .map(|n| format!("{{\"key\": \"t{n}\"}}\n"))
        .collect();
    fs::write(world.path("tasks"), lines).expect("it can be written");
    let ran = world.semel(&["--store", &store, "submit", "mail", "--batch", "tasks"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let words = ["--store", &store, "work", "mail", "--concurrency", "3"];
    let workers: Vec<_> = (0..6)
        .map(|_| Process::start(world.command(&words).args(["--", "sh", "-c", ALONE])))
        .collect();
    let sink = || fs::read_to_string(world.path("sink")).unwrap_or_default();
    wait_until("all are done", || sink().lines().count() >= tasks);
    drop(workers);
    let keys: BTreeSet<_> = sink().lines().map(str::to_owned).collect();
    assert_eq!((keys.len(), sink().lines().count()), (tasks, tasks));
    assert!(!world.path("beside").exists(), "two ran side by side");
}

#[test]
fn processes_on_one_file_take_turns() {
    processes_take_turns(|world| format!("sqlite:{}", world.path("turns.db").display()));
}

#[test]
fn processes_on_one_database_take_turns() {
    processes_take_turns(|_| Cluster::shared().database());
}

#[test]
fn wrong_settings_are_named() {
    for (settings, said) in [
        (
            "[queues.mail]\nrate = \"fast\"\n",
            "queues.mail: rate: a rate is",
        ),
        ("[queues.mail]\nmax_attempt = 3\n", "max_attempts"),
        ("[queues.mail]\non_doubt = \"guess\"\n", "on_doubt"),
        ("[queues.mail]\nconcurrency = 0\n", "queues.mail"),
        (
            "[queues.mail]\nbackoff_base = \"2h\"\nbackoff_cap = \"1h\"\n",
            "a backoff begins",
        ),
        ("queues = 7\n", "must be a table"),
    ] {
        let ran = world(settings).semel(&["list"]);
        assert_eq!(ran.code, 64, "{settings}: {ran:?}");
        assert!(ran.stderr.contains(said), "{settings}: {}", ran.stderr);
    }
}

/// A queue that lets few through at a time is not empty for that.
#[test]
fn a_worker_stays_until_a_slow_queue_is_empty() {
    let world = world("[queues.mail]\nrate = \"5/s\"\nlane_rate = \"4/s\"\n");
    for n in 0..12 {
        submit(&world, &format!("ann/{n}"));
    }
    let ran = world.semel(&["work", "mail", "--until-empty", "--json", "--", "true"]);
    assert_eq!((ran.code, ran.json().len()), (0, 12), "{ran:?}");
}
