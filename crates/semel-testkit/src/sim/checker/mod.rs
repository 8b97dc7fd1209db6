//! The invariants, checked at every commit, every effect and every answer.
//!
//! The checker never asks the rules: it reads what the log says, what the world saw and what
//! callers were told, so a broken rule cannot vouch for itself.
//!
//! # When another effect is licensed
//!
//! The attempts of a key are grouped into **runs**, and each run may take effect once. A claim
//! opens a new run when the log says, before it, that somebody permitted another effect:
//!
//! - `doubt_waived`, in the claim's own entry (the caller chose `on_doubt = retry`);
//! - a resolution `not_done` of a doubt by an operator who did not make sure that the doubted
//!   holder can no longer act, or a probe that a clock which jumped forward sent too early;
//! - an accepted Retry or Forget, or a tombstone dropped after its year: a new **generation**.
//!
//! Any other claim belongs to the run before it, and needs that every earlier attempt of its
//! generation said `not_done`, was found not done by a probe or a careful operator, or was waived.

mod keylog;
mod moves;
mod reports;
mod witness;

use std::fmt;
use std::time::Duration;

use semel::{Effect, Fingerprint, Outcome, Receipt, Timestamp};
use semel_core::ledger::{Entry, Event, Fence, Record, State};
use semel_core::{Digest, KeyHash};

use self::keylog::KeyLog;
use super::plan::Plan;
use super::shelf::Shelf;
use super::world::World;

/// What must always hold; the numbers are those of DESIGN section 3, the rest are its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// 1. The world sees an effect once per run.
    AtMostOnce,
    /// 1, 10. A claim after another one rests on something in the log.
    ClaimLicensed,
    /// 2. A claim is durable before its effect may start.
    ClaimBeforeEffect,
    /// 2. Nobody is told of an outcome that the log does not hold.
    ToldIsStored,
    /// 3. While an attempt runs, only its fence settles, renews or releases.
    OnlyItsFence,
    /// 3. Fences never go back.
    FencesRise,
    /// 4. An answer rests on a row that was read during the call.
    AnswerWasRead,
    /// 5. Nothing doubtful, dead, pending or running is purged, and nothing before its time.
    NothingOpenPurged,
    /// What was forgotten, buried or retried leaves no answer behind.
    NothingLingers,
    /// 6. What is stored does not vanish, and nobody is told of damage where there is none.
    NothingVanishes,
    /// 7. The log replayed gives the stored state.
    LogIsState,
    /// 8. Nobody acts without a permit to act.
    LosersWait,
    /// 9. After every doubt is resolved, all callers see the same outcome.
    SameOutcome,
    /// 10. Nothing is granted while the log holds a `done`.
    NoGrantAfterDone,
    /// 10. No two leases of one operation are alive at once.
    OneLease,
    /// 10 and rule 2. An attempt's first definite verdict is final; no duplicate undoes a Retry.
    FirstVerdictFinal,
    /// Rule 3. A late `done` is never thrown away.
    LateDoneKept,
    /// Rule 4. `dead` and `noop` mean: not applied.
    DeadMeansNotApplied,
    /// Rule 10. A child begins only while its parent runs with the fence that it names.
    ChildNeedsParent,
    /// A record says what the world saw, and a settled outcome stays.
    RecordIsTrue,
    /// What is said not to have happened did not, and does not: by an attempt about itself, by a
    /// probe, or by an operator who made sure.
    NotDoneIsTrue,
    /// The same key with another meaning is refused.
    KeyMeansOneThing,
    /// Everything comes to an end.
    Progress,
}

impl Invariant {
    /// Every invariant.
    pub const ALL: [Self; 23] = [
        Self::AtMostOnce,
        Self::ClaimLicensed,
        Self::ClaimBeforeEffect,
        Self::ToldIsStored,
        Self::OnlyItsFence,
        Self::FencesRise,
        Self::AnswerWasRead,
        Self::NothingOpenPurged,
        Self::NothingLingers,
        Self::NothingVanishes,
        Self::LogIsState,
        Self::LosersWait,
        Self::SameOutcome,
        Self::NoGrantAfterDone,
        Self::OneLease,
        Self::FirstVerdictFinal,
        Self::LateDoneKept,
        Self::DeadMeansNotApplied,
        Self::ChildNeedsParent,
        Self::RecordIsTrue,
        Self::NotDoneIsTrue,
        Self::KeyMeansOneThing,
        Self::Progress,
    ];
}

