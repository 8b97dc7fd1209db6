//! `semel inbox replay`: webhooks that were received are handed to the workers again.

use std::sync::Arc;
use std::time::Duration;

use semel::core::{Outcome, Verdict};
use semel::store::sqlite::SqliteStore;
use semel::{Effect, Engine, Key, Label, Queueing, Request};
use semel_testkit::conformance::ManualClock;
use serde_json::json;

use crate::harness::World;
use crate::setup::{Sender, given, report, start, stored, taken, tasks, told, world};

fn done(ok: bool) -> Verdict {
    Verdict::Done(Outcome {
        ok,
        effect: if ok { Effect::Created } else { Effect::Noop },
        payload: None,
    })
}

fn rejected() -> Verdict {
    Verdict::NotDone {
        reject: true,
        error: None,
        retry_after: None,
    }
}

#[test]
fn what_failed_gets_fresh_attempts_and_what_was_done_runs_again_only_if_asked_for() {
    let world = world();
    let server = start(&world);
    let sender = Sender::new("stripe");
    for id in ["done", "failed", "dead", "doubtful", "waiting"] {
        sender.deliver(&server, id).expect(202);
    }
    let first = tasks(&world);
    let task = |id: &str| &first[&format!("inbox/stripe/{id}")];
    report(&world, task("done"), done(true));
    report(&world, task("failed"), done(false));
    report(&world, task("dead"), rejected());
    report(&world, task("doubtful"), Verdict::Unknown { error: None });
    let replay = |words: &[&str]| {
        let words = [&["--json", "inbox", "replay", "stripe"], words].concat();
        world.semel(&words)
    };
    let before = stored(&world);
    // One by one: by the sender's id, or by the whole key.
    let many = replay(&[
        "done",
        "doubtful",
        "waiting",
        "nothing",
        "inbox/stripe/failed",
        "--dry-run",
    ]);
    let answers = many.json();
    assert_eq!(many.code, 64, "{many:?}");
    assert_eq!(answers[0]["error"]["code"], "invalid_input");
    assert_eq!(answers[1]["error"]["code"], "in_doubt");
    assert_eq!(
        (&answers[2]["effect"], &answers[2]["state"]),
        (&json!("noop"), &json!("running"))
    );
    assert_eq!(answers[3]["error"]["code"], "not_found");
    assert_eq!(answers[4]["effect"], "would_update");
    let again = replay(&["done", "--again", "--dry-run"]);
    assert_eq!(again.json()[0]["effect"], "would_create");
    let unsure = replay(&["--state", "failed,dead"]);
    assert_eq!(unsure.code, 64);
    assert_eq!(stored(&world), before, "nothing was written");
    assert_eq!(replay(&["--state", "succeeded", "--yes"]).code, 64);
    // All that failed.
    let all = replay(&["--state", "failed,dead", "--yes"]);
    assert_eq!((all.code, all.json().len()), (0, 2), "{all:?}");
    let second = tasks(&world);
    let keys: Vec<_> = second.keys().map(String::as_str).collect();
    assert_eq!(keys, ["inbox/stripe/dead", "inbox/stripe/failed"]);
    assert_eq!(given(&second["inbox/stripe/dead"]), given(task("dead")));
    // What was done, once more: asking twice for it while it waits is asking once.
    let again = replay(&["done", "--again"]);
    let again = &again.json()[0];
    assert_eq!(
        (&again["effect"], &again["key"]),
        (&json!("created"), &json!("inbox/stripe/done#2"))
    );
    let twice = replay(&["done", "--again"]);
    assert_eq!(twice.json()[0]["effect"], "noop", "{twice:?}");
    let third = tasks(&world);
    assert_eq!(given(&third["inbox/stripe/done#2"]), given(task("done")));
    report(&world, &third["inbox/stripe/done#2"], done(true));
    let again = replay(&["done", "--again"]);
    assert_eq!(again.json()[0]["key"], "inbox/stripe/done#3");
    // To the sender it is still the one that it sent.
    sender.deliver(&server, "done").expect(200);
    assert_eq!(tasks(&world).len(), 1);
}

