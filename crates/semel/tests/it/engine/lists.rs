//! Lists judge the lease themselves: a doubt that nobody has written down yet is listed as one.

use std::time::Duration;

use semel::core::ledger::StateKind;
use semel::store::{Place, Query};
use semel::{Effect, Engine, Permit, Request};

use super::on_both_stores;
use super::world::{World, key, lease, permit};

on_both_stores![
    an_ended_lease_is_listed_as_a_doubt_and_not_as_running,
    pages_of_judged_states_miss_and_repeat_nothing,
    a_page_that_ends_with_its_last_match_says_whether_there_is_more,
    evidence_is_listed_as_settled_once_the_lease_has_ended,
];

async fn running(engine: &Engine, name: &str, seconds: u64) -> Permit {
    let request = Request::new("create-order", key(name)).lease(lease(seconds));
    permit(engine, request).await
}

/// Returns the keys on a page, and where the next one begins.
async fn page(
    engine: &Engine,
    states: &[StateKind],
    limit: usize,
    cursor: Option<Place>,
) -> (Vec<String>, Option<Place>) {
    let query = Query {
        states: states.to_vec(),
        limit,
        cursor,
        ..Query::default()
    };
    let page = engine.list(query).await.expect("it lists");
    let key = |record: &semel::core::ledger::Record| match record.operation() {
        Some(operation) => operation.spec.key.to_string(),
        None => panic!("only operations are stored here"),
    };
    let keys = page.items.iter().map(|stored| key(&stored.record));
    (keys.collect(), page.next)
}

async fn keys(engine: &Engine, states: &[StateKind]) -> Vec<String> {
    page(engine, states, 100, None).await.0
}

async fn an_ended_lease_is_listed_as_a_doubt_and_not_as_running(world: World) {
    let engine = world.engine().await;
    let _lapsed = running(&engine, "lapsed", 10).await;
    let _alive = running(&engine, "alive", 3_600).await;
    let doubted = running(&engine, "doubted", 10).await;
    doubted.unknown("connection reset").await.expect("taken");
    assert_eq!(
        keys(&engine, &[StateKind::Running]).await,
        ["alive", "lapsed"]
    );
    assert_eq!(keys(&engine, &[StateKind::Doubtful]).await, ["doubted"]);
    let entries = engine.last_entry().await.expect("the log has an end");
    world.clock.skip(Duration::from_secs(60));
    assert_eq!(keys(&engine, &[StateKind::Running]).await, ["alive"]);
    assert_eq!(
        keys(&engine, &[StateKind::Doubtful]).await,
        ["doubted", "lapsed"]
    );
    assert_eq!(
        keys(&engine, &[StateKind::Doubtful, StateKind::Running]).await,
        ["doubted", "alive", "lapsed"]
    );
    assert_eq!(
        keys(&engine, &[]).await,
        ["doubted", "alive", "lapsed"],
        "without a state all are listed"
    );
    let after = engine.last_entry().await.expect("the log has an end");
    assert_eq!(entries, after, "looking writes nothing");
}

async fn pages_of_judged_states_miss_and_repeat_nothing(world: World) {
    let engine = world.engine().await;
    let mut held = vec![];
    let mut wanted = vec![];
    for number in 0..40 {
        let name = format!("order-{number:02}");
        let lapses = number % 3 == 0;
        held.push(running(&engine, &name, if lapses { 10 } else { 3_600 }).await);
        if lapses {
            wanted.insert(0, name);
        }
    }
    world.clock.skip(Duration::from_secs(60));
    for limit in [1, 2, 3, 14, 100] {
        let (mut found, mut cursor) = (vec![], None);
        loop {
            let (keys, next) = page(&engine, &[StateKind::Doubtful], limit, cursor).await;
            assert!(keys.len() <= limit);
            found.extend(keys);
            cursor = next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(found, wanted, "in pages of {limit}");
    }
}

async fn a_page_that_ends_with_its_last_match_says_whether_there_is_more(world: World) {
    let engine = world.engine().await;
    for name in ["a", "b"] {
        let permit = running(&engine, name, 10).await;
        permit.done(Effect::Created, &1).await.expect("taken");
    }
    let (keys, next) = page(&engine, &[StateKind::Succeeded], 2, None).await;
    assert_eq!((keys.len(), next), (2, None));
    let (keys, next) = page(&engine, &[StateKind::Succeeded], 1, None).await;
    assert_eq!((keys.len(), next.is_some()), (1, true));
}

async fn evidence_is_listed_as_settled_once_the_lease_has_ended(world: World) {
    let engine = world.engine().await;
    let request = || {
        Request::new("create-order", key("order-7"))
            .lease(lease(10))
            .class(semel::Class::Idempotent)
    };
    let older = permit(&engine, request()).await;
    world.clock.skip(Duration::from_secs(60));
    let _newer = permit(&engine, request()).await;
    older
        .done(Effect::Created, &1)
        .await
        .expect_err("it is kept as evidence");
    assert_eq!(keys(&engine, &[StateKind::Running]).await, ["order-7"]);
    assert!(keys(&engine, &[StateKind::Succeeded]).await.is_empty());
    world.clock.skip(Duration::from_secs(60));
    assert_eq!(keys(&engine, &[StateKind::Succeeded]).await, ["order-7"]);
    assert!(keys(&engine, &[StateKind::Running]).await.is_empty());
    assert!(keys(&engine, &[StateKind::Doubtful]).await.is_empty());
}
