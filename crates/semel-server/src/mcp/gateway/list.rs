//! The list of a server's tools: learned from, and changed only where that is configured.

use super::super::admin;
use super::super::edit::{self, EditError};
use super::super::http::desk::{Answered, Asked};
use super::super::listed::{Listed, with_repeat_argument};
use super::super::message::{Kind, Message};
use super::super::say;
use super::super::union::names::Found;
use super::super::upstream::{Reply, Upstream};
use super::{Gateway, Session, handed_on};

impl Gateway {
    /// Hands the list on, and remembers what the server says of its tools.
    pub(super) async fn list(
        &self,
        session: &Session,
        request: &Message,
        asked: &Asked,
    ) -> Answered {
        let answered = passed(session, &*session.upstream, request, asked).await;
        Answered {
            message: self.learned(answered.message),
            ..answered
        }
    }

    /// Remembers a page of tools and adds what is configured; what cannot be changed passes as it is.
    fn learned(&self, message: Message) -> Message {
        if *message.kind() != Kind::Result {
            return message;
        }
        let Some(result) = message.outcome() else {
            return message;
        };
        let catalogue = &self.about.catalogue;
        // What several servers have, they are asked for one by one.
        if catalogue.is_single() {
            catalogue.learn(0, Listed::read_all(result));
        }
        match self.extended(result) {
            // To the last byte as it came, where nothing was added.
            Ok(extended) if extended == result => message,
            Ok(extended) => message.with_outcome(&extended).unwrap_or(message),
            Err(error) => {
                tracing::warn!(%error, "the list of tools cannot be changed");
                message
            }
        }
    }

    /// Adds what is configured: the argument that asks for a second effect, and on the last page the
    /// gateway's own tools.
    fn extended(&self, result: &str) -> Result<String, EditError> {
        let catalogue = &self.about.catalogue;
        let mut extended = with_repeat_argument(result, |name| match catalogue.find(name) {
            Found::At(place) => catalogue.at(place.at).policy.tool(&place.name).challenge,
            Found::Ambiguous(_) | Found::Unknown => false,
        });
        if self.about.admin_tools && edit::get(result, &["nextCursor"]).is_none() {
            for tool in admin::TOOLS {
                extended = edit::push(&extended, &["tools"], tool.listed)?;
            }
        }
        Ok(extended)
    }
}

/// Passes a request on that changes nothing, and returns the answer as it came.
pub(super) async fn passed(
    session: &Session,
    upstream: &dyn Upstream,
    request: &Message,
    asked: &Asked,
) -> Answered {
    let id = request.id().unwrap_or("null");
    let mut replies = match upstream.request(request, &asked.headers).await {
        Ok(replies) => replies,
        Err(not_sent) => return say::server_gone(id, &not_sent.to_string()).into(),
    };
    loop {
        match replies.0.recv().await {
            Some(Reply::Aside(message)) => session.aside(asked, message).await,
            Some(Reply::Answer(message, headers)) => {
                return Answered {
                    message,
                    headers,
                    status: None,
                };
            }
            Some(Reply::Http(refusal)) => return handed_on(id, refusal),
            Some(Reply::Lost(lost)) => return say::server_gone(id, &lost.0).into(),
            None => return say::server_gone(id, "the server was given up").into(),
        }
    }
}
