//! The servers of a URL, of which one takes writes.
//!
//! After a fail-over it is another one. Whoever connects asks the one that was right the last time, then
//! the others; each has its own time to answer, so that a machine that is gone does not hide the one
//! that took over.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::fault::{failed, only_reads};
use super::url::{Distance, Url, name_of};
use crate::store::{Result, StoreError};
use crate::tls::Check;
use crate::within;

/// How long a server may take to let us in: one that is there answers in milliseconds, and callers are
/// to hear soon of one that is not. `connect_timeout` in the URL says otherwise.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// How long each address of a server's name may take, so that one that is gone leaves time for the next.
const ADDRESS_WAIT: Duration = Duration::from_secs(2);

/// How long a full server is asked again for a connection.
const FULL_WAIT: Duration = Duration::from_secs(5);

/// The pause before a full server is asked again.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// How long sent bytes may stay unacknowledged before the connection counts as lost.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// What drives a connection.
pub(super) type Driver = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// What a session is begun with that may prepare statements. PostgreSQL keeps it; a pgbouncer refuses it or
/// leaves it out.
const DIRECT: &str = "-c semel.direct=on";

/// Says whether a session is with the server itself.
pub(super) const IS_DIRECT: &str =
    "SELECT coalesce(current_setting('semel.direct', true) = 'on', false)";

/// One server, and how it is spoken to.
struct Server {
    name: String,
    config: Config,
    tls: MakeRustlsConnect,
    wait: Duration,
    /// Whether the server takes [`DIRECT`], as far as is known.
    takes_direct: AtomicBool,
}

/// The servers of a URL.
pub(super) struct Servers {
    servers: Vec<Server>,
    /// The one that was right the last time.
    last: AtomicUsize,
    /// The most connections of this node.
    pub(super) connections: usize,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.servers.iter().map(|server| &server.name);
        f.debug_list().entries(names).finish()
    }
}

/// Why no server could be used.
struct Refusal {
    error: StoreError,
    /// How much it tells: of several servers, one that has no room says more than one that is down.
    weight: Weight,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Silent,
    OnlyReads,
    Spoke,
    Full,
}

impl Servers {
    /// Reads a URL, and refuses what would be done otherwise than it says.
    pub(super) fn read(url: &str) -> Result<Self> {
        let url = Url::read(url)?;
        let mut connectors: Vec<(Check, MakeRustlsConnect)> = Vec::new();
        let mut servers = Vec::new();
        for mut config in url.servers {
            let (mode, check) = url.tls.plan(Distance::of(&config))?;
            let known = connectors.iter().find(|(known, _)| *known == check);
            let tls = match known {
                Some((_, tls)) => tls.clone(),
                None => url.tls.connector(check)?,
            };
            connectors.push((check, tls.clone()));
            config.ssl_mode(mode);
            // A standby lags behind: what it says about a key must not lead to an answer.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            if config.get_application_name().is_none() {
                config.application_name("semel");
            }
            if config.get_tcp_user_timeout().is_none() {
                config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
            }
            let wait = config.get_connect_timeout().copied();
            if wait.is_none() {
                config.connect_timeout(ADDRESS_WAIT);
            }
            servers.push(Server {
                name: name_of(&config),
                wait: wait.unwrap_or(CONNECT_WAIT),
                // Who has one connection does one thing and is gone: nothing is worth preparing.
                takes_direct: AtomicBool::new(url.connections > 1),
                config,
                tls,
            });
        }
        Ok(Self {
            servers,
            last: AtomicUsize::new(0),
            connections: url.connections,
        })
    }

    /// Connects to the server that takes writes. One that is full is asked again for a while.
    pub(super) async fn connect(&self) -> Result<(Client, Driver)> {
        let started = Instant::now();
        loop {
            let refusal = match self.try_each().await {
                Ok(connected) => return Ok(connected),
                Err(refusal) => refusal,
            };
            if refusal.weight != Weight::Full || started.elapsed() >= FULL_WAIT {
                return Err(refusal.error);
            }
            sleep(FULL_PAUSE).await;
        }
    }

    async fn try_each(&self) -> std::result::Result<(Client, Driver), Refusal> {
        let first = self.last.load(Ordering::Relaxed);
        let mut worst: Option<Refusal> = None;
        for turn in 0..self.servers.len() {
            let index = (first + turn) % self.servers.len();
            let refusal = match self.servers[index].connect().await {
                Ok(connected) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                Err(refusal) => refusal,
            };
            if worst.as_ref().is_none_or(|w| w.weight < refusal.weight) {
                worst = Some(refusal);
            }
        }
        Err(worst.unwrap_or_else(|| Refusal {
            error: StoreError::Refused("the URL names no server".to_owned()),
            weight: Weight::Silent,
        }))
    }
}

impl Server {
    async fn connect(&self) -> std::result::Result<(Client, Driver), Refusal> {
        if self.takes_direct.load(Ordering::Relaxed) {
            let mut config = self.config.clone();
            let options = config.get_options().unwrap_or_default();
            config.options(format!("{options} {DIRECT}").trim_start());
            match within(self.wait, config.connect(self.tls.clone())).await {
                Ok(Ok(connected)) => return Ok(connected),
                // As a pgbouncer says it.
                Ok(Err(error)) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {
                    self.takes_direct.store(false, Ordering::Relaxed);
                }
                other => return other.map_or_else(|_| Err(self.silent()), |it| self.judge(it)),
            }
        }
        let connecting = within(self.wait, self.config.connect(self.tls.clone()));
        match connecting.await {
            Ok(connected) => self.judge(connected),
            Err(_) => Err(self.silent()),
        }
    }

    fn judge(
        &self,
        connected: std::result::Result<(Client, Driver), Error>,
    ) -> std::result::Result<(Client, Driver), Refusal> {
        connected.map_err(|error| {
            let told = failed(&format!("connect to PostgreSQL at {}", self.name), &error);
            Refusal {
                weight: weight(&error, &told),
                error: told,
            }
        })
    }

    fn silent(&self) -> Refusal {
        Refusal {
            weight: Weight::Silent,
            error: StoreError::Unavailable(format!(
                "PostgreSQL at {} did not answer within {} s; is it running, and does a firewall let us \
                 through?",
                self.name,
                self.wait.as_secs()
            )),
        }
    }
}

fn weight(error: &Error, told: &StoreError) -> Weight {
    match (error.code(), told) {
        (Some(&SqlState::TOO_MANY_CONNECTIONS), _) => Weight::Full,
        (Some(_), _) | (None, StoreError::Refused(_)) => Weight::Spoke,
        (None, _) if only_reads(error) => Weight::OnlyReads,
        (None, _) => Weight::Silent,
    }
}
