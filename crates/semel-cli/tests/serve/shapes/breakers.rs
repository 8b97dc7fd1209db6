//! Breakers over the API: what people decide, and what is no call.

use serde_json::json;

use super::{Server, begin};
use crate::harness::World;

#[test]
fn a_breaker_is_opened_closed_and_listed() {
    let world = World::new();
    let server = Server::start(&world);
    assert_eq!(
        server.get("/v1/breakers").expect(200),
        json!({"items": [], "next": null})
    );
    let opened = server.post(
        "/v1/breakers/bank/open",
        &json!({"for_ms": 60_000.0, "note": "moving"}),
    );
    let opened = opened.expect(200);
    assert_eq!(
        ["ok", "effect", "name", "state", "note"].map(|member| opened[member].clone()),
        [
            json!(true),
            json!("updated"),
            json!("bank"),
            json!("open"),
            json!("moving")
        ]
    );
    assert!(opened["retry_at"].is_string(), "{opened}");
    let listed = server.get("/v1/breakers").expect(200);
    assert_eq!(listed["items"][0]["state"], "open", "{listed}");
    for (effect, is_again) in [("updated", false), ("noop", true)] {
        let closed = server
            .post("/v1/breakers/bank/close", &json!({}))
            .expect(200);
        assert_eq!(
            (&closed["state"], &closed["effect"]),
            (&json!("closed"), &json!(effect)),
            "again: {is_again}"
        );
    }
    let reset = server.post("/v1/breakers/bank/reset", &json!({"note": null}));
    assert_eq!(reset.expect(200)["calls"], 0);
    let events = server.get("/v1/events").expect(200).to_string();
    for event in ["breaker_opened", "breaker_closed"] {
        assert!(events.contains(event), "{event}: {events}");
    }
    // It is no operation.
    server.get("/v1/operations/bank").problem(404, "not_found");
    let operations = server.get("/v1/operations").expect(200);
    assert_eq!(operations["items"], json!([]));
}

/// Whoever decides on what they saw is not carried out on anything else, and not twice.
#[test]
fn an_order_that_names_a_fence_is_for_what_was_seen_then() {
    let world = World::new();
    let server = Server::start(&world);
    let order = |verb: &str, body| server.post(&format!("/v1/breakers/bank/{verb}"), &body);
    // Nobody had seen one.
    let first = json!({"fence": 0, "for_ms": 60_000, "note": "moving"});
    let opened = order("open", first.clone()).expect(200);
    assert_eq!(
        (&opened["effect"], &opened["fence"]),
        (&json!("updated"), &json!(1))
    );
    // The answer was lost, and the same order comes again.
    let again = order("open", first).expect(200);
    assert_eq!(
        (&again["effect"], &again["version"], &again["retry_at"]),
        (&json!("noop"), &opened["version"], &opened["retry_at"])
    );
    // Somebody else closes it; whoever saw it open decides on that.
    let closed = order("close", json!({"fence": 1})).expect(200);
    assert_eq!(closed["fence"], 2);
    for (verb, fence) in [("open", 0), ("open", 1), ("close", 1), ("reset", 1)] {
        let refused = order(verb, json!({"fence": fence, "note": "late"}));
        refused.problem(409, "fenced");
        let problem = refused.json();
        let hint = problem["hint"].as_str().unwrap_or_default();
        assert!(hint.contains("read the breaker again"), "{problem}");
        let breaker = &problem["breaker"];
        assert_eq!(
            (&breaker["fence"], &breaker["state"]),
            (&json!(2), &json!("closed")),
            "{verb}: what is stored is shown"
        );
    }
    let listed = server.get("/v1/breakers").expect(200);
    assert_eq!(listed["items"][0]["version"], closed["version"]);
    let reset = order("reset", json!({"fence": 2})).expect(200);
    assert_eq!(reset["effect"], "updated");
    order("open", json!({"fence": -1})).problem(400, "invalid_input");
    order("open", json!({"fence": "3"})).problem(400, "invalid_input");
}

#[test]
fn an_array_is_no_call_though_its_items_would_fit() {
    let world = World::new();
    let server = Server::start(&world);
    for (target, body) in [
        ("/v1/breakers/bank/open", json!([null, null])),
        ("/v1/breakers/bank/reset", json!(["why"])),
    ] {
        server.post(target, &body).problem(400, "invalid_input");
    }
    assert_eq!(server.get("/v1/breakers").expect(200)["items"], json!([]));
    // An array of calls is one; an array within it is none.
    let answers = server.post("/v1/begin", &json!([begin("k"), ["k", "n"]]));
    let answers = answers.expect(200);
    assert_eq!(
        (&answers[0]["status"], &answers[1]["status"]),
        (&json!(200), &json!(400)),
        "{answers}"
    );
    for (body, what) in [
        (json!({"for_ms": 0}), "too short"),
        (json!({"for_ms": 31_536_000_001_u64}), "too long"),
        (json!({"for_ms": 1.5}), "no whole number"),
        (json!({"because": "x"}), "unknown"),
    ] {
        let refused = server.post("/v1/breakers/bank/open", &body);
        refused.problem(400, "invalid_input");
        assert_eq!(refused.json()["retryable"], false, "{what}");
    }
}

/// A dry run writes nothing, and nothing that was said is overlooked.
#[test]
fn an_order_can_be_tried_out() {
    let world = World::new();
    let server = Server::start(&world);
    let dry = json!({"dry_run": true});
    let opened = server.post("/v1/breakers/bank/open", &dry).expect(200);
    assert_eq!(
        (&opened["effect"], &opened["dry_run"]),
        (&json!("would_update"), &json!(true))
    );
    assert_eq!(opened["state"], "open", "as it would be: {opened}");
    assert_eq!(server.get("/v1/breakers").expect(200)["items"], json!([]));
    let unknown = server.post("/v1/breakers/bank/close", &dry);
    let said = unknown.problem(404, "not_found");
    assert!(said.to_string().contains("no such breaker"), "{said}");
    server.get("/v1/breakers?x=1").problem(400, "invalid_input");
    server
        .post("/v1/breakers/bank/open?dry_run=true", &json!({}))
        .problem(400, "invalid_input");
    server
        .post("/v1/submit?dry_run=true", &json!({"key": "a", "name": "a"}))
        .problem(400, "invalid_input");
    assert_eq!(server.get("/v1/operations").expect(200)["items"], json!([]));
    for path in ["/in/%ff", "/v1/breakers/%ff/open", "/v1/queues/%ff/tasks"] {
        server.post(path, &json!({})).problem(400, "invalid_input");
    }
    server
        .get("/v1/operations/%ff")
        .problem(400, "invalid_input");
}
