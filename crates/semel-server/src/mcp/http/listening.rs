//! What a server of the older protocol says unasked: a stream that is opened again whenever it ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;

use super::headers::LAST_EVENT;
use super::reading::{is_events, message_of};
use super::upstream::{Shared, TOLD_MAX};
use crate::mcp::message::Message;
use crate::mcp::sse::Decoder;
use crate::pool::Coming;

/// The pause before a stream is opened again, unless the server names one.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Listens until the session is over, or the server has no such stream.
pub(super) async fn listen(shared: Weak<Shared>) {
    let mut last_id: Option<String> = None;
    let mut pause = PAUSE;
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        let Some((opened, unasked)) = open(&strong, last_id.as_deref()).await else {
            return;
        };
        drop(strong);
        match opened {
            Opened::Events(body) => {
                let heard = hear(body, &unasked, &mut last_id).await;
                let Some(asked_for) = heard else { return };
                pause = asked_for.unwrap_or(PAUSE).min(PAUSE_MAX);
            }
            Opened::Nothing => return,
            Opened::NotNow => pause = (pause * 2).min(PAUSE_MAX),
        }
        tokio::time::sleep(pause).await;
    }
}

enum Opened {
    Events(Coming),
    /// The server refuses it, now and always.
    Nothing,
    NotNow,
}

/// Opens the stream; `None` where there is no session to speak of.
async fn open(
    shared: &Arc<Shared>,
    last_id: Option<&str>,
) -> Option<(Opened, mpsc::Sender<Message>)> {
    let conversation = shared.conversation.as_ref()?;
    let headers = with_last(conversation.of_session()?, last_id);
    let request = shared.request(Method::GET, headers, Bytes::new()).ok()?;
    let answer = tokio::time::timeout(TOLD_MAX, shared.pool.send(request)).await;
    let opened = match answer {
        Ok(Ok(answer)) if answer.status().is_success() && is_events(answer.headers()) => {
            Opened::Events(answer.into_body())
        }
        Ok(Ok(answer)) if answer.status().is_server_error() => Opened::NotNow,
        Ok(Ok(_)) => Opened::Nothing,
        Ok(Err(_)) | Err(_) => Opened::NotNow,
    };
    Some((opened, conversation.unasked.clone()))
}

/// Hands on what comes, and returns the pause that the server wants; `None` when nobody listens any more.
async fn hear(
    mut body: Coming,
    unasked: &mpsc::Sender<Message>,
    last_id: &mut Option<String>,
) -> Option<Option<Duration>> {
    let mut decoder = Decoder::default();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        for event in decoder.feed(&bytes) {
            if let Some(message) = message_of(event) {
                unasked.send(message).await.ok()?;
            }
        }
        if let Some(id) = decoder.last_id() {
            *last_id = Some(id.to_owned());
        }
    }
    Some(decoder.retry())
}

/// Adds what a stream of events is asked for with, and from where on.
pub(super) fn with_last(mut headers: HeaderMap, last_id: Option<&str>) -> HeaderMap {
    headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("text/event-stream"),
    );
    if let Some(value) = last_id.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(LAST_EVENT, value);
    }
    headers
}
