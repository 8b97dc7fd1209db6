//! The crash harness: real processes that claim, act and settle on one SQLite file, or on one
//! PostgreSQL database.
//!
//! An [`Agent`] is a process that follows its [`Orders`] through the library. Its effects are
//! lines in a [`Sink`] that knows nothing of Semel, and what it was told goes into a second file.
//! An [`audit`](audit::audit) holds the three against each other: world, ledger and callers.
//! Where agents keep a [`History`], it can be checked for being [linear](linear::check) too.

mod agent;
pub mod audit;
mod crash;
mod dice;
mod history;
pub mod linear;
mod orders;
mod sink;
mod teller;
mod told;
mod truth;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel::clock::SystemClock;
use semel::store::postgres::PostgresStore;
use semel::store::sqlite::SqliteStore;
use semel::store::{Store, StoreError};
use semel::{Engine, Key, Namespace, OnDoubt};

use crate::sim::Bug;

pub use self::agent::{Agent, Ended, Program};
pub use self::crash::CrashPoint;
pub use self::dice::Dice;
pub use self::history::{Answer, Ask, Exchange, History};
pub use self::orders::{Keys, Orders};
pub use self::sink::{Line, Sink};
pub use self::teller::Teller;
pub use self::told::{Told, Word};
pub use self::truth::{resolve_truthfully, unsettled};
pub use self::worker::run;

/// The name that every operation of an agent has.
pub const NAME: &str = "append-line";

/// The files of one scenario, in a directory that goes away with it.
#[derive(Debug)]
pub struct Scene {
    directory: tempfile::TempDir,
    server: Option<String>,
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
        Self {
            directory,
            server: None,
        }
    }

    /// Makes an empty directory for agents whose store is in this database.
    ///
    /// # Panics
    /// When there is no place for temporary files.
    #[must_use]
    pub fn on_server(url: String) -> Self {
        Self {
            server: Some(url),
            ..Self::new()
        }
    }

    /// Returns the URL of the database that holds the store, if one does.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
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

    /// Returns where calls and their returns are written down.
    #[must_use]
    pub fn history(&self) -> History {
        History::at(Some(self.path().join("history")))
    }

    /// Opens the store in this process, without a sweep in the background.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn open(&self) -> Engine {
        let opened = match &self.server {
            Some(url) => open_server(url).await,
            None => open(&self.store()).await,
        };
        opened.unwrap_or_else(|error| panic!("the store of {self:?} opens: {error}"))
    }
}

async fn open_server(url: &str) -> semel::Result<Engine> {
    let store = PostgresStore::open(url).await?.without_notes();
    let builder = Engine::builder().store(Arc::new(store)).sweep_every(None);
    builder.start().await
}

/// Opens the store that an agent's orders name, with whatever the agent does wrong.
async fn open_as(orders: &Orders) -> semel::Result<Engine> {
    let Some(url) = &orders.server else {
        return open(&orders.store).await;
    };
    let store: Arc<dyn Store> = match orders.bug {
        Some(Bug::WallClockBelieved) => {
            let clock = Arc::new(SystemClock::new());
            Arc::new(PostgresStore::open_with(url, clock).await?)
        }
        Some(_) | None => Arc::new(PostgresStore::open(url).await?),
    };
    let mut builder = Engine::builder().store(store).sweep_every(None);
    if let Some(bug) = orders.bug {
        builder = builder.rules(bug.rules());
    }
    builder.start().await
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

/// Names a key of a crowd: most doubts wait for somebody, some are retried, some looked up.
#[must_use]
pub fn crowd_key(number: usize) -> String {
    const KINDS: [&str; 8] = [
        "hold", "hold", "retry", "hold", "hold", "hold", "probe", "hold",
    ];
    format!("{}-{number}", KINDS[number % KINDS.len()])
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
