//! Copies between stores: a copy holds what its source holds, and no key can be begun in both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use semel::core::Digest;
use semel::core::identity::Kin;
use semel::core::ledger::{Fence, StateKind};
use semel::core::queue::{self, QueueHash, Spot};
use semel::store::{
    Chunk, INPUT, Moved, PAGE_MAX, Place, Query, Stage, Standing, Store, WAITING_MAX, Waiting,
};
use semel::{
    Admission, Copied, Effect, Engine, Error, Key, Label, Namespace, Permit, Request, Way,
};
use semel_testkit::conformance::{Bed, ManualClock, SqliteBed, scratch};
use semel_testkit::differential::run;
use semel_testkit::postgres::Cluster;
use semel_testkit::scaled;

/// Commands in one stream: enough for an operation to be settled, buried, dropped and begun anew.
const STEPS: usize = 300;

async fn engine(store: Arc<dyn Store>) -> Engine {
    let engine = Engine::builder().store(store).sweep_every(None);
    engine.start().await.expect("an engine starts")
}

fn request(key: &str) -> Request {
    Request::new("pay", Key::new(key).expect("a key")).wait(Duration::ZERO)
}

async fn permit(engine: &Engine, key: &str) -> Permit {
    match engine.begin(request(key)).await {
        Ok(Admission::Execute(permit)) => permit,
        other => panic!("a permit was expected: {other:?}"),
    }
}

async fn settle(engine: &Engine, key: &str) {
    let done = permit(engine, key).await.done(Effect::Created, key);
    done.await.expect("it is taken");
}

fn moving(drain: Duration) -> Way {
    Way::Move {
        drain,
        shown: "the other one".to_owned(),
        by: Label::new("ann").expect("a label"),
    }
}

async fn copy(from: &Engine, to: &Engine, way: &Way) -> Result<Copied, Error> {
    from.copy_to(to, way, |_| {}).await
}

/// Everything that a store holds, without the numbers that are its own, and short enough to be shown.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    /// Each record with what it answered, and what its attempts have written.
    records: BTreeMap<String, (String, Option<Digest>, Vec<Digest>)>,
    /// The entries of each operation, in their order.
    log: Vec<String>,
}

#[track_caller]
fn same(seed: u64, expected: &Held, found: &Held) {
    assert_eq!(expected.log, found.log, "seed {seed}");
    for (key, record) in &expected.records {
        assert_eq!(Some(record), found.records.get(key), "seed {seed}");
    }
    assert_eq!(expected.records.len(), found.records.len(), "seed {seed}");
}

async fn held(store: &Arc<dyn Store>) -> Held {
    let mut records = BTreeMap::new();
    let mut kin: BTreeMap<Kin, BTreeSet<Place>> = BTreeMap::new();
    let mut lines: BTreeMap<QueueHash, BTreeSet<Place>> = BTreeMap::new();
    let now = store.now();
    let mut query = Query {
        states: StateKind::ALL.to_vec(),
        limit: PAGE_MAX,
        ..Query::default()
    };
    loop {
        let page = store.list(query.clone()).await.expect("it can be listed");
        for stored in page.items {
            let payload = store.payload(stored.place).await.expect("it is there");
            let attempts = stored.record.operation().map(|it| it.attempts.clone());
            let mut streams = vec![];
            let attempts = attempts.unwrap_or_default().into_iter();
            for fence in attempts.map(|attempt| attempt.fence).chain([INPUT]) {
                let stream = store.stream(stored.place, fence).await;
                let stream = format!("{:?}", stream.expect("it can be read"));
                streams.push(Digest::of(stream.as_bytes()));
            }
            if let Some(of) = Kin::counting(&stored.record) {
                kin.entry(of).or_default().insert(stored.place);
            }
            if let Some(spot) = Spot::of(&stored.record) {
                lines.entry(spot.queue).or_default();
                if let queue::Standing::Waiting { at, until, .. } = spot.standing
                    && at <= now
                    && until.is_none_or(|until| until > now)
                {
                    lines.entry(spot.queue).or_default().insert(stored.place);
                }
            }
            let key = format!("{:?}", stored.record.key_hash());
            let record = format!("{:?}", stored.record);
            let payload = payload.map(|bytes| Digest::of(&bytes));
            records.insert(key, (record, payload, streams));
        }
        query.cursor = page.next;
        if page.next.is_none() {
            break;
        }
    }
    // A copy has its own numbers, and an index of its own that leads to them.
    for (of, places) in kin {
        let found = store.kin(of).await.expect("it can be read");
        let found: BTreeSet<Place> = found.into_iter().map(|stored| stored.place).collect();
        assert_eq!(places, found);
    }
    for (queue, places) in lines {
        let ask = Waiting {
            queue,
            now,
            after_lane: 0,
            skip: 0,
            limit: WAITING_MAX,
            taken: false,
            inputs: false,
        };
        let found = store.waiting(ask).await.expect("it can be read");
        let found: BTreeSet<Place> = found.into_iter().map(|stored| stored.place).collect();
        assert_eq!(places, found);
    }
    let mut log: BTreeMap<String, String> = BTreeMap::new();
    let mut after = 0;
    loop {
        let page = store.log(after, PAGE_MAX).await.expect("it can be read");
        let Some(last) = page.last() else { break };
        after = last.seq;
        for logged in page {
            let of = format!("{:?} {:?}", logged.place, logged.entry.unplaced);
            let line = format!("{:?}\n", logged.entry);
            log.entry(of).or_default().push_str(&line);
        }
    }
    let mut log: Vec<String> = log.into_values().collect();
    log.sort();
    Held { records, log }
}

