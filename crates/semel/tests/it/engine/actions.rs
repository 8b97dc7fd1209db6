//! The builder form and the explicit form: what runs once, what runs again, what is in doubt.

use std::num::NonZeroU32;
use std::time::Duration;

use semel::core::VerdictKind;
use semel::core::ledger::{AttemptKind, Record, Spec, StateKind};
use semel::store::Chunk;
use semel::{
    Admission, Class, Effect, Error, Failure, Found, Label, Namespace, OnDoubt, Payload, Request,
    Retention,
};

use super::on_both_stores;
use super::world::{
    Effects, World, clean, data, key, lease, operation, order, permit, record, replay, state, until,
};

on_both_stores![
    an_action_runs_once_and_replays_the_same_value,
    an_action_can_be_described_like_a_request,
    a_key_with_another_input_or_name_is_refused_and_nothing_runs,
    one_key_behind_two_walls_runs_twice,
    a_failed_action_replays_the_same_failure,
    an_error_that_explains_nothing_is_a_doubt,
    an_action_that_was_not_applied_runs_again,
    a_panic_in_the_action_is_a_doubt,
    an_action_that_is_cancelled_is_a_doubt,
    a_dropped_permit_is_a_doubt_and_the_key_is_not_free,
    every_verdict_of_a_permit_leads_where_it_says,
    an_answer_of_another_type_is_not_run_again,
    an_answer_that_cannot_be_written_is_a_doubt,
    out_of_attempts_is_dead,
    an_idempotent_action_is_tried_again_and_the_log_says_why,
    what_is_streamed_is_what_is_replayed,
    inputs_that_mean_the_same_are_the_same,
    a_late_stream_survives_a_retry,
];

async fn an_action_runs_once_and_replays_the_same_value(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    let mut answers = vec![];
    for n in 0..3 {
        // The second and the third time from another process's view.
        let engine = if n == 0 {
            engine.clone()
        } else {
            world.another_engine().await
        };
        let effects = effects.clone();
        let call = engine.effect("create-order", key("order-7"));
        let call = call
            .input(&serde_json::json!({"amount": 100}))
            .effect(Effect::Created);
        let done = call
            .run(|attempt| async move {
                effects.happen();
                assert_eq!((attempt.number(), attempt.fence().0), (1, 1));
                assert_eq!(attempt.key().as_str(), "order-7");
                Ok(vec!["a".to_owned(), "b".to_owned()])
            })
            .await;
        let done = done.expect("it is done");
        assert_eq!(done.replayed, n > 0);
        assert_eq!(done.receipt.state, StateKind::Succeeded);
        if n == 0 {
            assert_eq!(done.receipt.effect, Effect::Created);
            assert_eq!(done.receipt.original_effect, None);
        } else {
            assert_eq!(done.receipt.effect, Effect::Noop);
            assert_eq!(done.receipt.original_effect, Some(Effect::Created));
            let reason = format!("already done {} min ago", 3 * n);
            assert_eq!(done.receipt.reason, Some(reason));
        }
        answers.push((done.value, data(&done.receipt)));
        tokio::time::advance(Duration::from_secs(180)).await;
    }
    assert_eq!(effects.count(), 1);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    clean(&engine).await;
}

/// Says everything that can be said of an action or a request, which have the same words.
macro_rules! described {
    ($action:expr) => {
        $action
            .namespace(team())
            .class(Class::Idempotent)
            .on_doubt(OnDoubt::Probe)
            .max_attempts(NonZeroU32::new(3).expect("three"))
            .retry_within(Duration::from_secs(5))
            .settle_delay(Duration::from_secs(7))
            .retention(Retention::new(Duration::from_secs(11)).expect("a retention"))
            .lease(lease(13))
            .door(Label::new("cli").expect("a label"))
    };
}

fn team() -> Namespace {
    Namespace::new("team").expect("a namespace")
}

