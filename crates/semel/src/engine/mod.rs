//! The engine: what people use to make an action happen once.

mod adopt;
mod attempt;
mod claim;
mod copy;
mod effect;
mod find;
mod finish;
mod inject;
mod ledger;
mod list;
mod note;
mod open;
mod operate;
mod permit;
mod preview;
mod principals;
mod queue;
mod redaction;
#[cfg(feature = "remote")]
mod remote;
mod renew;
mod replays;
mod request;
mod settled;
mod sweep;
mod tally;
mod tokens;
mod transaction;
mod verify;
mod wait;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use semel_core::ledger::{Begin, Command, Fence, Holder, Record, Reply};
use semel_core::{AttemptId, Effect, Key, Label, Namespace, Redactor, Timestamp};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

pub use self::adopt::Adopted;
pub use self::attempt::{Granted, Rehearsal};
pub use self::claim::Claimed;
pub use self::copy::{Copied, Phase, Way};
pub use self::effect::{Attempt, Completed, EffectCall, Failure, Found};
pub use self::find::Named;
pub use self::inject::{Fault, Point};
pub use self::ledger::{Brought, Bytes, Rules, Subject};
pub use self::operate::Operator;
pub use self::permit::Permit;
pub use self::preview::Preview;
pub use self::queue::{Job, Kept, QueueSettings, Queueing, Take, Taken, Worked, Worker};
pub use self::redaction::redacted_answer;
pub(crate) use self::replays::took;
pub use self::replays::{Replayed, Saved, Saver};
pub use self::request::{Request, WAIT_MAX};
pub use self::sweep::Swept;
pub use self::tally::Tally;
pub use self::tokens::{NewToken, Revoked};
pub use self::verify::{Difference, Verified};

use self::claim::Claim;
use self::ledger::{Applied, Ledger, RULES, payload_of};
use self::renew::Renewals;
use crate::error::{Error, Result};
use crate::receipt::{Receipt, policy_kept};
use crate::store::{Chunk, CopyPolicy, Current, Store, StoreError};

/// Makes actions happen once. Cheap to clone; all clones share one store.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    ledger: Ledger,
    /// Where operations live that name no namespace, unless the store says so itself.
    namespace: Namespace,
    renewals: Arc<Renewals>,
    runtime: Handle,
    holder: Option<Holder>,
    ids: Ids,
    replays: replays::Replays,
    turns: queue::Turns,
    queues: queue::Queues,
    uses: tokens::Uses,
    principal_key: principals::KnownKey,
    breakers: crate::breaker::Known,
    /// Ends the background tasks with the last engine and the last permit.
    background: OnceLock<Background>,
    /// Listens to other nodes, once somebody waits: a process that never does needs no connection
    /// for it.
    listening: OnceLock<Background>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.replays.keep(&*self.ledger.store);
    }
}

