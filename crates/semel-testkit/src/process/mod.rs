//! The crash harness: real processes that claim, act and settle on one SQLite file.
//!
//! An [`Agent`] is a process that follows its [`Orders`] through the library. Its effects are
//! lines in a [`Sink`] that knows nothing of Semel, and what it was told goes into a second file.
//! An [`audit`](audit::audit) holds the three against each other: world, ledger and callers.

mod agent;
pub mod audit;
mod crash;
mod dice;
mod orders;
mod sink;
mod told;
mod truth;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel::store::StoreError;
use semel::store::sqlite::SqliteStore;
use semel::{Engine, Key, Namespace, OnDoubt};

pub use self::agent::{Agent, Ended, Program};
pub use self::crash::CrashPoint;
pub use self::dice::Dice;
pub use self::orders::{Keys, Orders};
pub use self::sink::{Line, Sink};
pub use self::told::{Told, Word};
pub use self::truth::{resolve_truthfully, unsettled};
pub use self::worker::run;

/// The name that every operation of an agent has.
pub const NAME: &str = "append-line";

/// The files of one scenario, in a directory that goes away with it.
#[derive(Debug)]
pub struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    /// Makes an empty directory.
    ///
    /// # Panics
    /// When there is no place for temporary files.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        Self { directory }
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns where the store is.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.path().join("store.db")
    }

    /// Returns where effects are counted.
    #[must_use]
    pub fn sink(&self) -> Sink {
        Sink::at(self.path().join("sink"))
    }

    /// Returns where agents say what they were told.
    #[must_use]
    pub fn told(&self) -> Told {
        Told::at(self.path().join("told"))
    }

    /// Opens the store in this process, without a sweep in the background.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn open(&self) -> Engine {
        let opened = open(&self.store()).await;
        opened.unwrap_or_else(|error| panic!("{} opens: {error}", self.store().display()))
    }
}

/// Opens a store in this process, without a sweep in the background.
///
/// # Errors
/// As the store.
pub async fn open(path: &Path) -> semel::Result<Engine> {
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(path)).await;
    let opened = opened.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let builder = Engine::builder().store(Arc::new(opened?)).sweep_every(None);
    builder.start().await
}

/// Returns the namespace that agents use.
#[must_use]
pub fn wall() -> Namespace {
    Namespace::default()
}

/// Makes a key.
///
/// # Panics
/// When the text is none.
#[must_use]
pub fn key(text: &str) -> Key {
    Key::new(text).expect("a test's key follows the rule")
}

/// Says what a doubt about a key leads to: its first letters decide, so that every process says
/// the same.
#[must_use]
pub fn on_doubt(key: &str) -> OnDoubt {
    if key.starts_with("retry-") {
        OnDoubt::Retry
    } else if key.starts_with("probe-") {
        OnDoubt::Probe
    } else {
        OnDoubt::Hold
    }
}