async fn an_action_can_be_described_like_a_request(world: World) {
    let engine = world.engine().await;
    for (number, text) in ["[1]", "{\"a\":2}", "3"].into_iter().enumerate() {
        let key = |who: &str| key(&format!("{who}-{number}"));
        let request = described!(Request::new("create-order", key("request")));
        let action = described!(engine.effect("create-order", key("action")));
        let (request, action) = match number {
            0 => (request.input(&[1]), action.input(&[1])),
            1 => {
                let json = text.as_bytes();
                (request.input_json(json), action.input_json(json))
            }
            _ => {
                let bytes = text.as_bytes();
                (request.input_bytes(bytes), action.input_bytes(bytes))
            }
        };
        let permit = permit(&engine, request).await;
        permit.done(Effect::Updated, &1).await.expect("taken");
        action.run(|_| async { Ok(1) }).await.expect("it is done");
        let mut stored = vec![];
        for key in [key("request"), key("action")] {
            let loaded = engine.load(&team(), &key).await.expect("it loads");
            let operation = loaded.as_deref().and_then(Record::operation);
            let operation = operation.expect("it lives");
            let lease = operation.attempts[0].lease_until;
            let spec = Spec {
                key: self::key("the same"),
                ..Spec::clone(&operation.spec)
            };
            stored.push((spec, lease.since(operation.created_at)));
        }
        assert_eq!(stored[0], stored[1]);
        let delay = stored[1].0.policy.settle_delay;
        assert_eq!(delay, Duration::from_secs(7));
    }
    clean(&engine).await;
}

async fn a_key_with_another_input_or_name_is_refused_and_nothing_runs(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    let calls = [
        ("create-order", 1, Ok(false)),
        ("create-order", 2, Err("key_reused")),
        ("cancel-order", 1, Err("key_reused")),
        ("create-order", 1, Ok(true)),
    ];
    for (name, input, expected) in calls {
        let ours = effects.clone();
        let call = engine.effect(name, key("order-7")).input(&input);
        let done = call.run(|_| async move {
            ours.happen();
            Ok(())
        });
        let done = done.await.map(|done| done.replayed);
        assert_eq!(done.map_err(|error| error.code()), expected);
    }
    assert_eq!(effects.count(), 1);
    clean(&engine).await;
}

async fn one_key_behind_two_walls_runs_twice(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    for wall in ["default", "other", "default"] {
        let ours = effects.clone();
        let call = engine.effect("create-order", key("order-7"));
        let call = call.namespace(Namespace::new(wall).expect("a valid namespace"));
        let done = call.run(|_| async move {
            ours.happen();
            Ok(wall.to_owned())
        });
        assert_eq!(done.await.expect("it is done").value, wall);
    }
    assert_eq!(effects.count(), 2);
}

async fn a_failed_action_replays_the_same_failure(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    for n in 0..3 {
        let ours = effects.clone();
        let call = engine.effect("create-order", key("order-7"));
        let failed = call.run(|_| async move {
            ours.happen();
            Err::<(), _>(Failure::failed("the card was refused"))
        });
        let error = failed.await.expect_err("it failed");
        assert_eq!(error.code(), "failed");
        let Error::Failed(receipt) = &error else {
            panic!("a failure was expected: {error:?}");
        };
        assert_eq!(receipt.replayed, n > 0);
        assert_eq!(receipt.state, StateKind::Failed);
        assert!(
            error.to_string().contains("the card was refused"),
            "{error}"
        );
    }
    assert_eq!(effects.count(), 1);
    clean(&engine).await;
}

