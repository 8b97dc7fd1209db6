//! What is told, and how.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use semel_testkit::certificates::Authority;
use serde_json::json;

use crate::server::{World, eventually};
use crate::sink::{Got, Reply, Sink};

/// 32 bytes of 7 in base64.
const SECRET: &str = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

/// Signs as the specification says, by another program.
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
    let signed = format!("{id}.{at}.{}", got.text);
    let mut stdin = child.stdin.take().expect("it has one");
    stdin.write_all(signed.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let mac = String::from_utf8(output.stdout).expect("it is text");
    format!("v1,{}", mac.trim())
}

#[test]
fn a_doubt_and_a_dead_operation_are_sent_with_all_that_is_needed() {
    let (world, sink) = (World::new(), Sink::new());
    let url = sink.url("/hook?team=a");
    let server = world.serve(&[
        ("SEMEL_NOTIFY_WEBHOOK", &url),
        ("SEMEL_NOTIFY_SECRET", SECRET),
    ]);
    server.doubt("o-1");
    let doubt = sink.wait();
    assert_eq!(doubt.path, "/hook?team=a");
    assert_eq!(doubt.headers["content-type"], "application/json");
    assert_eq!(doubt.headers["webhook-signature"], signature(&doubt));
    let told = doubt.json();
    assert_eq!(told["id"], doubt.id());
    for (member, value) in [
        ("type", json!("doubt")),
        ("namespace", json!("default")),
        ("key", json!("o-1")),
        ("name", json!("pay")),
        ("state", json!("doubtful")),
        ("fence", json!(1)),
        ("version", json!(2)),
    ] {
        assert_eq!(told[member], value, "{member}: {told}");
    }
    assert_eq!(told["record"]["key"], "o-1");
    assert_eq!(told["record"]["attempts"], json!(null));
    assert!(
        told["hint"]
            .as_str()
            .is_some_and(|it| it.contains("semel resolve"))
    );
    assert!(
        told["at"].as_str().is_some_and(|at| at.ends_with('Z')),
        "{told}"
    );
    server.settled(
        "o-2",
        &json!({"verdict": "not_done", "reject": true, "error": "no"}),
    );
    let dead = sink.wait().json();
    assert_eq!(
        (&dead["type"], &dead["key"]),
        (&json!("dead"), &json!("o-2"))
    );
    assert!(
        dead["hint"]
            .as_str()
            .is_some_and(|it| it.contains("semel retry"))
    );
    // What is settled is nobody's concern.
    server.settled("o-3", &json!({"verdict": "done"}));
    server.doubt("o-4");
    assert_eq!(sink.wait().json()["key"], "o-4");
    // It is counted once the answer has come and is written down.
    let told = "semel_notify_deliveries_total{channel=\"webhook\"}";
    eventually("all three are counted", || server.metric(told) >= 3.0);
    assert_eq!(
        server.metric("semel_notify_failures_total{channel=\"webhook\"}"),
        0.0
    );
    server.stop();
}

#[test]
fn what_is_refused_is_sent_again_under_the_same_id() {
    let (world, sink) = (World::new(), Sink::new());
    let server = world.serve(&[("SEMEL_NOTIFY_WEBHOOK", &sink.url("/"))]);
    sink.next(&[Reply::Status(500), Reply::Status(302), Reply::Status(429)]);
    server.doubt("o-1");
    let sent: Vec<_> = (0..4).map(|_| sink.wait()).collect();
    assert!(sent.iter().all(|got| got.id() == sent[0].id()), "{sent:?}");
    assert_eq!(
        server.metric("semel_notify_failures_total{channel=\"webhook\"}"),
        3.0
    );
    assert!(
        server.log().contains("a notification failed"),
        "{}",
        server.log()
    );
    // The key may be private; its hash is not.
    assert!(!server.log().contains("o-1"), "{}", server.log());
    assert!(
        sent.iter()
            .all(|got| !got.headers.contains_key("webhook-signature"))
    );
}

