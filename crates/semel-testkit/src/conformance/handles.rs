//! Several handles on one store, as several processes have, and the store opened again.

use std::sync::Arc;
use std::time::Duration;

use semel::store::{Chunk, Commit, Current, Query, Store};
use semel_core::clock::Stamp;
use semel_core::ledger::{Fence, Spec, StateKind};
use tokio::task::JoinSet;

use super::cases;
use super::hand::{begin, complete, done, hash, spec, stored};
use super::{Bed, START};

cases![
    behaviour: [
        another_handle_sees_every_write_at_once,
        handles_that_slept_find_every_key_whoever_tidied_up,
        tidying_up_may_stop_anywhere_and_go_on_in_another_handle,
        two_handles_that_take_turns_share_one_log,
    ],
    storage: [
        opening_again_finds_everything,
        a_change_decided_before_anothers_write_is_a_conflict,
        a_key_that_was_absent_long_ago_is_found_after_tidying_up,
        another_handle_judges_time_by_what_was_stored,
    ],
];

async fn opening_again_finds_everything(bed: Arc<dyn Bed>) {
    let mark = Stamp {
        at: START,
        boot: 7,
        uptime: Duration::from_secs(9),
    };
    let (done, running) = (spec("order-7"), spec("order-8"));
    let piece = Chunk {
        stream: 1,
        bytes: b"piece".to_vec(),
    };
    let (first, begun, log) = {
        let store = bed.open().await;
        let first = complete(&*store, &done, b"answer").await;
        let begun = begin(&running, 1)
            .apply(&*store, None)
            .await
            .expect("begun");
        let appended = store.append(begun.place(), Fence(1), vec![piece.clone()]);
        appended.await.expect("it is taken");
        store.sweep_mark(Some(mark)).await.expect("it is taken");
        let log = store.log(0, 10).await.expect("it reads");
        (first, begun, log)
    };
    for _ in 0..3 {
        let store = bed.open().await;
        let found = store.load(&hash(&done)).await.expect("it loads");
        assert_eq!(stored(&found).record, first.record);
        let payload = store.payload(first.place).await.expect("it loads");
        assert_eq!(payload.as_deref(), Some(&b"answer"[..]));
        let found = store.load(&hash(&running)).await.expect("it loads");
        assert_eq!(stored(&found).record, stored(&begun.current).record);
        let stream = store.stream(begun.place(), Fence(1)).await;
        assert_eq!(stream, Ok(vec![piece.clone()]));
        assert_eq!(store.log(0, 10).await, Ok(log.clone()));
        assert_eq!(store.sweep_mark(None).await, Ok(Some(mark)));
        assert_eq!(store.tidy().await, Ok(false));
    }
}

async fn another_handle_sees_every_write_at_once(bed: Arc<dyn Bed>) {
    let (here, there) = (bed.open().await, bed.open().await);
    for n in 0..20 {
        let spec = spec(&format!("order-{n}"));
        let begun = begin(&spec, 1).apply(&*here, None).await.expect("begun");
        let found = there.load(&hash(&spec)).await.expect("it loads");
        assert_eq!(stored(&found).record, stored(&begun.current).record);
        let running = Query {
            states: vec![StateKind::Running],
            limit: 10,
            ..Query::default()
        };
        let listed = there.list(running).await.expect("it lists").items;
        assert_eq!(listed.len(), 1);
        let settled = done(&spec, 1, 1, b"x").apply(&*there, None).await;
        let settled = settled.expect("settled");
        let found = here.load(&hash(&spec)).await.expect("it loads");
        assert_eq!(stored(&found).record, stored(&settled.current).record);
        let payload = here.payload(settled.place()).await.expect("it loads");
        assert_eq!(payload.as_deref(), Some(&b"x"[..]));
        let log = here.log(0, 100).await.expect("it reads");
        assert_eq!(log.len(), 2 * (n + 1));
        assert_eq!(there.log(0, 100).await, Ok(log));
        if n % 7 == 0 {
            here.tidy().await.expect("it tidies up");
        }
    }
}

async fn a_change_decided_before_anothers_write_is_a_conflict(bed: Arc<dyn Bed>) {
    let (here, there) = (bed.open().await, bed.open().await);
    let spec = spec("order-7");
    let absent = there.load(&hash(&spec)).await.expect("it loads");
    let begun = begin(&spec, 1).apply(&*here, None).await.expect("begun");
    let late = begin(&spec, 2).change(&absent, START).expect("a change");
    let Ok(Commit::Conflict(current)) = there.commit(late).await else {
        panic!("the key is taken");
    };
    assert_eq!(stored(&current).record, stored(&begun.current).record);
    let settled = done(&spec, 1, 1, b"x").apply(&*here, None).await;
    let late = done(&spec, 1, 1, b"y").change(&current, START);
    let Ok(Commit::Conflict(current)) = there.commit(late.expect("a change")).await else {
        panic!("another version is stored");
    };
    assert_eq!(
        stored(&current).record,
        stored(&settled.expect("settled").current).record
    );
}

/// More keys than any store keeps in its memory of the newest, so that tidying up moves them.
const MANY: usize = 3_000;

