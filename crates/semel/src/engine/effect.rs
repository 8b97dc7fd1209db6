//! The builder form: describe an action, then run it once.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use semel_core::ledger::{Fence, Rejection, StateKind};
use semel_core::{Class, Effect, Key, Label, Lease, Namespace, OnDoubt, Retention};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Admission, Engine, Permit, Request};
use crate::error::{Error, Refusal, Result};
use crate::receipt::Receipt;

/// An action that is to happen once.
#[must_use = "an action does nothing until it is run"]
pub struct EffectCall {
    engine: Engine,
    request: Request,
    effect: Effect,
    probe: Option<Probe>,
}

type Probe = Box<dyn FnOnce(Attempt) -> Pin<Box<dyn Future<Output = Found> + Send>> + Send>;

impl fmt::Debug for EffectCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectCall")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// What a probe found out about a doubted effect.
#[derive(Clone, Debug)]
pub enum Found {
    /// It happened, and this is its answer as JSON.
    Done(serde_json::Value),
    /// It did not happen.
    NotDone,
    /// That could not be found out.
    Unknown,
}

/// What the action is told about the attempt that runs it.
#[derive(Clone, Debug)]
pub struct Attempt {
    key: Key,
    fence: Fence,
    number: u32,
    deadline: Instant,
}

impl Attempt {
    pub(super) fn of(permit: &Permit) -> Self {
        Self {
            key: permit.key().clone(),
            fence: permit.fence(),
            number: permit.attempt(),
            deadline: permit.deadline(),
        }
    }

    /// Returns the key: an upstream that takes one can be given this.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the fence: an upstream that keeps the highest one it saw can refuse older attempts.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Returns the attempt's number, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns until when an effect may be started, as of when the attempt began.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// Says what an error means for the effect.
///
/// Any error turns into one by `?`, and then means that nobody knows: only the action itself can
/// prove more.
#[derive(Debug)]
pub struct Failure {
    meaning: Meaning,
    error: Box<dyn StdError + Send + Sync>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    Failed(Effect),
    NotApplied { retry_after: Option<Duration> },
    Rejected,
    Unknown,
}

impl Failure {
    /// The action ran to its end and failed; a retry gets the same answer.
    pub fn failed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            meaning: Meaning::Failed(Effect::Unknown),
            error: error.into(),
        }
    }

    /// The action ran to its end, failed, and provably changed nothing.
    pub fn failed_noop(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            meaning: Meaning::Failed(Effect::Noop),
            error: error.into(),
        }
    }

    /// The action provably did not happen (nothing was sent): it is safe to try again.
    pub fn not_applied(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            meaning: Meaning::NotApplied { retry_after: None },
            error: error.into(),
        }
    }

    /// The action provably did not happen, and a task of a queue waits at least this long before its next attempt.
    pub fn not_applied_for(
        error: impl Into<Box<dyn StdError + Send + Sync>>,
        wait: Duration,
    ) -> Self {
        let retry_after = Some(wait);
        Self {
            meaning: Meaning::NotApplied { retry_after },
            error: error.into(),
        }
    }

    /// The action provably did not happen, and trying again is pointless: the operation is dead.
    pub fn rejected(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            meaning: Meaning::Rejected,
            error: error.into(),
        }
    }

    pub(super) const fn meaning(&self) -> Meaning {
        self.meaning
    }

    /// Ends a permit with it.
    pub(super) async fn report(&self, permit: Permit) -> Result<Receipt> {
        let text = self.error.to_string();
        match self.meaning {
            Meaning::Failed(effect) => permit.failed(effect, &text).await,
            Meaning::NotApplied { retry_after: None } => permit.not_done(&text).await,
            Meaning::NotApplied {
                retry_after: Some(wait),
            } => permit.not_done_for(&text, wait).await,
            Meaning::Rejected => permit.reject(&text).await,
            Meaning::Unknown => permit.unknown(&text).await,
        }
    }

    /// Nobody can tell.
    pub fn unknown(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            meaning: Meaning::Unknown,
            error: error.into(),
        }
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::unknown(error)
    }
}

