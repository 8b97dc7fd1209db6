//! Answers to one request over HTTP: a message, or events that end with it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use super::desk::{Answered, Call};
use super::failure;
use super::reading::is_events;
use super::resuming::{self, Resumes};
use super::routes::Waits;
use crate::mcp::message::Message;
use crate::mcp::sse;
use crate::proof::{Line, Witness};

/// How long a client waits for the first byte of its answer: then it is told that there will be one. Less than
/// whatever stands between commonly waits for.
const SILENT_MAX: Duration = Duration::from_secs(15);

/// What a stream says when it has nothing to say.
const ALIVE: &[u8] = b": alive\n\n";

/// What leads to an answer.
pub(super) struct Answering {
    /// The request's id, as its client wrote it.
    pub(super) id: String,
    /// The same for identical calls.
    pub(super) about: u64,
    /// What comes on the way.
    pub(super) asides: mpsc::Receiver<Message>,
    pub(super) last: Last,
    /// Where an answer is kept that breaks off, and for whom.
    pub(super) resumes: Option<(Resumes, String)>,
    /// Whether the answer comes as an event, too, to those who take events: servers of the older protocol do so.
    pub(super) prefers_events: bool,
    /// Restores what was changed on the way to the server, and is told when nobody wants the answer any more.
    pub(super) own: Box<dyn Own>,
    /// Its place among those that wait, where there is one.
    #[expect(dead_code, reason = "it is there to be dropped with the rest")]
    pub(super) waits: Option<Waits>,
}

/// Where the answer comes from.
pub(super) enum Last {
    /// The gateway.
    Call(Arc<dyn Call>),
    /// The server.
    Server(oneshot::Receiver<Message>),
}

/// What is particular to the way to the server. It is dropped with the answer, given or not.
pub(super) trait Own: Send {
    /// Makes a message the client's again.
    fn restored(&self, message: Message) -> Message;

    /// Returns the status of an answer that names none.
    fn status(&self, message: &Message) -> StatusCode;
}

enum Next {
    Aside(Message),
    Last(Answered),
    Nothing,
}

impl Answering {
    /// Returns what comes next. What came before the answer goes before it.
    async fn next(&mut self) -> Next {
        tokio::select! {
            biased;
            Some(aside) = self.asides.recv() => Next::Aside(self.own.restored(aside)),
            answered = self.last.wait(&self.id) => Next::Last(Answered {
                message: self.own.restored(answered.message),
                ..answered
            }),
            () = sleep(SILENT_MAX) => Next::Nothing,
        }
    }

    /// Waits for what comes first, and answers accordingly.
    pub(super) async fn response(mut self, accepts: Accepts, line: Option<Line>) -> Response {
        let witness: Option<Arc<dyn Witness>> = match &self.last {
            Last::Call(call) => Some(Arc::clone(call) as Arc<dyn Witness>),
            Last::Server(_) => None,
        };
        let about = self.about;
        let watched = |body: Body| match (&line, witness) {
            (Some(line), Some(call)) => line.watched(body, call, about),
            _ => body,
        };
        let first = loop {
            match self.next().await {
                // Whoever wants no events waits without a word, and hears nothing on the way.
                Next::Nothing | Next::Aside(_) if !accepts.events => {}
                first => break first,
            }
        };
        match first {
            Next::Last(answered) if !self.is_event(accepts, &answered) => {
                let status = answered.status;
                let status = status.unwrap_or_else(|| self.own.status(&answered.message));
                let body = Body::from(answered.message.bytes().clone());
                let mut response = Response::new(watched(body));
                *response.status_mut() = status;
                *response.headers_mut() = answered.headers.0;
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                response
            }
            first => {
                let mut response = Response::new(Body::empty());
                if let Next::Last(answered) = &first {
                    *response.headers_mut() = answered.headers.0.clone();
                }
                events_headers(response.headers_mut());
                let event = self.kept();
                *response.body_mut() = watched(self.events(first, event));
                response
            }
        }
    }

    fn is_event(&self, accepts: Accepts, answered: &Answered) -> bool {
        let is_plain = answered
            .status
            .is_none_or(|status| status == StatusCode::OK);
        let is_wanted = self.prefers_events || is_events(&answered.headers.0);
        accepts.events && is_plain && is_wanted
    }

    /// Keeps the answer for a client that can ask for the rest of it; returns the id of its first event.
    fn kept(&self) -> Option<String> {
        let (Some((resumes, whose)), Last::Call(call)) = (&self.resumes, &self.last) else {
            return None;
        };
        resumes.keep(whose, (&self.id, self.about), call)
    }

    /// Makes events of what comes, up to the answer.
    fn events(self, first: Next, event: Option<String>) -> Body {
        let primed = event.as_deref().map(resuming::first);
        let primed = primed.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let begun = (Some(self), Some(first), event);
        let pieces = stream::unfold(begun, |(answering, first, event)| async move {
            let mut answering = answering?;
            let next = match first {
                Some(first) => first,
                None => answering.next().await,
            };
            let (piece, rest) = match next {
                Next::Aside(message) => (sse::event(&message, None), Some(answering)),
                Next::Nothing => (Bytes::from_static(ALIVE), Some(answering)),
                Next::Last(answered) => {
                    if let (Some((resumes, _)), Some(event)) = (&answering.resumes, &event) {
                        resumes.written(event);
                    }
                    (sse::event(&answered.message, None), None)
                }
            };
            Some((Ok::<_, Infallible>(Frame::data(piece)), (rest, None, event)))
        });
        Body::new(StreamBody::new(stream::iter(primed).chain(pieces)))
    }
}

impl Last {
    async fn wait(&mut self, id: &str) -> Answered {
        match self {
            Self::Call(call) => call.answer().await,
            Self::Server(answer) => {
                let answer = answer.await;
                let gone = |_| failure(id, "the server is gone");
                answer.unwrap_or_else(gone).into()
            }
        }
    }
}

/// Says that events follow, and that nobody is to hold them up.
pub(super) fn events_headers(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache, no-transform"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Makes events of what a server says unasked, until it says no more or the gateway stops.
pub(super) fn unasked(messages: mpsc::Receiver<Message>, stop: watch::Receiver<bool>) -> Response {
    let open = (messages, stop, true);
    let pieces = stream::unfold(open, |(mut messages, mut stop, is_first)| async move {
        if is_first {
            // The head of the answer goes out with it.
            let piece = Frame::data(Bytes::from_static(ALIVE));
            return Some((Ok::<_, Infallible>(piece), (messages, stop, false)));
        }
        let piece = tokio::select! {
            biased;
            () = crate::stopped(&mut stop) => return None,
            message = messages.recv() => sse::event(&message?, None),
            () = sleep(SILENT_MAX) => Bytes::from_static(ALIVE),
        };
        Some((Ok(Frame::data(piece)), (messages, stop, false)))
    });
    let mut response = Response::new(Body::new(StreamBody::new(pieces)));
    events_headers(response.headers_mut());
    response
}

/// What a client takes as an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl Accepts {
    /// Reads it from the headers of a request.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut accepts = Self {
            json: false,
            events: false,
        };
        let lines = headers.get_all(header::ACCEPT).into_iter();
        let kinds = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .map(|kind| kind.split(';').next().unwrap_or_default().trim());
        for kind in kinds {
            match kind.to_ascii_lowercase().as_str() {
                "*/*" => (accepts.json, accepts.events) = (true, true),
                "application/json" | "application/*" => accepts.json = true,
                "text/event-stream" | "text/*" => accepts.events = true,
                _ => {}
            }
        }
        accepts
    }
}