#[derive(Debug)]
struct Background(Vec<AbortHandle>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Chooses what an engine is made of.
#[derive(Debug)]
pub struct Builder {
    store: Option<Arc<dyn Store>>,
    namespace: Namespace,
    rules: Rules,
    sweep_every: Option<Duration>,
    holder: Option<Holder>,
    ids: Ids,
    redactor: Redactor,
    token: Option<Hidden>,
    queues: queue::Queues,
    copied: CopyPolicy,
}

/// A text that is never shown.
struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

/// How often the background sweep looks, unless told otherwise.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

impl Builder {
    /// Uses this store.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Puts operations that name no namespace into this one instead of `default`. With a remote store it is that of
    /// the token, whatever is said here.
    #[must_use]
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Shows this token to the server that keeps the ledger; for [`Builder::open`].
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(Hidden(token.to_owned()));
        self
    }

    /// Treats a store whose file was copied by means other than Semel's as this says; for
    /// [`Builder::open`].
    #[must_use]
    pub fn copied(mut self, policy: CopyPolicy) -> Self {
        self.copied = policy;
        self
    }

    /// Sweeps this often in the background; `None` leaves it to [`Engine::sweep`].
    #[must_use]
    pub fn sweep_every(mut self, pause: Option<Duration>) -> Self {
        self.sweep_every = pause;
        self
    }

    /// Redacts by these rules what is stored about operations, instead of by the usual ones.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Says how the tasks of a queue are tried, and how many at once, in every namespace.
    #[must_use]
    pub fn queue(mut self, queue: Label, settings: QueueSettings) -> Self {
        self.queues.0.insert(queue, settings);
        self
    }

    /// Replaces the rules, so that a test can see a broken one caught. Never use it otherwise.
    #[doc(hidden)]
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Takes attempt ids from here instead of from chance, so that a simulation can be repeated.
    #[doc(hidden)]
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn Fn() -> u128 + Send + Sync>) -> Self {
        self.ids = Ids::Given(ids);
        self
    }

    /// Speaks for another process, or for none.
    #[doc(hidden)]
    #[must_use]
    pub fn holder(mut self, holder: Option<Holder>) -> Self {
        self.holder = holder;
        self
    }

    /// Starts the engine and delivers what earlier processes could not store.
    ///
    /// # Errors
    /// Fails when there is no store, or it does not answer.
    pub async fn start(self) -> Result<Engine> {
        let store = self
            .store
            .ok_or_else(|| Error::InvalidInput("an engine needs a store".to_owned()))?;
        let inner = Arc::new(Inner {
            ledger: Ledger {
                store,
                rules: self.rules,
                redactor: self.redactor,
                waiters: wait::Waiters::default(),
                faults: inject::Faults::default(),
                tally: Tally::default(),
            },
            namespace: self.namespace,
            renewals: Arc::new(Renewals::default()),
            runtime: Handle::current(),
            holder: self.holder,
            ids: self.ids,
            replays: replays::Replays::default(),
            turns: queue::Turns::default(),
            queues: self.queues,
            uses: tokens::Uses::default(),
            principal_key: principals::KnownKey::default(),
            breakers: crate::breaker::Known::default(),
            background: OnceLock::new(),
            listening: OnceLock::new(),
        });
        note::deliver(&inner.ledger).await?;
        let renewals = tokio::spawn(Arc::clone(&inner.renewals).run());
        let mut tasks = vec![renewals.abort_handle()];
        // What lies elsewhere is swept there.
        let sweep_every = self.sweep_every.filter(|_| !inner.ledger.is_elsewhere());
        if let Some(pause) = sweep_every {
            let sweeper = sweep::run(Arc::downgrade(&inner), pause);
            tasks.push(tokio::spawn(sweeper).abort_handle());
        }
        if self.sweep_every.is_some() {
            let news = Arc::clone(&inner.replays.news);
            let counting = replays::run(Arc::downgrade(&inner), news);
            tasks.push(tokio::spawn(counting).abort_handle());
        }
        inner.background.get_or_init(|| Background(tasks));
        Ok(Engine { inner })
    }
}

/// What a caller that wants to begin is told.
#[derive(Debug)]
pub enum Admission {
    /// Act, and say what came of it.
    Execute(Permit),
    /// Look up whether the doubted effect happened, touch nothing, and say what was found.
    Probe(Permit),
    /// It was done before: this is the answer.
    Replay(Receipt),
    /// Another attempt runs: come back then.
    Wait {
        /// When it is worth asking again.
        retry_after: Duration,
    },
    /// Nobody knows whether an earlier attempt took effect.
    InDoubt(Arc<Record>),
}

