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

/// What a command has started does not act beside the next attempt.
#[test]
fn a_timeout_ends_all_that_a_command_has_started() {
    let world = World::new();
    submit(&world, "a", "1", &[]);
    let script = "(trap '' TERM; sleep 600; echo late > late) & echo $! > begun; wait; true";
    let done = work(&world, &["--timeout", "1s"], script);
    assert_eq!(done[0]["state"], "doubtful");
    let begun = fs::read_to_string(world.path("begun")).expect("it began");
    // One that nobody has collected has ended, too.
    wait_until("it has ended", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", begun.trim()));
        stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    });
    assert!(!world.path("late").exists());
}

/// Of a batch with lines that are no tasks the others are submitted, and each that is not is named.
#[test]
fn a_bad_line_of_a_batch_is_named_and_the_others_are_submitted() {
    let world = World::new();
    let mut lines: Vec<_> = (0..300).map(|n| format!("{{\"key\": \"t{n}\"}}")).collect();
    lines.insert(7, "garbage".to_owned());
    lines.insert(200, "{\"key\": \"\"}".to_owned());
    fs::write(world.path("batch"), lines.join("\n")).expect("it can be written");
    let ran = world.semel(&["submit", "mail", "--batch", "batch"]);
    assert_eq!(ran.code, 64, "{ran:?}");
    assert_eq!(ran.stdout, "300 submitted, 0 known already, 2 refused\n");
    for said in ["batch, line 8: ", "batch, line 201: "] {
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
}

#[test]
fn a_batch_keeps_the_order_of_its_lines() {
    let world = World::new();
    // Each key twice: the first is the one that counts.
    let lines: String = (0..400)
        .map(|n| format!("{{\"key\": \"t{}\", \"input\": {}}}\n", n % 200, n / 200))
        .chain(
            (0..20)
                .map(|n| format!("{{\"key\": \"u{n}\"}}\n{{\"key\": \"u{n}\", \"input\": 1}}\n")),
        )
        .collect();
    fs::write(world.path("batch"), lines).expect("it can be written");
    let ran = world.semel(&["submit", "mail", "--batch", "batch", "--json"]);
    assert_eq!(ran.code, 121, "{ran:?}");
    let effects: Vec<_> = ran.json().iter().map(|it| it["effect"].clone()).collect();
    assert!(effects[..200].iter().all(|effect| effect == "created"));
    assert!(effects[200..400].iter().all(|effect| effect.is_null()));
    let done = work(&world, &[], "true");
    let keys: Vec<_> = done.iter().filter_map(|it| it["key"].as_str()).collect();
    let expected: Vec<_> = (0..200)
        .map(|n| format!("t{n}"))
        .chain((0..20).map(|n| format!("u{n}")))
        .collect();
    assert_eq!(keys, expected);
}

/// Whatever a command says, its result is kept, and why it failed.
#[test]
fn a_result_is_kept_whatever_else_is_said() {
    let world = World::new();
    for key in ["bytes", "chatty", "later", "why"] {
        submit(&world, key, "1", &[]);
    }
    let script = r#"
        case "$SEMEL_KEY$SEMEL_ATTEMPT" in
            bytes1) printf '\377\376';;
            chatty1) head -c 9000000 /dev/zero | tr '\0' y >&2; echo '{"effect": "created", "id": 42}';;
            later1) head -c 9000000 /dev/zero | tr '\0' y >&2; echo '{"retry_after_ms": 3600000}'; exit 75;;
            why1) printf 'caf\351 failed\n' >&2; exit 65;;
        esac"#;
    let words = ["work", "mail", "--json", "--", "sh", "-c", script];
    let mut worker = Process::start(&mut world.command(&words));
    for (key, state) in [
        ("bytes", "succeeded"),
        ("chatty", "succeeded"),
        ("why", "dead"),
    ] {
        wait_until("it is over", || show(&world, key)["state"] == state);
    }
    wait_until("it was tried", || show(&world, "later")["attempt"] == 1);
    wait_until("it waits", || show(&world, "later")["state"] == "pending");
    worker.terminate();
    wait_until("it ends", || worker.has_ended());
    assert_eq!(show(&world, "bytes")["data"], json!({"base64": "//4="}));
    let chatty = show(&world, "chatty");
    assert_eq!(
        (&chatty["effect"], &chatty["data"]["id"]),
        (&json!("created"), &json!(42))
    );
    // As it is: the harness hides times.
    let later = world.command(&["show", "later", "--json"]).output();
    let later: Value = serde_json::from_slice(&later.expect("it runs").stdout).expect("a record");
    let time = |member: &str| -> semel::Timestamp {
        let text = later[member].as_str().expect("a time");
        text.parse().expect("a time")
    };
    let put_off = time("run_at").since(time("created_at"));
    assert!(put_off.as_secs() >= 3_600, "{later}");
    let why = show(&world, "why")["attempts"][0]["error"].to_string();
    assert!(why.contains("failed"), "{why}");
}

