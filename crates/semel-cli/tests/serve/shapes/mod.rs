//! What each call answers, member by member, as the API promises it.

mod batches;
mod begins;
mod breakers;
mod lists;
mod operators;
mod pages;
mod rehearsals;
mod reports;
mod waits;

use serde_json::{Value, json};

use crate::server::Server;

/// Begins a key as attempt `a-KEY`.
fn begin(key: &str) -> Value {
    json!({"key": key, "name": "create-order", "input": {"amount": 100}, "attempt_id": format!("a-{key}")})
}

/// Adds or changes members.
fn with(mut body: Value, members: Value) -> Value {
    let Value::Object(members) = members else {
        panic!("members are an object");
    };
    for (name, value) in members {
        body[&name] = value;
    }
    body
}

/// Reports what attempt `a-KEY` learned.
fn settle(key: &str, members: Value) -> Value {
    let report = json!({"key": key, "attempt_id": format!("a-{key}"), "fence": 1});
    with(report, members)
}

fn done(key: &str) -> Value {
    settle(
        key,
        json!({"verdict": "done", "ok": true, "effect": "created", "data": {"id": 42}}),
    )
}

/// Brings a key to a state.
#[track_caller]
fn bring(server: &Server, key: &str, state: &str) {
    let report = match state {
        "pending" => {
            let submit = json!({"key": key, "name": "create-order", "input": {"amount": 100}});
            server.post("/v1/submit", &submit).expect(200);
            None
        }
        "running" => None,
        "succeeded" => Some(done(key)),
        "failed" => Some(settle(
            key,
            json!({"verdict": "done", "ok": false, "effect": "noop", "data": "no"}),
        )),
        "doubtful" => Some(settle(key, json!({"verdict": "unknown", "error": "cut"}))),
        "dead" => Some(settle(
            key,
            json!({"verdict": "not_done", "reject": true, "error": "never"}),
        )),
        other => panic!("{other} is no state that a test brings about"),
    };
    if state != "pending" {
        server.post("/v1/begin", &begin(key)).expect(200);
    }
    if let Some(report) = report {
        server.post("/v1/settle", &report);
    }
    let record = record(server, key);
    assert_eq!(record["state"], state, "{record}");
}

const STATES: [&str; 6] = [
    "pending",
    "running",
    "succeeded",
    "failed",
    "doubtful",
    "dead",
];

#[track_caller]
fn record(server: &Server, key: &str) -> Value {
    server.get(&format!("/v1/operations/{key}")).expect(200)
}

/// Returns the number of the last event, to see whether anything was written.
#[track_caller]
fn last_event(server: &Server) -> Value {
    let page = server.get("/v1/events?limit=1000").expect(200);
    let items = page["items"].as_array().expect("a list");
    items.last().map_or(Value::Null, |item| item["seq"].clone())
}

/// Expects a time as RFC 3339 in UTC with milliseconds.
#[track_caller]
fn is_time(value: &Value) {
    let text = value.as_str().unwrap_or_default();
    let shape = b"0000-00-00T00:00:00.000Z";
    let fits = text.len() == shape.len()
        && text.bytes().zip(shape).all(|(found, shape)| match shape {
            b'0' => found.is_ascii_digit(),
            other => found == *other,
        });
    assert!(fits, "{value} is no time");
}

/// Expects every member of a receipt (DESIGN section 7).
#[track_caller]
fn is_receipt(receipt: &Value, key: &str, state: &str) {
    for member in [
        "ok",
        "effect",
        "replayed",
        "reason",
        "namespace",
        "key",
        "name",
        "state",
        "attempt",
        "fence",
        "started_at",
        "settled_at",
        "data",
    ] {
        assert!(
            receipt.get(member).is_some(),
            "{member} is missing: {receipt}"
        );
    }
    assert_eq!(receipt["key"], key, "{receipt}");
    assert_eq!(receipt["namespace"], "default", "{receipt}");
    assert_eq!(receipt["state"], state, "{receipt}");
}
