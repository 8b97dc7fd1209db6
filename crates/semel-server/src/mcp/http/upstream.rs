//! A server that is reached over HTTP.
//!
//! Each message is a request of its own, which is sent once: no redirect is followed and nothing is tried again. An
//! answer that comes as events and breaks off is taken up again where it stopped, if the server named its events:
//! that asks for what was said already, and sends nothing a second time.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::Full;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::conversation::Conversation;
use super::headers::{self, Learned};
use super::reading::Reading;
use super::{answer, cancelled, failure};
use crate::locked::locked;
use crate::mcp::message::{Kind, Message};
use crate::mcp::upstream::{
    Headers, Lost, NotSent, Pending, Refusal, Replies, Reply, Upstream, WAITING_MAX,
};
use crate::outbound;
use crate::pool::{Coming, Pool};

/// How long a server may be silent after it got a request. Tools may take long; whoever asks may give up before.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(60 * 60);

/// How long a server may take for a message that has no answer.
pub(super) const TOLD_MAX: Duration = Duration::from_secs(30);

/// How long a server may take to end a session: nobody depends on it.
const END_MAX: Duration = Duration::from_secs(3);

/// The most requests of a client that may wait for their answers at once.
const AWAITED_MAX: usize = 4_096;

/// Why a request has no answer whose client wants none.
pub(super) const CANCELLED: &str = "its client cancelled it";

/// A server behind HTTP, as one client sees it.
#[derive(Debug)]
pub(crate) struct HttpUpstream(Arc<Shared>);

/// What the requests of one client share.
pub(super) struct Shared {
    pub(super) pool: Pool,
    /// What goes with every request, and is not shown.
    fixed: HeaderMap,
    mirrors: Learned,
    /// What is remembered for a client that does not speak HTTP itself.
    pub(super) conversation: Option<Conversation>,
    /// Listens for what the server says unasked.
    listening: Mutex<Option<AbortHandle>>,
    awaited: Mutex<HashMap<String, Awaited>>,
}

/// A request that waits for its answer.
struct Awaited {
    cancel: oneshot::Sender<()>,
    /// Whether it is of the newer kind, for which the end of the stream is the cancel.
    is_newer: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl HttpUpstream {
    /// Leads clients that speak HTTP to a server: their headers are passed on.
    pub(crate) fn passing(pool: Pool, fixed: HeaderMap) -> Self {
        Self::new(pool, fixed, None)
    }

    /// Leads one client that knows nothing of HTTP to a server. What the server says unasked, and what it answers to
    /// messages that were only passed on, goes to `unasked`.
    pub(crate) fn speaking(pool: Pool, fixed: HeaderMap, unasked: mpsc::Sender<Message>) -> Self {
        Self::new(pool, fixed, Some(Conversation::new(unasked)))
    }

    fn new(pool: Pool, fixed: HeaderMap, conversation: Option<Conversation>) -> Self {
        Self(Arc::new(Shared {
            pool,
            fixed,
            mirrors: Learned::default(),
            conversation,
            listening: Mutex::default(),
            awaited: Mutex::default(),
        }))
    }

    /// Sends a request as it came, once, and returns the answer as it comes.
    pub(super) async fn relay(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Coming>, outbound::Lost> {
        let request = self.0.request(method, headers, body);
        let answer = self.0.pool.send(request.map_err(outbound::Lost::unsent)?);
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(outbound::Lost::sent(silent())),
        }
    }

    /// Checks that the headers of a request of the newer kind say what its body says, as its server would: what the
    /// gateway answers itself gets no further.
    pub(super) fn agrees(&self, request: &Message, headers: &HeaderMap) -> Result<(), String> {
        if headers::own_version(request).is_none() {
            return Ok(());
        }
        headers::agree(request, |tool| self.0.mirrors.of(tool), headers)
    }

    /// Ends the session, if there is one.
    pub(crate) async fn end(&self) {
        self.0.listen_no_more();
        let session = self.0.conversation.as_ref().map(Conversation::ended);
        let Some(headers) = session.flatten() else {
            return;
        };
        let Ok(request) = self.0.request(Method::DELETE, headers, Bytes::new()) else {
            return;
        };
        // Not all servers let a client end its session, and none depends on it.
        let ended = tokio::time::timeout(END_MAX, self.0.pool.send(request)).await;
        tracing::debug!(?ended, "the session with the server was ended");
    }
}

impl Drop for HttpUpstream {
    fn drop(&mut self) {
        self.0.listen_no_more();
    }
}

impl Upstream for HttpUpstream {
    fn request<'a>(
        &'a self,
        request: &'a Message,
        with: &'a Headers,
    ) -> Pending<'a, Result<Replies, NotSent>> {
        Box::pin(async move {
            let place = self.0.place(request).map_err(NotSent)?;
            self.0.ask(request, with, place).await
        })
    }

    fn tell<'a>(
        &'a self,
        message: &'a Message,
        with: &'a Headers,
    ) -> Pending<'a, Result<(), Lost>> {
        Box::pin(async move {
            if let (Kind::Request { .. }, Some(conversation)) =
                (message.kind(), &self.0.conversation)
            {
                let place = self.0.place(message).map_err(Lost)?;
                let (shared, unasked) = (Arc::clone(&self.0), conversation.unasked.clone());
                let (message, with) = (message.clone(), with.clone());
                tokio::spawn(async move { shared.ask_for(message, with, place, unasked).await });
                return Ok(());
            }
            if let Some(id) = cancelled(message)
                && self.0.stop_waiting(&id)
            {
                return Ok(());
            }
            self.0.tell(message, with).await
        })
    }
}

