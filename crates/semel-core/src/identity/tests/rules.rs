use super::world::{World, done, not_done};
use super::*;
use crate::ledger::{Fence, Record, Stub, Tombstone, Version};
use crate::text::Namespace;
use crate::verdict::Verdict;
use crate::{Digest, Effect, KeyHash};

const RETRY: Relation = Relation::Retry;
const REPEAT: Relation = Relation::IntendedRepeat;

/// Judges a call without a key after one earlier one.
fn after(prior: Prior, in_flight: InFlight) -> (Relation, u32) {
    let identity = identify(&call(in_flight), &[prior], NOW);
    assert_eq!(identity.key, nth(identity.occurrence));
    assert_eq!(identity.source, Source::Fingerprint);
    (identity.relation, identity.occurrence)
}

#[test]
fn a_call_without_priors_is_the_first() {
    for policy in POLICIES {
        assert_eq!(identify(&call(policy), &[], NOW), new(1, Relation::First));
    }
}

#[test]
fn a_settled_call_is_repeated_when_delivered_and_retried_when_not() {
    for state in SETTLED {
        for policy in POLICIES {
            for (delivery, expected) in [
                (Delivery::Delivered, (REPEAT, 2)),
                (Delivery::Undelivered, (RETRY, 1)),
                (Delivery::Unknown, (RETRY, 1)),
            ] {
                let acted = matches!(state, StateKind::Succeeded | StateKind::Tombstone);
                let expected = match (policy, expected) {
                    (InFlight::Challenge, (REPEAT, _)) if acted => (Relation::Challenged, 1),
                    (_, expected) => expected,
                };
                let answer = after(prior(1, state, delivery), policy);
                assert_eq!(answer, expected, "{state:?} {delivery:?} {policy:?}");
            }
        }
    }
}

#[test]
fn an_effect_of_late_is_asked_about_until_its_caller_wants_another() {
    let asked = call(InFlight::Challenge);
    let first = prior(1, StateKind::Succeeded, Delivery::Delivered);
    let second = prior(2, StateKind::Succeeded, Delivery::Delivered);
    let known = [first.clone(), second.clone()];
    assert_eq!(identify(&asked, &known, NOW), new(2, Relation::Challenged));
    // Only the last one answers for all of them.
    for (named, expected) in [
        (&first.key, new(2, Relation::Challenged)),
        (&second.key, new(3, REPEAT)),
    ] {
        let again = Call {
            repeat_of: Some(named.clone()),
            ..asked.clone()
        };
        assert_eq!(identify(&again, &known, NOW), expected);
    }
    // A harness's id does not hide it, and a failure after it is tried again.
    let by_harness = Call {
        call_id: Some(client("toolu_9")),
        ..asked.clone()
    };
    assert_eq!(
        identify(&by_harness, &known, NOW),
        new(2, Relation::Challenged)
    );
    let failed = prior(1, StateKind::Failed, Delivery::Delivered);
    assert_eq!(identify(&by_harness, &[failed], NOW), new(2, REPEAT));
    for (age, expected) in [
        (CHALLENGE_WINDOW, Relation::Challenged),
        (CHALLENGE_WINDOW + Duration::from_micros(1), REPEAT),
    ] {
        let old = Prior {
            last_seen: NOW.minus(age),
            ..first.clone()
        };
        assert_eq!(identify(&asked, &[old], NOW).relation, expected);
    }
}

#[test]
fn suspects_count_for_15_minutes_and_for_5_without_a_conversation() {
    let with = call(InFlight::Join);
    let mut without = with.clone();
    without.scope.conversation = None;
    for (call, window) in [(&with, 15 * MINUTE), (&without, 5 * MINUTE)] {
        for delivery in [Delivery::Undelivered, Delivery::Unknown] {
            for (age, expected) in [
                (Duration::ZERO, RETRY),
                (window, RETRY),
                (window + Duration::from_micros(1), REPEAT),
                (400 * DAY, REPEAT),
            ] {
                let suspect = Prior {
                    key: call.key(&ClientKey::Fingerprint(call.fingerprint), 1),
                    last_seen: NOW.minus(age),
                    ..prior(1, StateKind::Succeeded, delivery)
                };
                let identity = identify(call, &[suspect], NOW);
                assert_eq!(identity.relation, expected, "{window:?} {age:?}");
            }
        }
    }
    // A clock that went back makes nothing older.
    let ahead = Prior {
        last_seen: NOW.plus(DAY),
        ..prior(1, StateKind::Succeeded, Delivery::Unknown)
    };
    assert_eq!(identify(&with, &[ahead], NOW), new(1, RETRY));
}

