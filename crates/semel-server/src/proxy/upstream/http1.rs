//! One connection of HTTP/1.1, which carries one request at a time.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, Request, Response, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use semel::http::Body;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::failure::{Failure, words};
use super::pool::Pool;
use super::task::Task;
use super::wire::{Gate, Look};
use crate::listener::Stream;

/// The largest head of an answer, in bytes; the buffers are no larger.
const HEAD_MAX: usize = 256 * 1024;

/// The most headers of an answer. Those who set many cookies come to more than a hundred.
const HEADERS_MAX: usize = 512;

/// How long the rest of a request may take to leave after its answer has ended. Usually all of it left long ago; a
/// server that answered early may never read the rest, and then the connection is not worth waiting for.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// How much earlier than its server says a connection is not used any more: the announcement was under way, too.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// A connection. It is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    sender: SendRequest<Body>,
    gate: Gate,
    home: mpsc::UnboundedSender<Lease>,
    _task: Task,
}

/// The use of a connection for one request, and the place that it takes among all of them.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) line: Line,
    pub(super) place: OwnedSemaphorePermit,
    /// How long its server said that it keeps it.
    pub(super) keep_alive: Option<Duration>,
}

impl Line {
    /// Makes a connection of an open stream.
    pub(super) async fn new(
        stream: Box<dyn Stream>,
        gate: Gate,
        pool: &Arc<Pool>,
    ) -> Result<Self, hyper::Error> {
        let (sender, connection) = Builder::new()
            .max_buf_size(HEAD_MAX)
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let (home, returned) = mpsc::unbounded_channel();
        let task = Task::spawn(tend(connection, returned, Arc::downgrade(pool)));
        Ok(Self {
            sender,
            gate,
            home,
            _task: task,
        })
    }

    /// Says whether a request can go out on it: the last answer was read to its end, nothing came after it, and the
    /// other side has not hung up.
    pub(super) fn is_free(&self) -> bool {
        self.sender.is_ready() && self.gate.look() == Look::Quiet
    }

    /// Says whether it is known to be over.
    #[cfg(test)]
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request and returns the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Failure> {
        let left = self.gate.left();
        let mut failed = match self.sender.try_send_request(request).await {
            Ok(mut answer) => {
                drop_overridden_length(answer.headers_mut());
                return Ok(answer);
            }
            Err(failed) => failed,
        };
        let unsent = failed.take_message();
        let why = words(&failed.into_error());
        Err(match unsent {
            Some(request) => Failure::GivenBack(Box::new(request), why),
            None if self.gate.held_back_since(left) => Failure::NotSent(why),
            None => Failure::Lost(why),
        })
    }
}

impl Lease {
    /// Takes a connection whose answer has begun.
    pub(super) fn new(line: Line, place: OwnedSemaphorePermit, headers: &HeaderMap) -> Self {
        Self {
            line,
            place,
            keep_alive: keep_alive(headers),
        }
    }

    /// Gives the connection back: its answer was read to the end.
    pub(super) fn give_back(self, pool: &Weak<Pool>) {
        if self.line.sender.is_ready() {
            if let Some(pool) = pool.upgrade() {
                pool.put(self);
            }
            return;
        }
        let home = self.line.home.clone();
        // When its task is gone, so is the connection.
        drop(home.send(self));
    }
}

/// Removes a `Content-Length` that `Transfer-Encoding` overrides (RFC 9112, section 6.3).
///
/// The body is read by its chunks, so this length says nothing about it. Passed on, it would frame the body a
/// second time, and the client would get a part of it that looks complete.
fn drop_overridden_length(headers: &mut HeaderMap) {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
}

/// Reads how long a server keeps a connection that is not used (`Keep-Alive: timeout=5`).
fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let name = HeaderName::from_static("keep-alive");
    let said = headers.get(name)?.to_str().ok()?;
    let seconds = said.split(',').find_map(|word| {
        let (name, value) = word.split_once('=')?;
        let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
        is_timeout.then(|| value.trim().parse().ok())?
    })?;
    Some(Duration::from_secs(seconds).saturating_sub(KEEP_ALIVE_MARGIN))
}

/// Drives a connection, and puts it into the pool when it is ready for the next request.
async fn tend(
    connection: Connection<TokioIo<Box<dyn Stream>>, Body>,
    mut returned: mpsc::UnboundedReceiver<Lease>,
    pool: Weak<Pool>,
) {
    let mut connection = pin!(connection);
    loop {
        // What goes wrong on it is told to whoever waits for an answer.
        let lease = tokio::select! {
            _ = connection.as_mut() => return,
            lease = returned.recv() => lease,
        };
        let Some(mut lease) = lease else { return };
        let ready = poll_fn(|context| lease.line.sender.poll_ready(context));
        let ready = tokio::select! {
            _ = connection.as_mut() => return,
            ready = tokio::time::timeout(SETTLE_MAX, ready) => ready,
        };
        match (ready, pool.upgrade()) {
            (Ok(Ok(())), Some(pool)) => pool.put(lease),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_server_says_how_long_it_keeps_a_connection() {
        for (said, seconds) in [
            ("timeout=5, max=1000", Some(4)),
            ("max=3, Timeout = 60", Some(59)),
            ("timeout=1", Some(0)),
            ("timeout=0", Some(0)),
            ("timeout=soon", None),
            ("max=3", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("keep-alive", HeaderValue::from_static(said));
            assert_eq!(
                keep_alive(&headers),
                seconds.map(Duration::from_secs),
                "{said}"
            );
        }
        assert_eq!(keep_alive(&HeaderMap::new()), None);
    }
}
