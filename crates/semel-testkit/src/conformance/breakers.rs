//! Breakers are records like operations, and never among them.

use std::sync::Arc;
use std::time::Duration;

use semel::store::{Query, Store};
use semel_core::breaker::{
    Act, Admit, Admitted, Ask, Breaker, Order, PhaseKind, Reply, Report, Settings, Window,
};
use semel_core::ledger::{Command, Fence, Record, Rejection, Reply as Told, StateKind};
use semel_core::{AttemptId, Key, Label, Lease, Namespace};
use tokio::task::JoinSet;

use super::hand::{Applied, Asked, complete, spec};
use super::{Bed, cases};

/// Longer than a breaker stays open the first time.
const AFTER_COOL_DOWN: Duration = Duration::from_secs(11);

cases![
    behaviour: [
        a_breaker_is_found_and_is_no_operation,
        of_a_crowd_one_probes,
        another_handle_sees_at_once_that_it_opened,
        reports_of_many_are_all_counted,
        an_order_is_carried_out_once,
    ],
    storage: [],
];

fn name() -> Key {
    Key::new("payments").expect("a valid name")
}

fn asked(act: Act) -> Asked {
    let namespace = Namespace::default();
    let hash = Breaker::hash_of(&namespace, &name());
    let mut asked = Asked::new(
        hash,
        Command::Breaker(Box::new(Ask {
            namespace,
            name: name(),
            settings: Settings::default(),
            act,
        })),
    );
    asked.named = Some(name());
    asked
}

async fn apply(store: &dyn Store, act: Act) -> Applied {
    asked(act)
        .apply(store, None)
        .await
        .expect("the store answers")
}

fn admit(id: u128) -> Act {
    Act::Admit(Admit {
        id: AttemptId::from_random(id),
        lease: Lease::DEFAULT,
    })
}

/// A report of calls that all failed, or all did not.
fn report(store: &dyn Store, fence: u64, ok: bool, count: u32) -> Act {
    let mut calls = Window::default();
    for _ in 0..count {
        calls.count(ok, &Settings::default(), store.now());
    }
    Act::Report(Report {
        fence: Fence(fence),
        probe: None,
        calls,
    })
}

async fn phase(store: &dyn Store) -> Option<PhaseKind> {
    let hash = Breaker::hash_of(&Namespace::default(), &name());
    let current = store.load(&hash).await.expect("it loads");
    let breaker = current.record().and_then(Record::breaker);
    breaker.map(Breaker::kind)
}

async fn listed(store: &dyn Store, states: &[StateKind]) -> usize {
    let query = Query {
        states: states.to_vec(),
        limit: 100,
        ..Query::default()
    };
    store.list(query).await.expect("it lists").items.len()
}

async fn a_breaker_is_found_and_is_no_operation(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    // A key of the same name is something else.
    complete(&*store, &spec(name().as_str()), b"x").await;
    let counted = apply(&*store, report(&*store, 0, false, 1)).await;
    assert!(counted.wrote);
    assert_eq!(phase(&*store).await, Some(PhaseKind::Closed));
    assert_eq!(listed(&*store, &StateKind::BREAKERS).await, 1);
    assert_eq!(listed(&*store, &[]).await, 1, "only the operation");
    assert_eq!(listed(&*store, &StateKind::OPERATIONS).await, 1);
    assert_eq!(listed(&*store, &StateKind::ALL).await, 2);
    let open = [StateKind::Breaker(PhaseKind::Open)];
    assert_eq!(listed(&*store, &open).await, 0);
    let elsewhere = Query {
        namespace: Namespace::new("other").ok(),
        states: StateKind::BREAKERS.to_vec(),
        limit: 1,
        ..Query::default()
    };
    if bed.behind().is_none() {
        let page = store.list(elsewhere).await.expect("it lists");
        assert_eq!(page.items.len(), 0, "it lives behind another wall");
    }
    let log = store.log(0, 100).await.expect("the log is read");
    let last = log.last().expect("there are entries");
    assert_eq!(last.entry.command.name(), "breaker");
    assert_eq!(last.place, Some(counted.place()));
}