#[test]
fn a_doubt_is_retried_for_ever() {
    for delivery in DELIVERIES {
        for policy in POLICIES {
            for waiting in [false, true] {
                let doubt = Prior {
                    last_seen: NOW.minus(400 * DAY),
                    waiting,
                    ..prior(1, StateKind::Doubtful, delivery)
                };
                assert_eq!(after(doubt, policy), (RETRY, 1));
            }
        }
    }
}

#[test]
fn a_doubt_that_its_caller_knows_as_a_failure_is_over_once_delivered() {
    for (delivery, expected) in [
        (Delivery::Delivered, (REPEAT, 2)),
        (Delivery::Unknown, (RETRY, 1)),
        (Delivery::Undelivered, (RETRY, 1)),
    ] {
        let told = Prior {
            failure_told: true,
            ..prior(1, StateKind::Doubtful, delivery)
        };
        assert_eq!(after(told, InFlight::Distinct), expected, "{delivery:?}");
    }
}

#[test]
fn beside_a_call_in_flight_the_door_decides() {
    for (policy, waiting, expected) in [
        (InFlight::Distinct, true, (REPEAT, 2)),
        (InFlight::Join, true, (Relation::Joined, 1)),
        (InFlight::Challenge, true, (Relation::Challenged, 1)),
        // Its caller is not seen from here: it may have crashed, so nothing runs beside it.
        (InFlight::Distinct, false, (Relation::Joined, 1)),
        (InFlight::Join, false, (Relation::Joined, 1)),
        (InFlight::Challenge, false, (Relation::Challenged, 1)),
    ] {
        // A mark of delivery belongs to an answer before this attempt.
        for delivery in [Delivery::Unknown, Delivery::Delivered] {
            let running = Prior {
                waiting,
                last_seen: NOW.minus(DAY),
                ..prior(1, StateKind::Running, delivery)
            };
            assert_eq!(after(running, policy), expected, "{policy:?} {waiting}");
        }
    }
}

#[test]
fn a_call_in_flight_whose_caller_left_is_joined_by_its_retry() {
    for policy in POLICIES {
        // The second call that had joined it still waits, and does not hide the one that left.
        for waiting in [false, true] {
            let abandoned = Prior {
                waiting,
                last_seen: NOW.minus(DAY),
                ..prior(1, StateKind::Running, Delivery::Undelivered)
            };
            assert_eq!(after(abandoned, policy), (RETRY, 1), "{policy:?}");
        }
    }
}

#[test]
fn an_outcome_that_is_being_told_is_still_in_flight() {
    for state in SETTLED {
        for (policy, expected) in [
            (InFlight::Distinct, (REPEAT, 2)),
            (InFlight::Join, (Relation::Joined, 1)),
            (InFlight::Challenge, (Relation::Challenged, 1)),
        ] {
            let telling = Prior {
                waiting: true,
                last_seen: NOW.minus(DAY),
                ..prior(1, state, Delivery::Unknown)
            };
            assert_eq!(after(telling, policy), expected, "{state:?} {policy:?}");
        }
        let left = Prior {
            waiting: true,
            last_seen: NOW.minus(DAY),
            ..prior(1, state, Delivery::Undelivered)
        };
        assert_eq!(after(left, InFlight::Distinct), (RETRY, 1));
    }
}

#[test]
fn what_was_not_applied_is_carried_out_by_the_next_call() {
    for delivery in DELIVERIES {
        for policy in POLICIES {
            let refused = Prior {
                last_seen: NOW.minus(DAY),
                ..prior(1, StateKind::Pending, delivery)
            };
            assert_eq!(after(refused, policy), (RETRY, 1));
        }
    }
    let waiting = Prior {
        waiting: true,
        ..prior(1, StateKind::Pending, Delivery::Unknown)
    };
    assert_eq!(after(waiting, InFlight::Distinct), (REPEAT, 2));
}

