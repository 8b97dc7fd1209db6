use serde_json::{Value, json};

use super::{begin, bring, done, last_event, record, settle, with};
use crate::harness::World;
use crate::http::Asked;
use crate::server::Server;

#[test]
fn many_begins_are_answered_in_their_order_each_with_its_status() {
    let world = World::new();
    let server = Server::start(&world);
    bring(&server, "run", "running");
    bring(&server, "done", "succeeded");
    bring(&server, "doubt", "doubtful");
    let other = |key: &str| with(begin(key), json!({"attempt_id": "b"}));
    let calls = json!([
        begin("one"),
        other("done"),
        other("run"),
        other("doubt"),
        with(other("done"), json!({"input": 5})),
        {"key": "bad"},
        {"key": " bad ", "name": "n"},
        5,
        null,
        with(begin("dry"), json!({"dry_run": true})),
        begin("one"),
        other("one"),
        begin("two"),
    ]);
    let answers = server.post("/v1/begin", &calls).expect(200);
    let answers = answers
        .as_array()
        .expect("an array is answered with an array");
    let statuses: Vec<_> = answers
        .iter()
        .map(|answer| answer["status"].as_u64())
        .collect();
    let expected = [
        200, 200, 409, 409, 422, 400, 400, 400, 400, 200, 200, 409, 200,
    ];
    assert_eq!(statuses, expected.map(Some), "{answers:?}");
    let codes: Vec<_> = answers
        .iter()
        .map(|answer| answer["code"].as_str())
        .collect();
    assert_eq!(
        codes,
        [
            None,
            None,
            Some("in_flight"),
            Some("in_doubt"),
            Some("key_reused"),
            Some("invalid_input"),
            Some("invalid_key"),
            Some("invalid_input"),
            Some("invalid_input"),
            None,
            None,
            Some("in_flight"),
            None,
        ]
    );
    for (place, key) in [(0, "one"), (10, "one"), (12, "two")] {
        let answer = &answers[place];
        assert_eq!(
            (&answer["decision"], &answer["key"]),
            (&json!("execute"), &json!(key))
        );
        assert_eq!(answer["fence"], 1, "{answer}");
    }
    assert_eq!(answers[1]["receipt"]["data"]["id"], 42, "{}", answers[1]);
    // Each problem is one as if it had been asked alone.
    for problem in answers.iter().filter(|answer| answer["code"].is_string()) {
        for member in [
            "type",
            "title",
            "status",
            "detail",
            "code",
            "hint",
            "retryable",
        ] {
            assert!(
                problem.get(member).is_some(),
                "{member} is missing: {problem}"
            );
        }
    }
    let in_flight = &answers[2];
    assert!(in_flight["retryable"] == true, "{in_flight}");
    assert_eq!(record(&server, "two")["state"], "running");
    assert_eq!(server.get("/v1/operations/dry").status, 404);
}

#[test]
fn many_reports_are_answered_in_their_order() {
    let world = World::new();
    let server = Server::start(&world);
    let keys: Vec<_> = (0..300).map(|number| format!("k-{number}")).collect();
    let begins: Vec<_> = keys.iter().map(|key| begin(key)).collect();
    let granted = server.post("/v1/begin", &begins.into()).expect(200);
    assert!(
        granted
            .as_array()
            .is_some_and(|all| all.iter().all(|one| one["decision"] == "execute")),
        "{granted}"
    );
    let report = |(number, key): (usize, &String)| match number % 4 {
        0 => settle(
            key,
            json!({"verdict": "done", "ok": true, "effect": "created", "data": key}),
        ),
        1 => settle(key, json!({"verdict": "done", "ok": false, "data": key})),
        2 => settle(key, json!({"verdict": "not_done"})),
        _ => with(done(key), json!({"fence": 9})),
    };
    let reports: Vec<_> = keys.iter().enumerate().map(report).collect();
    let reports = Value::from(reports);
    let first = server.post("/v1/settle", &reports).expect(200);
    let entries = last_event(&server);
    let items = first
        .as_array()
        .expect("an array is answered with an array");
    assert_eq!(items.len(), keys.len());
    for (number, (item, key)) in items.iter().zip(&keys).enumerate() {
        assert_eq!(item["key"], **key, "{item}");
        let (status, state) = [
            (200, "succeeded"),
            (200, "failed"),
            (200, "pending"),
            (409, ""),
        ][number % 4];
        assert_eq!(item["status"], status, "{item}");
        if status == 200 {
            assert_eq!(item["state"], state, "{item}");
        } else {
            assert_eq!(item["code"], "fenced", "{item}");
        }
    }
    // The whole array may be sent again.
    let again = server.post("/v1/settle", &reports).expect(200);
    let again = again.as_array().expect("an array");
    for (again, first) in again
        .iter()
        .zip(items)
        .filter(|(_, first)| first["status"] == 200)
    {
        assert_eq!(again, first, "the same receipt");
    }
    let _ = entries;
}

#[test]
fn an_empty_array_is_answered_with_one_and_half_an_array_is_refused_as_a_whole() {
    let world = World::new();
    let server = Server::start(&world);
    for call in ["/v1/begin", "/v1/renew", "/v1/settle"] {
        assert_eq!(server.post(call, &json!([])).expect(200), json!([]));
    }
    for body in [
        "[",
        "[{\"key\":\"evil\",\"name\":\"n\"}",
        "[{\"key\":\"evil\",\"name\":\"n\"},]",
        "[{\"key\":\"evil\",\"name\":\"n\"}] x",
    ] {
        let asked = Asked::new("POST", "/v1/begin").header("Content-Type", "application/json");
        server
            .ask(asked.body(body.as_bytes()))
            .problem(400, "invalid_input");
        assert_eq!(server.get("/v1/operations/evil").status, 404, "{body}");
    }
    // Only what is asked in bulk takes arrays.
    for call in ["submit", "resolve", "retry", "cancel", "forget"] {
        server
            .post(&format!("/v1/{call}"), &json!([]))
            .problem(400, "invalid_input");
    }
}
