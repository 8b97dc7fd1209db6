use serde_json::json;

use super::{LEASE, TASKS, done, lease, lease_one, leave, report, task};
use crate::harness::World;
use crate::http::Asked;
use crate::server::Server;

#[test]
fn a_task_is_left_taken_and_settled() {
    let world = World::new();
    let server = Server::start(&world);
    let input = json!({"to": "ann"});
    let receipt = leave(&server, "mail-7", &json!({"input": input, "name": "send"}));
    for (member, value) in [
        ("ok", json!(true)),
        ("effect", json!("created")),
        ("state", json!("pending")),
        ("name", json!("send")),
        ("attempt", json!(0)),
    ] {
        assert_eq!(receipt[member], value, "{member}: {receipt}");
    }
    let taken = lease_one(&server);
    for (member, value) in [
        ("key", json!("mail-7")),
        ("name", json!("send")),
        ("input", input.clone()),
        ("attempt", json!(1)),
        ("fence", json!(1)),
        ("decision", json!("execute")),
    ] {
        assert_eq!(taken[member], value, "{member}: {taken}");
    }
    assert!(taken["lease_until"].is_string() && taken["attempt_id"].is_string());
    assert!(taken.get("probe_digest").is_none() && taken.get("input_base64").is_none());
    // Nobody else gets it, and whoever leaves it again is told that it runs.
    assert!(lease(&server, &json!({})).is_empty());
    let same = json!({"input": input, "name": "send"});
    let again = leave(&server, "mail-7", &same);
    assert_eq!(
        (&again["effect"], &again["state"], &again["ok"]),
        (&json!("noop"), &json!("running"), &json!(true)),
        "{again}"
    );
    let settled = server.post("/v1/settle", &done(&taken)).expect(200);
    assert_eq!(settled["state"], "succeeded", "{settled}");
    let again = leave(&server, "mail-7", &same);
    assert_eq!(
        (&again["effect"], &again["replayed"], &again["data"]["sent"]),
        (&json!("noop"), &json!(true), &json!("mail-7")),
        "{again}"
    );
    server
        .ask(task("mail-7", &json!({"input": 5, "name": "send"})))
        .problem(422, "key_reused");
    assert!(lease(&server, &json!({})).is_empty());
}

#[test]
fn the_name_is_that_of_the_queue_unless_another_is_said() {
    let world = World::new();
    let server = Server::start(&world);
    assert_eq!(leave(&server, "k", &json!({}))["name"], "mails");
    let taken = lease_one(&server);
    assert_eq!(taken["name"], "mails");
    assert!(taken.get("input").is_some_and(|it| it.is_null()), "{taken}");
    leave(&server, "null", &json!({"input": null}));
    let taken = lease_one(&server);
    assert!(taken.get("input").is_some_and(|it| it.is_null()), "{taken}");
}

#[test]
fn a_worker_gets_the_bytes_that_were_submitted() {
    let world = World::new();
    let server = Server::start(&world);
    let input = "{ \"b\": 1.0,\"a\" : [1e2, \"\\u00fc\u{fc}\"] }";
    let body = format!("{{\"key\":\"k\",\"input\": {input} }}");
    let asked = Asked::new("POST", TASKS).body(body.as_bytes());
    server.ask(asked).expect(200);
    let answer = server.post(LEASE, &json!({}));
    answer.expect(200);
    let text = String::from_utf8(answer.body).expect("it is a text");
    assert!(text.contains(&format!("\"input\":{input},")), "{text}");
}

#[test]
fn the_key_stands_in_a_header_or_in_the_body() {
    let world = World::new();
    let server = Server::start(&world);
    let key = |asked: Asked| server.ask(asked).expect(200)["key"].clone();
    assert_eq!(key(task("bare", &json!({}))), "bare");
    assert_eq!(key(task("\"with a, comma\"", &json!({}))), "with a, comma");
    let in_body = json!({"key": "in the body"});
    assert_eq!(key(Asked::post(TASKS, &in_body)), "in the body");
    assert_eq!(key(task("\"in the body\"", &in_body)), "in the body");
    let problem = server.ask(task("other", &in_body));
    problem.problem(400, "invalid_input");
    let problem = server.post(TASKS, &json!({"input": 1}));
    let problem = problem.problem(400, "invalid_input");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(
        detail.contains("Idempotency-Key") && detail.contains("`key`"),
        "{problem}"
    );
    for wrong in ["", "two words", "\"open", "a,b", "\"\"", "\" x\""] {
        let problem = server.ask(task(wrong, &json!({})));
        problem.problem(400, "invalid_key");
    }
    // Also where it says nothing.
    let array = json!([{"key": "a"}]);
    server
        .ask(task("two words", &array))
        .problem(400, "invalid_key");
    assert_eq!(server.ask(task("other", &array)).expect(200)[0]["key"], "a");
    let twice = task("a", &json!({})).header("Idempotency-Key", "a");
    server.ask(twice).problem(400, "invalid_key");
    let spaced = Asked::post(TASKS, &json!({"key": " x"}));
    server.ask(spaced).problem(400, "invalid_key");
}

