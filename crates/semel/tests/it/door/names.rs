//! Operations are found by their keys or by what their clients call them, and never by a guess.

use semel::core::ledger::StateKind;
use semel::{Ambiguous, Error, Named};

use super::*;

fn of(whose: &str, name: &str) -> Call {
    let scope = Scope {
        principal: Some(whose.to_owned()),
        ..call().scope
    };
    Call {
        scope,
        explicit: Some(text(name)),
        ..call()
    }
}

async fn find(door: &Doorway, name: &str) -> semel::Result<Option<Named>> {
    let engine = door.engine();
    engine.find(&Namespace::default(), name).await
}

async fn found(door: &Doorway, name: &str) -> Option<Key> {
    let found = find(door, name).await.expect("it is one or none");
    found.map(|named| named.key)
}

async fn ambiguous(door: &Doorway, name: &str) -> Ambiguous {
    match find(door, name).await {
        Err(Error::Ambiguous(ambiguous)) => ambiguous,
        other => panic!("it is not refused: {other:?}"),
    }
}

/// Leaves a call in doubt.
async fn doubt(door: &Doorway, call: &Call) -> Key {
    let (identity, _ticket, permit) = run(door, call).await;
    permit.unknown("connection reset").await.expect("taken");
    identity.key
}

#[tokio::test]
async fn one_of_a_name_is_found_by_either() {
    for bed in [memory(), sqlite()] {
        let door = start(&bed).await;
        let settled = complete(&door, &of("ann", "order-7")).await.key;
        let doubted = doubt(&door, &of("ann", "order-8")).await;
        // Its key has the digest of what the client said.
        let long = "o".repeat(250);
        let hidden = complete(&door, &of("ann", &long)).await.key;
        for (name, key) in [
            ("order-7", &settled),
            ("order-8", &doubted),
            (&long, &hidden),
        ] {
            assert_eq!(found(&door, name).await.as_ref(), Some(key));
            assert_eq!(found(&door, key.as_str()).await.as_ref(), Some(key));
        }
        assert_eq!(found(&door, "order-").await, None);
        let wall = Namespace::new("other").expect("a valid namespace");
        let other = door.engine().find(&wall, "order-7").await;
        assert!(matches!(other, Ok(None)), "{other:?}");
    }
}

#[tokio::test]
async fn an_exact_key_wins_over_what_clients_say() {
    for bed in [memory(), sqlite()] {
        let door = start(&bed).await;
        complete(&door, &of("ann", "any")).await;
        let own = door
            .engine()
            .submit(request(), semel::Queueing::nobody())
            .await;
        let own = own.expect("it is taken").key;
        assert_eq!(found(&door, "any").await, Some(own));
    }
}

/// Also where only one of them could be acted on: another may be meant.
#[tokio::test]
async fn several_of_a_name_are_refused_whatever_their_states() {
    for bed in [memory(), sqlite()] {
        let door = start(&bed).await;
        let ann = complete(&door, &of("ann", "order-7")).await.key;
        let bob = doubt(&door, &of("bob", "order-7")).await;
        let two = ambiguous(&door, "order-7").await;
        let states = [(bob, StateKind::Doubtful), (ann, StateKind::Succeeded)];
        assert_eq!((two.namesakes.as_slice(), two.more), (&states[..], false));
        let error = Error::Ambiguous(two);
        assert_eq!((error.code(), error.retryable()), ("invalid_input", false));
        for n in 0..5 {
            complete(&door, &of(&format!("caller-{n}"), "order-7")).await;
        }
        let many = ambiguous(&door, "order-7").await;
        assert_eq!((many.namesakes.len(), many.more), (5, true));
    }
}

#[tokio::test]
async fn what_nobody_may_see_is_not_there_and_does_not_count() {
    let door = start(&memory()).await;
    let ann = complete(&door, &of("ann", "order-7")).await.key;
    let bob = complete(&door, &of("bob", "order-7")).await.key;
    let namespace = Namespace::default();
    for (name, expected) in [("order-7", Some(&ann)), (bob.as_str(), None)] {
        let is_seen = |record: &Record| {
            let spec = record.operation().map(|operation| &operation.spec);
            spec.is_some_and(|spec| spec.key == ann)
        };
        let found = door.engine().find_among(&namespace, name, is_seen).await;
        let found = found.expect("the others are not there");
        assert_eq!(found.map(|named| named.key).as_ref(), expected);
    }
}

#[tokio::test]
async fn a_name_that_is_no_key_is_refused_as_one_when_no_client_uses_it() {
    let door = start(&memory()).await;
    let named = complete(&door, &of("ann", "Bestellung für Änne")).await.key;
    assert_eq!(found(&door, "Bestellung für Änne").await, Some(named));
    for wrong in ["", "Grüße", "a\tb", &"a".repeat(2_000)] {
        let refused = find(&door, wrong).await;
        assert!(matches!(refused, Err(Error::InvalidKey(_))), "{refused:?}");
    }
}
