//! What is stored of an operation.

use std::borrow::Cow;
use std::sync::Arc;

use crate::breaker::{Breaker, PhaseKind};
use crate::digest::{Digest, KeyHash};
use crate::effect::Effect;
use crate::fingerprint::Fingerprint;
use crate::policy::{OnDoubt, Policy};
use crate::queue::Task;
use crate::text::{AttemptId, Key, Label, Namespace, Note};
use crate::time::Timestamp;
use crate::verdict::{Outcome, VerdictKind};

/// How many attempts a record remembers by id; older ones are only counted.
pub const ATTEMPTS_REMEMBERED: usize = 16;

/// Numbers the attempts of one operation: strictly increasing, across restarts and fail-over too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(pub u64);

/// Counts the accepted commands of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

impl Fence {
    pub(super) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Version {
    /// Returns the version after one more accepted command.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Everything the ledger knows under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A living operation.
    Operation(Operation),
    /// A settled operation past its retention: it answers `expired` rather than running again.
    Tombstone(Tombstone),
    /// The memory of a forgotten or dropped operation, so that its fences never go back.
    Stub(Stub),
    /// The breaker of a target, which is no operation.
    Breaker(Box<Breaker>),
}

/// A living operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What the first Submit or Begin said; never changes.
    pub spec: Arc<Spec>,
    /// How many commands were accepted.
    pub version: Version,
    /// The fence of the newest attempt.
    pub fence: Fence,
    /// When the first command was accepted.
    pub created_at: Timestamp,
    /// Where the operation stands.
    pub state: State,
    /// How many attempts to act there were since the last fresh start; probes are not counted.
    pub attempt: u32,
    /// Whether a handler rejected it since then while another attempt was open: it is dead as soon
    /// as nothing is.
    pub rejected: bool,
    /// The newest attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// When the oldest open attempt began that is no longer remembered.
    pub forgotten_open: Option<Timestamp>,
    /// Who carries the operation out, when it is not the caller.
    pub queue: Option<Label>,
    /// Before this time no attempt may begin.
    pub run_at: Option<Timestamp>,
    /// What the queue's workers are given.
    pub task: Option<Arc<Task>>,
    /// Whether the caller got the answer.
    pub delivery: Delivery,
    /// Who settled the last doubt.
    pub resolved: Option<Resolved>,
    /// The last accepted operator's command, so that its repeat changes nothing.
    pub last_order: Option<Order>,
}

/// What the first Submit or Begin said about an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The wall behind which the key lives.
    pub namespace: Namespace,
    /// The key.
    pub key: Key,
    /// What the client called it, where a door scopes keys.
    pub client_key: Option<Note>,
    /// What is done.
    pub name: Label,
    /// Name and input, hashed.
    pub fingerprint: Fingerprint,
    /// How doubts and repeats are treated.
    pub policy: Policy,
    /// The way in.
    pub door: Option<Label>,
    /// On whose behalf.
    pub principal: Option<Label>,
    /// The operation that this one is a step of.
    pub parent: Option<Parent>,
    /// Which of several intended repeats this is; the first is 1.
    pub occurrence: u32,
    /// The digest of the probe that finds out whether a doubted effect happened. The probe itself is not recorded:
    /// each caller brings its own, and the digest tells whether it is the same one.
    pub probe_digest: Option<Digest>,
}

/// How the probe of a caller relates to the one that an operation was begun with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMatch {
    /// The operation was begun without a digest: callers look it up in their own ways.
    Unrecorded,
    /// The caller brings the recorded probe.
    Same,
    /// The caller brings none.
    Missing,
    /// The caller brings another one.
    Other,
}

impl ProbeMatch {
    /// Says why the caller may not settle the doubt by its probe; `None` where it may.
    #[must_use]
    pub const fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Unrecorded | Self::Same => None,
            Self::Missing => Some("it was begun with a probe, and this call brings none"),
            Self::Other => Some("it was begun with another probe than this call brings"),
        }
    }
}

impl Spec {
    /// Says why a caller with this probe meets the doubt instead of looking it up; `None` where that has other reasons.
    #[must_use]
    pub fn probe_refusal(&self, given: Option<&Digest>) -> Option<&'static str> {
        match self.policy.on_doubt {
            OnDoubt::Probe => self.match_probe(given).refusal(),
            OnDoubt::Hold | OnDoubt::Retry => None,
        }
    }

    /// Compares a caller's probe with the recorded one.
    #[must_use]
    pub fn match_probe(&self, given: Option<&Digest>) -> ProbeMatch {
        match (&self.probe_digest, given) {
            (None, _) => ProbeMatch::Unrecorded,
            (Some(_), None) => ProbeMatch::Missing,
            (Some(recorded), Some(given)) if recorded == given => ProbeMatch::Same,
            (Some(_), Some(_)) => ProbeMatch::Other,
        }
    }
}