#[test]
fn a_copy_holds_what_its_source_holds_whatever_was_done() {
    let cluster = Cluster::shared();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    for seed in 0..scaled(200, 12) {
        runtime.block_on(async {
            let clock = Arc::new(ManualClock::default());
            let bed: Arc<dyn Bed> = Arc::new(SqliteBed::new(&clock));
            let ran = run(seed, STEPS, &clock, &[("sqlite", Arc::clone(&bed))]).await;
            ran.unwrap_or_else(|difference| panic!("{difference}"));
            let source = engine(bed.open().await).await;
            let url = cluster.database();
            let there = Engine::open_copy(&url).await.expect("it opens");
            let copied = copy(&source, &there, &Way::Snapshot).await;
            let copied = copied.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(copied.difference, None, "seed {seed}");
            let directory = scratch();
            let file = format!("sqlite:{}", directory.path().join("c.db").display());
            let back = Engine::open_copy(&file).await.expect("it opens");
            let copied = copy(&there, &back, &Way::Snapshot).await;
            let copied = copied.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(copied.difference, None, "seed {seed}");
            let first = held(source.store()).await;
            assert!(!first.records.is_empty());
            same(seed, &first, &held(there.store()).await);
            same(seed, &first, &held(back.store()).await);
        });
    }
}

