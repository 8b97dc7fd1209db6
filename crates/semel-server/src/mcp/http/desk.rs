//! What the front needs of the gateway.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;
use semel::{Namespace, Scope};
use tokio::sync::mpsc;

use crate::mcp::message::Message;
use crate::mcp::upstream::{Headers, Pending, Upstream};
use crate::proof::Witness;

/// Decides what becomes of the messages to one server.
pub(crate) trait Desk: fmt::Debug + Send + Sync + 'static {
    /// One client's way to the server.
    type Session: fmt::Debug + Send + Sync + 'static;

    /// Makes a session for a client; what the gateway itself asks the client goes to `down`.
    fn session(&self, upstream: Arc<dyn Upstream>, down: mpsc::Sender<Message>) -> Self::Session;

    /// Takes note of a message of the client's; returns whether it answers the gateway's own question and is not to be
    /// passed on.
    fn overhear(&self, session: &Self::Session, message: &Message) -> bool;

    /// Says whether a message is for the gateway; all others are passed on.
    fn takes(&self, message: &Message) -> bool;

    /// Takes a request.
    fn take(
        self: &Arc<Self>,
        session: &Arc<Self::Session>,
        request: Message,
        asked: Asked,
    ) -> Arc<dyn Call>;
}

/// A request that the gateway has in hand. Dropping it means that its client left.
pub(crate) trait Call: Witness {
    /// Waits for the answer; asking again gets the same.
    fn answer(&self) -> Pending<'_, Answered>;

    /// Says whether the server is to hear of a cancel.
    fn forwards_cancel(&self) -> bool;
}

/// How a message came.
#[derive(Debug)]
pub(crate) struct Asked {
    /// What came beside it and is meant for the server.
    pub(crate) headers: Headers,
    /// On whose behalf.
    pub(crate) principal: Option<String>,
    /// Where its operations live.
    pub(crate) namespace: Namespace,
    /// What its sender may do.
    pub(crate) scope: Scope,
    /// Where messages go that come before the answer.
    pub(crate) asides: Option<mpsc::Sender<Message>>,
}

/// What a request is answered with.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) message: Message,
    pub(crate) headers: Headers,
    pub(crate) status: Option<StatusCode>,
}

impl From<Message> for Answered {
    fn from(message: Message) -> Self {
        Self {
            message,
            headers: Headers::default(),
            status: None,
        }
    }
}
