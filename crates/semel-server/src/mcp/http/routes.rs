//! Which of a client's streams a message of a child process belongs to.
//!
//! A child has one output for everything. An answer belongs to its request, progress to whoever asked for it, a
//! subscription's news to the request that made it. Everything else goes to the one request that is under way, if there
//! is one; else to the stream for what nobody asked for, or waits for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::locked::locked;
use crate::mcp::edit;
use crate::mcp::message::{Kind, Message};

/// The most messages that wait for a client that does not read; beyond it they are left out.
pub(super) const UNREAD_MAX: usize = 1_024;

/// The most messages that wait for a stream to be opened; the oldest are left out beyond it.
const KEPT_MAX: usize = 256;

/// Where the id of a subscription is.
pub(super) const SUBSCRIPTION: [&str; 2] = ["_meta", "io.modelcontextprotocol/subscriptionId"];

/// The method of what marks a place among a child's messages; it never leaves the gateway.
const MARK: &str = "semel/mark";

const LEFT_OUT: &str = "a server said something that nobody reads; it was left out";

/// Leads messages of one child to its clients.
#[derive(Debug)]
pub(super) struct Routes {
    open: Mutex<Open>,
    /// What the child says comes this way.
    unasked: mpsc::Sender<Message>,
    /// Whether the streams belong to one client.
    is_one_clients: bool,
}

#[derive(Debug, Default)]
struct Open {
    waiting: HashMap<String, Waiting>,
    listener: Option<mpsc::Sender<Message>>,
    kept: VecDeque<Message>,
    marks: HashMap<String, oneshot::Sender<()>>,
    count: u64,
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Waiting {
    asides: mpsc::Sender<Message>,
    /// There where the answer comes this way.
    last: Option<oneshot::Sender<Message>>,
    progress: Option<String>,
    number: u64,
}

/// What a request that waits gets.
pub(super) struct Streams {
    pub(super) sender: mpsc::Sender<Message>,
    pub(super) asides: mpsc::Receiver<Message>,
    pub(super) last: oneshot::Receiver<Message>,
    pub(super) waits: Waits,
}

/// A request's place among those that wait; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Waits {
    routes: Arc<Routes>,
    id: String,
}

impl Drop for Waits {
    fn drop(&mut self) {
        locked(&self.routes.open).waiting.remove(&self.id);
    }
}

impl Routes {
    pub(super) fn new(unasked: mpsc::Sender<Message>, is_one_clients: bool) -> Self {
        Self {
            open: Mutex::default(),
            unasked,
            is_one_clients,
        }
    }

    /// Makes room for what comes for a request. `None` where another one with its id waits.
    pub(super) fn enter(self: &Arc<Self>, request: &Message) -> Option<Streams> {
        let id = request.id()?.to_owned();
        let params = request.params().unwrap_or("{}");
        let progress = edit::get(params, &["_meta", "progressToken"]).map(str::to_owned);
        let (sender, asides) = mpsc::channel(UNREAD_MAX);
        let (answered, last) = oneshot::channel();
        let mut open = locked(&self.open);
        if open.waiting.contains_key(&id) {
            return None;
        }
        open.count += 1;
        let waiting = Waiting {
            asides: sender.clone(),
            last: Some(answered),
            progress,
            number: open.count,
        };
        open.waiting.insert(id.clone(), waiting);
        let routes = Arc::clone(self);
        let waits = Waits { routes, id };
        Some(Streams {
            sender,
            asides,
            last,
            waits,
        })
    }

    /// Opens the stream for what nobody asked for; one that was open before ends.
    pub(super) fn listen(&self) -> mpsc::Receiver<Message> {
        let (sender, messages) = mpsc::channel(UNREAD_MAX);
        let mut open = locked(&self.open);
        for message in open.kept.drain(..) {
            // There is room for more than is kept.
            drop(sender.try_send(message));
        }
        open.listener = Some(sender);
        messages
    }

    /// Says something that nobody asked for, or keeps it until somebody listens.
    pub(super) fn say(&self, message: Message) {
        if locked(&self.open).say(message).is_some() {
            tracing::warn!("{LEFT_OUT}");
        }
    }

    /// Says whether a client has a stream open.
    pub(super) fn is_used(&self) -> bool {
        let open = locked(&self.open);
        let listens = open.listener.as_ref().is_some_and(|it| !it.is_closed());
        listens || !open.waiting.is_empty()
    }

    /// Waits until everything that the child said before has been led to where it belongs.
    pub(super) async fn settled(&self) {
        let (mark, reached) = {
            let mut open = locked(&self.open);
            open.count += 1;
            let number = open.count;
            let text = format!(r#"{{"jsonrpc":"2.0","method":"{MARK}","params":{number}}}"#);
            let Ok(mark) = Message::read(text) else {
                return;
            };
            let (sender, reached) = oneshot::channel();
            open.marks.insert(number.to_string(), sender);
            (mark, reached)
        };
        if self.unasked.send(mark).await.is_ok() {
            // When nobody leads any more, nothing comes.
            drop(reached.await);
        }
    }

    /// Leads a message to where it belongs.
    pub(super) fn lead(&self, message: Message) {
        let mut open = locked(&self.open);
        match message.kind() {
            Kind::Result | Kind::Error => {
                let waiting = message.id().and_then(|id| open.waiting.get_mut(id));
                match waiting.and_then(|waiting| waiting.last.take()) {
                    // Whoever asked may be gone.
                    Some(last) => drop(last.send(message)),
                    None => tracing::warn!("a server answered what nobody asked, or twice"),
                }
            }
            Kind::Notification { method } if method == MARK => {
                let number = message.params().unwrap_or_default();
                // Whoever waits for it hears that it is gone.
                drop(open.marks.remove(number));
            }
            Kind::Notification { .. } | Kind::Request { .. } => {
                let left = match open.owner(&message, self.is_one_clients) {
                    Some(owner) => handed(&owner.asides, message),
                    None if self.is_one_clients => open.say(message),
                    None => Some(message),
                };
                if left.is_some() {
                    tracing::warn!("{LEFT_OUT}");
                }
            }
        }
    }
}

impl Open {
    /// Returns the request that a message belongs to.
    fn owner(&self, message: &Message, is_one_clients: bool) -> Option<&Waiting> {
        let params = message.params().unwrap_or("{}");
        if let Some(token) = edit::get(params, &["progressToken"]) {
            let mut waiting = self.waiting.values();
            return waiting.find(|waiting| waiting.progress.as_deref() == Some(token));
        }
        if let Some(id) = edit::get(params, &SUBSCRIPTION) {
            return self.waiting.get(id);
        }
        let listens = self.listener.as_ref().is_some_and(|it| !it.is_closed());
        match self.waiting.len() {
            0 => None,
            1 => self.waiting.values().next(),
            _ if is_one_clients && !listens => {
                self.waiting.values().min_by_key(|waiting| waiting.number)
            }
            _ => None,
        }
    }

    /// Says something that nobody asked for, or keeps it until somebody listens.
    fn say(&mut self, message: Message) -> Option<Message> {
        let message = match &self.listener {
            Some(listener) if !listener.is_closed() => return handed(listener, message),
            Some(_) | None => message,
        };
        self.kept.push_back(message);
        if self.kept.len() > KEPT_MAX {
            return self.kept.pop_front();
        }
        None
    }
}

/// Hands a message on; returns it where there is no room.
fn handed(to: &mpsc::Sender<Message>, message: Message) -> Option<Message> {
    match to.try_send(message) {
        Ok(()) => None,
        Err(TrySendError::Full(message) | TrySendError::Closed(message)) => Some(message),
    }
}
