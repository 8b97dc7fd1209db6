//! One caller, one call after the other.

use semel::core::identity::{Source, WINDOW};
use semel::core::ledger::{Delivery, StateKind};
use semel::door::Preview;

use super::*;

#[tokio::test]
async fn whoever_has_the_answer_wants_another_also_after_a_restart() {
    let bed = sqlite();
    let door = start(&bed).await;
    assert_eq!(
        told(&complete(&door, &call()).await),
        as_a(Relation::First, 1)
    );
    assert_eq!(
        told(&complete(&door, &call()).await),
        as_a(Relation::IntendedRepeat, 2)
    );
    door.flush().await.expect("the marks are stored");
    drop(door);
    let door = start(&bed).await;
    assert_eq!(counting(&door).await, 0);
    let third = complete(&door, &call()).await;
    assert_eq!(told(&third), as_a(Relation::IntendedRepeat, 3));
    assert_eq!(third.key, call().numbered(3));
}

#[tokio::test]
async fn whoever_lost_the_answer_gets_it_again_at_any_process() {
    for observations in [
        &[Observation::Written, Observation::Reset][..],
        &[Observation::Cancelled],
        &[Observation::Written],
        &[],
    ] {
        let bed = sqlite();
        let door = start(&bed).await;
        let (first, ticket, permit) = run(&door, &call()).await;
        done(permit).await;
        for observation in observations {
            ticket.see(*observation);
        }
        drop(ticket);
        let other = start(&bed).await;
        for door in [&door, &other] {
            let (identity, ticket) = replay(door, &call()).await;
            assert_eq!(told(&identity), as_a(Relation::Retry, 1));
            assert_eq!(identity.key, first.key);
            ticket.see(Observation::Reset);
        }
        // The answer arrives at last: the next call is another one.
        let (_, ticket) = replay(&other, &call()).await;
        arrived(&ticket);
        let next = complete(&other, &call()).await;
        assert_eq!(told(&next), as_a(Relation::IntendedRepeat, 2));
    }
}

#[tokio::test]
async fn a_process_that_died_leaves_a_doubt_that_is_never_run_again() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (first, ticket, permit) = run(&door, &call()).await;
    std::mem::forget((ticket, permit));
    drop(door);
    let door = start(&bed).await;
    let joined = enter(&door, &call()).await;
    assert_eq!(joined.identity.relation, Relation::Joined);
    assert!(matches!(joined.admission, Admission::Wait { .. }));
    drop(joined);
    for passed in [2 * MINUTE, DAY, 400 * DAY] {
        bed.clock().advance(passed);
        let entered = enter(&door, &call()).await;
        assert_eq!(told(&entered.identity), as_a(Relation::Retry, 1));
        assert_eq!(entered.identity.key, first.key);
        assert!(matches!(entered.admission, Admission::InDoubt(_)));
        if let Some(ticket) = entered.ticket {
            ticket.see(Observation::PutOff);
        }
        door.flush().await.expect("the marks are stored");
        assert_eq!(counting(&door).await, 1);
    }
}

#[tokio::test]
async fn what_was_not_applied_is_carried_out_by_the_next_call() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (_, ticket, permit) = run(&door, &call()).await;
    permit.not_done("no connection").await.expect("it is told");
    ticket.see(Observation::PutOff);
    let (again, _ticket, permit) = run(&start(&bed).await, &call()).await;
    assert_eq!(told(&again), as_a(Relation::Retry, 1));
    assert_eq!(permit.attempt(), 2);
    done(permit).await;
}

#[tokio::test]
async fn a_suspect_counts_within_its_window_and_then_lapses() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (first, ticket, permit) = run(&door, &call()).await;
    done(permit).await;
    drop(ticket);
    door.flush().await.expect("the marks are stored");
    bed.clock().advance(WINDOW);
    let other = start(&bed).await;
    let (identity, ticket) = replay(&other, &call()).await;
    assert_eq!(told(&identity), as_a(Relation::Retry, 1));
    drop((ticket, other));
    bed.clock().advance(MINUTE);
    let later = start(&bed).await;
    let second = complete(&later, &call()).await;
    assert_eq!(told(&second), as_a(Relation::IntendedRepeat, 2));
    later.flush().await.expect("the marks are stored");
    let record = record(&later, &first.key).await;
    let operation = record.operation().expect("it lives");
    assert_eq!(operation.delivery, Delivery::Lapsed);
    assert_eq!(counting(&later).await, 0);
}

/// Without what is remembered of them, the second retry would run.
#[tokio::test]
async fn the_window_counts_from_the_last_call_that_was_seen() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (_, ticket, permit) = run(&door, &call()).await;
    done(permit).await;
    drop(ticket);
    for _ in 0..3 {
        bed.clock().advance(WINDOW - MINUTE);
        let (identity, ticket) = replay(&door, &call()).await;
        assert_eq!(told(&identity), as_a(Relation::Retry, 1));
        drop(ticket);
        door.flush().await.expect("the marks are stored");
        assert_eq!(door.held(), 0);
    }
}

#[tokio::test]
async fn a_call_id_names_its_operation_for_as_long_as_it_is_kept() {
    let bed = sqlite();
    let door = start(&bed).await;
    let first = complete(&door, &with_id("toolu_1")).await;
    assert_eq!(first.source, Source::CallId);
    let shown = record(&door, &first.key).await;
    let spec = &shown.operation().expect("it lives").spec;
    let client_key = spec.client_key.as_ref().map(|key| key.as_str());
    assert_eq!(client_key, Some("toolu_1"));
    drop(door);
    bed.clock().advance(DAY);
    let door = start(&bed).await;
    let (again, _ticket) = replay(&door, &with_id("toolu_1")).await;
    assert_eq!((again.key, again.relation), (first.key, Relation::Retry));
}

