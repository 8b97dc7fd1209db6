//! Telling what was found: a few at once, each until it is told or there is nothing to tell any more.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use semel::core::ledger::{Record, StateKind};
use semel::core::queue::Backoff;
use semel::core::retry::backoff;
use semel::view::RecordView;
use semel::{
    Admission, Effect, Engine, Error, Key, Label, Lease, Namespace, OnDoubt, Permit, Request,
};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::NAMESPACE;
use super::channel::{Channel, Told};
use super::counts::Counts;
use super::message::Message;
use super::subject::Subject;

/// How many things are told at once.
const AT_ONCE: usize = 8;

/// How many things may wait to be told again: while there are as many, nothing else is looked for, and the
/// log keeps it.
const WAITING_MAX: usize = 4_096;

/// How long a server that tells something may be silent before another one takes over.
const LEASE: Duration = Duration::from_secs(30);

/// The pause before something is looked at again that another server tells, or that the store failed for.
const AGAIN: Duration = Duration::from_secs(2);

/// The pause after a defect of ours: it is not likely to be gone in a moment.
const BROKEN: Duration = Duration::from_secs(60);

/// One thing to be told through one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Task {
    subject: Subject,
    channel: usize,
}

/// A task and when it is due; the earliest is the greatest.
#[derive(Debug, PartialEq, Eq)]
struct Due(Instant, Task);

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.cmp(&self.0)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What became of a task.
#[derive(Debug)]
enum Outcome {
    /// There is nothing left to do.
    Over,
    Again(Duration),
}

/// Where things wait and from where they are told.
#[derive(Debug)]
pub(super) struct Desk {
    teller: Arc<Teller>,
    waiting: BinaryHeap<Due>,
    running: JoinSet<Outcome>,
    started: HashMap<Id, Task>,
    /// What waits or runs.
    known: HashSet<Task>,
}

impl Desk {
    pub(super) fn new(
        engine: Engine,
        only: Option<Namespace>,
        channels: Vec<Channel>,
        counts: Arc<Counts>,
    ) -> Self {
        Self {
            teller: Arc::new(Teller {
                engine,
                only,
                channels,
                counts,
            }),
            waiting: BinaryHeap::new(),
            running: JoinSet::new(),
            started: HashMap::new(),
            known: HashSet::new(),
        }
    }

    /// Tells what is found until the server stops.
    pub(super) async fn run(
        mut self,
        mut found: mpsc::Receiver<Subject>,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let due = self.waiting.peek().map_or_else(Instant::now, |due| due.0);
            let has_due = !self.waiting.is_empty() && self.running.len() < AT_ONCE;
            tokio::select! {
                biased;
                () = crate::stopped(&mut stop) => break,
                Some(ended) = self.running.join_next_with_id() => self.ended(ended),
                () = sleep_until(due), if has_due => self.start(),
                Some(subject) = found.recv(), if self.known.len() < WAITING_MAX => self.take(subject),
            }
            self.teller.counts.wait(self.known.len());
        }
        // What is under way is told to its end; the rest is found again by the next server.
        while self.running.join_next().await.is_some() {}
    }

    fn take(&mut self, subject: Subject) {
        for channel in 0..self.teller.channels.len() {
            let task = Task { subject, channel };
            if self.known.insert(task) {
                self.waiting.push(Due(Instant::now(), task));
            }
        }
    }

    fn start(&mut self) {
        if let Some(Due(_, task)) = self.waiting.pop() {
            let teller = Arc::clone(&self.teller);
            let started = self.running.spawn(async move { teller.see_to(task).await });
            self.started.insert(started.id(), task);
        }
    }

    fn ended(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "a notification broke down");
                (error.id(), Outcome::Again(BROKEN))
            }
        };
        let Some(task) = self.started.remove(&id) else {
            return;
        };
        match outcome {
            Outcome::Over => {
                self.known.remove(&task);
            }
            Outcome::Again(pause) => self.waiting.push(Due(Instant::now() + pause, task)),
        }
    }
}

/// Tells one thing at a time.
#[derive(Debug)]
struct Teller {
    engine: Engine,
    /// The only namespace that is told of, where there is one.
    only: Option<Namespace>,
    channels: Vec<Channel>,
    counts: Arc<Counts>,
}

