//! A server for remote engines, over a real socket, that can be told to misbehave.
//!
//! It has only what the wire needs: `semel_server` is where the real one is.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use semel::Engine;
use semel::remote::RemoteStore;
use semel::store::{Pending, Store};
use semel::wire::{self, Call, Caller};
use semel_core::{Namespace, Scope};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::conformance::{Bed, ManualClock};

/// What goes wrong with the next call that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The connection is cut before the call is carried out.
    LoseRequest,
    /// The connection is cut after the call was carried out.
    LoseReply,
    /// The call is carried out, and the answer is no message.
    Garbage,
    /// The call is carried out, and the answer is cut in the middle.
    HalfAnAnswer,
    /// The call is not carried out, and the server says that it failed.
    Fail,
    /// The call is not carried out, and there is never an answer.
    Silence,
}

/// A server on a port of this machine; it ends with its handle, or at once when it is stopped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// It serves until this is gone.
    wanted: oneshot::Sender<Infallible>,
    serving: JoinHandle<()>,
}

struct Shared {
    engine: Engine,
    callers: Mutex<BTreeMap<String, Caller>>,
    /// Whoever comes without a token.
    stranger: Option<Caller>,
    trouble: Mutex<VecDeque<Trouble>>,
    calls: Mutex<Vec<String>>,
    connections: Mutex<Connections>,
}

/// How many connections there are, and how many there were at once.
#[derive(Debug, Default)]
struct Connections {
    open: usize,
    most: usize,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// Makes somebody behind this wall who may do everything that the wire allows.
///
/// # Panics
/// When the name of the namespace breaks its rule.
#[must_use]
pub fn caller(namespace: &str, scope: Scope) -> Caller {
    Caller {
        namespace: Namespace::new(namespace).expect("a test's namespace is valid"),
        scope,
        principal: None,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Starts one on this store, on any free port. Whoever has no token is in `default`.
    ///
    /// # Panics
    /// When there is no port.
    pub async fn start(store: Arc<dyn Store>) -> Self {
        Self::start_at(store, "127.0.0.1:0").await
    }

    /// Starts one at this address.
    ///
    /// # Panics
    /// When the address cannot be used.
    pub async fn start_at(store: Arc<dyn Store>, address: &str) -> Self {
        let engine = Engine::builder()
            .store(store)
            .sweep_every(None)
            .holder(None);
        let engine = engine.start().await.expect("the engine starts");
        let listener = TcpListener::bind(address).await.expect("it listens");
        let address = listener.local_addr().expect("it has an address");
        let shared = Arc::new(Shared {
            engine,
            callers: Mutex::default(),
            stranger: Some(caller("default", Scope::Admin)),
            trouble: Mutex::default(),
            calls: Mutex::default(),
            connections: Mutex::default(),
        });
        let (wanted, unwanted) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared), unwanted));
        Self {
            address,
            shared,
            wanted,
            serving,
        }
    }

    /// Ends it: when this returns, the port is free and every connection is cut.
    ///
    /// # Panics
    /// When serving failed.
    pub async fn stop(self) {
        drop(self.wanted);
        self.serving.await.expect("it served");
    }

    /// Returns the URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets whoever has this token in.
    pub fn admit(&self, token: &str, caller: Caller) {
        locked(&self.shared.callers).insert(token.to_owned(), caller);
    }

    /// Plans what goes wrong with the next calls that write.
    pub fn plan(&self, trouble: &[Trouble]) {
        locked(&self.shared.trouble).extend(trouble);
    }

    /// Says whether all that was planned has happened.
    #[must_use]
    pub fn is_untroubled(&self) -> bool {
        locked(&self.shared.trouble).is_empty()
    }

    /// Returns the commands that have arrived, carried out or not.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        locked(&self.shared.calls).clone()
    }

    /// Returns how many connections there were at once, at most.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        locked(&self.shared.connections).most
    }

    /// Returns the engine behind it.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }
}

