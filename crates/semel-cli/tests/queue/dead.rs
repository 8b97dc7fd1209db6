//! `semel dead`: tasks that no worker takes any more.

use std::fs;

use serde_json::{Value, json};

use crate::harness::World;

fn submit(world: &World, queue: &str, key: &str) {
    let ran = world.semel(&["submit", queue, "--key", key, "--input", "1"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

fn work(world: &World, queue: &str, script: &str) {
    let ran = world.semel(&["work", queue, "--until-empty", "--", "sh", "-c", script]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

fn keys(listed: &[Value]) -> Vec<&str> {
    let mut keys: Vec<_> = listed.iter().filter_map(|it| it["key"].as_str()).collect();
    keys.sort_unstable();
    keys
}

fn state(world: &World, key: &str) -> Value {
    world.semel(&["show", key, "--json"]).json().remove(0)["state"].clone()
}

#[test]
fn dead_and_held_tasks_are_listed_and_shown_with_every_error() {
    let world = World::new();
    for key in ["dead-1", "dead-2"] {
        submit(&world, "mail", key);
    }
    work(&world, "mail", "echo 'no such address' >&2; exit 65");
    submit(&world, "mail", "held");
    work(&world, "mail", "kill -9 $$");
    // A command that was interrupted is no task.
    world.semel(&["run", "--key", "direct", "--", "sh", "-c", "kill -9 $$"]);
    let listed = world.semel(&["dead", "list", "--json"]).json();
    assert_eq!(keys(&listed), ["dead-1", "dead-2", "held"]);
    let only = world
        .semel(&["dead", "list", "--state", "dead", "--json"])
        .json();
    assert_eq!(keys(&only), ["dead-1", "dead-2"]);
    let shown = world
        .semel(&["dead", "show", "dead-1", "--json"])
        .json()
        .remove(0);
    let error = shown["attempts"][0]["error"].as_str().expect("an error");
    assert!(error.contains("no such address"), "{shown}");
}

#[test]
fn dead_tasks_are_retried_by_filter_with_what_they_were_given() {
    let world = World::new();
    for (queue, key) in [("mail", "a"), ("mail", "b"), ("other", "c")] {
        submit(&world, queue, key);
        work(&world, queue, "exit 65");
    }
    let entries = world.entries();
    let would = world.semel(&["dead", "retry", "--queue", "mail", "--dry-run", "--json"]);
    assert_eq!((would.code, would.json().len()), (0, 2), "{would:?}");
    assert_eq!(would.json()[0]["effect"], "would_update");
    assert_eq!(world.entries(), entries, "a dry run writes nothing");
    let retried = world.semel(&[
        "dead", "retry", "--queue", "mail", "--rate", "100/s", "--json",
    ]);
    assert_eq!(keys(&retried.json()), ["a", "b"]);
    assert_eq!(
        (state(&world, "a"), state(&world, "c")),
        (json!("pending"), json!("dead"))
    );
    work(&world, "mail", "cat >> log");
    assert_eq!(
        fs::read_to_string(world.path("log")).expect("an effect"),
        "11"
    );
    assert_eq!(state(&world, "b"), "succeeded");
    // What is done stays done, however often it is retried.
    let again = world.semel(&["dead", "retry", "--queue", "mail"]);
    assert_eq!(again.code, 0, "{again:?}");
    work(&world, "mail", "cat >> log");
    assert_eq!(
        fs::read_to_string(world.path("log")).expect("an effect"),
        "11"
    );
}

#[test]
fn a_dead_task_is_discarded_and_a_doubt_is_not() {
    let world = World::new();
    submit(&world, "mail", "dead");
    work(&world, "mail", "exit 65");
    submit(&world, "mail", "held");
    work(&world, "mail", "kill -9 $$");
    submit(&world, "mail", "waits");
    for verb in ["retry", "discard"] {
        let held = world.semel(&["dead", verb, "held"]);
        assert_eq!(held.code, 120, "{held:?}");
        let waits = world.semel(&["dead", verb, "waits"]);
        assert_eq!(waits.code, 64, "{waits:?}");
    }
    let discarded = world.semel(&["dead", "discard", "--all", "--note", "the customer left"]);
    assert_eq!(discarded.code, 0, "{discarded:?}");
    let record = world.semel(&["show", "dead", "--json"]).json().remove(0);
    assert_eq!(
        (&record["state"], &record["effect"]),
        (&json!("failed"), &json!("noop"))
    );
    assert_eq!(state(&world, "held"), "doubtful");
    let resolved = world.semel(&["resolve", "held", "--not-done", "--yes"]);
    assert_eq!(resolved.code, 0, "{resolved:?}");
    work(&world, "mail", "echo done");
    assert_eq!(state(&world, "held"), "succeeded");
}

#[test]
fn a_batch_that_comes_again_finds_what_is_dead_or_held() {
    let world = World::new();
    submit(&world, "mail", "dead");
    work(&world, "mail", "exit 65");
    submit(&world, "mail", "held");
    work(&world, "mail", "kill -9 $$");
    let lines = "{\"key\": \"dead\", \"input\": 1}\n{\"key\": \"held\", \"input\": 1}\n";
    fs::write(world.path("batch"), lines).expect("it can be written");
    let again = world.semel(&["submit", "mail", "--batch", "batch"]);
    again.expect(0, "0 submitted, 2 known already, 0 refused\n", "");
}

/// Only what is dead is retried or discarded here, whatever was decided about it before: what is not may have acted.
#[test]
fn what_is_not_dead_is_left_alone() {
    let world = World::new();
    submit(&world, "mail", "a");
    work(&world, "mail", "exit 65");
    for _ in 0..2 {
        let retried = world.semel(&["dead", "retry", "a"]);
        assert_eq!(retried.code, 0, "the same again is the same: {retried:?}");
    }
    let discarded = world.semel(&["dead", "discard", "a"]);
    assert_eq!(discarded.code, 64, "it is pending: {discarded:?}");
    work(&world, "mail", "echo effect >> sink; exit 3");
    assert_eq!(state(&world, "a"), "failed");
    let retried = world.semel(&["dead", "retry", "a"]);
    assert_eq!(retried.code, 64, "{retried:?}");
    work(&world, "mail", "echo effect >> sink; exit 3");
    let sink = fs::read_to_string(world.path("sink")).expect("it acted");
    assert_eq!(sink, "effect\n");
    submit(&world, "mail", "b");
    work(&world, "mail", "exit 65");
    for _ in 0..2 {
        let discarded = world.semel(&["dead", "discard", "b"]);
        assert_eq!(discarded.code, 0, "{discarded:?}");
    }
    assert_eq!(world.semel(&["dead", "retry", "b"]).code, 64);
    assert_eq!(state(&world, "b"), "failed");
}