/// The operation that a child is a step of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The parent's key, in the same namespace.
    pub key: Key,
    /// The parent's fence when the child was first begun.
    pub fence: Fence,
    /// The topmost operation: a child lives in its root's partition.
    pub root: Key,
}

/// Where a living operation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for an attempt.
    Pending,
    /// The newest attempt holds the lease.
    Running {
        /// A `done` that an older attempt reported meanwhile.
        evidence: Option<Outcome>,
    },
    /// Done, in success.
    Succeeded(Settled),
    /// Done, in failure.
    Failed(Settled),
    /// An attempt started and nobody knows whether its effect happened.
    Doubtful,
    /// Out of attempts, and not applied.
    Dead,
}

/// How an operation was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What it came to.
    pub outcome: Outcome,
    /// When.
    pub at: Timestamp,
}

/// A state without its details, as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// See [`State::Pending`].
    Pending,
    /// See [`State::Running`].
    Running,
    /// See [`State::Succeeded`].
    Succeeded,
    /// See [`State::Failed`].
    Failed,
    /// See [`State::Doubtful`].
    Doubtful,
    /// See [`State::Dead`].
    Dead,
    /// See [`Tombstone`].
    Tombstone,
    /// See [`Stub`].
    Stub,
    /// See [`Breaker`]: no operation is in such a state.
    Breaker(PhaseKind),
}

/// What an attempt may do with its permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptKind {
    /// Act.
    Act,
    /// Look up whether the doubted effect happened, and touch nothing.
    Probe,
}

/// One try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its id, known to its holder.
    pub id: AttemptId,
    /// Its fence.
    pub fence: Fence,
    /// Its number among the tries since the last fresh start; a probe carries that of the doubted try.
    pub number: u32,
    /// What it may do.
    pub kind: AttemptKind,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// When it began.
    pub started_at: Timestamp,
    /// Until when it may act.
    pub lease_until: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// What it said last.
    pub verdict: Option<VerdictKind>,
    /// Whether it ended without a definite verdict and nobody resolved it.
    pub open: bool,
    /// What went wrong.
    pub error: Option<Note>,
}

/// The process that holds an attempt, described so that another one can tell whether it is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The host's name.
    pub host: Label,
    /// The process id in its own namespace.
    pub pid: u32,
    /// The boot of the machine; a process never outlives it.
    pub boot: u128,
    /// The process-id namespace.
    pub pid_namespace: u64,
    /// When the process started, in the kernel's ticks since boot.
    pub started: u64,
}

/// Whether the caller got the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing was seen.
    Unknown,
    /// The answer was written completely and its receipt is proved.
    Delivered,
    /// The caller went away before that.
    Undelivered,
    /// Nothing proves that it arrived, and nobody came for it again in time: whoever makes the same
    /// call now wants another effect.
    Lapsed,
}

impl Delivery {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Delivered => "delivered",
            Self::Undelivered => "undelivered",
            Self::Lapsed => "lapsed",
        }
    }
}

/// Who settled a doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The person or the probe.
    pub by: Label,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub note: Option<Note>,
}

/// An accepted operator's command, as far as recognising its repeat needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Hash of the whole command, the version it named included.
    pub digest: Digest,
    /// The state it led to.
    pub state: StateKind,
    /// Whether the effect of what went before is unknown.
    pub previous_effect: Option<Effect>,
}

/// A settled operation past its retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The wall behind which the key lives.
    pub namespace: Namespace,
    /// The key.
    pub key: Key,
    /// Name and input, hashed.
    pub fingerprint: Fingerprint,
    /// Whether it ended in success.
    pub ok: bool,
    /// What it did.
    pub effect: Effect,
    /// When it was settled.
    pub settled_at: Timestamp,
    /// When it was buried.
    pub buried_at: Timestamp,
    /// The fence of its newest attempt.
    pub fence: Fence,
    /// How many commands were accepted.
    pub version: Version,
    /// Whether the caller got the answer.
    pub delivery: Delivery,
    /// Which of several intended repeats it was.
    pub occurrence: u32,
}

