//! Clients over HTTP, in front of child processes: one for each session of the older protocol, and one for all clients
//! of the newer one, which has no sessions.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::answering;
use super::cancelled;
use super::desk::Desk;
use super::front::{By, Came, Front, Refused};
use super::headers::{self, HEADER_MISMATCH, SESSION, VERSION};
use super::routes::UNREAD_MAX;
use super::visit::Visit;
use crate::locked::locked;
use crate::mcp::message::{Kind, Message};
use crate::mcp::upstream::{Pending, Upstream};

/// The newest version of the protocol that has sessions; versions are dates.
const LAST_WITH_SESSIONS: &str = "2025-11-25";

/// A server that can be ended.
pub(crate) trait Server: Upstream {
    /// Ends it as the protocol says.
    fn end(&self) -> Pending<'_, ()>;
}

/// Starts servers.
pub(crate) trait Start: fmt::Debug + Send + Sync {
    /// Starts one; what it says unasked, and what it answers to messages that were only passed on, goes to `unasked`.
    fn start(&self, unasked: mpsc::Sender<Message>) -> Arc<dyn Server>;
}

/// How many sessions there may be, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visits {
    /// The most sessions; each has a process of its own.
    pub(crate) most: usize,
    /// How long a session may be unused.
    pub(crate) idle: Duration,
}

impl Default for Visits {
    fn default() -> Self {
        Self {
            most: 256,
            idle: Duration::from_secs(30 * 60),
        }
    }
}

/// The child processes behind the gateway.
#[derive(Debug)]
pub(crate) struct Children<D: Desk> {
    start: Box<dyn Start>,
    limits: Visits,
    visits: ByName<D>,
    /// The one for all clients that have no sessions.
    common: Mutex<Option<Arc<Visit<D>>>>,
}

/// Sessions by their names.
type ByName<D> = Arc<Mutex<HashMap<String, Arc<Visit<D>>>>>;

impl<D: Desk> Children<D> {
    pub(crate) fn new(start: Box<dyn Start>, limits: Visits) -> Self {
        Self {
            start,
            limits,
            visits: Arc::default(),
            common: Mutex::default(),
        }
    }

    /// Ends all of them.
    pub(super) async fn end(&self) {
        let visits: Vec<_> = locked(&self.visits)
            .drain()
            .map(|(_, visit)| visit)
            .collect();
        let common = locked(&self.common).take();
        let ends = visits.iter().chain(&common).map(|visit| visit.server.end());
        futures_util::future::join_all(ends).await;
    }

    /// Answers a message.
    pub(super) async fn post(
        &self,
        front: &Front<D>,
        headers: &HeaderMap,
        came: Came,
    ) -> Result<Response, Refused> {
        let id = came.message.id();
        if !(came.by.accepts.json && came.by.accepts.events) {
            let why = "the client must accept application/json and text/event-stream";
            return Err(Refused::new(StatusCode::NOT_ACCEPTABLE, id, -32600, why));
        }
        let version = headers
            .get(VERSION)
            .and_then(|version| version.to_str().ok());
        let is_newer = headers::own_version(&came.message).is_some()
            || version.is_some_and(|version| version > LAST_WITH_SESSIONS);
        if is_newer {
            return self.post_newer(front, headers, came).await;
        }
        if came.message.method() == Some("initialize") {
            return self.open(front, came).await;
        }
        let visit = self.visit(&came.by).map_err(|refusal| refusal.about(id))?;
        if version.is_some() && version != visit.version().as_deref() {
            let why = "the header mcp-protocol-version is not what was agreed on";
            return Err(Refused::new(StatusCode::BAD_REQUEST, id, -32600, why));
        }
        match came.message.kind() {
            Kind::Request { .. } => visit.ask(front, came).await,
            Kind::Notification { .. } | Kind::Result | Kind::Error => visit.tell(front, came).await,
        }
    }

    /// Opens a session.
    async fn open(&self, front: &Front<D>, came: Came) -> Result<Response, Refused> {
        let id = came.message.id().unwrap_or("null").to_owned();
        let visit = {
            let mut visits = locked(&self.visits);
            if visits.len() >= self.limits.most {
                let most = self.limits.most;
                let why = format!("{most} sessions are open, and there may be no more");
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return Err(Refused::new(status, Some(&id), -32603, &why));
            }
            let name = session_name().map_err(|why| {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Refused::new(status, Some(&id), -32603, &why)
            })?;
            let visit = self.started(front, name, came.by.principal.clone());
            visits.insert(visit.id.clone(), Arc::clone(&visit));
            visit
        };
        front.desk.overhear(&visit.session, &came.message);
        let ended = Ended {
            visits: Arc::clone(&self.visits),
            visit: Some(Arc::clone(&visit)),
        };
        let message = visit.answer(&came.message).await?;
        let mut response = super::front::said(StatusCode::OK, &message);
        if *message.kind() == Kind::Result {
            visit.agreed(&message);
            ended.keep();
            if let Ok(name) = HeaderValue::from_str(&visit.id) {
                response.headers_mut().insert(SESSION, name);
            }
        }
        Ok(response)
    }

