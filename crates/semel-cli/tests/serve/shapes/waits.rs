use std::time::Instant;

use serde_json::json;

use super::{begin, bring, done, is_receipt, is_time, last_event, record, with};
use crate::harness::World;
use crate::http::Asked;
use crate::server::{Server, wait_until};

#[test]
fn a_lease_is_renewed_while_it_lasts_and_never_made_shorter() {
    let world = World::new();
    let server = Server::start(&world);
    let granted = server
        .post("/v1/begin", &with(begin("k"), json!({"lease_ms": 60_000})))
        .expect(200);
    let renew = |lease: u64| {
        let body = json!({"key": "k", "attempt_id": "a-k", "fence": 1, "lease_ms": lease});
        server.post("/v1/renew", &body)
    };
    let longer = renew(600_000).expect(200);
    assert_eq!(
        (&longer["key"], &longer["fence"]),
        (&json!("k"), &json!(1)),
        "{longer}"
    );
    is_time(&longer["lease_until"]);
    assert!(
        longer["lease_until"].as_str() > granted["lease_until"].as_str(),
        "{longer}"
    );
    let shorter = renew(1_000).expect(200);
    assert_eq!(
        shorter["lease_until"], longer["lease_until"],
        "it stays as long as it was"
    );
    assert_eq!(record(&server, "k")["lease_until"], longer["lease_until"]);
    // By default it is as long as the first.
    let body = json!({"key": "k", "attempt_id": "a-k", "fence": 1});
    server.post("/v1/renew", &body).expect(200);
    server
        .post("/v1/renew", &with(body, json!({"key": "nothing"})))
        .problem(404, "not_found");
    server.post("/v1/settle", &done("k")).expect(200);
    renew(60_000).problem(409, "fenced");
}

/// A lease that ends is a doubt, also while nobody looks, and a report afterwards is still taken.
#[test]
fn a_lease_that_has_ended_is_a_doubt() {
    let world = World::new();
    let server = Server::start(&world);
    server
        .post("/v1/begin", &with(begin("k"), json!({"lease_ms": 1_000})))
        .expect(200);
    wait_until("the lease is over", || {
        record(&server, "k")["state"] == "doubtful"
    });
    let listed = server.get("/v1/operations?state=doubtful").expect(200);
    assert_eq!(listed["items"][0]["key"], "k", "{listed}");
    let renew = json!({"key": "k", "attempt_id": "a-k", "fence": 1});
    server.post("/v1/renew", &renew).problem(409, "fenced");
    server
        .post("/v1/begin", &begin("k"))
        .problem(409, "in_doubt");
    server
        .post("/v1/begin", &with(begin("k"), json!({"attempt_id": "b"})))
        .problem(409, "in_doubt");
    let receipt = server.post("/v1/settle", &done("k")).expect(200);
    assert_eq!(
        (&receipt["state"], &receipt["data"]["id"]),
        (&json!("succeeded"), &json!(42))
    );
}

#[test]
fn whoever_waits_gets_the_answer_of_the_one_that_runs() {
    let world = World::new();
    let server = Server::start(&world);
    bring(&server, "k", "running");
    let other = with(begin("k"), json!({"attempt_id": "b"}));
    let ask = |asked: Asked| {
        let mut connection = server.connect();
        connection.send(&asked.bytes()).expect("it is sent");
        connection
    };
    let mut by_body = ask(Asked::post(
        "/v1/begin",
        &with(other.clone(), json!({"wait_ms": 60_000})),
    ));
    let mut by_header = ask(Asked::post("/v1/begin", &other).header("Prefer", "wait=60"));
    let mut by_both =
        ask(Asked::post("/v1/begin", &other).header("Prefer", "respond-async, wait=60"));
    server.post("/v1/settle", &done("k")).expect(200);
    for connection in [&mut by_body, &mut by_header, &mut by_both] {
        let replay = connection.answer().expect("it is answered").expect(200);
        assert_eq!(replay["receipt"]["data"]["id"], 42, "{replay}");
    }
    // Whoever waits too short is told to come back.
    bring(&server, "l", "running");
    let short = with(begin("l"), json!({"attempt_id": "b", "wait_ms": 50}));
    let begun = Instant::now();
    server.post("/v1/begin", &short).problem(409, "in_flight");
    assert!(
        begun.elapsed().as_millis() >= 50,
        "it waits as long as it was told to"
    );
    let asked = Asked::post("/v1/begin", &with(begin("l"), json!({"attempt_id": "b"})));
    server
        .ask(asked.header("Prefer", "wait=nonsense"))
        .problem(409, "in_flight");
}

#[test]
fn a_submission_waits_for_somebody_to_carry_it_out() {
    let world = World::new();
    let server = Server::start(&world);
    let submit = json!({"key": "k", "name": "create-order", "input": {"amount": 100}});
    let receipt = server.post("/v1/submit", &submit).expect(200);
    is_receipt(&receipt, "k", "pending");
    assert_eq!(
        (&receipt["ok"], &receipt["effect"]),
        (&json!(true), &json!("created"))
    );
    let entries = last_event(&server);
    let again = server.post("/v1/submit", &submit).expect(200);
    assert_eq!(
        (&again["effect"], &again["state"]),
        (&json!("noop"), &json!("pending")),
        "{again}"
    );
    assert_eq!(last_event(&server), entries);
    let other = with(submit.clone(), json!({"input": 5}));
    server.post("/v1/submit", &other).problem(422, "key_reused");
    let granted = server.post("/v1/begin", &begin("k")).expect(200);
    assert_eq!(granted["fence"], 1);
    server.post("/v1/settle", &done("k")).expect(200);
    let settled = server.post("/v1/submit", &submit).expect(200);
    assert_eq!(
        (&settled["effect"], &settled["data"]["id"]),
        (&json!("noop"), &json!(42)),
        "{settled}"
    );
    bring(&server, "d", "doubtful");
    server
        .post("/v1/submit", &with(submit.clone(), json!({"key": "d"})))
        .problem(409, "in_doubt");
    bring(&server, "x", "dead");
    server
        .post("/v1/submit", &with(submit.clone(), json!({"key": "x"})))
        .problem(409, "dead");
    // Not before its time, and not by whoever comes along when it is on a queue.
    let later = with(
        submit.clone(),
        json!({"key": "later", "run_at": "2999-01-01T00:00:00Z"}),
    );
    server.post("/v1/submit", &later).expect(200);
    server
        .post("/v1/begin", &begin("later"))
        .problem(409, "in_flight");
    let queued = with(submit, json!({"key": "queued", "queue": "mail"}));
    server.post("/v1/submit", &queued).expect(200);
    server
        .post("/v1/begin", &begin("queued"))
        .problem(409, "in_flight");
    assert_eq!(record(&server, "queued")["queue"], "mail");
}
