//! The list of a server's tools: learned from, and changed only where that is configured.

use super::super::admin;
use super::super::edit::{self, EditError};
use super::super::http::desk::{Answered, Asked};
use super::super::listed::{Listed, with_repeat_argument};
use super::super::message::{Kind, Message};
use super::super::say;
use super::super::upstream::Reply;
use super::{Gateway, Session, TOOLS_MAX, handed_on, locked};

impl Gateway {
    /// Hands the list on, and remembers what the server says of its tools.
    pub(super) async fn list(
        &self,
        session: &Session,
        request: &Message,
        asked: &Asked,
    ) -> Answered {
        let id = request.id().unwrap_or("null");
        let mut replies = match session.upstream.request(request, &asked.headers).await {
            Ok(replies) => replies,
            Err(not_sent) => return say::server_gone(id, &not_sent.to_string()).into(),
        };
        loop {
            match replies.0.recv().await {
                Some(Reply::Aside(message)) => session.aside(asked, message).await,
                Some(Reply::Answer(message, headers)) => {
                    return Answered {
                        message: self.learned(message),
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

    /// Remembers a page of tools and adds what is configured; what cannot be changed passes as it is.
    fn learned(&self, message: Message) -> Message {
        if *message.kind() != Kind::Result {
            return message;
        }
        let Some(result) = message.outcome() else {
            return message;
        };
        {
            let mut listed = locked(&self.listed);
            for tool in Listed::read_all(result) {
                if listed.len() < TOOLS_MAX || listed.contains_key(&tool.name) {
                    listed.insert(tool.name.clone(), tool);
                }
            }
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
        let mut extended = with_repeat_argument(result, &self.about.policy);
        if self.about.admin_tools && edit::get(result, &["nextCursor"]).is_none() {
            for tool in admin::TOOLS {
                extended = edit::push(&extended, &["tools"], tool.listed)?;
            }
        }
        Ok(extended)
    }
}
