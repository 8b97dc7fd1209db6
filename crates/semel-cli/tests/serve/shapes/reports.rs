use serde_json::json;

use super::{begin, bring, done, is_receipt, is_time, last_event, record, settle, with};
use crate::harness::World;
use crate::http::Asked;
use crate::server::Server;

#[test]
fn a_settled_key_is_replayed() {
    let world = World::new();
    let server = Server::start(&world);
    server.post("/v1/begin", &begin("k")).expect(200);
    let receipt = server.post("/v1/settle", &done("k")).expect(200);
    is_receipt(&receipt, "k", "succeeded");
    assert_eq!(
        (
            &receipt["ok"],
            &receipt["effect"],
            &receipt["replayed"],
            &receipt["name"]
        ),
        (
            &json!(true),
            &json!("created"),
            &json!(false),
            &json!("create-order")
        ),
    );
    assert_eq!(
        (&receipt["attempt"], &receipt["fence"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(receipt["data"], json!({"id": 42}));
    is_time(&receipt["started_at"]);
    is_time(&receipt["settled_at"]);
    let entries = last_event(&server);
    assert_eq!(
        server.post("/v1/settle", &done("k")).expect(200),
        receipt,
        "the same receipt"
    );
    assert_eq!(last_event(&server), entries, "a repeat writes nothing");
    let replay = server
        .post("/v1/begin", &with(begin("k"), json!({"attempt_id": "b"})))
        .expect(200);
    assert_eq!(replay["decision"], "replay");
    let replayed = &replay["receipt"];
    is_receipt(replayed, "k", "succeeded");
    assert_eq!(
        (
            &replayed["ok"],
            &replayed["effect"],
            &replayed["replayed"],
            &replayed["original_effect"]
        ),
        (
            &json!(true),
            &json!("noop"),
            &json!(true),
            &json!("created")
        ),
    );
    assert!(replayed["reason"].is_string(), "{replayed}");
    assert_eq!(replayed["data"], json!({"id": 42}));
}

/// What was answered is given again byte for byte, however it was written.
#[test]
fn an_answer_is_kept_exactly() {
    let world = World::new();
    let server = Server::start(&world);
    for (number, data) in [
        "null",
        "0",
        "-0.0",
        "1e2",
        "1.10",
        "12345678901234567890123",
        "\"\\u00e9\\ud83d\\ude00\"",
        "{\"b\":1,\"a\":[ 2 ]}",
        "\"\"",
    ]
    .iter()
    .enumerate()
    {
        let key = format!("k-{number}");
        server.post("/v1/begin", &begin(&key)).expect(200);
        let report = format!(
            r#"{{"key":"{key}","attempt_id":"a-{key}","fence":1,"verdict":"done","data":{data}}}"#
        );
        let asked = Asked::new("POST", "/v1/settle").header("Content-Type", "application/json");
        server.ask(asked.body(report.as_bytes())).expect(200);
        let replay = server.post("/v1/begin", &begin(&key));
        let text = String::from_utf8_lossy(&replay.body).into_owned();
        assert!(text.contains(&format!("\"data\":{data}")), "{data}: {text}");
    }
}

#[test]
fn a_failure_is_an_outcome_and_no_error() {
    let world = World::new();
    let server = Server::start(&world);
    server.post("/v1/begin", &begin("k")).expect(200);
    let failure = settle(
        "k",
        json!({"verdict": "done", "ok": false, "effect": "noop", "data": "sold out"}),
    );
    let receipt = server.post("/v1/settle", &failure).expect(200);
    is_receipt(&receipt, "k", "failed");
    assert_eq!(
        (&receipt["ok"], &receipt["data"]),
        (&json!(false), &json!("sold out"))
    );
    assert_eq!(receipt.get("error"), None, "{receipt}");
    let replay = server.post("/v1/begin", &begin("k")).expect(200);
    assert_eq!(
        (&replay["decision"], &replay["receipt"]["ok"]),
        (&json!("replay"), &json!(false))
    );
}

#[test]
fn what_was_not_done_is_tried_again_with_the_next_fence() {
    let world = World::new();
    let server = Server::start(&world);
    bring(&server, "k", "running");
    let not_done = settle("k", json!({"verdict": "not_done", "error": "refused"}));
    let receipt = server.post("/v1/settle", &not_done).expect(200);
    is_receipt(&receipt, "k", "pending");
    assert_eq!(server.post("/v1/settle", &not_done).expect(200), receipt);
    // An attempt that has ended is never begun again.
    server.post("/v1/begin", &begin("k")).problem(409, "fenced");
    let granted = server
        .post("/v1/begin", &with(begin("k"), json!({"attempt_id": "b"})))
        .expect(200);
    assert_eq!(
        (&granted["fence"], &granted["attempt"]),
        (&json!(2), &json!(2))
    );
    server.post("/v1/settle", &not_done).problem(409, "fenced");
}

#[test]
fn a_report_by_nobody_is_fenced() {
    let world = World::new();
    let server = Server::start(&world);
    server
        .post("/v1/settle", &done("nothing"))
        .problem(404, "not_found");
    bring(&server, "k", "running");
    for wrong in [
        json!({"attempt_id": "b"}),
        json!({"fence": 2}),
        json!({"fence": 0}),
        json!({"attempt_id": "A-K"}),
        json!({"fence": i64::MAX}),
    ] {
        for report in [
            done("k"),
            settle("k", json!({"verdict": "not_done"})),
            settle("k", json!({"verdict": "unknown"})),
        ] {
            let answer = server.post("/v1/settle", &with(report, wrong.clone()));
            answer.problem(409, "fenced");
        }
        let renew = with(
            json!({"key": "k", "attempt_id": "a-k", "fence": 1}),
            wrong.clone(),
        );
        server.post("/v1/renew", &renew).problem(409, "fenced");
    }
    assert_eq!(record(&server, "k")["state"], "running");
}
