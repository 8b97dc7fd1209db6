//! `semel breaker`, and `semel run --breaker`: processes that live for one call share a breaker.

use std::process::{Child, Command, Stdio};

use semel_testkit::faketime;
use serde_json::{Value, json};

use crate::harness::{Ran, World};
use crate::run::wait_until;

/// Opens after two failures in a row, for longer than a test lasts.
const SETTINGS: &str =
    "[breakers.bank]\nfailures = 2\ncool_down = \"1h\"\ncool_down_max = \"1h\"\n";

fn world() -> World {
    let world = World::new();
    std::fs::write(world.path("semel.toml"), SETTINGS).expect("it can be written");
    world
}

/// Prepares a line of shell before the bank.
fn command(world: &World, key: &str, script: &str) -> Command {
    let words = ["run", "--json", "--breaker", "bank", "--key", key];
    world.command(&[&words[..], &["--", "sh", "-c", script]].concat())
}

/// Runs a line of shell before the bank.
fn run(world: &World, key: &str, script: &str) -> Ran {
    world.run(&mut command(world, key, script))
}

/// Runs a line of shell before the bank, by a clock that is off by this.
fn run_at(world: &World, offset: &str, key: &str, script: &str) -> Ran {
    let mut command = command(world, key, script);
    world.run(command.envs(faketime::environment(offset)))
}

fn breaker(world: &World) -> Value {
    let mut listed = world.semel(&["breaker", "list", "--json"]).json();
    assert_eq!(listed.len(), 1, "{listed:?}");
    listed.remove(0)
}

fn ran(world: &World) -> usize {
    let text = std::fs::read_to_string(world.path("ran")).unwrap_or_default();
    text.lines().count()
}

#[test]
fn processes_that_fail_open_it_for_those_that_come_later() {
    let world = world();
    assert_eq!(run(&world, "good", "echo x >> ran").code, 0);
    for key in ["bad-1", "bad-2"] {
        assert_eq!(run(&world, key, "echo x >> ran; exit 3").code, 3);
    }
    assert_eq!(
        (ran(&world), &breaker(&world)["state"]),
        (3, &json!("open"))
    );
    let refused = run(&world, "new", "echo x >> ran");
    assert_eq!(refused.code, 122, "{refused:?}");
    let error = &refused.json()[0]["error"];
    assert_eq!(error["code"], "breaker_open");
    assert_eq!(
        (&error["retryable"], error["retry_at"].is_string()),
        (&json!(true), true)
    );
    assert_eq!(refused.json()[0]["key"], "new", "it is about the command");
    let words = [
        "run",
        "--json",
        "--breaker",
        "bank",
        "--dry-run",
        "--key",
        "new",
        "--",
        "true",
    ];
    let rehearsed = world.semel(&words);
    assert_eq!(rehearsed.code, 122, "{rehearsed:?}");
    assert_eq!(ran(&world), 3, "nothing was run");
    let shown = world.semel(&["show", "new"]);
    assert_eq!(shown.code, 1, "nothing was claimed: {shown:?}");
    // A recorded answer needs no bank, and neither does a command without a breaker.
    let replayed = run(&world, "good", "echo x >> ran");
    assert_eq!(
        (replayed.code, &replayed.json()[0]["replayed"]),
        (0, &json!(true))
    );
    assert_eq!(
        world.semel(&["run", "--key", "other", "--", "true"]).code,
        0
    );
    let words = ["run", "--breaker", "bank", "--retry", "--key", "good"];
    let good = world.semel(&[&words[..], &["--", "sh", "-c", "echo x >> ran"]].concat());
    assert_eq!(good.code, 0, "it is done, and not retried: {good:?}");
    // What failed stays as it is: the retry is refused before it is taken back.
    let words = ["run", "--breaker", "bank", "--retry", "--key", "bad-1"];
    let retried = world.semel(&[&words[..], &["--", "sh", "-c", "echo x >> ran; exit 3"]].concat());
    assert_eq!(retried.code, 122, "{retried:?}");
    assert_eq!(
        run(&world, "bad-1", "echo x >> ran; exit 3").code,
        3,
        "a replay"
    );
    assert_eq!(ran(&world), 3);
    assert_eq!(world.semel(&["verify"]).code, 0);
}

