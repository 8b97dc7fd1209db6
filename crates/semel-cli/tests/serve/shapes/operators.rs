use serde_json::{Value, json};

use super::{STATES, begin, bring, is_receipt, is_time, last_event, record, with};
use crate::harness::World;
use crate::server::Server;

/// An operator's order on the present version.
fn order(server: &Server, key: &str, members: Value) -> Value {
    let version = record(server, key)["version"].clone();
    with(json!({"key": key, "version": version}), members)
}

#[test]
fn a_doubt_is_resolved_either_way() {
    let world = World::new();
    let server = Server::start(&world);
    bring(&server, "done", "doubtful");
    let resolve = order(
        &server,
        "done",
        json!({
            "verdict": "done", "ok": true, "effect": "created", "data": {"id": 7}, "note": "seen in the shop",
        }),
    );
    let receipt = server.post("/v1/resolve", &resolve).expect(200);
    is_receipt(&receipt, "done", "succeeded");
    assert_eq!(
        (&receipt["ok"], &receipt["data"]["id"]),
        (&json!(true), &json!(7))
    );
    let entries = last_event(&server);
    assert_eq!(
        server.post("/v1/resolve", &resolve).expect(200),
        receipt,
        "the same answer"
    );
    assert_eq!(last_event(&server), entries, "a repeat writes nothing");
    let record_of = record(&server, "done");
    assert_eq!(
        record_of["resolved"]["note"], "seen in the shop",
        "{record_of}"
    );
    assert!(record_of["resolved"]["by"].is_string(), "{record_of}");
    is_time(&record_of["resolved"]["at"]);
    let replay = server
        .post(
            "/v1/begin",
            &with(begin("done"), json!({"attempt_id": "b"})),
        )
        .expect(200);
    assert_eq!(replay["receipt"]["data"]["id"], 7, "{replay}");

    bring(&server, "failed", "doubtful");
    let resolve = order(&server, "failed", json!({"verdict": "done", "ok": false}));
    let receipt = server.post("/v1/resolve", &resolve).expect(200);
    is_receipt(&receipt, "failed", "failed");

    bring(&server, "not", "doubtful");
    let resolve = order(&server, "not", json!({"verdict": "not_done"}));
    let receipt = server.post("/v1/resolve", &resolve).expect(200);
    is_receipt(&receipt, "not", "pending");
    let entries = last_event(&server);
    server.post("/v1/resolve", &resolve).expect(200);
    assert_eq!(last_event(&server), entries, "a repeat writes nothing");
    let granted = server
        .post("/v1/begin", &with(begin("not"), json!({"attempt_id": "b"})))
        .expect(200);
    assert_eq!(granted["fence"], 2, "{granted}");
    // What the resolution was made on is no more: its repeat is known or refused, and licenses nothing.
    let entries = last_event(&server);
    server.post("/v1/resolve", &resolve);
    assert_eq!(last_event(&server), entries, "a repeat writes nothing");
    let other = with(begin("not"), json!({"attempt_id": "c"}));
    server.post("/v1/begin", &other).problem(409, "in_flight");
}

/// Orders name what they were decided on; whatever has changed since is refused, with what is there now.
#[test]
fn an_order_on_another_version_is_refused_with_the_present_record() {
    let world = World::new();
    let server = Server::start(&world);
    for (key, state, call, members) in [
        ("a", "doubtful", "resolve", json!({"verdict": "done"})),
        ("b", "doubtful", "resolve", json!({"verdict": "not_done"})),
        ("c", "failed", "retry", json!({})),
        ("d", "dead", "retry", json!({})),
        ("e", "pending", "cancel", json!({})),
        ("f", "dead", "cancel", json!({})),
        ("g", "succeeded", "forget", json!({})),
    ] {
        bring(&server, key, state);
        let right = order(&server, key, members);
        let version = right["version"].as_u64().expect("a number");
        let entries = last_event(&server);
        for wrong in [0, version - 1, version + 1, i64::MAX.unsigned_abs()] {
            for dry_run in [false, true] {
                let wrong = with(right.clone(), json!({"version": wrong, "dry_run": dry_run}));
                let problem = server
                    .post(&format!("/v1/{call}"), &wrong)
                    .problem(409, "fenced");
                assert_eq!(problem["record"]["version"], version, "{call}: {problem}");
                assert_eq!(problem["record"]["state"], state, "{call}: {problem}");
            }
        }
        assert_eq!(last_event(&server), entries, "{call} wrote something");
        let answer = server.post(&format!("/v1/{call}"), &right);
        assert_eq!(answer.status, 200, "{call}: {answer:?}");
        assert_ne!(last_event(&server), entries, "{call} wrote nothing");
        let entries = last_event(&server);
        let again = server.post(&format!("/v1/{call}"), &right);
        assert_eq!(again.status, 200, "{call} again: {again:?}");
        assert_eq!(last_event(&server), entries, "{call} again wrote something");
    }
}

