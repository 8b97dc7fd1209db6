//! Compare-and-swap: what is stored is what was decided on what was stored, all of it or nothing.

use std::sync::Arc;
use std::time::Duration;

use semel::store::{AbsentAsOf, Commit, Current, Expected, Guard, Place, Store};
use semel_core::ledger::{Command, Delivery, Expire, Record, StateKind, Version};
use semel_core::{Digest, KeyHash, Namespace, Verdict};

use super::cases;
use super::hand::{Asked, begin, complete, done, hash, settle, spec, stored};
use super::{Bed, START};

cases![
    behaviour: [
        a_place_that_was_never_given_holds_nothing,
    ],
    storage: [
        a_new_key_is_absent_then_stored_then_found,
        a_second_creation_is_a_conflict_that_hands_back_what_is_stored,
        a_change_on_another_version_is_a_conflict_and_writes_nothing,
        a_change_on_a_place_where_nothing_lies_is_a_conflict,
        record_payload_and_log_come_together_or_not_at_all,
        a_report_about_nothing_is_only_logged,
        a_guard_that_changed_or_vanished_stops_the_change,
        a_guard_that_holds_lets_the_change_through,
        one_key_behind_two_walls_is_two_operations,
        time_is_judged_by_what_was_stored,
    ],
];

async fn entries(store: &dyn Store) -> usize {
    store.log(0, 1_000).await.expect("the log reads").len()
}

async fn a_new_key_is_absent_then_stored_then_found(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let before = store.load(&hash(&spec)).await.expect("it loads");
    assert!(matches!(before, Current::Absent(AbsentAsOf(0))));
    let asked = begin(&spec, 1);
    let change = asked.change(&before, START).expect("a claim is written");
    let next = change.next.clone().expect("a claim leaves a record");
    let Commit::Done(after) = store.commit(change).await.expect("it commits") else {
        panic!("nothing else was stored");
    };
    assert_eq!(*stored(&after).record, *next);
    let found = store.load(&hash(&spec)).await.expect("it loads");
    assert_eq!(*stored(&found).record, *next);
    assert_eq!(stored(&found).place, stored(&after).place);
    let at = store.load_at(stored(&after).place).await.expect("it loads");
    assert_eq!(*at.expect("it lies there").record, *next);
}

async fn a_second_creation_is_a_conflict_that_hands_back_what_is_stored(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let before = store.load(&hash(&spec)).await.expect("it loads");
    let first = begin(&spec, 1).change(&before, START).expect("a change");
    let second = begin(&spec, 2).change(&before, START).expect("a change");
    let winner = first.next.clone().expect("a record");
    assert!(matches!(store.commit(first).await, Ok(Commit::Done(_))));
    let Ok(Commit::Conflict(current)) = store.commit(second).await else {
        panic!("a second claim must not be taken");
    };
    assert_eq!(*stored(&current).record, *winner);
    assert_eq!(entries(&*store).await, 1);
}

async fn a_change_on_another_version_is_a_conflict_and_writes_nothing(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let begun = begin(&spec, 1).apply(&*store, None).await.expect("begun");
    let report = done(&spec, 1, 1, b"first");
    let first = report.change(&begun.current, START).expect("a change");
    let second = done(&spec, 1, 1, b"second").change(&begun.current, START);
    assert!(matches!(store.commit(first).await, Ok(Commit::Done(_))));
    let conflict = store.commit(second.expect("a change")).await;
    let Ok(Commit::Conflict(current)) = conflict else {
        panic!("a change on an old version must not be taken: {conflict:?}");
    };
    assert_eq!(stored(&current).record.version(), Version(2));
    assert_eq!(stored(&current).record.kind(), StateKind::Succeeded);
    let payload = store.payload(stored(&current).place).await;
    assert_eq!(payload.expect("it loads").as_deref(), Some(&b"first"[..]));
    assert_eq!(entries(&*store).await, 2);
}

async fn a_change_on_a_place_where_nothing_lies_is_a_conflict(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let begun = begin(&spec, 1).apply(&*store, None).await.expect("begun");
    let report = done(&spec, 1, 1, b"x");
    let mut change = report.change(&begun.current, START).expect("a change");
    change.expected = Expected::Version(Place(77), Version(1));
    let answer = store.commit(change).await;
    let Ok(Commit::Conflict(current)) = answer else {
        panic!("it was decided on what is not there: {answer:?}");
    };
    assert_eq!(stored(&current).record, stored(&begun.current).record);
    assert_eq!(entries(&*store).await, 1);
}

async fn record_payload_and_log_come_together_or_not_at_all(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let after = complete(&*store, &spec, b"answer").await;
    let log = store.log(0, 10).await.expect("the log reads");
    assert_eq!(log.len(), 2);
    for (number, logged) in (1..).zip(&log) {
        assert_eq!((logged.seq, logged.place), (number, Some(after.place)));
    }
    assert_eq!(log[1].entry.state, Some(after.record.kind()));
    assert_eq!(log[1].entry.fence, after.record.fence());
    let payload = store.payload(after.place).await.expect("it loads");
    assert_eq!(payload.as_deref(), Some(&b"answer"[..]));
    // A conflict leaves neither a trace in the log nor a payload.
    let stale = Current::Stored(after.clone());
    let deliver = Asked::new(hash(&spec), Command::Deliver(Delivery::Delivered));
    let mut change = deliver.change(&stale, START).expect("a change");
    change.expected = Expected::Version(after.place, Version(1));
    change.payload = semel::store::NewPayload::Erase;
    assert!(matches!(
        store.commit(change).await,
        Ok(Commit::Conflict(_))
    ));
    let payload = store.payload(after.place).await.expect("it loads");
    assert_eq!(payload.as_deref(), Some(&b"answer"[..]));
    assert_eq!(entries(&*store).await, 2);
}

