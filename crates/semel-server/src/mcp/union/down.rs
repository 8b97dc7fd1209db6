//! What several servers say to their one client: their questions go by names that no two of them have.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Mutex;

use tokio::sync::mpsc;

use super::super::edit;
use super::super::message::{Kind, Message};
use super::merge::both;
use crate::locked::locked;

/// The most questions of servers that wait for the client; the oldest are forgotten beyond it, and their servers get no
/// answer.
const QUESTIONS_MAX: usize = 1_024;

/// The most tasks and resources of which it is remembered whose they are.
const REMEMBERED_MAX: usize = 10_000;

/// How the ids of questions begin.
const QUESTION: &str = "semel-s";

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const SUBSCRIPTION: [&str; 2] = ["_meta", "io.modelcontextprotocol/subscriptionId"];

/// The way to the client.
#[derive(Debug)]
pub(super) struct Down {
    unasked: mpsc::Sender<Message>,
    questions: Mutex<Questions>,
    /// Subscriptions that not all servers have acknowledged, by the ids of their requests.
    subscriptions: Mutex<HashMap<String, Subscription>>,
    /// Whose a task is.
    pub(super) tasks: Mutex<Remembered>,
    /// Whose a resource is, or a template of some.
    pub(super) resources: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Questions {
    next: u64,
    /// Who asked, and by which id.
    waiting: BTreeMap<u64, (usize, String)>,
}

#[derive(Debug)]
struct Subscription {
    waits_for: HashSet<usize>,
    acknowledged: Option<Message>,
}

impl Down {
    pub(super) fn new(unasked: mpsc::Sender<Message>) -> Self {
        Self {
            unasked,
            questions: Mutex::default(),
            subscriptions: Mutex::default(),
            tasks: Mutex::default(),
            resources: Mutex::default(),
        }
    }

    /// Says something to the client.
    pub(super) async fn say(&self, message: Message) {
        // Without a client there is nobody to tell.
        drop(self.unasked.send(message).await);
    }

    /// Returns what a server says as the client is to hear it; `None` where it is to hear nothing of it now.
    pub(super) fn heard(&self, at: usize, message: Message) -> Option<Message> {
        match message.kind() {
            Kind::Request { .. } => {
                let asked = message.id()?.to_owned();
                let mut questions = locked(&self.questions);
                let number = questions.next;
                questions.next += 1;
                questions.waiting.insert(number, (at, asked));
                if questions.waiting.len() > QUESTIONS_MAX {
                    questions.waiting.pop_first();
                    tracing::warn!("a question of a server was given up: too many wait");
                }
                message.with_id(&question(number)).ok()
            }
            Kind::Notification { method } => match method.as_str() {
                "notifications/cancelled" => self.taken_back(at, &message).or(Some(message)),
                ACKNOWLEDGED => self.acknowledged(at, message),
                _ => Some(message),
            },
            // What servers answer goes to whoever asked.
            Kind::Result | Kind::Error => None,
        }
    }

    /// Returns whose question an answer of the client is for, with its own id; `None` where nobody asked.
    pub(super) fn answered(&self, answer: &Message) -> Option<(usize, Message)> {
        let id: String = serde_json::from_str(answer.id()?).ok()?;
        let number = id.strip_prefix(QUESTION)?.parse().ok()?;
        let (at, asked) = locked(&self.questions).waiting.remove(&number)?;
        Some((at, answer.with_id(&asked).ok()?))
    }

    /// Gives a question that its server takes back the name by which the client knows it.
    fn taken_back(&self, at: usize, message: &Message) -> Option<Message> {
        let params = message.params()?;
        let id = edit::get(params, &["requestId"])?;
        let mut questions = locked(&self.questions);
        let mut waiting = questions.waiting.iter();
        let (&number, _) = waiting.find(|(_, (server, asked))| *server == at && asked == id)?;
        questions.waiting.remove(&number);
        let params = edit::set(params, &["requestId"], &question(number)).ok()?;
        message.with_params(&params).ok()
    }

    /// Takes note of a request that all of these servers are to acknowledge: the client hears it once.
    pub(super) fn subscribes(&self, id: &str, servers: impl Iterator<Item = usize>) {
        let subscription = Subscription {
            waits_for: servers.collect(),
            acknowledged: None,
        };
        locked(&self.subscriptions).insert(id.to_owned(), subscription);
    }

    /// Takes note that a server will not acknowledge a request; returns what the client is to hear then.
    pub(super) fn declined(&self, id: &str, at: usize) -> Option<Message> {
        let mut subscriptions = locked(&self.subscriptions);
        let subscription = subscriptions.get_mut(id)?;
        subscription.waits_for.remove(&at);
        if !subscription.waits_for.is_empty() {
            return None;
        }
        subscriptions.remove(id)?.acknowledged
    }

    /// Forgets a request that is not wanted any more.
    pub(super) fn forget(&self, id: &str) {
        locked(&self.subscriptions).remove(id);
    }

    fn acknowledged(&self, at: usize, message: Message) -> Option<Message> {
        let id = edit::get(message.params()?, &SUBSCRIPTION).map(str::to_owned);
        let id = id?;
        {
            let mut subscriptions = locked(&self.subscriptions);
            let Some(subscription) = subscriptions.get_mut(&id) else {
                return Some(message);
            };
            let all = match subscription.acknowledged.take() {
                None => message,
                Some(before) => {
                    let params = both(before.params()?, message.params()?);
                    before.with_params(&params).unwrap_or(before)
                }
            };
            subscription.acknowledged = Some(all);
        }
        self.declined(&id, at)
    }
}

fn question(number: u64) -> String {
    format!("\"{QUESTION}{number}\"")
}

/// Whose something is; the oldest is forgotten when there is too much.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    whose: HashMap<String, usize>,
    order: VecDeque<String>,
}

impl Remembered {
    pub(super) fn remember(&mut self, name: String, at: usize) {
        if self.whose.insert(name.clone(), at).is_some() {
            return;
        }
        self.order.push_back(name);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.whose.remove(&oldest);
        }
    }

    pub(super) fn whose(&self, name: &str) -> Option<usize> {
        self.whose.get(name).copied()
    }
}
