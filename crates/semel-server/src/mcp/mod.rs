//! The MCP gateway: any server's tools take effect once, whoever retries.
//!
//! ```text
//!   client ── stdio or HTTP ──▶ Gateway ── tools/call, once ──▶ Upstream: a child, or HTTP
//!                                  │  everything else passes as it came
//!                                  └──▶ Doorway ──▶ Engine
//! ```

mod admin;
mod answer;
mod ask;
mod child;
mod edit;
mod gateway;
mod http;
mod inspect;
mod lines;
mod listed;
mod message;
mod policy;
mod say;
mod seal;
mod sse;
mod stdio;
#[cfg(test)]
mod tests;
mod upstream;
mod verdict;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use semel::Engine;
use semel::core::Digest;
use tokio::sync::mpsc;

pub use self::child::Command;
pub use self::gateway::{TIMEOUT, WAIT};
pub use self::inspect::{Inspected, inspect};
pub use self::listed::{Annotations, Listed};
pub use self::policy::{Cancel, MetaPath, ToolPolicy, UpstreamPolicy, Why};
pub use self::verify::{Verify, VerifyError};

use self::child::Child;
use self::gateway::{About, Gateway, Session};
use self::http::caller::Pepper;
use self::http::children::{self, Children, Visits};
use self::http::door::Opened;
use self::http::front::Behind;
use self::http::relay::Relay;
use self::http::upstream::HttpUpstream;
use self::message::Message;
use self::upstream::{Upstream, WAITING_MAX};
use crate::pool::Pool;
use crate::{StartError, Stop, Url};

/// What a gateway is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server.
    pub server: Server,
    /// What the server is called in the ledger.
    pub name: String,
    /// How its tools are treated.
    pub policy: UpstreamPolicy,
    /// How long an identical call waits for the one that runs.
    pub wait: Duration,
    /// How long the server may take for a call.
    pub timeout: Duration,
    /// How long the end waits for calls that are under way.
    pub drain: Duration,
    /// Whether the gateway has tools of its own.
    pub admin_tools: bool,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Server {
    /// A command that speaks on its standard input and output.
    Command(Command),
    /// One that speaks HTTP.
    Http(Url),
}

impl Server {
    /// Returns what the server is called where nobody named it: the same for each start of it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Command(command) => {
                let words = std::iter::once(&command.program).chain(&command.arguments);
                words.map(String::as_str).collect::<Vec<_>>().join(" ")
            }
            Self::Http(url) => url.whole(),
        }
    }
}

impl Config {
    fn gateway(&self, engine: Engine) -> Result<Arc<Gateway>, StartError> {
        let about = About {
            target: self.name.clone(),
            policy: self.policy.clone(),
            wait: self.wait,
            timeout: self.timeout,
            admin_tools: self.admin_tools,
        };
        let gateway = Gateway::new(engine, about);
        let gateway = gateway.map_err(|error| StartError::Upstream(error.to_string()))?;
        Ok(Arc::new(gateway))
    }
}

/// A server, as one client sees it, that can be ended.
#[derive(Debug)]
enum Reached {
    Child(Arc<Child>),
    Http(Arc<HttpUpstream>),
}

impl Reached {
    fn new(server: &Server, unasked: mpsc::Sender<Message>) -> Result<Self, StartError> {
        Ok(match server {
            Server::Command(command) => Self::Child(Arc::new(Child::new(command.clone(), unasked))),
            Server::Http(url) => {
                let pool = Pool::new(url.clone()).map_err(StartError::Upstream)?;
                let upstream = HttpUpstream::speaking(pool, HeaderMap::new(), unasked);
                Self::Http(Arc::new(upstream))
            }
        })
    }

    fn upstream(&self) -> Arc<dyn Upstream> {
        match self {
            Self::Child(child) => Arc::clone(child) as _,
            Self::Http(http) => Arc::clone(http) as _,
        }
    }

    async fn end(&self) {
        match self {
            Self::Child(child) => child.end().await,
            Self::Http(http) => http.end().await,
        }
    }
}

/// Serves one client on standard input and output until it closes its side or `stop` is done.
///
/// # Errors
/// Says why there is no way to the server.
pub async fn serve_stdio(
    engine: Engine,
    config: Config,
    stop: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let gateway = config.gateway(engine)?;
    let (unasked, coming) = mpsc::channel(WAITING_MAX);
    let server = Reached::new(&config.server, unasked.clone())?;
    let session = Arc::new(Session::new(server.upstream(), unasked));
    let io = (
        tokio::io::stdin(),
        tokio::io::stdout(),
        Arc::new(|| crate::unread::unread(std::io::stdout())) as stdio::Unread,
    );
    stdio::serve(
        Arc::clone(&gateway),
        session,
        coming,
        io,
        stop,
        config.drain,
    )
    .await;
    server.end().await;
    gateway.flush().await;
    Ok(())
}

/// A gateway for clients over HTTP that has opened its door.
#[derive(Debug)]
pub struct Service {
    opened: Opened<Gateway>,
    gateway: Arc<Gateway>,
    drain: Duration,
}

#[derive(Debug)]
struct Starts(Command);

impl children::Start for Starts {
    fn start(&self, unasked: mpsc::Sender<Message>) -> Arc<dyn children::Server> {
        Arc::new(Child::new(self.0.clone(), unasked))
    }
}

impl children::Server for Child {
    fn end(&self) -> upstream::Pending<'_, ()> {
        Box::pin(Self::end(self))
    }
}

impl Service {
    /// Opens the door for clients over HTTP.
    ///
    /// # Errors
    /// Says why that is not possible.
    pub async fn open(
        engine: Engine,
        config: Config,
        listening: crate::Config,
    ) -> Result<Self, StartError> {
        let gateway = config.gateway(engine.clone())?;
        let drain = config.drain;
        let behind = match config.server {
            Server::Command(command) => {
                Behind::Children(Children::new(Box::new(Starts(command)), Visits::default()))
            }
            Server::Http(url) => {
                let pool = Pool::new(url).map_err(StartError::Upstream)?;
                Behind::Server(Relay::new(pool, HeaderMap::new()))
            }
        };
        let pepper = pepper(&engine).await?;
        let opened = Opened::open(Arc::clone(&gateway), behind, engine, listening, pepper).await?;
        Ok(Self {
            opened,
            gateway,
            drain,
        })
    }

    /// Returns where clients find it.
    #[must_use]
    pub fn address(&self) -> String {
        self.opened.address()
    }

    /// Returns what stops it.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        self.opened.stopper()
    }

    /// Serves until it is told to stop; returns whether everything was done by then.
    pub async fn run(self) -> bool {
        let drained = self.gateway.drained(self.drain);
        let is_done = self.opened.run(drained).await;
        self.gateway.flush().await;
        is_done
    }
}

/// Returns what credentials are hashed with: the same for as long as the store is the same one.
async fn pepper(engine: &Engine) -> Result<Pepper, StartError> {
    // A store without a number of its own is one in memory, or another server's.
    let id = engine.store().id().await.unwrap_or_default();
    let hash = Digest::of_parts(&[b"semel-mcp-principal\0", id.as_bytes()]);
    Pepper::new(hash.0.to_vec()).map_err(StartError::Upstream)
}
