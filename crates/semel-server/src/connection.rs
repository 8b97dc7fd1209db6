//! One connection: its handshake, its requests, its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::begun::Begun;
use crate::http2;
use crate::listener::Stream;
use crate::patient::Patient;
use crate::proof::{PREFACE, Proofs, Streams, Turns, Watched};
use crate::replies::{Dropped, Replies};
use crate::socket::{Shared, Socket};

/// The longest that a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The largest head of a request, in bytes; beyond it the answer is 431.
pub(crate) const HEAD_MAX: usize = 32 * 1024;

/// The most headers of a request.
const HEADERS_MAX: usize = 100;

/// Files and connections of the store and of the process itself.
const OTHER_FILES: u64 = 128;

/// What answers requests.
pub(crate) trait Answers: Clone + Send + Sync + 'static {
    /// Answers one. When the future is dropped, its caller has left.
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

impl Answers for Router {
    async fn answer(&self, request: Request<Body>) -> Response {
        let Ok(response) = self.clone().oneshot(request).await;
        response
    }
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// HTTP/1.1, and nothing else.
    Http1,
    /// HTTP/2 beside it: as the handshake of an encrypted connection says, else as the client begins.
    Both,
}

/// What a connection is served with.
pub(crate) struct Connection<A> {
    pub(crate) acceptor: Option<TlsAcceptor>,
    pub(crate) spoken: Spoken,
    pub(crate) answers: A,
    pub(crate) replies: Replies,
    pub(crate) head: Duration,
    /// Where proof of receipt is kept, for those who want it.
    pub(crate) proofs: Option<Proofs>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Serves one connection to its end.
pub(crate) async fn serve<A: Answers>(socket: Socket, mut connection: Connection<A>) {
    let acceptor = connection.acceptor.take();
    let Some(proofs) = connection.proofs.take() else {
        if let Some(secured) = secured(socket, acceptor.as_ref()).await
            && let Some((stream, version)) = chosen(secured, &mut connection).await
        {
            match version {
                Version::Http1 => in_turn(Patient::new(stream), None, connection).await,
                Version::Http2 => at_once(Patient::new(stream), None, connection).await,
            }
        }
        return;
    };
    let socket = Shared::new(socket);
    let look = socket.look();
    let is_encrypted = acceptor.is_some();
    if let Some(secured) = secured(socket, acceptor.as_ref()).await
        && let Some((stream, version)) = chosen(secured, &mut connection).await
    {
        let stream = Patient::new(stream);
        match version {
            Version::Http1 => {
                let turns = proofs.turns(look, is_encrypted);
                let stream = Watched::turns(stream, Arc::clone(&turns));
                in_turn(stream, Some(turns), connection).await;
            }
            Version::Http2 => {
                let streams = proofs.streams(look, is_encrypted);
                let stream = Watched::streams(stream, Arc::clone(&streams));
                at_once(stream, Some(streams), connection).await;
            }
        }
    }
}

/// A connection whose handshake is made, where one is wanted.
struct Secured {
    stream: Box<dyn Stream>,
    /// What both sides agreed to speak.
    agreed: Option<Version>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http1,
    Http2,
}

/// Makes the handshake of an encrypted connection, where one is wanted.
async fn secured<S: Stream + 'static>(
    stream: S,
    acceptor: Option<&TlsAcceptor>,
) -> Option<Secured> {
    let Some(acceptor) = acceptor else {
        return Some(Secured {
            stream: Box::new(stream),
            agreed: None,
        });
    };
    match tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let agreed = stream.get_ref().1.alpn_protocol().map(|name| match name {
                b"h2" => Version::Http2,
                _ => Version::Http1,
            });
            Some(Secured {
                stream: Box::new(stream),
                agreed,
            })
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a handshake failed");
            None
        }
        Err(_) => None,
    }
}

/// Finds out what is spoken; `None` when the client says nothing for too long.
async fn chosen<A>(
    secured: Secured,
    connection: &mut Connection<A>,
) -> Option<(Begun<Box<dyn Stream>>, Version)> {
    let Secured { stream, agreed } = secured;
    let mut stream = Begun::new(stream);
    let agreed = match connection.spoken {
        Spoken::Http1 => Some(Version::Http1),
        Spoken::Both => agreed,
    };
    if let Some(version) = agreed {
        return Some((stream, version));
    }
    let begins = tokio::select! {
        begins = tokio::time::timeout(connection.head, stream.begins_with(PREFACE)) => begins,
        () = crate::stopped(&mut connection.stop) => return None,
    };
    match begins {
        Ok(Ok(true)) => Some((stream, Version::Http2)),
        Ok(Ok(false)) => Some((stream, Version::Http1)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection ended early");
            None
        }
        Err(_) => None,
    }
}

/// Answers requests one after the other until there are no more.
async fn in_turn<S: Stream, A: Answers>(
    stream: S,
    turns: Option<Arc<Turns>>,
    connection: Connection<A>,
) {
    let (answers, replies) = (connection.answers, connection.replies);
    let service = service_fn(|request: Request<Incoming>| {
        let is_lost = replies.loses(request.method());
        let mut request = request.map(Body::new);
        if let Some(turns) = &turns {
            request.extensions_mut().insert(turns.arrived());
        }
        let answers = answers.clone();
        async move {
            let response = answers.answer(request).await;
            if is_lost { Err(Dropped) } else { Ok(response) }
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(connection.head)
        .max_header_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let mut stop = connection.stop;
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = crate::stopped(&mut stop) => {
            // What is under way is answered; then the connection is closed.
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Answers requests at once until there are no more.
async fn at_once<S: Stream, A: Answers>(
    stream: S,
    streams: Option<Arc<Streams>>,
    connection: Connection<A>,
) {
    let served = http2::Served {
        answers: connection.answers,
        replies: connection.replies,
        idle: connection.head,
        streams,
        stop: connection.stop,
    };
    if let Err(error) = http2::converse(stream, served).await {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Makes room for so many connections, or says for how many there is room.
pub(crate) fn room_for(connections: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = connections as u64 + OTHER_FILES;
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return connections;
    }
    let raised = limit.maximum.unwrap_or(u64::MAX).min(wanted);
    let given = Rlimit {
        current: Some(raised),
        maximum: limit.maximum,
    };
    let allowed = if setrlimit(Resource::Nofile, given).is_ok() {
        raised
    } else {
        current
    };
    let room = usize::try_from(allowed.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    room.clamp(1, connections)
}