/// A repeat that is in doubt may have acted: no other one is made beside it. One that is dead gets fresh attempts.
#[test]
fn a_repeat_that_is_not_over_is_the_one_that_is_meant() {
    let world = world();
    let server = start(&world);
    Sender::new("stripe").deliver(&server, "one").expect(202);
    report(&world, &tasks(&world)["inbox/stripe/one"], done(true));
    let again = || world.semel(&["--json", "inbox", "replay", "stripe", "one", "--again"]);
    assert_eq!(again().json()[0]["key"], "inbox/stripe/one#2");
    report(&world, &tasks(&world)["inbox/stripe/one#2"], rejected());
    let retried = again();
    assert_eq!(retried.code, 0, "{retried:?}");
    let doubted = tasks(&world);
    let keys: Vec<_> = doubted.keys().map(String::as_str).collect();
    assert_eq!(keys, ["inbox/stripe/one#2"]);
    report(
        &world,
        &doubted["inbox/stripe/one#2"],
        Verdict::Unknown { error: None },
    );
    let refused = again();
    assert_eq!(refused.code, 120, "{refused:?}");
    assert_eq!(tasks(&world).len(), 0);
}

/// However often one was handed on, it is one.
#[test]
fn all_that_were_done_are_handed_on_once_each() {
    let world = world();
    let server = start(&world);
    for id in ["one", "two"] {
        Sender::new("stripe").deliver(&server, id).expect(202);
    }
    for key in ["inbox/stripe/one", "inbox/stripe/one#2"] {
        let found = tasks(&world);
        found
            .values()
            .for_each(|task| report(&world, task, done(true)));
        assert!(found.contains_key(key), "{key}");
        world.semel(&["inbox", "replay", "stripe", "one", "--again"]);
    }
    let found = tasks(&world);
    found
        .values()
        .for_each(|task| report(&world, task, done(true)));
    let words = [
        "--json",
        "inbox",
        "replay",
        "stripe",
        "--state",
        "succeeded",
        "--again",
        "--yes",
    ];
    let all = world.semel(&words);
    let answers = all.json();
    let mut keys: Vec<_> = answers.iter().filter_map(|it| it["key"].as_str()).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        ["inbox/stripe/one#4", "inbox/stripe/two#2"],
        "{all:?}"
    );
}

/// Makes a store in which a webhook is past its retention, by the library and a clock that moves.
fn buried(world: &World, body: &[u8]) {
    std::fs::create_dir(world.path("data")).expect("a directory is made");
    let runtime = tokio::runtime::Runtime::new().expect("there is a runtime");
    runtime.block_on(async {
        let clock = Arc::new(ManualClock::default());
        let store = SqliteStore::open_with(world.path("data/semel.db"), Arc::clone(&clock) as _);
        let builder = Engine::builder().store(Arc::new(store.expect("the store opens")));
        let engine = builder.sweep_every(None).start().await;
        let engine = engine.expect("the engine starts");
        let key = Key::new("inbox/stripe/old").expect("it is a key");
        let request = Request::new("stripe", key).input_compared_by(b"{}", body);
        let queue = Queueing::on(Label::new("work").expect("it is a word"));
        engine.submit(request, queue).await.expect("it is stored");
        let (_, task) = taken(&engine).await.pop_first().expect("it is there");
        told(&engine, &task, done(true)).await;
        for days in [31, 1] {
            clock.advance(Duration::from_secs(days * 24 * 60 * 60));
            engine.sweep().await.expect("the store is swept");
        }
    });
}

/// A sender that comes back after all that time is still answered with success: its webhook was received.
#[test]
fn what_is_past_its_retention_is_known_and_cannot_be_handed_on() {
    let world = world();
    let sender = Sender::new("stripe");
    buried(&world, &sender.body("old"));
    let server = start(&world);
    let again = sender.deliver(&server, "old").expect(200);
    assert_eq!(
        (&again["effect"], &again["state"]),
        (&json!("noop"), &json!("tombstone")),
        "{again}"
    );
    server
        .ask(sender.signed("-", br#"{"id":"old"}"#))
        .problem(422, "key_reused");
    let ran = world.semel(&["inbox", "replay", "stripe", "old", "--again"]);
    assert_eq!(ran.code, 123, "{ran:?}");
    assert!(ran.stderr.contains("its body was erased"), "{ran:?}");
    assert_eq!(tasks(&world).len(), 0);
}
