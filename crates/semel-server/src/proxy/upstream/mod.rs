//! The proxy's own client: it sends a request at most once, and knows whether anything of it left.
//!
//! ```text
//!  request ─▶ address ─┬─▶ a connection of HTTP/1.1 that waits, if it is young and quiet ─┐
//!                      ├─▶ a place on a connection of HTTP/2                              ├─▶ head ─▶ body
//!                      └─▶ a new connection                                               ┘
//! ```
//!
//! What a waiting connection gives back because it was closed before a byte left goes out on a new one, once. Nothing
//! else is tried again, no redirect is followed and no coding is undone.

mod address;
mod arriving;
mod failure;
mod http1;
mod http2;
mod pool;
mod task;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{Method, Request, Response, StatusCode};
use hyper::body::Body as _;
use rustls::ClientConfig;
use semel::http::{Body, Later, SendError, Upstream};
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use self::address::{Address, Target};
use self::arriving::{Arriving, Carrier};
use self::failure::{Failure, not_reached, not_sent, words};
use self::http1::{Lease, Line};
use self::http2::{Track, Trunks};
use self::pool::{Ages, Pool, busy};
use self::wire::Wire;
use crate::dial::{self, Dialer};
use crate::outbound::Url;

/// How both sides call HTTP/2 when they agree on it (ALPN).
const HTTP2: &[u8] = b"h2";

/// Which HTTP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/2 where both sides agree on it while they set up encryption, else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only; without encryption the server must know.
    Http2,
}

/// How requests are sent.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which HTTP is spoken.
    pub version: Version,
    /// Whether the server is told the host that the caller asked for, instead of its own.
    pub preserve_host: bool,
    /// The most connections at a time.
    pub connections_max: usize,
    /// How long a request waits for one of them.
    pub wait_max: Duration,
    /// How long it may take to reach the server, encryption included.
    pub connect_max: Duration,
    /// How long an answer may be silent once it has begun.
    pub silence_max: Duration,
    /// How long a connection may have been idle before a request that may have an effect goes out on it. A server that
    /// closes it in the same moment makes a doubt out of nothing, and most wait a few seconds before they do.
    pub idle_max: Duration,
    /// The same for a request that only asks.
    pub idle_safe_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: Version::Auto,
            preserve_host: false,
            // Twice as many as the streams that a proxy should bear.
            connections_max: 4096,
            wait_max: Duration::from_secs(10),
            connect_max: Duration::from_secs(10),
            // A model may think for minutes.
            silence_max: Duration::from_mins(10),
            idle_max: Duration::from_secs(1),
            idle_safe_max: Duration::from_secs(30),
        }
    }
}

/// Sends requests to one server.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    /// The server, as it may be named in public.
    place: String,
    target: Target,
    dialer: Dialer,
    options: Options,
    pool: Arc<Pool>,
    trunks: Arc<Trunks>,
    /// Whether the server speaks HTTP/1.1, as far as is known.
    speaks_http1: AtomicBool,
    /// Held by whoever finds out what the server speaks, or opens one more connection for many.
    opening: Mutex<()>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.0.place).finish()
    }
}

impl Client {
    /// Gets ready to send to this server; the path of its address goes before those of all requests.
    ///
    /// # Errors
    /// Says what is wrong with the address, or that no certificate could be checked.
    pub fn new(url: &Url, options: Options) -> Result<Self, String> {
        let tls = url.is_encrypted().then(dial::trust).transpose()?;
        Self::trusting(url, options, tls)
    }

    fn trusting(url: &Url, options: Options, tls: Option<ClientConfig>) -> Result<Self, String> {
        let dialer = match tls {
            Some(mut config) => {
                let offered: &[&[u8]] = match options.version {
                    Version::Auto => &[HTTP2, b"http/1.1"],
                    Version::Http1 => &[b"http/1.1"],
                    Version::Http2 => &[HTTP2],
                };
                config.alpn_protocols = offered.iter().map(|it| it.to_vec()).collect();
                Dialer::trusting(url, config)?
            }
            None => Dialer::new(url)?,
        };
        let ages = Ages {
            unsafe_max: options.idle_max,
            safe_max: options.idle_safe_max,
        };
        let speaks_http1 = match options.version {
            Version::Auto => !url.is_encrypted(),
            Version::Http1 => true,
            Version::Http2 => false,
        };
        Ok(Self(Arc::new(Inner {
            place: url.place(),
            target: Target::new(url, options.preserve_host)?,
            dialer,
            pool: Arc::new(Pool::new(options.connections_max, ages)),
            trunks: Arc::default(),
            speaks_http1: AtomicBool::new(speaks_http1),
            opening: Mutex::default(),
            options,
        })))
    }
}

impl Upstream for Client {
    fn send(&self, request: Request<Body>) -> Later<'static, Result<Response<Body>, SendError>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.send(request).await })
    }
}

/// What a request goes out on.
enum Way {
    /// A connection that waited for it.
    Kept(Line, OwnedSemaphorePermit),
    /// One that was opened for it.
    New(Line, OwnedSemaphorePermit),
    /// A place on one that many use.
    Track(Track, IsNew),
}

