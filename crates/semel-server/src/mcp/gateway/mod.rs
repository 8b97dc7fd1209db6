//! What becomes of a message: most are passed on as they came; calls of tools are carried out once.

mod administer;
mod breaking;
mod call;
mod doubt;
mod lead;
mod list;
mod look_up;
mod plan;
mod task;

#[cfg(test)]
pub(crate) use self::doubt::Telling;

pub(crate) use self::lead::named;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::core::identity::Observation;
use semel::door::{Doorway, Ticket};
use semel::{Class, Engine, Namespace};
use tokio::sync::{OnceCell, mpsc, oneshot, watch};

use super::ask::{Capabilities, Client, Era};
use super::catalogue::Catalogue;
use super::edit;
use super::http::desk::{Answered, Asked, Call, Desk};
use super::message::{Kind, Message};
use super::policy::Cancel;
use super::say;
use super::seal::Seal;
use super::union::names::Found;
use super::upstream::{Pending, Upstream};
use crate::locked::locked;
use crate::proof::Witness;

/// How long an identical call waits for the one that runs, unless told otherwise: less than the minute
/// after which most clients give up.
pub const WAIT: Duration = Duration::from_secs(25);

/// How long a server may take for a call, unless told otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// What the gateway is told.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// The servers behind it.
    pub(crate) catalogue: Arc<Catalogue>,
    /// How long an identical call waits for the one that runs.
    pub(crate) wait: Duration,
    /// How long the server may take for a call.
    pub(crate) timeout: Duration,
    /// Whether the gateway has tools of its own.
    pub(crate) admin_tools: bool,
}

/// Decides what becomes of the calls to its servers.
#[derive(Debug)]
pub(crate) struct Gateway {
    engine: Engine,
    doorway: Doorway,
    about: About,
    own_requests: AtomicU64,
    /// How many requests are in hand, whether their clients are there or not.
    in_hand: watch::Sender<usize>,
    /// What plans and questions are sealed with; those from before a restart are not known again.
    seal: Seal,
    /// Whether the server says that it answers with tasks, once it was asked.
    has_tasks: OnceCell<bool>,
}

/// One client's way to the server.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) upstream: Arc<dyn Upstream>,
    /// What the client said that it can do, at the handshake of the older protocol.
    client: Mutex<Client>,
    /// Where what the gateway itself asks the client goes to.
    down: mpsc::Sender<Message>,
    /// What the client was asked by the gateway itself, by id.
    questions: Mutex<HashMap<String, oneshot::Sender<Message>>>,
}

impl Session {
    /// Makes the way of one client; what the gateway itself asks the client goes to `down`.
    pub(crate) fn new(upstream: Arc<dyn Upstream>, down: mpsc::Sender<Message>) -> Self {
        Self {
            upstream,
            client: Mutex::new(Client {
                era: Era::Legacy,
                capabilities: Capabilities::default(),
            }),
            down,
            questions: Mutex::default(),
        }
    }

    /// Sends the client something that comes before an answer.
    async fn aside(&self, asked: &Asked, message: Message) {
        let asides = asked.asides.as_ref().unwrap_or(&self.down);
        // A client that left misses nothing: the answer is kept.
        drop(asides.send(message).await);
    }

    fn client(&self) -> Client {
        *locked(&self.client)
    }
}

/// A request that the gateway has in hand. Dropping it means that its client left.
#[derive(Debug)]
pub(crate) struct InHand {
    id: String,
    answer: watch::Receiver<Option<Answered>>,
    exchange: Arc<Exchange>,
    forwards_cancel: bool,
}

/// What was seen of a call, before and after it was judged.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    seen: Mutex<Seen>,
    /// Whether nobody wants the answer any more.
    given_up: watch::Sender<bool>,
}

#[derive(Debug, Default)]
enum Seen {
    /// It is not judged yet.
    #[default]
    Nothing,
    /// This was seen, and it is not judged yet.
    Before(Vec<Observation>),
    /// It was judged.
    Judged(Ticket),
}

/// The most that is remembered of a call that is not judged yet.
const SEEN_MAX: usize = 8;

