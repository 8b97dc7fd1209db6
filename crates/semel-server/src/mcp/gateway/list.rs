//! The list of a server's tools: learned from, and changed only where that is configured.

use super::super::admin;
use super::super::edit::{self, EditError};
use super::super::http::desk::{Answered, Asked};
use super::super::listed::{Listed, with_repeat_argument};
use super::super::message::{Kind, Message};
use super::super::union::names::Found;
use super::{Gateway, Session};

impl Gateway {
    /// Hands the list on, and remembers what the server says of its tools.
    pub(super) async fn list(
        &self,
        session: &Session,
        request: &Message,
        asked: &Asked,
    ) -> Answered {
        let upstream = &*session.upstream;
        let answered = self.passed(session, upstream, request, asked).await;
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
            let is_last = edit::get(result, &["nextCursor"]).is_none();
            catalogue.learn(0, Listed::read_all(result), is_last);
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
