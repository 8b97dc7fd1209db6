//! Targets over HTTP/1: a connection for each request, no redirects, no hidden retries.
//!
//! A connection is never used twice: a server may close one that is idle at the moment at which the next request leaves,
//! and then nobody would know what became of a task.

use axum::body::Bytes;
use axum::http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::parcel::Parcel;
use super::transport::{Answer, Body, Connection, Transport};
use crate::outbound::{Lost, Outbound, Url};

/// The longest answer that is kept, in bytes: as long as what a task may be given.
const BODY_MAX: usize = 1024 * 1024;

/// The largest head of an answer, in bytes.
const HEAD_MAX: usize = 64 * 1024;

/// The header by which a target says what it did.
const EFFECT: &str = "semel-effect";

/// Sends to one URL.
#[derive(Debug)]
pub(super) struct Http(Outbound);

impl Http {
    pub(super) fn new(url: Url) -> Result<Self, String> {
        Outbound::new(url).map(Self)
    }
}

impl Transport for Http {
    type Connection = Line;

    async fn reach(&self, until: Instant) -> Result<Line, Lost> {
        let opened = timeout_at(until, self.open()).await;
        opened.unwrap_or_else(|_| Err(Lost::unsent("the time was over before it was reached")))
    }

    fn place(&self) -> String {
        self.0.url().place()
    }
}

impl Http {
    async fn open(&self) -> Result<Line, Lost> {
        let stream = self.0.connect().await?;
        let (sender, connection) = Builder::new()
            .max_buf_size(HEAD_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(Lost::unsent)?;
        // What goes wrong on it is told to whoever waits for the answer.
        let connection = tokio::spawn(async move { drop(connection.await) });
        let url = self.0.url();
        Ok(Line {
            sender,
            connection: connection.abort_handle(),
            path: url.path().to_owned(),
            host: url.host(),
        })
    }
}

/// A connection; it is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    connection: AbortHandle,
    path: String,
    host: String,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Connection for Line {
    async fn send(mut self, parcel: Parcel, until: Instant) -> Result<Answer, Lost> {
        let request = self.request(parcel)?;
        let sent = timeout_at(until, self.sender.try_send_request(request)).await;
        let answer = match sent {
            Ok(Ok(answer)) => answer,
            Ok(Err(mut error)) => {
                return Err(Lost {
                    sent: error.take_message().is_none(),
                    error: error.into_error().to_string(),
                });
            }
            Err(_) => return Err(Lost::sent("there was no answer in time")),
        };
        Ok(read(answer, until).await)
    }
}

impl Line {
    fn request(&self, parcel: Parcel) -> Result<Request<Full<Bytes>>, Lost> {
        let mut request = Request::post(&self.path)
            .header(header::HOST, &self.host)
            .header(header::CONNECTION, "close")
            // An empty body has a length too, which many wait for.
            .header(header::CONTENT_LENGTH, parcel.body.len())
            .body(Full::new(parcel.body))
            .map_err(Lost::unsent)?;
        request.headers_mut().extend(parcel.headers);
        Ok(request)
    }
}

async fn read(answer: Response<Incoming>, until: Instant) -> Answer {
    let (head, body) = answer.into_parts();
    let text = |name: &str| text(&head.headers, name);
    Answer {
        status: head.status.as_u16(),
        retry_after: text(header::RETRY_AFTER.as_str()),
        effect: text(EFFECT),
        body: collected(body, until).await,
    }
}

async fn collected(body: Incoming, until: Instant) -> Body {
    match timeout_at(until, Limited::new(body, BODY_MAX).collect()).await {
        Ok(Ok(body)) => Body::Whole(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Body::TooLong,
        Ok(Err(error)) => Body::Cut(error.to_string()),
        Err(_) => Body::Cut("it did not end in time".to_owned()),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}