#[test]
fn a_forgotten_operation_is_no_call() {
    let stub = prior(1, StateKind::Stub, Delivery::Unknown);
    assert_eq!(after(stub.clone(), InFlight::Join), (Relation::First, 1));
    let known = [
        prior(1, StateKind::Succeeded, Delivery::Delivered),
        Prior {
            key: nth(2),
            occurrence: 2,
            ..stub
        },
    ];
    assert_eq!(identify(&call(InFlight::Join), &known, NOW), new(2, REPEAT));
}

#[test]
fn the_next_number_follows_the_highest_known_one() {
    let delivered = |n| prior(n, StateKind::Succeeded, Delivery::Delivered);
    let call = call(InFlight::Join);
    assert_eq!(
        identify(&call, &[delivered(7), delivered(3)], NOW),
        new(8, REPEAT)
    );
    // The end of the numbers meets an old operation rather than starting over.
    let last = identify(&call, &[delivered(u32::MAX)], NOW);
    assert_eq!(last, new(u32::MAX, REPEAT));
    let unnumbered = Prior {
        occurrence: 0,
        ..delivered(1)
    };
    assert_eq!(identify(&call, &[unnumbered], NOW), new(2, REPEAT));
}

#[test]
fn the_prior_that_is_least_surely_over_decides() {
    let over = prior(1, StateKind::Succeeded, Delivery::Delivered);
    let unapplied = prior(2, StateKind::Pending, Delivery::Delivered);
    let waiting = Prior {
        waiting: true,
        ..prior(3, StateKind::Running, Delivery::Unknown)
    };
    let unseen = prior(4, StateKind::Running, Delivery::Unknown);
    let doubt = prior(5, StateKind::Doubtful, Delivery::Delivered);
    let lost = prior(6, StateKind::Failed, Delivery::Undelivered);
    let later = prior(7, StateKind::Succeeded, Delivery::Unknown);
    let mut known = vec![later, lost, doubt, unseen, waiting, unapplied, over];
    for expected in [
        new(6, RETRY),
        new(7, RETRY),
        new(5, RETRY),
        new(4, Relation::Joined),
        new(3, Relation::Joined),
        new(2, RETRY),
        new(2, REPEAT),
    ] {
        for _ in 0..known.len() {
            known.rotate_left(1);
            assert_eq!(identify(&call(InFlight::Join), &known, NOW), expected);
        }
        known.retain(|prior| prior.key != expected.key);
    }
}

#[test]
fn another_scope_fingerprint_or_given_key_is_never_joined() {
    let own = prior(1, StateKind::Doubtful, Delivery::Undelivered);
    let with_key = |key: Key| Prior { key, ..own.clone() };
    let base = ClientKey::Fingerprint(fingerprint());
    let other = |change: fn(&mut Scope)| {
        let mut scope = scope();
        change(&mut scope);
        with_key(ledger_key(Door::Mcp, &scope, &base, 1))
    };
    let business = BusinessKey::of(
        &Label::new("pay").unwrap(),
        &[Pointer::new("/amount").unwrap()],
        br#"{"amount":100}"#,
    );
    let strangers = [
        other(|scope| scope.principal = Some("bob".to_owned())),
        other(|scope| scope.principal = None),
        other(|scope| scope.target.push('/')),
        other(|scope| scope.conversation = Some("chat-2".to_owned())),
        other(|scope| scope.conversation = None),
        with_key(ledger_key(Door::Proxy, &scope(), &base, 1)),
        with_key(key_of(&ClientKey::Explicit(client("order-7")), 1)),
        with_key(key_of(&ClientKey::Business(business.unwrap().unwrap()), 1)),
        Prior {
            fingerprint: Fingerprint(Digest([7; 32])),
            ..own.clone()
        },
    ];
    for stranger in &strangers {
        let known = std::slice::from_ref(stranger);
        let identity = identify(&call(InFlight::Join), known, NOW);
        assert_eq!(identity, new(1, Relation::First), "{stranger:?}");
    }
    assert_eq!(identify(&call(InFlight::Join), &[own], NOW), new(1, RETRY));
}

