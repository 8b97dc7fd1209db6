//! Lists: every filter, both orders, and pages that lose and repeat nothing while rows change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use semel::store::{PAGE_MAX, Page, Place, Query, Store, Stored};
use semel_core::ledger::{
    Command, Horizon, Order, Record, Resolution, Resolve, Spec, StateKind, Submit, Version,
};
use semel_core::{Digest, Effect, Label, Namespace, Note, Outcome, Verdict};

use super::cases;
use super::hand::AFTER_LEASE;
use super::hand::{Asked, begin, complete, done, hash, outcome, settle, spec, stored};
use super::{Bed, START};

cases![
    behaviour: [
        records_are_listed_newest_first_or_oldest_first,
        pages_add_up_to_the_whole_in_both_orders,
        pages_lose_and_repeat_nothing_while_rows_change,
        open_operations_are_listed_wherever_they_lie,
        an_operation_that_opens_again_is_listed_as_open,
        states_are_listed_as_they_are_stored,
        failures_are_found_among_many_others,
        a_key_that_was_forgotten_and_begun_again_is_listed_by_its_new_time,
        a_page_has_a_limit_and_at_least_one_record,
        operations_are_found_by_what_their_clients_call_them,
    ],
    storage: [
        what_was_buried_is_found_by_what_its_client_called_it,
        every_filter_keeps_what_it_names_and_nothing_else,
    ],
];

const OPEN: [StateKind; 4] = [
    StateKind::Pending,
    StateKind::Running,
    StateKind::Doubtful,
    StateKind::Dead,
];

fn query(limit: usize) -> Query {
    Query {
        limit,
        ..Query::default()
    }
}

async fn page(store: &dyn Store, query: Query) -> Page {
    store.list(query).await.expect("it lists")
}

/// More records than any of these tests makes.
const ROWS_MAX: usize = 10_000;

/// Follows the cursor to the end.
async fn walk(store: &dyn Store, mut query: Query) -> Vec<Stored> {
    let mut all = vec![];
    loop {
        let page = page(store, query.clone()).await;
        assert!(page.items.len() <= query.limit);
        all.extend(page.items);
        assert!(all.len() < ROWS_MAX, "there must be an end to the pages");
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return all,
        }
    }
}

fn places(items: &[Stored]) -> Vec<Place> {
    items.iter().map(|stored| stored.place).collect()
}

fn keys(items: &[Stored]) -> Vec<String> {
    let key = |stored: &Stored| match &*stored.record {
        Record::Operation(operation) => operation.spec.key.to_string(),
        Record::Tombstone(tombstone) => tombstone.key.to_string(),
        Record::Stub(_) => "a stub".to_owned(),
        Record::Breaker(_) => "a breaker".to_owned(),
    };
    items.iter().map(key).collect()
}

async fn submit(store: &dyn Store, spec: &Spec, queue: Option<&str>) {
    let queue = queue.map(|queue| Label::new(queue).expect("a valid queue"));
    let command = Command::Submit(Submit {
        spec: Arc::new(spec.clone()),
        queue,
        run_at: None,
        task: None,
    });
    let submitted = Asked::new(hash(spec), command).apply(store, None).await;
    assert!(submitted.expect("it is taken").wrote);
}

async fn ended(store: &dyn Store, spec: &Spec, verdict: Verdict) {
    let begun = begin(spec, 1).apply(store, None).await.expect("begun");
    let fence = stored(&begun.current).record.fence().0;
    let settled = settle(spec, 1, fence, verdict).apply(store, None).await;
    assert!(settled.expect("it is taken").wrote);
}

fn rejected() -> Verdict {
    Verdict::NotDone {
        reject: true,
        error: None,
        retry_after: None,
    }
}

async fn order(store: &dyn Store, spec: &Spec, make: impl FnOnce(Order) -> Command) {
    let current = store.load(&hash(spec)).await.expect("it loads");
    let command = make(Order {
        version: current.record().map_or(Version(0), Record::version),
        by: Label::new("ann").expect("a valid name"),
        note: None,
    });
    let given = Asked::new(hash(spec), command).apply(store, None).await;
    assert!(given.expect("it is taken").wrote);
}