/// A request's place among those that wait; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    id: String,
    /// Says that the client wants no answer any more.
    pub(super) cancel: oneshot::Receiver<()>,
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.shared.awaited).remove(&self.id);
    }
}

impl Shared {
    /// Takes a place for a request that waits. Clients that speak HTTP have their connections for that.
    fn place(self: &Arc<Self>, request: &Message) -> Result<Option<Place>, String> {
        if self.conversation.is_none() {
            return Ok(None);
        }
        let id = request.id().unwrap_or_default().to_owned();
        let mut awaited = locked(&self.awaited);
        if awaited.len() >= AWAITED_MAX {
            return Err(format!(
                "{AWAITED_MAX} requests wait for the server already"
            ));
        }
        if awaited.contains_key(&id) {
            return Err(format!(
                "another request with the id {id} waits for the server"
            ));
        }
        let (sender, cancel) = oneshot::channel();
        let is_newer = headers::own_version(request).is_some();
        let waits = Awaited {
            cancel: sender,
            is_newer,
        };
        awaited.insert(id.clone(), waits);
        drop(awaited);
        let shared = Arc::clone(self);
        Ok(Some(Place { shared, id, cancel }))
    }

    /// Stops waiting for a request of the newer kind: that is how its server hears that it was cancelled.
    fn stop_waiting(&self, id: &str) -> bool {
        let mut awaited = locked(&self.awaited);
        if !awaited.get(id).is_some_and(|waits| waits.is_newer) {
            return false;
        }
        let waits = awaited.remove(id);
        // It may have been answered just now.
        waits.is_some_and(|waits| waits.cancel.send(()).is_ok())
    }

