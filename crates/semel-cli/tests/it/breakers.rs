//! `semel breaker`, and `semel run --breaker`: processes that live for one call share a breaker.

use serde_json::{Value, json};

use crate::harness::{Ran, World};

/// Opens after two failures in a row, for longer than a test lasts.
const SETTINGS: &str =
    "[breakers.bank]\nfailures = 2\ncool_down = \"1h\"\ncool_down_max = \"1h\"\n";

fn world() -> World {
    let world = World::new();
    std::fs::write(world.path("semel.toml"), SETTINGS).expect("it can be written");
    world
}

/// Runs a line of shell before the bank.
fn run(world: &World, key: &str, script: &str) -> Ran {
    let words = ["run", "--json", "--breaker", "bank", "--key", key];
    world.semel(&[&words[..], &["--", "sh", "-c", script]].concat())
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
