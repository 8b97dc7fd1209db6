//! The only loop that touches the world: decide, commit, and decide again on what is really stored.

use std::sync::Arc;

use semel_core::identity::KinChange;
use semel_core::ledger::{
    Action, Attempt, Begin, Command, Decision, Entry, Fence, Record, Rejection, Reply, Sighting,
    State, StateKind, admit_probe, decide, parent_permits,
};
use semel_core::queue::{Bounds, Limits, LineChange};
use semel_core::{Key, KeyHash, Namespace, Payload, Redactor, Timestamp};

use super::inject::Faults;
use super::tally::{Happened, Tally};
use super::wait::Waiters;
use crate::error::{Error, Refusal, Result};
use crate::store::{
    Change, Commit, Current, Expected, Guard, NewPayload, Store, StoreError, open_notes,
};

/// How often a command is decided anew before it is given up: each round lost means that another
/// command won, so only a crowd on one key comes near.
const ROUNDS_MAX: usize = 256;

/// The rules that a ledger follows: [`decide`], but for tests that must see a broken rule caught.
pub type Rules =
    fn(Option<&Record>, &Command, Timestamp) -> std::result::Result<Decision, Rejection>;

/// The rules, the store and those who wait.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) rules: Rules,
    pub(crate) redactor: Redactor,
    pub(crate) waiters: Waiters,
    pub(crate) faults: Faults,
    pub(crate) tally: Tally,
}

/// Which operation a command is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The hash of namespace and key.
    pub hash: KeyHash,
    /// The key, unless it was forgotten.
    pub key: Option<Key>,
}

impl Subject {
    pub(crate) fn new(namespace: &Namespace, key: &Key) -> Self {
        Self {
            hash: KeyHash::of(namespace, key),
            key: Some(key.clone()),
        }
    }

    /// Names an operation whose key is not known.
    #[must_use]
    pub const fn unnamed(hash: KeyHash) -> Self {
        Self { hash, key: None }
    }

    /// Makes the error of a refused command.
    pub(crate) fn refused(&self, rejection: Rejection, current: &Current) -> Error {
        let record = match current {
            Current::Absent(_) => None,
            Current::Stored(stored) => Some(Arc::clone(&stored.record)),
        };
        self.refused_on(rejection, record)
    }

    /// Makes the error of a command that was refused on this record.
    pub(crate) fn refused_on(&self, rejection: Rejection, record: Option<Arc<Record>>) -> Error {
        Error::Refused(Box::new(Refusal {
            rejection,
            key: self.key.clone(),
            record,
        }))
    }
}

/// What a command brings besides itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// The payload of a done outcome.
    pub payload: Option<Bytes>,
    /// The parent that must be running with this fence.
    pub parent: Option<(KeyHash, Fence)>,
    /// What the workers of its queue are given.
    pub input: Option<Arc<[u8]>>,
    /// How many tasks those may have at once among whom the task is taken.
    pub limits: Limits,
}

/// Where the bytes of a payload are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// They are here.
    Here(Arc<[u8]>),
    /// The attempt with this fence stored them piece by piece.
    Streamed(Fence),
}

/// A command that was carried out.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) reply: Reply,
    pub(crate) current: Current,
    pub(crate) at: Timestamp,
}

/// A report that settles, before it is committed.
#[derive(Debug)]
pub(crate) struct Settling {
    pub(crate) change: Change,
    pub(crate) reply: Reply,
    pub(crate) after: Vec<Action>,
    pub(crate) at: Timestamp,
}

/// What a command was decided on.
enum Basis {
    /// Something that was read.
    Read(Current),
    /// What the caller knows from before: no answer may rest on it.
    Assumed(Current),
}

impl Basis {
    const fn current(&self) -> &Current {
        match self {
            Self::Read(current) | Self::Assumed(current) => current,
        }
    }

    fn into_current(self) -> Current {
        match self {
            Self::Read(current) | Self::Assumed(current) => current,
        }
    }
}

impl Ledger {
    /// Says whether the rules run where the store is, and not here.
    pub(crate) fn is_elsewhere(&self) -> bool {
        #[cfg(feature = "remote")]
        let elsewhere = self.store.as_remote().is_some();
        #[cfg(not(feature = "remote"))]
        let elsewhere = false;
        elsewhere
    }

    /// Carries a command out. An answer or a refusal always rests on a record that was read.
    pub(crate) async fn apply(
        &self,
        subject: &Subject,
        assumed: Option<Current>,
        command: &Command,
        brought: &Brought,
    ) -> Result<Applied> {
        let (command, brought) = self.redacted(command, brought);
        let (command, brought) = (&*command, &*brought);
        self.faults.before(command)?;
        let applied = self
            .decide_and_commit(subject, assumed, command, brought)
            .await?;
        if self.faults.repeats(command) {
            // The caller hears the second answer, as a client whose first reply was lost does.
            let again = self
                .decide_and_commit(subject, None, command, brought)
                .await;
            self.faults.after(command)?;
            return again;
        }
        self.faults.after(command)?;
        Ok(applied)
    }