/// What is left of a forgotten or dropped operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// The hash of namespace and key.
    pub key_hash: KeyHash,
    /// The fence of its newest attempt.
    pub fence: Fence,
    /// How many commands were accepted.
    pub version: Version,
    /// When it became a stub.
    pub since: Timestamp,
}

impl Record {
    /// Returns the number of accepted commands.
    #[must_use]
    pub const fn version(&self) -> Version {
        match self {
            Self::Operation(operation) => operation.version,
            Self::Tombstone(tombstone) => tombstone.version,
            Self::Stub(stub) => stub.version,
            Self::Breaker(breaker) => breaker.version,
        }
    }

    /// Returns the fence of the newest attempt.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        match self {
            Self::Operation(operation) => operation.fence,
            Self::Tombstone(tombstone) => tombstone.fence,
            Self::Stub(stub) => stub.fence,
            Self::Breaker(breaker) => breaker.fence,
        }
    }

    /// Returns the stored state, without judging the lease.
    #[must_use]
    pub const fn kind(&self) -> StateKind {
        match self {
            Self::Operation(operation) => operation.state.kind(),
            Self::Tombstone(_) => StateKind::Tombstone,
            Self::Stub(_) => StateKind::Stub,
            Self::Breaker(breaker) => StateKind::Breaker(breaker.kind()),
        }
    }

    /// Returns the hash by which a store finds this record.
    #[must_use]
    pub fn key_hash(&self) -> KeyHash {
        match self {
            Self::Operation(operation) => {
                KeyHash::of(&operation.spec.namespace, &operation.spec.key)
            }
            Self::Tombstone(tombstone) => KeyHash::of(&tombstone.namespace, &tombstone.key),
            Self::Stub(stub) => stub.key_hash,
            Self::Breaker(breaker) => Breaker::hash_of(&breaker.namespace, &breaker.name),
        }
    }

    /// Returns the state as of `now`: a lease that has ended counts, written or not.
    #[must_use]
    pub fn kind_at(&self, now: Timestamp) -> StateKind {
        match self {
            Self::Operation(operation) => operation.kind_at(now),
            Self::Tombstone(_) | Self::Stub(_) | Self::Breaker(_) => self.kind(),
        }
    }

    /// Returns the living operation, if it is one.
    #[must_use]
    pub const fn operation(&self) -> Option<&Operation> {
        match self {
            Self::Operation(operation) => Some(operation),
            Self::Tombstone(_) | Self::Stub(_) | Self::Breaker(_) => None,
        }
    }

    /// Returns the breaker, if it is one.
    #[must_use]
    pub const fn breaker(&self) -> Option<&Breaker> {
        match self {
            Self::Breaker(breaker) => Some(breaker),
            Self::Operation(_) | Self::Tombstone(_) | Self::Stub(_) => None,
        }
    }
}

impl State {
    /// Returns the state that an outcome leads to.
    #[must_use]
    pub const fn settled(outcome: Outcome, at: Timestamp) -> Self {
        let settled = Settled { outcome, at };
        if outcome.ok {
            Self::Succeeded(settled)
        } else {
            Self::Failed(settled)
        }
    }

    /// Returns the state without its details.
    #[must_use]
    pub const fn kind(&self) -> StateKind {
        match self {
            Self::Pending => StateKind::Pending,
            Self::Running { .. } => StateKind::Running,
            Self::Succeeded(_) => StateKind::Succeeded,
            Self::Failed(_) => StateKind::Failed,
            Self::Doubtful => StateKind::Doubtful,
            Self::Dead => StateKind::Dead,
        }
    }
}

impl StateKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::Pending,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Doubtful,
        Self::Dead,
        Self::Tombstone,
        Self::Stub,
        Self::Breaker(PhaseKind::Closed),
        Self::Breaker(PhaseKind::Open),
        Self::Breaker(PhaseKind::HalfOpen),
    ];

    /// Those of operations, in the order of their codes.
    pub const OPERATIONS: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Doubtful,
        Self::Dead,
        Self::Tombstone,
        Self::Stub,
    ];

    /// Those of breakers, in the order of their codes.
    pub const BREAKERS: [Self; 3] = [
        Self::Breaker(PhaseKind::Closed),
        Self::Breaker(PhaseKind::Open),
        Self::Breaker(PhaseKind::HalfOpen),
    ];

    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Doubtful => "doubtful",
            Self::Dead => "dead",
            Self::Tombstone => "tombstone",
            Self::Stub => "stub",
            Self::Breaker(phase) => phase.as_str(),
        }
    }

    /// Reads the word that users write for a state of operations.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::OPERATIONS
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }

    /// Returns the number that stands for this kind in stored bytes.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Pending => 0,
            Self::Running => 1,
            Self::Succeeded => 2,
            Self::Failed => 3,
            Self::Doubtful => 4,
            Self::Dead => 5,
            Self::Tombstone => 6,
            Self::Stub => 7,
            Self::Breaker(PhaseKind::Closed) => 8,
            Self::Breaker(PhaseKind::Open) => 9,
            Self::Breaker(PhaseKind::HalfOpen) => 10,
        }
    }

    /// Reads the number that stands for a kind in stored bytes.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Says whether something may still happen to it by itself or by an operator: a store lists such records apart.
    /// Breakers are among them, as they are few and always wanted together.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Doubtful | Self::Dead | Self::Breaker(_) => true,
            Self::Succeeded | Self::Failed | Self::Tombstone | Self::Stub => false,
        }
    }
}

