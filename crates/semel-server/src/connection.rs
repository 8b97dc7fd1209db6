//! One connection: its handshake, its requests, its end.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::listener::Stream;
use crate::patient::Patient;
use crate::proof::{Line, Proofs, Watched};
use crate::replies::{Dropped, Replies};
use crate::socket::{Shared, Socket};

/// The longest that a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The largest head of a request, in bytes; beyond it the answer is 431.
const HEAD_MAX: usize = 32 * 1024;

/// The most headers of a request.
const HEADERS_MAX: usize = 100;

/// Files and connections of the store and of the process itself.
const OTHER_FILES: u64 = 128;

/// What a connection is served with.
pub(crate) struct Connection {
    pub(crate) acceptor: Option<TlsAcceptor>,
    pub(crate) router: Router,
    pub(crate) replies: Replies,
    pub(crate) head: Duration,
    /// Where proof of receipt is kept, for those who want it.
    pub(crate) proofs: Option<Proofs>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Serves one connection to its end.
pub(crate) async fn serve(socket: Socket, mut connection: Connection) {
    let Some(proofs) = connection.proofs.take() else {
        if let Some(stream) = secured(socket, connection.acceptor.as_ref()).await {
            converse(Patient::new(stream), None, connection).await;
        }
        return;
    };
    let socket = Shared::new(socket);
    let line = proofs.line(socket.look(), connection.acceptor.is_some());
    if let Some(stream) = secured(socket, connection.acceptor.as_ref()).await {
        let stream = Watched::new(Patient::new(stream), line.clone());
        converse(stream, Some(line), connection).await;
    }
}

/// Makes the handshake of an encrypted connection, where one is wanted.
async fn secured<S: Stream + 'static>(
    stream: S,
    acceptor: Option<&TlsAcceptor>,
) -> Option<Box<dyn Stream>> {
    let Some(acceptor) = acceptor else {
        return Some(Box::new(stream));
    };
    match tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a handshake failed");
            None
        }
        Err(_) => None,
    }
}

/// Answers requests until there are no more.
async fn converse<S: Stream>(stream: S, line: Option<Line>, connection: Connection) {
    let (router, replies) = (connection.router, connection.replies);
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        let is_lost = replies.loses(request.method());
        if let Some(line) = &line {
            line.arrived();
            request.extensions_mut().insert(line.clone());
        }
        let answered = router.call(request);
        async move {
            let Ok(response) = answered.await;
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
