//! Secrets reach neither what is shown nor the store's files; what a command wrote is exact unless a rule
//! names a part of it.

use std::fs;
use std::path::{Path, PathBuf};

use semel::core::Digest;
use serde_json::json;

use crate::harness::{World, key, permit, request};
use crate::run::Sandbox;

/// What must be nowhere.
const SECRET: &str = "hunter2-and-more";

fn files_under(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("it lists");
    let paths = entries.map(|entry| entry.expect("it lists").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files_under(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Says whether the secret is in a file of the store.
fn is_stored(directory: &Path, secret: &str) -> bool {
    let files = files_under(directory);
    assert!(!files.is_empty(), "there is a store");
    files.iter().any(|path| {
        let bytes = fs::read(path).expect("it reads");
        let mut places = bytes.windows(secret.len());
        places.any(|window| window == secret.as_bytes())
    })
}

fn doubt(world: &World) {
    world.past(|engine| async move {
        let permit = permit(&engine, request("order-7")).await;
        let error = format!("lost: https://me:{SECRET}@bank.test");
        permit.unknown(error).await.expect("it is taken");
    });
}

const NOTE: &str = "asked with Authorization: Bearer hunter2-and-more";

#[test]
fn a_secret_in_an_error_or_a_note_is_neither_shown_nor_stored() {
    let world = World::new();
    doubt(&world);
    let resolve = ["resolve", "order-7", "--not-done", "--note", NOTE, "--yes"];
    let first = world.semel(&resolve);
    assert_eq!(
        (first.code, &*first.stdout),
        (0, "order-7: doubtful -> pending\n")
    );
    // The same again is the same decision, though what is stored of it is not what was said.
    let again = world.semel(&resolve);
    assert_eq!(
        (again.code, &*again.stdout),
        (0, "order-7: pending already\n")
    );
    let shown = world.semel(&["show", "order-7", "--json"]);
    let record = &shown.json()[0];
    assert_eq!(
        record["attempts"][0]["error"],
        "lost: https://me:[redacted]@bank.test"
    );
    assert_eq!(
        record["resolved"]["note"],
        "asked with Authorization: [redacted]"
    );
    for words in [
        &["show", "order-7", "--json"] as &[&str],
        &["show", "order-7"],
        &["log", "--json"],
        &["log"],
        &["list", "--json"],
        &["list"],
        &["doctor", "--json"],
    ] {
        let ran = world.semel(words);
        assert!(!ran.stdout.contains(SECRET), "{words:?}: {}", ran.stdout);
        assert!(!ran.stderr.contains(SECRET), "{words:?}: {}", ran.stderr);
    }
    assert!(!is_stored(&world.path("data"), SECRET));
}

#[test]
fn redaction_can_be_switched_off() {
    let world = World::new();
    doubt(&world);
    let resolve = ["resolve", "order-7", "--not-done", "--note", NOTE, "--yes"];
    let ran = world.run(world.command(&resolve).env("SEMEL_REDACT_ENABLED", "off"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let shown = world.semel(&["show", "order-7", "--json"]);
    assert_eq!(shown.json()[0]["resolved"]["note"], NOTE);
    assert!(is_stored(&world.path("data"), SECRET));
}

#[test]
fn arguments_are_shown_without_their_secrets() {
    let sandbox = Sandbox::new();
    let told = sandbox.say(&[
        "run",
        "--dry-run",
        "--json",
        "--key",
        "k",
        "--",
        "pay",
        "--api-key",
        "my own words",
        "--to",
        "a b",
        "PASSWORD=x y",
    ]);
    let change = "would run `pay --api-key [redacted] --to 'a b' PASSWORD=[redacted]` (attempt 1)";
    assert_eq!(told.json()["changes"], json!([change]));
    let program = format!("./pay?token={SECRET}");
    let run = [
        "run", "--key", "k", "--name", "pay", "--json", "--", &program,
    ];
    let told = sandbox.say(&run);
    assert_eq!(told.exit, 127);
    let reason = "cannot run `./pay?token=[redacted]`: there is no such command";
    assert_eq!(told.json()["reason"], reason);
    assert!(told.err().contains(reason), "{}", told.err());
    assert_eq!(sandbox.record("k")["attempts"][0]["error"], reason);
    assert!(!is_stored(sandbox.root(), SECRET));
}

#[test]
fn the_users_own_patterns_count() {
    let sandbox = Sandbox::new();
    fs::write(
        sandbox.path("semel.toml"),
        "[redact]\npatterns = ['acme_*']",
    )
    .expect("it is written");
    let told = sandbox.say(&["run", "--dry-run", "--key", "k", "--", "pay", "acme_1-2"]);
    assert_eq!(told.out(), "would run `pay [redacted]` (attempt 1)\n");
}

const ANSWER: &str =
    r#"printf '{ "card": {"number": "hunter2-and-more"}, "password": "p" }\n'; echo noted >&2"#;

#[test]
fn what_a_command_wrote_is_exact_unless_a_rule_names_it() {
    let sandbox = Sandbox::new();
    let exact = "{ \"card\": {\"number\": \"hunter2-and-more\"}, \"password\": \"p\" }\n";
    let first = sandbox.run("exact", ANSWER);
    assert_eq!((&*first.out(), &*first.err()), (exact, "noted\n"));
    assert_eq!(sandbox.run("exact", ANSWER), first);
    let told = sandbox.say(&["run", "--json", "--key", "exact", "--", "sh", "-c", ANSWER]);
    assert_eq!(told.json().get("redacted"), None);
    assert!(is_stored(sandbox.root(), SECRET));
}

#[test]
fn what_a_rule_names_is_replayed_without_it_and_says_so() {
    let sandbox = Sandbox::new();
    let rule = "[redact]\noutputs = ['/card/number']";
    fs::write(sandbox.path("semel.toml"), rule).expect("it is written");
    let first = sandbox.run("k", ANSWER);
    // It was written to whoever ran the command as it came.
    let exact = "{ \"card\": {\"number\": \"hunter2-and-more\"}, \"password\": \"p\" }\n";
    assert_eq!((&*first.out(), &*first.err()), (exact, "noted\n"));
    let hidden = "{ \"card\": {\"number\": \"[redacted]\"}, \"password\": \"p\" }\n";
    let again = sandbox.run("k", ANSWER);
    assert_eq!(again.out(), hidden);
    let said = "noted\nsemel: k: its output was redacted before it was recorded\n";
    assert_eq!(again.err(), said);
    // With --json, the first receipt is made of what was stored, too.
    for key in ["k", "first"] {
        let told = sandbox.say(&["run", "--json", "--key", key, "--", "sh", "-c", ANSWER]);
        let receipt = told.json();
        assert_eq!(receipt["redacted"], true, "{receipt}");
        assert_eq!(receipt["data"]["stdout"], hidden);
        assert_eq!(receipt["data"]["output"]["card"]["number"], "[redacted]");
        let record = sandbox.record(key);
        assert_eq!(record["redacted"], true);
        assert_eq!(record["data"], receipt["data"]);
    }
    let shown = sandbox.say(&["show", "k"]);
    assert!(
        shown.out().contains("\nanswer, redacted\n"),
        "{}",
        shown.out()
    );
    assert!(!is_stored(sandbox.root(), SECRET));
    sandbox.verified();
}

#[test]
fn of_an_answer_that_came_to_no_end_nothing_is_kept_where_a_rule_might_name_a_part() {
    let sandbox = Sandbox::new();
    let script = format!("echo '{{\"pin\": \"{SECRET}\"'; echo noted >&2; kill -9 $$");
    let kept = |key: &str| {
        assert_eq!(sandbox.run(key, &script).exit, 137);
        sandbox.record(key)["partial"].clone()
    };
    let whole = json!({"stdout": format!("{{\"pin\": \"{SECRET}\"\n"), "stderr": "noted\n"});
    assert_eq!(kept("exact"), whole);
    fs::write(sandbox.path("semel.toml"), "[redact]\noutputs = ['/pin']").expect("it is written");
    assert_eq!(kept("ruled"), json!({"stdout": "", "stderr": "noted\n"}));
}

#[test]
fn a_secret_in_a_probe_is_neither_stored_nor_shown() {
    let sandbox = Sandbox::new();
    let probe = "password=hunter2; test $password = hunter2";
    let run = |script: &str| {
        sandbox.say(&[
            "run", "--key", "k", "--probe", probe, "--", "sh", "-c", script,
        ])
    };
    let first = run("kill -9 $$");
    assert_eq!(first.exit, 137);
    let digest = Digest::of(probe.as_bytes()).hex();
    assert_eq!(sandbox.record("k")["probe_digest"], digest);
    let listed = sandbox.say(&["list", "--json"]);
    assert_eq!(listed.json()["probe_digest"], digest);
    // It is asked, and answers.
    let resolved = sandbox.say(&["resolve", "k", &format!("--probe={probe}")]);
    assert_eq!(resolved.exit, 0, "{resolved:?}");
    let record = sandbox.record("k");
    assert_eq!(record["state"], "succeeded");
    let note = format!("the probe (sha256 {digest}) exited 0");
    assert_eq!(record["resolved"]["note"], note);
    for told in [first, listed, sandbox.say(&["show", "k"])] {
        assert!(!told.out().contains("hunter2"), "{told:?}");
        assert!(!told.err().contains("hunter2"), "{told:?}");
    }
}

#[test]
fn rules_are_checked_when_they_are_loaded() {
    let world = World::new();
    for (file, message) in [
        (
            "patterns = ['*ab']",
            "redact.patterns (file semel.toml): `*ab`: a pattern needs at least 3",
        ),
        (
            "outputs = ['/a', 'b']",
            "redact.outputs (file semel.toml): `b`: a JSON pointer is empty or",
        ),
        (
            "headers = ['a b']",
            "redact.headers (file semel.toml): `a b` is not the name of a header",
        ),
        (
            "enabled = 'yes'",
            "redact.enabled (file semel.toml): `yes` is neither `on` nor `off`",
        ),
        (
            "enabled = ['on']",
            "semel.toml: `redact.enabled` must be a string, in quotes; it is a array",
        ),
        (
            "patterns = 'acme_*'",
            "semel.toml: `redact.patterns` must be an array of strings of one line each",
        ),
        (
            "patterns = ['acme_*', 7]",
            "semel.toml: `redact.patterns` must be an array of strings of one line each",
        ),
    ] {
        fs::write(world.path("semel.toml"), format!("[redact]\n{file}")).expect("it is written");
        let ran = world.semel(&["list"]);
        assert_eq!(ran.code, 64, "{file}");
        assert!(ran.stderr.contains(message), "{file}: {}", ran.stderr);
    }
    let file = "[redact]\npatterns = ['acme_*', 'cust-*']\nheaders = ['x-shop']";
    fs::write(world.path("semel.toml"), file).expect("it is written");
    let mut command = world.command(&["config", "show", "--json"]);
    let ran = world.run(command.env("SEMEL_REDACT_OUTPUTS", "/a\n/b/*\n"));
    let shown: Vec<_> = ran
        .json()
        .iter()
        .map(|line| {
            (
                line["name"].clone(),
                line["value"].clone(),
                line["origin"].clone(),
            )
        })
        .filter(|line| {
            line.0
                .as_str()
                .is_some_and(|name| name.starts_with("redact."))
        })
        .collect();
    let file = "file semel.toml";
    assert_eq!(
        shown,
        [
            (json!("redact.enabled"), json!("on"), json!("default")),
            (
                json!("redact.patterns"),
                json!(r#"["acme_*","cust-*"]"#),
                json!(file)
            ),
            (
                json!("redact.outputs"),
                json!(r#"["/a","/b/*"]"#),
                json!("environment SEMEL_REDACT_OUTPUTS")
            ),
            (json!("redact.headers"), json!(r#"["x-shop"]"#), json!(file)),
        ]
    );
}

#[test]
fn a_key_is_never_changed() {
    let sandbox = Sandbox::new();
    let told = sandbox.run("password=a", "true");
    assert_eq!(told.exit, 0);
    assert_eq!(
        sandbox.record("password=a")["key"],
        key("password=a").as_str()
    );
}
