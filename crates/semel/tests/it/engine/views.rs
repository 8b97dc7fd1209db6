//! The JSON of records and events, field by field.

use std::sync::Arc;
use std::time::Duration;

use semel::core::ledger::{Holder, Record};
use semel::view::RecordView;
use semel::{Effect, Engine, Events, Label, Namespace, Note, Request};
use serde_json::{Value, json};

use super::on_both_stores;
use super::world::{World, key, lease, operation, permit, record};

on_both_stores![
    a_settled_operation_shows_all_its_fields,
    a_doubt_that_is_not_written_yet_shows_as_one,
    a_door_that_scopes_keys_shows_what_became_of_a_call,
    what_only_looks_like_a_doors_key_is_not_one,
    an_operation_that_waits_or_died_says_what_it_did,
    a_list_shows_neither_attempts_nor_data,
    what_is_past_its_retention_shows_what_is_left_of_it,
    events_carry_the_key_until_it_is_forgotten,
];

fn order() -> Request {
    let door = Label::new("run").expect("a valid name");
    Request::new("create-order", key("order-7"))
        .input(&json!({"amount": 100}))
        .lease(lease(10))
        .door(door)
}

async fn engine_on(world: &World) -> Engine {
    let holder = Holder {
        host: Label::new("mill").expect("a valid name"),
        pid: 4_242,
        boot: 1,
        pid_namespace: 1,
        started: 1,
    };
    let builder = Engine::builder().store(world.another()).sweep_every(None);
    let started = builder.holder(Some(holder)).start().await;
    started.expect("the engine starts")
}

async fn shown(engine: &Engine) -> Value {
    let record = record(engine, &key("order-7")).await.expect("it is there");
    let data = engine.payload(&Namespace::default(), &key("order-7")).await;
    let data = data.expect("the payload loads").map(Arc::from);
    let view = RecordView::detailed(&record, data, engine.store().now());
    serde_json::to_value(view).expect("it can be written")
}