/// The second table of DESIGN section 3, as far as the API reaches it.
#[test]
fn every_order_in_every_state_is_answered_as_the_rules_say() {
    let world = World::new();
    let server = Server::start(&world);
    // In the order of STATES: pending, running, succeeded, failed, doubtful, dead.
    let table: [(&str, Value, [&str; 6]); 5] = [
        (
            "resolve",
            json!({"verdict": "done"}),
            [
                "fenced",
                "in_flight",
                "fenced",
                "fenced",
                "succeeded",
                "succeeded",
            ],
        ),
        (
            "resolve",
            json!({"verdict": "not_done"}),
            ["fenced", "in_flight", "fenced", "fenced", "pending", "dead"],
        ),
        (
            "retry",
            json!({}),
            [
                "pending",
                "in_flight",
                "succeeded",
                "pending",
                "in_doubt",
                "pending",
            ],
        ),
        (
            "cancel",
            json!({}),
            [
                "failed",
                "in_flight",
                "fenced",
                "fenced",
                "in_doubt",
                "failed",
            ],
        ),
        (
            "forget",
            json!({}),
            ["fenced", "fenced", "stub", "stub", "fenced", "fenced"],
        ),
    ];
    let mut wrong = vec![];
    for (row, (call, members, cells)) in table.iter().enumerate() {
        for (state, expected) in STATES.iter().zip(cells) {
            let key = format!("{row}-{state}");
            bring(&server, &key, state);
            let body = order(&server, &key, members.clone());
            let dry = server.post(
                &format!("/v1/{call}"),
                &with(body.clone(), json!({"dry_run": true})),
            );
            let answer = server.post(&format!("/v1/{call}"), &body);
            let told = answer.json();
            let found = if answer.status == 200 {
                &told["state"]
            } else {
                &told["code"]
            };
            if found != expected {
                wrong.push(format!(
                    "{call} {members} of {state}: {expected} expected: {answer:?}"
                ));
            }
            // A rehearsal says the same.
            let dry_told = dry.json();
            let dry_found = if dry.status == 200 {
                &dry_told["state"]
            } else {
                &dry_told["code"]
            };
            if dry_found != expected {
                wrong.push(format!(
                    "dry {call} {members} of {state}: {expected} expected: {dry:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Of what is not there nothing is left to forget.
    let nothing = json!({"key": "nothing", "version": 1});
    let forgotten = server.post("/v1/forget", &nothing).expect(200);
    assert_eq!(forgotten["effect"], "noop", "{forgotten}");
    for call in ["resolve", "retry", "cancel"] {
        let mut body = json!({"key": "nothing", "version": 1});
        if call == "resolve" {
            body["verdict"] = "done".into();
        }
        server
            .post(&format!("/v1/{call}"), &body)
            .problem(404, "not_found");
    }
}

#[test]
fn what_is_retried_runs_again_and_what_is_forgotten_was_never_there() {
    let world = World::new();
    let server = Server::start(&world);
    bring(&server, "r", "failed");
    let receipt = server
        .post("/v1/retry", &order(&server, "r", json!({})))
        .expect(200);
    assert_eq!(receipt["previous_effect"], "noop", "{receipt}");
    let granted = server
        .post("/v1/begin", &with(begin("r"), json!({"attempt_id": "b"})))
        .expect(200);
    assert_eq!(
        (&granted["decision"], &granted["fence"]),
        (&json!("execute"), &json!(2))
    );

    bring(&server, "f", "succeeded");
    let forget = order(&server, "f", json!({"note": "asked for by its owner"}));
    let receipt = server.post("/v1/forget", &forget).expect(200);
    assert_eq!(
        (&receipt["ok"], &receipt["effect"]),
        (&json!(true), &json!("deleted")),
        "{receipt}"
    );
    server.get("/v1/operations/f").problem(404, "not_found");
    let again = server.post("/v1/forget", &forget).expect(200);
    assert_eq!(again["ok"], true, "{again}");
    // The key is free, and the fence goes on: an attempt from before cannot speak.
    let fresh = json!({"key": "f", "name": "other", "attempt_id": "b"});
    let granted = server.post("/v1/begin", &fresh).expect(200);
    assert_eq!(
        (&granted["decision"], &granted["fence"]),
        (&json!("execute"), &json!(2))
    );
    server
        .post("/v1/settle", &super::done("f"))
        .problem(409, "fenced");
    let events = server.get("/v1/operations/f/events").expect(200);
    let commands: Vec<_> = events["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item["command"].clone())
        .collect();
    assert!(commands.contains(&json!("begin")), "{events}");
}
