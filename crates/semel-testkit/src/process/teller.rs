//! A process that moves money in the ledger's own file, in one transaction with the report of it.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use rustix::process::{Signal, getpid, kill_process};
use semel::store::StoreError;
use semel::store::sqlite::SqliteStore;
use semel::{Admission, Effect, Engine, Error, Request};

use super::key;

/// The tables of the bank: what was moved is written down beside the accounts.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS moved (key TEXT NOT NULL);
    INSERT OR IGNORE INTO account VALUES (1, 0), (2, 0);";

/// A ledger and a bank in one file, opened by one process.
#[derive(Debug)]
pub struct Teller {
    engine: Engine,
    store: Arc<SqliteStore>,
    connection: Connection,
}

impl Teller {
    /// Opens the file.
    ///
    /// # Errors
    /// As the store.
    pub async fn open(path: &Path) -> semel::Result<Self> {
        let store = Arc::new(SqliteStore::open(path)?);
        let builder = Engine::builder()
            .store(Arc::clone(&store) as _)
            .sweep_every(None);
        let engine = builder.start().await?;
        let connection = store.connect()?;
        connection.execute_batch(TABLES).map_err(broken)?;
        Ok(Self {
            engine,
            store,
            connection,
        })
    }

    /// Dies when the first transaction is about to be committed: everything is written by then.
    ///
    /// # Panics
    /// When SQLite refuses.
    pub fn die_before_commit(&mut self) {
        let die = || {
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
            true
        };
        let hooked = self.connection.commit_hook(Some(die));
        hooked.expect("SQLite tells of commits");
    }

    /// Moves one for a key, once.
    ///
    /// # Errors
    /// As the store.
    pub async fn transfer(&mut self, name: &str) -> semel::Result<()> {
        loop {
            let request = Request::new("transfer", key(name)).transactional();
            let permit = match self.engine.begin(request).await? {
                Admission::Execute(permit) => permit,
                Admission::Replay(_) => return Ok(()),
                Admission::Wait { retry_after } => {
                    tokio::time::sleep(retry_after).await;
                    continue;
                }
                Admission::Probe(_) | Admission::InDoubt(_) => {
                    return Err(Error::InvalidInput("a doubt is retried".to_owned()));
                }
            };
            let transaction = self.store.transaction(&mut self.connection)?;
            let sql = "UPDATE account SET balance = balance + CASE id WHEN 1 THEN -1 ELSE 1 END";
            transaction.execute(sql, []).map_err(broken)?;
            let sql = "INSERT INTO moved VALUES (?1)";
            transaction.execute(sql, [name]).map_err(broken)?;
            permit.commit_sqlite(transaction, Effect::Updated, name)?;
            return Ok(());
        }
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the number that a query answers with.
    ///
    /// # Panics
    /// When it answers with none.
    #[must_use]
    pub fn number(&self, sql: &str) -> i64 {
        let number = self.connection.query_row(sql, [], |row| row.get(0));
        number.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

fn broken(error: rusqlite::Error) -> Error {
    StoreError::Unavailable(error.to_string()).into()
}