#[tokio::test]
async fn a_new_call_id_for_a_lost_answer_is_remembered_beside_the_first_one() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (first, ticket, permit) = run(&door, &with_id("toolu_1")).await;
    done(permit).await;
    ticket.see(Observation::Cancelled);
    let (second, ticket) = replay(&door, &with_id("toolu_2")).await;
    assert_eq!(
        (&second.key, second.relation),
        (&first.key, Relation::Retry)
    );
    arrived(&ticket);
    // It arrived, but whoever says the same id means the same call.
    let (third, ticket) = replay(&door, &with_id("toolu_2")).await;
    assert_eq!((&third.key, third.source), (&first.key, Source::CallId));
    arrived(&ticket);
    let another = complete(&door, &with_id("toolu_3")).await;
    assert_eq!(another.relation, Relation::IntendedRepeat);
    assert_ne!(another.key, first.key);
}

#[tokio::test]
async fn an_explicit_key_is_the_identity_whatever_arrived() {
    let bed = sqlite();
    let door = start(&bed).await;
    let keyed = Call {
        explicit: Some(text("order-7")),
        ..call()
    };
    let first = complete(&door, &keyed).await;
    assert_eq!(
        (first.relation, first.source),
        (Relation::First, Source::Explicit)
    );
    bed.clock().advance(DAY);
    let (again, _ticket) = replay(&start(&bed).await, &keyed).await;
    assert_eq!((again.key, again.relation), (first.key, Relation::Retry));
    let other = request().input_json(b"7");
    let otherwise = Call {
        fingerprint: other.fingerprint().expect("a valid input"),
        ..keyed
    };
    let refused = door.enter(&otherwise, other).await;
    assert_eq!(
        refused.expect_err("it is another call").code(),
        "key_reused"
    );
}

#[tokio::test]
async fn a_call_and_its_request_must_be_about_the_same() {
    let door = start(&memory()).await;
    let refused = door.enter(&call(), request().input_json(b"7")).await;
    assert_eq!(refused.expect_err("they differ").code(), "invalid_input");
}

#[tokio::test]
async fn numbers_go_on_where_they_ended_however_many_there_are() {
    let bed = memory();
    let door = start(&bed).await;
    for n in 1..=21 {
        assert_eq!(complete(&door, &call()).await.occurrence, n);
    }
    door.flush().await.expect("the marks are stored");
    let door = start(&bed).await;
    assert_eq!(complete(&door, &call()).await.occurrence, 22);
}

#[tokio::test]
async fn a_dry_run_says_what_would_happen_and_writes_nothing() {
    let bed = sqlite();
    let door = start(&bed).await;
    let before = door.engine().store().end().await;
    let new = door.preview(&call(), request()).await.expect("judged");
    assert_eq!(told(&new.identity), as_a(Relation::First, 1));
    let expected = semel::Preview::Execute { attempt: 1 };
    assert_eq!(
        format!("{:?}", new.preview),
        format!("{:?}", Preview::Ledger(expected))
    );
    assert_eq!(door.engine().store().end().await, before);
    assert_eq!(door.held(), 0);
    let (_, ticket, permit) = run(&door, &call()).await;
    let joined = door.preview(&call(), request()).await.expect("judged");
    assert_eq!(joined.identity.relation, Relation::Joined);
    let challenged = Call {
        in_flight: InFlight::Challenge,
        ..call()
    };
    let challenged = door.preview(&challenged, request()).await.expect("judged");
    assert!(matches!(challenged.preview, Preview::Challenged { .. }));
    done(permit).await;
    drop(ticket);
    let retry = door.preview(&call(), request()).await.expect("judged");
    assert!(matches!(
        retry.preview,
        Preview::Ledger(semel::Preview::Replay(_))
    ));
    assert_eq!(
        record(&door, &call().numbered(1)).await.kind(),
        StateKind::Succeeded
    );
}

/// A call that resolves a doubt is judged once more: it is one call, and its answer counts alone.
#[tokio::test]
async fn a_call_that_is_judged_once_more_is_one_call() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (first, ticket, permit) = run(&door, &call()).await;
    permit.unknown("lost").await.expect("it is stored");
    ticket.see(Observation::PutOff);
    drop(ticket);
    let entered = enter(&door, &call()).await;
    assert!(matches!(entered.admission, Admission::InDoubt(_)));
    let ticket = entered.ticket.expect("it has a ticket");
    let version = record(&door, &first.key).await.version();
    let by = semel::Label::new("ann").expect("a valid name");
    let engine = door.engine();
    let operator = engine.operator(&Namespace::default(), &first.key, version, by);
    let resolved = operator.resolve_done(true, Effect::Created, None).await;
    resolved.expect("it is resolved");
    assert!(!ticket.withdraw(), "nobody has left");
    let (again, ticket) = replay(&door, &call()).await;
    assert_eq!(told(&again), as_a(Relation::Retry, 1), "it joins nobody");
    arrived(&ticket);
    assert_eq!(
        told(&complete(&door, &call()).await),
        as_a(Relation::IntendedRepeat, 2)
    );
}

#[tokio::test]
async fn who_left_before_a_call_is_judged_once_more_is_told_to_have_left() {
    let bed = memory();
    let door = start(&bed).await;
    let (_, ticket, _permit) = run(&door, &call()).await;
    ticket.see(Observation::Cancelled);
    assert!(ticket.withdraw());
}