impl Operation {
    /// Returns when nothing that is in doubt can act any more, and the world has settled: before that nobody
    /// can look up what happened.
    #[must_use]
    pub fn probe_at(&self) -> Timestamp {
        let attempts = self.attempts.iter();
        let acts = attempts.filter(|attempt| attempt.kind == AttemptKind::Act);
        let last_end = acts.map(|attempt| attempt.lease_until).max();
        last_end
            .unwrap_or_default()
            .plus(self.spec.policy.settle_delay)
    }

    /// Returns the outcome of a settled operation.
    #[must_use]
    pub const fn settled(&self) -> Option<&Settled> {
        match &self.state {
            State::Succeeded(settled) | State::Failed(settled) => Some(settled),
            State::Pending | State::Running { .. } | State::Doubtful | State::Dead => None,
        }
    }

    /// Returns the newest attempt.
    #[must_use]
    pub fn latest(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// Returns the end of the lease of a running operation.
    #[must_use]
    pub fn lease_until(&self) -> Option<Timestamp> {
        match &self.state {
            State::Running { .. } => self.latest().map(|attempt| attempt.lease_until),
            State::Pending
            | State::Succeeded(_)
            | State::Failed(_)
            | State::Doubtful
            | State::Dead => None,
        }
    }

    /// Returns when the oldest open attempt began, if one is open.
    #[must_use]
    pub fn open_since(&self) -> Option<Timestamp> {
        let remembered = self.attempts.iter().filter(|attempt| attempt.open);
        remembered
            .map(|attempt| attempt.started_at)
            .chain(self.forgotten_open)
            .min()
    }

    /// Returns where the attempt with this id and fence stands in [`Operation::attempts`].
    #[must_use]
    pub fn find(&self, id: &AttemptId, fence: Fence) -> Option<usize> {
        self.attempts
            .iter()
            .position(|attempt| attempt.id == *id && attempt.fence == fence)
    }

    /// Says whether another attempt to act is allowed.
    #[must_use]
    pub fn attempts_left(&self) -> bool {
        let limit = self.spec.policy.max_attempts;
        !self.rejected && limit.is_none_or(|limit| self.attempt < limit.get())
    }

    /// Returns the operation as of `now`: the end of a lease counts, written or not.
    #[must_use]
    pub fn judged_at(&self, now: Timestamp) -> Cow<'_, Self> {
        super::lease::judge(self, now, super::lease::Ending::Lease).operation
    }

    /// Returns the state as of `now`.
    #[must_use]
    pub fn kind_at(&self, now: Timestamp) -> StateKind {
        self.judged_at(now).state.kind()
    }
}

impl Attempt {
    /// Says whether the attempt gave a definite verdict, which is final.
    #[must_use]
    pub const fn has_spoken(&self) -> bool {
        match self.verdict {
            Some(VerdictKind::Done | VerdictKind::NotDone) => true,
            Some(VerdictKind::Unknown) | None => false,
        }
    }

    /// Ends the attempt with a verdict, or without one when its lease ran out.
    pub(super) fn end(&mut self, verdict: Option<VerdictKind>, error: Option<Note>, at: Timestamp) {
        // A mark that somebody cleared since the end stays cleared, whatever is repeated.
        let may_open = self.open || self.ended_at.is_none();
        self.ended_at.get_or_insert(at);
        self.verdict = verdict.or(self.verdict);
        self.error = error.or_else(|| self.error.take());
        // A probe touches nothing, so its silence leaves nothing open.
        self.open = may_open && !self.has_spoken() && self.kind == AttemptKind::Act;
    }
}
