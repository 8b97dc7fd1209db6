//! Several servers that are one to their client.
//!
//! ```text
//!                  ┌── Part: files (a child)
//!   client ── Union├── Part: shop  (HTTP)
//!                  └── Part: bank  (a child)
//! ```
//!
//! A request goes to the server that has what it names; handshakes and lists go to all of them, and their answers are
//! made one. Requests keep their ids, as each server has a connection of its own; only the questions of servers get
//! other ones. A server that ends leaves the others as they are.

mod down;
mod greet;
mod lists;
mod merge;
pub(super) mod names;
mod part;
mod route;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::down::Down;
use self::names::Names;
use self::part::Part;
use super::catalogue::Catalogue;
use super::edit;
use super::http::cancelled;
use super::http::children::Server;
use super::message::{Kind, Message};
use super::upstream::{Headers, Lost, NotSent, Pending, Replies, Reply, Upstream};
use crate::locked::locked;

/// The most requests of a client that are under way at once, but for calls that act.
const UNDER_WAY_MAX: usize = 1_024;

/// What a client says of itself with each request of the newer protocol.
const OF_CLIENT: [&str; 3] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
];

/// Who waits to hear of a cancel.
type Cancels = Mutex<HashMap<String, oneshot::Sender<()>>>;

/// Several servers, as one client sees them.
#[derive(Debug)]
pub(crate) struct Union(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    parts: Vec<Part>,
    down: Arc<Down>,
    catalogue: Arc<Catalogue>,
    prompts: Mutex<Names>,
    /// Held while servers are asked for their tools.
    looking: tokio::sync::Mutex<()>,
    under_way: Arc<Semaphore>,
    /// Tells those that answer a request of the client's that it is not wanted any more, by its id.
    cancels: Arc<Cancels>,
    own_requests: AtomicU64,
}

impl Union {
    /// Makes one of the servers of a catalogue. `reach` leads to that of a number; what they say unasked goes to
    /// `unasked`.
    pub(crate) fn new(
        catalogue: Arc<Catalogue>,
        reach: impl Fn(usize, mpsc::Sender<Message>) -> Arc<dyn Server>,
        unasked: mpsc::Sender<Message>,
    ) -> Self {
        let down = Arc::new(Down::new(unasked));
        let servers = catalogue.servers().iter().enumerate();
        let parts = servers.map(|(at, served)| {
            Part::new(at, served.name.clone(), &down, |unasked| reach(at, unasked))
        });
        Self(Arc::new(Shared {
            parts: parts.collect(),
            down,
            catalogue,
            prompts: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            under_way: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
            cancels: Arc::default(),
            own_requests: AtomicU64::new(1),
        }))
    }
}

impl Upstream for Union {
    fn request<'a>(
        &'a self,
        request: &'a Message,
        _: &'a Headers,
    ) -> Pending<'a, Result<Replies, NotSent>> {
        Box::pin(async move {
            let (sender, replies) = mpsc::channel(1);
            let answering = self.0.answering(request).map_err(NotSent)?;
            tokio::spawn(async move {
                let answer = tokio::select! {
                    answer = answering => answer,
                    () = sender.closed() => return,
                };
                // Whoever asked may be gone.
                drop(sender.send(Reply::Answer(answer, Headers::default())).await);
            });
            Ok(Replies(replies))
        })
    }

    fn tell<'a>(&'a self, message: &'a Message, _: &'a Headers) -> Pending<'a, Result<(), Lost>> {
        Box::pin(async move {
            match message.kind() {
                Kind::Request { .. } => {
                    let answering = self.0.answering(message).map_err(Lost)?;
                    let (down, cancels) = (Arc::clone(&self.0.down), Arc::clone(&self.0.cancels));
                    let id = message.id().unwrap_or("null").to_owned();
                    let (sender, cancelled) = oneshot::channel();
                    locked(&cancels).insert(id.clone(), sender);
                    tokio::spawn(async move {
                        let answer = tokio::select! {
                            answer = answering => Some(answer),
                            Ok(()) = cancelled => None,
                        };
                        locked(&cancels).remove(&id);
                        match answer {
                            Some(answer) => down.say(answer).await,
                            // Most servers say nothing any more, and nobody waits for it.
                            None => down.forget(&id),
                        }
                    });
                    Ok(())
                }
                Kind::Notification { .. } => self.0.tell(message).await,
                Kind::Result | Kind::Error => match self.0.down.answered(message) {
                    Some((at, answer)) => self.0.parts[at].tell(&answer, &Headers::default()).await,
                    None => {
                        tracing::warn!("the client answered what nobody asked, or twice");
                        Ok(())
                    }
                },
            }
        })
    }

    fn part(&self, at: usize) -> Option<&dyn Upstream> {
        self.0.parts.get(at).map(|part| part as &dyn Upstream)
    }

    fn look<'a>(&'a self, call: &'a Message, again: bool) -> Pending<'a, Vec<String>> {
        Box::pin(self.0.look(call, again))
    }
}

impl Server for Union {
    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async {
            join_all(self.0.parts.iter().map(Part::end)).await;
        })
    }
}

impl Shared {
    /// Returns what answers a request.
    fn answering(self: &Arc<Self>, request: &Message) -> Result<Pending<'static, Message>, String> {
        let place = Arc::clone(&self.under_way).try_acquire_owned();
        let place = place.map_err(|_| format!("{UNDER_WAY_MAX} requests are under way already"))?;
        let (shared, request) = (Arc::clone(self), request.clone());
        Ok(Box::pin(async move {
            let _place = place;
            shared.answer(&request).await
        }))
    }

    /// Tells all servers something, or that one which has the request that is cancelled.
    async fn tell(&self, message: &Message) -> Result<(), Lost> {
        let cancelled = cancelled(message);
        let is_meant = |part: &&Part| match &cancelled {
            Some(id) => part.has(id),
            None => part.is_in(),
        };
        let none = Headers::default();
        let meant = self.parts.iter().filter(is_meant);
        let told = join_all(meant.map(|part| part.tell(message, &none))).await;
        for told in &told {
            if let Err(lost) = told {
                tracing::warn!("a message could not be passed on: {lost}");
            }
        }
        let cancel = cancelled.and_then(|id| locked(&self.cancels).remove(&id));
        if let Some(cancel) = cancel {
            // It may have been answered just now.
            let _answered = cancel.send(());
        }
        // One that hears it is enough: the others are gone, and find out themselves.
        match told.into_iter().reduce(Result::or) {
            Some(told) => told,
            None => Ok(()),
        }
    }

    /// Returns an id that no client and nobody else here uses.
    fn own_id(&self) -> String {
        let number = self.own_requests.fetch_add(1, Ordering::Relaxed);
        format!("\"semel-u{number}\"")
    }
}

/// Returns parameters that say of the client what a request says.
fn of_client(request: &Message) -> String {
    let asked = request.params().unwrap_or("{}");
    OF_CLIENT.iter().fold("{}".to_owned(), |params, member| {
        match edit::get(asked, &["_meta", member]) {
            Some(value) => edit::set(&params, &["_meta", member], value).unwrap_or(params),
            None => params,
        }
    })
}

/// Says whether a request is of the newer protocol.
fn is_modern(request: &Message) -> bool {
    let version = ["_meta", "io.modelcontextprotocol/protocolVersion"];
    edit::get(request.params().unwrap_or("{}"), &version).is_some()
}
