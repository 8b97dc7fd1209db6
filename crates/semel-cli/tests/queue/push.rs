//! Push queues: a server as a process, and a target that counts what it gets by the key.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel_testkit::process::Dice;
use serde_json::{Value, json};

use crate::harness::World;
use crate::target::{Got, Reply, Reserved, Target};
use crate::workers::{Process, wait_until};

/// 32 bytes of 7 in base64.
const SECRET: &str = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

/// Waits between attempts that nobody notices.
const AT_ONCE: &str = "backoff_base = \"1ms\"\nbackoff_cap = \"1ms\"\n";

/// A directory whose settings push the queue `mail` to a URL.
fn world(url: &str, settings: &str) -> World {
    let world = World::new();
    let text = format!("[queues.mail]\npush = \"{url}\"\n{settings}");
    fs::write(world.path("semel.toml"), text).expect("it can be written");
    world
}

/// Starts a server and waits until it listens.
fn serve(world: &World) -> Process {
    let socket = world.path("socket");
    let listen = format!("unix:{}", socket.display());
    let server = Process::start(&mut world.command(&["serve", "--listen", &listen]));
    wait_until("the server listens", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    server
}

fn submit(world: &World, key: &str, input: &[&str]) {
    let words = [&["submit", "mail", "--key", key], input].concat();
    let ran = world.semel(&words);
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// Submits many at once.
fn submit_all(world: &World, keys: &[String]) {
    let mut lines = String::new();
    for key in keys {
        lines += &format!("{{\"key\": \"{key}\", \"input\": {{\"to\": \"{key}\"}}}}\n");
    }
    fs::write(world.path("batch"), lines).expect("it can be written");
    let ran = world.semel(&["submit", "mail", "--batch", "batch"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

fn show(world: &World, key: &str) -> Value {
    world.semel(&["show", key, "--json"]).json().remove(0)
}

fn state(world: &World, key: &str) -> String {
    let record = show(world, key);
    record["state"].as_str().expect("it has one").to_owned()
}

fn wait_for(world: &World, key: &str, wanted: &str) {
    wait_until(wanted, || state(world, key) == wanted);
}

/// How many are in these states.
fn count(world: &World, states: &str) -> usize {
    let ran = world.semel(&["list", "--json", "--limit", "1000", "--state", states]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout.lines().count()
}

fn keys(count: usize) -> Vec<String> {
    (0..count)
        .map(|n| format!("agent-{}/mail-{n}", n % 3))
        .collect()
}

/// Signs as the specification of Standard Webhooks says, by another program.
fn signature(got: &Got) -> String {
    let (id, at) = (
        &got.headers["webhook-id"],
        &got.headers["webhook-timestamp"],
    );
    let key = format!("hexkey:{}", "07".repeat(32));
    let script = "openssl dgst -sha256 -mac HMAC -macopt \"$0\" -binary | base64";
    let mut child = Command::new("sh")
        .args(["-c", script, &key])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl is there");
    let signed = format!("{id}.{at}.{}", got.body);
    let mut stdin = child.stdin.take().expect("it has one");
    stdin.write_all(signed.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let mac = String::from_utf8(output.stdout).expect("it is text");
    format!("v1,{}", mac.trim())
}

#[test]
fn each_task_is_sent_once() {
    let target = Target::start(|_, _| Reply::DONE);
    let world = world(&target.url(), "");
    let tasks = keys(60);
    let (before, after) = tasks.split_at(30);
    submit_all(&world, before);
    let server = serve(&world);
    submit_all(&world, after);
    wait_until("all are done", || count(&world, "succeeded") == 60);
    // Submitting them again sends nothing.
    submit_all(&world, &tasks);
    submit(&world, "last", &[]);
    wait_for(&world, "last", "succeeded");
    drop(server);
    let got = target.by_key();
    assert_eq!(got.len(), 61);
    assert!(got.values().all(|times| *times == 1), "{got:?}");
}

#[test]
fn a_task_is_sent_as_it_was_submitted_and_its_answer_is_the_result() {
    let target = Target::start(|got, _| match got.key() {
        "a" => Reply::Status(201, "", "{\"id\": 42}"),
        "with space" => Reply::Status(200, "semel-effect: deleted\r\n", "fine"),
        "none" => Reply::Status(204, "", ""),
        _ => Reply::Status(404, "", "{\"why\": \"nobody\"}"),
    });
    let world = world(&target.url(), &format!("push_secret = \"{SECRET}\"\n"));
    let server = serve(&world);
    let input = "{\"b\":  1, \"a\": [1.50, 12345678901234567890123]}";
    submit(&world, "a", &["--input", input]);
    submit(&world, "with space", &["--input", "\"x\""]);
    submit(&world, "none", &[]);
    submit(&world, "missing", &["--input", "7"]);
    for (key, state, effect, data) in [
        ("a", "succeeded", "created", json!({"id": 42})),
        ("with space", "succeeded", "deleted", json!("fine")),
        ("none", "succeeded", "updated", json!(null)),
        (
            "missing",
            "failed",
            "unknown",
            json!({"status": 404, "body": {"why": "nobody"}}),
        ),
    ] {
        wait_for(&world, key, state);
        let record = show(&world, key);
        assert_eq!(
            (&record["effect"], &record["data"]),
            (&json!(effect), &data)
        );
    }
    drop(server);
    let got = target.got();
    assert_eq!(got.len(), 4);
    let of = |key: &str| got.iter().find(|it| it.key() == key).expect("it came");
    let a = of("a");
    assert_eq!(a.line, "POST /hook?team=a HTTP/1.1");
    assert_eq!(a.body, input);
    for (name, value) in [
        ("idempotency-key", "a"),
        ("semel-key", "a"),
        ("semel-queue", "mail"),
        ("semel-attempt", "1"),
        ("semel-fence", "1"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(a.headers[name], value, "{name}");
    }
    assert!(a.headers["user-agent"].starts_with("semel/"));
    assert_eq!(a.headers["webhook-signature"], signature(a));
    let spaced = of("with space");
    assert_eq!(spaced.headers["idempotency-key"], "\"with space\"");
    assert_eq!(spaced.headers["semel-key"], "with space");
    let none = of("none");
    assert_eq!(
        (none.body.as_str(), none.headers.get("content-type")),
        ("", None)
    );
    assert_eq!(none.headers["webhook-signature"], signature(none));
    assert_ne!(none.headers["webhook-id"], a.headers["webhook-id"]);
}

#[test]
fn whoever_is_overloaded_is_asked_again_when_it_said() {
    let target = Target::start(|_, times| match times {
        1 => Reply::Status(429, "retry-after: 2\r\n", ""),
        2 => Reply::Status(400, "", ""),
        _ => Reply::DONE,
    });
    let world = world(&target.url(), AT_ONCE);
    let server = serve(&world);
    submit(&world, "a", &["--input", "[1,  2]"]);
    wait_for(&world, "a", "succeeded");
    drop(server);
    let got = target.got();
    assert_eq!(got.len(), 3);
    let pause = got[1].at.duration_since(got[0].at);
    assert!(pause >= Duration::from_secs(2), "{pause:?}");
    // Every attempt has the same key and the same bytes.
    for (n, it) in got.iter().enumerate() {
        assert_eq!((it.key(), it.body.as_str()), ("a", "[1,  2]"));
        assert_eq!(it.headers["semel-attempt"], (n + 1).to_string());
        assert_eq!(it.headers["semel-fence"], (n + 1).to_string());
    }
}

#[test]
fn a_lost_answer_is_a_doubt_and_nothing_is_sent_twice() {
    let target = Target::start(|got, _| match got.key() {
        "closed" => Reply::Close,
        "cut" => Reply::Cut,
        "broken" => Reply::Status(500, "retry-after: 0\r\n", ""),
        _ => Reply::DONE,
    });
    let world = world(&target.url(), AT_ONCE);
    let server = serve(&world);
    for key in ["closed", "cut", "broken"] {
        submit(&world, key, &["--input", "1"]);
        wait_for(&world, key, "doubtful");
    }
    submit(&world, "after", &["--input", "1"]);
    wait_for(&world, "after", "succeeded");
    drop(server);
    // A server that starts anew does not know better.
    let server = serve(&world);
    submit(&world, "again", &["--input", "1"]);
    wait_for(&world, "again", "succeeded");
    drop(server);
    let got = target.by_key();
    assert_eq!(got.len(), 5);
    assert!(got.values().all(|times| *times == 1), "{got:?}");
}

#[test]
fn a_doubt_is_sent_again_where_the_queue_says_so() {
    let target = Target::start(|_, times| match times {
        1 => Reply::Close,
        // The first one may still be at work there.
        2 => Reply::Status(409, "", ""),
        _ => Reply::DONE,
    });
    let settings = format!("on_doubt = \"retry\"\n{AT_ONCE}");
    let world = world(&target.url(), &settings);
    let server = serve(&world);
    submit(&world, "a", &["--input", "1"]);
    wait_for(&world, "a", "succeeded");
    drop(server);
    assert_eq!(target.by_key()["a"], 3);
}

#[test]
fn a_target_that_hangs_is_given_up() {
    let target = Target::start(|_, _| Reply::Never);
    let world = world(&target.url(), "push_timeout = \"200ms\"\n");
    let server = serve(&world);
    submit(&world, "a", &["--input", "1"]);
    wait_for(&world, "a", "doubtful");
    drop(server);
    assert_eq!(target.by_key()["a"], 1);
    let error = show(&world, "a")["attempts"][0]["error"].clone();
    assert_eq!(error, "there was no answer in time");
}

#[test]
fn a_server_that_is_killed_sends_nothing_twice() {
    let (seed, mut dice) = Dice::fresh();
    // Every request is held until the next kill, so that each kill finds some under way.
    let held = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&held);
    let target = Target::start(move |_, _| {
        while theirs.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Reply::DONE
    });
    let settings = format!("push_concurrency = 4\n{AT_ONCE}");
    let world = world(&target.url(), &settings);
    submit_all(&world, &keys(80));
    for _ in 0..5 {
        held.store(false, Ordering::Relaxed);
        let mut server = serve(&world);
        let some = target.got().len() + 1 + usize::try_from(dice.below(8)).expect("it is small");
        wait_until("some are sent", || target.got().len() >= some);
        held.store(true, Ordering::Relaxed);
        let more = target.got().len() + 1;
        wait_until("some are under way", || target.got().len() >= more);
        server.kill();
    }
    held.store(false, Ordering::Relaxed);
    let server = serve(&world);
    wait_until("nothing is left", || count(&world, "pending,running") == 0);
    // Whatever would be sent again stands before these in its lane.
    for lane in 0..3 {
        let last = format!("agent-{lane}/last");
        submit(&world, &last, &["--input", "1"]);
        wait_for(&world, &last, "succeeded");
    }
    drop(server);
    let got = target.by_key();
    assert!(got.values().all(|times| *times == 1), "{seed}: {got:?}");
    let (done, doubts) = (count(&world, "succeeded"), count(&world, "doubtful"));
    assert_eq!(done + doubts, 83, "{seed}");
    // Each kill left some, at most as many as were under way.
    assert!((1..=5 * 4).contains(&doubts), "{seed}: {doubts}");
    assert!(got.len() >= done, "{seed}: {got:?}");
}

#[test]
fn a_server_that_stops_follows_what_is_under_way() {
    let open = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&open);
    let target = Target::start(move |_, _| {
        while !theirs.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Reply::DONE
    });
    let world = world(&target.url(), "push_concurrency = 2\n");
    submit_all(&world, &keys(5));
    let mut server = serve(&world);
    wait_until("two are under way", || target.got().len() == 2);
    server.terminate();
    let socket = world.path("socket");
    wait_until("it takes no more callers", || {
        std::os::unix::net::UnixStream::connect(&socket).is_err()
    });
    open.store(true, Ordering::Relaxed);
    wait_until("it ends", || server.has_ended());
    assert_eq!(target.got().len(), 2);
    assert_eq!(
        (count(&world, "succeeded"), count(&world, "pending")),
        (2, 3)
    );
}

#[test]
fn a_target_that_is_down_is_left_alone_until_it_is_back() {
    let place = Reserved::new();
    let breaker = "[breakers.\"queue/mail\"]\nfailures = 2\ncool_down = \"100ms\"\ncool_down_max = \"200ms\"\n";
    let world = world(&place.url(), &format!("{AT_ONCE}{breaker}"));
    let server = serve(&world);
    submit(&world, "a", &["--input", "1"]);
    let breaker = || world.semel(&["breaker", "list", "--json"]).json();
    wait_until("the breaker opened again and again", || {
        breaker()
            .first()
            .is_some_and(|it| it["times_opened"].as_u64() >= Some(4))
    });
    assert_eq!(breaker()[0]["name"], "queue/mail");
    // Whoever looks for the target does so without a task.
    let record = show(&world, "a");
    assert_eq!(
        (&record["state"], &record["attempt"]),
        (&json!("pending"), &json!(2))
    );
    let target = Target::start_at(place.listen(), |_, _| Reply::DONE);
    wait_for(&world, "a", "succeeded");
    wait_until("the breaker is closed", || {
        breaker()[0]["state"] == "closed"
    });
    drop(server);
    assert_eq!(target.by_key()["a"], 1);
}

#[test]
fn wrong_settings_are_named_and_nothing_secret_is_shown() {
    let url = "https://hooks.example/T0/s3cret";
    for (settings, said) in [
        (
            "push = \"hooks.example\"\n".to_owned(),
            "queues.mail: push: it begins with http",
        ),
        (format!("push = \"{url} x\"\n"), "queues.mail: push: "),
        (
            format!("push = \"{url}\"\npush_secret = \"whsec_s3cret\"\n"),
            "queues.mail: push_secret: a secret is",
        ),
        (
            format!("push = \"{url}\"\npush_concurrency = 0\n"),
            "push_concurrency: it is from 1 to 256",
        ),
        (
            format!("push = \"{url}\"\npush_timeout = \"2h\"\n"),
            "push_timeout: it is at most 1h",
        ),
        (
            "push_timeout = \"2s\"\n".to_owned(),
            "`push_timeout` goes with `push`",
        ),
        (
            "breaker = \"bank\"\n".to_owned(),
            "`breaker` goes with `push`",
        ),
        (
            format!("push = \"{url}\"\npush_timeot = \"2s\"\n"),
            "push_timeout",
        ),
    ] {
        let world = World::new();
        let text = format!("[queues.mail]\n{settings}");
        fs::write(world.path("semel.toml"), text).expect("it can be written");
        let ran = world.semel(&["list"]);
        assert_eq!(ran.code, 64, "{settings}: {ran:?}");
        assert!(ran.stderr.contains(said), "{settings}: {}", ran.stderr);
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    }
    let world = world(url, &format!("push_secret = \"{SECRET}\"\n"));
    let shown = world.semel(&["config", "show"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    for secret in ["s3cret", "whsec_Bw"] {
        assert!(!shown.stdout.contains(secret), "{}", shown.stdout);
    }
}
