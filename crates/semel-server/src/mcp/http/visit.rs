//! One child process and whoever it was started for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use semel::core::identity::Observation;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answering::{Answering, Last, Own};
use super::calls::Calls;
use super::children::Server;
use super::desk::{Answered, Asked, Call, Desk};
use super::front::{By, Came, Front, Refused};
use super::headers::Learned;
use super::relay::Unchanged;
use super::renamed::{Names, Renamed};
use super::routes::{Routes, Streams};
use super::{about, cancelled};
use crate::locked::locked;
use crate::mcp::edit;
use crate::mcp::message::Message;
use crate::mcp::upstream::{Headers, Lost, Pending, Upstream};
use crate::proof::Witness;

/// A child process and whoever it was started for.
#[derive(Debug)]
pub(super) struct Visit<D: Desk> {
    /// Names the session; empty for the one without.
    pub(super) id: String,
    pub(super) principal: Option<String>,
    pub(super) server: Arc<dyn Server>,
    pub(super) session: Arc<D::Session>,
    pub(super) routes: Arc<Routes>,
    calls: Calls,
    names: Names,
    known: Mutex<Known>,
    /// The arguments of its tools that headers repeat.
    pub(super) mirrors: Learned,
}

#[derive(Debug)]
struct Known {
    used: Instant,
    /// The version that was agreed on.
    version: Option<String>,
}

impl<D: Desk> Visit<D> {
    /// Makes the visit of a client, or the one for all that have no sessions, whose name is empty.
    pub(super) fn new(
        desk: &D,
        id: String,
        principal: Option<String>,
        server: Arc<dyn Server>,
        unasked: mpsc::Sender<Message>,
    ) -> Self {
        let upstream: Arc<dyn Upstream> = Arc::<dyn Server>::clone(&server);
        Self {
            session: Arc::new(desk.session(upstream, unasked.clone())),
            routes: Arc::new(Routes::new(unasked, !id.is_empty())),
            id,
            principal,
            server,
            calls: Calls::default(),
            names: Names::default(),
            known: Mutex::new(Known {
                used: Instant::now(),
                version: None,
            }),
            mirrors: Learned::default(),
        }
    }

    /// Takes note that it is used.
    pub(super) fn is_used(&self) {
        locked(&self.known).used = Instant::now();
    }

    /// Returns when it has been unused for so long.
    pub(super) fn unused_at(&self, idle: Duration) -> Instant {
        locked(&self.known).used + idle
    }

    /// Returns the version that was agreed on.
    pub(super) fn version(&self) -> Option<String> {
        locked(&self.known).version.clone()
    }

    /// Passes a handshake on and waits for its answer. What comes before it waits for the client to listen.
    pub(super) async fn answer(&self, initialize: &Message) -> Result<Message, Refused> {
        let mut streams = self.entered(initialize)?;
        let sent = self.server.tell(initialize, &Headers::default()).await;
        sent.map_err(|lost| lost_server(initialize.id(), &lost))?;
        let answer = (&mut streams.last).await;
        while let Ok(aside) = streams.asides.try_recv() {
            self.routes.say(aside);
        }
        answer.map_err(|_| lost_server(initialize.id(), &Lost("the server is gone".to_owned())))
    }

    /// Takes note of what a handshake led to.
    pub(super) fn agreed(&self, answer: &Message) {
        let result = answer.outcome().unwrap_or_default();
        locked(&self.known).version = edit::text(result, &["protocolVersion"]);
    }

    /// Answers a request.
    pub(super) async fn ask(&self, front: &Front<D>, came: Came) -> Result<Response, Refused> {
        let Came { message, by } = came;
        let (id, streams) = (
            message.id().unwrap_or("null").to_owned(),
            self.entered(&message)?,
        );
        let own = Box::new(Unchanged);
        let answering = self.answering(front, message, &by, streams, (id, own));
        Ok(answering.await?.response(by.accepts, by.line).await)
    }

