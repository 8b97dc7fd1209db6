use std::fs;
use std::process::Stdio;

use super::{Sandbox, Told};

/// Checks that something is refused as wrong usage, helpfully, and that nothing ran.
fn refused(sandbox: &Sandbox, words: &[&str], expected: &str) {
    let told = sandbox.say(words);
    assert_eq!(told.exit, 64, "{words:?}: {told:?}");
    let text = told.err();
    assert!(
        text.starts_with("semel: ") && text.contains(expected),
        "{words:?}: {text}"
    );
    assert_eq!(told.out(), "", "{words:?}");
    assert_eq!(sandbox.effects("runs"), 0, "{words:?}");
}

const RUN: [&str; 4] = ["--", "sh", "-c", "echo x >> runs"];

#[test]
fn keys_outside_their_rule_are_refused() {
    let sandbox = Sandbox::new();
    let long = "k".repeat(256);
    for (key, expected) in [
        ("", "must not be empty"),
        (&*long, "256 bytes"),
        ("gr\u{fc}n", "printable ASCII"),
        ("a\tb", "printable ASCII"),
        ("a\nb", "printable ASCII"),
        (" a", "begin or end with a space"),
        ("a ", "begin or end with a space"),
    ] {
        refused(
            &sandbox,
            &[&["run", "--key", key], &RUN[..]].concat(),
            expected,
        );
    }
    let longest = "k".repeat(255);
    assert_eq!(
        sandbox
            .say(&[&["run", "--key", &longest], &RUN[..]].concat())
            .exit,
        0
    );
}

#[test]
fn durations_outside_their_rule_are_refused() {
    let sandbox = Sandbox::new();
    for (flag, value, expected) in [
        ("--lease", "0s", "1 second to 24 hours"),
        ("--lease", "25h", "1 second to 24 hours"),
        ("--lease", "-1s", "not a duration"),
        ("--lease", "99999999999999999999d", "not a duration"),
        ("--lease", "5", "not a duration"),
        ("--wait", "1w", "not a duration"),
        ("--timeout", "0s", "zero"),
        ("--retention", "0s", "1 second to 100 years"),
        ("--retention", "36501d", "100 years"),
        ("--retry-exit", "0", "success"),
        ("--retry-exit", "300", "not an exit code"),
        ("--effect", "made", "not an effect"),
        ("--class", "wild", "safe"),
        ("--on-doubt", "guess", "hold"),
        ("--on-doubt", "probe", "needs --probe"),
        ("--input", "nowhere", "cannot be read"),
        ("--name", "", "must not be empty"),
        ("--namespace", "a b", "namespace"),
        ("--store", "mysql://x", "not a store"),
    ] {
        refused(
            &sandbox,
            &[&["run", "--key", "k", flag, value], &RUN[..]].concat(),
            expected,
        );
    }
}

#[test]
fn wrong_words_are_answered_with_the_right_ones() {
    let sandbox = Sandbox::new();
    refused(
        &sandbox,
        &["run", "--kye", "k", "--", "true"],
        "hint: did you mean `--key`?",
    );
    refused(&sandbox, &["run", "--key", "k"], "<CMD>");
    refused(&sandbox, &["run", "--key", "k", "--"], "<CMD>");
    refused(&sandbox, &["runn"], "'run'");
    let mut command = sandbox.semel(&["run", "--key", "k", "--", "true"]);
    let told = Told::from(
        command
            .env("SEMEL_INJECT", "drop-replies")
            .output()
            .expect("semel runs"),
    );
    assert_eq!(told.exit, 64);
    assert!(
        told.err().contains("did you mean `drop-reply`?"),
        "{told:?}"
    );
}

#[test]
fn with_json_an_error_is_an_object_on_standard_output_and_a_line_on_standard_error() {
    let sandbox = Sandbox::new();
    for words in [
        &["run", "--json", "--kye", "k", "--", "true"][..],
        &["--json", "run", "--key", "", "--", "true"],
    ] {
        let told = sandbox.say(words);
        let json = told.json();
        assert_eq!((told.exit, &json["ok"]), (64, &false.into()));
        assert!(
            json["error"]["code"]
                .as_str()
                .is_some_and(|code| code.starts_with("invalid_"))
        );
        assert!(json["error"]["message"].is_string() && !told.err().is_empty());
    }
}

#[test]
fn a_store_that_cannot_be_opened_runs_nothing() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("foreign"), vec![7; 10_000]).expect("it can be written");
    fs::create_dir(sandbox.path("directory")).expect("it can be made");
    for (store, exit) in [
        ("sqlite:foreign", 119),
        ("sqlite:directory", 119),
        ("sqlite:/proc/semel.db", 125),
        ("sqlite:/dev/null/x.db", 125),
    ] {
        let told = sandbox.say(&[&["--store", store, "run", "--key", "k"], &RUN[..]].concat());
        assert_eq!(
            (told.exit, sandbox.effects("runs")),
            (exit, 0),
            "{store}: {told:?}"
        );
        assert!(told.err().contains("\nhint: "), "{store}: {}", told.err());
    }
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let sandbox = Sandbox::new();
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo x >> runs";
    for _ in 0..2 {
        let mut command = sandbox.semel(&["run", "--key", "k", "--", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("semel runs");
        drop(child.stdout.take());
        assert!(child.wait().expect("it ends").success());
    }
    assert_eq!(sandbox.effects("runs"), 1);
    let whole = sandbox.run("k", script);
    assert!(whole.out().ends_with("line 19999\n"));
}