async fn records_are_listed_newest_first_or_oldest_first(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    assert!(page(&*store, query(10)).await.items.is_empty());
    for key in ["a", "b", "c"] {
        complete(&*store, &spec(key), b"x").await;
    }
    let newest = page(&*store, query(10)).await;
    assert_eq!(keys(&newest.items), ["c", "b", "a"]);
    assert_eq!(newest.next, None);
    let oldest = Query {
        oldest_first: true,
        ..query(10)
    };
    assert_eq!(keys(&page(&*store, oldest).await.items), ["a", "b", "c"]);
}

async fn every_filter_keeps_what_it_names_and_nothing_else(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut walled = spec("wall/1");
    walled.namespace = Namespace::new("other").expect("a valid namespace");
    let mut named = spec("named/1");
    named.name = Label::new("send-mail").expect("a valid name");
    let mut doored = spec("door/1");
    doored.door = Label::new("cli").ok();
    for spec in [&walled, &named, &doored, &spec("plain/1")] {
        complete(&*store, spec, b"x").await;
    }
    bed.clock().advance(Duration::from_secs(10));
    submit(&*store, &spec("queue/1"), Some("mails")).await;
    submit(&*store, &spec("queue/2"), None).await;
    bed.clock().advance(Duration::from_secs(10));
    ended(&*store, &spec("dead/1"), rejected()).await;
    let at = |seconds| Some(START.plus(Duration::from_secs(seconds)));
    let all = || query(100);
    let cases = [
        (
            Query {
                namespace: Some(walled.namespace.clone()),
                ..all()
            },
            vec!["wall/1"],
        ),
        (
            Query {
                name: Some("send-mail".to_owned()),
                ..all()
            },
            vec!["named/1"],
        ),
        (
            Query {
                door: Some("cli".to_owned()),
                ..all()
            },
            vec!["door/1"],
        ),
        (
            Query {
                queue: Some("mails".to_owned()),
                ..all()
            },
            vec!["queue/1"],
        ),
        (
            Query {
                prefix: Some("queue/".to_owned()),
                ..all()
            },
            vec!["queue/2", "queue/1"],
        ),
        (
            Query {
                prefix: Some("ueue".to_owned()),
                ..all()
            },
            vec![],
        ),
        (
            Query {
                states: vec![StateKind::Dead],
                ..all()
            },
            vec!["dead/1"],
        ),
        (
            Query {
                states: vec![StateKind::Pending, StateKind::Dead],
                ..all()
            },
            vec!["dead/1", "queue/2", "queue/1"],
        ),
        (
            Query {
                states: vec![StateKind::Succeeded],
                namespace: Some(walled.namespace.clone()),
                ..all()
            },
            vec!["wall/1"],
        ),
        (
            Query {
                since: at(10),
                ..all()
            },
            vec!["dead/1", "queue/2", "queue/1"],
        ),
        (
            Query {
                since: at(10),
                until: at(20),
                ..all()
            },
            vec!["queue/2", "queue/1"],
        ),
        (
            Query {
                until: at(0),
                ..all()
            },
            vec![],
        ),
    ];
    for (query, expected) in cases {
        let found = page(&*store, query.clone()).await.items;
        assert_eq!(keys(&found), expected, "{query:?}");
        let turned = Query {
            oldest_first: true,
            ..query.clone()
        };
        let mut found = keys(&page(&*store, turned).await.items);
        found.reverse();
        assert_eq!(found, expected, "the oldest first of {query:?}");
    }
}

async fn pages_add_up_to_the_whole_in_both_orders(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    for n in 0..30 {
        complete(&*store, &spec(&format!("order-{n}")), b"x").await;
        submit(&*store, &spec(&format!("task-{n}")), None).await;
    }
    for prefix in [None, Some("order-".to_owned()), Some("task-1".to_owned())] {
        for oldest_first in [false, true] {
            let query = |limit| Query {
                prefix: prefix.clone(),
                oldest_first,
                ..query(limit)
            };
            let whole = places(&page(&*store, query(PAGE_MAX)).await.items);
            let sorted = if oldest_first {
                whole.is_sorted()
            } else {
                whole.iter().rev().is_sorted()
            };
            assert!(sorted, "{whole:?}");
            for limit in [1, 2, 7, 29, 30, 31] {
                let walked = walk(&*store, query(limit)).await;
                assert_eq!(places(&walked), whole, "pages of {limit}");
            }
        }
    }
}

