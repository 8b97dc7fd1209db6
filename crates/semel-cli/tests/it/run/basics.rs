use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use super::{Sandbox, Told, piped};

const SEND: &str = "echo sent | tee -a sent.log; echo noted >&2";

#[test]
fn the_first_call_runs_and_the_second_replays_byte_for_byte() {
    let sandbox = Sandbox::new();
    let first = sandbox.run("hello", SEND);
    assert_eq!(
        (first.exit, &*first.out(), &*first.err()),
        (0, "sent\n", "noted\n")
    );
    assert_eq!(sandbox.run("hello", SEND), first);
    assert_eq!(sandbox.effects("sent.log"), 1);
    sandbox.verified();
}

#[test]
fn a_failure_is_replayed_too_and_only_retry_runs_it_again() {
    let sandbox = Sandbox::new();
    let script = "echo x >> runs; echo no; exit 7";
    let first = sandbox.run("k", script);
    assert_eq!((first.exit, &*first.out()), (7, "no\n"));
    assert_eq!(sandbox.run("k", script), first);
    assert_eq!(sandbox.effects("runs"), 1);
    let again = sandbox.say(&["run", "--retry", "--key", "k", "--", "sh", "-c", script]);
    assert_eq!(again.exit, 7);
    assert_eq!(sandbox.effects("runs"), 2);
    // What succeeded is not run again, whoever asks.
    sandbox.run("done", "echo x >> done");
    sandbox.say(&[
        "run",
        "--retry",
        "--key",
        "done",
        "--",
        "sh",
        "-c",
        "echo x >> done",
    ]);
    assert_eq!(sandbox.effects("done"), 1);
}

#[test]
fn output_of_any_bytes_in_any_order_is_replayed() {
    let sandbox = Sandbox::new();
    let script = r"printf '\377\000\376'; printf '\001\200' >&2; printf 'end'";
    let first = sandbox.run("binary", script);
    assert_eq!(first.stdout, b"\xff\x00\xfeend");
    assert_eq!(first.stderr, b"\x01\x80");
    assert_eq!(sandbox.run("binary", script), first);
    let json = sandbox
        .say(&["run", "--json", "--key", "binary", "--", "sh", "-c", script])
        .json();
    assert_eq!(json["data"]["stdout"], serde_json::Value::Null);
    assert_eq!(json["data"]["stdout_base64"], "/wD+ZW5k");
}

#[test]
fn both_streams_are_replayed_in_the_order_in_which_they_were_read() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    // Nothing more is written before what was written has come out at our end.
    let script =
        "for i in 1 2 3; do echo out$i; read x < gate; echo err$i >&2; read x < gate; done; exit 0";
    let words = ["run", "--key", "mixed", "--", "sh", "-c", script];
    let merged = |at_each_piece: &dyn Fn()| {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = sandbox.semel(&words);
        command
            .stdout(writer.try_clone().expect("a copy"))
            .stderr(writer);
        let mut child = command.spawn().expect("semel runs");
        drop(command);
        let mut pieces = vec![];
        for _ in 0..6 {
            let mut piece = [0; 5];
            reader.read_exact(&mut piece).expect("a piece comes");
            pieces.push(String::from_utf8_lossy(&piece).into_owned());
            at_each_piece();
        }
        assert!(child.wait().expect("it ends").success());
        pieces
    };
    let first = merged(&|| gate.open());
    assert_eq!(
        first,
        ["out1\n", "err1\n", "out2\n", "err2\n", "out3\n", "err3\n"]
    );
    assert_eq!(merged(&|| {}), first);
}

