use std::sync::Arc;

use proptest::prelude::*;

use super::world::outcome;
use super::*;
use crate::Effect;
use crate::ledger::{Fence, Operation, Record, Settled, Spec, State, Stub, Tombstone, Version};
use crate::policy::{Class, Policy};
use crate::text::Namespace;

fn spec(key: Key, occurrence: u32) -> Spec {
    Spec {
        namespace: Namespace::default(),
        key,
        client_key: None,
        name: Label::new("pay").unwrap(),
        fingerprint: fingerprint(),
        policy: Policy::direct(Class::Unsafe),
        door: None,
        principal: None,
        parent: None,
        occurrence,
        probe_digest: None,
    }
}

fn operation(spec: Spec, state: State, delivery: Delivery, created_at: Timestamp) -> Operation {
    Operation {
        task: None,
        spec: Arc::new(spec),
        version: Version(2),
        fence: Fence(1),
        created_at,
        state,
        attempt: 1,
        rejected: false,
        attempts: vec![],
        forgotten_open: None,
        queue: None,
        run_at: None,
        delivery,
        resolved: None,
        last_order: None,
    }
}

fn state(kind: StateKind, at: Timestamp) -> State {
    let settled = Settled {
        outcome: outcome(),
        at,
    };
    match kind {
        StateKind::Pending => State::Pending,
        StateKind::Running => State::Running { evidence: None },
        StateKind::Doubtful => State::Doubtful,
        StateKind::Dead => State::Dead,
        StateKind::Failed => State::Failed(settled),
        StateKind::Succeeded => State::Succeeded(settled),
        StateKind::Tombstone | StateKind::Stub | StateKind::Breaker(_) => {
            unreachable!("not a living operation's")
        }
    }
}

/// A record of the `n`th occurrence that last moved at some time.
fn record(n: u32, kind: StateKind, delivery: Delivery, at: Timestamp) -> Record {
    match kind {
        StateKind::Tombstone => Record::Tombstone(tombstone(n, delivery, at, DAY)),
        StateKind::Breaker(_) => unreachable!("a breaker is no operation"),
        StateKind::Stub => Record::Stub(Stub {
            key_hash: crate::KeyHash::of(&Namespace::default(), &nth(n)),
            fence: Fence(1),
            version: Version(2),
            since: at,
        }),
        StateKind::Pending
        | StateKind::Running
        | StateKind::Succeeded
        | StateKind::Failed
        | StateKind::Doubtful
        | StateKind::Dead => {
            Record::Operation(operation(spec(nth(n), n), state(kind, at), delivery, at))
        }
    }
}

fn tombstone(n: u32, delivery: Delivery, settled_at: Timestamp, age: Duration) -> Tombstone {
    Tombstone {
        namespace: Namespace::default(),
        key: nth(n),
        fingerprint: fingerprint(),
        ok: true,
        effect: Effect::Created,
        settled_at,
        buried_at: settled_at.plus(age),
        fence: Fence(1),
        version: Version(3),
        delivery,
        occurrence: n,
    }
}

/// Fixed for ever: a change here loses sight of what the indexes hold.
#[test]
fn kin_are_fixed_for_ever() {
    let call = call(InFlight::Join);
    let of = |namespace: &str| Kin::of(&Namespace::new(namespace).unwrap(), &call);
    assert_eq!(of("default"), Kin(0x5015_e6b8_e393_de4c));
    assert_eq!(of("team-1"), Kin(0x4c3d_1a04_14c4_9dcc));
}

