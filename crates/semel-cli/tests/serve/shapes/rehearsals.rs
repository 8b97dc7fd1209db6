use serde_json::json;

use super::{STATES, begin, bring, done, last_event, record, settle, with};
use crate::harness::World;
use crate::server::Server;

#[test]
fn a_rehearsal_writes_nothing_whatever_the_state_is() {
    let world = World::new();
    let server = Server::start(&world);
    for state in STATES {
        bring(&server, state, state);
    }
    let keys = STATES.iter().chain(&["nothing"]);
    let before: Vec<_> = STATES.iter().map(|key| record(&server, key)).collect();
    let entries = last_event(&server);
    for key in keys {
        for version in 0..4 {
            let order = json!({"key": key, "version": version, "dry_run": true});
            for (call, body) in [
                ("begin", with(begin(key), json!({"dry_run": true}))),
                (
                    "begin",
                    with(begin(key), json!({"dry_run": true, "attempt_id": "b"})),
                ),
                (
                    "begin",
                    with(begin(key), json!({"dry_run": true, "on_doubt": "retry"})),
                ),
                (
                    "submit",
                    json!({"key": key, "name": "create-order", "input": {"amount": 100}, "dry_run": true}),
                ),
                ("settle", with(done(key), json!({"dry_run": true}))),
                (
                    "settle",
                    settle(key, json!({"verdict": "not_done", "dry_run": true})),
                ),
                (
                    "settle",
                    settle(key, json!({"verdict": "unknown", "dry_run": true})),
                ),
                (
                    "renew",
                    json!({"key": key, "attempt_id": format!("a-{key}"), "fence": 1, "dry_run": true}),
                ),
                ("resolve", with(order.clone(), json!({"verdict": "done"}))),
                (
                    "resolve",
                    with(order.clone(), json!({"verdict": "not_done"})),
                ),
                ("retry", order.clone()),
                ("cancel", order.clone()),
                ("forget", order.clone()),
            ] {
                let answer = server.post(&format!("/v1/{call}"), &body);
                assert!(answer.status < 500, "{call} {body}: {answer:?}");
                let told = answer.json();
                if answer.status == 200 && told["decision"] != "replay" {
                    let effect = told["effect"].as_str().unwrap_or_default();
                    let planned = effect.starts_with("would_") || effect == "noop";
                    assert!(planned, "{call} {body}: {answer:?}");
                    assert!(told["changes"].is_array(), "{call} {body}: {answer:?}");
                    let changes = told["changes"]
                        .as_array()
                        .is_some_and(|list| !list.is_empty());
                    assert_eq!(changes, effect != "noop", "{call} {body}: {answer:?}");
                }
            }
        }
    }
    assert_eq!(last_event(&server), entries, "something was written");
    let after: Vec<_> = STATES.iter().map(|key| record(&server, key)).collect();
    assert_eq!(after, before);
    server
        .get("/v1/operations/nothing")
        .problem(404, "not_found");
}

#[test]
fn a_rehearsal_says_what_would_happen() {
    let world = World::new();
    let server = Server::start(&world);
    let dry = server
        .post("/v1/begin", &with(begin("k"), json!({"dry_run": true})))
        .expect(200);
    assert_eq!(
        (&dry["decision"], &dry["key"]),
        (&json!("execute"), &json!("k")),
        "{dry}"
    );
    let submit = json!({"key": "k", "name": "create-order", "dry_run": true});
    let dry = server.post("/v1/submit", &submit).expect(200);
    assert_eq!(dry["effect"], "would_create", "{dry}");
    bring(&server, "k", "running");
    let dry = server
        .post("/v1/settle", &with(done("k"), json!({"dry_run": true})))
        .expect(200);
    assert_eq!(
        (&dry["effect"], &dry["state"]),
        (&json!("would_create"), &json!("succeeded")),
        "{dry}"
    );
    server.post("/v1/settle", &done("k")).expect(200);
    let dry = server
        .post("/v1/settle", &with(done("k"), json!({"dry_run": true})))
        .expect(200);
    assert_eq!(dry["effect"], "noop", "{dry}");
    let replay = server
        .post("/v1/begin", &with(begin("k"), json!({"dry_run": true})))
        .expect(200);
    assert_eq!(
        (&replay["decision"], &replay["receipt"]["data"]["id"]),
        (&json!("replay"), &json!(42))
    );
    let forget = json!({"key": "k", "version": record(&server, "k")["version"], "dry_run": true});
    let dry = server.post("/v1/forget", &forget).expect(200);
    assert_eq!(dry["effect"], "would_delete", "{dry}");
}
