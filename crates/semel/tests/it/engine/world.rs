//! A world in virtual time: a clock that follows the runtime's, a store, and engines on it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel::clock::Clock;
use semel::core::clock::Reading;
use semel::core::ledger::{Operation, Record, StateKind};
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::store::sqlite::SqliteStore;
use semel::{Admission, Engine, Key, Lease, Namespace, Permit, Receipt, Request};
use semel_testkit::conformance::{START, scratch};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::store::Patient;

/// How long a condition may take to come true, in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A clock that follows the runtime's own, and can be set ahead of it.
///
/// Time that passes for the store and not for the runtime is what a paused holder lives through:
/// its timers do not fire, and its lease ends all the same.
#[derive(Debug)]
pub(super) struct TestClock {
    runtime: Handle,
    started: Instant,
    moved: Mutex<Moved>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    passed: Duration,
    jumped: Duration,
}

impl TestClock {
    fn new() -> Self {
        Self {
            runtime: Handle::current(),
            started: Instant::now(),
            moved: Mutex::default(),
        }
    }

    fn moved(&self) -> std::sync::MutexGuard<'_, Moved> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time pass for the store, and not for the runtime.
    pub(super) fn skip(&self, by: Duration) {
        self.moved().passed += by;
    }

    /// Sets the wall clock forward while no time passes.
    pub(super) fn jump(&self, by: Duration) {
        self.moved().jumped += by;
    }
}

impl Clock for TestClock {
    fn read(&self) -> Reading {
        // The store's own threads know no runtime, and would read another clock without it.
        let _inside = self.runtime.enter();
        let moved = *self.moved();
        let passed = self.started.elapsed() + moved.passed;
        Reading {
            wall: START.plus(passed + moved.jumped),
            boot: 1,
            uptime: Duration::from_secs(1_000_000) + passed,
        }
    }
}

/// A store, its clock, and what keeps its files.
#[derive(Debug)]
pub(super) struct World {
    pub(super) clock: Arc<TestClock>,
    pub(super) store: Arc<dyn Store>,
    directory: Option<TempDir>,
}

impl World {
    pub(super) fn memory() -> Self {
        let clock = Arc::new(TestClock::new());
        Self {
            store: Arc::new(MemoryStore::new(Arc::clone(&clock) as _)),
            clock,
            directory: None,
        }
    }

    pub(super) fn sqlite() -> Self {
        let clock = Arc::new(TestClock::new());
        let directory = scratch();
        let path = directory.path().join("semel.db");
        Self {
            store: opened(path, &clock),
            clock,
            directory: Some(directory),
        }
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> PathBuf {
        let directory = self.directory.as_ref().expect("only SQLite has a file");
        directory.path().join("semel.db")
    }

    /// Opens the same store once more, as another process would; memory has only the one.
    pub(super) fn another(&self) -> Arc<dyn Store> {
        match &self.directory {
            Some(_) => opened(self.path(), &self.clock),
            None => Arc::clone(&self.store),
        }
    }

    /// Starts an engine on the store.
    pub(super) async fn engine(&self) -> Engine {
        engine_on(Arc::clone(&self.store)).await
    }

    /// Starts an engine on another handle.
    pub(super) async fn another_engine(&self) -> Engine {
        engine_on(self.another()).await
    }
}

fn opened(path: PathBuf, clock: &Arc<TestClock>) -> Arc<dyn Store> {
    let store = SqliteStore::open_with(path, Arc::clone(clock) as _);
    Arc::new(Patient::new(Arc::new(store.expect("the store opens"))))
}

pub(super) async fn engine_on(store: Arc<dyn Store>) -> Engine {
    let builder = Engine::builder().store(store).sweep_every(None);
    builder.start().await.expect("the engine starts")
}

/// Counts how often the outside world was touched.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects(Arc<AtomicU32>);

impl Effects {
    pub(super) fn happen(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(super) fn key(text: &str) -> Key {
    Key::new(text).expect("a test's key is valid")
}

pub(super) fn lease(seconds: u64) -> Lease {
    Lease::new(Duration::from_secs(seconds)).expect("a test's lease is valid")
}

/// A request for the operation that most tests are about.
pub(super) fn order() -> Request {
    Request::new("create-order", key("order-7"))
}

pub(super) async fn record(engine: &Engine, key: &Key) -> Option<Arc<Record>> {
    let loaded = engine.load(&Namespace::default(), key).await;
    loaded.expect("the record loads")
}

pub(super) async fn operation(engine: &Engine, key: &Key) -> Operation {
    let record = record(engine, key).await.expect("there is a record");
    record.operation().expect("it lives").clone()
}

pub(super) async fn state(engine: &Engine, key: &Key) -> Option<StateKind> {
    record(engine, key).await.map(|record| record.kind())
}

/// Waits until an operation is in this state.
pub(super) async fn until(engine: &Engine, key: &Key, wanted: StateKind) {
    let deadline = Instant::now() + PATIENCE;
    while state(engine, key).await != Some(wanted) {
        assert!(
            Instant::now() < deadline,
            "{:?} instead of {wanted:?}",
            state(engine, key).await
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Begins, and expects to be the one who acts.
pub(super) async fn permit(engine: &Engine, request: Request) -> Permit {
    match engine.begin(request).await {
        Ok(Admission::Execute(permit)) => permit,
        other => panic!("a permit was expected: {other:?}"),
    }
}

/// Begins, and expects the answer of an earlier attempt.
pub(super) async fn replay(engine: &Engine, request: Request) -> Receipt {
    match engine.begin(request).await {
        Ok(Admission::Replay(receipt)) => receipt,
        other => panic!("a replay was expected: {other:?}"),
    }
}

/// Returns what a receipt carries, as text.
pub(super) fn data(receipt: &Receipt) -> String {
    let payload = receipt.payload.as_deref().unwrap_or_default();
    String::from_utf8(payload.to_vec()).expect("the payload is text")
}

/// Expects that the log folds to what is stored.
pub(super) async fn clean(engine: &Engine) {
    let verified = engine.verify().await.expect("it can be verified");
    assert_eq!(verified.difference, None);
}