async fn a_report_about_nothing_is_only_logged(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let report = settle(&spec, 1, 1, Verdict::Unknown { error: None });
    let applied = report.apply(&*store, None).await.expect("it is taken");
    assert!(applied.wrote);
    assert!(matches!(applied.current, Current::Absent(_)));
    let log = store.log(0, 10).await.expect("the log reads");
    assert_eq!(log.len(), 1);
    assert_eq!(
        (log[0].place, log[0].entry.unplaced),
        (None, Some(hash(&spec)))
    );
    // The next record's place is the number of its own first entry.
    let begun = begin(&spec, 2).apply(&*store, None).await.expect("begun");
    assert_eq!(begun.place(), Place(2));
}

async fn a_guard_that_changed_or_vanished_stops_the_change(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let (parent, child) = (spec("order-7"), spec("order-7/charge"));
    let begun = begin(&parent, 1).apply(&*store, None).await.expect("begun");
    let place = begun.place();
    let renewed = Asked::new(hash(&parent), Command::Deliver(Delivery::Delivered));
    renewed.apply(&*store, None).await.expect("it is marked");
    for (place, version) in [
        (place, Version(1)),
        (place, Version(3)),
        (Place(99), Version(2)),
    ] {
        let absent = store.load(&hash(&child)).await.expect("it loads");
        let mut change = begin(&child, 9).change(&absent, START).expect("a change");
        change.guard = Some(Guard::Version { place, version });
        let answer = store.commit(change).await;
        assert!(matches!(answer, Ok(Commit::GuardChanged)), "{answer:?}");
        let found = store.load(&hash(&child)).await.expect("it loads");
        assert!(found.record().is_none(), "{place:?} {version:?}");
    }
    assert_eq!(entries(&*store).await, 2);
}

async fn a_guard_that_holds_lets_the_change_through(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let (parent, child) = (spec("order-7"), spec("order-7/charge"));
    let begun = begin(&parent, 1).apply(&*store, None).await.expect("begun");
    let absent = store.load(&hash(&child)).await.expect("it loads");
    let mut change = begin(&child, 9).change(&absent, START).expect("a change");
    change.guard = Some(Guard::Version {
        place: begun.place(),
        version: Version(1),
    });
    assert!(matches!(store.commit(change).await, Ok(Commit::Done(_))));
    // The guarded record itself was not touched.
    let parent = store.load(&hash(&parent)).await.expect("it loads");
    assert_eq!(parent.record().map(Record::version), Some(Version(1)));
}

async fn one_key_behind_two_walls_is_two_operations(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let here = spec("order-7");
    let mut there = spec("order-7");
    there.namespace = Namespace::new("other").expect("a valid namespace");
    complete(&*store, &here, b"here").await;
    let absent = store.load(&hash(&there)).await.expect("it loads");
    assert!(absent.record().is_none());
    complete(&*store, &there, b"there").await;
    for (spec, bytes) in [(&here, &b"here"[..]), (&there, &b"there"[..])] {
        let found = store.load(&hash(spec)).await.expect("it loads");
        let operation = stored(&found).record.operation().expect("it lives");
        assert_eq!(operation.spec.namespace, spec.namespace);
        let payload = store.payload(stored(&found).place).await.expect("it loads");
        assert_eq!(payload.as_deref(), Some(bytes));
    }
}

async fn a_place_that_was_never_given_holds_nothing(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    complete(&*store, &spec("order-7"), b"x").await;
    for place in [Place(0), Place(2), Place(3), Place(u64::MAX)] {
        assert!(store.load_at(place).await.expect("it loads").is_none());
        assert_eq!(store.payload(place).await, Ok(None));
    }
    let nobody = KeyHash(Digest([0; 32]));
    let found = store.load(&nobody).await.expect("it loads");
    assert!(matches!(found, Current::Absent(AbsentAsOf(2))), "{found:?}");
}

/// Leases and retentions would end too early, or come back to life, by a clock that jumps.
async fn time_is_judged_by_what_was_stored(bed: Arc<dyn Bed>) {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let store = bed.open().await;
    let clock = bed.clock();
    assert_eq!(store.now(), START);
    complete(&*store, &spec("order-7"), b"x").await;
    clock.jump_forward(YEAR);
    clock.advance(Duration::from_secs(5));
    let later = START.plus(Duration::from_secs(5));
    assert_eq!(store.now(), later);
    clock.jump_back(YEAR * 2);
    assert_eq!(store.now(), later);
    let expire = Asked::new(
        hash(&spec("order-7")),
        Command::Expire(Expire { gone: None }),
    );
    assert!(!expire.apply(&*store, None).await.expect("answered").wrote);
    let reopened = bed.open().await;
    assert_eq!(reopened.now(), later);
    // After a boot a wall clock that is ahead is believed: the machine may have been off.
    clock.jump_forward(YEAR * 2);
    clock.reboot(Duration::from_secs(60), Duration::from_secs(1));
    assert!(store.now() > START.plus(YEAR / 2));
}
