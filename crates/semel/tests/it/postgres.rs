//! What only a server can do to a store: nodes that share it, crashes, cut connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::core::KeyHash;
use semel::core::identity::Kin;
use semel::core::ledger::StateKind;
use semel::store::postgres::PostgresStore;
use semel::store::{Store as _, StoreError};
use semel::{Admission, Effect, Engine, Key, Namespace, Request};
use semel_testkit::postgres::Cluster;
use tokio::task::JoinSet;

async fn open(url: &str) -> Result<PostgresStore, StoreError> {
    Ok(PostgresStore::open(url).await?.without_notes())
}

async fn node(url: &str) -> Engine {
    let store = open(url).await.expect("the store opens");
    let engine = Engine::builder().store(Arc::new(store)).sweep_every(None);
    engine.start().await.expect("an engine starts")
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_on_one_database_see_each_others_claims() {
    let url = Cluster::shared().database();
    let (here, there) = (node(&url).await, node(&url).await);
    let begun = here.begin(Request::new("pay", key("order-7"))).await;
    let Ok(Admission::Execute(permit)) = begun else {
        panic!("nobody else was there: {begun:?}");
    };
    let other = Request::new("pay", key("order-7")).wait(Duration::ZERO);
    let met = there.begin(other.clone()).await;
    assert!(matches!(met, Ok(Admission::Wait { .. })), "{met:?}");
    permit.done(Effect::Created, &42).await.expect("it settles");
    let met = there.begin(other).await;
    assert!(matches!(met, Ok(Admission::Replay(_))), "{met:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_hears_of_what_another_one_settles() {
    let url = Cluster::shared().database();
    let (here, there) = (node(&url).await, open(&url).await.expect("the store opens"));
    let heard = there.listen().await.expect("it listens");
    let mut heard = heard.expect("PostgreSQL can tell");
    // A claim wakes nobody, and what is no key is passed over.
    let name = url.rsplit('/').next().expect("a database");
    Cluster::shared().sql(name, "NOTIFY semel, 'nonsense'");
    for order in ["order-7", "order-8"] {
        let call = here.effect("pay", key(order));
        call.run(|_| async { Ok(42) }).await.expect("it runs");
        let settled = KeyHash::of(&Namespace::default(), &key(order));
        assert_eq!(heard.recv().await, Some(settled));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_a_step_lies_with_the_topmost_operation_and_its_key_is_still_one_key() {
    let url = Cluster::shared().database();
    let engine = node(&url).await;
    let mut parent = None;
    let mut permits = vec![];
    for name in ["order-7", "order-7/pay", "order-7/pay/notify", "x"] {
        let mut request = Request::new("step", key(name));
        if let Some((above, fence)) = parent {
            request = request.parent(above, fence);
        }
        let begun = engine.begin(request).await;
        let Ok(Admission::Execute(permit)) = begun else {
            panic!("{name}: {begun:?}");
        };
        parent = Some((key(name), permit.fence()));
        permits.push(permit);
    }
    let name = url.rsplit('/').next().expect("a database");
    let buckets = "SELECT count(DISTINCT bucket) FROM semel.operations WHERE state = 'running'";
    assert_eq!(Cluster::shared().sql(name, buckets), "1");
    // Whoever comes without the parent meets the same operation.
    for name in ["order-7/pay", "order-7/pay/notify", "x"] {
        let met = engine
            .begin(Request::new("step", key(name)).wait(Duration::ZERO))
            .await;
        assert!(matches!(met, Ok(Admission::Wait { .. })), "{name}: {met:?}");
    }
    for permit in permits.into_iter().rev() {
        permit.done(Effect::Created, &1).await.expect("it settles");
    }
    let met = engine.begin(Request::new("step", key("x"))).await;
    assert!(matches!(met, Ok(Admission::Replay(_))), "{met:?}");
    let verified = engine.verify().await.expect("it is verified");
    assert_eq!(verified.difference, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_at_once_on_an_empty_database_all_start() {
    let url = Cluster::shared().database();
    let mut nodes = JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        nodes.spawn(async move { open(&url).await.map(drop) });
    }
    for started in nodes.join_all().await {
        assert_eq!(started, Ok(()));
    }
}

/// What callers saw of a load under which something breaks.
#[derive(Debug, Default)]
struct Seen {
    /// How often each effect happened.
    effects: BTreeMap<String, u32>,
    /// What callers were told to be done.
    told: BTreeMap<String, u64>,
}

const CALLERS: u64 = 16;
const KEYS_EACH: u64 = 40;

/// The most often that a caller asks again while the store is not available.
const RETRIES_MAX: usize = 600;

async fn caller(engine: Engine, number: u64, seen: Arc<Mutex<Seen>>) {
    for n in 0..KEYS_EACH {
        let (name, value) = (format!("order-{number}-{n}"), number * 1_000 + n);
        for retry in 0.. {
            assert!(retry < RETRIES_MAX, "the store did not come back");
            let (effects, happened) = (Arc::clone(&seen), name.clone());
            let call = engine.effect("pay", key(&name));
            let answer = call
                .run(|_| async move {
                    let mut seen = effects.lock().expect("nobody panics");
                    *seen.effects.entry(happened).or_default() += 1;
                    Ok(value)
                })
                .await;
            match answer {
                Ok(done) => {
                    assert_eq!(done.value, value);
                    let mut seen = seen.lock().expect("nobody panics");
                    seen.told.insert(name, value);
                    break;
                }
                Err(error) if error.code() == "store_unavailable" => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                // An attempt that began and was not heard of again is a doubt, and stays one.
                Err(error) => {
                    assert_eq!(error.code(), "in_doubt", "{error:?}");
                    break;
                }
            }
        }
    }
}

/// Runs callers on two nodes, breaks something in the middle, and checks what they were told.
async fn under_load(url: &str, disturb: impl FnOnce() + Send + 'static) {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let nodes = [node(url).await, node(url).await];
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let engine = nodes[usize::from(number % 2 == 0)].clone();
        callers.spawn(caller(engine, number, Arc::clone(&seen)));
    }
    let enough = CALLERS * KEYS_EACH / 8;
    while (seen.lock().expect("nobody panics").told.len() as u64) < enough {
        tokio::task::yield_now().await;
    }
    let disturbed = tokio::task::spawn_blocking(disturb);
    disturbed.await.expect("it is disturbed");
    callers.join_all().await;

    let fresh = node(url).await;
    let (effects, seen) = {
        let mut seen = seen.lock().expect("nobody panics");
        (
            std::mem::take(&mut seen.effects),
            std::mem::take(&mut seen.told),
        )
    };
    let twice: Vec<_> = effects.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(seen.len() as u64 > enough, "nothing went on afterwards");
    for (name, value) in &seen {
        let record = fresh.load(&Namespace::default(), &key(name)).await;
        let record = record.expect("it loads").expect("it is there");
        assert_eq!(record.kind(), StateKind::Succeeded, "{name}");
        let payload = fresh.payload(&Namespace::default(), &key(name)).await;
        let payload = payload.expect("it loads").expect("it is there");
        assert_eq!(payload, value.to_string().into_bytes(), "{name}");
    }
    let verified = fresh.verify().await.expect("it is verified");
    assert_eq!(verified.difference, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_under_load_loses_nothing_that_was_told() {
    let cluster = Arc::new(Cluster::start());
    let url = cluster.database();
    let crashing = Arc::clone(&cluster);
    under_load(&url, move || {
        crashing.crash();
        crashing.start_again();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_under_load_lose_nothing_that_was_told() {
    let cluster = Arc::new(Cluster::start());
    let url = cluster.database();
    let cutting = Arc::clone(&cluster);
    under_load(&url, move || {
        for _ in 0..10 {
            cutting.sql(
                "postgres",
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE application_name = 'semel'",
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let cluster = Cluster::shared();
    let url = cluster.database();
    drop(open(&url).await.expect("the store opens"));
    let name = url.rsplit('/').next().expect("a database");
    cluster.sql(
        name,
        "UPDATE semel.meta SET value = '99' WHERE name = 'format'",
    );
    let Err(StoreError::Refused(text)) = open(&url).await else {
        panic!("it is refused");
    };
    assert!(
        text.contains("format 99") && text.contains("newer version"),
        "{text}"
    );
}

/// The schema as the version before left it, whole and partitioned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_schema_gets_the_index_of_kin_when_it_is_opened() {
    for partitioned in [false, true] {
        let (cluster, url) = (Cluster::shared(), Cluster::shared().database());
        let name = url.rsplit('/').next().expect("a database");
        cluster.sql(name, "CREATE SCHEMA semel");
        cluster.sql(name, include_str!("../../src/store/postgres/schema/1.sql"));
        cluster.sql(name, include_str!("../../src/store/postgres/schema/2.sql"));
        let format = "UPDATE semel.meta SET value = '2' WHERE name = 'format'";
        cluster.sql(name, format);
        if partitioned {
            cluster.partition(name);
        }
        let engine = node(&url).await;
        let lost = key("mcp/0c52a1d5f1e0b7a3/call:toolu_1");
        let begun = engine.begin(Request::new("pay", lost.clone())).await;
        let Ok(Admission::Execute(permit)) = begun else {
            panic!("nobody else was there: {begun:?}");
        };
        permit.done(Effect::Created, &7).await.expect("it settles");
        let record = engine.load(&Namespace::default(), &lost).await;
        let record = record.expect("it loads").expect("it is there");
        let kin = Kin::counting(&record).expect("nobody knows whether it arrived");
        let found = engine.store().kin(kin).await.expect("it reads");
        let records: Vec<_> = found.into_iter().map(|stored| stored.record).collect();
        assert_eq!(records, [record]);
    }
}
