use std::sync::Arc;
use std::time::Duration;

use semel::store::sqlite::SqliteStore;
use semel::{Effect, Engine};
use semel_testkit::conformance::ManualClock;
use serde_json::{Value, json};

use super::{begin, bring, done, is_receipt, is_time, last_event, record, settle, with};
use crate::harness::{World, permit, request};
use crate::server::{Server, wait_until};

#[test]
fn a_fresh_key_is_to_be_executed_and_the_same_attempt_gets_the_same_grant() {
    let world = World::new();
    let server = Server::start(&world);
    let body = with(
        begin("o-1"),
        json!({
            "class": "unsafe", "on_doubt": "hold", "lease_ms": 60_000, "wait_ms": 0, "dry_run": false,
        }),
    );
    let granted = server.post("/v1/begin", &body).expect(200);
    assert_eq!(granted["decision"], "execute");
    assert_eq!(granted["key"], "o-1");
    assert_eq!(granted["attempt_id"], "a-o-1");
    assert_eq!(
        (&granted["fence"], &granted["attempt"]),
        (&json!(1), &json!(1))
    );
    is_time(&granted["lease_until"]);
    let entries = last_event(&server);
    assert_eq!(server.post("/v1/begin", &body).expect(200), granted);
    assert_eq!(last_event(&server), entries, "a repeat writes nothing");
    // Where none is given, an id is made: two calls are two attempts.
    let made = server
        .post("/v1/begin", &json!({"key": "o-2", "name": "n"}))
        .expect(200);
    let id = made["attempt_id"].as_str().expect("an id is made");
    assert!((16..=64).contains(&id.len()), "{made}");
    let other = server.post("/v1/begin", &json!({"key": "o-2", "name": "n"}));
    other.problem(409, "in_flight");
    // The longest id there may be.
    let longest = "i".repeat(64);
    let body = json!({"key": "o-3", "name": "n", "attempt_id": longest});
    assert_eq!(
        server.post("/v1/begin", &body).expect(200)["attempt_id"],
        longest
    );
}

#[test]
fn what_runs_is_in_flight_and_what_is_lost_is_in_doubt() {
    let world = World::new();
    let server = Server::start(&world);
    bring(&server, "k", "running");
    let other = with(begin("k"), json!({"attempt_id": "b"}));
    let problem = server.post("/v1/begin", &other).problem(409, "in_flight");
    assert_eq!(problem["key"], "k", "{problem}");
    let unknown = settle(
        "k",
        json!({"verdict": "unknown", "error": "connection reset"}),
    );
    let told = server.post("/v1/settle", &unknown).expect(200);
    is_receipt(&told, "k", "doubtful");
    assert_eq!(
        server.post("/v1/settle", &unknown).expect(200),
        told,
        "the same report, the same answer"
    );
    for body in [&other, &begin("k")] {
        let answer = server.post("/v1/begin", body);
        let problem = answer.problem(409, "in_doubt");
        assert_eq!(problem["key"], "k", "{problem}");
        assert_eq!(answer.header("retry-after"), None, "waiting does not help");
    }
    let record = record(&server, "k");
    assert_eq!(record["attempts"][0]["verdict"], "unknown", "{record}");
    assert_eq!(
        record["attempts"][0]["error"], "connection reset",
        "{record}"
    );
    // The attempt itself may still say what happened.
    let receipt = server.post("/v1/settle", &done("k")).expect(200);
    assert_eq!(receipt["state"], "succeeded", "{receipt}");
}

#[test]
fn another_name_or_input_is_another_action() {
    let world = World::new();
    let server = Server::start(&world);
    bring(&server, "running", "running");
    bring(&server, "done", "succeeded");
    bring(&server, "doubt", "doubtful");
    let entries = last_event(&server);
    for key in ["running", "done", "doubt"] {
        for other in [
            json!({"name": "other"}),
            json!({"input": {"amount": 101}}),
            json!({"input": null}),
        ] {
            for id in [format!("a-{key}"), "b".to_owned()] {
                let body = with(with(begin(key), other.clone()), json!({"attempt_id": id}));
                let answer = server.post("/v1/begin", &body);
                answer.problem(422, "key_reused");
                // Whoever does not know the action learns nothing of it.
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                assert!(
                    !text.contains("\"id\"") && !text.contains("create-order"),
                    "{text}"
                );
            }
        }
    }
    assert_eq!(last_event(&server), entries);
}

#[test]
fn what_is_out_of_attempts_is_dead() {
    let world = World::new();
    let server = Server::start(&world);
    bring(&server, "k", "dead");
    let body = with(begin("k"), json!({"attempt_id": "b"}));
    server.post("/v1/begin", &body).problem(409, "dead");
    // By its limit, too.
    let body = with(begin("l"), json!({"max_attempts": 1}));
    server.post("/v1/begin", &body).expect(200);
    server.post("/v1/settle", &settle("l", json!({"verdict": "not_done"})));
    assert_eq!(record(&server, "l")["state"], "dead");
    server
        .post("/v1/begin", &with(body, json!({"attempt_id": "b"})))
        .problem(409, "dead");
}