#[test]
fn a_receipt_says_what_happened() {
    let sandbox = Sandbox::new();
    let words = [
        "run",
        "--json",
        "--key",
        "order-7",
        "--name",
        "create-order",
        "--effect",
        "created",
        "--",
        "sh",
        "-c",
        "echo '{\"id\": 42}'; echo log >&2",
    ];
    let first = sandbox.say(&words);
    assert_eq!(first.err(), "", "nothing is streamed");
    let receipt = first.json();
    for (field, value) in [
        ("ok", serde_json::json!(true)),
        ("effect", serde_json::json!("created")),
        ("replayed", serde_json::json!(false)),
        ("reason", serde_json::json!(null)),
        ("namespace", serde_json::json!("default")),
        ("key", serde_json::json!("order-7")),
        ("name", serde_json::json!("create-order")),
        ("state", serde_json::json!("succeeded")),
        ("attempt", serde_json::json!(1)),
        ("fence", serde_json::json!(1)),
        (
            "data",
            serde_json::json!({"exit_code": 0, "signal": null, "stdout": "{\"id\": 42}\n",
                "stderr": "log\n", "output": {"id": 42}}),
        ),
    ] {
        assert_eq!(receipt[field], value, "{field}");
    }
    let replay = sandbox.say(&words).json();
    assert_eq!(replay["effect"], "noop");
    assert_eq!(replay["replayed"], true);
    assert_eq!(replay["original_effect"], "created");
    assert!(
        replay["reason"]
            .as_str()
            .expect("a text")
            .starts_with("already done")
    );
    assert_eq!(replay["data"], receipt["data"]);
    assert_eq!(replay["settled_at"], receipt["settled_at"]);
}

