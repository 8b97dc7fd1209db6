//! The MCP gateway: any server's tools take effect once, whoever retries.
//!
//! ```text
//!   client ── stdio or HTTP ──▶ Gateway ── tools/call, once ──▶ Upstream: a child, or HTTP
//!                                  │  everything else passes as it came
//!                                  └──▶ Doorway ──▶ Engine
//! ```
//!
//! Several servers behind one gateway are a `Union`, which is an upstream like any other.

mod admin;
mod answer;
mod ask;
mod catalogue;
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
mod schema;
mod seal;
mod sse;
mod standard;
mod stdio;
#[cfg(test)]
mod tests;
mod union;
mod upstream;
mod verdict;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use semel::Engine;
use semel::breaker::{Breakers, Target};
use semel::core::http::CredentialRule;
use tokio::sync::mpsc;

pub use self::child::{Command, Environment};
pub use self::gateway::{TIMEOUT, WAIT};
pub use self::inspect::{Inspected, inspect};
pub use self::listed::{Annotations, Listed};
pub use self::policy::{Cancel, MetaPath, ToolPolicy, UpstreamPolicy, Why};
pub use self::verify::{Verify, VerifyError};

use self::catalogue::Catalogue;
use self::child::Child;
use self::gateway::{About, Gateway, Session};
use self::http::children::{self, Children, Start as _, Visits};
use self::http::door::Opened;
use self::http::front::Behind;
use self::http::relay::Relay;
use self::http::upstream::HttpUpstream;
use self::message::Message;
use self::union::Union;
use self::upstream::{Upstream, WAITING_MAX};
use crate::pool::Pool;
use crate::principal_key::PrincipalKey;
use crate::{StartError, Stop, Url};

/// What a gateway is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The servers, at least one.
    pub servers: Vec<Served>,
    /// How long an identical call waits for the one that runs.
    pub wait: Duration,
    /// How long the server may take for a call.
    pub timeout: Duration,
    /// How long the end waits for calls that are under way.
    pub drain: Duration,
    /// Whether the gateway has tools of its own.
    pub admin_tools: bool,
    /// Which credentials of clients over HTTP say whose call it is.
    pub credentials: CredentialRule,
}

/// A server behind a gateway.
#[derive(Clone, Debug)]
pub struct Served {
    /// Where it is.
    pub server: Server,
    /// What it is called in the ledger, and in front of its tools where another server has one of the same name.
    pub name: String,
    /// How its tools are treated.
    pub policy: UpstreamPolicy,
    /// What keeps calls from it while it fails.
    pub breaker: Option<Target>,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Server {
    /// A command that speaks on its standard input and output.
    Command(Command),
    /// One that speaks HTTP.
    Http {
        /// Where.
        url: Url,
        /// What goes with every request, such as credentials; marked as sensitive, they are not shown.
        headers: HeaderMap,
    },
}

/// Headers that the gateway writes itself, beside those of the protocol: who set them would make its requests unreadable.
const OWN_HEADERS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "transfer-encoding",
];

impl Server {
    /// Names a server that speaks HTTP, and what goes with every request to it.
    ///
    /// # Errors
    /// Says which header cannot be one, and not what it holds.
    pub fn at(url: Url, fixed: &[(String, String)]) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in fixed {
            let parsed = HeaderName::try_from(name);
            let parsed = parsed.map_err(|_| format!("`{name}` is no name of a header"))?;
            if OWN_HEADERS.contains(&parsed.as_str()) || parsed.as_str().starts_with("mcp-") {
                return Err(format!("`{name}` is written by the gateway itself"));
            }
            let value = HeaderValue::try_from(value);
            let mut value =
                value.map_err(|_| format!("`{name}` has a value that no header has"))?;
            value.set_sensitive(true);
            headers.insert(parsed, value);
        }
        Ok(Self::Http { url, headers })
    }

    /// Returns what the server is called where nobody named it: the same for each start of it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Command(command) => {
                let words = std::iter::once(&command.program).chain(&command.arguments);
                words.map(String::as_str).collect::<Vec<_>>().join(" ")
            }
            Self::Http { url, .. } => url.whole(),
        }
    }
}

