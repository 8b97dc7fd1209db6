use serde_json::json;

use super::{LEASE, TASKS, lease};
use crate::harness::World;
use crate::http::Asked;
use crate::server::Server;

#[test]
fn wrong_bodies_are_refused_and_do_nothing() {
    let world = World::new();
    let server = Server::start(&world);
    let refused = |path: &str, body: &str| {
        let asked = Asked::new("POST", path).body(body.as_bytes());
        let problem = server.ask(asked).problem(400, "invalid_input");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.len() > 10, "{body}: {problem}");
    };
    for members in [
        r#""priority": 1.5"#,
        r#""priority": 101"#,
        r#""priority": -101"#,
        r#""priority": 18446744073709551616"#,
        r#""priority": "1""#,
        r#""delay_ms": -1"#,
        r#""delay_ms": 0.5"#,
        r#""delay_ms": 3153600000001"#,
        r#""delay_ms": 1e300"#,
        r#""run_at": "tomorrow""#,
        r#""run_at": 5"#,
        r#""lane": """#,
        r#""lane": "a\u0000b""#,
        r#""name": """#,
        r#""max_attempts": 0"#,
        r#""max_attempts": 4294967296"#,
        r#""retention_ms": 1"#,
        r#""retry_within_ms": 0"#,
        r#""on_doubt": "guess""#,
        r#""class": "safe""#,
        r#""backoff": [1, 2]"#,
        r#""backoff": {"base_ms": 2, "cap_ms": 1}"#,
        r#""backoff": {"base_ms": 0, "cap_ms": 1}"#,
        r#""backoff": {"base_ms": 1, "cap_ms": 86400001}"#,
        r#""backoff": {"base_ms": 1}"#,
        r#""backoff": {"base_ms": 1, "cap_ms": 1, "more": 1}"#,
        r#""backoff": 5"#,
        r#""input": {"a": 1, "a": 2}"#,
        r#""dry_run": 1"#,
        r#""queue": "other""#,
        r#""key": "again""#,
    ] {
        refused(TASKS, &format!("{{\"key\": \"k\", {members}}}"));
    }
    for body in ["", "null", "5", "\"k\"", "{\"key\": 5}"] {
        refused(TASKS, body);
    }
    for body in [
        "",
        "null",
        "[]",
        "[1]",
        "[{}]",
        "5",
        r#"{"max": 0}"#,
        r#"{"max": 257}"#,
        r#"{"max": 1.5}"#,
        r#"{"max": "1"}"#,
        r#"{"max": 18446744073709551617}"#,
        r#"{"wait_ms": -1}"#,
        r#"{"wait_ms": 0.1}"#,
        r#"{"lease_ms": 999}"#,
        r#"{"lease_ms": 86400001}"#,
        r#"{"probes": "yes"}"#,
        r#"{"queue": "mails"}"#,
    ] {
        refused(LEASE, body);
    }
    refused("/v1/queues/a%00b/tasks", r#"{"key": "k"}"#);
    refused(&format!("/v1/queues/{}/lease", "x".repeat(256)), "{}");
    let listed = server.get("/v1/operations").expect(200);
    assert_eq!(listed["items"], json!([]), "{listed}");
}

#[test]
fn numbers_may_be_written_in_every_way_that_means_the_same() {
    let world = World::new();
    let server = Server::start(&world);
    let body = r#"{"key": "k", "priority": -1.0e1, "delay_ms": 0.0, "max_attempts": 1e1,
        "backoff": {"base_ms": 1e0, "cap_ms": 2.0}, "name": null, "lane": null, "backoff": null}"#;
    // Which of two members is meant nobody knows.
    let asked = Asked::new("POST", TASKS).body(body.as_bytes());
    server.ask(asked).problem(400, "invalid_input");
    let body = body.replace(r#", "backoff": null"#, "");
    let asked = Asked::new("POST", TASKS).body(body.as_bytes());
    server.ask(asked).expect(200);
    let most = json!({"max": 256.0, "wait_ms": 0.0, "lease_ms": 6e4, "probes": false});
    assert_eq!(lease(&server, &most).len(), 1);
}

#[test]
fn a_step_names_its_parent_by_its_members() {
    let world = World::new();
    let server = Server::start(&world);
    let parent = json!({"key": "p", "name": "n"});
    server.post("/v1/begin", &parent).expect(200);
    let step = |parent: serde_json::Value| json!({"key": "s", "name": "n", "parent": parent});
    server
        .post("/v1/begin", &step(json!(["p", 1])))
        .problem(400, "invalid_input");
    let step = step(json!({"key": "p", "fence": 1}));
    server.post("/v1/begin", &step).expect(200);
}