/// A broken invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which one.
    pub invariant: Invariant,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

type Checked = Result<(), Violation>;

/// Makes a violation.
pub(crate) fn broken(invariant: Invariant, what: impl Into<String>) -> Checked {
    let what = what.into();
    Err(Violation { invariant, what })
}

/// A change that was just stored.
pub(crate) struct Committed<'a> {
    pub(crate) key: usize,
    pub(crate) entry: &'a Entry,
    pub(crate) before: Option<&'a Record>,
    pub(crate) after: Option<&'a Record>,
    /// For a child: what is stored of its parent.
    pub(crate) parent: Option<Option<&'a Record>>,
    /// The process that sent it.
    pub(crate) process: usize,
    /// The true time.
    pub(crate) now: Duration,
    /// The true time when it was decided: it may have been under way for long.
    pub(crate) decided: Duration,
    /// Whether two sweeps, far enough apart, can have agreed on the time.
    pub(crate) retention_may_act: bool,
    /// How often the clock had jumped ahead when the change was decided.
    pub(crate) disturbances: u32,
}

impl Committed<'_> {
    fn has(&self, event: Event) -> bool {
        self.entry.events.contains(&event)
    }
}

/// What a caller was told about a settled operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) ok: bool,
    pub(crate) effect: Effect,
    pub(crate) data: Option<Digest>,
}

impl Told {
    /// Returns what a receipt says.
    pub(crate) fn heard(receipt: &Receipt) -> Self {
        Self {
            ok: receipt.ok,
            effect: receipt.original_effect.unwrap_or(receipt.effect),
            data: receipt.payload.as_deref().map(Digest::of),
        }
    }

    pub(crate) fn of(outcome: &Outcome) -> Self {
        Self {
            ok: outcome.ok,
            effect: outcome.effect,
            data: outcome.payload.map(|payload| payload.digest),
        }
    }
}

/// Watches one history.
#[derive(Debug)]
pub(crate) struct Checker {
    keys: Vec<KeyLog>,
    /// The first invariant that was broken.
    pub(crate) broken: Option<Violation>,
    /// How often the clock by which leases are judged jumped ahead.
    pub(crate) disturbances: u32,
    /// Counts commits, so that "before" means something where time stands still.
    tick: u64,
    told: Vec<(usize, Told)>,
}