impl Config {
    fn gateway(&self, engine: Engine) -> Result<Arc<Gateway>, StartError> {
        let servers = self.servers.iter();
        let servers = servers.map(|it| {
            let breakers = it.breaker.as_ref().map(|it| Breakers::new(&engine, it));
            catalogue::Served::new(it.name.clone(), it.policy.clone()).behind(breakers)
        });
        let about = About {
            catalogue: Arc::new(Catalogue::new(servers.collect(), self.admin_tools)),
            wait: self.wait,
            timeout: self.timeout,
            admin_tools: self.admin_tools,
        };
        let gateway = Gateway::new(engine, about);
        let gateway = gateway.map_err(|error| StartError::Upstream(error.to_string()))?;
        Ok(Arc::new(gateway))
    }

    /// Finds the ways to the servers.
    fn roads(&self) -> Result<Vec<Road>, StartError> {
        let servers = self.servers.iter();
        servers.map(|served| Road::to(&served.server)).collect()
    }
}

/// The way to a server, which every client goes by itself.
#[derive(Clone, Debug)]
enum Road {
    Command(Command),
    Http(Pool, HeaderMap),
}

impl Road {
    fn to(server: &Server) -> Result<Self, StartError> {
        Ok(match server {
            Server::Command(command) => Self::Command(command.clone()),
            Server::Http { url, headers } => {
                let pool = Pool::new(url.clone()).map_err(StartError::Upstream)?;
                Self::Http(pool, headers.clone())
            }
        })
    }

    /// Reaches the server for one client.
    fn reach(&self, unasked: mpsc::Sender<Message>) -> Arc<dyn children::Server> {
        match self {
            Self::Command(command) => Arc::new(Child::new(command.clone(), unasked)),
            Self::Http(pool, headers) => {
                let (pool, headers) = (pool.clone(), headers.clone());
                Arc::new(HttpUpstream::speaking(pool, headers, unasked))
            }
        }
    }
}

/// The ways to all servers: to the only one, or to all of them as one.
#[derive(Debug)]
struct Roads {
    roads: Vec<Road>,
    catalogue: Arc<Catalogue>,
}

impl children::Start for Roads {
    fn start(&self, unasked: mpsc::Sender<Message>) -> Arc<dyn children::Server> {
        match self.roads.as_slice() {
            [road] => road.reach(unasked),
            roads => {
                let catalogue = Arc::clone(&self.catalogue);
                let reach = |at: usize, unasked| roads[at].reach(unasked);
                Arc::new(Union::new(catalogue, reach, unasked))
            }
        }
    }
}

impl children::Server for Child {
    fn end(&self) -> upstream::Pending<'_, ()> {
        Box::pin(Self::end(self))
    }
}

impl children::Server for HttpUpstream {
    fn end(&self) -> upstream::Pending<'_, ()> {
        Box::pin(Self::end(self))
    }
}

/// Serves one client on standard input and output until it closes its side or `stop` is done.
///
/// # Errors
/// Says why there is no way to the server.
pub async fn serve_stdio(
    engine: Engine,
    config: Config,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), StartError> {
    let gateway = config.gateway(engine)?;
    let (unasked, coming) = mpsc::channel(WAITING_MAX);
    let roads = Roads {
        roads: config.roads()?,
        catalogue: gateway.catalogue(),
    };
    let server = roads.start(unasked.clone());
    let upstream: Arc<dyn Upstream> = Arc::<dyn children::Server>::clone(&server);
    let session = Arc::new(Session::new(upstream, unasked));
    let opened = standard::input().and_then(|input| Ok((input, standard::output()?)));
    let (input, (output, sight)) =
        opened.map_err(|error| StartError::Standard(error.to_string()))?;
    let io = (input, output, Arc::new(sight) as _);
    let drain = config.drain;
    let end = async move { server.end().await };
    let serving = stdio::serve(Arc::clone(&gateway), session, coming, io, stop, drain, end);
    // In a task: what the thread of the command runs itself has to be woken by another one each time.
    if let Err(error) = tokio::spawn(serving).await
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
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
        let credentials = config.credentials.clone();
        let roads = config.roads()?;
        let behind = match roads.as_slice() {
            // Who speaks HTTP on both sides hears the very headers of the other.
            [Road::Http(pool, headers)] => {
                Behind::Server(Relay::new(pool.clone(), headers.clone()))
            }
            _ => {
                let catalogue = gateway.catalogue();
                let start = Box::new(Roads { roads, catalogue });
                Behind::Children(Children::new(start, Visits::default()))
            }
        };
        let principal_key = PrincipalKey::open(&engine, "mcp").await?;
        let desk = Arc::clone(&gateway);
        let opened =
            Opened::open(desk, behind, engine, listening, principal_key, credentials).await?;
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
