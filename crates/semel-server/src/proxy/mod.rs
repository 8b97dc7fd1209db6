//! The proxy: requests over HTTP that take effect once, whoever retries them.
//!
//! ```text
//!   client ── HTTP/1.1, HTTP/2 ──▶ front ── route, principal ──▶ Guard ──▶ upstream
//!                 ▲                                                │
//!                 └── what the connection tells of the answers ────┘
//! ```

mod arriving;
mod door;
mod front;
mod headers;
mod principal;
mod route;
#[cfg(test)]
mod tests;
pub mod upstream;

use std::fmt;
use std::sync::Arc;

use semel::Engine;
use semel::door::Doorway;
use semel::http::{Guard, Rules, Upstream};

pub use axum::http::{HeaderName, Method};

pub use self::route::Matches;

use self::door::Opened;
use self::front::Guarded;
use crate::metrics::Proxied;
use crate::{StartError, Stop};

/// What a proxy is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where requests go; the first route that fits is taken.
    pub routes: Vec<Route>,
}

/// Where some requests go, and how they are treated.
#[derive(Clone)]
pub struct Route {
    /// Which requests.
    pub matches: Matches,
    /// How they are treated.
    pub rules: Rules,
    /// Where they go.
    pub upstream: Arc<dyn Upstream>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("matches", &self.matches)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Route {
    /// Takes every request to one upstream.
    #[must_use]
    pub fn all(rules: Rules, upstream: Arc<dyn Upstream>) -> Self {
        Self {
            matches: Matches::all(),
            rules,
            upstream,
        }
    }

    fn guarded(self, doorway: &Doorway) -> (Matches, Guarded<Guard>) {
        let guarded = Guarded {
            credentials: self.rules.credential_rule(),
            label: self.matches.label(),
            keys: self.rules.key_headers.clone(),
            replayed: self.rules.replayed(),
            guard: Guard::new(doorway.clone(), self.rules, self.upstream),
        };
        (self.matches, guarded)
    }
}

/// A proxy that has opened its door.
#[derive(Debug)]
pub struct Service {
    opened: Opened<Guard>,
    doorway: Doorway,
}

impl Service {
    /// Opens the door.
    ///
    /// # Errors
    /// Says why that is not possible.
    pub async fn open(
        engine: Engine,
        config: Config,
        listening: crate::Config,
    ) -> Result<Self, StartError> {
        let doorway = Doorway::new(engine.clone());
        let routes = config.routes.into_iter();
        let routes = routes.map(|route| route.guarded(&doorway)).collect();
        let opened = Opened::open(engine, routes, listening).await?;
        Ok(Self { opened, doorway })
    }

    /// Returns where clients find it.
    #[must_use]
    pub fn address(&self) -> &str {
        self.opened.address()
    }

    /// Returns what is counted of its requests.
    pub(crate) fn counts(&self) -> Arc<Proxied> {
        self.opened.counts()
    }

    /// Returns what stops it.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        self.opened.stopper()
    }

    /// Serves until it is told to stop; returns whether everything was done by then.
    pub async fn run(self) -> bool {
        let is_done = self.opened.run().await;
        if let Err(error) = self.doorway.flush().await {
            tracing::warn!(%error, "it is not stored which answers arrived");
        }
        is_done
    }
}
