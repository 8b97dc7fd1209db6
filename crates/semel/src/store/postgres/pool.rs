//! A few connections, opened when they are needed.
//!
//! Whoever needs one takes an idle one, or opens another while there are fewer than the URL allows
//! (`connections`). So a process that does one thing after the other uses one connection. Every
//! statement is unnamed, as behind a pgbouncer in transaction mode each transaction may meet another
//! server process.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::fault::{failed, is_lost, told};
use super::servers::Servers;
use crate::store::{Result, StoreError};

/// How long a caller waits for one of this node's own connections.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// How long a read may take before its connection is given up.
const READ_WAIT: Duration = Duration::from_secs(30);

/// A parameter of a statement and its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connections of one node.
#[derive(Debug)]
pub(super) struct Pool {
    servers: Servers,
    idle: Mutex<Vec<Client>>,
    turns: Arc<Semaphore>,
}

/// A connection that nobody else uses; it goes back when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    pool: Arc<Pool>,
    client: Option<Client>,
    /// Whether it was used before: then it may have been lost since, unnoticed.
    pub(super) reused: bool,
    _turn: OwnedSemaphorePermit,
}

impl Connection {
    pub(super) fn client(&self) -> Result<&Client> {
        self.client.as_ref().ok_or_else(|| {
            StoreError::Unavailable("the connection to PostgreSQL was given up".to_owned())
        })
    }

    /// Closes the connection: the server rolls back what was not committed.
    pub(super) fn give_up(mut self) {
        self.client = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && !client.is_closed()
        {
            self.pool.idle().push(client);
        }
    }
}

/// Reads how the servers are reached.
pub(super) fn config(url: &str) -> Result<Servers> {
    Servers::read(url)
}

impl Pool {
    pub(super) fn new(servers: Servers) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(servers.connections)),
            servers,
            idle: Mutex::default(),
        }
    }

    pub(super) const fn config(&self) -> &Servers {
        &self.servers
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection.
    pub(super) async fn take(self: &Arc<Self>) -> Result<Connection> {
        let turn = timeout(TURN_WAIT, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(StoreError::Unavailable(
                "all connections to PostgreSQL have been busy for too long".to_owned(),
            ));
        };
        let idle = self.take_idle();
        let reused = idle.is_some();
        let client = match idle {
            Some(client) => client,
            None => self.connect().await?,
        };
        Ok(Connection {
            pool: Arc::clone(self),
            client: Some(client),
            reused,
            _turn: turn,
        })
    }

    fn take_idle(&self) -> Option<Client> {
        let mut idle = self.idle();
        while let Some(client) = idle.pop() {
            if !client.is_closed() {
                return Some(client);
            }
        }
        None
    }

    /// Forgets the idle connections: when one was lost, the others probably were, too.
    pub(super) fn forget_idle(&self) {
        self.idle().clear();
    }

    async fn connect(&self) -> Result<Client> {
        let (client, driver) = self.servers.connect().await?;
        // Its error is also told to those who wait for an answer on it.
        tokio::spawn(async move { drop(driver.await) });
        Ok(client)
    }

    /// Runs one statement that writes what no answer rests on: streams and marks. Nobody knows whether
    /// it was done when the connection is lost.
    pub(super) async fn write(
        self: &Arc<Self>,
        doing: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<()> {
        let connection = self.take().await?;
        let error = match in_time(connection.client()?.query_typed(sql, parameters)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error,
            Err(late) => {
                connection.give_up();
                return Err(StoreError::Unknown(late.to_string()));
            }
        };
        if is_lost(&error) {
            connection.give_up();
            self.forget_idle();
            return Err(StoreError::Unknown(told(&error)));
        }
        Err(failed(doing, &error))
    }

    /// Runs one statement that only reads; again on a new connection when an idle one turns out to
    /// be lost.
    pub(super) async fn read(
        self: &Arc<Self>,
        doing: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        loop {
            let connection = self.take().await?;
            let reading = connection.client()?.query_typed(sql, parameters);
            let error = match in_time(reading).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) => error,
                Err(late) => {
                    connection.give_up();
                    return Err(late);
                }
            };
            // A session keeps the settings that it began with: when somebody mends what made this
            // fail, a new one knows.
            let again = connection.reused && is_lost(&error);
            connection.give_up();
            self.forget_idle();
            if !again {
                return Err(failed(doing, &error));
            }
        }
    }
}

/// Bounds the wait for an answer.
pub(super) async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T> {
    timeout(READ_WAIT, answer).await.map_err(|_| {
        StoreError::Unavailable(format!(
            "PostgreSQL did not answer within {} s",
            READ_WAIT.as_secs()
        ))
    })
}