#[test]
fn the_effect_is_what_the_command_declares_then_what_was_said_then_what_is_likely() {
    let sandbox = Sandbox::new();
    let effect = |key: &str, flags: &[&str], script: &str| {
        let words = [
            &["run", "--json", "--key", key],
            flags,
            &["--", "sh", "-c", script],
        ]
        .concat();
        let receipt = sandbox.say(&words).json();
        (receipt["effect"].clone(), receipt["reason"].clone())
    };
    let declared = r#"echo '{"effect": "deleted", "reason": "gone"}'"#;
    assert_eq!(
        effect("1", &["--effect", "created"], declared),
        ("deleted".into(), "gone".into())
    );
    assert_eq!(effect("2", &["--effect", "created"], "true").0, "created");
    assert_eq!(effect("3", &[], "true").0, "updated");
    assert_eq!(effect("4", &["--effect", "created"], "exit 3").0, "unknown");
    assert_eq!(
        effect(
            "5",
            &[],
            &format!("{}; exit 3", declared.replace("deleted", "noop"))
        )
        .0,
        "noop"
    );
    assert_eq!(
        effect("6", &[], r#"echo '{"effect": "exploded"}'"#).0,
        "updated"
    );
}

#[test]
fn the_child_knows_its_operation() {
    let sandbox = Sandbox::new();
    let told = sandbox.say(&[
        "--namespace",
        "tenant-1",
        "run",
        "--key",
        "k 1",
        "--",
        "sh",
        "-c",
        r#"echo "$0|$SEMEL_KEY|$SEMEL_ATTEMPT|$SEMEL_FENCE|$SEMEL_NAMESPACE|${SEMEL_PARENT-none}""#,
        "id={key}",
    ]);
    assert_eq!(told.out(), "id=k 1|k 1|1|1|tenant-1|none\n");
}

#[test]
fn what_is_fingerprinted_is_the_command_before_the_key_is_put_in() {
    let sandbox = Sandbox::new();
    assert_eq!(
        sandbox
            .say(&["run", "--key", "a", "--", "echo", "{key}"])
            .out(),
        "a\n"
    );
    let literal = sandbox.say(&["run", "--key", "a", "--", "echo", "a"]);
    assert_eq!(literal.exit, 121, "{literal:?}");
}

#[test]
fn a_key_is_for_one_command_and_one_input() {
    let sandbox = Sandbox::new();
    sandbox.run("k", "echo 1 >> runs");
    let other = sandbox.run("k", "echo 2 >> runs");
    assert_eq!((other.exit, sandbox.effects("runs")), (121, 1));
    assert!(other.err().contains("hint: "), "{other:?}");

    fs::write(sandbox.path("body"), "one").expect("it can be written");
    let words = [
        "run",
        "--key",
        "i",
        "--input",
        "body",
        "--",
        "sh",
        "-c",
        "echo x >> inputs",
    ];
    assert_eq!(sandbox.say(&words).exit, 0);
    assert_eq!(sandbox.say(&words).exit, 0);
    fs::write(sandbox.path("body"), "two").expect("it can be written");
    assert_eq!(sandbox.say(&words).exit, 121);
    assert_eq!(sandbox.effects("inputs"), 1);
}

#[test]
fn without_a_key_one_is_derived_and_said() {
    let sandbox = Sandbox::new();
    let words = ["run", "--", "sh", "-c", "echo x >> runs"];
    let first = sandbox.say(&words);
    let key = sandbox
        .say(&["key", "--", "sh", "-c", "echo x >> runs"])
        .out();
    let key = key.trim();
    assert!(key.starts_with("sh:") && key.len() == 3 + 32, "{key}");
    assert_eq!(
        first.err(),
        format!(
            "semel: key {key} in sqlite:{}\n",
            sandbox.path("s.db").display()
        )
    );
    sandbox.say(&words);
    assert_eq!(sandbox.effects("runs"), 1);
    assert_eq!(
        sandbox
            .say(&["--quiet", "run", "--", "sh", "-c", "echo x >> runs"])
            .err(),
        ""
    );
    // Another directory is another operation.
    fs::create_dir(sandbox.path("elsewhere")).expect("it can be made");
    let there = sandbox
        .semel(&words)
        .current_dir(sandbox.path("elsewhere"))
        .output();
    assert!(there.expect("semel runs").status.success());
    assert!(sandbox.path("elsewhere/runs").exists());
}

#[test]
fn namespaces_are_walls() {
    let sandbox = Sandbox::new();
    for namespace in ["a", "b", "a"] {
        let told = sandbox.say(&[
            "--namespace",
            namespace,
            "run",
            "--key",
            "k",
            "--",
            "sh",
            "-c",
            "echo x >> runs",
        ]);
        assert_eq!(told.exit, 0);
    }
    assert_eq!(sandbox.effects("runs"), 2);
}

#[test]
fn what_asks_to_be_tried_again_is_not_done() {
    let sandbox = Sandbox::new();
    let script = "echo x >> runs; [ $(wc -l < runs) -ge 3 ] || exit $1";
    let words = |flags: &[&str], key: &str, code: &str| {
        let words = [
            &["run", "--key", key],
            flags,
            &["--", "sh", "-c", script, "sh", code],
        ]
        .concat();
        sandbox.say(&words)
    };
    let first = words(&[], "k", "75");
    assert_eq!(first.exit, 75);
    assert!(first.err().contains("hint: nothing was done"), "{first:?}");
    assert_eq!(words(&[], "k", "75").exit, 75);
    assert_eq!(words(&[], "k", "75").exit, 0);
    assert_eq!(words(&[], "k", "75").exit, 0);
    assert_eq!(sandbox.effects("runs"), 3);
    fs::remove_file(sandbox.path("runs")).expect("it is there");
    assert_eq!(words(&["--retry-exit", "5,69"], "l", "69").exit, 69);
    assert_eq!(words(&["--retry-exit", "5,69"], "l", "69").exit, 69);
    assert_eq!(sandbox.effects("runs"), 2);
    let json = sandbox
        .say(&["run", "--json", "--key", "m", "--", "sh", "-c", "exit 75"])
        .json();
    assert_eq!(
        (&json["ok"], &json["state"]),
        (&false.into(), &"pending".into())
    );
    assert_eq!(
        (&json["effect"], &json["error"]),
        (&"noop".into(), &serde_json::Value::Null)
    );
}

#[test]
fn a_command_that_cannot_be_started_is_not_done() {
    let sandbox = Sandbox::new();
    let missing = sandbox.say(&["run", "--key", "k", "--", "./tool"]);
    assert_eq!(missing.exit, 127);
    assert!(
        missing.err().starts_with("semel: cannot run `./tool`: "),
        "{missing:?}"
    );
    fs::write(sandbox.path("tool"), "#!/bin/sh\necho made\n").expect("it can be written");
    assert_eq!(
        sandbox.say(&["run", "--key", "k", "--", "./tool"]).exit,
        126
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(sandbox.path("tool"), mode).expect("it is ours");
    assert_eq!(
        sandbox.say(&["run", "--key", "k", "--", "./tool"]).out(),
        "made\n"
    );
}

#[test]
fn what_only_reads_is_run_each_time_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    for _ in 0..2 {
        let told = sandbox.say(&[
            "run",
            "--class",
            "safe",
            "--key",
            "k",
            "--",
            "sh",
            "-c",
            "echo x | tee -a runs; exit 3",
        ]);
        assert_eq!((told.exit, &*told.out()), (3, "x\n"));
    }
    assert_eq!(sandbox.effects("runs"), 2);
    assert!(!sandbox.path("s.db").exists());
}

#[test]
fn a_dry_run_writes_nothing_at_all() {
    let sandbox = Sandbox::new();
    let words = [
        "run",
        "--json",
        "--dry-run",
        "--key",
        "k",
        "--effect",
        "created",
        "--",
        "sh",
        "-c",
        "echo x >> runs",
    ];
    let json = sandbox.say(&words).json();
    assert_eq!(json["effect"], "would_create");
    assert_eq!(
        json["changes"],
        serde_json::json!(["would run `sh -c 'echo x >> runs'` (attempt 1)"])
    );
    assert_eq!(
        fs::read_dir(sandbox.root())
            .expect("it can be read")
            .count(),
        0
    );
    sandbox.run("k", "echo x >> runs");
    let before = fs::read(sandbox.path("s.db-turn")).expect("it is there");
    let json = sandbox.say(&words).json();
    assert_eq!(
        (&json["effect"], &json["replayed"]),
        (&"noop".into(), &true.into())
    );
    assert_eq!(
        fs::read(sandbox.path("s.db-turn")).expect("it is there"),
        before
    );
    assert_eq!(sandbox.effects("runs"), 1);
    assert_eq!(
        sandbox
            .say(&["run", "--dry-run", "--key", "k", "--", "true"])
            .exit,
        121
    );
}

#[test]
fn standard_input_goes_to_the_command() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.semel(&["run", "--key", "k", "--", "cat"]);
    let mut child = piped(&mut command)
        .stdin(Stdio::piped())
        .spawn()
        .expect("semel runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    stdin.write_all(b"from outside").expect("it is read");
    drop(stdin);
    assert_eq!(super::told(child).out(), "from outside");
}

#[test]
fn a_step_knows_its_parent_and_begins_only_while_that_runs() {
    let sandbox = Sandbox::new();
    let semel = env!("CARGO_BIN_EXE_semel");
    let script =
        format!("'{semel}' run --key step -- sh -c 'echo $SEMEL_KEY in $SEMEL_PARENT'; env > env");
    assert_eq!(sandbox.run("whole", &script).out(), "step in whole\n");
    assert_eq!(sandbox.record("step")["parent"], "whole");
    // The parent is settled now: whoever still has its environment may not begin another step.
    let environment = fs::read_to_string(sandbox.path("env")).expect("it was written");
    let mut late = sandbox.semel(&["run", "--key", "late", "--", "sh", "-c", "echo x >> late"]);
    late.envs(
        environment
            .lines()
            .filter_map(|line| line.split_once('='))
            .filter(|(name, _)| name.starts_with("SEMEL_")),
    );
    let told = Told::from(late.output().expect("semel runs"));
    assert_eq!((told.exit, sandbox.effects("late")), (125, 0), "{told:?}");
}

#[test]
fn an_output_beyond_the_limit_is_passed_on_and_the_effect_is_not_repeated() {
    let sandbox = Sandbox::new();
    let script = "echo x >> runs; head -c 9000000 /dev/zero; exit 4";
    let first = sandbox.run("big", script);
    assert_eq!((first.exit, first.stdout.len()), (4, 9_000_000));
    let replay = sandbox.run("big", script);
    assert_eq!(
        (replay.exit, replay.stdout.len(), sandbox.effects("runs")),
        (4, 0, 1)
    );
    assert!(replay.err().contains("9000000 bytes"), "{}", replay.err());
    sandbox.verified();
}