#[test]
fn a_breaker_is_no_operation() {
    let world = world();
    run(&world, "bad", "exit 3");
    assert_eq!(world.semel(&["list", "--json"]).json().len(), 1);
    assert_eq!(world.semel(&["show", "bank"]).code, 1);
    let stats = world.semel(&["stats", "--json"]).json();
    assert!(!stats[0].to_string().contains("closed"), "{stats:?}");
}

#[test]
fn people_open_and_close_it_and_the_log_says_who() {
    let world = world();
    let opened = world.semel(&[
        "breaker", "open", "bank", "--for", "30m", "--note", "why", "--json",
    ]);
    let opened = opened.json();
    assert_eq!(opened[0]["effect"], "updated");
    assert_eq!(
        (&opened[0]["state"], &opened[0]["note"]),
        (&json!("open"), &json!("why"))
    );
    assert_eq!(run(&world, "k", "echo x >> ran").code, 122);
    assert_eq!(world.semel(&["breaker", "close", "bank"]).code, 0);
    let again = world.semel(&["breaker", "close", "bank", "--json"]).json();
    assert_eq!(again[0]["effect"], "noop");
    assert_eq!(run(&world, "k", "echo x >> ran").code, 0);
    assert_eq!(world.semel(&["breaker", "reset", "bank"]).code, 0);
    let unknown = world.semel(&["breaker", "close", "nobody", "--json"]);
    assert_eq!(
        (unknown.code, &unknown.json()[0]["error"]["code"]),
        (1, &json!("not_found"))
    );
    let log = world.semel(&["log", "--json"]).json();
    let of_bank = log.iter().filter(|it| it["key"] == "bank");
    let told: Vec<_> = of_bank
        .map(|it| (it["command"].clone(), it["state"].clone()))
        .collect();
    let expected = [
        ("breaker_opened", "open"),
        ("breaker_closed", "closed"),
        ("breaker_counted", "closed"),
        ("breaker_reset", "closed"),
    ];
    assert_eq!(
        told,
        expected.map(|(command, state)| (json!(command), json!(state)))
    );
    assert!(
        log.iter()
            .filter(|it| it["command"] == "breaker_opened")
            .all(|it| it["by"].is_string())
    );
}

/// Nobody hears of a process that is killed: its place is kept until it has been silent for too long.
#[test]
fn the_place_of_a_killed_probe_lapses_and_the_next_caller_probes() {
    let world = World::new();
    let quick = "[breakers.bank]\nfailures = 1\ncool_down = \"1s\"\ncool_down_max = \"1s\"\n";
    std::fs::write(world.path("semel.toml"), quick).expect("it can be written");
    assert_eq!(run(&world, "bad", "echo x >> ran; exit 3").code, 3);
    // The child of a killed process goes on until this file is gone, which is at the end of the test at the latest.
    std::fs::write(world.path("hold"), "").expect("it can be written");
    let held = "echo x >> ran; while [ -e hold ]; do sleep 0.02; done";
    wait_until("its time has come", || {
        world.now(|engine| async move {
            let breakers = engine.breakers(None).await.expect("they are listed");
            let next = breakers.first().and_then(|it| it.retry_at);
            next.is_some_and(|at| at <= engine.store().now())
        })
    });
    let mut holder = started(&world, held);
    wait_until("the probe runs", || ran(&world) == 2);
    assert_eq!(breaker(&world)["state"], "half_open");
    assert_eq!(run(&world, "beside", "echo x >> ran").code, 122);
    holder.kill().expect("it can be killed");
    holder.wait().expect("it ends");
    // It is dead, and nobody knows that yet; nobody else gets its place.
    for key in ["a", "b", "c"] {
        let refused = run(&world, key, "echo x >> ran");
        assert_eq!(refused.code, 122, "{refused:?}");
        assert_eq!(refused.json()[0]["error"]["code"], "breaker_open");
    }
    assert_eq!(run_at(&world, "+30s", "d", "echo x >> ran").code, 122);
    assert_eq!(
        (ran(&world), &breaker(&world)["state"]),
        (2, &json!("half_open"))
    );
    // After its lease of a minute the next caller is the probe: one that fails opens it again, one that does not closes it.
    let failed = run_at(&world, "+2m", "e", "echo x >> ran; exit 3");
    assert_eq!((failed.code, ran(&world)), (3, 3), "{failed:?}");
    assert_eq!(breaker(&world)["state"], "open");
    let next = run_at(&world, "+4m", "f", "echo x >> ran");
    assert_eq!((next.code, ran(&world)), (0, 4), "{next:?}");
    assert_eq!(breaker(&world)["state"], "closed");
    let log = world.semel(&["log", "--limit", "1000", "--json"]).json();
    let probes = log
        .iter()
        .filter(|it| it["command"] == "breaker_half_open")
        .count();
    assert_eq!(probes, 3, "{log:?}");
    assert_eq!(world.semel(&["verify"]).code, 0);
}