async fn a_settled_operation_shows_all_its_fields(world: World) {
    let engine = engine_on(&world).await;
    let doubted = permit(&engine, order()).await;
    world.clock.skip(Duration::from_secs(1));
    doubted.unknown("connection reset").await.expect("taken");
    world.clock.skip(Duration::from_secs(1));
    let version = operation(&engine, &key("order-7")).await.version;
    let by = Label::new("ann").expect("a valid name");
    let operator = engine.operator(&Namespace::default(), &key("order-7"), version, by);
    let note = Note::new("the bank shows it").expect("a valid note");
    let data = Some(br#"{"id": 42}"#.to_vec());
    let resolved = operator
        .note(note)
        .resolve_done(true, Effect::Created, data);
    resolved.await.expect("resolved");
    let fingerprint = operation(&engine, &key("order-7")).await.spec.fingerprint;
    assert_eq!(
        shown(&engine).await,
        json!({
            "namespace": "default", "key": "order-7", "client_key": null, "name": "create-order",
            "state": "succeeded", "ok": true, "effect": "created",
            "class": "unsafe", "on_doubt": "hold", "probe_digest": null, "door": "run", "principal": null,
            "queue": null, "parent": null, "attempt": 1, "fence": 1, "version": 3,
            "max_attempts": null, "fingerprint": fingerprint.to_string(),
            "created_at": "2026-11-15T12:00:00.000Z", "started_at": "2026-11-15T12:00:00.000Z",
            "settled_at": "2026-11-15T12:00:02.000Z", "lease_until": null, "run_at": null,
            "delivery": "unknown", "holder": {"host": "mill", "pid": 4242},
            "resolved": {
                "by": "ann", "at": "2026-11-15T12:00:02.000Z", "note": "the bank shows it",
            },
            "attempts": [{
                "attempt": 1, "fence": 1, "started_at": "2026-11-15T12:00:00.000Z",
                "ended_at": "2026-11-15T12:00:01.000Z", "verdict": "unknown",
                "error": "connection reset",
            }],
            "data": {"id": 42},
        })
    );
}

async fn a_doubt_that_is_not_written_yet_shows_as_one(world: World) {
    let engine = engine_on(&world).await;
    let _held = permit(&engine, order()).await;
    let running = shown(&engine).await;
    assert_eq!(running["state"], "running");
    assert_eq!(running["lease_until"], "2026-11-15T12:00:10.000Z");
    assert_eq!(
        (&running["effect"], &running["ok"]),
        (&json!(null), &json!(null))
    );
    assert_eq!(running["attempts"][0]["ended_at"], json!(null));
    world.clock.skip(Duration::from_secs(60));
    let doubtful = shown(&engine).await;
    assert_eq!(doubtful["state"], "doubtful");
    assert_eq!(doubtful["effect"], "unknown");
    assert_eq!(
        (&doubtful["ok"], &doubtful["lease_until"]),
        (&json!(null), &json!(null))
    );
    let ended = &doubtful["attempts"][0]["ended_at"];
    assert_eq!(ended, "2026-11-15T12:00:10.000Z", "the lease's end");
}

/// A call at the MCP gateway, by a key that it was given.
fn scoped(text: &str) -> Request {
    let door = Label::new("mcp").expect("a valid name");
    let key = key(&format!("mcp/0c52a1d5f1e0b7a3/{text}"));
    let request = Request::new("charge", key).lease(lease(10)).door(door);
    request.on_doubt(semel::OnDoubt::Probe)
}

async fn view_of(engine: &Engine, text: &str) -> Value {
    let key = key(&format!("mcp/0c52a1d5f1e0b7a3/{text}"));
    let record = record(engine, &key).await.expect("it is there");
    let view = RecordView::of(&record, engine.store().now());
    serde_json::to_value(view).expect("it can be written")
}

fn by_ann(engine: &Engine, text: &str, version: u64) -> semel::Operator {
    let key = key(&format!("mcp/0c52a1d5f1e0b7a3/{text}"));
    let by = Label::new("ann").expect("a valid name");
    let version = semel::core::ledger::Version(version);
    engine.operator(&Namespace::default(), &key, version, by)
}

async fn a_door_that_scopes_keys_shows_what_became_of_a_call(world: World) {
    let engine = engine_on(&world).await;
    let decision = |text: &'static str| {
        let engine = engine.clone();
        async move { view_of(&engine, text).await["decision"].clone() }
    };
    let held = permit(&engine, scoped("call:toolu_1")).await;
    assert_eq!(decision("call:toolu_1").await, "in_progress");
    held.failed(Effect::Unknown, "declined")
        .await
        .expect("taken");
    let view = view_of(&engine, "call:toolu_1").await;
    assert_eq!(
        (&view["decision"], &view["key_source"], &view["occurrence"]),
        (&json!("executed"), &json!("call_id"), &json!(1))
    );
    // Fresh attempts: what was done before is not undone by that.
    by_ann(&engine, "call:toolu_1", 2)
        .retry()
        .await
        .expect("taken");
    assert_eq!(decision("call:toolu_1").await, json!(null));

    let held = permit(&engine, scoped("a")).await;
    held.not_done("refused").await.expect("taken");
    assert_eq!(decision("a").await, "not_done");
    by_ann(&engine, "a", 2).cancel().await.expect("taken");
    let view = view_of(&engine, "a").await;
    assert_eq!(
        (&view["state"], &view["decision"]),
        (&json!("failed"), &json!("not_done"))
    );

    let held = permit(&engine, scoped("b")).await;
    held.unknown("connection reset").await.expect("taken");
    assert_eq!(decision("b").await, "in_doubt");
    by_ann(&engine, "b", 2)
        .resolve_not_done()
        .await
        .expect("taken");
    assert_eq!(decision("b").await, "not_done");
    let held = permit(&engine, scoped("b")).await;
    held.done(Effect::Created, &1).await.expect("taken");
    assert_eq!(decision("b").await, "executed", "the doubt was before");

    let held = permit(&engine, scoped("c")).await;
    held.unknown("connection reset").await.expect("taken");
    let resolved = by_ann(&engine, "c", 2).resolve_done(true, Effect::Created, None);
    resolved.await.expect("taken");
    assert_eq!(decision("c").await, "resolved", "by a person");

    let held = permit(&engine, scoped("d")).await;
    held.unknown("connection reset").await.expect("taken");
    world.clock.skip(Duration::from_secs(60));
    let Ok(semel::Admission::Probe(probe)) = engine.begin(scoped("d")).await else {
        panic!("it is to be looked up");
    };
    probe.done(Effect::Created, &1).await.expect("taken");
    assert_eq!(decision("d").await, "resolved", "by a probe");
}

async fn what_only_looks_like_a_doors_key_is_not_one(world: World) {
    let engine = engine_on(&world).await;
    let run = Label::new("run").expect("a valid name");
    let held = permit(&engine, scoped("x").door(run)).await;
    held.done(Effect::Created, &1).await.expect("taken");
    let view = view_of(&engine, "x").await;
    for member in ["key_source", "occurrence", "decision"] {
        assert_eq!(view.get(member), None, "{view}");
    }
}

