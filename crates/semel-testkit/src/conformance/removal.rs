//! The end of a record: what is dropped leaves nothing behind, and takes nothing with it.

use std::sync::Arc;

use semel::store::{Commit, Current, Place, Query, Store};
use semel_core::Label;
use semel_core::ledger::{
    Command, Fence, Horizon, Order, Record, STUB_KEPT, Spec, StateKind, Version,
};
use tokio::task::JoinSet;

use super::Bed;
use super::cases;
use super::hand::{Asked, begin, complete, hash, spec, stored};

cases![
    a_dropped_stub_leaves_only_its_log,
    a_dropped_key_begins_anew_at_a_place_of_its_own,
    a_change_on_a_dropped_record_is_a_conflict,
    a_change_on_a_dropped_record_is_handed_the_key_s_new_one,
    a_handle_that_knew_the_key_sees_that_it_is_gone,
    dropping_one_of_many_takes_no_other_with_it,
    a_key_dropped_beside_a_crowd_stays_dropped,
    a_key_is_there_or_not_while_another_handle_drops_it,
    a_key_that_is_dropped_and_begun_at_once_begins_once,
];

/// Settles, forgets and waits until the stub may go.
async fn stub(bed: &dyn Bed, store: &dyn Store, spec: &Spec) -> Place {
    let settled = complete(store, spec, b"secret").await;
    let forget = Command::Forget(Order {
        version: settled.record.version(),
        by: Label::new("ann").expect("a valid name"),
        note: None,
    });
    let forgotten = Asked::new(hash(spec), forget).apply(store, None).await;
    let forgotten = forgotten.expect("it is forgotten");
    assert_eq!(stored(&forgotten.current).record.kind(), StateKind::Stub);
    bed.clock().advance(STUB_KEPT);
    settled.place
}

fn drop_of(store: &dyn Store, spec: &Spec) -> Asked {
    Asked::new(hash(spec), Command::Drop(Horizon(store.now())))
}

async fn dropped(bed: &dyn Bed, store: &dyn Store, spec: &Spec) -> Place {
    let place = stub(bed, store, spec).await;
    let applied = drop_of(store, spec).apply(store, None).await;
    let applied = applied.expect("it is dropped");
    assert!(applied.wrote && applied.current.record().is_none());
    place
}

async fn a_dropped_stub_leaves_only_its_log(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let place = dropped(&*bed, &*store, &spec).await;
    let everything = Query {
        states: StateKind::ALL.to_vec(),
        limit: 10,
        ..Query::default()
    };
    for store in [&store, &bed.open().await] {
        let found = store.load(&hash(&spec)).await.expect("it loads");
        assert!(matches!(found, Current::Absent(_)));
        assert!(store.load_at(place).await.expect("it loads").is_none());
        assert_eq!(store.payload(place).await, Ok(None));
        let listed = store.list(everything.clone()).await.expect("it lists");
        assert!(listed.items.is_empty());
        let log = store.log(0, 10).await.expect("it reads");
        let commands: Vec<_> = log.iter().map(|one| one.entry.command.name()).collect();
        assert_eq!(commands, ["begin", "settle", "forget", "drop"]);
        // All of it is the story of one record, so that it can be replayed.
        assert!(log.iter().all(|logged| logged.place == Some(place)));
        assert_eq!(log[3].entry.state, None);
    }
}

async fn a_dropped_key_begins_anew_at_a_place_of_its_own(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let old = dropped(&*bed, &*store, &spec).await;
    let begun = begin(&spec, 9).apply(&*store, None).await.expect("begun");
    assert_eq!(begun.place(), Place(5));
    assert_ne!(begun.place(), old);
    assert_eq!(stored(&begun.current).record.fence(), Fence(1));
    for store in [&store, &bed.open().await] {
        let found = store.load(&hash(&spec)).await.expect("it loads");
        assert_eq!(stored(&found).place, begun.place());
    }
    while store.tidy().await.expect("it tidies up") {}
    let found = store.load(&hash(&spec)).await.expect("it loads");
    assert_eq!(stored(&found).place, begun.place());
}

async fn a_change_on_a_dropped_record_is_a_conflict(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    stub(&*bed, &*store, &spec).await;
    let known = store.load(&hash(&spec)).await.expect("it loads");
    let late = begin(&spec, 2).change(&known, store.now());
    let applied = drop_of(&*store, &spec).apply(&*store, None).await;
    assert!(applied.expect("it is dropped").wrote);
    let answer = store.commit(late.expect("a change")).await;
    let Ok(Commit::Conflict(Current::Absent(_))) = answer else {
        panic!("it was decided on what is gone: {answer:?}");
    };
}

/// Handed back as absent, the key would be begun a second time.
async fn a_change_on_a_dropped_record_is_handed_the_key_s_new_one(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    stub(&*bed, &*store, &spec).await;
    let known = store.load(&hash(&spec)).await.expect("it loads");
    let applied = drop_of(&*store, &spec).apply(&*store, None).await;
    assert!(applied.expect("it is dropped").wrote);
    let begun = begin(&spec, 2).apply(&*store, None).await.expect("begun");
    while store.tidy().await.expect("it tidies up") {}
    let late = begin(&spec, 3).change(&known, store.now());
    let answer = store.commit(late.expect("a change")).await;
    let Ok(Commit::Conflict(current)) = answer else {
        panic!("it was decided on what is gone: {answer:?}");
    };
    assert_eq!(stored(&current).place, begun.place());
    assert_eq!(stored(&current).record, stored(&begun.current).record);
}

