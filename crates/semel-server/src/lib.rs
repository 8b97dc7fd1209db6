//! The ledger as a service: an HTTP API in front of a [`semel::Engine`].
//!
//! [`Service::open`] opens the door, [`Service::run`] serves until it is told to stop.

#![warn(missing_docs)]

mod accepting;
mod auth;
mod begun;
mod config;
mod connection;
mod credentials;
mod dial;
mod door;
mod feed;
mod http;
mod http2;
pub mod inbox;
mod incident;
mod listener;
mod locked;
pub mod mcp;
mod metrics;
mod notify;
mod outbound;
mod patient;
mod pool;
mod principal_key;
mod proof;
pub mod proxy;
mod push;
mod rate;
mod replies;
mod socket;
#[cfg_attr(not(feature = "otlp"), path = "no_span.rs")]
mod span;
mod tls;
mod tokens;
mod trace;
mod unread;

use std::sync::Arc;

use axum::Router;
use semel::Engine;
use tokio::sync::watch;

pub use self::config::{Auth, Config, Limits, Listen, Notify, Tls};
pub use self::notify::Secret;
pub use self::outbound::Url;
pub use self::push::Push;

use self::accepting::Accepting;
use self::connection::Spoken;
use self::door::Door;
use self::http::Server;
use self::metrics::Counts;
use self::notify::Channel;
use self::push::Pushing;
use self::replies::Replies;
use self::span::Exporting;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be listened at.
    #[error("cannot listen at {place}: {source}")]
    Listen {
        /// Where.
        place: String,
        /// Why.
        source: std::io::Error,
    },
    /// Others than this machine could call, and there is no token that anybody could show.
    #[error(
        "{place} can be reached from other machines, where every call needs a token, and there is none"
    )]
    NoTokens {
        /// Where.
        place: String,
    },
    /// The certificate or its key cannot be used.
    #[error("{0}")]
    Tls(String),
    /// Nobody can be told anything in the way that is set.
    #[error("notify: {0}")]
    Notify(String),
    /// A push queue's tasks cannot be sent in the way that is set.
    #[error("{0}")]
    Push(String),
    /// Our own standard input or output cannot be used.
    #[error("standard input and output: {0}")]
    Standard(String),
    /// Traces cannot be sent.
    #[error("serve.otlp: {0}")]
    Otlp(String),
    /// There is no way to the server behind a gateway.
    #[error("the server cannot be reached: {0}")]
    Upstream(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] semel::Error),
}

/// A server that has opened its door.
pub struct Service {
    door: Door,
    server: Server,
    channels: Vec<Channel>,
    pushing: Pushing,
    exporting: Option<Exporting>,
    router: Router,
    config: Config,
    stop: watch::Sender<bool>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("address", &self.door.address)
            .finish_non_exhaustive()
    }
}

/// Tells a server to stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Takes no more work, and ends when what is under way is done.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Service {
    /// Opens the door.
    ///
    /// # Errors
    /// Says why that is not possible.
    pub async fn open(engine: Engine, mut config: Config) -> Result<Self, StartError> {
        let channels = Channel::all(&config.notify).map_err(StartError::Notify)?;
        let pushing = Pushing::new(&config.push).map_err(StartError::Push)?;
        let destination = span::destination(&config).map_err(StartError::Otlp)?;
        let door = Door::open(&engine, &mut config, Spoken::Http1).await?;
        let (stop, stopped) = watch::channel(false);
        let (server, router) = http::service(engine, config.clone(), stopped);
        let exporting = destination.map(|to| server.exporter().start(to));
        Ok(Self {
            door,
            server,
            channels,
            pushing,
            exporting,
            router,
            config,
            stop,
        })
    }

    /// Tells of the requests through a proxy in its metrics.
    pub fn tells_of(&self, proxy: &proxy::Service) {
        self.server.counts().beside(proxy.counts());
    }

    /// Returns where it listens, as callers write it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.door.address
    }

    /// Returns what stops it.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Serves until it is told to stop; then drains, at most as long as the limit says. Returns whether
    /// everything was done by then.
    pub async fn run(self) -> bool {
        let stop = self.stop.subscribe();
        let freshening = self
            .door
            .encryption
            .clone()
            .map(|it| tokio::spawn(it.keep_fresh()));
        let told = Arc::clone(self.server.counts().notify());
        let notifying = (!self.channels.is_empty()).then(|| {
            let engine = self.server.engine().clone();
            let only = self.config.namespace.clone();
            tokio::spawn(notify::run(engine, only, self.channels, told, stop.clone()))
        });
        let pushing = {
            let engine = self.server.engine().clone();
            let counts = Arc::clone(self.server.counts().push());
            tokio::spawn(self.pushing.run(engine, counts, stop.clone()))
        };
        let accepting = Accepting {
            listener: self.door.listener,
            encryption: self.door.encryption,
            spoken: Spoken::Http1,
            answers: self.router,
            replies: Replies::new(self.config.drops_replies),
            limits: self.config.limits.clone(),
            proofs: None,
        };
        let server = self.server.clone();
        let mut all_gone = accepting.run(stop, || Counts::connected(&server)).await;
        if let Some(task) = freshening {
            task.abort();
        }
        let rest = async {
            all_gone.recv().await;
            if let Some(notifying) = notifying {
                // One that broke down has nothing left to do.
                drop(notifying.await);
            }
            drop(pushing.await);
            if let Some(exporting) = self.exporting {
                exporting.finish().await;
            }
        };
        let drain = self.config.limits.drain;
        tokio::time::timeout(drain, rest).await.is_ok()
    }
}

/// Waits until a server is told to stop; when nobody can tell it any more, that is a stop too.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}
