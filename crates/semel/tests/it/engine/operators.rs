//! What operators do about an operation, and what the next caller meets then.

use std::sync::Arc;

use semel::core::ledger::{StateKind, Version};
use semel::store::{Chunk, Place};
use semel::{Effect, Engine, Error, Label, Namespace, Note, Operator};

use super::actions::in_doubt;
use super::on_both_stores;
use super::world::{
    World, clean, data, key, operation, order, permit, record, replay, state, until,
};

on_both_stores![
    a_doubt_resolved_as_done_replays_what_the_person_said,
    a_doubt_resolved_as_not_done_runs_again,
    a_duplicated_resolution_licenses_one_attempt_only,
    a_command_on_another_version_is_refused_with_what_is_stored,
    a_failed_operation_is_retried_and_says_what_went_before,
    a_submitted_operation_is_cancelled_and_stays_so,
    a_forgotten_key_is_free_and_its_fence_goes_on,
    forgetting_erases_what_was_streamed_too,
    what_is_running_or_in_doubt_cannot_be_retried_cancelled_or_forgotten,
];

async fn operator(engine: &Engine) -> Operator {
    let version = record(engine, &key("order-7")).await;
    at(
        engine,
        version.map_or(Version(0), |record| record.version()),
    )
}

fn at(engine: &Engine, version: Version) -> Operator {
    let by = Label::new("ann").expect("a valid name");
    engine.operator(&Namespace::default(), &key("order-7"), version, by)
}

async fn doubt(engine: &Engine) {
    let permit = permit(engine, order()).await;
    permit.unknown("connection reset").await.expect("taken");
}

fn code<T>(answer: Result<T, Error>) -> Option<&'static str> {
    answer.err().map(|error| error.code())
}

async fn a_doubt_resolved_as_done_replays_what_the_person_said(world: World) {
    let engine = world.engine().await;
    doubt(&engine).await;
    let note = Note::new("the bank shows it").expect("a valid note");
    let operator = operator(&engine).await.note(note.clone());
    let data_said = Some(b"42".to_vec());
    let receipt = operator
        .resolve_done(true, Effect::Created, data_said)
        .await;
    assert_eq!(receipt.expect("resolved").state, StateKind::Succeeded);
    let again = replay(&engine, order()).await;
    assert_eq!((again.ok, data(&again)), (true, "42".to_owned()));
    let resolved = operation(&engine, &key("order-7")).await.resolved;
    assert_eq!(resolved.and_then(|it| it.note), Some(note));
    clean(&engine).await;
}

async fn a_doubt_resolved_as_not_done_runs_again(world: World) {
    let engine = world.engine().await;
    doubt(&engine).await;
    let receipt = operator(&engine).await.resolve_not_done().await;
    assert_eq!(receipt.expect("resolved").state, StateKind::Pending);
    let permit = permit(&engine, order()).await;
    assert_eq!(permit.fence().0, 2);
    permit.done(Effect::Created, &1).await.expect("taken");
    clean(&engine).await;
}

async fn a_duplicated_resolution_licenses_one_attempt_only(world: World) {
    let engine = world.engine().await;
    doubt(&engine).await;
    let resolution = operator(&engine).await;
    for _ in 0..2 {
        let receipt = resolution.clone().resolve_not_done().await;
        assert_eq!(receipt.expect("the same answer").state, StateKind::Pending);
    }
    let second = permit(&engine, order()).await;
    second.unknown("reset again").await.expect("taken");
    // Delivered once more, long after: the new doubt is not what it was about.
    let refused = resolution.resolve_not_done().await;
    if let Ok(receipt) = &refused {
        assert_eq!(receipt.state, StateKind::Doubtful, "it changed nothing");
    }
    in_doubt(&engine, order()).await;
    clean(&engine).await;
}

async fn a_command_on_another_version_is_refused_with_what_is_stored(world: World) {
    let engine = world.engine().await;
    doubt(&engine).await;
    for version in [0, 1, 3] {
        let refused = at(&engine, Version(version)).resolve_not_done().await;
        let Err(Error::Refused(refusal)) = refused else {
            panic!("version {version} must be refused: {refused:?}");
        };
        assert_eq!(refusal.rejection.code(), "fenced");
        let shown = refusal.record.expect("what is stored is shown");
        assert_eq!(shown.version(), Version(2));
    }
    in_doubt(&engine, order()).await;
}

