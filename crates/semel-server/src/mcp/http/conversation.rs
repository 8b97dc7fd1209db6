//! What is remembered of the older protocol for a client that does not speak HTTP itself: its session and version.

use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::headers::{self, SESSION, VERSION};
use super::upstream::Shared;
use crate::locked::locked;
use crate::mcp::message::{Kind, Message};
use crate::mcp::upstream::{Headers, Reply};

/// The id of the handshake when it is made again.
const HANDSHAKE: &str = "\"semel-handshake\"";

/// One client's conversation with a server.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Where everything goes that the client did not ask the gateway for.
    pub(super) unasked: mpsc::Sender<Message>,
    known: Mutex<Known>,
    /// Held while the handshake is made again.
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
    initialize: Option<Message>,
    initialized: Option<Message>,
    is_gone: bool,
}

impl Known {
    fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in [(SESSION, &self.session), (VERSION, &self.version)] {
            if let Some(value) = value {
                headers.entry(name).or_insert_with(|| value.clone());
            }
        }
    }
}

impl Conversation {
    pub(super) fn new(unasked: mpsc::Sender<Message>) -> Self {
        Self {
            unasked,
            known: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
        }
    }

    /// Adds what the server wants to see with a message. A handshake has nothing yet, and remembered is what it says.
    pub(super) fn add_to(&self, message: &Message, headers: &mut HeaderMap) {
        let mut known = locked(&self.known);
        if message.method() == Some("initialize") {
            known.initialize = Some(message.clone());
            (known.session, known.version, known.is_gone) = (None, None, false);
        } else if headers::own_version(message).is_none() {
            known.add_to(headers);
        }
    }

    /// Adds what the server wants to see with a request that has no message; `None` where nothing was agreed on.
    pub(super) fn of_session(&self) -> Option<HeaderMap> {
        let known = locked(&self.known);
        known.version.as_ref()?;
        let mut headers = HeaderMap::new();
        known.add_to(&mut headers);
        Some(headers)
    }

    /// Takes note of what a handshake led to.
    pub(super) fn agreed(&self, result: &str, headers: &HeaderMap) {
        #[derive(Deserialize)]
        struct Agreed {
            #[serde(rename = "protocolVersion")]
            version: String,
        }
        let agreed = serde_json::from_str::<Agreed>(result).ok();
        let mut known = locked(&self.known);
        known.session = headers.get(SESSION).cloned();
        known.version = agreed.and_then(|it| HeaderValue::try_from(it.version).ok());
    }

    /// Takes note that the client is ready.
    pub(super) fn initialized(&self, message: &Message) {
        locked(&self.known).initialized = Some(message.clone());
    }

    /// Takes note that the server does not know the session any more.
    pub(super) fn gone(&self) {
        let mut known = locked(&self.known);
        known.is_gone = known.session.is_some();
    }

    /// Forgets the session; returns what ends it.
    pub(super) fn ended(&self) -> Option<HeaderMap> {
        let headers = self.of_session()?;
        let session = locked(&self.known).session.take();
        session.map(|_| headers)
    }

    /// Makes the handshake again where the session is gone. What met that was refused and is not sent again: this is
    /// for whatever comes next.
    pub(super) async fn renewed(
        &self,
        shared: &Arc<Shared>,
        message: &Message,
    ) -> Result<(), String> {
        if message.method() == Some("initialize") || !locked(&self.known).is_gone {
            return Ok(());
        }
        let _renewing = self.renewing.lock().await;
        let (initialize, initialized) = {
            let known = locked(&self.known);
            match &known.initialize {
                Some(initialize) if known.is_gone => {
                    (initialize.clone(), known.initialized.clone())
                }
                Some(_) | None => return Ok(()),
            }
        };
        let refused = "the server forgot the session and refused another handshake";
        let handshake = initialize.with_id(HANDSHAKE);
        let handshake = handshake.map_err(|error| error.to_string())?;
        let asked = Box::pin(shared.ask(&handshake, &Headers::default(), None)).await;
        let mut replies = asked.map_err(|not_sent| not_sent.to_string())?;
        // The handshake is remembered as the client made it.
        locked(&self.known).initialize = Some(initialize);
        while let Some(reply) = replies.0.recv().await {
            match reply {
                Reply::Aside(_) => {}
                Reply::Answer(answer, _) if *answer.kind() == Kind::Result => {
                    return match initialized {
                        Some(message) => Box::pin(shared.tell(&message, &Headers::default()))
                            .await
                            .map_err(|lost| lost.0),
                        None => Ok(()),
                    };
                }
                Reply::Answer(..) | Reply::Http(_) | Reply::Lost(_) => break,
            }
        }
        locked(&self.known).is_gone = true;
        Err(refused.to_owned())
    }
}
