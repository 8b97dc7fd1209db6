//! Leading a call to the server whose tool it names.

use std::time::Duration;

use super::super::answer::{self, ResolveBy, To};
use super::super::ask::{Ask, Era};
use super::super::catalogue::Served;
use super::super::edit;
use super::super::http::desk::{Answered, Asked};
use super::super::message::{Message, quoted};
use super::super::say;
use super::super::union::names::{Found, Place};
use super::super::upstream::{Lost, Refusal, Replies, Reply, Upstream};
use super::{Gateway, Session};

/// A call on the way to its server.
pub(super) struct Led<'a> {
    pub(super) served: &'a Served,
    pub(super) upstream: &'a dyn Upstream,
    /// The request with the tool's own name.
    pub(super) request: Message,
    pub(super) ask: Ask,
}

impl Gateway {
    /// Finds the server of a call, and gives the tool its own name: identity and policy are the server's, whatever
    /// clients have to call the tool because of others.
    ///
    /// # Errors
    /// Says why there is no such server.
    pub(super) async fn led<'a>(
        &'a self,
        session: &'a Session,
        request: &Message,
        ask: Ask,
    ) -> Result<Led<'a>, Box<Message>> {
        let catalogue = &self.about.catalogue;
        let Place { at, name } = self.whose(session, request, ask.name.as_str()).await?;
        let upstream = session.upstream.part(at);
        let upstream = upstream.unwrap_or(&*session.upstream);
        let served = catalogue.at(at);
        if name == ask.name.as_str() {
            return Ok(Led {
                served,
                upstream,
                request: request.clone(),
                ask,
            });
        }
        let id = request.id().unwrap_or("null");
        let request = named(request, &name).ok_or_else(|| Box::new(say::internal(id)))?;
        let ask = Ask::read(request.params(), session.client());
        let ask = ask.map_err(|refused| Box::new(answer::refused(&unread(&request), &refused)))?;
        Ok(Led {
            served,
            upstream,
            request,
            ask,
        })
    }

    /// Finds out whose tool a call names, and asks the servers where that is not known.
    async fn whose(
        &self,
        session: &Session,
        call: &Message,
        name: &str,
    ) -> Result<Place, Box<Message>> {
        let catalogue = &self.about.catalogue;
        session.upstream.look(call, false).await;
        let mut found = catalogue.find(name);
        let mut silent = vec![];
        if found == Found::Unknown {
            silent = session.upstream.look(call, true).await;
            found = catalogue.find(name);
        }
        let id = call.id().unwrap_or("null");
        let servers = catalogue.servers().iter();
        let servers: Vec<_> = servers.map(|server| server.name.as_str()).collect();
        match found {
            Found::At(place) => Ok(place),
            Found::Ambiguous(names) => Err(Box::new(say::ambiguous(id, name, &names))),
            Found::Unknown => Err(Box::new(say::unknown_tool(id, name, &servers, &silent))),
        }
    }
}

impl Gateway {
    /// Hands on an answer of HTTP that is no message. What one of several servers wants to know over HTTP is not for
    /// the client, which would tell it to the gateway.
    pub(super) fn handed_on(&self, id: &str, refusal: Refusal) -> Answered {
        let message = say::http_refusal(id, &refusal);
        if !self.about.catalogue.is_single() {
            return message.into();
        }
        // Where the client does not speak HTTP, it hears the message.
        Answered {
            message,
            headers: refusal.headers,
            status: Some(refusal.status),
        }
    }

    /// Passes a request on that changes nothing, and returns the answer as it came.
    pub(super) async fn passed(
        &self,
        session: &Session,
        upstream: &dyn Upstream,
        request: &Message,
        asked: &Asked,
    ) -> Answered {
        let id = request.id().unwrap_or("null");
        match upstream.request(request, &asked.headers).await {
            Ok(replies) => self.handed(id, last(session, asked, replies).await),
            Err(not_sent) => say::server_gone(id, &not_sent.to_string()).into(),
        }
    }

    /// Hands on what came last for a request that changes nothing.
    pub(super) fn handed(&self, id: &str, last: Reply) -> Answered {
        match last {
            Reply::Aside(message) => message.into(),
            Reply::Answer(message, headers) => Answered {
                message,
                headers,
                status: None,
            },
            Reply::Http(refusal) => self.handed_on(id, refusal),
            Reply::Lost(lost) => say::server_gone(id, &lost.0).into(),
        }
    }
}

/// Waits for the last that comes for a request, and hands on what comes before it.
async fn last(session: &Session, asked: &Asked, mut replies: Replies) -> Reply {
    while let Some(reply) = replies.0.recv().await {
        match reply {
            Reply::Aside(message) => session.aside(asked, message).await,
            last @ (Reply::Answer(..) | Reply::Http(_) | Reply::Lost(_)) => return last,
        }
    }
    Reply::Lost(Lost("the server was given up".to_owned()))
}

/// Waits no longer than this for the last that comes for a request.
pub(super) async fn last_within(
    timeout: Duration,
    session: &Session,
    asked: &Asked,
    replies: Replies,
) -> Reply {
    let last = semel::within(timeout, last(session, asked, replies)).await;
    last.unwrap_or_else(|_| {
        let seconds = timeout.as_secs_f64();
        Reply::Lost(Lost(format!(
            "the server did not answer within {seconds} s"
        )))
    })
}

/// Returns the same call of a tool by another name.
pub(crate) fn named(call: &Message, name: &str) -> Option<Message> {
    let params = edit::set(call.params()?, &["name"], &quoted(name)).ok()?;
    call.with_params(&params).ok()
}

/// Says whom an answer is for that could not be read.
pub(super) fn unread(request: &Message) -> To<'_> {
    To {
        id: request.id().unwrap_or("null"),
        era: Era::Legacy,
        tool: "",
        resolve: ResolveBy::Command,
    }
}