    /// Answers a request of a client that shares the child with others: it goes by another name.
    pub(super) async fn ask_renamed(
        &self,
        front: &Front<D>,
        came: Came,
    ) -> Result<Response, Refused> {
        let Came { message, by } = came;
        let id = message.id().unwrap_or("null").to_owned();
        let renamed = Renamed::new(&self.names, &message);
        let (message, mut own) = renamed.map_err(Refused::from)?;
        if message.method() == Some("tools/list") {
            own.learns(&self.mirrors);
        }
        if !front.desk.takes(&message) {
            // Of a call in hand the gateway decides whether it is given up.
            own.cancels(&self.server);
        }
        let streams = self.entered(&message)?;
        let answering = self.answering(front, message, &by, streams, (id, Box::new(own)));
        Ok(answering.await?.response(by.accepts, by.line).await)
    }

    fn entered(&self, message: &Message) -> Result<Streams, Refused> {
        self.routes.enter(message).ok_or_else(|| {
            let why = "another request with this id is under way";
            Refused::new(StatusCode::BAD_REQUEST, message.id(), -32600, why)
        })
    }

    /// Hands a request to the gateway, or passes it on.
    async fn answering(
        &self,
        front: &Front<D>,
        message: Message,
        by: &By,
        streams: Streams,
        (id, own): (String, Box<dyn Own>),
    ) -> Result<Answering, Refused> {
        let Streams {
            sender,
            asides,
            last,
            waits,
        } = streams;
        let about = about(by.principal.as_deref(), &message);
        let last = if front.desk.takes(&message) {
            let asked = Asked {
                headers: Headers(by.headers.clone()),
                principal: by.principal.clone(),
                namespace: by.namespace.clone(),
                scope: by.scope,
                asides: Some(sender),
            };
            // Whoever got an answer by now is known to have it.
            front.proofs.settle(about).await;
            let call = front.desk.take(&self.session, message, asked);
            self.calls.enter(String::new(), id.clone(), &call);
            let routes = Arc::clone(&self.routes);
            Last::Call(Arc::new(Settled { call, routes }))
        } else {
            front.desk.overhear(&self.session, &message);
            let sent = self.server.tell(&message, &Headers::default()).await;
            sent.map_err(|lost| lost_server(Some(&id), &lost))?;
            Last::Server(last)
        };
        Ok(Answering {
            id,
            about,
            asides,
            last,
            resumes: front.resumes_for(by),
            prefers_events: !self.id.is_empty(),
            own,
            waits: Some(waits),
        })
    }

    /// Passes on what has no answer.
    pub(super) async fn tell(&self, front: &Front<D>, came: Came) -> Result<Response, Refused> {
        let message = came.message;
        if let Some(id) = cancelled(&message)
            && let Some(call) = self.calls.find("", &id)
        {
            call.see(Observation::Cancelled);
            if !call.forwards_cancel() {
                return Ok(StatusCode::ACCEPTED.into_response());
            }
        }
        if front.desk.overhear(&self.session, &message) {
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        let told = self.server.tell(&message, &Headers::default()).await;
        told.map_err(|lost| lost_server(None, &lost))?;
        Ok(StatusCode::ACCEPTED.into_response())
    }
}

/// Says that the child gives no answer.
fn lost_server(id: Option<&str>, lost: &Lost) -> Refused {
    Refused::new(StatusCode::BAD_GATEWAY, id, -32603, &lost.0)
}

/// A call whose answer comes after everything that the child said before it.
struct Settled {
    call: Arc<dyn Call>,
    routes: Arc<Routes>,
}

impl Witness for Settled {
    fn see(&self, seen: Observation) {
        self.call.see(seen);
    }
}

impl Call for Settled {
    fn answer(&self) -> Pending<'_, Answered> {
        Box::pin(async move {
            let answered = self.call.answer().await;
            self.routes.settled().await;
            answered
        })
    }

    fn forwards_cancel(&self) -> bool {
        self.call.forwards_cancel()
    }
}
