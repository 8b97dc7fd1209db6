//! What looks like a secret never reaches a store; answers stay exact unless a rule names a part of them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use semel::core::ledger::{Event, State, StateKind, Version};
use semel::core::redact::{OutputRule, Pattern};
use semel::store::{Chunk, Store};
use semel::view::RecordView;
use semel::{
    Effect, Engine, Error, Label, Namespace, Note, Operator, Payload, Probe, Receipt, Redactor,
};
use serde_json::{Value, json};

use super::on_both_stores;
use super::store::{Twist, Twisted, unavailable};
use super::world::{World, clean, data, key, operation, order, permit, record, replay};

on_both_stores![
    errors_and_notes_lose_their_secrets,
    names_and_keys_stay_as_they_are,
    a_repeated_order_with_a_secret_in_its_note_changes_nothing,
    an_answer_is_exact_unless_a_rule_names_a_part_of_it,
    a_rule_is_about_what_a_recorded_command_answered,
    a_resolution_is_redacted_like_an_answer,
    the_same_report_again_is_no_conflict,
    what_was_streamed_stays_exact,
    evidence_that_is_redacted_says_so_once_it_counts,
];

/// A secret that several rules could find, and a part of it that must be nowhere.
const SECRET: &str = "hunter2-and-more";

async fn with(store: Arc<dyn Store>, redactor: Redactor) -> Engine {
    let builder = Engine::builder().store(store).sweep_every(None);
    let builder = builder.redactor(redactor);
    builder.start().await.expect("the engine starts")
}

fn rules(texts: &[&str]) -> Redactor {
    let rules = texts.iter().map(|text| OutputRule::new(text));
    Redactor::default().outputs(rules.map(|rule| rule.expect("a test's rule is valid")))
}

async fn operator(engine: &Engine, version: Version) -> Operator {
    let by = Label::new("ann token=hunter2-and-more").expect("a valid name");
    engine.operator(&Namespace::default(), &key("order-7"), version, by)
}

async fn version(engine: &Engine) -> Version {
    operation(engine, &key("order-7")).await.version
}

/// Everything that a store tells about its operations.
async fn everything(engine: &Engine) -> String {
    let log = engine.store().log(0, 100).await.expect("the log reads");
    let record = record(engine, &key("order-7")).await;
    format!("{log:?} {record:?}")
}

fn said(receipt: &Receipt) -> (Value, Option<Value>) {
    let json = serde_json::to_value(receipt).expect("a receipt is JSON");
    (json["data"].clone(), json.get("redacted").cloned())
}

async fn errors_and_notes_lose_their_secrets(world: World) {
    let redactor =
        Redactor::default().patterns([Pattern::new("acme_*").expect("a test's pattern is valid")]);
    let engine = with(Arc::clone(&world.store), redactor).await;
    let first = permit(&engine, order()).await;
    let error = format!("401 for https://api.test?token={SECRET} with acme_{SECRET}");
    first.not_done(&error).await.expect("it is taken");
    let second = permit(&engine, order()).await;
    let error = format!("reset after Authorization: Bearer {SECRET}");
    second.unknown(&error).await.expect("it is taken");
    let note = format!("asked with --password {SECRET}");
    let note = Note::new(&note).expect("a valid note");
    let operator = operator(&engine, version(&engine).await).await.note(note);
    operator.resolve_not_done().await.expect("it is resolved");
    let operation = operation(&engine, &key("order-7")).await;
    let errors: Vec<_> = operation
        .attempts
        .iter()
        .map(|it| it.error.clone())
        .collect();
    assert_eq!(
        errors
            .iter()
            .flatten()
            .map(Note::as_str)
            .collect::<Vec<_>>(),
        [
            "401 for https://api.test?token=[redacted] with [redacted]",
            "reset after Authorization: [redacted]"
        ]
    );
    let resolved = operation.resolved.expect("it was");
    assert_eq!(resolved.by.as_str(), "ann token=[redacted]");
    let note = resolved.note.expect("there is one");
    assert_eq!(note.as_str(), "asked with --password [redacted]");
    assert!(!everything(&engine).await.contains(SECRET));
    clean(&engine).await;
}

async fn names_and_keys_stay_as_they_are(world: World) {
    let engine = world.engine().await;
    let text = "password=hunter2-and-more";
    let probe = Probe::new(text).expect("a valid probe");
    let request = semel::Request::new(text, key(text))
        .input(text)
        .probe_digest(probe.digest());
    let fingerprint = {
        let permit = permit(&engine, request.clone()).await;
        permit
            .done(Effect::Created, text)
            .await
            .expect("it is taken");
        let operation = operation(&engine, &key(text)).await;
        assert_eq!(operation.spec.name.as_str(), text);
        assert_eq!(operation.spec.probe_digest, Some(probe.digest()));
        operation.spec.fingerprint
    };
    let again = replay(&engine, request.clone()).await;
    assert_eq!(again.data(), Some("\"password=hunter2-and-more\""));
    // The fingerprint was computed before: another secret is another input.
    let other = engine.begin(request.input("password=other")).await;
    assert_eq!(
        other.map_err(|error| error.code()).err(),
        Some("key_reused")
    );
    let record = record(&engine, &key(text)).await.expect("it is there");
    let view = RecordView::of(&record, engine.store().now()).expect("it has a key");
    assert_eq!(view.fingerprint, fingerprint);
    let shown = view.shown(engine.redactor());
    assert_eq!(shown.probe_digest, Some(probe.digest()));
}

