//! The log, the mark of the sweep, and tidying up.

use std::sync::Arc;
use std::time::Duration;

use semel::store::{Logged, PAGE_MAX, Pass, Place, Progress, Store};
use semel_core::clock::Stamp;
use semel_core::ledger::Command;

use super::cases;
use super::hand::{begin, complete, spec};
use super::{Bed, START};

cases![
    behaviour: [
        numbers_grow_without_gaps_and_entries_are_what_was_committed,
        the_log_reads_the_same_from_any_number_in_pages_of_any_size,
        a_page_of_the_log_has_a_limit,
        tidying_up_comes_to_an_end_and_changes_nothing_that_is_seen,
    ],
    storage: [
        the_mark_of_the_sweep_is_kept_until_the_next_one,
        how_far_the_sweeps_have_come_is_kept,
    ],
];

async fn whole(store: &dyn Store) -> Vec<Logged> {
    let mut all: Vec<Logged> = vec![];
    loop {
        let page = store.log(all.len() as u64, PAGE_MAX).await;
        let page = page.expect("the log reads");
        let Some(first) = page.first() else {
            return all;
        };
        assert_eq!(first.seq, all.len() as u64 + 1, "it goes on where it ended");
        all.extend(page);
    }
}

/// Begins this many operations at once, so that a store that writes groups writes some.
async fn crowd(store: &Arc<dyn Store>, name: &str, count: u128) {
    let mut beginning = tokio::task::JoinSet::new();
    for n in 0..count {
        let (store, spec) = (Arc::clone(store), spec(&format!("{name}-{n}")));
        beginning.spawn(async move { begin(&spec, n).apply(&*store, None).await });
    }
    while let Some(begun) = beginning.join_next().await {
        let begun = begun.expect("it runs").expect("it begins");
        assert!(begun.wrote);
    }
}

async fn numbers_grow_without_gaps_and_entries_are_what_was_committed(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    assert_eq!(store.log(0, 10).await, Ok(vec![]));
    for n in 0..5 {
        complete(&*store, &spec(&format!("order-{n}")), b"x").await;
    }
    crowd(&store, "crowd", 60).await;
    let log = whole(&*store).await;
    assert_eq!(log.len(), 70);
    for (number, logged) in (1..).zip(&log) {
        assert_eq!(logged.seq, number);
        assert_eq!(logged.entry.at, START);
    }
    for logged in &log {
        let place = logged.place.expect("all of them were placed");
        let first = &log[usize::try_from(place.0).expect("a small number") - 1];
        assert_eq!(first.place, Some(place));
        assert!(matches!(first.entry.command, Command::Begin(_)));
        let stored = store.load_at(place).await.expect("it loads");
        let record = stored.expect("it is there").record;
        assert!(logged.entry.state.is_some() && record.operation().is_some());
    }
}

async fn the_log_reads_the_same_from_any_number_in_pages_of_any_size(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    for round in 0..6 {
        crowd(&store, &format!("round-{round}"), 17).await;
        complete(&*store, &spec(&format!("order-{round}")), b"x").await;
    }
    let log = whole(&*store).await;
    for after in 0..=log.len() + 2 {
        for limit in [1, 2, 3, 7, 16, 500] {
            let page = store.log(after as u64, limit).await.expect("it reads");
            let from = after.min(log.len());
            let to = (from + limit).min(log.len());
            assert_eq!(page, log[from..to], "after {after}, at most {limit}");
        }
    }
    assert_eq!(store.log(u64::MAX, 10).await, Ok(vec![]));
    assert_eq!(store.log(u64::MAX / 2, 10).await, Ok(vec![]));
    assert_eq!(whole(&*bed.open().await).await, log);
}

async fn a_page_of_the_log_has_a_limit(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let count = PAGE_MAX + 50;
    crowd(&store, "crowd", count as u128).await;
    let page = store.log(0, usize::MAX).await.expect("it reads");
    assert_eq!(page.len(), PAGE_MAX);
    assert_eq!(store.log(0, 0).await.expect("it reads").len(), 1);
    assert_eq!(whole(&*store).await.len(), count);
}

async fn how_far_the_sweeps_have_come_is_kept(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    assert_eq!(store.sweep_progress(None).await, Ok(Progress::default()));
    let pass = |after| {
        Some(Pass {
            horizon: START,
            after,
        })
    };
    let mut before = Progress::default();
    for (running, retention) in [
        (Some(Place(7)), None),
        (None, pass(None)),
        (Some(Place(1)), pass(Some(Place(u64::MAX >> 1)))),
        (None, None),
    ] {
        let next = Progress { running, retention };
        assert_eq!(store.sweep_progress(Some(next)).await, Ok(before));
        let again = bed.open().await;
        assert_eq!(again.sweep_progress(None).await, Ok(next));
        before = next;
    }
    assert_eq!(store.log(0, 1).await, Ok(vec![]), "it is no command");
}

async fn the_mark_of_the_sweep_is_kept_until_the_next_one(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mark = |hours: u64| Stamp {
        at: START.plus(Duration::from_secs(hours * 3_600)),
        boot: 0x1234_5678_9abc_def0_1234_5678_9abc_def0,
        uptime: Duration::from_micros(hours * 3_600_000_001),
    };
    assert_eq!(store.sweep_mark(None).await, Ok(None));
    assert_eq!(store.sweep_mark(Some(mark(1))).await, Ok(None));
    assert_eq!(store.sweep_mark(None).await, Ok(Some(mark(1))));
    assert_eq!(store.sweep_mark(Some(mark(2))).await, Ok(Some(mark(1))));
    let again = bed.open().await;
    assert_eq!(again.sweep_mark(None).await, Ok(Some(mark(2))));
    assert_eq!(store.sweep_mark(None).await, Ok(Some(mark(2))));
    assert_eq!(store.log(0, 1).await, Ok(vec![]), "a mark is no command");
}

async fn tidying_up_comes_to_an_end_and_changes_nothing_that_is_seen(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    assert_eq!(
        store.tidy().await,
        Ok(false),
        "there is nothing to do at first"
    );
    crowd(&store, "crowd", 300).await;
    let log = whole(&*store).await;
    let mut slices = 0;
    while store.tidy().await.expect("it tidies up") {
        slices += 1;
        assert!(slices < 100, "there must be an end to it");
    }
    assert_eq!(store.tidy().await, Ok(false));
    assert_eq!(whole(&*store).await, log);
}