type IsNew = bool;

impl Inner {
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, SendError> {
        let address = self.target.address(&mut request);
        let address = address.map_err(|why| not_sent(&self.place, why))?;
        let is_safe = [Method::GET, Method::HEAD].contains(request.method())
            && request.body().is_end_stream();
        let way = self.way(is_safe).await?;
        self.deliver(way, &address, request).await
    }

    /// Sends a request on what was found for it, or once on a new connection if that one gave it back.
    async fn deliver(
        &self,
        way: Way,
        address: &Address,
        request: Request<Body>,
    ) -> Result<Response<Body>, SendError> {
        let is_new = matches!(way, Way::New(..) | Way::Track(_, true));
        match self.carry(way, address, request).await {
            Ok(answer) => Ok(answer),
            Err(Failure::GivenBack(request, _)) if !is_new => {
                let way = self.open(self.place().await?).await?;
                let answer = self.carry(way, address, *request).await;
                answer.map_err(|failure| failure.last(&self.place))
            }
            Err(failure) => Err(failure.last(&self.place)),
        }
    }

    /// Finds what a request can go out on.
    async fn way(&self, is_safe: bool) -> Result<Way, SendError> {
        let patience = Instant::now() + self.options.wait_max;
        let too_long = |_| {
            let (all, waited) = (self.options.connections_max, self.options.wait_max);
            not_sent(&self.place, busy(all, waited))
        };
        loop {
            let mut freed = pin!(self.trunks.freed());
            if self.speaks_http1.load(Ordering::Acquire) {
                let place = self.place().await?;
                return match self.pool.take(is_safe) {
                    Some(line) => Ok(Way::Kept(line, place)),
                    None => self.open(place).await,
                };
            }
            if let Some(track) = self.trunks.place() {
                return Ok(Way::Track(track, false));
            }
            if self.trunks.len() >= self.options.connections_max {
                timeout_at(patience, &mut freed).await.map_err(too_long)?;
                continue;
            }
            // One at a time: the others may find a place on the connection that the first one opens.
            let turn = timeout_at(patience, self.opening.lock());
            let turn = turn.await.map_err(too_long)?;
            if self.speaks_http1.load(Ordering::Acquire) {
                continue;
            }
            if let Some(track) = self.trunks.place() {
                return Ok(Way::Track(track, false));
            }
            let way = self.open(self.place().await?).await;
            drop(turn);
            return way;
        }
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, SendError> {
        let place = self.pool.place(self.options.wait_max).await;
        place.map_err(|why| not_sent(&self.place, why))
    }

    /// Opens a connection. Nothing was sent when this fails.
    async fn open(&self, place: OwnedSemaphorePermit) -> Result<Way, SendError> {
        self.pool.make_room();
        let mut gate = None;
        let dialing = self.dialer.open(|tcp| {
            let (wire, its_gate) = Wire::new(tcp);
            gate = Some(its_gate);
            wire
        });
        let dialed = match timeout(self.options.connect_max, dialing).await {
            Ok(dialed) => dialed.map_err(|error| words(&error)),
            Err(_) => Err("it did not let us in".to_owned()),
        };
        let dialed = dialed.map_err(|why| not_reached(&self.place, &why))?;
        let Some(gate) = gate else {
            return Err(not_sent(&self.place, "it was not reached".to_owned()));
        };
        let speaks_http2 = match self.options.version {
            Version::Auto => dialed.protocol.as_deref() == Some(HTTP2),
            Version::Http1 => false,
            Version::Http2 => true,
        };
        self.speaks_http1.store(!speaks_http2, Ordering::Release);
        let way = if speaks_http2 {
            let track = self.trunks.add(dialed.stream, gate).await;
            track.map(|track| Way::Track(track, true))
        } else {
            let line = Line::new(dialed.stream, gate, &self.pool).await;
            line.map(|line| Way::New(line, place))
        };
        way.map_err(|error| not_sent(&self.place, words(&error)))
    }

    /// Sends a request on what was found for it.
    async fn carry(
        &self,
        way: Way,
        address: &Address,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Failure> {
        let (answer, carrier) = match way {
            Way::Kept(mut line, place) | Way::New(mut line, place) => {
                address
                    .write_http1(&mut request)
                    .map_err(Failure::NotSent)?;
                let answer = line.send(request).await?;
                let lease = Lease::new(line, place, answer.headers());
                (answer, Carrier::Line(lease, Arc::downgrade(&self.pool)))
            }
            Way::Track(track, _) => {
                address
                    .write_http2(&mut request)
                    .map_err(Failure::NotSent)?;
                (track.send(request).await?, Carrier::Track(track))
            }
        };
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let why = "it switched to another protocol, which nobody asked for";
            return Err(Failure::Lost(why.to_owned()));
        }
        let silence_max = self.options.silence_max;
        Ok(answer.map(|body| Body::new(Arriving::new(body, carrier, silence_max))))
    }
}
