//! What the log says about one key, as far as the invariants need it.

use std::time::Duration;

use semel::core::VerdictKind;
use semel::{AttemptId, Fingerprint, Outcome};
use semel_core::KeyHash;
use semel_core::ledger::{AttemptKind, Begin, Command, Event, Fence, Record, StateKind};

use super::moves::{nothing_open_is_purged, says_not_applied};
use super::reports::renewed;
use super::{Checked, Committed, Invariant, Told, broken, running_at};
use crate::sim::plan::KeyPlan;
use crate::sim::world::{Upstream, World};

/// One key's log, folded; see the module above for generations and runs.
#[derive(Debug)]
pub(super) struct KeyLog {
    pub(super) hash: KeyHash,
    pub(super) upstream: Upstream,
    pub(super) retention: Duration,
    /// Counts fresh starts: Retry, Forget, Drop.
    pub(super) generation: u32,
    /// Counts licenses: each run may take effect once.
    pub(super) run: u32,
    /// Whether somebody permitted another effect since the last claim.
    pub(super) licensed: bool,
    /// Whether somebody permitted more than one effect in this generation.
    pub(super) loose: bool,
    /// Whether a handler said in this generation that trying again is pointless.
    pub(super) rejected: bool,
    /// Whether what is stored says that the operation was not applied.
    pub(super) not_applied: bool,
    pub(super) forgets: u32,
    pub(super) adoptions: u32,
    /// The highest fence that was ever granted.
    pub(super) highest: Fence,
    /// Every claim, oldest first.
    pub(super) tried: Vec<Tried>,
    /// Every `done` that the log holds for this generation.
    pub(super) dones: Vec<Outcome>,
    pub(super) settlements: Vec<Settlement>,
    pub(super) meanings: Vec<Meaning>,
}

/// One claim.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) fence: Fence,
    pub(super) id: AttemptId,
    pub(super) kind: AttemptKind,
    pub(super) generation: u32,
    pub(super) run: u32,
    pub(super) process: usize,
    /// Its first definite verdict.
    pub(super) spoken: Option<VerdictKind>,
    pub(super) reported_done: bool,
    pub(super) cleared: Option<Cleared>,
    pub(super) waived: bool,
    pub(super) started: bool,
    pub(super) effects: u32,
    /// What had disturbed the leases when it was granted.
    pub(super) disturbances: (u32, u32),
    pub(super) forgets: u32,
}

/// Who said that an attempt did not take effect, when it did not say so itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cleared {
    /// Somebody who made sure that it can no longer act.
    Surely,
    /// Somebody who did not.
    Hastily,
}

/// A time during which the operation was settled in one way.
#[derive(Debug)]
pub(super) struct Settlement {
    pub(super) told: Told,
    pub(super) at: Duration,
    pub(super) until: Option<u64>,
}

/// A time during which the key meant one thing.
#[derive(Debug)]
pub(super) struct Meaning {
    pub(super) fingerprint: Fingerprint,
    pub(super) until: Option<u64>,
}

impl KeyLog {
    pub(super) fn new(plan: &KeyPlan) -> Self {
        Self {
            hash: plan.hash,
            upstream: plan.upstream,
            retention: plan.retention.length(),
            generation: 0,
            run: 0,
            licensed: false,
            loose: false,
            rejected: false,
            not_applied: false,
            forgets: 0,
            adoptions: 0,
            highest: Fence(0),
            tried: vec![],
            dones: vec![],
            settlements: vec![],
            meanings: vec![],
        }
    }

    pub(super) fn committed(
        &mut self,
        change: &Committed<'_>,
        world: &World,
        tick: u64,
        disturbances: u32,
    ) -> Checked {
        nothing_open_is_purged(change)?;
        self.key_means(change, tick);
        match &change.entry.command {
            Command::Begin(begin) => self.begun(change, begin)?,
            Command::Renew(renew) => renewed(change, renew)?,
            Command::Settle(settle) => self.reported(change, settle, disturbances)?,
            Command::Resolve(resolve) => self.resolved(change, resolve)?,
            Command::Adopt(_) => {
                self.adoptions += 1;
                self.highest = self.highest.max(change.entry.fence);
            }
            Command::Submit(_)
            | Command::Expire(_)
            | Command::Retry(_)
            | Command::Cancel(_)
            | Command::Forget(_)
            | Command::Bury(_)
            | Command::Drop(_)
            | Command::Deliver(_)
            // No agent of the simulation has a breaker.
            | Command::Breaker(_) => {}
        }
        self.outcome_moves(change, world, tick, disturbances)?;
        self.noop_means_not_applied(change)?;
        self.not_applied = says_not_applied(change.after);
        self.starts_afresh(change);
        self.fences_rise(change)
    }