/// An action that has happened, now or before.
#[derive(Clone, Debug)]
pub struct Completed<T> {
    /// What it answered.
    pub value: T,
    /// Whether it happened before this call.
    pub replayed: bool,
    /// The whole receipt.
    pub receipt: Receipt,
}

/// The most rounds of probing and beginning: a probe that says `not_done` is followed by one
/// attempt, and a doubt that comes back is the caller's to see.
const ROUNDS: usize = 3;

impl EffectCall {
    pub(super) fn new(engine: Engine, request: Request) -> Self {
        Self {
            engine,
            request,
            effect: Effect::Updated,
            probe: None,
        }
    }

    /// Gives the action an input: the same key with another input is refused.
    pub fn input<T: Serialize + ?Sized>(mut self, input: &T) -> Self {
        self.request = self.request.input(input);
        self
    }

    /// Gives the action an input that is JSON text already.
    pub fn input_json(mut self, json: &[u8]) -> Self {
        self.request = self.request.input_json(json);
        self
    }

    /// Gives the action an input that is compared byte for byte.
    pub fn input_bytes(mut self, bytes: &[u8]) -> Self {
        self.request = self.request.input_bytes(bytes);
        self
    }

    /// Puts the key behind a wall.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.request = self.request.namespace(namespace);
        self
    }

    /// Says what the action does when it succeeds; `updated` unless said otherwise.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// Says what repeating the action would do.
    pub fn class(mut self, class: Class) -> Self {
        self.request = self.request.class(class);
        self
    }

    /// Says what happens when the operation is in doubt.
    pub fn on_doubt(mut self, on_doubt: OnDoubt) -> Self {
        self.request = self.request.on_doubt(on_doubt);
        self
    }

    /// Looks a doubted effect up before anything else is done about it.
    pub fn probe<F, Fut>(mut self, probe: F) -> Self
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Found> + Send + 'static,
    {
        self.request = self.request.on_doubt(OnDoubt::Probe);
        self.probe = Some(Box::new(move |attempt| Box::pin(probe(attempt))));
        self
    }

    /// Limits the attempts.
    pub fn max_attempts(mut self, limit: NonZeroU32) -> Self {
        self.request = self.request.max_attempts(limit);
        self
    }

    /// Limits how long a doubt may be retried.
    pub fn retry_within(mut self, window: Duration) -> Self {
        self.request = self.request.retry_within(window);
        self
    }

    /// Lets the world settle before a probe looks: what was sent just before the doubted lease ended
    /// may arrive this much later.
    pub fn settle_delay(mut self, delay: Duration) -> Self {
        self.request = self.request.settle_delay(delay);
        self
    }

    /// Limits how long an attempt may be silent; it is renewed while the action runs.
    pub fn lease(mut self, lease: Lease) -> Self {
        self.request = self.request.lease(lease);
        self
    }

    /// Limits how long the answer is kept.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.request = self.request.retention(retention);
        self
    }

    /// Waits up to this long for another caller's attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request = self.request.wait(wait);
        self
    }

    /// Makes this a step of another operation.
    pub fn parent(mut self, key: Key, fence: Fence) -> Self {
        self.request = self.request.parent(key, fence);
        self
    }

    /// Names the way in.
    pub fn door(mut self, door: Label) -> Self {
        self.request = self.request.door(door);
        self
    }

    /// Runs the action, unless it has happened before; then its answer is returned again.
    ///
    /// # Errors
    /// [`Error::Failed`] when the action failed, now or before; refusals as in
    /// [`Engine::begin`], with running and doubtful operations as `in_flight` and `in_doubt`.
    pub async fn run<T, F, Fut>(self, action: F) -> Result<Completed<T>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(Attempt) -> Fut,
        Fut: Future<Output = std::result::Result<T, Failure>>,
    {
        let Self {
            engine,
            request,
            effect,
            mut probe,
        } = self;
        if request.is_safe() {
            let request = request.settled_in(engine.namespace());
            return pass_through(&engine, &request, action).await;
        }
        let mut action = Some(action);
        for _ in 0..ROUNDS {
            match engine.begin(request.clone()).await? {
                Admission::Replay(receipt) => return completed(receipt),
                Admission::Wait { .. } => {
                    return Err(refused(&request, Rejection::InFlight { until: None }));
                }
                Admission::InDoubt(record) => {
                    let rejection = Rejection::InDoubt {
                        own: false,
                        probe_at: None,
                    };
                    let mut error = refused(&request, rejection);
                    if let Error::Refused(refusal) = &mut error {
                        refusal.record = Some(record);
                    }
                    return Err(error);
                }
                Admission::Probe(permit) => match probe.take() {
                    Some(probe) => look_up(permit, probe, effect).await?,
                    None => {
                        // This caller cannot look; the next one with a probe can.
                        permit.unknown("no probe was given").await?;
                    }
                },
                Admission::Execute(permit) => {
                    let Some(action) = action.take() else { break };
                    return act(permit, action, effect).await;
                }
            }
        }
        Err(refused(
            &request,
            Rejection::InDoubt {
                own: false,
                probe_at: None,
            },
        ))
    }
}