/// Checks what holds of every store that can be closed and copied into.
async fn standing_is_kept(url: &str, empty: &str) {
    let here = Engine::open(url).await.expect("it opens");
    let there = Engine::open(url).await.expect("it opens");
    settle(&there, "settled").await;
    let runs = permit(&here, "runs").await;
    let store = here.store();
    assert_eq!(store.standing().await, Ok(Standing::Open));
    let moved = Moved {
        to: "sqlite:/elsewhere".to_owned(),
        id: "1f".to_owned(),
    };
    store.close(moved.clone()).await.expect("it closes");
    for engine in [&here, &there] {
        let standing = engine.store().standing().await;
        assert_eq!(standing, Ok(Standing::Closed(moved.clone())));
        let refused = engine.begin(request("new")).await;
        let Err(error) = refused else {
            panic!("a closed store began: {refused:?}");
        };
        assert_eq!(error.code(), "store_unusable");
        assert!(error.to_string().contains("sqlite:/elsewhere"), "{error}");
        let queued = engine
            .submit(request("queued"), semel::Queueing::nobody())
            .await;
        assert!(queued.is_err(), "{queued:?}");
        let again = engine.begin(request("settled")).await;
        assert!(matches!(again, Ok(Admission::Replay(_))), "{again:?}");
    }
    // Whoever runs may say so, and report.
    runs.renew().await.expect("it is renewed");
    runs.done(Effect::Created, "late")
        .await
        .expect("it is taken");
    assert_eq!(store.end().await, there.store().end().await);
    let refused = there.store().become_copy().await;
    assert!(refused.is_err(), "it is not empty");

    let plain = Engine::open(empty).await.expect("it opens");
    let filled = Engine::open_copy(empty).await.expect("it opens");
    filled.store().become_copy().await.expect("it is empty");
    let refused = plain.begin(request("new")).await;
    assert!(refused.is_err(), "a copy began: {refused:?}");
    settle(&filled, "filled").await;
    assert_eq!(plain.store().standing().await, Ok(Standing::Copy));
    let id = filled.store().id().await.expect("it has a number");
    let by = Label::new("ann").expect("a label");
    filled.adopt(by).await.expect("it is adopted");
    assert_eq!(plain.store().standing().await, Ok(Standing::Open));
    let again = Engine::open(empty).await.expect("it opens");
    assert_ne!(again.store().id().await.as_ref(), Ok(&id));
    settle(&plain, "new").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_file_takes_reports_and_a_copied_one_nothing() {
    let directory = scratch();
    let url = |name| format!("sqlite:{}", directory.path().join(name).display());
    standing_is_kept(&url("a.db"), &url("b.db")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_database_takes_reports_and_a_copied_one_nothing() {
    let cluster = Cluster::shared();
    standing_is_kept(&cluster.database(), &cluster.database()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_ledger_goes_on_in_the_target_and_what_ran_is_in_doubt() {
    let directory = scratch();
    let url = |name| format!("sqlite:{}", directory.path().join(name).display());
    let source = Engine::open(&url("a.db")).await.expect("it opens");
    settle(&source, "settled").await;
    let runs = permit(&source, "runs").await;
    let chunk = Chunk {
        stream: 1,
        bytes: b"so far".to_vec(),
    };
    runs.append(vec![chunk.clone()]).await.expect("it is taken");
    let ends = permit(&source, "ends").await;
    let target = Engine::open_copy(&url("b.db")).await.expect("it opens");
    let mut ends = Some(ends);
    let mut ended = None;
    let copied = source
        .copy_to(&target, &moving(Duration::from_millis(200)), |copied| {
            // It reports once the source is closed.
            if copied.running > 0
                && let Some(ends) = ends.take()
            {
                ended = Some(tokio::spawn(ends.done(Effect::Created, &"in time")));
            }
        })
        .await;
    let copied = copied.expect("it is copied");
    ended
        .expect("it was drained")
        .await
        .expect("it ends")
        .expect("it is taken");
    assert_eq!((copied.difference, copied.running), (None, 1));
    assert_eq!(copied.adopted.map(|adopted| adopted.doubtful), Some(1));
    let other = Engine::open(&url("b.db")).await.expect("it opens");
    for key in ["settled", "ends"] {
        let again = other.begin(request(key)).await;
        assert!(matches!(again, Ok(Admission::Replay(_))), "{again:?}");
    }
    let again = other.begin(request("runs")).await;
    let Ok(Admission::InDoubt(record)) = again else {
        panic!("it ran in the source: {again:?}");
    };
    assert!(record.fence() > Fence(1 << 32), "{record:?}");
    let key = Key::new("runs").expect("a key");
    let partial = other.partial(&Namespace::default(), &key, Fence(1)).await;
    assert_eq!(partial.ok(), Some(vec![chunk]));
    settle(&other, "new").await;
    assert!(source.begin(request("newer")).await.is_err());
    // The report of one that ran on is taken there, and settles nothing here.
    runs.done(Effect::Created, "late")
        .await
        .expect("it is taken");
    let again = copy(&source, &target, &moving(Duration::ZERO)).await;
    assert!(again.is_ok_and(|copied| copied.repeated));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_interrupted_goes_on_and_what_is_foreign_is_refused() {
    let directory = scratch();
    let url = |name| format!("sqlite:{}", directory.path().join(name).display());
    let source = Engine::open(&url("a.db")).await.expect("it opens");
    for n in 0..20 {
        settle(&source, &format!("order-{n}")).await;
    }
    let target = Engine::open_copy(&url("b.db")).await.expect("it opens");
    let snapshot = copy(&source, &target, &Way::Snapshot)
        .await
        .expect("it is copied");
    assert_eq!((snapshot.entries, snapshot.skipped), (40, 0));
    // As if it had been killed before it noted how far it was.
    let origin = target.store().origin(None).await.expect("it is there");
    let mut origin = origin.expect("it was noted");
    assert_eq!(origin.stage, Stage::Whole);
    (origin.through, origin.end, origin.stage) = (0, 0, Stage::Filling);
    let noted = target.store().origin(Some(origin)).await;
    noted.expect("it is noted");
    settle(&source, "later").await;
    let copied = copy(&source, &target, &Way::Snapshot)
        .await
        .expect("it is copied");
    assert_eq!((copied.entries, copied.skipped), (2, 40));
    assert_eq!(copied.difference, None);

    let other = Engine::open(&url("c.db")).await.expect("it opens");
    settle(&other, "foreign").await;
    for way in [Way::Snapshot, moving(Duration::ZERO)] {
        let refused = copy(&other, &target, &way).await;
        assert!(
            matches!(refused, Err(Error::InvalidInput(_))),
            "{refused:?}"
        );
        let full = Engine::open_copy(&url("c.db")).await.expect("it opens");
        let refused = copy(&source, &full, &way).await;
        assert!(
            matches!(refused, Err(Error::InvalidInput(_))),
            "{refused:?}"
        );
        let itself = Engine::open_copy(&url("a.db")).await.expect("it opens");
        let refused = copy(&source, &itself, &way).await;
        assert!(
            matches!(refused, Err(Error::InvalidInput(_))),
            "{refused:?}"
        );
    }
    assert_eq!(source.store().standing().await, Ok(Standing::Open));
    assert_eq!(other.store().standing().await, Ok(Standing::Open));
    settle(&source, "still open").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_differs_is_found_and_the_target_is_not_adopted() {
    let directory = scratch();
    let url = |name| format!("sqlite:{}", directory.path().join(name).display());
    let source = Engine::open(&url("a.db")).await.expect("it opens");
    settle(&source, "order-7").await;
    let target = Engine::open_copy(&url("b.db")).await.expect("it opens");
    copy(&source, &target, &Way::Snapshot)
        .await
        .expect("it is copied");
    // Somebody writes to the copy what the source does not hold, and hides it.
    settle(&target, "planted").await;
    let mut origin = target
        .store()
        .origin(None)
        .await
        .expect("it is there")
        .expect("noted");
    origin.end = target.store().end().await.expect("it has an end");
    target
        .store()
        .origin(Some(origin))
        .await
        .expect("it is noted");
    let copied = copy(&source, &target, &moving(Duration::ZERO))
        .await
        .expect("it is compared");
    let what = copied.difference.map(|difference| difference.what);
    assert_eq!(
        what.as_deref(),
        Some("the target has an operation that the source has not")
    );
    assert_eq!(target.store().standing().await, Ok(Standing::Copy));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_forgotten_while_they_are_copied_are_no_difference() {
    let directory = scratch();
    let url = |name: &str| format!("sqlite:{}", directory.path().join(name).display());
    let source = Engine::open(&url("a.db")).await.expect("it opens");
    let (turned, mut turns) = tokio::sync::mpsc::unbounded_channel();
    let churn: Vec<_> = (0..4)
        .map(|who| {
            let (source, turned) = (source.clone(), turned.clone());
            tokio::spawn(async move {
                // Until it is refused, as the ledger has moved.
                for n in 0.. {
                    let key = format!("{who}/{}", n % 8);
                    let Ok(Admission::Execute(permit)) = source.begin(request(&key)).await else {
                        return n;
                    };
                    let done = permit.done(Effect::Created, &key);
                    done.await.expect("it is taken");
                    let key = Key::new(&key).expect("a key");
                    let namespace = Namespace::default();
                    let record = source.load(&namespace, &key).await.expect("it loads");
                    let version = record.expect("it was settled").version();
                    let by = Label::new("ann").expect("a label");
                    let operator = source.operator(&namespace, &key, version, by);
                    if operator.forget().await.is_err() {
                        return n;
                    }
                    if n == 0 {
                        turned.send(who).expect("it is waited for");
                    }
                    // The log must not grow faster than it can be verified.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                0
            })
        })
        .collect();
    let target = Engine::open_copy(&url("b.db")).await.expect("it opens");
    for _ in &churn {
        turns.recv().await.expect("all of them are at it");
    }
    for round in 0..scaled(10, 3) {
        let copied = copy(&source, &target, &Way::Snapshot).await;
        let copied = copied.expect("it is copied");
        assert_eq!(copied.difference, None, "round {round}");
    }
    let copied = copy(&source, &target, &moving(Duration::ZERO)).await;
    assert_eq!(copied.expect("it is copied").difference, None);
    for one in churn {
        assert!(one.await.expect("it ends") > 0);
    }
}