#[test]
fn an_explicit_key_is_the_identity_whatever_else_is_known() {
    let mut call = call_with_id("toolu_1");
    call.explicit = Some(client("order-7"));
    let key = key_of(&ClientKey::Explicit(client("order-7")), 1);
    let named = |relation| Identity {
        key: key.clone(),
        occurrence: 1,
        relation,
        source: Source::Explicit,
    };
    let suspect = prior(1, StateKind::Doubtful, Delivery::Undelivered);
    let same_id = Prior {
        key: key_of_id("toolu_1"),
        ..suspect.clone()
    };
    let strangers = [suspect.clone(), same_id];
    assert_eq!(identify(&call, &strangers, NOW), named(Relation::First));
    for state in StateKind::OPERATIONS {
        for delivery in DELIVERIES {
            let own = Prior {
                key: key.clone(),
                // The ledger refuses it as `key_reused`; here it is the same key all the same.
                fingerprint: Fingerprint(Digest([7; 32])),
                last_seen: NOW.minus(400 * DAY),
                ..prior(1, state, delivery)
            };
            let relation = match state {
                StateKind::Stub | StateKind::Breaker(_) => Relation::First,
                StateKind::Pending
                | StateKind::Running
                | StateKind::Succeeded
                | StateKind::Failed
                | StateKind::Doubtful
                | StateKind::Dead
                | StateKind::Tombstone => RETRY,
            };
            assert_eq!(
                identify(&call, &[own, suspect.clone()], NOW),
                named(relation)
            );
        }
    }
}

#[test]
fn a_business_key_is_the_identity_however_often_the_call_id_changes() {
    let business = BusinessKey::of(
        &Label::new("pay").unwrap(),
        &[Pointer::new("/amount").unwrap()],
        br#"{"amount":100}"#,
    );
    let business = business.unwrap().unwrap();
    let key = key_of(&ClientKey::Business(business.clone()), 1);
    let call = |id: &str| Call {
        business: Some(business.clone()),
        ..call_with_id(id)
    };
    let first = identify(&call("toolu_1"), &[], NOW);
    assert_eq!((&first.key, first.relation), (&key, Relation::First));
    assert_eq!(first.source, Source::Business);
    let delivered = Prior {
        key: key.clone(),
        last_seen: NOW.minus(DAY),
        ..prior(1, StateKind::Succeeded, Delivery::Delivered)
    };
    let again = identify(&call("toolu_2"), &[delivered], NOW);
    assert_eq!((again.key, again.relation), (key, RETRY));
}

#[test]
fn a_known_call_id_is_its_operation_even_after_delivery_and_a_year() {
    for state in SETTLED {
        for delivery in DELIVERIES {
            let own = Prior {
                key: key_of_id("toolu_1"),
                last_seen: NOW.minus(365 * DAY),
                ..prior(1, state, delivery)
            };
            let identity = identify(&call_with_id("toolu_1"), &[own], NOW);
            assert_eq!(identity.key, key_of_id("toolu_1"));
            assert_eq!(
                (identity.relation, identity.source),
                (RETRY, Source::CallId)
            );
        }
    }
}

#[test]
fn a_call_id_is_known_by_its_own_key_first_and_in_its_own_scope_only() {
    let beside = Prior {
        key: key_of_id("toolu_0"),
        call_ids: vec![client("toolu_1")],
        ..prior(1, StateKind::Succeeded, Delivery::Delivered)
    };
    let own = Prior {
        key: key_of_id("toolu_1"),
        ..prior(1, StateKind::Succeeded, Delivery::Delivered)
    };
    for known in [[beside.clone(), own.clone()], [own, beside.clone()]] {
        let identity = identify(&call_with_id("toolu_1"), &known, NOW);
        assert_eq!(identity.key, key_of_id("toolu_1"));
    }
    let mut elsewhere = call_with_id("toolu_1");
    elsewhere.scope.conversation = Some("chat-2".to_owned());
    let identity = identify(&elsewhere, &[beside], NOW);
    assert_eq!(identity.relation, Relation::First);
}