fn refused(request: &Request, rejection: Rejection) -> Error {
    Error::Refused(Box::new(Refusal {
        rejection,
        key: Some(request.key.clone()),
        record: None,
    }))
}

/// Runs an action that only reads: nothing is recorded, and a repeat runs again.
async fn pass_through<T, F, Fut>(
    engine: &Engine,
    request: &Request,
    action: F,
) -> Result<Completed<T>>
where
    F: FnOnce(Attempt) -> Fut,
    Fut: Future<Output = std::result::Result<T, Failure>>,
{
    let now = engine.store().now();
    let mut receipt = Receipt::unrecorded(request, now)?;
    let attempt = Attempt {
        key: request.key.clone(),
        fence: Fence(0),
        number: 1,
        deadline: Instant::now() + request.lease.length(),
    };
    match action(attempt).await {
        Ok(value) => Ok(Completed {
            value,
            replayed: false,
            receipt,
        }),
        Err(Failure { error, .. }) => {
            receipt.ok = false;
            receipt.state = StateKind::Failed;
            receipt.payload = serde_json::to_vec(&error.to_string()).ok().map(Arc::from);
            Err(Error::Failed(Box::new(receipt)))
        }
    }
}

async fn look_up(permit: Permit, probe: Probe, effect: Effect) -> Result<()> {
    match probe(Attempt::of(&permit)).await {
        Found::Done(value) => permit.done(effect, &value).await,
        Found::NotDone => {
            permit
                .not_done("the probe found that it did not happen")
                .await
        }
        Found::Unknown => permit.unknown("the probe could not tell").await,
    }?;
    Ok(())
}

async fn act<T, F, Fut>(permit: Permit, action: F, effect: Effect) -> Result<Completed<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(Attempt) -> Fut,
    Fut: Future<Output = std::result::Result<T, Failure>>,
{
    if !permit.is_alive() {
        // The claim took longer than its lease: nothing may start any more.
        let late = "the lease ended before the action could start";
        permit.not_done(late).await?;
        return Err(Error::InvalidInput(format!("{late}; use a longer lease")));
    }
    match action(Attempt::of(&permit)).await {
        Ok(value) => {
            let receipt = permit.done(effect, &value).await?;
            if receipt.replayed {
                return completed(receipt);
            }
            Ok(Completed {
                value,
                replayed: false,
                receipt,
            })
        }
        Err(failure) => {
            let receipt = failure.report(permit).await?;
            match failure.meaning {
                Meaning::Failed(_) => completed(receipt),
                Meaning::NotApplied { .. } | Meaning::Rejected | Meaning::Unknown => {
                    Err(Error::Interrupted {
                        receipt: Box::new(receipt),
                        source: failure.error,
                    })
                }
            }
        }
    }
}

/// Reads the answer out of a settled operation's receipt.
fn completed<T: DeserializeOwned>(receipt: Receipt) -> Result<Completed<T>> {
    if !receipt.ok {
        return Err(Error::Failed(Box::new(receipt)));
    }
    let json = receipt.data().unwrap_or("null");
    let value = serde_json::from_str(json).map_err(|error| Error::Unreadable(error.to_string()))?;
    Ok(Completed {
        value,
        replayed: receipt.replayed,
        receipt,
    })
}
