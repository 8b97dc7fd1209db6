//! Many at once: exactly one wins, and everybody else is told who.

use std::collections::BTreeSet;
use std::sync::Arc;

use semel::store::{Commit, Current, Guard, PAGE_MAX, Place, Store};
use semel_core::ledger::{Command, Delivery, Record, Version};
use tokio::task::JoinSet;

use super::cases;
use super::hand::{Asked, begin, complete, done, hash, spec, stored};
use super::{Bed, START};

cases![
    behaviour: [
        everyone_on_a_key_of_their_own_wins,
    ],
    storage: [
        one_of_many_creations_of_one_key_wins,
        one_of_many_changes_on_one_version_wins,
        a_crowd_of_reports_adds_up,
        no_child_begins_after_its_parent_has_changed,
    ],
];

/// How many callers there are at once: more than a group of most stores.
const CROWD: usize = 600;

async fn everyone_on_a_key_of_their_own_wins(bed: Arc<dyn Bed>) {
    let handles = [bed.open().await, bed.open().await];
    let mut crowd = JoinSet::new();
    for n in 0..CROWD {
        let store = Arc::clone(&handles[n % handles.len()]);
        crowd.spawn(async move {
            let spec = spec(&format!("order-{n}"));
            let bytes = format!("answer {n}").into_bytes();
            (complete(&*store, &spec, &bytes).await, bytes)
        });
    }
    let all = crowd.join_all().await;
    let places: BTreeSet<Place> = all.iter().map(|(stored, _)| stored.place).collect();
    assert_eq!(places.len(), CROWD);
    for store in &handles {
        for (one, bytes) in &all {
            assert_eq!(one.record.version(), Version(2));
            let found = store.load(&one.record.key_hash()).await.expect("it loads");
            assert_eq!(stored(&found).record, one.record);
            let payload = store.payload(one.place).await.expect("it loads");
            assert_eq!(payload.as_ref(), Some(bytes));
        }
    }
    let log = handles[0].log(0, PAGE_MAX).await.expect("it reads");
    let rest = handles[0].log(PAGE_MAX as u64, PAGE_MAX).await;
    assert_eq!(log.len() + rest.expect("it reads").len(), 2 * CROWD);
}

async fn one_of_many_creations_of_one_key_wins(bed: Arc<dyn Bed>) {
    let handles = [bed.open().await, bed.open().await];
    let spec = spec("order-7");
    let absent = handles[0].load(&hash(&spec)).await.expect("it loads");
    let mut crowd = JoinSet::new();
    for n in 0..CROWD {
        let store = Arc::clone(&handles[n % handles.len()]);
        let change = begin(&spec, n as u128).change(&absent, START);
        let change = change.expect("each may win");
        crowd.spawn(async move { store.commit(change).await.expect("it is answered") });
    }
    let answers = crowd.join_all().await;
    one_winner(&*handles[0], &answers, &hash(&spec)).await;
}

async fn one_of_many_changes_on_one_version_wins(bed: Arc<dyn Bed>) {
    let handles = [bed.open().await, bed.open().await];
    let spec = spec("order-7");
    let begun = begin(&spec, 1).apply(&*handles[0], None).await;
    let begun = begun.expect("begun");
    let mut crowd = JoinSet::new();
    for n in 0..CROWD {
        let store = Arc::clone(&handles[n % handles.len()]);
        let report = done(&spec, 1, 1, format!("answer {n}").as_bytes());
        let change = report.change(&begun.current, START).expect("each may win");
        crowd.spawn(async move { store.commit(change).await.expect("it is answered") });
    }
    let answers = crowd.join_all().await;
    one_winner(&*handles[1], &answers, &hash(&spec)).await;
    let log = handles[0].log(0, 10).await.expect("it reads");
    assert_eq!(log.len(), 2, "the losers left no trace");
}

/// Checks that one change was taken, and that all others were handed what it left.
async fn one_winner(store: &dyn Store, answers: &[Commit], key: &semel_core::KeyHash) {
    let found = store.load(key).await.expect("it loads");
    let winner = &stored(&found).record;
    let mut won = 0;
    for answer in answers {
        match answer {
            Commit::Done(current) => {
                won += 1;
                assert_eq!(stored(current).record, *winner);
            }
            Commit::Conflict(current) => assert_eq!(stored(current).record, *winner),
            Commit::GuardChanged => panic!("there was no guard"),
        }
    }
    assert_eq!(won, 1);
}

async fn a_crowd_of_reports_adds_up(bed: Arc<dyn Bed>) {
    let handles = [bed.open().await, bed.open().await];
    let spec = spec("order-7");
    complete(&*handles[0], &spec, b"x").await;
    let mut crowd = JoinSet::new();
    const MARKS: u64 = 60;
    for n in 0..MARKS {
        let store = Arc::clone(&handles[usize::from(n % 2 == 0)]);
        let delivery = [Delivery::Delivered, Delivery::Undelivered][usize::from(n % 3 == 0)];
        let asked = Asked::new(hash(&spec), Command::Deliver(delivery));
        crowd.spawn(async move { asked.apply(&*store, None).await.expect("answered") });
    }
    let written = crowd.join_all().await;
    let written = written.iter().filter(|applied| applied.wrote).count() as u64;
    let found = handles[1].load(&hash(&spec)).await.expect("it loads");
    let version = found.record().map(Record::version);
    assert_eq!(
        version,
        Some(Version(2 + written)),
        "no accepted one was lost"
    );
}

async fn no_child_begins_after_its_parent_has_changed(bed: Arc<dyn Bed>) {
    const CHILDREN: usize = 100;
    let store = bed.open().await;
    let parent = spec("order-7");
    let begun = begin(&parent, 1).apply(&*store, None).await.expect("begun");
    let guard = Guard::Version {
        place: begun.place(),
        version: Version(1),
    };
    let mut crowd = JoinSet::new();
    for n in 0..CHILDREN {
        let (store, child) = (Arc::clone(&store), spec(&format!("order-7/{n}")));
        let (parent, current) = (parent.clone(), begun.current.clone());
        crowd.spawn(async move {
            if n == CHILDREN / 2 {
                // The parent ends in the middle of the crowd.
                let report = done(&parent, 1, 1, b"x").change(&current, START);
                store.commit(report.expect("a change")).await
            } else {
                let absent = store.load(&hash(&child)).await.expect("it loads");
                let mut change = begin(&child, 1).change(&absent, START).expect("a change");
                change.guard = Some(guard);
                store.commit(change).await
            }
        });
    }
    let mut begun = 0;
    for answer in crowd.join_all().await {
        match answer.expect("it is answered") {
            Commit::Done(Current::Stored(_)) => begun += 1,
            Commit::GuardChanged => {}
            other => panic!("nobody else was there: {other:?}"),
        }
    }
    let log = store.log(0, PAGE_MAX).await.expect("it reads");
    assert_eq!(log.len(), begun + 1);
    let end = log
        .iter()
        .position(|logged| matches!(logged.entry.command, Command::Settle(_)));
    assert_eq!(
        end,
        Some(log.len() - 1),
        "a child began after its parent ended"
    );
}
