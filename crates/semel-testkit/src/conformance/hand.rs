//! A caller of a store: it decides by the rules, commits, and decides again on what is stored.
//!
//! This is the engine's way through a store, written once more and without the engine, so that a
//! test can ask for any command, in any order, on any assumption.

use std::sync::Arc;
use std::time::Duration;

use semel::remote::{RemoteStore, Told};
use semel::store::{
    Change, Commit, Current, Expected, Guard, NewPayload, Place, Result, Store, Stored,
};
use semel::wire::{self, Subject};
use semel_core::identity::KinChange;
use semel_core::ledger::{
    Begin, Command, Decision, Entry, Fence, Record, Rejection, Reply, Settle, Spec, State, Write,
    decide, parent_permits,
};
use semel_core::queue::{Bounds, Limits, LineChange};
use semel_core::{
    AttemptId, Class, Effect, Fingerprint, Input, Key, KeyHash, Label, Lease, Namespace, Outcome,
    Payload, Policy, Timestamp, Verdict,
};

/// The most rounds that one command may take: more means that a conflict does not hand back what
/// is stored.
const ROUNDS_MAX: usize = 256;

/// One command, and what it brings.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The operation.
    pub key: KeyHash,
    /// The command.
    pub command: Command,
    /// The payload of a done outcome.
    pub payload: Option<Brought>,
    /// The parent that must be running with this fence.
    pub parent: Option<(KeyHash, Fence)>,
    /// What the workers of its queue are given.
    pub input: Option<Arc<[u8]>>,
    /// The key, for a server that does not take its hash's word for it.
    pub named: Option<Key>,
    /// How many tasks workers may have.
    pub limits: Limits,
}

/// Workers may have as many tasks as they like.
const NO_LIMITS: Limits = Limits {
    queue: None,
    lane: None,
};

/// Where the bytes of a payload come from.
#[derive(Clone, Debug)]
pub enum Brought {
    /// They are here.
    Bytes(Arc<[u8]>),
    /// The attempt with this fence stored them piece by piece.
    Stream(Fence),
}

/// What came of a command.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The answer.
    pub reply: std::result::Result<Reply, Rejection>,
    /// What is stored afterwards, as the store handed it back.
    pub current: Current,
    /// Whether something was written.
    pub wrote: bool,
}

impl Applied {
    /// Returns where the record lies.
    ///
    /// # Panics
    /// When nothing is stored.
    #[must_use]
    pub fn place(&self) -> Place {
        stored(&self.current).place
    }
}

/// Returns the stored record and its place.
///
/// # Panics
/// When nothing is stored.
#[must_use]
pub fn stored(current: &Current) -> &Stored {
    match current {
        Current::Stored(stored) => stored,
        Current::Absent(as_of) => panic!("nothing is stored, as of {as_of:?}"),
    }
}

impl Asked {
    /// Asks for a command that brings nothing.
    #[must_use]
    pub const fn new(key: KeyHash, command: Command) -> Self {
        Self {
            key,
            command,
            payload: None,
            parent: None,
            input: None,
            named: None,
            limits: NO_LIMITS,
        }
    }

    /// Makes the change that this command leads to; `None` when it leads to none.
    #[must_use]
    pub fn change(&self, current: &Current, at: Timestamp) -> Option<Change> {
        match decide(current.record(), &self.command, at) {
            Ok(Decision::Write(write)) => Some(self.written(current, *write, at, None)),
            Ok(Decision::Answer(_)) | Err(_) => None,
        }
    }

    fn written(
        &self,
        current: &Current,
        write: Write,
        at: Timestamp,
        guard: Option<Guard>,
    ) -> Change {
        let before = current.record();
        let unplaced = before.is_none() && write.next.is_none();
        Change {
            key: self.key,
            expected: Expected::from(current),
            entry: Entry {
                at,
                unplaced: unplaced.then_some(self.key),
                command: self.command.clone(),
                events: write.events,
                state: write.next.as_ref().map(Record::kind),
                fence: write.next.as_ref().map(Record::fence).unwrap_or_default(),
            },
            payload: self.new_payload(before, write.next.as_ref()),
            kin: KinChange::between(before, write.next.as_ref()),
            line: LineChange::between(before, write.next.as_ref()),
            input: self.new_input(before, write.next.as_ref()),
            next: write.next.map(Arc::new),
            guard,
        }
    }