async fn a_failed_operation_is_retried_and_says_what_went_before(world: World) {
    let engine = world.engine().await;
    for (effect, before) in [
        (Effect::Noop, Effect::Noop),
        (Effect::Unknown, Effect::Unknown),
        (Effect::Created, Effect::Unknown),
    ] {
        let permit = permit(&engine, order()).await;
        permit.failed(effect, "no").await.expect("taken");
        let receipt = operator(&engine).await.retry().await.expect("retried");
        assert_eq!(receipt.state, StateKind::Pending);
        assert_eq!(receipt.previous_effect, Some(before));
        assert_eq!(receipt.payload, None, "the old answer is gone");
    }
    let last = permit(&engine, order()).await;
    last.done(Effect::Created, &1).await.expect("taken");
    let receipt = operator(&engine).await.retry().await;
    assert!(receipt.expect("a success is replayed").replayed);
    clean(&engine).await;
}

async fn a_submitted_operation_is_cancelled_and_stays_so(world: World) {
    let engine = world.engine().await;
    let receipt = engine
        .submit(order(), semel::Queueing::nobody())
        .await
        .expect("taken");
    assert_eq!(
        (receipt.state, receipt.replayed),
        (StateKind::Pending, false)
    );
    assert_eq!((receipt.ok, receipt.effect), (true, Effect::Created));
    let again = engine
        .submit(order(), semel::Queueing::nobody())
        .await
        .expect("taken");
    assert!(again.replayed);
    assert_eq!((again.ok, again.effect), (true, Effect::Noop));
    let cancelled = operator(&engine).await.cancel().await.expect("cancelled");
    assert_eq!(
        (cancelled.state, cancelled.effect),
        (StateKind::Failed, Effect::Noop)
    );
    let refused = replay(&engine, order()).await;
    assert!(!refused.ok && refused.replayed);
    clean(&engine).await;
}

async fn a_forgotten_key_is_free_and_its_fence_goes_on(world: World) {
    let engine = world.engine().await;
    let first = permit(&engine, order()).await;
    first.done(Effect::Created, "secret").await.expect("taken");
    let before = record(&engine, &key("order-7")).await.expect("stored");
    operator(&engine).await.forget().await.expect("forgotten");
    // The repeat changes nothing.
    at(&engine, before.version()).forget().await.expect("same");
    let wall = Namespace::default();
    let payload = engine.payload(&wall, &key("order-7")).await;
    assert_eq!(payload.expect("it loads"), None);
    let other = order().input(&"another input");
    let second = permit(&world.another_engine().await, other.clone()).await;
    assert_eq!(second.fence().0, 2, "an older holder must stay fenced");
    let after = record(&engine, &key("order-7")).await.expect("stored");
    assert!(after.version() > before.version());
    second.done(Effect::Created, &2).await.expect("taken");
    assert_eq!(data(&replay(&engine, other).await), "2");
    clean(&engine).await;
}

/// Also what never became an answer: somebody wants it gone.
async fn forgetting_erases_what_was_streamed_too(world: World) {
    let engine = world.engine().await;
    let permit = permit(&engine, order()).await;
    let chunk = Chunk {
        stream: 1,
        bytes: b"secret".to_vec(),
    };
    permit.append(vec![chunk]).await.expect("it is stored");
    let fence = permit.fence();
    let failed = permit.finish(false, Effect::Noop, None).await;
    failed.expect("taken");
    operator(&engine).await.forget().await.expect("forgotten");
    let left = engine.store().stream(Place(1), fence).await;
    assert_eq!(left.expect("it loads"), []);
    clean(&engine).await;
}

async fn what_is_running_or_in_doubt_cannot_be_retried_cancelled_or_forgotten(world: World) {
    let engine = world.engine().await;
    let permit = Arc::new(permit(&engine, order()).await);
    for (state, expected) in [
        (StateKind::Running, "in_flight"),
        (StateKind::Doubtful, "in_doubt"),
    ] {
        until(&engine, &key("order-7"), state).await;
        let now = operator(&engine).await;
        assert_eq!(code(now.clone().retry().await), Some(expected));
        assert_eq!(code(now.clone().cancel().await), Some(expected));
        assert_eq!(code(now.clone().forget().await), Some("fenced"));
        if state == StateKind::Running {
            assert_eq!(code(now.clone().resolve_not_done().await), Some(expected));
            world.clock.skip(std::time::Duration::from_secs(61));
            engine.sweep().await.expect("it sweeps");
        }
    }
    assert_eq!(
        state(&engine, &key("order-7")).await,
        Some(StateKind::Doubtful)
    );
    assert!(permit.renew().await.is_err());
    assert_ne!(state(&engine, &key("order-7")).await, None);
    clean(&engine).await;
}