impl Engine {
    /// Starts choosing what an engine is made of.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            store: None,
            namespace: Namespace::default(),
            rules: RULES,
            sweep_every: Some(SWEEP_EVERY),
            holder: crate::holder::this_process(),
            ids: Ids::Random,
            redactor: Redactor::default(),
            token: None,
            queues: queue::Queues::default(),
            copied: CopyPolicy::default(),
        }
    }

    /// Describes an action that is to happen once, and then runs it.
    pub fn effect(&self, name: &str, key: Key) -> EffectCall {
        EffectCall::new(self.clone(), Request::new(name, key))
    }

    /// Asks to carry an operation out now.
    ///
    /// # Errors
    /// `key_reused`, `dead`, `expired` and `fenced` are errors; running and doubtful operations
    /// are answers. When the store fails, nothing may be done.
    pub async fn begin(&self, request: Request) -> Result<Admission> {
        let deadline = Instant::now() + request.wait;
        let attempt = AttemptId::from_random(self.inner.ids.next()?);
        let claim = self.claim_of(request, attempt, self.inner.holder.clone());
        let claim = claim.await?;
        let claimed = self.inner.claimed(claim, deadline, Permit::granted);
        Ok(match claimed.await? {
            Claimed::Granted(permit) => {
                let permit = permit.hand_over();
                if permit.is_probe() {
                    Admission::Probe(permit)
                } else {
                    Admission::Execute(permit)
                }
            }
            Claimed::Replay(receipt) => Admission::Replay(receipt),
            Claimed::Wait { retry_after } => Admission::Wait { retry_after },
            Claimed::InDoubt(record) => Admission::InDoubt(record),
        })
    }

    /// Makes the claim of a request.
    async fn claim_of(
        &self,
        request: Request,
        attempt: AttemptId,
        holder: Option<Holder>,
    ) -> Result<Claim> {
        let request = self.rooted(request).await?;
        let parent = request.parent.as_ref().map(|parent| {
            (
                Subject::new(&request.namespace, &parent.key).hash,
                parent.fence,
            )
        });
        Ok(Claim {
            inner: Arc::clone(&self.inner),
            saver: request.saver(),
            subject: Subject::new(&request.namespace, &request.key),
            begin: Begin {
                spec: request.spec()?,
                attempt,
                lease: request.lease,
                holder,
                worker: false,
                sighting: None,
            },
            brought: Brought {
                parent,
                ..Brought::default()
            },
        })
    }

    /// Leaves an operation for somebody else to carry out.
    ///
    /// # Errors
    /// As [`Engine::begin`]; a doubtful operation is refused too.
    pub async fn submit(&self, request: Request, to: Queueing) -> Result<Receipt> {
        let (request, to) = self.inner.queues.complete(request, to);
        let request = self.rooted(request).await?;
        let subject = Subject::new(&request.namespace, &request.key);
        let command = request.submission(&to)?;
        let input = request.given()?.filter(|_| to.queue.is_some());
        let brought = Brought {
            input: input.map(Arc::from),
            ..Brought::default()
        };
        let ledger = &self.inner.ledger;
        let applied = ledger.apply(&subject, None, &command, &brought).await?;
        let created = matches!(applied.reply, Reply::Submitted { created: true });
        let receipt = self
            .inner
            .receipt(&applied.current, !created, None, applied.at);
        let mut receipt = receipt.await?;
        if created {
            receipt.effect = Effect::Created;
        } else if let Command::Submit(submit) = &command {
            receipt.policy_kept = policy_kept(&submit.spec, &applied.current);
        }
        // It waits or runs: what was asked for, to be known, is so.
        receipt.ok |= receipt.settled_at.is_none();
        Ok(receipt)
    }

    /// Carries a command out for somebody who speaks to this engine from afar.
    pub(crate) async fn apply(
        &self,
        subject: &Subject,
        command: &Command,
        brought: &Brought,
    ) -> Result<Applied> {
        let ledger = &self.inner.ledger;
        ledger.apply(subject, None, command, brought).await
    }

    /// Returns the breakers that somebody has handles of.
    pub(crate) fn known_breakers(&self) -> &crate::breaker::Known {
        &self.inner.breakers
    }

    /// Makes an id that nobody has.
    pub(crate) fn fresh_id(&self) -> Result<AttemptId> {
        Ok(AttemptId::from_random(self.inner.ids.next()?))
    }

    /// Returns the namespace of operations that name none: that of [`Builder::namespace`], and with a remote store the
    /// one of its token.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        let store = &self.inner.ledger.store;
        let own = || self.inner.namespace.clone();
        store.namespace().cloned().unwrap_or_else(own)
    }

    /// Says where the operation lives and what it belongs to, as far as the caller left that open.
    async fn rooted(&self, request: Request) -> Result<Request> {
        let mut request = request.settled_in(self.namespace());
        if let Some(parent) = &mut request.parent {
            let record = self.load(&request.namespace, &parent.key).await?;
            let operation = record.as_deref().and_then(Record::operation);
            if let Some(above) = operation.and_then(|operation| operation.spec.parent.as_ref()) {
                parent.root = above.root.clone();
            }
        }
        Ok(request)
    }

    /// Loads the record of an operation.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn load(&self, namespace: &Namespace, key: &Key) -> Result<Option<Arc<Record>>> {
        let subject = Subject::new(namespace, key);
        Ok(match self.inner.ledger.store.load(&subject.hash).await? {
            Current::Absent(_) => None,
            Current::Stored(stored) => Some(stored.record),
        })
    }

    /// Loads the stored answer of an operation; `None` when there is none.
    ///
    /// # Errors
    /// Fails when the store does, or when what it holds is not what the record speaks of.
    pub async fn payload(&self, namespace: &Namespace, key: &Key) -> Result<Option<Vec<u8>>> {
        let subject = Subject::new(namespace, key);
        let current = self.inner.ledger.store.load(&subject.hash).await?;
        let payload = self.inner.payload(&current).await?;
        Ok(payload.map(|bytes| bytes.to_vec()))
    }

    /// Loads what an attempt stored piece by piece and has not reported as an answer: what is known
    /// of one that is running or in doubt.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn partial(
        &self,
        namespace: &Namespace,
        key: &Key,
        fence: Fence,
    ) -> Result<Vec<Chunk>> {
        let subject = Subject::new(namespace, key);
        let store = &self.inner.ledger.store;
        match store.load(&subject.hash).await? {
            Current::Absent(_) => Ok(vec![]),
            Current::Stored(stored) => Ok(store.stream(stored.place, fence).await?),
        }
    }

    /// Returns the rules by which what is stored is redacted.
    #[must_use]
    pub fn redactor(&self) -> &Redactor {
        &self.inner.ledger.redactor
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.ledger.store
    }

    /// Makes the next commands of this kind fail, to test one's own steps.
    pub fn inject_error(&self, point: Point, fault: Fault, times: u32) {
        self.inner.ledger.faults.plan_error(point, fault, times);
    }

    /// Makes the next commands of this kind arrive twice, to test one's own steps.
    pub fn inject_repeat(&self, point: Point, times: u32) {
        self.inner.ledger.faults.plan_repeat(point, times);
    }
}