    /// A task keeps the input that it has.
    #[must_use]
    pub fn new_input(&self, before: Option<&Record>, after: Option<&Record>) -> Option<Arc<[u8]>> {
        let has_one = |record: Option<&Record>| {
            let task = record.and_then(Record::operation)?.task.as_ref()?;
            task.input
        };
        let is_new = has_one(before).is_none() && has_one(after).is_some();
        is_new.then(|| self.input.clone()).flatten()
    }

    fn new_payload(&self, before: Option<&Record>, after: Option<&Record>) -> NewPayload {
        let (old, new) = (before.and_then(payload_of), after.and_then(payload_of));
        let lives = |record: &Record| record.operation().is_some();
        if before.is_some_and(lives) && !after.is_some_and(lives) {
            return NewPayload::Erase;
        }
        match (&self.payload, new) {
            (_, new) if new == old => NewPayload::Keep,
            (_, None) => NewPayload::Erase,
            (Some(Brought::Bytes(bytes)), Some(_)) => NewPayload::Bytes {
                bytes: Arc::clone(bytes),
                replaces: old.is_some(),
            },
            (Some(Brought::Stream(fence)), Some(_)) => NewPayload::Stream(*fence),
            (None, Some(_)) => NewPayload::Keep,
        }
    }

    /// Carries the command out. `assumed` is what the caller knows from before; no answer rests
    /// on it, only a commit that the store checks.
    ///
    /// # Errors
    /// What the store says.
    ///
    /// # Panics
    /// When the store answers with one conflict after another.
    pub async fn apply(&self, store: &dyn Store, assumed: Option<Current>) -> Result<Applied> {
        if let Some(remote) = store.as_remote() {
            return self.send(remote).await;
        }
        let (mut current, mut read) = match assumed {
            Some(assumed) => (assumed, false),
            None => (store.load(&self.key).await?, true),
        };
        for _ in 0..ROUNDS_MAX {
            let now = store.now();
            let guard = match self.guard(store, &current, now).await? {
                Ok(guard) => guard,
                Err(rejection) => {
                    let current = store.load(&self.key).await?;
                    return Ok(answered(Err(rejection), current));
                }
            };
            let write = match decide(current.record(), &self.command, now) {
                Ok(Decision::Write(write)) => *write,
                Ok(Decision::Answer(_)) | Err(_) if !read => {
                    (current, read) = (store.load(&self.key).await?, true);
                    continue;
                }
                Ok(Decision::Answer(reply)) => return Ok(answered(Ok(reply), current)),
                Err(rejection) => return Ok(answered(Err(rejection), current)),
            };
            let reply = write.reply.clone();
            match store
                .commit(self.written(&current, write, now, guard))
                .await?
            {
                Commit::Done(current) => {
                    return Ok(Applied {
                        reply: Ok(reply),
                        current,
                        wrote: true,
                    });
                }
                Commit::Conflict(latest) => (current, read) = (latest, true),
                Commit::GuardChanged if self.limits != NO_LIMITS => {
                    let full = Rejection::InFlight { until: None };
                    return Ok(answered(Err(full), current));
                }
                Commit::GuardChanged => {}
            }
        }
        panic!("{ROUNDS_MAX} conflicts in a row");
    }

    /// Has a server carry the command out.
    async fn send(&self, remote: &RemoteStore) -> Result<Applied> {
        let version = |current: &Current| current.record().map(Record::version);
        let before = version(&remote.load(&self.key).await?);
        let subject = Subject {
            hash: self.key,
            key: self.named.clone(),
        };
        let brought = wire::Brought {
            payload: self.payload.as_ref().map(|payload| match payload {
                Brought::Bytes(bytes) => wire::Bytes::Here(Arc::clone(bytes)),
                Brought::Stream(fence) => wire::Bytes::Streamed(*fence),
            }),
            parent: self.parent,
            input: self.input.clone(),
            limits: self.limits,
        };
        let (reply, current) = match remote.apply(&subject, &self.command, &brought).await? {
            Told::Applied { reply, current, .. } => (Ok(reply), current),
            Told::Refused { rejection, record } => {
                let current = remote.load(&self.key).await?;
                assert_eq!(
                    record.as_deref(),
                    current.record(),
                    "a refusal brings the record"
                );
                (Err(rejection), current)
            }
        };
        Ok(Applied {
            reply,
            wrote: version(&current) != before,
            current,
        })
    }