    /// Sends a request, once, and reads what comes.
    pub(super) async fn ask(
        self: &Arc<Self>,
        request: &Message,
        with: &Headers,
        mut place: Option<Place>,
    ) -> Result<Replies, NotSent> {
        if let Some(conversation) = &self.conversation {
            conversation.renewed(self, request).await.map_err(NotSent)?;
        }
        let headers = self.headers(request, with);
        let sent = self
            .request(Method::POST, headers.clone(), request.bytes().clone())
            .map_err(NotSent)?;
        let (sender, replies) = mpsc::channel(WAITING_MAX);
        let answer = tokio::time::timeout(ANSWER_MAX, self.pool.send(sent));
        let answer = tokio::select! {
            biased;
            () = is_cancelled(place.as_mut()) => Err(CANCELLED.to_owned()),
            answer = answer => match answer {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(lost)) if !lost.sent => return Err(NotSent(lost.error)),
                Ok(Err(lost)) => Err(format!("the connection to the server broke: {}", lost.error)),
                Err(_) => Err(silent()),
            },
        };
        match answer {
            Ok(answer) => {
                let reading = Reading::new(self, request, headers, sender, place);
                tokio::spawn(reading.run(answer));
            }
            // Its one place is free: nothing else was sent on it.
            Err(why) => drop(sender.try_send(Reply::Lost(Lost(why)))),
        }
        Ok(Replies(replies))
    }

    /// Sends a request that is only passed on, and hands on whatever comes.
    async fn ask_for(
        self: Arc<Self>,
        request: Message,
        with: Headers,
        place: Option<Place>,
        unasked: mpsc::Sender<Message>,
    ) {
        let id = request.id().unwrap_or("null");
        let mut replies = match self.ask(&request, &with, place).await {
            Ok(replies) => replies,
            Err(not_sent) => {
                drop(unasked.send(failure(id, &not_sent.to_string())).await);
                return;
            }
        };
        while let Some(reply) = replies.0.recv().await {
            let message = match reply {
                Reply::Aside(message) | Reply::Answer(message, _) => message,
                Reply::Http(refusal) => refused(id, &refusal),
                Reply::Lost(lost) => failure(id, &lost.0),
            };
            if unasked.send(message).await.is_err() {
                return;
            }
        }
    }

    /// Sends a message that has no answer.
    pub(super) async fn tell(
        self: &Arc<Self>,
        message: &Message,
        with: &Headers,
    ) -> Result<(), Lost> {
        if let Some(conversation) = &self.conversation {
            conversation.renewed(self, message).await.map_err(Lost)?;
        }
        let headers = self.headers(message, with);
        let request = self.request(Method::POST, headers, message.bytes().clone());
        let sent = self.pool.send(request.map_err(Lost)?);
        let status = match tokio::time::timeout(TOLD_MAX, sent).await {
            Ok(Ok(answer)) => answer.status(),
            Ok(Err(lost)) => return Err(Lost(lost.error)),
            Err(_) => return Err(Lost(silent())),
        };
        if !status.is_success() {
            self.note_status(status);
            return Err(Lost(format!("the server answered with HTTP {status}")));
        }
        if message.method() == Some("notifications/initialized")
            && let Some(conversation) = &self.conversation
        {
            conversation.initialized(message);
            self.listen();
        }
        Ok(())
    }

    /// Returns the headers of a message.
    fn headers(&self, message: &Message, with: &Headers) -> HeaderMap {
        let mut headers = with.0.clone();
        if let Some(conversation) = &self.conversation {
            conversation.add_to(message, &mut headers);
        }
        headers::repeat(message, |tool| self.mirrors.of(tool), &mut headers);
        for (name, usual) in [
            (header::CONTENT_TYPE, "application/json"),
            (header::ACCEPT, "application/json, text/event-stream"),
        ] {
            headers
                .entry(name)
                .or_insert(HeaderValue::from_static(usual));
        }
        headers
    }

    /// Makes a request of HTTP.
    pub(super) fn request(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, String> {
        let url = self.pool.url();
        let mut request = Request::builder()
            .method(method)
            .uri(url.path())
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let host = HeaderValue::try_from(url.host()).map_err(|error| error.to_string())?;
        let agent = HeaderValue::from_static(concat!("semel/", env!("CARGO_PKG_VERSION")));
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        headers.insert(header::HOST, host);
        headers.entry(header::USER_AGENT).or_insert(agent);
        for (name, value) in &self.fixed {
            headers.insert(name, value.clone());
        }
        Ok(request)
    }

    /// Takes note of what an answer says about the server.
    pub(super) fn learn(&self, method: &str, answer: &Message, headers: &HeaderMap) {
        let (Kind::Result, Some(result)) = (answer.kind(), answer.outcome()) else {
            return;
        };
        match (method, &self.conversation) {
            ("initialize", Some(conversation)) => conversation.agreed(result, headers),
            ("tools/list", _) => self.mirrors.learn(result),
            _ => {}
        }
    }

    /// Takes note of a refusal: a session that is not known any more is over.
    pub(super) fn note_status(&self, status: StatusCode) {
        if let Some(conversation) = &self.conversation
            && status == StatusCode::NOT_FOUND
        {
            conversation.gone();
        }
    }

    /// Starts to listen for what the server says unasked.
    fn listen(self: &Arc<Self>) {
        let task = tokio::spawn(super::listening::listen(Arc::downgrade(self)));
        let before = locked(&self.listening).replace(task.abort_handle());
        if let Some(before) = before {
            before.abort();
        }
    }

    fn listen_no_more(&self) {
        if let Some(listening) = locked(&self.listening).take() {
            listening.abort();
        }
    }
}

/// Waits until a client wants no answer any more; for ever, if it cannot say so.
pub(super) async fn is_cancelled(place: Option<&mut Place>) {
    let cancelled = match place {
        Some(place) => (&mut place.cancel).await,
        None => std::future::pending().await,
    };
    if cancelled.is_err() {
        // Nobody can cancel it any more.
        std::future::pending().await
    }
}

pub(super) fn silent() -> String {
    "the server did not answer in time".to_owned()
}

/// Answers a request that the server refused: with the server's own words, if they are a message.
pub(crate) fn refused(id: &str, refusal: &Refusal) -> Message {
    if let Ok(said) = Message::read(refusal.body.clone())
        && let (Kind::Error, Some(error)) = (said.kind(), said.outcome())
    {
        return answer(id, "error", error);
    }
    let status = refusal.status;
    failure(id, &format!("the server refused it with HTTP {status}"))
}
