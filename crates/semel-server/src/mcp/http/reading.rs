//! Reading what a server answers to one request: a message, events, or a refusal.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, Response, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::headers::{self, passed_on};
use super::listening::{PAUSE_MAX, with_last};
use super::upstream::{ANSWER_MAX, CANCELLED, Place, Shared, TOLD_MAX, is_cancelled, silent};
use super::{answer, same_id};
use crate::mcp::message::{Kind, MESSAGE_MAX, Message};
use crate::mcp::sse::{Decoder, Event, TooLarge};
use crate::mcp::upstream::{Headers, Lost, Refusal, Reply};
use crate::pool::Coming;

/// The most of a refusal's body that is kept, in bytes.
const REFUSAL_MAX: usize = 1024 * 1024;

/// How often an answer that broke off is taken up again without anything new having come.
const RESUMES_MAX: u32 = 5;

/// The pause before that, unless the server names one.
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// A request whose answer is read.
pub(super) struct Reading {
    shared: Arc<Shared>,
    id: String,
    method: String,
    /// The newer protocol has no way to take up an answer again.
    is_newer: bool,
    /// What the request was sent with.
    headers: HeaderMap,
    replies: mpsc::Sender<Reply>,
    place: Option<Place>,
}

impl Reading {
    pub(super) fn new(
        shared: &Arc<Shared>,
        request: &Message,
        headers: HeaderMap,
        replies: mpsc::Sender<Reply>,
        place: Option<Place>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            id: request.id().unwrap_or("null").to_owned(),
            method: request.method().unwrap_or_default().to_owned(),
            is_newer: headers::own_version(request).is_some(),
            headers,
            replies,
            place,
        }
    }

    /// Reads to the answer, or to the end of what can be read.
    pub(super) async fn run(mut self, answer: Response<Coming>) {
        let (parts, body) = answer.into_parts();
        let last = if !parts.status.is_success() {
            self.shared.note_status(parts.status);
            Some(Reply::Http(Refusal {
                status: parts.status,
                headers: Headers(passed_on(&parts.headers)),
                body: some(body).await,
            }))
        } else if is_events(&parts.headers) {
            self.events(body, &parts.headers).await
        } else {
            Some(match whole(body).await {
                Ok(bytes) => self.only(bytes, &parts.headers),
                Err(why) => Reply::Lost(Lost(why)),
            })
        };
        if let Some(last) = last {
            // Whoever asked may be gone.
            drop(self.replies.send(last).await);
        }
    }

    /// Takes a body as the answer.
    fn only(&self, bytes: Bytes, headers: &HeaderMap) -> Reply {
        if bytes.trim_ascii().is_empty() {
            return Reply::Lost(Lost("the server took it and answered nothing".to_owned()));
        }
        match Message::read(bytes) {
            Ok(message) => self.answer(message, headers).unwrap_or_else(|| {
                Reply::Lost(Lost("the server answered something else".to_owned()))
            }),
            Err(error) => Reply::Lost(Lost(format!("the server's answer is none: {error}"))),
        }
    }

    /// Takes a message as the answer, if it is one to this request.
    fn answer(&self, message: Message, headers: &HeaderMap) -> Option<Reply> {
        let message = match (message.kind(), message.id()) {
            (Kind::Result | Kind::Error, Some(id)) if same_id(id, &self.id) => message,
            // The server could not read which request it was.
            (Kind::Error, None) => answer(&self.id, "error", message.outcome()?),
            (Kind::Result | Kind::Error, _)
            | (Kind::Request { .. } | Kind::Notification { .. }, _) => {
                return None;
            }
        };
        self.shared.learn(&self.method, &message, headers);
        Some(Reply::Answer(message, Headers(passed_on(headers))))
    }

    /// Reads events up to the answer; `None` when nobody wants it any more.
    async fn events(&mut self, mut body: Coming, headers: &HeaderMap) -> Option<Reply> {
        let mut last_id: Option<String> = None;
        let mut fruitless = 0;
        loop {
            let mut decoder = Decoder::default();
            let why = match self.stream(body, &mut decoder, headers).await {
                Stream::Over(last) => return last.map(|last| *last),
                Stream::Broken(why) => why,
            };
            match decoder.last_id() {
                Some(id) if last_id.as_deref() != Some(id) => {
                    (last_id, fruitless) = (Some(id.to_owned()), 0);
                }
                Some(_) | None => fruitless += 1,
            }
            let is_lost = self.is_newer || last_id.is_none() || fruitless > RESUMES_MAX;
            if is_lost {
                return Some(Reply::Lost(Lost(why)));
            }
            let pause = decoder.retry().unwrap_or(RESUME_PAUSE).min(PAUSE_MAX);
            body = match self
                .resumed(pause, last_id.as_deref(), &mut fruitless)
                .await
            {
                Stream::Over(last) => return last.map(|last| *last),
                Stream::Broken(None) => return Some(Reply::Lost(Lost(why))),
                Stream::Broken(Some(body)) => body,
            };
        }
    }

    /// Reads one stream of events.
    async fn stream(
        &mut self,
        mut body: Coming,
        decoder: &mut Decoder,
        headers: &HeaderMap,
    ) -> Stream<String> {
        loop {
            let frame = tokio::select! {
                biased;
                () = is_cancelled(self.place.as_mut()) => {
                    return Stream::lost(CANCELLED);
                }
                () = self.replies.closed() => return Stream::Over(None),
                frame = timeout(ANSWER_MAX, body.frame()) => frame,
            };
            let bytes = match frame {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(error))) => {
                    return Stream::Broken(format!("the answer broke off: {error}"));
                }
                Ok(None) => return Stream::Broken("the server ended without an answer".to_owned()),
                Err(_) => return Stream::Broken(silent()),
            };
            for event in decoder.feed(&bytes) {
                if let Err(error) = &event {
                    return Stream::lost(&error.to_string());
                }
                let Some(message) = message_of(event) else {
                    continue;
                };
                let reply = match message.kind() {
                    Kind::Request { .. } | Kind::Notification { .. } => Reply::Aside(message),
                    Kind::Result | Kind::Error => match self.answer(message, headers) {
                        Some(last) => return Stream::Over(Some(Box::new(last))),
                        None => {
                            tracing::warn!("the server answered what nobody asked here");
                            continue;
                        }
                    },
                };
                if self.replies.send(reply).await.is_err() {
                    return Stream::Over(None);
                }
            }
        }
    }

    /// Takes up an answer that broke off: asks for what came after the last event, which sends nothing again.
    async fn resumed(
        &mut self,
        pause: Duration,
        last_id: Option<&str>,
        fruitless: &mut u32,
    ) -> Stream<Option<Coming>> {
        loop {
            tokio::select! {
                biased;
                () = is_cancelled(self.place.as_mut()) => {
                    return Stream::lost(CANCELLED);
                }
                () = self.replies.closed() => return Stream::Over(None),
                () = tokio::time::sleep(pause) => {}
            }
            let mut headers = with_last(self.headers.clone(), last_id);
            headers.remove(header::CONTENT_TYPE);
            let Ok(request) = self.shared.request(Method::GET, headers, Bytes::new()) else {
                return Stream::Broken(None);
            };
            match timeout(TOLD_MAX, self.shared.pool.send(request)).await {
                Ok(Ok(answer)) if answer.status().is_success() && is_events(answer.headers()) => {
                    return Stream::Broken(Some(answer.into_body()));
                }
                // Refused: the server keeps nothing, or not for us.
                Ok(Ok(answer)) if !answer.status().is_server_error() => {
                    return Stream::Broken(None);
                }
                Ok(Ok(_) | Err(_)) | Err(_) => {}
            }
            *fruitless += 1;
            if *fruitless > RESUMES_MAX {
                return Stream::Broken(None);
            }
        }
    }
}

