//! `semel submit` and `semel work`, as people and programs meet them.

use std::fs;

use serde_json::{Value, json};

use crate::harness::World;
use crate::workers::{Process, wait_until};

/// Submits a task; returns its receipt.
fn submit(world: &World, key: &str, input: &str, more: &[&str]) -> Value {
    let mut words = vec!["submit", "mail", "--key", key, "--input", input, "--json"];
    words.extend(more);
    let ran = world.semel(&words);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.json().remove(0)
}

/// Works until the queue is empty; returns the receipts.
fn work(world: &World, more: &[&str], script: &str) -> Vec<Value> {
    let mut words = vec!["work", "mail", "--until-empty", "--json"];
    words.extend(more);
    words.extend(["--", "sh", "-c", script]);
    let ran = world.semel(&words);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.json()
}

fn show(world: &World, key: &str) -> Value {
    world.semel(&["show", key, "--json"]).json().remove(0)
}

#[test]
fn a_task_is_carried_out_by_a_command_that_is_told_what_it_is() {
    let world = World::new();
    let receipt = submit(&world, "ann/7", r#"{"to": "ann"}"#, &[]);
    assert_eq!(
        (&receipt["effect"], &receipt["state"]),
        (&json!("created"), &json!("pending"))
    );
    let script = r#"
        printf '{"effect": "created", "input": %s, "who": "%s %s %s %s %s %s"}' "$(cat)" \
            "$SEMEL_KEY" "$SEMEL_ATTEMPT" "$SEMEL_FENCE" "$SEMEL_NAMESPACE" "$SEMEL_QUEUE" "$SEMEL_NAME""#;
    let done = work(&world, &[], script);
    assert_eq!(done.len(), 1);
    let expected = json!({
        "effect": "created", "input": {"to": "ann"}, "who": "ann/7 1 1 default mail mail",
    });
    assert_eq!(
        (&done[0]["ok"], &done[0]["data"]),
        (&json!(true), &expected)
    );
    assert_eq!(done[0]["effect"], "created");
    let again = submit(&world, "ann/7", r#"{"to":"ann"}"#, &[]);
    assert_eq!(
        (&again["effect"], &again["state"]),
        (&json!("noop"), &json!("succeeded"))
    );
    assert_eq!(again["data"], expected);
    let record = show(&world, "ann/7");
    assert_eq!(
        (&record["door"], &record["lane"]),
        (&json!("queue"), &json!("ann"))
    );
    assert_eq!(
        (&record["input"], &record["priority"]),
        (&json!({"to": "ann"}), &json!(0))
    );
    let other = world.semel(&["submit", "mail", "--key", "ann/7", "--input", "8"]);
    assert_eq!(other.code, 121, "{other:?}");
    assert!(work(&world, &[], "exit 1").is_empty());
}

#[test]
fn an_exit_code_is_a_verdict() {
    let world = World::new();
    for (key, exit) in [
        ("ok", 0),
        ("failed", 3),
        ("rejected", 65),
        ("other", 66),
        ("unknown", 255),
    ] {
        submit(&world, key, &exit.to_string(), &[]);
    }
    submit(&world, "killed", "0", &[]);
    let script = r#"[ "$SEMEL_KEY" = killed ] && kill -9 $$; exit "$(cat)""#;
    let done = work(&world, &["--reject-exit", "66"], script);
    let mut states: Vec<_> = done
        .iter()
        .map(|it| {
            (
                it["key"].as_str().expect("a key"),
                it["state"].as_str().expect("a state"),
            )
        })
        .collect();
    states.sort_unstable();
    assert_eq!(
        states,
        [
            ("failed", "failed"),
            ("killed", "doubtful"),
            ("ok", "succeeded"),
            ("other", "dead"),
            ("rejected", "dead"),
            ("unknown", "doubtful"),
        ]
    );
    assert_eq!(show(&world, "failed")["data"]["exit_code"], 3);
    assert_eq!(show(&world, "rejected")["effect"], "noop");
}

#[test]
fn what_asks_to_be_tried_again_is_until_it_is_done_or_dead() {
    let world = World::new();
    submit(&world, "third", "1", &[]);
    submit(&world, "never", "2", &["--max-attempts", "2"]);
    let script =
        r#"echo "$SEMEL_KEY" >> log; [ "$SEMEL_KEY$SEMEL_ATTEMPT" = third3 ] || exit 69; echo 1"#;
    let done = work(&world, &["--retry-exit", "69"], script);
    let last = |key: &str| {
        done.iter()
            .rfind(|it| it["key"] == key)
            .expect("told")
            .clone()
    };
    assert_eq!(
        (&last("third")["state"], &last("third")["attempt"]),
        (&json!("succeeded"), &json!(3))
    );
    assert_eq!(last("never")["state"], "dead");
    let log = fs::read_to_string(world.path("log")).expect("there was an effect");
    assert_eq!(log.lines().filter(|line| *line == "never").count(), 2);
    let errors = show(&world, "never")["attempts"].clone();
    let errors: Vec<_> = errors
        .as_array()
        .expect("attempts")
        .iter()
        .map(|it| it["error"].clone())
        .collect();
    assert_eq!(errors.len(), 2);
    assert!(
        errors
            .iter()
            .all(|error| error.as_str().is_some_and(|it| it.contains("69"))),
        "{errors:?}"
    );
}

#[test]
fn a_command_may_say_when_it_is_to_be_tried_again() {
    let world = World::new();
    submit(&world, "later", "1", &[]);
    let mut words = vec!["work", "mail", "--json", "--", "sh", "-c"];
    words.push(r#"echo '{"retry_after_ms": 3600000}'; exit 75"#);
    let worker = Process::start(&mut world.command(&words));
    wait_until("it was tried", || {
        show(&world, "later")["attempt"] == 1 && show(&world, "later")["state"] == "pending"
    });
    drop(worker);
    let minutes = world.semel(&["list", "--state", "pending"]).stdout;
    assert!(
        minutes.contains("waits for 59 min") || minutes.contains("waits for 1 h"),
        "{minutes}"
    );
}

#[test]
fn a_command_that_hangs_is_ended_and_its_task_is_in_doubt() {
    let world = World::new();
    submit(&world, "hangs", "1", &[]);
    submit(&world, "next", "2", &[]);
    let script = r#"[ "$SEMEL_KEY" = next ] || exec sleep 600"#;
    let done = work(&world, &["--timeout", "200ms"], script);
    let state = |key: &str| done.iter().find(|it| it["key"] == key).expect("told")["state"].clone();
    assert_eq!(
        (state("hangs"), state("next")),
        (json!("doubtful"), json!("succeeded"))
    );
}

#[test]
fn higher_priorities_go_first_and_delayed_tasks_wait() {
    let world = World::new();
    submit(&world, "low", "1", &["--priority", "-5"]);
    submit(&world, "first", "1", &[]);
    submit(&world, "second", "1", &[]);
    submit(&world, "high", "1", &["--priority", "7"]);
    submit(&world, "later", "1", &["--delay", "1h"]);
    submit(&world, "next-year", "1", &["--at", "2099-01-01T00:00:00Z"]);
    let done = work(&world, &[], "true");
    let keys: Vec<_> = done
        .iter()
        .map(|it| it["key"].as_str().expect("a key"))
        .collect();
    assert_eq!(keys, ["high", "first", "second", "low"]);
    let waits = world.semel(&["list", "--state", "pending"]).stdout;
    assert!(waits.contains("waits for 59 min"), "{waits}");
}

#[test]
fn whoever_submits_can_wait_for_the_result() {
    let world = World::new();
    let worker = Process::start(&mut world.command(&[
        "work",
        "mail",
        "--",
        "sh",
        "-c",
        "cat; exit $(($(cat) + 0))",
    ]));
    let waited = submit(&world, "a", "7", &["--wait", "1m"]);
    assert_eq!(
        (&waited["state"], &waited["data"]),
        (&json!("succeeded"), &json!(7))
    );
    drop(worker);
    let none = world.semel(&[
        "submit", "mail", "--key", "b", "--input", "7", "--wait", "10ms",
    ]);
    assert_eq!(none.code, 122, "{none:?}");
    let done = work(&world, &[], "exit 4");
    assert_eq!(done[0]["state"], "failed");
    let failed = world.semel(&[
        "submit", "mail", "--key", "b", "--input", "7", "--wait", "1m",
    ]);
    assert_eq!(failed.code, 1, "{failed:?}");
    submit(&world, "c", "7", &[]);
    work(&world, &[], "exit 65");
    let dead = world.semel(&[
        "submit", "mail", "--key", "c", "--input", "7", "--wait", "1m",
    ]);
    assert_eq!(dead.code, 123, "{dead:?}");
}

#[test]
fn a_dry_run_writes_nothing() {
    let world = World::new();
    submit(&world, "a", "1", &[]);
    let entries = world.entries();
    let words = [
        "submit",
        "mail",
        "--key",
        "b",
        "--input",
        "1",
        "--dry-run",
        "--json",
    ];
    let would = world.semel(&words).json().remove(0);
    assert_eq!(would["effect"], "would_create");
    let known = world.semel(&["submit", "mail", "--key", "a", "--input", "1", "--dry-run"]);
    assert!(known.stdout.contains("nothing would change"), "{known:?}");
    assert_eq!(world.entries(), entries);
}

#[test]
fn a_worker_that_is_told_to_end_lets_its_commands_finish() {
    let world = World::new();
    submit(&world, "a", "1", &[]);
    submit(&world, "b", "1", &[]);
    let script = "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo 1";
    let mut command = world.command(&["work", "mail", "--", "sh", "-c", script]);
    let mut worker = command.spawn().expect("it starts");
    wait_until("a command runs", || world.path("begun").exists());
    let pid = rustix::process::Pid::from_child(&worker);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    fs::write(world.path("go"), "").expect("it can be written");
    let status = worker.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert_eq!(show(&world, "a")["state"], "succeeded");
    assert_eq!(show(&world, "b")["state"], "pending");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_hint() {
    let world = World::new();
    for (words, said) in [
        (
            &["submit", "mail", "--key", "a", "--input", "{"][..],
            "--input is not JSON",
        ),
        (&["submit", "mail", "--input", "1"], "--key"),
        (
            &["submit", "mail", "--key", "a", "--priority", "101"],
            "between -100 and 100",
        ),
        (&["submit", "mail", "--key", " a"], "key"),
        (
            &[
                "submit",
                "mail",
                "--key",
                "a",
                "--delay",
                "1h",
                "--at",
                "2099-01-01T00:00:00Z",
            ],
            "cannot be used with",
        ),
        (
            &["submit", "mail", "--key", "a", "--input", "@missing.json"],
            "missing.json",
        ),
        (&["submit", "", "--key", "a"], "QUEUE"),
        (
            &["work", "mail", "--concurrency", "0", "--", "true"],
            "1..=256",
        ),
        (
            &["work", "mail", "--retry-exit", "0", "--", "true"],
            "0 is success",
        ),
        (&["work", "mail"], "<CMD>"),
        (&["dead", "retry"], "name a KEY"),
        (&["dead", "retry", "--all", "--rate", "10"], "a rate is"),
    ] {
        let ran = world.semel(words);
        assert_eq!(ran.code, 64, "{words:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
    }
    // Nothing was lost or made up on the way.
    let listed = world.semel(&["list"]);
    assert!(!listed.stdout.contains("pending"), "{listed:?}");
}