async fn pages_lose_and_repeat_nothing_while_rows_change(bed: Arc<dyn Bed>) {
    const ROWS: usize = 40;
    for oldest_first in [false, true] {
        for states in [vec![], OPEN.to_vec()] {
            let store = bed.open().await;
            let name = format!("{oldest_first}-{}", states.len());
            let wanted: Vec<Spec> = (0..ROWS)
                .map(|n| spec(&format!("{name}/keep-{n}")))
                .collect();
            let settling: Vec<Spec> = (0..ROWS)
                .map(|n| spec(&format!("{name}/end-{n}")))
                .collect();
            for (keep, end) in wanted.iter().zip(&settling) {
                submit(&*store, keep, None).await;
                begin(end, 1).apply(&*store, None).await.expect("begun");
            }
            let mut query = Query {
                prefix: Some(format!("{name}/")),
                states: states.clone(),
                oldest_first,
                ..query(3)
            };
            let mut seen = vec![];
            let mut round = 0;
            loop {
                let page = page(&*store, query.clone()).await;
                seen.extend(places(&page.items));
                let Some(next) = page.next else { break };
                query.cursor = Some(next);
                // Between two pages: one row ends, one is renewed in its state, one comes, and
                // the store tidies up.
                if let Some(end) = settling.get((round * 7) % ROWS) {
                    let current = store.load(&hash(end)).await.expect("it loads");
                    let fence = stored(&current).record.fence().0;
                    done(end, 1, fence, b"x")
                        .apply(&*store, None)
                        .await
                        .expect("it settles");
                }
                submit(&*store, &spec(&format!("{name}/new-{round}")), None).await;
                let keep = &wanted[round % ROWS];
                submit_again(&*store, keep).await;
                store.tidy().await.expect("it tidies up");
                round += 1;
                assert!(round < 1_000, "there must be an end to the pages");
            }
            let once: BTreeSet<Place> = seen.iter().copied().collect();
            assert_eq!(once.len(), seen.len(), "a row was listed twice");
            for keep in &wanted {
                let current = store.load(&hash(keep)).await.expect("it loads");
                assert!(once.contains(&stored(&current).place), "{:?}", keep.key);
            }
        }
    }
}

/// Attaches a queue: a change that leaves the state as it is.
async fn submit_again(store: &dyn Store, spec: &Spec) {
    let command = Command::Submit(Submit {
        spec: Arc::new(spec.clone()),
        queue: Label::new("mails").ok(),
        run_at: None,
        task: None,
    });
    let again = Asked::new(hash(spec), command).apply(store, None).await;
    again.expect("it is answered");
}

async fn open_operations_are_listed_wherever_they_lie(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut expected = vec![];
    for round in 0..3 {
        for n in 0..20 {
            let settled = spec(&format!("{round}/settled-{n}"));
            complete(&*store, &settled, b"x").await;
            if n % 5 == 0 {
                let open = spec(&format!("{round}/open-{n}"));
                submit(&*store, &open, None).await;
                expected.insert(0, open.key.to_string());
            }
        }
        // The older rounds are in order when the next one comes, the newest is not.
        for limit in [1, 4, 100] {
            let query = Query {
                states: OPEN.to_vec(),
                ..query(limit)
            };
            assert_eq!(keys(&walk(&*store, query).await), expected);
        }
        while store.tidy().await.expect("it tidies up") {}
        let query = Query {
            states: OPEN.to_vec(),
            ..query(4)
        };
        assert_eq!(keys(&walk(&*store, query).await), expected);
    }
    // One that ends after the store was tidied up is open no longer.
    let first = spec("0/open-0");
    begin(&first, 1).apply(&*store, None).await.expect("begun");
    done(&first, 1, 1, b"x")
        .apply(&*store, None)
        .await
        .expect("settled");
    expected.pop();
    let query = Query {
        states: OPEN.to_vec(),
        ..query(4)
    };
    assert_eq!(keys(&walk(&*store, query).await), expected);
}

