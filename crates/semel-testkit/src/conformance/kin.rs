//! The index of kin: what may have to be asked for again is found, and nothing else is.

use std::sync::Arc;

use semel::store::{KIN_MAX, Place, Store};
use semel_core::identity::{Call, ClientKey, ClientText, Door, InFlight, Kin, Scope, ledger_key};
use semel_core::ledger::{Command, Delivery, Horizon, Order, Spec};
use semel_core::{Label, Namespace, Verdict};
use tokio::task::JoinSet;

use super::hand::{AFTER_LEASE, Asked, begin, complete, done, hash, settle, spec, stored};
use super::{Bed, cases};

cases![
    behaviour: [
        what_begins_is_found_by_its_kin,
        what_was_delivered_is_found_no_more,
        a_mark_that_is_taken_back_is_found_again,
        a_doubt_is_found_whatever_its_mark,
        what_was_forgotten_is_found_no_more_and_begins_anew,
        kin_of_one_call_are_found_in_their_order,
        other_kin_are_not_found,
        keys_that_a_caller_gave_have_no_kin,
        no_more_are_read_than_can_be_judged,
        a_crowd_on_one_kin_is_found_to_the_last,
        another_handle_finds_them_at_once,
    ],
    storage: [
        what_was_buried_is_found_no_more,
        a_change_that_lost_its_race_indexes_nothing,
    ],
];

fn call() -> Call {
    Call {
        door: Door::Mcp,
        scope: Scope {
            principal: None,
            target: "everything".to_owned(),
            conversation: None,
        },
        explicit: None,
        call_id: None,
        business: None,
        fingerprint: spec("any").fingerprint,
        in_flight: InFlight::Join,
        repeat_of: None,
    }
}

/// The operation of this call that has this number.
fn nth(n: u32) -> Spec {
    Spec {
        occurrence: n,
        ..spec(call().numbered(n).as_str())
    }
}

async fn found(store: &dyn Store) -> Vec<Place> {
    let kin = Kin::of(&Namespace::default(), &call());
    let found = store.kin(kin).await.expect("it reads");
    for stored in &found {
        assert_eq!(Kin::counting(&stored.record), Some(kin));
    }
    found.into_iter().map(|stored| stored.place).collect()
}

async fn mark(store: &dyn Store, spec: &Spec, delivery: Delivery) {
    let asked = Asked::new(hash(spec), Command::Deliver(delivery));
    let applied = asked.apply(store, None).await.expect("it is marked");
    assert!(applied.wrote);
}

async fn forget(store: &dyn Store, spec: &Spec) {
    let record = store.load(&hash(spec)).await.expect("it loads");
    let order = Order {
        version: stored(&record).record.version(),
        by: Label::new("ann").expect("a valid name"),
        note: None,
    };
    let asked = Asked::new(hash(spec), Command::Forget(order));
    assert!(asked.apply(store, None).await.expect("forgotten").wrote);
}

async fn what_begins_is_found_by_its_kin(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    assert_eq!(found(&*store).await, []);
    let begun = begin(&nth(1), 1).apply(&*store, None).await.expect("begun");
    assert_eq!(found(&*store).await, [begun.place()]);
    let settled = done(&nth(1), 1, 1, b"x").apply(&*store, None).await;
    assert!(settled.expect("settled").wrote);
    // Nobody knows yet whether its caller has the answer.
    assert_eq!(found(&*store).await, [begun.place()]);
}

async fn what_was_delivered_is_found_no_more(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    complete(&*store, &nth(1), b"x").await;
    mark(&*store, &nth(1), Delivery::Delivered).await;
    assert_eq!(found(&*store).await, []);
    let lapsed = complete(&*store, &nth(2), b"x").await;
    assert_eq!(found(&*store).await, [lapsed.place]);
    mark(&*store, &nth(2), Delivery::Lapsed).await;
    assert_eq!(found(&*store).await, []);
}

async fn a_mark_that_is_taken_back_is_found_again(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let settled = complete(&*store, &nth(1), b"x").await;
    for _ in 0..2 {
        mark(&*store, &nth(1), Delivery::Delivered).await;
        assert_eq!(found(&*store).await, []);
        mark(&*store, &nth(1), Delivery::Undelivered).await;
        assert_eq!(found(&*store).await, [settled.place]);
    }
}