    async fn guard(
        &self,
        store: &dyn Store,
        current: &Current,
        now: Timestamp,
    ) -> Result<std::result::Result<Option<Guard>, Rejection>> {
        let Some((parent, fence)) = self.parent else {
            let record = current.record();
            let bounds = record.and_then(|record| Bounds::of(record, self.limits));
            return Ok(Ok(bounds.map(Guard::Bounds)));
        };
        let parent = store.load(&parent).await?;
        Ok(
            parent_permits(parent.record(), fence, now).map(|()| match parent {
                Current::Absent(_) => None,
                Current::Stored(stored) => Some(Guard::Version {
                    place: stored.place,
                    version: stored.record.version(),
                }),
            }),
        )
    }
}

const fn answered(reply: std::result::Result<Reply, Rejection>, current: Current) -> Applied {
    Applied {
        reply,
        current,
        wrote: false,
    }
}

/// Returns the payload that a record speaks of: that of its outcome, or of evidence for one.
#[must_use]
pub fn payload_of(record: &Record) -> Option<Payload> {
    match &record.operation()?.state {
        State::Succeeded(settled) | State::Failed(settled) => settled.outcome.payload,
        State::Running { evidence } => evidence.and_then(|outcome| outcome.payload),
        State::Pending | State::Doubtful | State::Dead => None,
    }
}

/// Makes the description of an operation with this key.
///
/// # Panics
/// When the key breaks its rule.
#[must_use]
pub fn spec(key: &str) -> Spec {
    let name = Label::new("create-order").expect("the name is valid");
    Spec {
        namespace: Namespace::default(),
        key: Key::new(key).expect("a test's key is valid"),
        client_key: None,
        fingerprint: Fingerprint::of(&name, Input::None).expect("no input has one meaning"),
        name,
        policy: Policy::direct(Class::Unsafe),
        door: None,
        principal: None,
        parent: None,
        occurrence: 1,
        probe_digest: None,
    }
}

/// Returns the hash by which a store finds this operation.
#[must_use]
pub fn hash(spec: &Spec) -> KeyHash {
    KeyHash::of(&spec.namespace, &spec.key)
}

/// Asks to begin this operation.
#[must_use]
pub fn begin(spec: &Spec, attempt: u128) -> Asked {
    let command = Command::Begin(Begin {
        spec: Arc::new(spec.clone()),
        attempt: AttemptId::from_random(attempt),
        lease: Lease::DEFAULT,
        holder: None,
        worker: false,
        sighting: None,
    });
    Asked::new(hash(spec), command)
}

/// Reports success with these bytes.
#[must_use]
pub fn done(spec: &Spec, attempt: u128, fence: u64, bytes: &[u8]) -> Asked {
    let outcome = outcome(true, bytes);
    let mut asked = settle(spec, attempt, fence, Verdict::Done(outcome));
    asked.payload = Some(Brought::Bytes(bytes.into()));
    asked
}

/// Makes an outcome that speaks of these bytes.
#[must_use]
pub fn outcome(ok: bool, bytes: &[u8]) -> Outcome {
    Outcome {
        ok,
        effect: Effect::Created,
        payload: Some(Payload::of(bytes)),
    }
}

/// Reports this verdict.
#[must_use]
pub fn settle(spec: &Spec, attempt: u128, fence: u64, verdict: Verdict) -> Asked {
    let command = Command::Settle(Settle {
        attempt: AttemptId::from_random(attempt),
        fence: Fence(fence),
        verdict,
    });
    Asked::new(hash(spec), command)
}

/// Begins an operation and reports its success, and returns what is stored then.
///
/// # Panics
/// When the store does not take it.
pub async fn complete(store: &dyn Store, spec: &Spec, bytes: &[u8]) -> Stored {
    let begun = begin(spec, 1).apply(store, None).await.expect("it begins");
    let fence = stored(&begun.current).record.fence().0;
    let settled = done(spec, 1, fence, bytes).apply(store, None).await;
    stored(&settled.expect("it is settled").current).clone()
}

/// A little more than a lease lasts.
pub const AFTER_LEASE: Duration = Duration::from_secs(61);