#[test]
fn a_call_and_its_operations_are_kin_and_nothing_else_is() {
    let call = call(InFlight::Join);
    let kin = Kin::of(&Namespace::default(), &call);
    let of = |spec: Spec| {
        let running = State::Running { evidence: None };
        let operation = operation(spec, running, Delivery::Unknown, NOW);
        Kin::counting(&Record::Operation(operation))
    };
    for key in [nth(1), nth(2), key_of_id("toolu_1")] {
        assert_eq!(of(spec(key, 1)), Some(kin));
    }
    let elsewhere = Spec {
        namespace: Namespace::new("elsewhere").unwrap(),
        ..spec(nth(1), 1)
    };
    let name = Label::new("refund").unwrap();
    let otherwise = Spec {
        fingerprint: Fingerprint::of(&name, Input::None).unwrap(),
        ..spec(nth(1), 1)
    };
    let anonymous = Scope {
        principal: None,
        ..scope()
    };
    let print = ClientKey::Fingerprint(fingerprint());
    let stranger = spec(ledger_key(Door::Mcp, &anonymous, &print, 1), 1);
    let proxied = spec(ledger_key(Door::Proxy, &scope(), &print, 1), 1);
    for other in [elsewhere, otherwise, stranger, proxied] {
        assert!(of(other).is_some_and(|other| other != kin));
    }
    let given = [
        key_of(&ClientKey::Explicit(client("order-7")), 1),
        Key::new("order-7").unwrap(),
        Key::new("f1:0000").unwrap(),
        Key::new("mcp/call:x").unwrap(),
        Key::new("mcp/0c52a1d5f1e0b7a/call:x").unwrap(),
        Key::new("mcp/0C52A1D5F1E0B7A3/call:x").unwrap(),
        Key::new("smtp/0c52a1d5f1e0b7a3/call:x").unwrap(),
    ];
    for key in given {
        assert_eq!(of(spec(key, 1)), None);
    }
}

#[test]
fn what_may_have_to_be_asked_for_again_counts() {
    for delivery in DELIVERIES {
        let suspect = matches!(delivery, Delivery::Unknown | Delivery::Undelivered);
        for kind in StateKind::OPERATIONS {
            let counts = match kind {
                StateKind::Pending | StateKind::Running | StateKind::Doubtful => true,
                StateKind::Succeeded | StateKind::Failed | StateKind::Dead => suspect,
                StateKind::Tombstone | StateKind::Stub | StateKind::Breaker(_) => false,
            };
            let found = Kin::counting(&record(1, kind, delivery, NOW)).is_some();
            assert_eq!(found, counts, "{kind:?} {delivery:?}");
        }
        for (age, early) in [(WINDOW, true), (WINDOW + MINUTE, false)] {
            let buried = Record::Tombstone(tombstone(1, delivery, NOW, age));
            assert_eq!(Kin::counting(&buried).is_some(), suspect && early);
        }
    }
}

#[test]
fn an_index_hears_of_what_begins_to_count_and_what_ends_to() {
    let kin = Some(Kin::of(&Namespace::default(), &call(InFlight::Join)));
    let running = record(1, StateKind::Running, Delivery::Unknown, NOW);
    let lost = record(1, StateKind::Succeeded, Delivery::Undelivered, NOW);
    let over = record(1, StateKind::Succeeded, Delivery::Delivered, NOW);
    let stub = record(1, StateKind::Stub, Delivery::Unknown, NOW);
    let (enters, leaves) = (kin, kin);
    let nothing = KinChange::default();
    for (before, after, expected) in [
        (None, Some(&running), KinChange { enters, ..nothing }),
        (Some(&stub), Some(&running), KinChange { enters, ..nothing }),
        (Some(&over), Some(&running), KinChange { enters, ..nothing }),
        (Some(&running), Some(&lost), nothing),
        (Some(&running), Some(&over), KinChange { leaves, ..nothing }),
        (Some(&lost), Some(&stub), KinChange { leaves, ..nothing }),
        (Some(&lost), None, KinChange { leaves, ..nothing }),
        (Some(&over), Some(&stub), nothing),
        (Some(&stub), None, nothing),
        (None, None, nothing),
    ] {
        assert_eq!(KinChange::between(before, after), expected);
    }
    // A forgotten key may be used for something else.
    let name = Label::new("refund").unwrap();
    let fingerprint = Fingerprint::of(&name, Input::None).unwrap();
    let spec = Spec {
        fingerprint,
        ..spec(nth(1), 1)
    };
    let other = Record::Operation(operation(spec, State::Pending, Delivery::Unknown, NOW));
    let change = KinChange::between(Some(&lost), Some(&other));
    assert_eq!((change.enters, change.leaves), (Kin::counting(&other), kin));
}