#[test]
fn what_is_said_of_a_task_is_kept_to() {
    let world = World::new();
    let server = Server::start(&world);
    leave(&server, "a/last", &json!({"priority": -100}));
    leave(&server, "b/usual", &json!({}));
    leave(&server, "c/first", &json!({"priority": 1e2}));
    leave(&server, "later", &json!({"delay_ms": 86_400_000}));
    let at = json!({"run_at": "2999-01-01T00:00:00Z", "delay_ms": 0, "lane": "l"});
    leave(&server, "\"much later\"", &at);
    let tasks = lease(&server, &json!({"max": 256}));
    let keys: Vec<_> = tasks.iter().map(|task| &task["key"]).collect();
    assert_eq!(keys, ["c/first", "b/usual", "a/last"]);
    let [later, much_later] = ["later", "much%20later"].map(|key| {
        let record = server.get(&format!("/v1/operations/{key}")).expect(200);
        record["run_at"].as_str().expect("a time").to_owned()
    });
    assert!(later < much_later && much_later.starts_with("2999"));
    assert_eq!(
        server.get("/v1/operations/later").expect(200)["max_attempts"],
        10
    );
}

#[test]
fn what_was_not_done_comes_back_until_its_attempts_are_over() {
    let world = World::new();
    let server = Server::start(&world);
    let body = json!({"max_attempts": 2, "backoff": {"base_ms": 1, "cap_ms": 1}});
    leave(&server, "k", &body);
    for attempt in 1..=2 {
        let taken = lease_one(&server);
        assert_eq!(taken["attempt"], attempt, "{taken}");
        let failed = report(&taken, &json!({"verdict": "not_done", "error": "busy"}));
        server.post("/v1/settle", &failed).expect(200);
    }
    let dead = server
        .get("/v1/operations?state=dead&queue=mails")
        .expect(200);
    assert_eq!(dead["items"][0]["key"], "k", "{dead}");
    server.ask(task("k", &body)).problem(409, "dead");
    let other = server.get("/v1/operations?queue=other").expect(200);
    assert_eq!(other["items"], json!([]), "{other}");
    let retry = json!({"key": "k", "version": dead["items"][0]["version"]});
    server.post("/v1/retry", &retry).expect(200);
    assert_eq!(lease_one(&server)["key"], "k");
}

#[test]
fn a_doubt_is_looked_up_by_those_who_can() {
    let world = World::new();
    let server = Server::start(&world);
    leave(&server, "k", &json!({"on_doubt": "probe"}));
    let taken = lease_one(&server);
    let unknown = report(&taken, &json!({"verdict": "unknown"}));
    server.post("/v1/settle", &unknown).expect(200);
    assert!(lease(&server, &json!({"max": 5})).is_empty());
    // Not before the doubted lease is over.
    let probes = json!({"probes": true, "wait_ms": 0});
    assert!(lease(&server, &probes).is_empty());
    leave(&server, "short", &json!({"on_doubt": "probe"}));
    let [taken] = &lease(&server, &json!({"lease_ms": 1_000}))[..] else {
        panic!("there is one");
    };
    let unknown = report(taken, &json!({"verdict": "unknown"}));
    server.post("/v1/settle", &unknown).expect(200);
    let probes = json!({"probes": true, "wait_ms": super::LONG_MS});
    let [probe] = &lease(&server, &probes)[..] else {
        panic!("there is one");
    };
    assert_eq!(
        (&probe["key"], &probe["decision"]),
        (&json!("short"), &json!("probe")),
        "{probe}"
    );
    let found = report(probe, &json!({"verdict": "done", "data": "found"}));
    let settled = server.post("/v1/settle", &found).expect(200);
    assert_eq!(settled["state"], "succeeded", "{settled}");
}

#[test]
fn a_rehearsed_task_is_not_left() {
    let world = World::new();
    let server = Server::start(&world);
    let plan = leave(&server, "k", &json!({"dry_run": true}));
    assert_eq!(
        (&plan["effect"], &plan["dry_run"]),
        (&json!("would_create"), &json!(true)),
        "{plan}"
    );
    assert!(lease(&server, &json!({})).is_empty());
    server.get("/v1/operations/k").problem(404, "not_found");
}

#[test]
fn queues_are_listed_with_what_is_on_them() {
    let world = World::new();
    let server = Server::start(&world);
    let empty = server.get("/v1/queues").expect(200);
    assert_eq!(empty, json!({"items": [], "at_least": false}));
    for key in ["a", "b", "c", "d"] {
        leave(&server, key, &json!({"max_attempts": 1}));
    }
    let other = Asked::post("/v1/queues/other%20ones/tasks", &json!({"key": "o"}));
    server.ask(other).expect(200);
    let direct = json!({"key": "direct", "name": "n"});
    server.post("/v1/submit", &direct).expect(200);
    let taken = lease(&server, &json!({"max": 3}));
    for (task, verdict) in taken.iter().zip(["unknown", "not_done"]) {
        let report = report(task, &json!({"verdict": verdict}));
        server.post("/v1/settle", &report).expect(200);
    }
    let listed = server.get("/v1/queues").expect(200);
    let expected = json!({"items": [
        {"queue": "mails", "pending": 1, "running": 1, "doubtful": 1, "dead": 1},
        {"queue": "other ones", "pending": 1, "running": 0, "doubtful": 0, "dead": 0},
    ], "at_least": false});
    assert_eq!(listed, expected);
    server
        .get("/v1/queues?state=dead")
        .problem(400, "invalid_input");
}
