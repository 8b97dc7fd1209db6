//! A few connections, opened when they are needed.
//!
//! Whoever needs one takes an idle one, or opens another while there are fewer than the URL allows
//! (`connections`). So a process that does one thing after the other uses one connection.
//!
//! Behind a pgbouncer in transaction mode each transaction may meet another server process, so statements
//! are unnamed. Only a session that is proven to be with the server itself, and lives long, prepares the
//! two that are sent all the time.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use super::fault::{failed, is_lost, told};
use super::servers::{IS_DIRECT, Servers};
use crate::store::{Result, StoreError};
use crate::within;

/// How long a caller waits for one of this node's own connections.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// How long a read may take before its connection is given up.
const READ_WAIT: Duration = Duration::from_secs(30);

/// From which use on a session prepares.
const PREPARE_FROM: u32 = 8;

/// A parameter of a statement and its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connections of one node.
#[derive(Debug)]
pub(super) struct Pool {
    servers: Servers,
    idle: Mutex<Vec<Session>>,
    turns: Arc<Semaphore>,
}

/// A session with the server, and what it has prepared.
#[derive(Debug)]
struct Session {
    client: Client,
    uses: u32,
    /// Whether no pgbouncer is in between, once that was asked.
    is_direct: Option<bool>,
    prepared: HashMap<&'static str, Statement>,
}

/// A connection that nobody else uses; it goes back when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    pool: Arc<Pool>,
    session: Option<Session>,
    /// Whether it was used before: then it may have been lost since, unnoticed.
    pub(super) reused: bool,
    _turn: OwnedSemaphorePermit,
}

impl Connection {
    pub(super) fn client(&self) -> Result<&Client> {
        let session = self.session.as_ref();
        session.map(|session| &session.client).ok_or_else(given_up)
    }

    /// Closes the connection: the server rolls back what was not committed.
    pub(super) fn give_up(mut self) {
        self.session = None;
    }

    /// Runs a statement that is sent all the time.
    pub(super) async fn run_often(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<std::result::Result<Vec<Row>, Error>> {
        let frugal = self.pool.servers.connections == 1;
        let session = self.session.as_mut().ok_or_else(given_up)?;
        session.uses = session.uses.saturating_add(1);
        if frugal || session.uses < PREPARE_FROM {
            return Ok(session.client.query_typed(sql, parameters).await);
        }
        Ok(session.run_prepared(sql, parameters).await)
    }
}

fn given_up() -> StoreError {
    StoreError::Unavailable("the connection to PostgreSQL was given up".to_owned())
}

impl Session {
    fn new(client: Client) -> Self {
        Self {
            client,
            uses: 0,
            is_direct: None,
            prepared: HashMap::new(),
        }
    }

    async fn run_prepared(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<Vec<Row>, Error> {
        let is_direct = match self.is_direct {
            Some(is_direct) => is_direct,
            None => {
                let rows = self.client.query_typed(IS_DIRECT, &[]).await?;
                let is_direct = match rows.first() {
                    Some(row) => row.try_get(0)?,
                    None => false,
                };
                *self.is_direct.insert(is_direct)
            }
        };
        if !is_direct {
            return self.client.query_typed(sql, parameters).await;
        }
        let statement = match self.prepared.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
                let statement = self.client.prepare_typed(sql, &types).await?;
                self.prepared.insert(sql, statement.clone());
                statement
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
        self.client.query(&statement, &values).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && !session.client.is_closed()
        {
            self.pool.idle().push(session);
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

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection.
    pub(super) async fn take(self: &Arc<Self>) -> Result<Connection> {
        let turn = within(TURN_WAIT, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(StoreError::Unavailable(
                "all connections to PostgreSQL have been busy for too long".to_owned(),
            ));
        };
        let idle = self.take_idle();
        let reused = idle.is_some();
        let session = match idle {
            Some(session) => session,
            None => self.connect().await?,
        };
        Ok(Connection {
            pool: Arc::clone(self),
            session: Some(session),
            reused,
            _turn: turn,
        })
    }

    fn take_idle(&self) -> Option<Session> {
        let mut idle = self.idle();
        while let Some(session) = idle.pop() {
            if !session.client.is_closed() {
                return Some(session);
            }
        }
        None
    }

    /// Forgets the idle connections: when one was lost, the others probably were, too.
    pub(super) fn forget_idle(&self) {
        self.idle().clear();
    }

    async fn connect(&self) -> Result<Session> {
        let (client, driver) = self.servers.connect().await?;
        // Its error is also told to those who wait for an answer on it.
        tokio::spawn(async move { drop(driver.await) });
        Ok(Session::new(client))
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
            let read = in_time(connection.client()?.query_typed(sql, parameters)).await;
            if let Some(rows) = self.judge(connection, doing, read)? {
                return Ok(rows);
            }
        }
    }

    /// Does the same with a statement that is sent all the time.
    pub(super) async fn read_often(
        self: &Arc<Self>,
        doing: &str,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        loop {
            let mut connection = self.take().await?;
            let read = match in_time(connection.run_often(sql, parameters)).await {
                Ok(ran) => Ok(ran?),
                Err(late) => Err(late),
            };
            if let Some(rows) = self.judge(connection, doing, read)? {
                return Ok(rows);
            }
        }
    }

    /// Judges how a read ended; `None` when it is worth another connection.
    fn judge(
        &self,
        connection: Connection,
        doing: &str,
        read: Result<std::result::Result<Vec<Row>, Error>>,
    ) -> Result<Option<Vec<Row>>> {
        let error = match read {
            Ok(Ok(rows)) => return Ok(Some(rows)),
            Ok(Err(error)) => error,
            Err(late) => {
                connection.give_up();
                return Err(late);
            }
        };
        // A session keeps the settings that it began with: when somebody mends what made this fail, a
        // new one knows.
        let again = connection.reused && is_lost(&error);
        connection.give_up();
        self.forget_idle();
        if again {
            return Ok(None);
        }
        Err(failed(doing, &error))
    }
}

/// Bounds the wait for an answer.
pub(super) async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T> {
    within(READ_WAIT, answer).await.map_err(|_| {
        StoreError::Unavailable(format!(
            "PostgreSQL did not answer within {} s",
            READ_WAIT.as_secs()
        ))
    })
}
