//! Leading a call to the server whose tool it names.

use super::super::answer;
use super::super::ask::Ask;
use super::super::catalogue::Served;
use super::super::edit;
use super::super::message::{Message, quoted};
use super::super::say;
use super::super::union::names::{Found, Place};
use super::super::upstream::Upstream;
use super::call::unread;
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
        if found == Found::Unknown {
            session.upstream.look(call, true).await;
            found = catalogue.find(name);
        }
        let id = call.id().unwrap_or("null");
        let servers = catalogue.servers().iter();
        let servers: Vec<_> = servers.map(|server| server.name.as_str()).collect();
        match found {
            Found::At(place) => Ok(place),
            Found::Ambiguous(names) => Err(Box::new(say::ambiguous(id, name, &names))),
            Found::Unknown => Err(Box::new(say::unknown(id, "tool", name, &servers))),
        }
    }
}

/// Returns the same call of a tool by another name.
pub(crate) fn named(call: &Message, name: &str) -> Option<Message> {
    let params = edit::set(call.params()?, &["name"], &quoted(name)).ok()?;
    call.with_params(&params).ok()
}