    async fn decide_and_commit(
        &self,
        subject: &Subject,
        assumed: Option<Current>,
        command: &Command,
        brought: &Brought,
    ) -> Result<Applied> {
        #[cfg(feature = "remote")]
        if let Some(remote) = self.store.as_remote() {
            return self.send(remote, subject, command, brought).await;
        }
        let first = matches!(command, Command::Begin(_) | Command::Submit(_));
        let mut basis = match assumed.or_else(|| self.store.assumed().filter(|_| first)) {
            Some(current) => Basis::Assumed(current),
            None => Basis::Read(self.store.load(&subject.hash).await?),
        };
        for _ in 0..ROUNDS_MAX {
            let now = self.store.now();
            let guard = self.guard(subject, &basis, brought, now).await?;
            let record = basis.current().record();
            let seen = self.seen_alive(subject, record, command, now);
            let command = seen.as_ref().unwrap_or(command);
            let decision = self.decide(record, command, now);
            let (answer, current) = match (decision, basis) {
                (Ok(Decision::Write(write)), known) => {
                    let current = known.current();
                    let change = change(subject, current, command, *write, brought, guard, now);
                    let (change, reply, after) = change;
                    let happened = Happened::of(&change.entry.events);
                    let offers = change.line.offers();
                    match self.store.commit(change).await? {
                        Commit::Done(current) => {
                            self.tally.wrote(happened);
                            self.dispatch(subject, &after);
                            if let Some(queue) = offers {
                                self.waiters.wake(&queue.bell());
                            }
                            (Ok(reply), current)
                        }
                        Commit::Conflict(current) => {
                            basis = Basis::Read(current);
                            continue;
                        }
                        Commit::GuardChanged if brought.limits != Limits::default() => {
                            // The task is left to those who have room for it.
                            (
                                Err(Rejection::InFlight { until: None }),
                                known.into_current(),
                            )
                        }
                        Commit::GuardChanged => {
                            basis = known;
                            continue;
                        }
                    }
                }
                (Ok(Decision::Answer(_)) | Err(_), Basis::Assumed(_)) => {
                    basis = Basis::Read(self.store.load(&subject.hash).await?);
                    continue;
                }
                (Ok(Decision::Answer(reply)), Basis::Read(current)) => (Ok(reply), current),
                (Err(rejection), Basis::Read(current)) => (Err(rejection), current),
            };
            return match answer {
                Ok(Reply::Refused(rejection)) | Err(rejection) => {
                    self.tally.refused(rejection);
                    Err(subject.refused(rejection, &current))
                }
                Ok(reply) => Ok(Applied {
                    reply,
                    current,
                    at: now,
                }),
            };
        }
        let crowd = "too many others change this operation at the same time".to_owned();
        Err(StoreError::Unavailable(crowd).into())
    }

    /// Decides a command that has just come: the rules, and who may probe.
    pub(crate) fn decide(
        &self,
        record: Option<&Record>,
        command: &Command,
        now: Timestamp,
    ) -> std::result::Result<Decision, Rejection> {
        let decision = (self.rules)(record, command, now)?;
        admit_probe(record, command, decision)
    }

    /// Decides a report that is to be committed together with its effect: what does not settle the
    /// operation is refused, and the effect with it.
    pub(crate) fn settle_with_effect(
        &self,
        subject: &Subject,
        current: &Current,
        command: &Command,
        brought: &Brought,
        now: Timestamp,
    ) -> Result<Settling> {
        let (command, brought) = self.redacted(command, brought);
        let record = current.record();
        match (self.rules)(record, &command, now) {
            Ok(Decision::Write(write)) if write.settles(record) => {
                let made = change(subject, current, &command, *write, &brought, None, now);
                let (change, reply, after) = made;
                Ok(Settling {
                    change,
                    reply,
                    after,
                    at: now,
                })
            }
            Ok(Decision::Write(_) | Decision::Answer(_)) => {
                Err(subject.refused(Rejection::Fenced, current))
            }
            Err(rejection) => Err(subject.refused(rejection, current)),
        }
    }

    /// Adds to a Begin what can be seen of the present holder, where the clock alone would doubt it.
    pub(crate) fn seen_alive(
        &self,
        subject: &Subject,
        record: Option<&Record>,
        command: &Command,
        now: Timestamp,
    ) -> Option<Command> {
        let (Command::Begin(begin), Some(operation)) = (command, record?.operation()) else {
            return None;
        };
        let in_doubt = operation.kind_at(now) == StateKind::Doubtful;
        let fence = operation.fence;
        let alive = in_doubt && self.is_held(subject, fence);
        alive.then(|| {
            let sighting = Some(Sighting { fence, alive });
            Command::Begin(Begin {
                sighting,
                ..begin.clone()
            })
        })
    }

    /// Says whether a process that an attempt started is provably alive.
    pub(crate) fn is_held(&self, subject: &Subject, fence: Fence) -> bool {
        let directory = open_notes(&*self.store).ok().flatten();
        directory.is_some_and(|directory| crate::hold::is_alive(&directory, &subject.hash, fence))
    }