#[test]
fn a_doubt_may_be_looked_up_or_tried_again_where_the_first_call_said_so() {
    let world = World::new();
    let server = Server::start(&world);
    let probed = with(
        begin("p"),
        json!({"on_doubt": "probe", "probe_digest": "5a".repeat(32), "lease_ms": 1_000}),
    );
    server.post("/v1/begin", &probed).expect(200);
    server.post("/v1/settle", &settle("p", json!({"verdict": "unknown"})));
    // Not before the doubted lease's end.
    let again = with(probed, json!({"attempt_id": "b", "lease_ms": 60_000}));
    let mut granted = Value::Null;
    wait_until("it may be looked up", || {
        let answer = server.post("/v1/begin", &again);
        granted = answer.json();
        answer.status == 200
    });
    assert_eq!(
        (&granted["decision"], &granted["fence"]),
        (&json!("probe"), &json!(2)),
        "{granted}"
    );
    assert_eq!(granted["probe_digest"], "5a".repeat(32), "{granted}");
    let found =
        json!({"key": "p", "attempt_id": "b", "fence": 2, "verdict": "done", "data": "found"});
    assert_eq!(
        server.post("/v1/settle", &found).expect(200)["state"],
        "succeeded"
    );

    let retried = with(begin("r"), json!({"on_doubt": "retry"}));
    server.post("/v1/begin", &retried).expect(200);
    server.post("/v1/settle", &settle("r", json!({"verdict": "unknown"})));
    let again = server
        .post("/v1/begin", &with(retried, json!({"attempt_id": "b"})))
        .expect(200);
    assert_eq!(
        (&again["decision"], &again["fence"]),
        (&json!("execute"), &json!(2)),
        "{again}"
    );

    // A later call cannot loosen what the first one said, and hears so.
    bring(&server, "h", "doubtful");
    let loose = with(begin("h"), json!({"attempt_id": "b", "on_doubt": "retry"}));
    server.post("/v1/begin", &loose).problem(409, "in_doubt");
    bring(&server, "s", "succeeded");
    let loose = with(begin("s"), json!({"attempt_id": "b", "on_doubt": "retry"}));
    let replay = server.post("/v1/begin", &loose).expect(200);
    assert!(replay["receipt"]["policy_kept"].is_string(), "{replay}");
}

/// Makes a store in which `old` is past its retention, by the library and a clock that moves.
fn buried(world: &World) {
    let runtime = tokio::runtime::Runtime::new().expect("there is a runtime");
    runtime.block_on(async {
        let clock = Arc::new(ManualClock::default());
        let store = SqliteStore::open_with(world.path("data/semel.db"), Arc::clone(&clock) as _);
        let store = Arc::new(store.expect("the store opens"));
        let engine = Engine::builder()
            .store(store)
            .sweep_every(None)
            .start()
            .await;
        let engine = engine.expect("the engine starts");
        let permit = permit(&engine, request("old")).await;
        permit
            .done(Effect::Created, "x")
            .await
            .expect("it is stored");
        for days in [31, 1] {
            clock.advance(Duration::from_secs(days * 24 * 60 * 60));
            engine.sweep().await.expect("the store is swept");
        }
    });
}

#[test]
fn what_is_past_its_retention_is_not_run_again() {
    let world = World::new();
    std::fs::create_dir(world.path("data")).expect("a directory is made");
    buried(&world);
    let server = Server::start(&world);
    let again = json!({"key": "old", "name": "create-order", "attempt_id": "b"});
    server.post("/v1/begin", &again).problem(410, "expired");
    server
        .post("/v1/begin", &with(again.clone(), json!({"dry_run": true})))
        .problem(410, "expired");
    server
        .post("/v1/begin", &with(again.clone(), json!({"name": "other"})))
        .problem(422, "key_reused");
    let submit = json!({"key": "old", "name": "create-order"});
    server.post("/v1/submit", &submit).problem(410, "expired");
    server
        .post("/v1/settle", &done("old"))
        .problem(410, "expired");
    let record = record(&server, "old");
    assert_eq!(record["state"], "tombstone", "{record}");
    let retry = json!({"key": "old", "version": record["version"]});
    server.post("/v1/retry", &retry).problem(410, "expired");
    let forgotten = server.post("/v1/forget", &retry).expect(200);
    assert_eq!(forgotten["effect"], "deleted", "{forgotten}");
    let granted = server.post("/v1/begin", &again).expect(200);
    assert_eq!(
        (&granted["decision"], &granted["fence"]),
        (&json!("execute"), &json!(2))
    );
}