/// Serves until nobody wants it any more; then its connections are cut.
async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut unwanted: oneshot::Receiver<Infallible>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Err(_) = &mut unwanted => break connections.shutdown().await,
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("it accepts");
                connections.spawn(converse(stream, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    {
        let mut connections = locked(&shared.connections);
        connections.open += 1;
        connections.most = connections.most.max(connections.open);
    }
    let counted = Arc::clone(&shared);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { respond(&shared, request).await }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    // A client that goes away is nothing to a server.
    drop(
        connection
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
    locked(&counted.connections).open -= 1;
}

type Body = http_body_util::Either<Full<Bytes>, Cut>;

async fn respond(shared: &Shared, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let Some(caller) = known(shared, &request) else {
        let problem = r#"{"title":"Unauthorized","detail":"the token is not known"}"#;
        return Ok(response(
            StatusCode::UNAUTHORIZED,
            "application/problem+json",
            problem,
        ));
    };
    let body = Limited::new(request.into_body(), wire::MESSAGE_MAX);
    let Ok(body) = body.collect().await else {
        return Ok(response(
            StatusCode::PAYLOAD_TOO_LARGE,
            "text/plain",
            "too large",
        ));
    };
    let body = body.to_bytes();
    let trouble = match Call::decode(&body) {
        Ok(call) if call.writes() => {
            if let Call::Apply(apply) = &call {
                locked(&shared.calls).push(apply.command.name().to_owned());
            }
            locked(&shared.trouble).pop_front()
        }
        Ok(_) | Err(_) => None,
    };
    let cut = || io::Error::other("cut");
    match trouble {
        Some(Trouble::LoseRequest) => return Err(cut()),
        Some(Trouble::Fail) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(response(status, "text/plain", "not now"));
        }
        Some(Trouble::Silence) => std::future::pending().await,
        Some(Trouble::LoseReply | Trouble::Garbage | Trouble::HalfAnAnswer) | None => {}
    }
    let answered = wire::answer(&shared.engine, &caller, &body).await;
    let answered = answered.map(|message| message.bytes);
    match trouble {
        Some(Trouble::LoseReply) => return Err(cut()),
        Some(Trouble::Garbage) => {
            return Ok(response(StatusCode::OK, wire::MEDIA_TYPE, "what?"));
        }
        _ => {}
    }
    Ok(match answered {
        Ok(bytes) if trouble == Some(Trouble::HalfAnAnswer) => {
            let half = bytes[..bytes.len() / 2].to_vec();
            let mut response = Response::new(http_body_util::Either::Right(Cut(Some(half.into()))));
            let length = hyper::header::HeaderValue::from(bytes.len());
            let media_type = hyper::header::HeaderValue::from_static(wire::MEDIA_TYPE);
            response.headers_mut().insert(CONTENT_TYPE, media_type);
            response
                .headers_mut()
                .insert(hyper::header::CONTENT_LENGTH, length);
            response
        }
        Ok(bytes) => response(StatusCode::OK, wire::MEDIA_TYPE, bytes),
        Err(malformed) => response(StatusCode::BAD_REQUEST, "text/plain", malformed.to_string()),
    })
}

/// A body that ends before it is over.
#[derive(Debug)]
struct Cut(Option<Bytes>);

impl hyper::body::Body for Cut {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        let piece = self.0.take();
        std::task::Poll::Ready(piece.map(|piece| Ok(hyper::body::Frame::data(piece))))
    }
}

fn known(shared: &Shared, request: &Request<Incoming>) -> Option<Caller> {
    let Some(header) = request.headers().get(AUTHORIZATION) else {
        return shared.stranger.clone();
    };
    let token = header.to_str().ok()?.strip_prefix("Bearer ")?;
    locked(&shared.callers).get(token).cloned()
}

fn response(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(http_body_util::Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    let media_type = hyper::header::HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// A store behind a server, opened by remote engines.
#[derive(Debug)]
pub struct RemoteBed {
    behind: Arc<dyn Bed>,
    server: OnceCell<Server>,
}

impl RemoteBed {
    /// Opens the store as somebody behind this wall.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn open_in(&self, namespace: &Namespace) -> Arc<dyn Store> {
        let server = self.server().await;
        server.admit(namespace.as_str(), caller(namespace.as_str(), Scope::Admin));
        let store = RemoteStore::open(&server.url(), Some(namespace.as_str())).await;
        Arc::new(store.expect("the server answers").with_notes(None))
    }

    async fn server(&self) -> &Server {
        let start = async || Server::start(self.behind.open().await).await;
        self.server.get_or_init(start).await
    }

    /// Puts a server before a store.
    #[must_use]
    pub fn new(behind: Arc<dyn Bed>) -> Self {
        Self {
            behind,
            server: OnceCell::new(),
        }
    }
}

impl Bed for RemoteBed {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async {
            let url = self.server().await.url();
            let store = RemoteStore::open(&url, None).await;
            Arc::new(store.expect("the server answers").with_notes(None)) as Arc<dyn Store>
        })
    }

    fn clock(&self) -> &Arc<ManualClock> {
        self.behind.clock()
    }

    fn behind(&self) -> Option<&Arc<dyn Bed>> {
        Some(&self.behind)
    }
}