    /// Says whether a process that an attempt started may be alive.
    pub(crate) fn may_be_held(&self, subject: &Subject, fence: Fence) -> bool {
        match open_notes(&*self.store) {
            Ok(Some(directory)) => crate::hold::may_be_alive(&directory, &subject.hash, fence),
            Ok(None) => false,
            // What this process may not look into proves nothing.
            Err(_) => true,
        }
    }

    /// Says whether both the process that holds an attempt and what it started are provably gone.
    pub(crate) fn is_gone(&self, subject: &Subject, attempt: &Attempt) -> bool {
        attempt.holder.as_ref().is_some_and(crate::holder::is_gone)
            && !self.may_be_held(subject, attempt.fence)
    }

    /// Says what must hold when the change is committed.
    async fn guard(
        &self,
        subject: &Subject,
        basis: &Basis,
        brought: &Brought,
        now: Timestamp,
    ) -> Result<Option<Guard>> {
        if let Some((parent, fence)) = &brought.parent {
            let guard = self.parental(subject, basis, parent, *fence, now).await?;
            return Ok(Some(guard));
        }
        let record = basis.current().record();
        let bounds = record.and_then(|record| Bounds::of(record, brought.limits));
        Ok(bounds.map(Guard::Bounds))
    }

    /// Checks that the parent permits the child, and names the version that this rests on.
    async fn parental(
        &self,
        subject: &Subject,
        basis: &Basis,
        parent: &KeyHash,
        fence: Fence,
        now: Timestamp,
    ) -> Result<Guard> {
        let stored = self.store.load(parent).await?;
        parent_permits(stored.record(), fence, now)
            .map_err(|rejection| subject.refused(rejection, basis.current()))?;
        match stored {
            Current::Stored(stored) => Ok(Guard::Version {
                place: stored.place,
                version: stored.record.version(),
            }),
            Current::Absent(_) => Err(subject.refused(Rejection::Fenced, basis.current())),
        }
    }

    pub(crate) fn dispatch(&self, subject: &Subject, after: &[Action]) {
        for action in after {
            match action {
                Action::Wake => self.waiters.wake(&subject.hash),
                // The sweeper looks at every lease and every waiting operation by itself.
                Action::LookAgain(_) => {}
            }
        }
    }
}

/// Makes what the store is to write.
pub(super) fn change(
    subject: &Subject,
    current: &Current,
    command: &Command,
    write: semel_core::ledger::Write,
    brought: &Brought,
    guard: Option<Guard>,
    at: Timestamp,
) -> (Change, Reply, Vec<Action>) {
    let unplaced = current.record().is_none() && write.next.is_none();
    let entry = Entry {
        at,
        unplaced: unplaced.then_some(subject.hash),
        command: command.clone(),
        events: write.events,
        state: write.next.as_ref().map(Record::kind),
        fence: write.next.as_ref().map(Record::fence).unwrap_or_default(),
    };
    let change = Change {
        key: subject.hash,
        expected: Expected::from(current),
        payload: new_payload(current.record(), write.next.as_ref(), brought),
        entry,
        kin: KinChange::between(current.record(), write.next.as_ref()),
        line: LineChange::between(current.record(), write.next.as_ref()),
        input: new_input(current.record(), write.next.as_ref(), brought),
        next: write.next.map(Arc::new),
        guard,
    };
    (change, write.reply, write.after)
}

/// Returns the input of a task that the change makes: what it was given before is kept.
fn new_input(
    before: Option<&Record>,
    after: Option<&Record>,
    brought: &Brought,
) -> Option<Arc<[u8]>> {
    let input = |record: &Record| record.operation()?.task.as_ref()?.input;
    let (before, after) = (before.and_then(input), after.and_then(input));
    (before != after).then(|| brought.input.clone()).flatten()
}

/// Says what happens to the stored payload when one record follows another.
fn new_payload(before: Option<&Record>, after: Option<&Record>, brought: &Brought) -> NewPayload {
    let lives = |record: &Record| record.operation().is_some();
    if before.is_some_and(lives) && !after.is_some_and(lives) {
        // What attempts streamed goes too, also when it never became an answer.
        return NewPayload::Erase;
    }
    let (old, new) = (before.and_then(payload_of), after.and_then(payload_of));
    if old == new {
        return NewPayload::Keep;
    }
    match (new, &brought.payload) {
        (None, _) => NewPayload::Erase,
        (Some(_), Some(Bytes::Here(bytes))) => NewPayload::Bytes {
            bytes: bytes.clone(),
            replaces: old.is_some(),
        },
        (Some(_), Some(Bytes::Streamed(fence))) => NewPayload::Stream(*fence),
        (Some(_), None) => NewPayload::Keep,
    }
}

/// Returns the payload that a record speaks of: that of its outcome, or of evidence for one.
pub(crate) fn payload_of(record: &Record) -> Option<Payload> {
    match &record.operation()?.state {
        State::Succeeded(settled) | State::Failed(settled) => settled.outcome.payload,
        State::Running { evidence } => evidence.and_then(|outcome| outcome.payload),
        State::Pending | State::Doubtful | State::Dead => None,
    }
}

/// The rules that every ledger follows.
pub(crate) const RULES: Rules = decide;
