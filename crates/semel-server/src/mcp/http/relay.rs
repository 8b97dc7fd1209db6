//! Clients over HTTP, in front of a server that speaks HTTP itself: what the gateway does not take is passed on as it
//! came, in both directions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use semel::core::identity::Observation;
use tokio::sync::{mpsc, watch};

use super::answering::{Answering, Last, Own};
use super::calls::Calls;
use super::desk::{Asked, Desk};
use super::front::{By, Came, Front, Refused};
use super::headers::{HEADER_MISMATCH, SESSION, passed_on};
use super::upstream::HttpUpstream;
use super::{about, cancelled};
use crate::locked::locked;
use crate::mcp::message::{Kind, Message};
use crate::mcp::upstream::{Headers, Upstream, WAITING_MAX};
use crate::outbound::Lost;
use crate::pool::{Coming, Pool};

/// The most sessions that are remembered; beyond it the one that was used the longest ago is forgotten, and made anew
/// when it comes again.
const SESSIONS_MAX: usize = 10_000;

/// Leads clients to one server.
#[derive(Debug)]
pub(crate) struct Relay<D: Desk> {
    server: Arc<HttpUpstream>,
    sessions: Mutex<HashMap<String, Used<D::Session>>>,
    calls: Calls,
}

/// Something, and when it was used last.
type Used<T> = (Arc<T>, Instant);

/// Nothing was changed on the way.
pub(super) struct Unchanged;

impl Own for Unchanged {
    fn restored(&self, message: Message) -> Message {
        message
    }

    fn status(&self, _: &Message) -> StatusCode {
        StatusCode::OK
    }
}

impl<D: Desk> Relay<D> {
    /// Leads to a server; `fixed` goes with every request.
    pub(crate) fn new(pool: Pool, fixed: HeaderMap) -> Self {
        Self {
            server: Arc::new(HttpUpstream::passing(pool, fixed)),
            sessions: Mutex::default(),
            calls: Calls::default(),
        }
    }

    /// Answers a message.
    pub(super) async fn post(&self, front: &Front<D>, came: Came) -> Result<Response, Refused> {
        let Came { message, by } = came;
        let whose = by.whose();
        if let Some(id) = cancelled(&message)
            && let Some(call) = self.calls.find(&whose, &id)
        {
            call.see(Observation::Cancelled);
            if !call.forwards_cancel() {
                return Ok(StatusCode::ACCEPTED.into_response());
            }
        }
        if matches!(message.kind(), Kind::Request { .. }) && front.desk.takes(&message) {
            let agreed = self.server.agrees(&message, &by.headers);
            agreed.map_err(|why| {
                let status = StatusCode::BAD_REQUEST;
                Refused::new(status, message.id(), HEADER_MISMATCH, &why)
            })?;
            return Ok(self.take(front, message, by, whose).await);
        }
        let session = match message.method() {
            // It has no session yet.
            Some("initialize") => Arc::new(self.made(front)),
            _ => self.session(front, &whose),
        };
        if front.desk.overhear(&session, &message) {
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        let body = message.bytes().clone();
        let answer = self
            .server
            .relay(Method::POST, by.headers.clone(), body)
            .await;
        let answer = answer.map_err(|lost| not_answered(message.id(), &lost))?;
        if message.method() == Some("initialize")
            && let Some(id) = answer
                .headers()
                .get(SESSION)
                .and_then(|id| id.to_str().ok())
        {
            self.remember(by.whose_in(Some(id)), session);
        }
        Ok(as_it_comes(answer))
    }

    /// Hands a request to the gateway.
    async fn take(&self, front: &Front<D>, request: Message, by: By, whose: String) -> Response {
        let session = self.session(front, &whose);
        let resumes = front.resumes_for(&by);
        let (sender, asides) = mpsc::channel(WAITING_MAX);
        let about = about(by.principal.as_deref(), &request);
        let asked = Asked {
            headers: Headers(by.headers),
            principal: by.principal,
            namespace: by.namespace,
            scope: by.scope,
            asides: Some(sender),
        };
        let id = request.id().unwrap_or("null").to_owned();
        // Whoever got an answer by now is known to have it.
        front.proofs.settle(about).await;
        let call = front.desk.take(&session, request, asked);
        self.calls.enter(whose, id.clone(), &call);
        let answering = Answering {
            id,
            about,
            asides,
            last: Last::Call(call),
            resumes,
            prefers_events: false,
            own: Box::new(Unchanged),
            waits: None,
        };
        answering.response(by.accepts, by.line).await
    }

    /// Passes on what a server says unasked.
    pub(super) async fn get(&self, front: &Front<D>, by: By) -> Result<Response, Refused> {
        let answer = self.server.relay(Method::GET, by.headers, Bytes::new());
        let answer = answer.await.map_err(|lost| not_answered(None, &lost))?;
        let (parts, body) = as_it_comes(answer).into_parts();
        // It may go on for ever, and a gateway that stops does not wait for that.
        Ok(Response::from_parts(parts, until(body, front.stop.clone())))
    }

    /// Passes on the end of a session.
    pub(super) async fn delete(&self, by: By) -> Result<Response, Refused> {
        if by.headers.contains_key(SESSION) {
            locked(&self.sessions).remove(&by.whose());
        }
        let answer = self.server.relay(Method::DELETE, by.headers, Bytes::new());
        let answer = answer.await.map_err(|lost| not_answered(None, &lost))?;
        Ok(as_it_comes(answer))
    }

    fn made(&self, front: &Front<D>) -> D::Session {
        // What the gateway asks goes the way of the answer that it is asked for.
        let (nowhere, _) = mpsc::channel(1);
        let server = Arc::clone(&self.server) as Arc<dyn Upstream>;
        front.desk.session(server, nowhere)
    }

    /// Returns the session of a client.
    fn session(&self, front: &Front<D>, whose: &str) -> Arc<D::Session> {
        if let Some((session, used)) = locked(&self.sessions).get_mut(whose) {
            *used = Instant::now();
            return Arc::clone(session);
        }
        let session = Arc::new(self.made(front));
        self.remember(whose.to_owned(), Arc::clone(&session));
        session
    }

    fn remember(&self, whose: String, session: Arc<D::Session>) {
        let mut sessions = locked(&self.sessions);
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(whose, _)| whose.clone()) {
                sessions.remove(&oldest);
            }
        }
        sessions.insert(whose, (session, Instant::now()));
    }
}

/// Says that the server gave no answer.
fn not_answered(id: Option<&str>, lost: &Lost) -> Refused {
    let why = if lost.sent {
        format!("nobody knows what became of it: {}", lost.error)
    } else {
        format!("the server was not reached: {}", lost.error)
    };
    Refused::new(StatusCode::BAD_GATEWAY, id, -32603, &why)
}

/// Passes an answer on.
fn as_it_comes(answer: Response<Coming>) -> Response {
    let (mut parts, body) = answer.into_parts();
    parts.headers = passed_on(&parts.headers);
    Response::from_parts(parts, Body::new(body))
}

/// Ends a body when the gateway stops.
fn until(body: Body, stop: watch::Receiver<bool>) -> Body {
    let frames = stream::unfold((body, stop), |(mut body, mut stop)| async move {
        let frame = tokio::select! {
            biased;
            () = crate::stopped(&mut stop) => return None,
            frame = body.frame() => frame?,
        };
        Some((frame, (body, stop)))
    });
    Body::new(StreamBody::new(frames))
}
