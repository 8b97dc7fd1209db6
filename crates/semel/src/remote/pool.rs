//! A few connections that requests take turns on.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::connect::{Connection, Connector};
use super::url::Url;
use crate::store::{Result, StoreError};
use crate::trace::{self, Trace};
use crate::wire;

/// How long a connection may have been idle and still be used: a server, or a proxy before it, closes
/// those that were idle for longer, and a request that crosses with that is lost.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// What a server answered.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) status: StatusCode,
    pub(super) is_message: bool,
    pub(super) body: Bytes,
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Lost {
    /// Whether the server may have got it.
    pub(super) sent: bool,
    pub(super) error: StoreError,
}

impl Lost {
    fn on_its_way(text: impl fmt::Display) -> Self {
        Self {
            sent: true,
            error: StoreError::Unavailable(format!("the server's answer was lost: {text}")),
        }
    }

    const fn unsent(error: StoreError) -> Self {
        Self { sent: false, error }
    }
}

/// The connections to one server.
#[derive(Debug)]
pub(super) struct Pool {
    connector: Connector,
    target: String,
    host: String,
    token: Option<HeaderValue>,
    /// The trace that this process is part of, if it is part of one.
    trace: Option<HeaderValue>,
    idle: Mutex<Vec<Idle>>,
    room: Semaphore,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

impl Pool {
    pub(super) fn new(url: Url, token: Option<HeaderValue>) -> Result<Self> {
        Ok(Self {
            target: format!("{}{}", url.prefix, wire::PATH),
            host: url.host(),
            room: Semaphore::new(url.connections),
            connector: Connector::new(url)?,
            token,
            trace: Trace::of_process().and_then(|it| it.to_string().try_into().ok()),
            idle: Mutex::default(),
        })
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn exchange(
        &self,
        body: &Bytes,
        deadline: Instant,
    ) -> std::result::Result<Heard, Lost> {
        let busy = || {
            let text = "all connections to the server are busy".to_owned();
            Lost::unsent(StoreError::Unavailable(text))
        };
        let Ok(Ok(_turn)) = timeout_at(deadline, self.room.acquire()).await else {
            return Err(busy());
        };
        let mut request = self.request(body).map_err(Lost::unsent)?;
        loop {
            let idle = timeout_at(deadline, self.idle()).await;
            let (mut connection, is_fresh) = match idle.map_err(|_| busy())? {
                Some(connection) => (connection, false),
                None => (self.connector.connect().await.map_err(Lost::unsent)?, true),
            };
            let answer = timeout_at(deadline, connection.try_send_request(request)).await;
            let response = match answer {
                Ok(Ok(response)) => response,
                Ok(Err(mut error)) => match error.take_message() {
                    // The connection was closed before anything of it was sent.
                    Some(unsent) if !is_fresh => {
                        request = unsent;
                        continue;
                    }
                    Some(_) => {
                        let text = format!("the server closed the connection: {}", error.error());
                        return Err(Lost::unsent(StoreError::Unavailable(text)));
                    }
                    None => return Err(Lost::on_its_way(error.error())),
                },
                Err(_) => return Err(Lost::on_its_way("it took too long")),
            };
            let heard = match timeout_at(deadline, read(response)).await {
                Ok(heard) => heard?,
                Err(_) => return Err(Lost::on_its_way("it took too long")),
            };
            self.put_back(connection);
            return Ok(heard);
        }
    }

    fn request(&self, body: &Bytes) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.target)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, wire::MEDIA_TYPE)
            .header(ACCEPT, wire::MEDIA_TYPE);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(trace) = &self.trace {
            request = request.header(trace::HEADER, trace);
        }
        request.body(Full::new(body.clone())).map_err(|error| {
            StoreError::Refused(format!("the URL cannot be used in a request: {error}"))
        })
    }

    /// Takes a connection that is open and was used a moment ago.
    async fn idle(&self) -> Option<Connection> {
        loop {
            let newest = {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                idle.retain(|idle| idle.since.elapsed() < IDLE_MAX);
                idle.pop()
            };
            let mut connection = newest?.connection;
            if connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    fn put_back(&self, connection: Connection) {
        if !connection.is_closed() {
            let since = Instant::now();
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(Idle { connection, since });
        }
    }
}

async fn read(response: Response<hyper::body::Incoming>) -> std::result::Result<Heard, Lost> {
    let status = response.status();
    let media_type = response.headers().get(CONTENT_TYPE);
    let is_message = media_type.is_some_and(|it| it == wire::MEDIA_TYPE);
    let body = Limited::new(response.into_body(), wire::MESSAGE_MAX);
    let body = body.collect().await.map_err(Lost::on_its_way)?.to_bytes();
    Ok(Heard {
        status,
        is_message,
        body,
    })
}