impl Exchange {
    fn see(&self, observation: Observation) {
        if observation == Observation::Cancelled {
            self.given_up.send_replace(true);
        }
        let mut seen = locked(&self.seen);
        match &mut *seen {
            Seen::Nothing => *seen = Seen::Before(vec![observation]),
            Seen::Before(observations) if observations.len() < SEEN_MAX => {
                observations.push(observation);
            }
            Seen::Before(_) => {}
            Seen::Judged(ticket) => ticket.see(observation),
        }
    }

    /// Says whether nobody wants the answer any more.
    fn is_given_up(&self) -> bool {
        *self.given_up.borrow()
    }

    /// Waits until nobody wants the answer any more.
    async fn given_up(&self) {
        let mut given_up = self.given_up.subscribe();
        // It is not dropped before this ends.
        drop(given_up.wait_for(|it| *it).await);
    }

    /// Gives the ticket back, as the call is judged once more: it is one call and not two.
    pub(super) fn withdraw(&self) {
        let mut seen = locked(&self.seen);
        *seen = match std::mem::take(&mut *seen) {
            Seen::Judged(ticket) => {
                let has_left = ticket.withdraw();
                if has_left {
                    Seen::Before(vec![Observation::Closed])
                } else {
                    Seen::Nothing
                }
            }
            other @ (Seen::Nothing | Seen::Before(_)) => other,
        };
    }

    /// Takes the ticket of the judged call, and tells it what was seen before.
    pub(super) fn judged(&self, ticket: Ticket) {
        let mut seen = locked(&self.seen);
        let before = match std::mem::replace(&mut *seen, Seen::Judged(ticket)) {
            Seen::Before(observations) => observations,
            Seen::Nothing | Seen::Judged(_) => vec![],
        };
        if let Seen::Judged(ticket) = &*seen {
            for observation in before {
                ticket.see(observation);
            }
        }
    }
}

impl InHand {
    /// Returns the request's id, as it was written.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    async fn answered(&self) -> Answered {
        let mut answer = self.answer.clone();
        let answered = match answer.wait_for(Option::is_some).await {
            Ok(answered) => answered.clone(),
            Err(_) => None,
        };
        // Whoever was to answer is gone: what it began is in doubt.
        answered.unwrap_or_else(|| say::internal(&self.id).into())
    }

    /// Says whether its client cancelled it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.exchange.is_given_up()
    }
}

impl Witness for InHand {
    fn see(&self, observation: Observation) {
        self.exchange.see(observation);
    }
}

impl Call for InHand {
    fn answer(&self) -> Pending<'_, Answered> {
        Box::pin(self.answered())
    }

    fn forwards_cancel(&self) -> bool {
        self.forwards_cancel
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        // It changes nothing where the answer was written.
        self.exchange.see(Observation::Closed);
        self.exchange.given_up.send_replace(true);
    }
}

