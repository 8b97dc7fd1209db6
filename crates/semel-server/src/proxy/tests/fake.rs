//! Something behind the door that only remembers what came.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use semel::core::http::CredentialRule;
use semel::http::{Answer, Became, Body, Caller};
use semel::{Engine, NewToken, Scope};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::door::Opened;
use super::super::front::{Guarded, Guards};
use super::super::route::Matches;
use crate::Stop;
use crate::config::{Config, Listen};

/// Longer than anything here takes: what does not come by then does not come.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Came {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    /// `None` for a body that broke off.
    pub(super) body: Option<Bytes>,
    pub(super) principal: Option<String>,
}

/// Remembers what came.
#[derive(Clone)]
pub(super) struct Fake {
    name: &'static str,
    came: Arc<Mutex<Vec<Came>>>,
    /// What answers have beside what they always have.
    headers: HeaderMap,
    /// Says how many wait, and how many have left.
    pub(super) waiting: Arc<watch::Sender<(usize, usize)>>,
    pub(super) answers: Arc<watch::Sender<bool>>,
}

struct Waits(Fake);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|(_, left)| *left += 1);
    }
}

impl Fake {
    pub(super) fn named(name: &'static str) -> Self {
        Self {
            name,
            came: Arc::default(),
            headers: HeaderMap::new(),
            waiting: Arc::new(watch::Sender::new((0, 0))),
            answers: Arc::new(watch::Sender::new(true)),
        }
    }

    pub(super) fn saying(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.append(name, HeaderValue::from_static(value));
        self
    }

    /// Lets nobody be answered for now.
    pub(super) fn silent(self) -> Self {
        self.answers.send_replace(false);
        self
    }

    pub(super) fn all(&self) -> Vec<Came> {
        let came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came.clone()
    }

    /// Waits until so many wait, and so many have left.
    pub(super) async fn until(&self, waiting: usize, left: usize) {
        let mut seen = self.waiting.subscribe();
        let reached = seen.wait_for(|(came, gone)| *came >= waiting && *gone >= left);
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "{:?}", *self.waiting.borrow());
    }
}

impl Guards for Fake {
    async fn handle(&self, request: Request<Body>, caller: Caller) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.ok().map(|body| body.to_bytes());
        self.came
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Came {
                method: parts.method,
                target: parts.uri.to_string(),
                headers: parts.headers,
                body,
                principal: caller.principal,
            });
        self.waiting.send_modify(|(came, _)| *came += 1);
        let waits = Waits(self.clone());
        let mut answers = self.answers.subscribe();
        let told = answers.wait_for(|answers| *answers).await;
        told.expect("the test goes on");
        drop(waits);
        let mut response = Response::new(Body::full(self.name));
        *response.status_mut() = StatusCode::CREATED;
        response.headers_mut().extend(self.headers.clone());
        Answer {
            became: Became::Executed,
            response,
            seat: None,
        }
    }

    async fn drained(&self) {}
}

/// A proxy that serves.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    pub(super) stop: Stop,
    pub(super) running: JoinHandle<bool>,
}

/// What is told to a proxy that listens on this machine.
pub(super) fn local() -> Config {
    Config::new(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))))
}

pub(super) fn guarded(guard: Fake) -> Guarded<Fake> {
    Guarded {
        label: String::new(),
        guard,
        credentials: CredentialRule::default(),
        keys: vec![HeaderName::from_static("idempotency-key")],
        replayed: HeaderName::from_static("idempotent-replayed"),
    }
}

/// Serves one route for everything.
pub(super) async fn proxy(guard: &Fake) -> Proxy {
    let engine = Engine::open("memory:").await.expect("it opens");
    let routes = vec![(Matches::all(), guarded(guard.clone()))];
    serving(engine, routes, local()).await
}

pub(super) async fn serving(
    engine: Engine,
    routes: Vec<(Matches, Guarded<Fake>)>,
    config: Config,
) -> Proxy {
    let opened = Opened::open(engine, routes, config).await;
    let opened = opened.expect("there is a port");
    let address = opened.address().trim_start_matches("http://");
    Proxy {
        address: address.parse().expect("it is an address"),
        stop: opened.stopper(),
        running: tokio::spawn(opened.run()),
    }
}

pub(super) async fn made(engine: &Engine, scope: Scope) -> String {
    let wanted = NewToken {
        namespace: semel::Namespace::default(),
        scope,
        label: None,
        expires_in: None,
    };
    let (token, _) = engine.create_token(wanted).await.expect("it is made");
    token.reveal()
}

/// Sends these bytes and returns everything that comes until the connection is closed.
pub(super) async fn said(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let sent = stream.write_all(text.as_bytes()).await;
    sent.expect("it is sent");
    let mut answer = vec![];
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("it comes").expect("it is closed in good order");
    String::from_utf8(answer).expect("it is text")
}

/// Sends a request with these lines, and returns its answer.
pub(super) async fn asked(address: SocketAddr, first: &str, lines: &[&str]) -> String {
    let mut text = format!("{first} HTTP/1.1\r\nConnection: close\r\n");
    if !lines.iter().any(|line| line.starts_with("Host:")) {
        text.push_str("Host: localhost\r\n");
    }
    for line in lines {
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    said(address, &text).await
}
