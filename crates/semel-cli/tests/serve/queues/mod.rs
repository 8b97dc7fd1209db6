//! Queues over HTTP: tasks are left once, and each is carried out by one worker.

mod batches;
mod bodies;
mod races;
mod tasks;
mod waits;

use serde_json::{Value, json};

use crate::http::{Answer, Asked};
use crate::server::Server;

const TASKS: &str = "/v1/queues/mails/tasks";
const LEASE: &str = "/v1/queues/mails/lease";

/// A wait that no test sits out.
const LONG_MS: u64 = 60_000;

/// Asks to leave a task under the key of a header.
fn task(key: &str, body: &Value) -> Asked {
    Asked::post(TASKS, body).header("Idempotency-Key", key)
}

#[track_caller]
fn leave(server: &Server, key: &str, body: &Value) -> Value {
    server.ask(task(key, body)).expect(200)
}

/// Takes tasks, and returns them.
#[track_caller]
fn lease(server: &Server, members: &Value) -> Vec<Value> {
    tasks_of(&server.post(LEASE, members))
}

#[track_caller]
fn tasks_of(answer: &Answer) -> Vec<Value> {
    let answer = answer.expect(200);
    let members = answer.as_object().expect("it is an object");
    assert_eq!(members.len(), 1, "{answer}");
    answer["tasks"].as_array().expect("they are a list").clone()
}

#[track_caller]
fn lease_one(server: &Server) -> Value {
    let mut tasks = lease(server, &json!({"wait_ms": LONG_MS}));
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    tasks.remove(0)
}

/// Reports about a task that was taken.
fn report(task: &Value, members: &Value) -> Value {
    let mut report = json!({
        "key": task["key"], "attempt_id": task["attempt_id"], "fence": task["fence"],
    });
    for (name, value) in members.as_object().expect("members are an object") {
        report[name] = value.clone();
    }
    report
}

fn done(task: &Value) -> Value {
    report(
        task,
        &json!({"verdict": "done", "effect": "created", "data": {"sent": task["key"]}}),
    )
}