impl Checker {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            keys: plan.keys.iter().map(KeyLog::new).collect(),
            broken: None,
            disturbances: 0,
            tick: 0,
            told: vec![],
        }
    }

    pub(crate) fn note(&mut self, checked: Checked) {
        if let Err(violation) = checked {
            self.broken.get_or_insert(violation);
        }
    }

    pub(crate) fn fail(&mut self, invariant: Invariant, what: impl Into<String>) {
        self.note(broken(invariant, what));
    }

    pub(crate) fn hash(&self, key: usize) -> KeyHash {
        self.keys[key].hash
    }

    /// Returns a mark by which an answer is later known to rest on something read after it.
    pub(crate) fn tick(&self) -> u64 {
        self.tick
    }

    /// A change was stored.
    pub(crate) fn committed(&mut self, change: &Committed<'_>, world: &World) {
        self.tick += 1;
        let (tick, disturbances) = (self.tick, self.disturbances);
        let checked = self.keys[change.key].committed(change, world, tick, disturbances);
        self.note(checked);
    }

    /// A process starts an effect; whoever does must hold a permit that is alive.
    pub(crate) fn started(
        &mut self,
        key: usize,
        fence: Option<Fence>,
        record: Option<&Record>,
        now: Timestamp,
    ) {
        let disturbances = self.disturbances;
        let checked = self.keys[key].started(fence, record, now, disturbances);
        self.note(checked);
    }

    /// The world saw an effect.
    pub(crate) fn happened(&mut self, key: usize, fence: Option<Fence>) {
        let checked = self.keys[key].happened(fence);
        self.note(checked);
    }

    /// A caller whose call began at `since` was told how the operation was settled.
    pub(crate) fn told(&mut self, key: usize, since: u64, told: Told) {
        let checked = self.keys[key].told(since, told);
        self.note(checked);
        self.told.push((key, told));
    }

    /// A caller that means this by the key got a permit or a replay.
    pub(crate) fn admitted(&mut self, key: usize, since: u64, meaning: Fingerprint) {
        let checked = self.keys[key].admitted(since, meaning);
        self.note(checked);
    }

    /// The rules refused the `done` of an attempt: the log must have heard it all the same.
    pub(crate) fn refused_done(&mut self, key: usize, fence: Fence) {
        let checked = self.keys[key].refused_done(fence);
        self.note(checked);
    }

    /// Returns the attempts of which nobody knows whether they took effect.
    pub(crate) fn open_attempts(&self, key: usize) -> Vec<Fence> {
        self.keys[key].open_attempts()
    }

    /// Returns which process claimed with the key's newest fence.
    pub(crate) fn latest_holder(&self, key: usize) -> Option<(Fence, usize)> {
        self.keys[key].latest_holder()
    }

    /// What was told and what was acted on must still be there.
    pub(crate) fn after_power_loss(&mut self, shelf: &Shelf) {
        let mut checked = Ok(());
        for key in &self.keys {
            checked = checked.and_then(|()| key.claims_are_in(shelf));
        }
        for (_, told) in &self.told {
            let held = shelf.log.iter().any(|logged| holds(&logged.entry, *told));
            if !held && checked.is_ok() {
                checked = broken(Invariant::ToldIsStored, format!("the log lost {told:?}"));
            }
        }
        self.note(checked);
    }

    /// An effect that happened is not silently lost, once every doubt is resolved.
    pub(crate) fn nothing_lost(&mut self, key: usize, record: Option<&Record>) {
        let checked = self.keys[key].nothing_lost(record);
        self.note(checked);
    }
}

/// Returns the outcome of a record that says one.
fn outcome_of(record: Option<&Record>) -> Option<Outcome> {
    record?
        .operation()?
        .settled()
        .map(|settled| settled.outcome)
}

/// Says whether a log entry holds this outcome.
fn holds(entry: &Entry, told: Told) -> bool {
    use semel::core::Verdict;
    use semel_core::ledger::{Command, Resolution};
    match &entry.command {
        Command::Settle(settle) => match &settle.verdict {
            Verdict::Done(outcome) => {
                // A failure that changed nothing may be stored as one that nobody knows of.
                let weaker = Outcome {
                    effect: Effect::Unknown,
                    ..*outcome
                };
                let harmless = !outcome.ok && outcome.effect == Effect::Noop;
                Told::of(outcome) == told || harmless && Told::of(&weaker) == told
            }
            Verdict::NotDone { .. } | Verdict::Unknown { .. } => false,
        },
        Command::Resolve(resolve) => match &resolve.resolution {
            Resolution::Done(outcome) => Told::of(outcome) == told,
            Resolution::NotDone => false,
        },
        Command::Cancel(_) => !told.ok && told.effect == Effect::Noop && told.data.is_none(),
        Command::Submit(_)
        | Command::Begin(_)
        | Command::Renew(_)
        | Command::Expire(_)
        | Command::Retry(_)
        | Command::Forget(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_)
        | Command::Breaker(_) => false,
    }
}

/// Returns the fence and lease of a record that counts as running at this time.
fn running_at(record: Option<&Record>, now: Timestamp) -> Option<(Fence, Timestamp)> {
    let operation = record?.operation()?;
    let until = operation.lease_until()?;
    let alive = matches!(operation.state, State::Running { .. }) && now < until;
    alive.then_some((operation.fence, until))
}