async fn a_handle_that_knew_the_key_sees_that_it_is_gone(bed: Arc<dyn Bed>) {
    let (here, there) = (bed.open().await, bed.open().await);
    let spec = spec("order-7");
    let old = stub(&*bed, &*here, &spec).await;
    let known = there.load(&hash(&spec)).await.expect("it loads");
    assert_eq!(stored(&known).place, old);
    let applied = drop_of(&*here, &spec).apply(&*here, None).await;
    assert!(applied.expect("it is dropped").wrote);
    let found = there.load(&hash(&spec)).await.expect("it loads");
    assert!(matches!(found, Current::Absent(_)), "{found:?}");
    let begun = begin(&spec, 9).apply(&*there, None).await.expect("begun");
    let found = here.load(&hash(&spec)).await.expect("it loads");
    assert_eq!(stored(&found).place, begun.place());
    assert_eq!(found.record().map(Record::version), Some(Version(1)));
}

async fn many(store: &Arc<dyn Store>, name: &str, count: usize) -> Vec<Spec> {
    let specs: Vec<Spec> = (0..count).map(|n| spec(&format!("{name}-{n}"))).collect();
    let mut crowd = JoinSet::new();
    for spec in &specs {
        let (store, asked) = (Arc::clone(store), begin(spec, 1));
        crowd.spawn(async move { asked.apply(&*store, None).await.expect("begun") });
    }
    crowd.join_all().await;
    specs
}

async fn dropping_one_of_many_takes_no_other_with_it(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let before = many(&store, "before", 700).await;
    let gone = spec("order-7");
    let place = stub(&*bed, &*store, &gone).await;
    let after = many(&store, "after", 700).await;
    let applied = drop_of(&*store, &gone).apply(&*store, None).await;
    assert!(applied.expect("it is dropped").wrote);
    for store in [&store, &bed.open().await] {
        for spec in before.iter().chain(&after) {
            let found = store.load(&hash(spec)).await.expect("it loads");
            let record = &stored(&found).record;
            assert_eq!(record.operation().map(|it| &it.spec.key), Some(&spec.key));
        }
        assert!(store.load_at(place).await.expect("it loads").is_none());
    }
}

/// Written in one group with the drop, the crowd's own work on the index must not bring it back.
async fn a_key_dropped_beside_a_crowd_stays_dropped(bed: Arc<dyn Bed>) {
    for round in 0..4 {
        let store = bed.open().await;
        many(&store, &format!("before-{round}"), 1_100).await;
        let gone = spec(&format!("gone-{round}"));
        stub(&*bed, &*store, &gone).await;
        let mut crowd = JoinSet::new();
        for n in 0..400 {
            let (store, gone) = (Arc::clone(&store), gone.clone());
            let other = spec(&format!("beside-{round}-{n}"));
            crowd.spawn(async move {
                let asked = if n == 5 {
                    drop_of(&*store, &gone)
                } else {
                    begin(&other, 1)
                };
                let applied = asked.apply(&*store, None).await.expect("it is taken");
                assert!(applied.wrote);
                if n % 50 == 49 {
                    store.tidy().await.expect("it tidies up");
                }
            });
        }
        crowd.join_all().await;
        for store in [&store, &bed.open().await] {
            let found = store.load(&hash(&gone)).await.expect("it loads");
            assert!(matches!(found, Current::Absent(_)), "{found:?}");
        }
        while store.tidy().await.expect("it tidies up") {}
        let begun = begin(&gone, 9).apply(&*store, None).await.expect("begun");
        let found = store.load(&hash(&gone)).await.expect("it loads");
        assert_eq!(stored(&found).place, begun.place());
    }
}

/// Whoever looks in the middle of a drop sees what was before it or what is after it, not damage.
async fn a_key_is_there_or_not_while_another_handle_drops_it(bed: Arc<dyn Bed>) {
    const ROUNDS: usize = 150;
    let (here, there) = (bed.open().await, bed.open().await);
    let spec = spec("order-7");
    let looking = tokio::spawn({
        let key = hash(&spec);
        async move {
            loop {
                let found = there.load(&key).await.expect("it loads");
                if let Some(record) = found.record() {
                    assert_eq!(record.key_hash(), key);
                }
                tokio::task::yield_now().await;
            }
        }
    });
    for _ in 0..ROUNDS {
        dropped(&*bed, &*here, &spec).await;
        tokio::task::yield_now().await;
    }
    looking.abort();
    let ended = looking
        .await
        .expect_err("it looks until it is told to stop");
    assert!(ended.is_cancelled(), "what it saw was wrong");
}

/// In one group with the drop, or before it, or after it: the claim is taken all the same.
async fn a_key_that_is_dropped_and_begun_at_once_begins_once(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    for round in 0..30 {
        let again = spec(&format!("order-{round}"));
        stub(&*bed, &*store, &again).await;
        let known = store.load(&hash(&again)).await.expect("it loads");
        let mut crowd = JoinSet::new();
        for n in 0..20 {
            let (store, again, known) = (Arc::clone(&store), again.clone(), known.clone());
            let other = spec(&format!("beside-{round}-{n}"));
            crowd.spawn(async move {
                let (asked, known) = match n {
                    7 => (drop_of(&*store, &again), None),
                    // It still believes in the stub.
                    12 => (begin(&again, 9), Some(known)),
                    _ => (begin(&other, 1), None),
                };
                asked.apply(&*store, known).await.expect("it is answered");
            });
        }
        crowd.join_all().await;
        let found = store.load(&hash(&again)).await.expect("it loads");
        let operation = stored(&found).record.operation().expect("it was begun");
        assert_eq!(operation.attempts.len(), 1);
        assert!(matches!(operation.fence, Fence(1) | Fence(2)));
    }
}