impl Teller {
    async fn see_to(&self, task: Task) -> Outcome {
        let channel = &self.channels[task.channel];
        match self.tell(channel, &task.subject).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let hash = task.subject.hash.0;
                tracing::warn!(%error, channel = channel.name(), %hash, "a notification is tried again");
                Outcome::Again(AGAIN)
            }
        }
    }

    /// Tells something unless it was told before, or there is nothing to tell any more.
    async fn tell(&self, channel: &Channel, subject: &Subject) -> semel::Result<Outcome> {
        let id = subject.key(channel.name())?;
        let store = self.engine.store();
        let current = store.load(&subject.hash).await?;
        let now = store.now();
        let operation = current.record().and_then(Record::operation);
        if operation.is_some_and(|operation| !super::is_told(operation, self.only.as_ref())) {
            // It was begun by a server for that namespace, which ends it.
            return Ok(Outcome::Over);
        }
        let open = current
            .record()
            .and_then(|record| subject.is_open(record, now));
        let view = current
            .record()
            .and_then(|record| RecordView::of(record, now));
        let view = view.map(|view| view.shown(self.engine.redactor()));
        let (Some(operation), Some(view)) = (open, view) else {
            return self.end(channel, &id).await;
        };
        let message = Message::new(&id, subject, operation, view, now);
        let permit = match self.engine.begin(request(channel, &id)?).await {
            Ok(Admission::Execute(permit)) => permit,
            // Another server tells it.
            Ok(Admission::Wait { retry_after }) => {
                return Ok(Outcome::Again(retry_after.max(AGAIN)));
            }
            Ok(Admission::Replay(_)) => return Ok(Outcome::Over),
            Ok(Admission::Probe(_) | Admission::InDoubt(_)) => return Ok(Outcome::Again(AGAIN)),
            // It was told long ago, or somebody decided about it.
            Err(Error::Refused(_)) => return Ok(Outcome::Over),
            Err(error) => return Err(error),
        };
        let wall = store.reading().wall;
        let told = channel.tell(id.as_str(), &message, wall).await;
        self.report(channel, subject, permit, told).await
    }

    async fn report(
        &self,
        channel: &Channel,
        subject: &Subject,
        permit: Permit,
        told: Told,
    ) -> semel::Result<Outcome> {
        let (attempt, ended) = (permit.attempt(), permit.attempt_id().clone());
        let error = match &told {
            Told::Yes => {
                permit.done(Effect::Created, &json!({"told": true})).await?;
                self.counts.told(channel);
                return Ok(Outcome::Over);
            }
            // A command may complain about anything, and this goes into the server's log too.
            Told::No(error) | Told::Unknown(error) => {
                self.engine.redactor().text(error).into_owned()
            }
        };
        self.counts.failed(channel);
        let (name, hash) = (channel.name(), subject.hash.0);
        let kind = subject.kind.as_str();
        tracing::warn!(channel = name, kind, %hash, attempt, error, "a notification failed");
        match told {
            Told::Unknown(_) => permit.unknown(&error).await?,
            Told::Yes | Told::No(_) => permit.not_done(&error).await?,
        };
        Ok(Outcome::Again(backoff(Backoff::default(), attempt, &ended)))
    }

    /// Ends a notification of something that is over: it was begun, and nobody needs it any more.
    async fn end(&self, channel: &Channel, id: &Key) -> semel::Result<Outcome> {
        let record = self.engine.load(&namespace()?, id).await?;
        let is_open = record.as_deref().map(Record::kind).is_some_and(|kind| {
            matches!(
                kind,
                StateKind::Pending | StateKind::Running | StateKind::Doubtful
            )
        });
        if !is_open {
            return Ok(Outcome::Over);
        }
        match self.engine.begin(request(channel, id)?).await {
            Ok(Admission::Execute(permit)) => {
                permit.done(Effect::Noop, &json!({"told": false})).await?;
                Ok(Outcome::Over)
            }
            Ok(Admission::Wait { .. }) => Ok(Outcome::Again(AGAIN)),
            Ok(_) | Err(Error::Refused(_)) => Ok(Outcome::Over),
            Err(error) => Err(error),
        }
    }
}

fn namespace() -> semel::Result<Namespace> {
    let namespace = Namespace::new(NAMESPACE);
    namespace.map_err(|error| Error::InvalidInput(error.to_string()))
}

/// Describes the telling as an operation of its own. A doubt about it is retried however late, as something
/// that nobody hears of is worse than something that is heard twice.
fn request(channel: &Channel, id: &Key) -> semel::Result<Request> {
    let invalid = |error: &dyn std::fmt::Display| Error::InvalidInput(error.to_string());
    let lease = Lease::new(LEASE).map_err(|error| invalid(&error))?;
    let door = Label::new("notify").map_err(|error| invalid(&error))?;
    Ok(Request::new("notify", id.clone())
        .namespace(namespace()?)
        .class(channel.class())
        .on_doubt(OnDoubt::Retry)
        .retry_within(Duration::MAX)
        .lease(lease)
        .door(door))
}