#[test]
fn own_keys_name_a_call_or_its_kin_are_asked() {
    let keyless = call(InFlight::Join);
    let explicit = Call {
        explicit: Some(client("order-7")),
        ..keyless.clone()
    };
    let known = Prior {
        key: key_of_id("toolu_1"),
        ..prior(1, StateKind::Succeeded, Delivery::Delivered)
    };
    assert!(names(&explicit, &[]));
    assert!(!names(&keyless, std::slice::from_ref(&known)));
    assert!(names(
        &call_with_id("toolu_1"),
        std::slice::from_ref(&known)
    ));
    assert!(!names(&call_with_id("toolu_2"), &[known]));
    assert!(keyless.is_numbered() && keyless.numbered(3) == nth(3));
    assert!(!explicit.is_numbered() && !call_with_id("toolu_1").is_numbered());
}

#[test]
fn what_nobody_came_for_lapses_after_its_window() {
    let call = call(InFlight::Join);
    for kind in StateKind::OPERATIONS {
        for delivery in DELIVERIES {
            for (age, is_past) in [(WINDOW, false), (WINDOW + MINUTE, true)] {
                let prior = Prior {
                    last_seen: NOW.minus(age),
                    ..prior(1, kind, delivery)
                };
                let suspect = matches!(delivery, Delivery::Unknown | Delivery::Undelivered);
                let settled = SETTLED.contains(&kind) || kind == StateKind::Stub;
                let lapsed = settled && suspect && (is_past || kind == StateKind::Stub);
                assert_eq!(
                    has_lapsed(&call, &prior, NOW),
                    lapsed,
                    "{kind:?} {delivery:?}"
                );
                let waited_for = Prior {
                    waiting: true,
                    ..prior
                };
                assert!(kind == StateKind::Stub || !has_lapsed(&call, &waited_for, NOW));
            }
        }
    }
}

proptest! {
    /// What is not in the index changes nothing but the number, which a door looks up.
    #[test]
    fn those_that_count_and_the_last_number_tell_the_same_as_all_do(
        kinds in proptest::collection::vec((0..StateKind::OPERATIONS.len(), 0..4_usize, 0..30_u64), 0..6),
        distinct in any::<bool>(),
    ) {
        let records: Vec<Record> = kinds
            .iter()
            .zip(1..)
            .map(|((kind, delivery, minutes), n)| {
                let at = NOW.minus(MINUTE * u32::try_from(*minutes).unwrap());
                record(n, StateKind::OPERATIONS[*kind], DELIVERIES[*delivery], at)
            })
            // A tombstone's age is a day, so that it was settled then at the latest.
            .map(|record| match record {
                Record::Tombstone(tombstone) => Record::Tombstone(Tombstone {
                    settled_at: NOW.minus(DAY),
                    buried_at: NOW,
                    ..tombstone
                }),
                other @ (Record::Operation(_) | Record::Stub(_) | Record::Breaker(_)) => other,
            })
            .collect();
        let call = call(if distinct { InFlight::Distinct } else { InFlight::Join });
        let read = |record| Prior::of(record, NOW);
        let all: Vec<Prior> = records.iter().filter_map(read).collect();
        let mut some: Vec<Prior> = records
            .iter()
            .filter(|record| Kin::counting(record).is_some())
            .filter_map(read)
            .collect();
        some.extend(all.last().cloned());
        let (full, part) = (identify(&call, &all, NOW), identify(&call, &some, NOW));
        prop_assert_eq!(full, part);
    }
}
