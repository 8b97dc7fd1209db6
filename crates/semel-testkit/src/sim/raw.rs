//! A door that speaks the ledger's protocol itself: commands are decided and committed here, so
//! that they can be repeated, delayed and sent by anybody.

use std::sync::Arc;

use semel::Rules;
use semel::store::{Change, Commit, Current, Expected, Guard, NewPayload, Store as _, StoreError};
use semel_core::Payload;
use semel_core::identity::KinChange;
use semel_core::ledger::{
    Command, Decision, Entry, Record, Rejection, Reply, State, Write, decide, parent_permits,
};
use semel_core::queue::LineChange;

use super::bugs::Bug;
use super::plan::KeyPlan;
use super::store::SimStore;

/// How often a command is decided anew on what was stored meanwhile.
const ROUNDS_MAX: usize = 32;

/// The way in without the engine.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) store: Arc<SimStore>,
    rules: Rules,
}

/// A command that was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    pub(crate) current: Current,
    /// Whether it changed something.
    pub(crate) wrote: bool,
}

/// A command that was not.
#[derive(Debug)]
pub(crate) enum Failed {
    Refused(Rejection),
    /// Nobody knows what became of it.
    Store,
}

impl From<StoreError> for Failed {
    fn from(_: StoreError) -> Self {
        Self::Store
    }
}

impl Raw {
    pub(crate) fn new(store: &Arc<SimStore>) -> Self {
        Self {
            store: Arc::clone(store),
            rules: store.sim.bug.map_or(decide as Rules, Bug::rules),
        }
    }

    /// Carries a command out, on what is really stored.
    pub(crate) async fn apply(
        &self,
        key: usize,
        command: &Command,
        payload: &NewPayload,
    ) -> Result<Answered, Failed> {
        let hash = self.store.sim.plan.keys[key].hash;
        let mut current = self.store.load(&hash).await?;
        for _ in 0..ROUNDS_MAX {
            let now = self.store.now();
            let guard = self.guard(command).await?;
            let write = match (self.rules)(current.record(), command, now) {
                Err(rejection) => return Err(Failed::Refused(rejection)),
                Ok(Decision::Answer(reply)) => return Ok(answered(reply, current, false)),
                Ok(Decision::Write(write)) => *write,
            };
            let reply = write.reply.clone();
            let entry = Entry {
                at: now,
                unplaced: (current.record().is_none() && write.next.is_none()).then_some(hash),
                command: command.clone(),
                events: write.events.clone(),
                state: write.next.as_ref().map(Record::kind),
                fence: write.next.as_ref().map(Record::fence).unwrap_or_default(),
            };
            let change = Change {
                key: hash,
                expected: Expected::from(&current),
                entry,
                payload: new_payload(current.record(), &write, payload),
                kin: KinChange::between(current.record(), write.next.as_ref()),
                line: LineChange::between(current.record(), write.next.as_ref()),
                input: given(command),
                next: write.next.map(Arc::new),
                guard,
            };
            match self.store.commit(change).await? {
                Commit::Done(stored) => {
                    return match reply {
                        Reply::Refused(rejection) => Err(Failed::Refused(rejection)),
                        reply => Ok(answered(reply, stored, true)),
                    };
                }
                Commit::Conflict(stored) => current = stored,
                Commit::GuardChanged => {}
            }
        }
        Err(Failed::Store)
    }

    /// A child begins only while its parent runs with the fence that it names.
    async fn guard(&self, command: &Command) -> Result<Option<Guard>, Failed> {
        let Command::Begin(begin) = command else {
            return Ok(None);
        };
        let Some(parent) = &begin.spec.parent else {
            return Ok(None);
        };
        let hash = semel_core::KeyHash::of(&begin.spec.namespace, &parent.key);
        let stored = self.store.load(&hash).await?;
        parent_permits(stored.record(), parent.fence, self.store.now()).map_err(Failed::Refused)?;
        Ok(match stored {
            Current::Absent(_) => None,
            Current::Stored(stored) => Some(Guard::Version {
                place: stored.place,
                version: stored.record.version(),
            }),
        })
    }
}

fn answered(reply: Reply, current: Current, wrote: bool) -> Answered {
    Answered {
        reply,
        current,
        wrote,
    }
}

/// Says what happens to the stored payload; what a command brought counts only for an outcome that
/// it made.
fn new_payload(before: Option<&Record>, write: &Write, brought: &NewPayload) -> NewPayload {
    let (old, new) = (
        before.and_then(payload_of),
        write.next.as_ref().and_then(payload_of),
    );
    match (new, brought) {
        (new, _) if new == old => NewPayload::Keep,
        (None, _) => NewPayload::Erase,
        (Some(_), NewPayload::Bytes { bytes, .. }) => NewPayload::Bytes {
            bytes: Arc::clone(bytes),
            replaces: old.is_some(),
        },
        (Some(_), NewPayload::Stream(fence)) => NewPayload::Stream(*fence),
        (Some(_), NewPayload::Keep | NewPayload::Erase) => NewPayload::Keep,
    }
}

/// Returns what a message that leaves a task brings along, however late it arrives.
fn given(command: &Command) -> Option<Arc<[u8]>> {
    let Command::Submit(submit) = command else {
        return None;
    };
    let named = submit.task.as_ref()?.input?;
    let mut inputs = [false, true].into_iter().map(KeyPlan::input);
    let input = inputs.find(|input| Payload::of(input) == named)?;
    Some(input.into())
}

/// Returns the payload that a record speaks of.
pub(crate) fn payload_of(record: &Record) -> Option<Payload> {
    match &record.operation()?.state {
        State::Succeeded(settled) | State::Failed(settled) => settled.outcome.payload,
        State::Running { evidence } => evidence.and_then(|outcome| outcome.payload),
        State::Pending | State::Doubtful | State::Dead => None,
    }
}