impl Inner {
    /// Loads the payload that a record speaks of and checks it.
    async fn payload(&self, current: &Current) -> Result<Option<Arc<[u8]>>> {
        let Current::Stored(stored) = current else {
            return Ok(None);
        };
        let Some(payload) = payload_of(&stored.record) else {
            return Ok(None);
        };
        let bytes = match &stored.payload {
            Some(bytes) => Some(Arc::clone(bytes)),
            None => self
                .ledger
                .store
                .payload(stored.place)
                .await?
                .map(Arc::from),
        };
        let fits = |bytes: &Arc<[u8]>| semel_core::Digest::of(bytes) == payload.digest;
        if bytes.as_ref().is_some_and(fits) {
            return Ok(bytes);
        }
        // A Retry, a Forget or retention may have taken it away since the record was read; half of
        // an answer must not pass for the whole.
        let now = self.ledger.store.load_at(stored.place).await?;
        let same = now.is_some_and(|now| now.record.version() == stored.record.version());
        match bytes {
            _ if !same => {
                let text = "the operation changed while its answer was read".to_owned();
                Err(StoreError::Unavailable(text).into())
            }
            None => {
                let text = "the payload of a settled operation is gone".to_owned();
                Err(StoreError::Corrupt(text).into())
            }
            Some(_) => {
                let text = "a payload does not match its digest".to_owned();
                Err(StoreError::Corrupt(text).into())
            }
        }
    }

    /// Makes a receipt from what is stored; `own` spares loading what this call brought itself.
    async fn receipt(
        &self,
        current: &Current,
        replayed: bool,
        own: Option<Arc<[u8]>>,
        now: Timestamp,
    ) -> Result<Receipt> {
        let payload = match own {
            Some(bytes) => Some(bytes),
            None => self.payload(current).await?,
        };
        let record = current.record();
        let receipt = record.and_then(|record| Receipt::of(record, replayed, payload, now));
        receipt.ok_or_else(|| {
            StoreError::Corrupt("there is no record to answer from".to_owned()).into()
        })
    }
}

/// Where attempt ids come from.
#[derive(Clone)]
enum Ids {
    Random,
    Given(Arc<dyn Fn() -> u128 + Send + Sync>),
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids")
    }
}

impl Ids {
    fn next(&self) -> Result<u128> {
        match self {
            Self::Given(ids) => Ok(ids()),
            Self::Random => {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes).map_err(|error| {
                    StoreError::Unavailable(format!("the system gives no randomness: {error}"))
                })?;
                Ok(u128::from_le_bytes(bytes))
            }
        }
    }
}