async fn a_repeated_order_with_a_secret_in_its_note_changes_nothing(world: World) {
    let engine = world.engine().await;
    let permit = permit(&engine, order()).await;
    permit.unknown("lost").await.expect("it is taken");
    let decided_on = version(&engine).await;
    for _ in 0..2 {
        let note = Note::new("password=hunter2-and-more").expect("a valid note");
        let operator = operator(&engine, decided_on).await.note(note);
        operator
            .resolve_not_done()
            .await
            .expect("it is taken, or a repeat");
    }
    assert_eq!(version(&engine).await, Version(decided_on.0 + 1));
}

async fn an_answer_is_exact_unless_a_rule_names_a_part_of_it(world: World) {
    let answer = json!({"id": 42, "card": {"number": "4242", "token": "password=a"}});
    let exact = world.engine().await;
    let receipt = permit(&exact, order())
        .await
        .done(Effect::Created, &answer)
        .await;
    assert_eq!(said(&receipt.expect("it is taken")), (answer.clone(), None));
    assert_eq!(said(&replay(&exact, order()).await), (answer.clone(), None));

    let engine = with(Arc::clone(&world.store), rules(&["/card/number"])).await;
    let other = order().key(key("order-8"));
    let receipt = permit(&engine, other.clone())
        .await
        .done(Effect::Created, &answer)
        .await;
    let hidden = json!({"id": 42, "card": {"number": "[redacted]", "token": "password=a"}});
    let marked = (hidden.clone(), Some(json!(true)));
    assert_eq!(said(&receipt.expect("it is taken")), marked);
    // Whoever replays it, with or without the rule.
    assert_eq!(said(&replay(&engine, other.clone()).await), marked);
    assert_eq!(said(&replay(&exact, other).await), marked);
    let record = record(&exact, &key("order-8")).await.expect("it is there");
    let view = RecordView::of(&record, exact.store().now()).expect("it has a key");
    let view = serde_json::to_value(view).expect("a record is JSON");
    assert_eq!(view["redacted"], json!(true));
    // What the rule does not name says nothing about it.
    let third = order().key(key("order-9"));
    let receipt = permit(&engine, third)
        .await
        .done(Effect::Created, &json!({"a": 1}))
        .await;
    assert_eq!(
        said(&receipt.expect("it is taken")),
        (json!({"a": 1}), None)
    );
    clean(&engine).await;
}

async fn a_rule_is_about_what_a_recorded_command_answered(world: World) {
    let engine = with(
        Arc::clone(&world.store),
        rules(&["/card", "/stdout", "/*/number"]),
    )
    .await;
    let stdout = "{\"card\": \"4242\",\n \"n\": {\"number\": 7}}\n";
    let recorded = |stdout: &str, output: Value| {
        json!({"exit_code": 0, "signal": null, "stdout": stdout, "stderr": "4242",
            "output": output, "turns": [[2, 4], [1, stdout.len()]]})
    };
    let answer = recorded(stdout, json!({"card": "4242", "n": {"number": 7}}));
    let receipt = permit(&engine, order())
        .await
        .done(Effect::Updated, &answer)
        .await;
    let (data, marked) = said(&receipt.expect("it is taken"));
    assert_eq!(marked, Some(json!(true)));
    let text = "{\"card\": \"[redacted]\",\n \"n\": {\"number\": \"[redacted]\"}}\n";
    let value = json!({"card": "[redacted]", "n": {"number": "[redacted]"}});
    let mut hidden = recorded(text, value);
    hidden["turns"] = json!(null);
    assert_eq!(data, hidden);
    // What is no JSON is exact.
    let other = order().key(key("order-8"));
    let answer = recorded("card 4242", json!(null));
    let receipt = permit(&engine, other)
        .await
        .done(Effect::Updated, &answer)
        .await;
    assert_eq!(said(&receipt.expect("it is taken")), (answer, None));
}

async fn a_resolution_is_redacted_like_an_answer(world: World) {
    let engine = with(Arc::clone(&world.store), rules(&["/pin"])).await;
    let permit = permit(&engine, order()).await;
    permit.unknown("lost").await.expect("it is taken");
    let version = version(&engine).await;
    for repeated in [false, true] {
        let operator = operator(&engine, version).await;
        let data = Some(b"{\"pin\":1234}".to_vec());
        let receipt = operator.resolve_done(true, Effect::Created, data).await;
        let receipt = receipt.expect("it is resolved");
        let hidden = (json!({"pin": "[redacted]"}), Some(json!(true)));
        assert_eq!(said(&receipt), hidden, "repeated: {repeated}");
    }
}