async fn opened(bed: &Arc<dyn Bed>) -> Arc<dyn Store> {
    let store = bed.open().await;
    apply(&*store, report(&*store, 0, false, 5)).await;
    assert_eq!(phase(&*store).await, Some(PhaseKind::Open));
    store
}

async fn of_a_crowd_one_probes(bed: Arc<dyn Bed>) {
    let store = opened(&bed).await;
    for too_early in 0..2 {
        let refused = apply(&*store, admit(too_early)).await;
        let Err(Rejection::BreakerOpen { retry_at }) = refused.reply else {
            panic!("it was let through: {:?}", refused.reply);
        };
        assert!(retry_at.is_some_and(|at| at > store.now()));
    }
    bed.clock().advance(AFTER_COOL_DOWN);
    // The store's clock comes from one that has looked.
    phase(&*store).await;
    let mut crowd = JoinSet::new();
    for n in 10..60 {
        let store = bed.open().await;
        crowd.spawn(async move { apply(&*store, admit(n)).await.reply });
    }
    let mut admitted = 0;
    while let Some(reply) = crowd.join_next().await {
        match reply.expect("nobody panics") {
            Ok(Told::Breaker(Reply::Admitted(Admitted { probe_until, .. }))) => {
                assert!(probe_until.is_some());
                admitted += 1;
            }
            Err(Rejection::BreakerOpen { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(admitted, 1);
    assert_eq!(phase(&*store).await, Some(PhaseKind::HalfOpen));
}

async fn another_handle_sees_at_once_that_it_opened(bed: Arc<dyn Bed>) {
    let (store, other) = (bed.open().await, bed.open().await);
    assert!(apply(&*other, admit(1)).await.reply.is_ok());
    apply(&*store, report(&*store, 0, false, 5)).await;
    let refused = apply(&*other, admit(2)).await;
    assert!(refused.reply.is_err(), "{:?}", refused.reply);
    // What it let through before says nothing any more.
    let late = apply(&*other, report(&*other, 0, true, 100)).await;
    assert!(!late.wrote);
    assert_eq!(late.reply, Ok(Told::Breaker(Reply::Ignored)));
}

async fn reports_of_many_are_all_counted(bed: Arc<dyn Bed>) {
    let mut crowd = JoinSet::new();
    for _ in 0..8 {
        let store = bed.open().await;
        crowd.spawn(async move {
            for _ in 0..5 {
                apply(&*store, report(&*store, 0, true, 1)).await;
            }
        });
    }
    while let Some(done) = crowd.join_next().await {
        done.expect("nobody panics");
    }
    let store = bed.open().await;
    let hash = Breaker::hash_of(&Namespace::default(), &name());
    let current = store.load(&hash).await.expect("it loads");
    let breaker = current.record().and_then(Record::breaker);
    let breaker = breaker.expect("it is there");
    assert_eq!(breaker.version.0, 40);
    let semel_core::breaker::Phase::Closed(window) = &breaker.phase else {
        panic!("it is closed");
    };
    assert_eq!(window.total().succeeded, 40);
}

async fn an_order_is_carried_out_once(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let order = |fence| Order {
        fence: Fence(fence),
        by: Label::new("ann").expect("a valid name"),
        note: None,
    };
    let opening = || Act::Open(order(0), None);
    assert!(apply(&*store, opening()).await.wrote);
    assert!(
        !apply(&*store, opening()).await.wrote,
        "a repeat writes nothing"
    );
    let stale = apply(&*store, Act::Close(order(0))).await;
    assert_eq!(stale.reply, Err(Rejection::Fenced));
    assert!(apply(&*store, Act::Close(order(1))).await.wrote);
    assert_eq!(phase(&*store).await, Some(PhaseKind::Closed));
}