async fn begin_many(store: &Arc<dyn Store>, name: &str, count: usize) -> Vec<Spec> {
    let specs: Vec<Spec> = (0..count).map(|n| spec(&format!("{name}-{n}"))).collect();
    let mut crowd = JoinSet::new();
    for spec in &specs {
        let (store, asked) = (Arc::clone(store), begin(spec, 1));
        crowd.spawn(async move { asked.apply(&*store, None).await });
    }
    while let Some(begun) = crowd.join_next().await {
        let begun = begun.expect("it runs").expect("it begins");
        assert!(begun.wrote);
    }
    specs
}

async fn tidy_to_the_end(store: &dyn Store) {
    while store.tidy().await.expect("it tidies up") {}
}

async fn find_all(store: &dyn Store, specs: &[Spec]) {
    for spec in specs {
        let found = store.load(&hash(spec)).await.expect("it loads");
        let found = stored(&found);
        let operation = found.record.operation().expect("it lives");
        assert_eq!(operation.spec.key, spec.key);
    }
}

async fn a_key_that_was_absent_long_ago_is_found_after_tidying_up(bed: Arc<dyn Bed>) {
    let (here, there) = (bed.open().await, bed.open().await);
    let wanted = spec("many-1234");
    let absent = there.load(&hash(&wanted)).await.expect("it loads");
    let nobody = spec("nobody");
    let nobody_absent = there.load(&hash(&nobody)).await.expect("it loads");
    assert!(matches!(absent, Current::Absent(_)));
    begin_many(&here, "many", MANY).await;
    tidy_to_the_end(&*here).await;
    // `there` has not looked since, and decides on what it knew.
    let late = begin(&wanted, 2).change(&absent, START).expect("a change");
    let answer = there.commit(late).await;
    let Ok(Commit::Conflict(current)) = answer else {
        panic!("the key is taken: {answer:?}");
    };
    let operation = stored(&current).record.operation().expect("it lives");
    assert_eq!(operation.spec.key, wanted.key);
    let fresh = begin(&nobody, 2).change(&nobody_absent, START);
    let answer = there.commit(fresh.expect("a change")).await;
    assert!(matches!(answer, Ok(Commit::Done(_))), "{answer:?}");
}

async fn handles_that_slept_find_every_key_whoever_tidied_up(bed: Arc<dyn Bed>) {
    let (here, there) = (bed.open().await, bed.open().await);
    let first = begin_many(&here, "first", MANY).await;
    let sleeper = bed.open().await;
    let second = begin_many(&there, "second", MANY / 2).await;
    tidy_to_the_end(&*there).await;
    let third = begin_many(&here, "third", 50).await;
    for store in [&here, &there, &sleeper, &bed.open().await] {
        for specs in [&first, &second, &third] {
            find_all(&**store, specs).await;
        }
        let nobody = store.load(&hash(&spec("nobody"))).await.expect("it loads");
        assert!(matches!(nobody, Current::Absent(_)));
    }
}

async fn tidying_up_may_stop_anywhere_and_go_on_in_another_handle(bed: Arc<dyn Bed>) {
    let mut specs = vec![];
    for round in 0..4 {
        let store = bed.open().await;
        // A slice, then the handle is gone, and another one goes on while more keys come.
        specs.extend(begin_many(&store, &format!("round-{round}"), MANY / 2).await);
        store.tidy().await.expect("it tidies up");
        specs.extend(begin_many(&store, &format!("more-{round}"), 40).await);
        drop(store);
        find_all(&*bed.open().await, &specs).await;
    }
    let store = bed.open().await;
    tidy_to_the_end(&*store).await;
    find_all(&*store, &specs).await;
    let open = Query {
        states: vec![StateKind::Running],
        limit: 1_000,
        ..Query::default()
    };
    let mut count = 0;
    let mut query = open;
    loop {
        let page = store.list(query.clone()).await.expect("it lists");
        count += page.items.len();
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(count, specs.len());
}

async fn two_handles_that_take_turns_share_one_log(bed: Arc<dyn Bed>) {
    let handles = [bed.open().await, bed.open().await, bed.open().await];
    for n in 0..60 {
        let store = &handles[(n * n) % handles.len()];
        let spec = spec(&format!("order-{}", n % 20));
        begin(&spec, n as u128)
            .apply(&**store, None)
            .await
            .expect("answered");
        let expected = (n + 1).min(20);
        for store in &handles {
            let log = store.log(0, 100).await.expect("it reads");
            assert_eq!(log.len(), expected);
            assert!(log.iter().zip(1..).all(|(logged, seq)| logged.seq == seq));
        }
    }
}

/// Two holders that judged a lease by different times would both believe to hold it.
async fn another_handle_judges_time_by_what_was_stored(bed: Arc<dyn Bed>) {
    const STEP: Duration = Duration::from_secs(50 * 60);
    let (here, there) = (bed.open().await, bed.open().await);
    complete(&*there, &spec("before"), b"x").await;
    // Each step is small enough to be believed, and all of them together are not.
    for n in 0..4 {
        complete(&*here, &spec(&format!("order-{n}")), b"x").await;
        bed.clock().jump_forward(STEP);
    }
    there.load(&hash(&spec("order-0"))).await.expect("it loads");
    assert_eq!(here.now(), START.plus(STEP * 4));
    assert_eq!(there.now(), here.now());
}