async fn the_same_report_again_is_no_conflict(world: World) {
    let engine = with(Arc::clone(&world.store), rules(&["/pin"])).await;
    engine.inject_repeat(semel::Point::Settle, 1);
    let permit = permit(&engine, order()).await;
    let receipt = permit.done(Effect::Created, &json!({"pin": 1234})).await;
    let hidden = (json!({"pin": "[redacted]"}), Some(json!(true)));
    assert_eq!(said(&receipt.expect("it is taken")), hidden);
    let log = engine.store().log(0, 100).await.expect("the log reads");
    let events = log.iter().flat_map(|logged| &logged.entry.events);
    assert!(!events.into_iter().any(|event| *event == Event::Conflict));
}

async fn what_was_streamed_stays_exact(world: World) {
    let engine = with(Arc::clone(&world.store), rules(&["/pin"])).await;
    let permit = permit(&engine, order()).await;
    let bytes = b"{\"pin\":1234}".to_vec();
    let payload = Payload::of(&bytes);
    permit
        .append(vec![Chunk { stream: 1, bytes }])
        .await
        .expect("it is stored");
    let receipt = permit.finish_streamed(true, Effect::Created, payload).await;
    assert_eq!(
        said(&receipt.expect("it is taken")),
        (json!({"pin": 1234}), None)
    );
}

async fn evidence_that_is_redacted_says_so_once_it_counts(world: World) {
    let engine = with(Arc::clone(&world.store), rules(&["/pin"])).await;
    let request = order().on_doubt(semel::OnDoubt::Retry);
    let first = permit(&engine, request.clone().lease(super::world::lease(1))).await;
    world.clock.skip(Duration::from_secs(5));
    let second = permit(&engine, request.clone()).await;
    let late = first.done(Effect::Created, &json!({"pin": 1234})).await;
    assert!(late.is_err(), "a newer attempt runs");
    let State::Running { evidence } = operation(&engine, &key("order-7")).await.state else {
        panic!("the newer attempt runs");
    };
    let payload = evidence.and_then(|outcome| outcome.payload);
    assert!(payload.is_some_and(|payload| payload.redacted));
    second
        .not_done("nothing was done")
        .await
        .expect("it is taken");
    let hidden = (json!({"pin": "[redacted]"}), Some(json!(true)));
    assert_eq!(said(&replay(&engine, request).await), hidden);
}

fn files_under(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).expect("it lists");
    let paths = entries.map(|entry| entry.expect("it lists").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files_under(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_note_of_an_outcome_that_could_not_be_stored_has_no_secrets() {
    let world = World::sqlite();
    let deaf = Twisted::new(world.another(), |change| match &change.entry.command {
        semel::core::ledger::Command::Begin(_) => Twist::Pass,
        _ => Twist::Fail(unavailable()),
    });
    let engine = with(deaf, rules(&["/pin"])).await;
    let unstored = permit(&engine, order()).await;
    let unstored = unstored
        .done(Effect::Created, &json!({"pin": "hunter2-and-more"}))
        .await;
    let Err(Error::Unstored {
        payload,
        noted: true,
        ..
    }) = unstored
    else {
        panic!("the outcome cannot be stored");
    };
    assert_eq!(payload.as_deref(), Some(&b"{\"pin\":\"[redacted]\"}"[..]));
    let other = permit(&engine, order().key(key("order-8"))).await;
    let lost = other.unknown("password=hunter2-and-more").await;
    assert!(matches!(lost, Err(Error::Unstored { noted: true, .. })));
    let notes = world.store.notes().expect("SQLite keeps notes");
    let files = files_under(&notes);
    assert!(files.len() >= 2);
    for path in files {
        let bytes = std::fs::read(&path).expect("it reads");
        let found = bytes
            .windows(SECRET.len())
            .any(|window| window == SECRET.as_bytes());
        assert!(!found, "{}", path.display());
    }
    drop(engine);
    let engine = world.another_engine().await;
    let replayed = replay(&engine, order()).await;
    assert_eq!(data(&replayed), "{\"pin\":\"[redacted]\"}");
    assert!(replayed.redacted);
    assert_eq!(
        super::world::state(&engine, &key("order-8")).await,
        Some(StateKind::Doubtful)
    );
}

#[tokio::test]
async fn a_url_that_cannot_be_opened_is_told_without_its_password() {
    let opened = Engine::open("mysql://me:hunter2-and-more@db/x").await;
    let text = opened.expect_err("there is no such store").to_string();
    assert!(text.contains("mysql://me:[redacted]@db/x"), "{text}");
    assert!(!text.contains(SECRET), "{text}");
}