#[test]
fn whoever_waits_is_answered_like_everybody_else() {
    let world = World::new();
    submit(&world, "a", "1", &[]);
    let words = [
        "submit", "mail", "--key", "a", "--wait", "--input", "1", "--json",
    ];
    let mut waiting = world.command(&words);
    let waiting = std::thread::spawn(move || waiting.output().expect("it runs"));
    work(&world, &[], "echo 7");
    let waited = waiting.join().expect("it ends");
    let waited: Value = serde_json::from_slice(&waited.stdout).expect("a receipt");
    let again = world.semel(&words).json().remove(0);
    for receipt in [&waited, &again] {
        assert_eq!(
            ["effect", "original_effect", "replayed", "data"].map(|it| receipt[it].clone()),
            [json!("noop"), json!("updated"), json!(true), json!(7)],
            "{receipt}"
        );
    }
}

#[test]
fn a_second_submission_that_asks_for_other_policies_is_told_so() {
    let world = World::new();
    let first = submit(&world, "a", "1", &["--max-attempts", "3"]);
    assert_eq!(first["policy_kept"], Value::Null);
    let second = submit(
        &world,
        "a",
        "1",
        &["--max-attempts", "9", "--on-doubt", "retry"],
    );
    assert!(second["policy_kept"].is_string(), "{second}");
}

/// A doubt that a worker takes up again is waited for, as what was not done is.
#[test]
fn a_worker_stays_for_a_doubt_that_it_takes_up_again() {
    let world = World::new();
    fs::write(
        world.path("semel.toml"),
        "[queues.mail]\nbackoff_base = \"1ms\"\nbackoff_cap = \"100ms\"\n",
    )
    .expect("it can be written");
    submit(&world, "a", "1", &["--on-doubt", "retry"]);
    submit(&world, "b", "1", &["--on-doubt", "hold"]);
    let done = work(&world, &[], "[ $SEMEL_ATTEMPT = 1 ] && kill -9 $$; echo 1");
    let states: Vec<_> = done
        .iter()
        .map(|it| (it["key"].as_str(), it["state"].as_str()))
        .collect();
    assert!(
        states.contains(&(Some("a"), Some("succeeded"))),
        "{states:?}"
    );
    assert_eq!(show(&world, "b")["state"], "doubtful");
}

#[test]
fn the_second_signal_ends_what_will_not_end() {
    let world = World::new();
    submit(&world, "a", "1", &[]);
    let script = "trap '' TERM; echo begun > begun; while :; do sleep 1; done";
    let words = ["work", "mail", "--", "sh", "-c", script];
    let mut worker = Process::start(&mut world.command(&words));
    wait_until("it runs", || world.path("begun").exists());
    worker.terminate();
    worker.terminate();
    // Signals of one kind that come together are one.
    wait_until("it ends", || {
        if worker.has_ended() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        worker.terminate();
        false
    });
    assert_eq!(show(&world, "a")["state"], "doubtful");
}

/// Nobody else looks: whoever waits for the result notices that its worker is gone.
#[test]
fn whoever_waits_notices_that_a_worker_is_gone() {
    let world = World::new();
    submit(&world, "a", "1", &[]);
    let words = [
        "work",
        "mail",
        "--",
        "sh",
        "-c",
        "echo $$ > begun; exec sleep 600",
    ];
    let mut worker = Process::start(&mut world.command(&words));
    let child = || fs::read_to_string(world.path("begun")).unwrap_or_default();
    wait_until("it runs", || child().ends_with('\n'));
    worker.kill();
    let pid = rustix::process::Pid::from_raw(child().trim().parse().expect("a number"));
    rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::KILL)
        .expect("it is ours");
    let words = [
        "submit", "mail", "--key", "a", "--input", "1", "--wait", "50s", "--json",
    ];
    let waited = world.semel(&words);
    assert_eq!(waited.code, 120, "{waited:?}");
}

#[test]
fn key_of_a_task_is_no_code_of_its_worker() {
    let world = World::new();
    let key = "$(touch pwned)";
    let submitted = world.semel(&["submit", "mail", "--key", key]);
    assert_eq!(submitted.code, 0, "{submitted:?}");
    let work = ["work", "mail", "--until-empty", "--"];
    for command in [
        &["sh", "-c", "echo {key}"][..],
        &["sh", "-c", "echo \"{key}\""],
    ] {
        let ran = world.semel(&[&work, command].concat());
        assert!(!world.path("pwned").exists(), "{command:?}: {ran:?}");
        assert_eq!(ran.code, 64, "{command:?}: {ran:?}");
        assert!(ran.stderr.contains("$SEMEL_KEY"), "{ran:?}");
    }
    let script = "printf '%s\n' \"$SEMEL_KEY\" \"$1\" > seen";
    let ran = world.semel(&[&work[..], &["sh", "-c", script, "sh", "{key}"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let seen = fs::read_to_string(world.path("seen")).expect("it was written");
    assert_eq!(seen, format!("{key}\n{key}\n"));
    assert!(!world.path("pwned").exists());
}