#[test]
fn nobody_is_told_of_what_is_over_by_then() {
    let (world, sink) = (World::new(), Sink::new());
    let server = world.serve(&[("SEMEL_NOTIFY_WEBHOOK", &sink.url("/"))]);
    // Nobody listens for a while, and somebody resolves the doubt meanwhile.
    sink.next(&[Reply::Status(503)]);
    server.doubt("o-1");
    assert_eq!(sink.wait().json()["key"], "o-1");
    let resolve = json!({"key": "o-1", "version": 2, "verdict": "done"});
    server.post("/v1/resolve", &resolve);
    eventually("it is counted", || {
        server.metric("semel_notify_waiting") <= 0.0
    });
    let told: Vec<_> = sink.rest();
    // It may have been sent once more before it was resolved, and never afterwards.
    assert!(told.len() <= 1, "{told:?}");
    let open = world.semel(&[
        "--namespace",
        "semel",
        "list",
        "--state",
        "pending,doubtful,running",
        "--json",
    ]);
    assert_eq!(open, "");
    server.doubt("o-2");
    assert_eq!(sink.wait().json()["key"], "o-2");
}

#[test]
fn a_command_gets_it_on_its_input_and_in_its_environment() {
    let world = World::new();
    let told = world.path("told");
    // It fails until it is let, and then takes what it is given.
    let command = "test -e ready || { echo not yet >&2; exit 3; }\n\
                   { cat; echo; echo \"$SEMEL_NOTIFY_EVENT\"; env; } > new && mv new told";
    let settings = [
        ("SEMEL_NOTIFY_COMMAND", command),
        ("SEMEL_NOTIFY_SECRET", SECRET),
    ];
    let server = world.serve(&settings);
    server.doubt("o 1");
    let failures = "semel_notify_failures_total{channel=\"command\"}";
    eventually("it is counted", || server.metric(failures) >= 2.0);
    std::fs::write(world.path("ready"), "").expect("it can be written");
    eventually("it is counted", || {
        server.metric("semel_notify_deliveries_total{channel=\"command\"}") >= 1.0
    });
    let text = std::fs::read_to_string(told).expect("it was told");
    let mut lines = text.lines();
    let (stdin, event) = (lines.next(), lines.next());
    assert_eq!(stdin, event);
    let event: serde_json::Value = serde_json::from_str(event.expect("it is there")).expect("JSON");
    assert_eq!(
        (&event["type"], &event["key"]),
        (&json!("doubt"), &json!("o 1"))
    );
    let id = event["id"].as_str().expect("it has one");
    for line in [
        "SEMEL_NOTIFY_KEY=o 1",
        "SEMEL_NOTIFY_TYPE=doubt",
        "SEMEL_NOTIFY_NAMESPACE=default",
        &format!("SEMEL_NOTIFY_ID={id}"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(!text.contains(SECRET), "a command needs no secret");
    assert!(server.log().contains("not yet"), "{}", server.log());
}

#[test]
fn a_webhook_over_tls_goes_to_nobody_but_whom_it_names() {
    let authority = Authority::new("ops");
    let vouched = authority.vouch("localhost", "DNS:localhost");
    let path = |path: &Path| path.display().to_string();
    let (cert, key) = (path(&vouched.certificate), path(&vouched.key));
    // Another server stands for the receiver: it answers that there is nothing, so it was reached.
    let (receiver, world) = (World::new(), World::new());
    let tls = [
        ("SEMEL_SERVE_TLS_CERT", cert.as_str()),
        ("SEMEL_SERVE_TLS_KEY", key.as_str()),
    ];
    let receiver = receiver.serve(&tls);
    let url = format!("https://localhost:{}/hook", receiver.port());
    let roots = path(&authority.certificate());
    let settings = [
        ("SEMEL_NOTIFY_WEBHOOK", url.as_str()),
        ("SEMEL_NOTIFY_COMMAND", "true"),
    ];
    let server = world.serve(&[&settings[..], &[("SSL_CERT_FILE", &roots)]].concat());
    server.doubt("o-1");
    eventually("it is reached", || server.log().contains("404 Not Found"));
    server.stop();
    // Nobody vouches for it here, and nothing is sent.
    let strange = Authority::new("strange");
    let strange = (path(&strange.certificate()), strange);
    let server = world.serve(&[&settings[..], &[("SSL_CERT_FILE", &strange.0)]].concat());
    eventually("it is refused", || server.log().contains("certificate"));
    assert!(!server.log().contains("404"), "{}", server.log());
}

#[test]
fn what_must_not_be_shown_is_not_told() {
    let (world, sink) = (World::new(), Sink::new());
    let command = "echo password=hunter2 >&2; exit 1";
    let url = sink.url("/");
    let server = world.serve(&[
        ("SEMEL_NOTIFY_WEBHOOK", &url),
        ("SEMEL_NOTIFY_COMMAND", command),
    ]);
    let begin = json!({"key": "o-1", "name": "pay"});
    let grant = server.post("/v1/begin", &begin);
    let mut report = json!({"key": "o-1", "verdict": "unknown", "error": "password=hunter2"});
    for member in ["attempt_id", "fence"] {
        report[member] = grant[member].clone();
    }
    server.post("/v1/settle", &report);
    let told = sink.wait();
    assert!(!told.text.contains("hunter2"), "{}", told.text);
    eventually("the command's failure is in the log", || {
        server.log().contains("a notification failed")
    });
    assert!(
        server.log().contains("password=[redacted]"),
        "{}",
        server.log()
    );
    assert!(!server.log().contains("hunter2"), "{}", server.log());
}

#[test]
fn settings_that_cannot_work_are_said_at_the_start() {
    let world = World::new();
    for (name, value, said) in [
        (
            "SEMEL_NOTIFY_WEBHOOK",
            "ftp://a",
            "notify.webhook (environment SEMEL_NOTIFY_WEBHOOK)",
        ),
        (
            "SEMEL_NOTIFY_SECRET",
            "hunter2",
            "notify.secret (environment SEMEL_NOTIFY_SECRET)",
        ),
        (
            "SEMEL_SERVE_OTLP",
            "a",
            "serve.otlp (environment SEMEL_SERVE_OTLP)",
        ),
    ] {
        let output = world.command(&["serve"]).env(name, value).output();
        let output = output.expect("it runs");
        let text = String::from_utf8(output.stderr).expect("it is text");
        assert_eq!(output.status.code(), Some(64), "{text}");
        assert!(text.contains(said) && !text.contains("hunter2"), "{text}");
    }
}

#[test]
fn server_for_one_namespace_tells_of_that_one_and_counts_it_only() {
    let (world, sink) = (World::new(), Sink::new());
    let ours = world.serve(&[("SEMEL_NAMESPACE", "ours")]);
    // It is there before the server that tells, and the next one comes while it runs.
    ours.doubt("o-1");
    let url = sink.url("/");
    let theirs = world.serve(&[
        ("SEMEL_NAMESPACE", "theirs"),
        ("SEMEL_NOTIFY_WEBHOOK", &url),
    ]);
    ours.doubt("o-2");
    for key in ["t-1", "t-2"] {
        theirs.doubt(key);
        let told = sink.wait().json();
        assert_eq!(
            (&told["namespace"], &told["key"]),
            (&json!("theirs"), &json!(key))
        );
    }
    assert_eq!(ours.metric("semel_doubts_open"), 2.0);
    assert_eq!(theirs.metric("semel_doubts_open"), 2.0);
    theirs.stop();
    // A server for all namespaces tells of the rest.
    let all = world.serve(&[("SEMEL_NOTIFY_WEBHOOK", &url)]);
    let mut keys = [sink.wait(), sink.wait()].map(|told| told.json()["key"].clone());
    keys.sort_by_key(ToString::to_string);
    assert_eq!(keys, [json!("o-1"), json!("o-2")]);
    assert_eq!(all.metric("semel_doubts_open"), 4.0);
    all.stop();
    ours.stop();
}