async fn an_error_that_explains_nothing_is_a_doubt(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    for n in 0..3 {
        let ours = effects.clone();
        let call = engine.effect("create-order", key("order-7"));
        let failed = call.run(|_| async move {
            ours.happen();
            // As any `?` in an action does.
            let number: u32 = "x".parse()?;
            Ok(number)
        });
        let error = failed.await.expect_err("nobody knows");
        assert_eq!(error.code(), "in_doubt");
        assert!(!error.retryable());
        match error {
            Error::Interrupted { receipt, .. } if n == 0 => {
                assert_eq!(receipt.state, StateKind::Doubtful);
                assert_eq!(receipt.effect, Effect::Unknown);
            }
            Error::Refused(refusal) if n > 0 => {
                let record = refusal.record.expect("the doubt is shown");
                assert_eq!(record.kind(), StateKind::Doubtful);
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(effects.count(), 1);
    clean(&engine).await;
}

async fn an_action_that_was_not_applied_runs_again(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    for n in 1..=3 {
        let ours = effects.clone();
        let call = engine.effect("create-order", key("order-7"));
        let done = call
            .run(|attempt| async move {
                assert_eq!(attempt.number(), n);
                if n < 3 {
                    return Err(Failure::not_applied("connection refused"));
                }
                ours.happen();
                Ok(n)
            })
            .await;
        match done {
            Ok(done) => assert_eq!((done.value, done.receipt.attempt), (3, 3)),
            Err(error) => {
                assert_eq!(error.code(), "not_done");
                assert!(error.retryable() && n < 3);
                assert_eq!(
                    state(&engine, &key("order-7")).await,
                    Some(StateKind::Pending)
                );
            }
        }
    }
    assert_eq!(effects.count(), 1);
    clean(&engine).await;
}

async fn a_panic_in_the_action_is_a_doubt(world: World) {
    let engine = world.engine().await;
    let ours = engine.clone();
    let panicked = tokio::spawn(async move {
        let call = ours.effect("create-order", key("order-7"));
        let done = call.run(|_| async {
            // Not with the panic's own noise on the test's output.
            std::panic::resume_unwind(Box::new("as a bug would"));
            #[expect(unreachable_code, reason = "the action must have a type")]
            Ok(())
        });
        done.await.map(drop)
    });
    assert!(panicked.await.is_err_and(|error| error.is_panic()));
    until(&engine, &key("order-7"), StateKind::Doubtful).await;
    in_doubt(&engine, order()).await;
    clean(&engine).await;
}

async fn an_action_that_is_cancelled_is_a_doubt(world: World) {
    let engine = world.engine().await;
    let effects = Effects::default();
    let (ours, theirs) = (engine.clone(), effects.clone());
    let running = tokio::spawn(async move {
        let call = ours.effect("create-order", key("order-7"));
        let done = call.run(|_| async move {
            theirs.happen();
            std::future::pending::<Result<(), Failure>>().await
        });
        done.await.map(drop)
    });
    while effects.count() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running.abort();
    assert!(running.await.is_err_and(|error| error.is_cancelled()));
    until(&engine, &key("order-7"), StateKind::Doubtful).await;
    in_doubt(&engine, order()).await;
    clean(&engine).await;
}

/// Expects that an operation is in doubt, and that nobody may act.
pub(super) async fn in_doubt(engine: &semel::Engine, request: Request) {
    let admission = engine.begin(request).await;
    assert!(
        matches!(admission, Ok(Admission::InDoubt(_))),
        "{admission:?}"
    );
}

async fn a_dropped_permit_is_a_doubt_and_the_key_is_not_free(world: World) {
    let engine = world.engine().await;
    drop(permit(&engine, order()).await);
    until(&engine, &key("order-7"), StateKind::Doubtful).await;
    in_doubt(&engine, order()).await;
    in_doubt(&world.another_engine().await, order()).await;
    let operation = operation(&engine, &key("order-7")).await;
    let attempt = operation.latest().expect("there was one");
    assert_eq!(attempt.verdict, Some(VerdictKind::Unknown));
    assert!(attempt.open);
    clean(&engine).await;
}

async fn every_verdict_of_a_permit_leads_where_it_says(world: World) {
    let engine = world.engine().await;
    let request = |name: &str| Request::new("create-order", key(name));
    let done = permit(&engine, request("done")).await;
    let done = done.done(Effect::Created, "yes").await.expect("taken");
    assert_eq!((done.ok, done.state), (true, StateKind::Succeeded));
    let failed = permit(&engine, request("failed")).await;
    let failed = failed.failed(Effect::Noop, "no").await.expect("taken");
    assert_eq!((failed.ok, failed.state), (false, StateKind::Failed));
    let bare = permit(&engine, request("bare")).await;
    let bare = bare
        .finish(true, Effect::Updated, None)
        .await
        .expect("taken");
    assert_eq!((bare.state, bare.payload), (StateKind::Succeeded, None));
    let not_done = permit(&engine, request("not_done")).await;
    let not_done = not_done.not_done("refused").await.expect("taken");
    assert_eq!(not_done.state, StateKind::Pending);
    let rejected = permit(&engine, request("rejected")).await;
    let rejected = rejected.reject("never").await.expect("taken");
    assert_eq!(
        (rejected.state, rejected.effect),
        (StateKind::Dead, Effect::Noop)
    );
    let unknown = permit(&engine, request("unknown")).await;
    let unknown = unknown.unknown("reset").await.expect("taken");
    assert_eq!(
        (unknown.state, unknown.effect),
        (StateKind::Doubtful, Effect::Unknown)
    );
    assert_eq!(data(&replay(&engine, request("done")).await), "\"yes\"");
    assert_eq!(data(&replay(&engine, request("failed")).await), "\"no\"");
    assert_eq!(replay(&engine, request("bare")).await.payload, None);
    let again = permit(&engine, request("not_done")).await;
    assert_eq!((again.attempt(), again.fence().0), (2, 2));
    let dead = engine.begin(request("rejected")).await;
    assert_eq!(dead.map_err(|error| error.code()).err(), Some("dead"));
    in_doubt(&engine, request("unknown")).await;
    again.not_done("enough").await.expect("taken");
    clean(&engine).await;
}

async fn an_answer_of_another_type_is_not_run_again(world: World) {
    let engine = world.engine().await;
    let call = || engine.effect("create-order", key("order-7"));
    let first = call().run(|_| async { Ok("text".to_owned()) }).await;
    first.expect("it is done");
    let effects = Effects::default();
    let ours = effects.clone();
    let other = call().run(|_| async move {
        ours.happen();
        Ok(42)
    });
    let error = other.await.expect_err("the stored answer is a text");
    assert!(matches!(error, Error::Unreadable(_)), "{error:?}");
    assert_eq!(effects.count(), 0);
}

async fn an_answer_that_cannot_be_written_is_a_doubt(world: World) {
    let engine = world.engine().await;
    let unwritable: std::collections::BTreeMap<(u8, u8), u8> = [((1, 2), 3)].into();
    let permit = permit(&engine, order()).await;
    let error = permit.done(Effect::Created, &unwritable).await;
    assert_eq!(
        error.map_err(|error| error.code()).err(),
        Some("invalid_input")
    );
    until(&engine, &key("order-7"), StateKind::Doubtful).await;
    clean(&engine).await;
}

async fn out_of_attempts_is_dead(world: World) {
    let engine = world.engine().await;
    let limited = || order().max_attempts(NonZeroU32::new(2).expect("two"));
    for n in 1..=2 {
        let permit = permit(&engine, limited()).await;
        assert_eq!(permit.attempt(), n);
        permit.not_done("refused").await.expect("taken");
    }
    let dead = engine.begin(limited()).await;
    assert_eq!(dead.map_err(|error| error.code()).err(), Some("dead"));
    assert_eq!(state(&engine, &key("order-7")).await, Some(StateKind::Dead));
    clean(&engine).await;
}

async fn an_idempotent_action_is_tried_again_and_the_log_says_why(world: World) {
    let engine = world.engine().await;
    let request = || order().class(Class::Idempotent);
    drop(permit(&engine, request()).await);
    until(&engine, &key("order-7"), StateKind::Doubtful).await;
    let again = permit(&engine, request()).await;
    assert_eq!(again.fence().0, 2);
    again.done(Effect::Created, &1).await.expect("taken");
    let log = engine.store().log(0, 100).await.expect("the log reads");
    let waived = semel::core::ledger::Event::DoubtWaived;
    let waivers = log.iter().filter(|one| one.entry.events.contains(&waived));
    assert_eq!(waivers.count(), 1);
    clean(&engine).await;
}

async fn what_is_streamed_is_what_is_replayed(world: World) {
    let engine = world.engine().await;
    let permit = permit(&engine, order()).await;
    let pieces = [&b"one "[..], &[b'x'; 2_000], b"", b" end"];
    for bytes in pieces {
        let chunk = Chunk {
            stream: 1,
            bytes: bytes.to_vec(),
        };
        permit.append(vec![chunk]).await.expect("it is stored");
    }
    let whole = pieces.concat();
    let payload = Payload::of(&whole);
    let receipt = permit.finish_streamed(true, Effect::Updated, payload).await;
    let receipt = receipt.expect("it is done");
    assert_eq!(receipt.payload.as_deref(), Some(&whole[..]));
    let again = replay(&engine, order()).await;
    assert_eq!(again.payload.as_deref(), Some(&whole[..]));
    clean(&engine).await;
}

async fn inputs_that_mean_the_same_are_the_same(world: World) {
    let engine = world.engine().await;
    let spelt = |json: &str| order().input_json(json.as_bytes());
    let first = permit(&engine, spelt(r#"{"a": 1.0, "b": "\u0041"}"#)).await;
    first.done(Effect::Created, &()).await.expect("taken");
    replay(&engine, spelt(r#" {"b":"A","a":1} "#)).await;
    for other in [r#"{"a":1}"#, r#"{"a":1,"b":"B"}"#, "null"] {
        let refused = engine.begin(spelt(other)).await;
        assert_eq!(
            refused.map_err(|error| error.code()).err(),
            Some("key_reused")
        );
    }
    for hostile in [r#"{"a":1,"a":1}"#, "[1,", "\"\\ud800\""] {
        let refused = engine.begin(spelt(hostile)).await;
        let refused = refused.map_err(|error| error.code()).err();
        assert_eq!(refused, Some("invalid_input"), "{hostile}");
    }
}

/// The stream of an attempt that may still report must outlive what others reported meanwhile.
async fn a_late_stream_survives_a_retry(world: World) {
    let engine = world.engine().await;
    let request = || order().class(Class::Idempotent);
    let slow = permit(&engine, request()).await;
    let chunk = Chunk {
        stream: 1,
        bytes: b"late".to_vec(),
    };
    slow.append(vec![chunk]).await.expect("it is stored");
    world.clock.skip(Duration::from_secs(61));
    let second = permit(&engine, request()).await;
    second.failed(Effect::Unknown, "no").await.expect("taken");
    let version = record(&engine, &key("order-7")).await.expect("it is there");
    let operator = engine.operator(
        &Namespace::default(),
        &key("order-7"),
        version.version(),
        Label::new("ann").expect("a valid name"),
    );
    operator.retry().await.expect("it is retried");
    let payload = Payload::of(b"late");
    let receipt = slow.finish_streamed(true, Effect::Created, payload).await;
    assert_eq!(data(&receipt.expect("a late report is taken")), "late");
    assert_eq!(data(&replay(&engine, request()).await), "late");
    clean(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_no_attempt_to_act() {
    let world = World::memory();
    let engine = world.engine().await;
    let call = || {
        let call = engine.effect("create-order", key("order-7"));
        call.probe(|_| async { Found::NotDone })
    };
    let first = call().run(|_| async { Err::<(), _>(Failure::unknown("reset")) });
    first.await.expect_err("it is in doubt");
    tokio::time::advance(Duration::from_secs(61)).await;
    let done = call()
        .run(|attempt| async move { Ok(attempt.number()) })
        .await;
    assert_eq!(done.expect("it is done").value, 2);
    let operation = operation(&engine, &key("order-7")).await;
    let kinds: Vec<_> = operation.attempts.iter().map(|it| it.kind).collect();
    let expected = [AttemptKind::Act, AttemptKind::Probe, AttemptKind::Act];
    assert_eq!(kinds, expected);
    clean(&engine).await;
}
