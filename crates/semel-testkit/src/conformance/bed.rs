//! Where the suite gets its stores from.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel::store::memory::MemoryStore;
use semel::store::sqlite::SqliteStore;
use semel::store::{Pending, Store};
use tempfile::TempDir;

use super::clock::ManualClock;

/// One store, with its clock, that can be opened any number of times.
///
/// Each call of [`Bed::open`] gives another handle on the same store, as another process would
/// have. A store that does not persist gives the same handle again.
pub trait Bed: Debug + Send + Sync {
    /// Opens the store.
    fn open(&self) -> Pending<'_, Arc<dyn Store>>;

    /// Returns the clock by which the store judges time.
    fn clock(&self) -> &Arc<ManualClock>;

    /// Returns the store behind the server, where the rules do not run beside whoever opens this one.
    fn behind(&self) -> Option<&Arc<dyn Bed>> {
        None
    }
}

/// A store in memory.
#[derive(Debug)]
pub struct MemoryBed {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
}

impl MemoryBed {
    /// Makes an empty store with this clock.
    #[must_use]
    pub fn new(clock: &Arc<ManualClock>) -> Self {
        let store = MemoryStore::new(Arc::clone(clock) as _);
        Self {
            clock: Arc::clone(clock),
            store: Arc::new(store),
        }
    }
}

impl Bed for MemoryBed {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async { Arc::clone(&self.store) as Arc<dyn Store> })
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }
}

/// A store in a SQLite file of its own, in a directory that goes with it.
#[derive(Debug)]
pub struct SqliteBed {
    clock: Arc<ManualClock>,
    directory: TempDir,
}

impl SqliteBed {
    /// Makes an empty directory for a store with this clock.
    #[must_use]
    pub fn new(clock: &Arc<ManualClock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            directory: scratch(),
        }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("semel.db")
    }
}

impl Bed for SqliteBed {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async {
            let store = SqliteStore::open_with(self.path(), Arc::clone(&self.clock) as _);
            Arc::new(store.expect("the store opens")) as Arc<dyn Store>
        })
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }
}

/// Makes a directory that is removed with its handle.
///
/// Where the system has memory for files it is used: these tests are about what is stored, and
/// others about what a real disk does. Tens of thousands of syncs would only make them slow.
///
/// # Panics
/// When no directory can be made.
#[must_use]
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.expect("a directory for a test's files can be made")
}