async fn an_operation_that_waits_or_died_says_what_it_did(world: World) {
    let engine = engine_on(&world).await;
    let first = permit(&engine, order()).await;
    first.not_done("refused").await.expect("taken");
    let waiting = shown(&engine).await;
    assert_eq!(
        (&waiting["state"], &waiting["effect"]),
        (&json!("pending"), &json!(null))
    );
    let second = permit(&engine, order()).await;
    second.reject("never").await.expect("taken");
    let dead = shown(&engine).await;
    assert_eq!(
        (&dead["state"], &dead["effect"]),
        (&json!("dead"), &json!("noop"))
    );
    assert_eq!((&dead["ok"], &dead["data"]), (&json!(null), &json!(null)));
    assert_eq!(dead["attempts"].as_array().map(Vec::len), Some(2));
}

async fn a_list_shows_neither_attempts_nor_data(world: World) {
    let engine = engine_on(&world).await;
    let held = permit(&engine, order()).await;
    // What is not JSON cannot be shown as JSON.
    let bytes = Some(b"\xff".to_vec());
    held.finish(true, Effect::Updated, bytes)
        .await
        .expect("taken");
    let detailed = shown(&engine).await;
    assert_eq!(detailed["data"], json!(null));
    let record: Arc<Record> = record(&engine, &key("order-7")).await.expect("it is there");
    let view = RecordView::of(&record, engine.store().now());
    let listed = serde_json::to_value(view).expect("it can be written");
    let (mut detailed, Value::Object(listed)) = (detailed, listed) else {
        panic!("a record is an object");
    };
    let detailed = detailed.as_object_mut().expect("a record is an object");
    assert!(detailed.remove("attempts").is_some() && detailed.remove("data").is_some());
    assert_eq!(detailed, &listed);
}

async fn what_is_past_its_retention_shows_what_is_left_of_it(world: World) {
    let engine = engine_on(&world).await;
    let held = permit(&engine, order()).await;
    held.failed(Effect::Noop, "no stock").await.expect("taken");
    engine.sweep().await.expect("it sweeps");
    for days in [31, 1] {
        world.clock.skip(Duration::from_secs(days * 86_400));
        engine.sweep().await.expect("it sweeps");
    }
    let shown = shown(&engine).await;
    assert_eq!(
        (&shown["state"], &shown["ok"]),
        (&json!("tombstone"), &json!(false))
    );
    assert_eq!(shown["effect"], "noop");
    assert_eq!(shown["settled_at"], "2026-11-15T12:00:00.000Z");
    assert_eq!(
        (&shown["attempts"], &shown["data"]),
        (&json!([]), &json!(null))
    );
    for gone in [
        "name",
        "class",
        "holder",
        "attempt",
        "created_at",
        "started_at",
        "resolved",
    ] {
        assert_eq!(shown[gone], json!(null), "{gone}");
    }
}

async fn events_carry_the_key_until_it_is_forgotten(world: World) {
    let engine = engine_on(&world).await;
    let held = permit(&engine, order()).await;
    held.done(Effect::Created, &1).await.expect("taken");
    let seen = events(&engine).await;
    assert_eq!(
        seen,
        [
            json!({
                "seq": 1, "at": "2026-11-15T12:00:00.000Z", "namespace": "default",
                "key": "order-7", "command": "begin", "state": "running", "fence": 1, "by": null,
                "note": null, "events": ["begun"],
            }),
            json!({
                "seq": 2, "at": "2026-11-15T12:00:00.000Z", "namespace": "default",
                "key": "order-7", "command": "settle", "state": "succeeded", "fence": 1,
                "by": null, "note": null, "events": ["settled"],
            }),
        ]
    );
    let version = operation(&engine, &key("order-7")).await.version;
    let by = Label::new("ann").expect("a valid name");
    let operator = engine.operator(&Namespace::default(), &key("order-7"), version, by);
    operator.forget().await.expect("forgotten");
    let seen = events(&engine).await;
    assert_eq!(
        seen.last(),
        Some(&json!({
            "seq": 3, "at": "2026-11-15T12:00:00.000Z", "namespace": null, "key": null,
            "command": "forget", "state": "stub", "fence": 1, "by": "ann", "note": null,
            "events": ["forgotten"],
        }))
    );
    assert_eq!(seen[0]["key"], json!(null));
}

async fn events(engine: &Engine) -> Vec<Value> {
    let mut events = Events::new(engine);
    let mut seen = vec![];
    for logged in engine.store().log(0, 100).await.expect("the log reads") {
        let view = events.view(&logged).await.expect("it can be shown");
        seen.push(serde_json::to_value(view).expect("it can be written"));
    }
    seen
}
