//! A few connections, opened when they are needed.
//!
//! Whoever needs one takes an idle one, or opens another while there are fewer than
//! [`CONNECTIONS_MAX`]. So a process that does one thing after the other uses one connection. Every
//! statement is unnamed, as behind a pgbouncer in transaction mode each transaction may meet another
//! server process.

use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};

use super::fault::{failed, is_lost, told};
use crate::store::{Result, StoreError};

/// Says whether what is sent stays on this machine.
fn is_local(config: &Config) -> bool {
    let by_name = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            let address = name.parse::<IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    });
    let by_address = config.get_hostaddrs();
    // An address is what is connected to, whatever the name beside it.
    if by_address.is_empty() {
        by_name
    } else {
        by_address.iter().all(IpAddr::is_loopback)
    }
}

/// The most connections of one node: one writes, the others read beside it.
const CONNECTIONS_MAX: usize = 8;

/// How long a connection may take to come about: a server that is there answers in milliseconds, and
/// callers are to hear soon of one that is not.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// How long a full server is asked again for a connection.
const FULL_WAIT: Duration = Duration::from_secs(5);

/// The pause before a full server is asked again.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// How long a caller waits for one of this node's own connections.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// How long a read may take before its connection is given up.
const READ_WAIT: Duration = Duration::from_secs(30);

/// How long sent bytes may stay unacknowledged before the connection counts as lost.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// A parameter of a statement and its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connections of one node.
#[derive(Debug)]
pub(super) struct Pool {
    config: Config,
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

/// Reads a URL, and refuses what would be done otherwise than it says.
pub(super) fn config(url: &str) -> Result<Config> {
    let mut config: Config = url.parse().map_err(|error| {
        StoreError::Refused(format!(
            "the store's URL cannot be read: {}; write postgres://USER:PASSWORD@HOST:PORT/DATABASE \
             (sslmode: `disable` or `prefer`)",
            told(&error)
        ))
    })?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(StoreError::Refused(
            "the URL asks for TLS (sslmode=require), which this version cannot speak to PostgreSQL; \
             nothing was sent in plain text"
                .to_owned(),
        ));
    }
    if config.get_ssl_mode() == SslMode::Prefer && !is_local(&config) {
        return Err(StoreError::Refused(
            "this version cannot speak TLS to PostgreSQL, and the server is on another machine; nothing \
             was sent in plain text. Say sslmode=disable in the URL if the network between is trusted"
                .to_owned(),
        ));
    }
    if config.get_application_name().is_none() {
        config.application_name("semel");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_WAIT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
    }
    // A standby lags behind: what it says about a key must not lead to an answer.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    Ok(config)
}

impl Pool {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            idle: Mutex::default(),
            turns: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }

    pub(super) const fn config(&self) -> &Config {
        &self.config
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

    /// Opens a connection. A server that is full is asked again for a while.
    async fn connect(&self) -> Result<Client> {
        let started = Instant::now();
        loop {
            let connecting = timeout(CONNECT_WAIT, self.config.connect(NoTls));
            let error = match connecting.await {
                Ok(Ok((client, connection))) => {
                    // Its error is also told to those who wait for an answer on it.
                    tokio::spawn(async move { drop(connection.await) });
                    return Ok(client);
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    return Err(StoreError::Unavailable(format!(
                        "PostgreSQL did not answer within {} s",
                        CONNECT_WAIT.as_secs()
                    )));
                }
            };
            let full = error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS);
            if !full || started.elapsed() >= FULL_WAIT {
                return Err(failed("connect to PostgreSQL", &error));
            }
            sleep(FULL_PAUSE).await;
        }
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
            if !is_lost(&error) {
                return Err(failed(doing, &error));
            }
            let reused = connection.reused;
            connection.give_up();
            self.forget_idle();
            if !reused {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_cross_the_network_in_plain_text_is_refused_unless_it_was_asked_for() {
        for (url, local) in [
            ("postgres://a@localhost/db", true),
            ("postgres://a@127.0.0.1/db", true),
            ("postgres://a@[::1]/db", true),
            ("postgres:///db?host=/run/postgresql", true),
            ("postgres://a@db.example.org/db", false),
            ("postgres://a@10.0.0.1/db", false),
            ("postgres://a@localhost,db.example.org/db", false),
            ("postgres://a@localhost/db?hostaddr=10.0.0.1", false),
        ] {
            let config: Config = url.parse().expect("a URL");
            assert_eq!(is_local(&config), local, "{url}");
        }
    }
}