fn started(world: &World, script: &str) -> Child {
    let mut command = command(world, "probe", script);
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("semel runs")
}

/// Whoever ends a command says nothing of the bank; not even as the probe, whose place is free again.
#[test]
fn a_command_that_is_ended_by_hand_counts_as_nothing() {
    let world = World::new();
    let settings = SETTINGS.replace("cool_down = \"1h\"", "cool_down = \"1m\"");
    std::fs::write(world.path("semel.toml"), settings).expect("it can be written");
    let end = |key: &str, offset: Option<&str>| {
        let mut slow = command(&world, key, "echo x >> ran; exec sleep 600");
        if let Some(offset) = offset {
            slow.envs(faketime::environment(offset));
        }
        let before = ran(&world);
        let child = slow.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut child = child.expect("it starts");
        wait_until("it runs", || ran(&world) > before);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
        let ended = child.wait().expect("it ends");
        assert_eq!(ended.code(), Some(143), "{ended:?}");
    };
    for n in 0..3 {
        end(&format!("slow-{n}"), None);
    }
    let listed = world.semel(&["breaker", "list", "--json"]).json();
    assert!(
        listed.iter().all(|it| it["state"] == "closed"),
        "{listed:?}"
    );
    for key in ["bad-1", "bad-2"] {
        run(&world, key, "exit 3");
    }
    assert_eq!(breaker(&world)["state"], "open");
    end("probe", Some("+2m"));
    assert_eq!(breaker(&world)["times_opened"], 1);
    assert_eq!(run_at(&world, "+2m", "next", "true").code, 0);
    assert_eq!(breaker(&world)["state"], "closed");
}

/// What people decide is tried out first, and why they did is kept.
#[test]
fn an_order_is_rehearsed_and_its_note_is_in_the_log() {
    let world = world();
    run(&world, "good", "true");
    let rehearsed = world.semel(&["breaker", "open", "bank", "--dry-run", "--json"]);
    let rehearsed = &rehearsed.json()[0];
    assert_eq!(
        (&rehearsed["effect"], &rehearsed["state"]),
        (&json!("would_update"), &json!("closed"))
    );
    assert_eq!(breaker(&world)["state"], "closed");
    world.semel(&["breaker", "open", "bank"]);
    world.semel(&["breaker", "close", "bank", "--note", "the bank is back"]);
    let log = world.semel(&["log", "--json"]).json();
    let closed = log.iter().find(|it| it["command"] == "breaker_closed");
    assert_eq!(
        closed.map(|it| &it["note"]),
        Some(&json!("the bank is back")),
        "{log:?}"
    );
    assert_eq!(
        world
            .semel(&["breaker", "open", "bank", "--for", "400d"])
            .code,
        64
    );
}
