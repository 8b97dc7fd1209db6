//! Workers: what carries the tasks of a queue out, in this process.

use std::collections::BTreeSet;
use std::future::Future;
use std::num::NonZeroUsize;
use std::time::Duration;

use semel_core::ledger::StateKind;
use semel_core::{Effect, Key, Label, Lease, Namespace};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::take::{Take, Taken};
use crate::engine::Engine;
use crate::engine::effect::{Attempt, Failure, Meaning};
use crate::engine::permit::to_json;
use crate::error::Result;
use crate::store::WAITING_MAX;

/// How long a worker waits for a task before it looks whether it is to stop.
const WAIT: Duration = Duration::from_secs(10);

/// How long one call waits that is to find out whether there is anything left.
const LOOK: Duration = Duration::from_millis(100);

/// Carries out the tasks of one queue.
///
/// ```
/// # async fn example() -> Result<(), semel::Error> {
/// use semel::{Engine, Failure, Job, Key, Label, Queueing, Request, Worker};
///
/// let engine = Engine::open("memory:").await?;
/// let mails = Label::new("mails").expect("a label");
/// let request = Request::new("send", Key::new("mail-7")?).input(&"ann@example.com");
/// engine.submit(request, Queueing::on(mails.clone())).await?;
///
/// let worker = Worker::new(&engine, mails).until_empty();
/// let worked = worker
///     .run(|job: Job<String>| async move {
///         println!("mail to {} for the {}. time", job.input, job.attempt.number());
///         Ok::<_, Failure>("sent")
///     })
///     .await?;
/// assert_eq!(worked.done, 1);
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    engine: Engine,
    namespace: Namespace,
    queue: Label,
    concurrency: NonZeroUsize,
    lease: Lease,
    effect: Effect,
    until_empty: bool,
}

/// One task in the hands of a handler.
#[derive(Clone, Debug)]
pub struct Job<T> {
    /// What it is given.
    pub input: T,
    /// What is done.
    pub name: Label,
    /// The attempt: its key, its fence, its number.
    pub attempt: Attempt,
}

/// What a worker did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// Tasks that were carried out, in success or failure.
    pub done: u64,
    /// Tasks that were not done, and wait or are dead.
    pub not_done: u64,
    /// Tasks of which nobody knows what happened.
    pub unknown: u64,
}

impl Worked {
    fn add(&mut self, ended: Ended) {
        match ended {
            Ended::Done => self.done += 1,
            Ended::NotDone => self.not_done += 1,
            Ended::Unknown => self.unknown += 1,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    Done,
    NotDone,
    Unknown,
}

impl Worker {
    /// Makes a worker of a queue in the engine's own namespace, for one task at a time.
    pub fn new(engine: &Engine, queue: Label) -> Self {
        Self {
            engine: engine.clone(),
            namespace: engine.namespace(),
            queue,
            concurrency: NonZeroUsize::MIN,
            lease: Lease::DEFAULT,
            effect: Effect::Updated,
            until_empty: false,
        }
    }

    /// Takes tasks behind this wall.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Carries out so many tasks at once.
    pub fn concurrency(mut self, limit: NonZeroUsize) -> Self {
        self.concurrency = limit;
        self
    }

    /// Limits how long this process may be silent about a task; leases are renewed while handlers run.
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Says what a task does when it succeeds; `updated` unless said otherwise.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// Ends when no task is due, none is in hand, and none that was begun here waits for its next attempt, instead of
    /// waiting for more.
    pub fn until_empty(mut self) -> Self {
        self.until_empty = true;
        self
    }

    /// Carries tasks out, for ever or until the queue is empty. A handler that panics, or whose error says nothing
    /// better, leaves its task in doubt; dropping the future does so with every task in hand.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn run<T, R, F, Fut>(self, handler: F) -> Result<Worked>
    where
        T: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        F: Fn(Job<T>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = std::result::Result<R, Failure>> + Send + 'static,
    {
        let mut worked = Worked::default();
        let mut in_hand = JoinSet::new();
        // One that was asked for is waited for: whoever stopped half-way would have to give tasks back.
        let mut taking = None;
        // Those that were put back: an empty queue has none of them.
        let mut again = BTreeSet::new();
        loop {
            let free = self.concurrency.get() - in_hand.len();
            if taking.is_none() && free > 0 {
                taking = Some(Box::pin(self.take(free)));
            }
            let taken = async {
                match &mut taking {
                    Some(taking) => taking.await,
                    None => std::future::pending().await,
                }
            };
            let is_working = !in_hand.is_empty();
            tokio::select! {
                Some(ended) = in_hand.join_next(), if is_working => {
                    // A panic drops the permit, and that is the doubt.
                    let (ended, back) = ended.unwrap_or(Ok((Ended::Unknown, None)))?;
                    worked.add(ended);
                    again.extend(back.filter(|_| self.until_empty));
                }
                taken = taken => {
                    taking = None;
                    let taken = taken?;
                    let is_idle = self.until_empty && taken.is_empty() && !is_working;
                    if is_idle && self.is_drained(&mut again).await? {
                        return Ok(worked);
                    }
                    for task in taken {
                        in_hand.spawn(carry_out(task, self.effect, handler.clone()));
                    }
                }
            }
        }
    }

    async fn is_drained(&self, again: &mut BTreeSet<Key>) -> Result<bool> {
        let engine = &self.engine;
        engine.is_drained(&self.namespace, &self.queue, again).await
    }

    async fn take(&self, free: usize) -> Result<Vec<Taken>> {
        let take = Take {
            max: free.min(WAITING_MAX),
            wait: if self.until_empty { LOOK } else { WAIT },
            lease: self.lease,
            ..Take::one(self.queue.clone())
        };
        self.engine.take(&self.namespace, &take).await
    }
}

/// Carries a task out; returns its key if it waits for another attempt.
async fn carry_out<T, R, F, Fut>(
    task: Taken,
    effect: Effect,
    handler: F,
) -> Result<(Ended, Option<Key>)>
where
    T: DeserializeOwned,
    R: Serialize,
    F: Fn(Job<T>) -> Fut,
    Fut: Future<Output = std::result::Result<R, Failure>>,
{
    let name = task.name().clone();
    let (permit, input) = task.permit();
    let input = serde_json::from_slice(input.as_deref().unwrap_or(b"null"));
    let input = match input {
        Ok(input) => input,
        Err(error) => {
            // No attempt of this handler's will read it.
            permit
                .reject(format!("the input cannot be read: {error}"))
                .await?;
            return Ok((Ended::NotDone, None));
        }
    };
    let key = permit.key().clone();
    if !permit.is_alive() {
        permit
            .not_done("the lease ended before the task could start")
            .await?;
        return Ok((Ended::NotDone, Some(key)));
    }
    let attempt = Attempt::of(&permit);
    let job = Job {
        input,
        name,
        attempt,
    };
    match handler(job).await {
        Ok(answer) => {
            let answer = to_json(&answer)?;
            permit.finish(true, effect, Some(answer)).await?;
            Ok((Ended::Done, None))
        }
        Err(failure) => {
            let ended = match failure.meaning() {
                Meaning::Failed(_) => Ended::Done,
                Meaning::NotApplied { .. } | Meaning::Rejected => Ended::NotDone,
                Meaning::Unknown => Ended::Unknown,
            };
            let receipt = failure.report(permit).await?;
            let may_come_up = matches!(receipt.state, StateKind::Pending | StateKind::Doubtful);
            Ok((ended, may_come_up.then_some(key)))
        }
    }
}