#[test]
fn a_new_call_id_proves_nothing() {
    // The answer of `toolu_1` never arrived; its model asks again and gets a new id.
    let lost = Prior {
        key: key_of_id("toolu_1"),
        ..prior(1, StateKind::Succeeded, Delivery::Undelivered)
    };
    let retry = identify(&call_with_id("toolu_2"), std::slice::from_ref(&lost), NOW);
    assert_eq!((retry.key, retry.relation), (key_of_id("toolu_1"), RETRY));
    assert_eq!(retry.source, Source::Fingerprint);

    // It is delivered now: a third id is a new wish, under its own key.
    let delivered = Prior {
        delivery: Delivery::Delivered,
        call_ids: vec![client("toolu_2")],
        ..lost
    };
    let known = [delivered];
    let repeat = identify(&call_with_id("toolu_3"), &known, NOW);
    assert_eq!(
        (repeat.key, repeat.relation),
        (key_of_id("toolu_3"), REPEAT)
    );
    assert_eq!((repeat.occurrence, repeat.source), (1, Source::CallId));

    // And the second id is known by now, although it names no key.
    let harness = identify(&call_with_id("toolu_2"), &known, NOW);
    assert_eq!(
        (harness.key, harness.relation),
        (key_of_id("toolu_1"), RETRY)
    );
    assert_eq!(harness.source, Source::CallId);
}

#[test]
fn calls_with_and_without_ids_see_each_other() {
    let by_id = Prior {
        key: key_of_id("toolu_1"),
        ..prior(1, StateKind::Running, Delivery::Undelivered)
    };
    let identity = identify(&call(InFlight::Distinct), std::slice::from_ref(&by_id), NOW);
    assert_eq!(
        (identity.key, identity.relation),
        (key_of_id("toolu_1"), RETRY)
    );
    let over = Prior {
        state: StateKind::Succeeded,
        delivery: Delivery::Delivered,
        ..by_id
    };
    // Numbers are those of the fingerprint's own keys.
    assert_eq!(
        identify(&call(InFlight::Join), &[over], NOW),
        new(1, REPEAT)
    );
    let lost = prior(3, StateKind::Succeeded, Delivery::Unknown);
    let identity = identify(&call_with_id("toolu_1"), &[lost], NOW);
    assert_eq!((identity.key, identity.relation), (nth(3), RETRY));
}

#[test]
fn two_ids_in_flight_are_joined_or_not_as_the_door_says() {
    let first = Prior {
        key: key_of_id("toolu_1"),
        waiting: true,
        ..prior(1, StateKind::Running, Delivery::Unknown)
    };
    for (policy, key, relation) in [
        (InFlight::Distinct, key_of_id("toolu_2"), REPEAT),
        (InFlight::Join, key_of_id("toolu_1"), Relation::Joined),
        (
            InFlight::Challenge,
            key_of_id("toolu_1"),
            Relation::Challenged,
        ),
    ] {
        let second = Call {
            in_flight: policy,
            ..call_with_id("toolu_2")
        };
        let identity = identify(&second, std::slice::from_ref(&first), NOW);
        assert_eq!((identity.key, identity.relation), (key, relation));
    }
}

#[test]
fn a_caller_that_was_told_may_ask_for_a_second_but_not_past_a_doubt() {
    let asking = Call {
        repeat_of: Some(nth(1)),
        ..call(InFlight::Join)
    };
    let waiting = Prior {
        waiting: true,
        ..prior(1, StateKind::Running, Delivery::Unknown)
    };
    for (first, expected) in [
        (waiting.clone(), new(2, REPEAT)),
        (
            prior(1, StateKind::Running, Delivery::Unknown),
            new(2, REPEAT),
        ),
        (
            prior(1, StateKind::Running, Delivery::Undelivered),
            new(2, REPEAT),
        ),
        (
            prior(1, StateKind::Succeeded, Delivery::Unknown),
            new(2, REPEAT),
        ),
        (
            prior(1, StateKind::Succeeded, Delivery::Delivered),
            new(2, REPEAT),
        ),
        (
            prior(1, StateKind::Doubtful, Delivery::Delivered),
            new(1, RETRY),
        ),
        (
            prior(1, StateKind::Pending, Delivery::Delivered),
            new(1, RETRY),
        ),
    ] {
        assert_eq!(identify(&asking, &[first], NOW), expected);
    }
    // The answer to that second was lost: asking again in the same words is its retry.
    let second = prior(2, StateKind::Succeeded, Delivery::Undelivered);
    assert_eq!(identify(&asking, &[waiting, second], NOW), new(2, RETRY));
    // A name that nothing has changes nothing.
    let lost = prior(2, StateKind::Succeeded, Delivery::Undelivered);
    assert_eq!(identify(&asking, &[lost], NOW), new(2, RETRY));
}

