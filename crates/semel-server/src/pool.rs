//! Connections to one server, kept for a moment for the next request. Nothing is sent twice on them.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Bytes, HttpBody};
use axum::http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;

use crate::outbound::{Lost, Outbound, Url};

/// How long a connection is kept for the next request. Common servers close theirs after five seconds, and a request
/// that crosses such a close is one of which nobody knows what became.
const KEPT_FOR: Duration = Duration::from_secs(2);

/// The most connections that are kept.
const KEPT_MAX: usize = 64;

/// The largest head of an answer, in bytes.
const HEAD_MAX: usize = 64 * 1024;

type Sender = SendRequest<Full<Bytes>>;

/// Sends requests to one server.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    outbound: Outbound,
    kept: Mutex<Vec<(Sender, Instant)>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.0.outbound).finish()
    }
}

impl Pool {
    pub(crate) fn new(url: Url) -> Result<Self, String> {
        Ok(Self(Arc::new(Inner {
            outbound: Outbound::new(url)?,
            kept: Mutex::default(),
        })))
    }

    pub(crate) fn url(&self) -> &Url {
        self.0.outbound.url()
    }

    /// Sends a request and returns the head of its answer; the body comes as it is read.
    ///
    /// A kept connection that turns out to be closed before a byte of the request left makes room for another one.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Coming>, Lost> {
        loop {
            let (mut sender, is_new) = match self.kept() {
                Some(sender) => (sender, false),
                None => (self.open().await?, true),
            };
            if let Err(error) = sender.ready().await {
                if is_new {
                    return Err(Lost::unsent(error));
                }
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(response.map(|body| self.coming(body, sender)));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    Some(_) => return Err(Lost::unsent(error.into_error())),
                    None => return Err(Lost::sent(error.into_error())),
                },
            }
        }
    }

    async fn open(&self) -> Result<Sender, Lost> {
        let stream = self.0.outbound.connect().await?;
        let (sender, connection) = Builder::new()
            .max_buf_size(HEAD_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(Lost::unsent)?;
        // What goes wrong on it is told to whoever waits for an answer.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn kept(&self) -> Option<Sender> {
        let mut kept = self.locked();
        // The newest is the least likely to be closed.
        while let Some((sender, since)) = kept.pop() {
            if since.elapsed() >= KEPT_FOR {
                kept.clear();
            } else if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    fn coming(&self, body: Incoming, sender: Sender) -> Coming {
        let mut coming = Coming {
            body,
            home: Some((self.clone(), sender)),
        };
        if coming.body.is_end_stream() {
            coming.keep();
        }
        coming
    }

    fn locked(&self) -> MutexGuard<'_, Vec<(Sender, Instant)>> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of an answer. When it was read to its end, its connection is free for the next request; when it is dropped
/// before that, the connection is closed.
pub(crate) struct Coming {
    body: Incoming,
    home: Option<(Pool, Sender)>,
}

impl fmt::Debug for Coming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Coming")
    }
}

impl Coming {
    fn keep(&mut self) {
        if let Some((pool, sender)) = self.home.take() {
            let mut kept = pool.locked();
            if kept.len() < KEPT_MAX {
                kept.push((sender, Instant::now()));
            }
        }
    }
}

impl HttpBody for Coming {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.keep();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
