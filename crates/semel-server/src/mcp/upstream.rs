//! Servers that carry calls out, whatever leads to them: a child process, or HTTP.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use tokio::sync::mpsc;

use super::message::Message;

/// An answer that may take a while.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How many messages may wait for whoever reads them; the server is read no further meanwhile.
pub(crate) const WAITING_MAX: usize = 64;

/// A server as the session of one client sees it.
///
/// It never sends anything twice, whatever happens to it: that is decided above.
pub(crate) trait Upstream: Send + Sync + fmt::Debug {
    /// Sends a request. Whatever comes because of it arrives at [`Replies`], the answer last.
    ///
    /// # Errors
    /// Only when not one byte of it can have reached the server.
    fn request<'a>(
        &'a self,
        request: &'a Message,
        with: &'a Headers,
    ) -> Pending<'a, Result<Replies, NotSent>>;

    /// Sends a notification, or the answer to a request of the server's own.
    fn tell<'a>(&'a self, message: &'a Message, with: &'a Headers)
    -> Pending<'a, Result<(), Lost>>;

    /// Returns the server of this number, where there are several behind this one.
    fn part(&self, _at: usize) -> Option<&dyn Upstream> {
        None
    }

    /// Finds out which tools there are, where a call cannot be led to its server without; returns the servers that did
    /// not say. `again` asks those, too, that did not answer before.
    fn look<'a>(&'a self, _call: &'a Message, _again: bool) -> Pending<'a, Vec<String>> {
        Box::pin(std::future::ready(vec![]))
    }
}

/// What a client sent beside its message and is meant for the server: headers of HTTP, or nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers(pub(crate) HeaderMap);

impl Headers {
    /// Returns what may go with a request of the gateway's own on behalf of the same client.
    pub(crate) fn for_another(&self) -> Self {
        Self(super::http::headers::for_another(&self.0))
    }
}

/// What comes for one request, in order; nothing follows an answer.
#[derive(Debug)]
pub(crate) struct Replies(pub(crate) mpsc::Receiver<Reply>);

/// Something that came for a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A notification or a request of the server's own, on the way to the answer.
    Aside(Message),
    /// The answer, and the headers that came with it.
    Answer(Message, Headers),
    /// An answer of HTTP that is no message: the server did not look at the request, or failed.
    Http(Refusal),
    /// There will be no answer: nobody knows what became of the request.
    Lost(Lost),
}

/// An answer of HTTP that is no message.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

/// Says why a request certainly did not reach the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server was not reached: {0}")]
pub(crate) struct NotSent(pub(crate) String);

/// Says why nobody knows what became of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lost(pub(crate) String);