async fn an_operation_that_opens_again_is_listed_as_open(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let failed = spec("order-7");
    ended(
        &*store,
        &failed,
        Verdict::Done(Outcome {
            ok: false,
            payload: None,
            ..outcome(false, b"")
        }),
    )
    .await;
    complete(&*store, &spec("order-8"), b"x").await;
    while store.tidy().await.expect("it tidies up") {}
    let open = || Query {
        states: OPEN.to_vec(),
        ..query(10)
    };
    assert!(page(&*store, open()).await.items.is_empty());
    order(&*store, &failed, Command::Retry).await;
    assert_eq!(keys(&page(&*store, open()).await.items), ["order-7"]);
}

async fn states_are_listed_as_they_are_stored(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let (doubted, lapsed) = (spec("doubted"), spec("lapsed"));
    ended(&*store, &doubted, Verdict::Unknown { error: None }).await;
    begin(&lapsed, 1).apply(&*store, None).await.expect("begun");
    bed.clock().advance(AFTER_LEASE);
    // A lease end that nobody has written is the reader's to judge, not the store's.
    let running = Query {
        states: vec![StateKind::Running],
        ..query(10)
    };
    assert_eq!(keys(&page(&*store, running).await.items), ["lapsed"]);
    let doubtful = || Query {
        states: vec![StateKind::Doubtful],
        ..query(10)
    };
    assert_eq!(keys(&page(&*store, doubtful()).await.items), ["doubted"]);
    order(&*store, &doubted, |order| {
        Command::Resolve(Resolve {
            order,
            resolution: Resolution::NotDone,
        })
    })
    .await;
    assert!(page(&*store, doubtful()).await.items.is_empty());
}

async fn failures_are_found_among_many_others(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut failed = vec![];
    for n in 0..60 {
        let ok = n % 7 != 0;
        let spec = spec(&format!("order-{n}"));
        let outcome = Outcome {
            ok,
            effect: Effect::Unknown,
            payload: None,
        };
        ended(&*store, &spec, Verdict::Done(outcome)).await;
        if !ok {
            failed.insert(0, spec.key.to_string());
        }
    }
    for (states, expected) in [
        (vec![StateKind::Failed], &failed[..]),
        (vec![StateKind::Failed, StateKind::Tombstone], &failed[..]),
        (vec![StateKind::Tombstone], &[]),
    ] {
        for limit in [2, 100] {
            let query = Query {
                states: states.clone(),
                ..query(limit)
            };
            assert_eq!(keys(&walk(&*store, query).await), expected, "{states:?}");
        }
    }
}

/// Its place is that of its first life, among the oldest.
async fn a_key_that_was_forgotten_and_begun_again_is_listed_by_its_new_time(bed: Arc<dyn Bed>) {
    const DAYS: Duration = Duration::from_secs(100 * 86_400);
    let store = bed.open().await;
    let (again, other) = (spec("order-7"), spec("order-8"));
    complete(&*store, &again, b"x").await;
    complete(&*store, &other, b"x").await;
    order(&*store, &again, Command::Forget).await;
    bed.clock().advance(DAYS);
    begin(&again, 2).apply(&*store, None).await.expect("begun");
    let recent = Query {
        since: Some(START.plus(DAYS)),
        ..query(10)
    };
    assert_eq!(keys(&page(&*store, recent).await.items), ["order-7"]);
    let old = Query {
        until: Some(START.plus(DAYS)),
        ..query(10)
    };
    assert_eq!(keys(&page(&*store, old).await.items), ["order-8"]);
}

async fn a_page_has_a_limit_and_at_least_one_record(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut submitting = tokio::task::JoinSet::new();
    for n in 0..PAGE_MAX + 10 {
        let (store, spec) = (Arc::clone(&store), spec(&format!("order-{n}")));
        submitting.spawn(async move { submit(&*store, &spec, None).await });
    }
    submitting.join_all().await;
    let first = page(&*store, query(usize::MAX)).await;
    assert_eq!(first.items.len(), PAGE_MAX);
    let rest = Query {
        cursor: first.next,
        ..query(usize::MAX)
    };
    assert_eq!(page(&*store, rest).await.items.len(), 10);
    assert_eq!(page(&*store, query(0)).await.items.len(), 1);
}