/// How a stream went.
enum Stream<T> {
    /// To the answer, or until nobody wanted it.
    Over(Option<Box<Reply>>),
    /// It ended before.
    Broken(T),
}

impl<T> Stream<T> {
    fn lost(why: &str) -> Self {
        Self::Over(Some(Box::new(Reply::Lost(Lost(why.to_owned())))))
    }
}

/// Says whether an answer comes as events.
pub(super) fn is_events(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|kind| kind.eq_ignore_ascii_case("text/event-stream"))
}

/// Returns what kind a body is of, without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim())
}

/// Returns the message in an event; what is none is passed over.
pub(super) fn message_of(event: Result<Event, TooLarge>) -> Option<Message> {
    let event = match event {
        Ok(event) if event.kind == "message" => event,
        Ok(_) => return None,
        Err(error) => {
            tracing::warn!(%error, "something that the server said was left out");
            return None;
        }
    };
    match Message::read(event.data) {
        Ok(message) => Some(message),
        Err(error) => {
            tracing::warn!(%error, "the server said what is no message");
            None
        }
    }
}

/// Reads a whole body, as far as a message may go.
async fn whole(mut body: Coming) -> Result<Bytes, String> {
    let mut bytes = BytesMut::new();
    loop {
        match timeout(ANSWER_MAX, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                if bytes.len() + data.len() > MESSAGE_MAX {
                    return Err(format!("the answer has more than {MESSAGE_MAX} bytes"));
                }
                bytes.extend_from_slice(&data);
            }
            Ok(Some(Err(error))) => return Err(format!("the answer broke off: {error}")),
            Ok(None) => return Ok(bytes.freeze()),
            Err(_) => return Err(silent()),
        }
    }
}

/// Reads what there is of a refusal's body, within its limits.
async fn some(mut body: Coming) -> Bytes {
    let mut bytes = BytesMut::new();
    while let Ok(Some(Ok(frame))) = timeout(TOLD_MAX, body.frame()).await {
        let data = frame.into_data().unwrap_or_default();
        let room = REFUSAL_MAX - bytes.len();
        bytes.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            break;
        }
    }
    bytes.freeze()
}
