//! What a server is told when it starts.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semel::Namespace;
use semel::core::http::Host;
use semel::core::http::site::Scheme;
use tokio::sync::watch;

use crate::inbox::Sources;
use crate::notify::Secret;
use crate::outbound::Url;
use crate::push::Push;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// At an address.
    Tcp(SocketAddr),
    /// At a socket in the file system, which only its owner can use.
    Unix(PathBuf),
}

impl Listen {
    /// Says whether only this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// Who needs a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Auth {
    /// Callers on this machine need none.
    #[default]
    Loopback,
    /// Everybody.
    Required,
}

/// How much of everything there may be.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body of a request, in bytes.
    pub body: usize,
    /// How long a body may take to arrive.
    pub read: Duration,
    /// How long a request's head may take to arrive, and a connection may be idle.
    pub head: Duration,
    /// The longest that a begin may wait for another one's attempt.
    pub wait: Duration,
    /// The longest that the store may take.
    pub deadline: Duration,
    /// The longest that the store may take to be ready.
    pub ready: Duration,
    /// The most connections.
    pub connections: usize,
    /// The most event streams.
    pub streams: usize,
    /// How long a stop waits for what is under way.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 2 * 1024 * 1024,
            read: Duration::from_secs(10),
            head: Duration::from_secs(10),
            wait: Duration::from_secs(60),
            deadline: Duration::from_secs(10),
            ready: Duration::from_secs(2),
            connections: 16_384,
            streams: 12_000,
            drain: Duration::from_secs(10),
        }
    }
}

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate and those that vouch for it, in PEM.
    pub cert: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

/// Who is told of doubts and of dead operations.
#[derive(Clone, Debug, Default)]
pub struct Notify {
    /// A line of shell that is run for each.
    pub command: Option<String>,
    /// An address that each is sent to.
    pub webhook: Option<Url>,
    /// What it is signed with.
    pub secret: Option<Secret>,
}

/// What a server is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: Listen,
    /// Who needs a token.
    pub auth: Auth,
    /// Encrypts connections.
    pub tls: Option<Tls>,
    /// The only namespace that is served: tokens of others are refused. Without one, tokens of every namespace are taken, and
    /// each acts in its own. Anonymous callers act in that of the engine.
    pub namespace: Option<Namespace>,
    /// Further names that callers know this server by, at every port unless one is named.
    pub hosts: Vec<Host>,
    /// The origins whose pages may call.
    pub origins: Vec<String>,
    /// How many calls a token may make each second.
    pub rate_limit: Option<NonZeroU32>,
    /// Who is told of doubts and of dead operations.
    pub notify: Notify,
    /// Whose webhooks are received; what changes here counts from then on.
    pub inbox: watch::Receiver<Arc<Sources>>,
    /// The queues whose tasks are sent to a URL.
    pub push: Vec<Push>,
    /// Where spans of requests are sent to; only builds with the feature `otlp` send them.
    pub otlp: Option<Url>,
    /// Loses the first reply to a call that changes something, the third, and so on, after it was done: for
    /// those who test their own clients.
    pub drops_replies: bool,
    /// How much of everything there may be.
    pub limits: Limits,
}

impl Config {
    /// Starts with what is usual.
    #[must_use]
    pub fn new(listen: Listen) -> Self {
        Self {
            listen,
            auth: Auth::default(),
            tls: None,
            namespace: None,
            hosts: vec![],
            origins: vec![],
            rate_limit: None,
            notify: Notify::default(),
            inbox: watch::channel(Arc::default()).1,
            push: vec![],
            otlp: None,
            drops_replies: false,
            limits: Limits::default(),
        }
    }

    /// Says whether every caller needs a token.
    #[must_use]
    pub fn needs_token(&self) -> bool {
        self.auth == Auth::Required || !self.listen.is_local()
    }

    /// Says whether a host names this server: a page on a name that leads here could otherwise speak for the person who
    /// looks at it. Beyond this machine any name may be right, unless some are given.
    pub(crate) fn accepts_host(&self, host: &Host) -> bool {
        let takes_any = !self.listen.is_local() && self.hosts.is_empty();
        takes_any || host.is_loopback() || self.hosts.iter().any(|known| host.is_meant_by(known))
    }

    /// Returns how the server is spoken to.
    pub(crate) const fn scheme(&self) -> Scheme {
        match self.tls {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> Config {
        Config::new(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 7363))))
    }

    fn accepts(config: &Config, host: &str) -> bool {
        config.accepts_host(&Host::parse(host).expect("it is a host"))
    }

    #[test]
    fn only_names_of_this_machine_are_accepted_on_it() {
        let mut config = local();
        for (host, accepted) in [
            ("127.0.0.1:7363", true),
            ("127.0.0.1", true),
            ("LocalHost:7363", true),
            ("[::1]:7363", true),
            ("evil.example:7363", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(accepts(&config, host), accepted, "{host}");
        }
        config.hosts = vec![Host::parse("semel.internal").expect("it is a host")];
        assert!(accepts(&config, "semel.internal:80"));
        assert!(accepts(&config, "localhost"));
        assert!(!accepts(&config, "evil.example"));
    }

    #[test]
    fn tokens_are_needed_beyond_this_machine() {
        let mut config = local();
        assert!(!config.needs_token());
        config.auth = Auth::Required;
        assert!(config.needs_token());
        assert!(Config::new(Listen::Tcp(SocketAddr::from(([10, 0, 0, 1], 80)))).needs_token());
        assert!(!Config::new(Listen::Unix("/run/semel.sock".into())).needs_token());
    }
}
