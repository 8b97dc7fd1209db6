//! A primary that is lost under load: nodes find the standby that took over by the same URL, nothing that
//! was told is lost, no effect happens twice, no fence goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::core::ledger::{Fence, StateKind};
use semel::store::StoreError;
use semel::store::postgres::PostgresStore;
use semel::{Admission, Effect, Engine, Key, Lease, Namespace, Request};
use semel_testkit::conformance::scratch;
use semel_testkit::postgres::Cluster;
use semel_testkit::scaled;
use tokio::task::JoinSet;

/// The attempts of each key before the one that acts: so its fence rises.
const ATTEMPTS_BEFORE: u64 = 2;

/// The most often that a caller asks again for one key; the pause between makes it a minute.
const RETRIES_MAX: usize = 3_000;
const PAUSE: Duration = Duration::from_millis(20);

/// The URL of a database on several servers, in this order.
fn url(servers: &[&Cluster], database: &str) -> String {
    let hosts = servers.iter().map(|server| {
        let directory = server.directory().display().to_string();
        format!("{}:{}", directory.replace('/', "%2F"), server.port())
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    format!("postgres://semel@{hosts}/{database}?connect_timeout=1")
}

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

/// What is known outside the ledger.
struct World {
    /// Each effect is a line in it.
    sink: PathBuf,
    /// The highest fence that anybody was told.
    fences: Mutex<BTreeMap<String, Fence>>,
    /// The keys that somebody was told to be done.
    told: Mutex<BTreeSet<String>>,
}

impl World {
    /// Hears of a fence, which must be higher than those before it.
    fn hear(&self, name: &str, fence: Fence) {
        let mut fences = self.fences.lock().expect("nobody panics");
        let before = fences.insert(name.to_owned(), fence);
        assert!(
            before.is_none_or(|before| before < fence),
            "{name}: fence {fence:?} after {before:?}"
        );
    }

    fn act(&self, name: &str) {
        let mut options = OpenOptions::new();
        let sink = options.append(true).create(true).open(&self.sink);
        let mut sink = sink.expect("the sink opens");
        sink.write_all(format!("{name}\n").as_bytes())
            .expect("it is written");
    }

    fn tell(&self, name: &str) {
        let mut told = self.told.lock().expect("nobody panics");
        told.insert(name.to_owned());
    }

    fn told(&self) -> BTreeSet<String> {
        self.told.lock().expect("nobody panics").clone()
    }
}

/// Asks for one key until it is done, or in doubt.
async fn settle(engine: &Engine, name: &str, world: &World) {
    let request = Request::new("pay", key(name))
        .lease(Lease::new(Duration::from_secs(2)).expect("a lease"))
        .wait(Duration::from_secs(1));
    for _ in 0..RETRIES_MAX {
        let permit = match engine.begin(request.clone()).await {
            Ok(Admission::Execute(permit)) => permit,
            Ok(Admission::Replay(_)) => return world.tell(name),
            Ok(Admission::InDoubt(_)) => return,
            Ok(Admission::Wait { .. }) => continue,
            Ok(Admission::Probe(_)) => panic!("{name} has no probe"),
            Err(error) => {
                assert_eq!(error.code(), "store_unavailable", "{name}: {error:?}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        world.hear(name, permit.fence());
        let settled = if u64::from(permit.attempt()) <= ATTEMPTS_BEFORE {
            permit.not_done("not yet").await.map(|_| false)
        } else {
            world.act(name);
            permit.done(Effect::Created, name).await.map(|_| true)
        };
        // What could not be settled is asked for again, as a caller would.
        if let Ok(true) = settled {
            return world.tell(name);
        }
    }
    panic!("{name}: no server came back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_takes_over_has_all_that_was_told() {
    let primary = Arc::new(Cluster::start());
    primary.sql("postgres", "CREATE DATABASE ledger");
    let standby = Arc::new(primary.synchronous_standby());
    let url = url(&[&primary, &standby], "ledger");
    let directory = scratch();
    let world = Arc::new(World {
        sink: directory.path().join("sink"),
        fences: Mutex::default(),
        told: Mutex::default(),
    });
    let (callers, keys_each) = (scaled(64, 8), scaled(200, 30));
    let nodes = [node(&url).await, node(&url).await];
    let mut running = JoinSet::new();
    // Each key is asked for on both nodes.
    for (engine, caller) in nodes.iter().flat_map(|n| (0..callers).map(move |c| (n, c))) {
        let (engine, world) = (engine.clone(), Arc::clone(&world));
        running.spawn(async move {
            for n in 0..keys_each {
                settle(&engine, &format!("order-{caller}-{n}"), &world).await;
            }
        });
    }
    let enough = usize::try_from(callers * keys_each / 4).expect("a small number");
    while world.told().len() < enough {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (lost, taking_over) = (Arc::clone(&primary), Arc::clone(&standby));
    let watched = Arc::clone(&world);
    let failing_over = tokio::task::spawn_blocking(move || {
        // The standby falls behind before the primary is lost. Whoever is told something now, without
        // the standby, is told what is lost.
        let behind = taking_over.stop_receiving();
        let already = watched.told().len();
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let told_anyway = || watched.told().len() >= already + enough;
        while lost.sql("postgres", waiting) == "0" && !told_anyway() {}
        lost.crash();
        behind.end();
        taking_over.promote();
    });
    failing_over.await.expect("it fails over");
    let before = world.told().len();
    running.join_all().await;

    let told = world.told();
    assert!(told.len() > before, "nothing went on after the fail-over");
    let sink = std::fs::read_to_string(&world.sink).expect("the sink is read");
    let mut acted = BTreeSet::new();
    for name in sink.lines() {
        assert!(acted.insert(name.to_owned()), "{name} happened twice");
    }
    let fresh = node(&url).await;
    let fences = world.fences.lock().expect("nobody panics").clone();
    for (name, fence) in &fences {
        let record = fresh.load(&Namespace::default(), &key(name)).await;
        let record = record.expect("it loads");
        let record = record.unwrap_or_else(|| panic!("{name} is lost"));
        assert!(
            record.fence() >= *fence,
            "{name}: {record:?} after {fence:?}"
        );
        if told.contains(name) {
            assert_eq!(record.kind(), StateKind::Succeeded, "{name}");
            assert!(acted.contains(name), "{name} did not happen");
            let payload = fresh.payload(&Namespace::default(), &key(name)).await;
            let payload = payload.expect("it loads").expect("it is there");
            assert_eq!(payload, format!("\"{name}\"").into_bytes(), "{name}");
        }
    }
    let verified = fresh.verify().await.expect("it is verified");
    assert_eq!(verified.difference, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_that_takes_writes_is_found_behind_those_that_do_not() {
    let (primary, silent, down) = (Cluster::start(), Cluster::start(), Cluster::start());
    primary.sql("postgres", "CREATE DATABASE ledger");
    let standby = primary.synchronous_standby();
    down.crash();
    let stopped = silent.stop_listening();
    let all = [&silent, &down, &standby, &primary];
    let store = open(&url(&all, "ledger")).await;
    drop(store.expect("the primary is found"));
    // Without one that takes writes, the one that was nearest to it is spoken of.
    let error = open(&url(&all[..3], "ledger")).await;
    let Err(StoreError::Unavailable(text)) = error else {
        panic!("there is none: {error:?}");
    };
    assert!(text.contains("the URL must lead to the primary"), "{text}");
    drop(stopped);
}