impl Gateway {
    /// Makes the gateway.
    ///
    /// # Errors
    /// Fails when the system gives no randomness.
    pub(crate) fn new(engine: Engine, about: About) -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        Ok(Self {
            doorway: Doorway::new(engine.clone()),
            engine,
            about,
            own_requests: AtomicU64::new(1),
            in_hand: watch::Sender::new(0),
            seal: Seal::new(secret),
            has_tasks: OnceCell::new(),
        })
    }

    /// Returns where the operations of clients live that show no token.
    pub(crate) fn namespace(&self) -> Namespace {
        self.engine.namespace()
    }

    /// Returns what is known of the servers behind it.
    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.about.catalogue)
    }

    /// Follows the calls under way to their end, for at most so long: their clients may be gone.
    pub(crate) async fn drained(&self, limit: Duration) {
        let mut in_hand = self.in_hand.subscribe();
        let over = tokio::time::timeout(limit, in_hand.wait_for(|count| *count == 0)).await;
        if over.is_err() {
            tracing::warn!(
                "some calls had no answer yet when the gateway ended: they are in doubt"
            );
        }
    }

    /// Stores what is known of deliveries and of servers that failed, before the end.
    pub(crate) async fn flush(&self) {
        if let Err(error) = self.doorway.flush().await {
            tracing::warn!(%error, "what is known of deliveries could not be stored");
        }
        let servers = self.about.catalogue.servers().iter();
        for breakers in servers.filter_map(|served| served.breakers.as_ref()) {
            if let Err(error) = breakers.flush().await {
                let name = breakers.name();
                tracing::warn!(%error, %name, "what became of the last calls is not counted");
            }
        }
    }

    /// Takes a request in hand. What acts is followed to its end, whatever becomes of the client.
    pub(crate) fn take(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: Message,
        asked: Asked,
    ) -> Arc<InHand> {
        let (sender, answer) = watch::channel(None);
        let exchange = Arc::new(Exchange::default());
        let id = request.id().unwrap_or("null").to_owned();
        let forwards_cancel = match request.method() {
            Some("tools/call") => {
                tool_name(&request).is_some_and(|name| self.forwards_cancel(&name))
            }
            _ => !task::is_own(&request),
        };
        let (gateway, session) = (Arc::clone(self), Arc::clone(session));
        let seen = Arc::clone(&exchange);
        self.in_hand.send_modify(|count| *count += 1);
        let counted = Counted(Arc::clone(self));
        tokio::spawn(async move {
            let _counted = counted;
            let answered: Answered = match request.method() {
                Some("tools/list") => gateway.list(&session, &request, &asked).await,
                Some("tools/call") => gateway.call(&session, &request, &asked, &seen).await,
                _ => gateway.task(&session, &request, &asked).await,
            };
            // The client may be gone.
            sender.send_replace(Some(answered));
        });
        Arc::new(InHand {
            id,
            answer,
            exchange,
            forwards_cancel,
        })
    }

    /// Says whether a tool is known that only reads, and whose server anybody may call.
    fn is_passed(&self, name: &str) -> bool {
        let catalogue = &self.about.catalogue;
        match catalogue.find(name) {
            Found::At(place) => {
                let served = catalogue.at(place.at);
                served.breakers.is_none() && served.class(&place.name) == Class::Safe
            }
            Found::Ambiguous(_) | Found::Unknown => false,
        }
    }

    fn forwards_cancel(&self, name: &str) -> bool {
        let catalogue = &self.about.catalogue;
        match catalogue.find(name) {
            Found::At(place) => {
                let served = catalogue.at(place.at);
                // What only reads is not worth being followed to its end.
                served.policy.tool(&place.name).cancel == Cancel::Forward
                    || served.class(&place.name) == Class::Safe
            }
            Found::Ambiguous(_) | Found::Unknown => false,
        }
    }

    fn is_own_tool(&self, name: &str) -> bool {
        self.about.admin_tools && super::admin::TOOLS.iter().any(|tool| tool.name == name)
    }

    /// Returns an id that no client uses.
    fn own_id(&self) -> String {
        let number = self.own_requests.fetch_add(1, Ordering::Relaxed);
        format!("\"semel-{number}\"")
    }
}

/// A request that the gateway has in hand.
struct Counted(Arc<Gateway>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.in_hand.send_modify(|count| *count -= 1);
    }
}

impl Desk for Gateway {
    type Session = Session;

    fn session(&self, upstream: Arc<dyn Upstream>, down: mpsc::Sender<Message>) -> Session {
        Session::new(upstream, down)
    }

    fn overhear(&self, session: &Session, message: &Message) -> bool {
        match message.kind() {
            Kind::Request { method } if method == "initialize" => {
                let declared = message.params().unwrap_or("{}");
                let declared = edit::get(declared, &["capabilities"]).unwrap_or("{}");
                locked(&session.client).capabilities = Capabilities::read(declared);
                false
            }
            Kind::Result | Kind::Error => {
                let asked = message
                    .id()
                    .and_then(|id| locked(&session.questions).remove(id));
                // Whoever asked may have given it up.
                asked
                    .map(|asked| drop(asked.send(message.clone())))
                    .is_some()
            }
            Kind::Request { .. } | Kind::Notification { .. } => false,
        }
    }

    fn takes(&self, message: &Message) -> bool {
        let Kind::Request { method } = message.kind() else {
            return false;
        };
        match method.as_str() {
            "tools/list" => true,
            "tools/call" => tool_name(message)
                .is_none_or(|name| self.is_own_tool(&name) || !self.is_passed(&name)),
            _ => task::is_own(message),
        }
    }

    fn take(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: Message,
        asked: Asked,
    ) -> Arc<dyn Call> {
        Self::take(self, session, request, asked)
    }
}

/// Returns the tool that a call names.
fn tool_name(request: &Message) -> Option<String> {
    edit::text(request.params()?, &["name"])
}