async fn a_doubt_is_found_whatever_its_mark(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let begun = begin(&nth(1), 1).apply(&*store, None).await.expect("begun");
    let unknown = settle(&nth(1), 1, 1, Verdict::Unknown { error: None });
    assert!(unknown.apply(&*store, None).await.expect("a doubt").wrote);
    for delivery in [Delivery::Delivered, Delivery::Undelivered, Delivery::Lapsed] {
        mark(&*store, &nth(1), delivery).await;
        assert_eq!(found(&*store).await, [begun.place()]);
    }
}

async fn what_was_forgotten_is_found_no_more_and_begins_anew(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    complete(&*store, &nth(1), b"x").await;
    forget(&*store, &nth(1)).await;
    assert_eq!(found(&*store).await, []);
    let again = begin(&nth(1), 2).apply(&*store, None).await.expect("begun");
    assert_eq!(found(&*store).await, [again.place()]);
}

async fn kin_of_one_call_are_found_in_their_order(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut places = vec![];
    for n in [3, 1, 2] {
        places.push(complete(&*store, &nth(n), b"x").await.place);
    }
    let id = ClientText::new("toolu_1").expect("a valid id");
    let call = call();
    let named = ledger_key(call.door, &call.scope, &ClientKey::CallId(id), 1);
    places.push(complete(&*store, &spec(named.as_str()), b"x").await.place);
    assert_eq!(found(&*store).await, places);
}

async fn other_kin_are_not_found(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let call = call();
    let scope = Scope {
        principal: Some("ann".to_owned()),
        ..call.scope
    };
    let print = ClientKey::Fingerprint(call.fingerprint);
    let stranger = ledger_key(call.door, &scope, &print, 1);
    complete(&*store, &spec(stranger.as_str()), b"x").await;
    assert_eq!(found(&*store).await, []);
}

async fn keys_that_a_caller_gave_have_no_kin(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let call = call();
    let text = ClientText::new("order-7").expect("a valid key");
    let given = ledger_key(call.door, &call.scope, &ClientKey::Explicit(text), 1);
    complete(&*store, &spec(given.as_str()), b"x").await;
    complete(&*store, &spec("order-7"), b"x").await;
    assert_eq!(found(&*store).await, []);
}

async fn no_more_are_read_than_can_be_judged(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut places = vec![];
    for n in 1..=u32::from(KIN_MAX) + 3 {
        let begun = begin(&nth(n), 1).apply(&*store, None).await;
        places.push(begun.expect("begun").place());
    }
    places.truncate(usize::from(KIN_MAX) + 1);
    assert_eq!(found(&*store).await, places);
}

async fn a_crowd_on_one_kin_is_found_to_the_last(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut crowd = JoinSet::new();
    for n in 1..=32 {
        let store = Arc::clone(&store);
        crowd.spawn(async move {
            let settled = complete(&*store, &nth(n), b"x").await;
            if n % 2 == 0 {
                mark(&*store, &nth(n), Delivery::Delivered).await;
            }
            (n % 2 != 0).then_some(settled.place)
        });
    }
    let mut places: Vec<Place> = crowd.join_all().await.into_iter().flatten().collect();
    places.sort_unstable();
    assert_eq!(found(&*store).await, places);
}

async fn another_handle_finds_them_at_once(bed: Arc<dyn Bed>) {
    let (one, other) = (bed.open().await, bed.open().await);
    assert_eq!(found(&*other).await, []);
    let settled = complete(&*one, &nth(1), b"x").await;
    assert_eq!(found(&*other).await, [settled.place]);
    mark(&*other, &nth(1), Delivery::Delivered).await;
    assert_eq!(found(&*one).await, []);
    assert_eq!(found(&*bed.open().await).await, []);
}

async fn what_was_buried_is_found_no_more(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    complete(&*store, &nth(1), b"x").await;
    bed.clock()
        .advance(nth(1).policy.retention.length() + AFTER_LEASE);
    let bury = Command::Bury(Horizon(store.now()));
    let buried = Asked::new(hash(&nth(1)), bury).apply(&*store, None).await;
    assert!(buried.expect("it is buried").wrote);
    assert_eq!(found(&*store).await, []);
}

async fn a_change_that_lost_its_race_indexes_nothing(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let absent = store.load(&hash(&nth(1))).await.expect("it loads");
    let late = begin(&nth(1), 2).change(&absent, store.now());
    complete(&*store, &nth(1), b"x").await;
    mark(&*store, &nth(1), Delivery::Delivered).await;
    let lost = store.commit(late.expect("a change")).await;
    assert!(matches!(lost, Ok(semel::store::Commit::Conflict(_))));
    assert_eq!(found(&*store).await, []);
}