    /// Answers a message of the newer protocol.
    async fn post_newer(
        &self,
        front: &Front<D>,
        headers: &HeaderMap,
        came: Came,
    ) -> Result<Response, Refused> {
        let visit = {
            let mut common = locked(&self.common);
            let visit = common.get_or_insert_with(|| self.started(front, String::new(), None));
            Arc::clone(visit)
        };
        match came.message.kind() {
            Kind::Request { .. } => {
                let mirrors = |tool: &str| visit.mirrors.of(tool);
                headers::agree(&came.message, mirrors, headers).map_err(|why| {
                    let status = StatusCode::BAD_REQUEST;
                    Refused::new(status, came.message.id(), HEADER_MISMATCH, &why)
                })?;
                visit.ask_renamed(front, came).await
            }
            // Clients that share a child do not cancel by a message: what it names may be another one's.
            Kind::Notification { .. } if cancelled(&came.message).is_some() => {
                Ok(StatusCode::ACCEPTED.into_response())
            }
            Kind::Notification { .. } => visit.tell(front, came).await,
            Kind::Result | Kind::Error => {
                let why = "a client of this version has nothing to answer";
                Err(Refused::new(StatusCode::BAD_REQUEST, None, -32600, why))
            }
        }
    }

    /// Opens the stream for what nobody asked for.
    pub(super) fn get(&self, front: &Front<D>, by: &By) -> Result<Response, Refused> {
        if !by.headers.contains_key(SESSION) {
            return Err(Refused::Method("POST"));
        }
        let visit = self.visit(by).map_err(|refusal| refusal.about(None))?;
        if !by.accepts.events {
            let why = "the client must accept text/event-stream";
            return Err(Refused::new(StatusCode::NOT_ACCEPTABLE, None, -32600, why));
        }
        Ok(answering::unasked(
            visit.routes.listen(),
            front.stop.clone(),
        ))
    }

    /// Ends a session.
    pub(super) async fn delete(&self, by: &By) -> Result<Response, Refused> {
        if !by.headers.contains_key(SESSION) {
            return Err(Refused::Method("POST"));
        }
        let visit = self.visit(by).map_err(|refusal| refusal.about(None))?;
        locked(&self.visits).remove(&visit.id);
        visit.server.end().await;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Finds the session that a request names.
    fn visit(&self, by: &By) -> Result<Arc<Visit<D>>, NoVisit> {
        let Some(name) = by.headers.get(SESSION) else {
            return Err(NoVisit::Unnamed);
        };
        let visits = locked(&self.visits);
        let visit = name.to_str().ok().and_then(|name| visits.get(name));
        // Nobody learns of another one's session.
        let visit = visit.filter(|visit| visit.principal == by.principal);
        let visit = visit.ok_or(NoVisit::Unknown)?;
        visit.is_used();
        Ok(Arc::clone(visit))
    }

    fn started(&self, front: &Front<D>, id: String, principal: Option<String>) -> Arc<Visit<D>> {
        let (sender, messages) = mpsc::channel(UNREAD_MAX);
        let server = self.start.start(sender.clone());
        let visit = Arc::new(Visit::new(&*front.desk, id, principal, server, sender));
        let visits = Arc::clone(&self.visits);
        tokio::spawn(lead(messages, Arc::clone(&visit), visits, self.limits.idle));
        visit
    }
}

/// Makes the name of a session, which nobody can guess.
fn session_name() -> Result<String, String> {
    let mut name = [0; 16];
    getrandom::fill(&mut name).map_err(|error| format!("there is no randomness: {error}"))?;
    Ok(format!("{:032x}", u128::from_be_bytes(name)))
}

/// Leads what a child says to where it belongs, and ends a session that nobody uses any more.
async fn lead<D: Desk>(
    mut messages: mpsc::Receiver<Message>,
    visit: Arc<Visit<D>>,
    visits: ByName<D>,
    idle: Duration,
) {
    let (routes, weak) = (Arc::clone(&visit.routes), Arc::downgrade(&visit));
    let is_session = !visit.id.is_empty();
    drop(visit);
    loop {
        let Some(due) = weak.upgrade().map(|visit| visit.unused_at(idle)) else {
            return;
        };
        tokio::select! {
            message = messages.recv() => match message {
                Some(message) => routes.lead(message),
                None => return,
            },
            () = sleep_until(due), if is_session => {
                let Some(visit) = weak.upgrade() else { return };
                if routes.is_used() {
                    visit.is_used();
                } else if visit.unused_at(idle) <= Instant::now() {
                    locked(&visits).remove(&visit.id);
                    visit.server.end().await;
                    return;
                }
            }
        }
    }
}

/// Ends a session that did not come about.
struct Ended<D: Desk> {
    visits: ByName<D>,
    visit: Option<Arc<Visit<D>>>,
}

impl<D: Desk> Ended<D> {
    fn keep(mut self) {
        self.visit = None;
    }
}

impl<D: Desk> Drop for Ended<D> {
    fn drop(&mut self) {
        if let Some(visit) = self.visit.take() {
            locked(&self.visits).remove(&visit.id);
            tokio::spawn(async move { visit.server.end().await });
        }
    }
}

/// Why there is no session.
#[derive(Clone, Copy, Debug)]
enum NoVisit {
    Unnamed,
    Unknown,
}

impl NoVisit {
    fn about(self, id: Option<&str>) -> Refused {
        let (status, why) = match self {
            Self::Unnamed => (
                StatusCode::BAD_REQUEST,
                "the header mcp-session-id is missing: `initialize` comes first and gives one",
            ),
            Self::Unknown => (
                StatusCode::NOT_FOUND,
                "there is no such session, or it is over: `initialize` opens another one",
            ),
        };
        Refused::new(status, id, -32600, why)
    }
}