#[test]
fn doors_have_their_own_ways_beside_a_call_in_flight() {
    assert_eq!(Door::Proxy.in_flight(), InFlight::Distinct);
    assert_eq!(Door::Mcp.in_flight(), InFlight::Join);
    assert_eq!(Door::Inbox.in_flight(), InFlight::Join);
}

#[test]
fn a_door_loads_what_is_stored_under_each_key_that_could_be_the_calls_own() {
    let mut call = call_with_id("toolu_1");
    call.explicit = Some(client("order-7"));
    let keys = call.own_keys();
    let explicit = key_of(&ClientKey::Explicit(client("order-7")), 1);
    assert_eq!(keys, [explicit, key_of_id("toolu_1")]);
    assert!(super::call(InFlight::Join).own_keys().is_empty());
}

fn record(state: StateKind) -> Record {
    let mut world = World::new();
    let held = world.call(&call(InFlight::Join));
    match state {
        StateKind::Running => {}
        StateKind::Succeeded => world.settle(&held, done()),
        StateKind::Pending => world.settle(&held, not_done()),
        StateKind::Doubtful => world.settle(&held, Verdict::Unknown { error: None }),
        StateKind::Failed
        | StateKind::Dead
        | StateKind::Tombstone
        | StateKind::Stub
        | StateKind::Breaker(_) => {
            unreachable!("not made here")
        }
    }
    world.record(&held).clone()
}

#[test]
fn records_are_read_as_they_stand_now() {
    // Begun at `NOW`; settled, where it is, half a minute later.
    for (state, expected, moved) in [
        (StateKind::Running, StateKind::Running, NOW),
        (
            StateKind::Succeeded,
            StateKind::Succeeded,
            NOW.plus(MINUTE / 2),
        ),
        (StateKind::Pending, StateKind::Pending, NOW.plus(MINUTE / 2)),
        (
            StateKind::Doubtful,
            StateKind::Doubtful,
            NOW.plus(MINUTE / 2),
        ),
    ] {
        let prior = Prior::of(&record(state), NOW.plus(MINUTE / 2)).unwrap();
        assert_eq!(
            (prior.state, prior.last_seen),
            (expected, moved),
            "{state:?}"
        );
        assert_eq!((prior.key, prior.occurrence), (nth(1), 1));
        assert_eq!(prior.fingerprint, fingerprint());
        assert_eq!((prior.delivery, prior.waiting), (Delivery::Unknown, false));
    }
    // Its lease has ended: written or not, that is a doubt.
    let lapsed = Prior::of(&record(StateKind::Running), NOW.plus(DAY)).unwrap();
    assert_eq!(lapsed.state, StateKind::Doubtful);
}

#[test]
fn a_tombstone_remembers_its_call_and_a_stub_does_not() {
    let tombstone = Record::Tombstone(Tombstone {
        namespace: Namespace::default(),
        key: nth(3),
        fingerprint: fingerprint(),
        ok: true,
        effect: Effect::Created,
        settled_at: NOW.minus(40 * DAY),
        buried_at: NOW.minus(DAY),
        fence: Fence(1),
        version: Version(3),
        delivery: Delivery::Delivered,
        occurrence: 3,
    });
    let read = Prior::of(&tombstone, NOW).unwrap();
    let expected = Prior {
        last_seen: NOW.minus(40 * DAY),
        ..prior(3, StateKind::Tombstone, Delivery::Delivered)
    };
    assert_eq!(read, expected);
    let stub = Record::Stub(Stub {
        key_hash: KeyHash::of(&Namespace::default(), &nth(1)),
        fence: Fence(1),
        version: Version(3),
        since: NOW,
    });
    assert_eq!(Prior::of(&stub, NOW), None);
}