    /// A claim, or a Begin that found the lease over and the operation settled by evidence.
    fn begun(&mut self, change: &Committed<'_>, begin: &Begin) -> Checked {
        let kind = match (change.has(Event::Begun), change.has(Event::ProbeBegun)) {
            (true, false) => AttemptKind::Act,
            (false, true) => AttemptKind::Probe,
            (false, false) => return Ok(()),
            (true, true) => return broken(Invariant::ClaimLicensed, "a claim of two kinds"),
        };
        let fence = change.entry.fence;
        if fence <= self.highest {
            let what = format!("fence {} after {}", fence.0, self.highest.0);
            return broken(Invariant::FencesRise, what);
        }
        self.highest = fence;
        if let Some(done) = self.dones.first() {
            return broken(
                Invariant::NoGrantAfterDone,
                format!("granted after {done:?}"),
            );
        }
        let alive = running_at(change.before, change.entry.at);
        if let (Some((held, _)), false) = (alive, change.has(Event::HolderGone)) {
            let what = format!("fence {} while {} is alive", fence.0, held.0);
            return broken(Invariant::OneLease, what);
        }
        let spec = change.after.and_then(Record::operation).map(|o| &o.spec);
        if spec.is_none_or(|spec| spec.fingerprint != begin.spec.fingerprint) {
            return broken(Invariant::KeyMeansOneThing, "granted for another input");
        }
        child_has_parent(change, begin)?;
        if kind == AttemptKind::Act {
            self.license(change)?;
        }
        self.tried.push(Tried {
            fence,
            id: begin.attempt.clone(),
            kind,
            generation: self.generation,
            run: self.run,
            process: change.process,
            spoken: None,
            reported_done: false,
            cleared: None,
            waived: false,
            started: false,
            effects: 0,
            disturbances: (change.disturbances, self.adoptions),
            forgets: self.forgets,
        });
        Ok(())
    }

    /// Finds out what a claim to act rests on, and whether it opens a new run.
    fn license(&mut self, change: &Committed<'_>) -> Checked {
        if change.has(Event::DoubtWaived) {
            self.loose = true;
            self.licensed = true;
            self.doubted().for_each(|tried| tried.waived = true);
        }
        if let Some(open) = self.doubted().find(|tried| !tried.waived) {
            let what = format!("granted although nobody knows of fence {}", open.fence.0);
            return broken(Invariant::ClaimLicensed, what);
        }
        if self.rejected {
            return broken(Invariant::ClaimLicensed, "granted although it was rejected");
        }
        if std::mem::take(&mut self.licensed) {
            self.run += 1;
        }
        Ok(())
    }

    /// The attempts of this generation that may have taken effect, for all that the log says.
    pub(super) fn doubted(&mut self) -> impl Iterator<Item = &mut Tried> {
        let generation = self.generation;
        self.tried.iter_mut().filter(move |tried| {
            tried.generation == generation && tried.kind == AttemptKind::Act && tried.is_open()
        })
    }
}

impl Tried {
    /// Says whether nobody knows if it took effect.
    pub(super) fn is_open(&self) -> bool {
        self.spoken.is_none() && self.cleared.is_none()
    }
}

fn child_has_parent(change: &Committed<'_>, begin: &Begin) -> Checked {
    let Some(parent) = change.parent else {
        return Ok(());
    };
    let named = begin.spec.parent.as_ref().map(|parent| parent.fence);
    let running = parent
        .filter(|record| record.kind() == StateKind::Running)
        .map(Record::fence);
    if named.is_some() && named == running {
        Ok(())
    } else {
        let what = format!("it names {named:?}, its parent runs with {running:?}");
        broken(Invariant::ChildNeedsParent, what)
    }
}