/// Describes a request of somebody, through a door that scopes keys.
fn scoped(whose: char, shown: &str, called: &str) -> Spec {
    let tag = whose.to_string().repeat(16);
    let mut spec = spec(&format!("proxy/{tag}/{shown}"));
    spec.client_key = Note::new(called).ok();
    spec.door = Label::new("proxy").ok();
    spec
}

fn called(text: &str) -> Query {
    Query {
        client_key: Some(text.to_owned()),
        ..query(100)
    }
}

async fn operations_are_found_by_what_their_clients_call_them(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let (ann, bob) = (
        scoped('a', "order-7", "order-7"),
        scoped('b', "order-7", "order-7"),
    );
    let hidden = scoped('a', &Digest::of(b"order-7#2").hex(), "order-7#2");
    let longer = scoped('a', "order-70", "order-70");
    // They say the word too, and no client calls them so.
    let mut named = spec("mail-1");
    named.name = Label::new("order-7").expect("a valid name");
    for settled in [&ann, &hidden, &longer, &named, &spec("order-7")] {
        complete(&*store, settled, b"x").await;
    }
    ended(&*store, &bob, Verdict::Unknown { error: None }).await;
    let keys_of = |specs: &[&Spec]| -> Vec<String> {
        specs.iter().map(|spec| spec.key.to_string()).collect()
    };
    let doubtful = Query {
        states: vec![StateKind::Doubtful],
        ..called("order-7")
    };
    let prefixed = |prefix: &str| Query {
        prefix: Some(prefix.to_owned()),
        ..query(100)
    };
    let plain = spec("order-7");
    for (query, expected) in [
        (called("order-7"), keys_of(&[&bob, &ann])),
        (called("order-7#2"), keys_of(&[&hidden])),
        (called("order-70"), keys_of(&[&longer])),
        (called("order-"), vec![]),
        (called("a"), vec![]),
        (called(ann.key.as_str()), vec![]),
        (doubtful, keys_of(&[&bob])),
        (
            prefixed("order-"),
            keys_of(&[&bob, &plain, &longer, &hidden, &ann]),
        ),
        (prefixed("order-7#"), keys_of(&[&hidden])),
        (prefixed("rder-7"), vec![]),
        (prefixed("proxy/b"), keys_of(&[&bob])),
    ] {
        let found = page(&*store, query.clone()).await;
        assert_eq!(keys(&found.items), expected, "{query:?}");
        assert_eq!(found.next, None, "{query:?}");
        let single = Query { limit: 1, ..query };
        assert_eq!(keys(&walk(&*store, single).await), expected);
    }
}

/// A tombstone has forgotten everything but its key.
async fn what_was_buried_is_found_by_what_its_client_called_it(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let shown = scoped('a', "order-7", "order-7");
    let hidden = scoped('b', &Digest::of(b"order-7#2").hex(), "order-7#2");
    for spec in [&shown, &hidden, &spec("order-7")] {
        complete(&*store, spec, b"x").await;
    }
    let retention = shown.policy.retention.length();
    bed.clock().advance(retention + AFTER_LEASE);
    for spec in [&shown, &hidden, &spec("order-7")] {
        let bury = Command::Bury(Horizon(store.now()));
        let buried = Asked::new(hash(spec), bury).apply(&*store, None).await;
        assert!(buried.expect("it is buried").wrote);
    }
    let found = async |query: Query| keys(&page(&*store, query).await.items);
    assert_eq!(found(called("order-7")).await, [shown.key.as_str()]);
    assert_eq!(found(called("order-7#2")).await, [hidden.key.as_str()]);
    assert!(found(called("order")).await.is_empty());
    let prefixed = Query {
        prefix: Some("order-".to_owned()),
        ..query(100)
    };
    assert_eq!(found(prefixed).await, ["order-7", shown.key.as_str()]);
}
