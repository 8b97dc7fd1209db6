//! Where an operation may go: outcomes stay, fences rise, and nothing that matters is purged.

use semel::{Effect, Outcome};
use semel_core::ledger::{AttemptKind, Command, Event, Fence, Record, State, StateKind};

use super::keylog::{Cleared, KeyLog, Meaning, Settlement, Tried};
use super::{Checked, Committed, Invariant, Told, broken, outcome_of, running_at};
use crate::sim::world::World;

impl KeyLog {
    /// A settled outcome is true, stays, and goes only by a command that may end it.
    pub(super) fn outcome_moves(
        &mut self,
        change: &Committed<'_>,
        world: &World,
        tick: u64,
        disturbances: u32,
    ) -> Checked {
        let (before, after) = (outcome_of(change.before), outcome_of(change.after));
        match (before, after) {
            (None, None) => Ok(()),
            (None, Some(outcome)) => {
                self.somebody_said(change, &outcome, world)?;
                self.settlements.push(Settlement {
                    told: Told::of(&outcome),
                    at: change.decided,
                    until: None,
                });
                Ok(())
            }
            (Some(before), Some(after)) if before == after => Ok(()),
            (Some(before), Some(after)) => {
                let what = format!("{before:?} became {after:?}");
                broken(Invariant::RecordIsTrue, what)
            }
            (Some(outcome), None) => {
                let at = self.settlements.last_mut().map(|settlement| {
                    settlement.until = Some(tick);
                    settlement.at
                });
                let may = change.has(Event::Retried) && !outcome.ok
                    || change.has(Event::Forgotten)
                    || change.has(Event::Buried);
                if !may {
                    let what = format!("{outcome:?} was lost to {}", change.entry.command.name());
                    return broken(Invariant::RecordIsTrue, what);
                }
                let early = at.is_some_and(|at| change.now.saturating_sub(at) < self.retention);
                if change.has(Event::Buried) && early && disturbances == 0 {
                    return broken(Invariant::NothingOpenPurged, "buried before its time");
                }
                Ok(())
            }
        }
    }

    /// An outcome is what somebody reported, or as much of it as holds; and what it says to have
    /// happened was seen.
    fn somebody_said(&self, change: &Committed<'_>, outcome: &Outcome, world: &World) -> Checked {
        let unsaid = |what| broken(Invariant::RecordIsTrue, format!("{what} {outcome:?}"));
        if !self.dones.contains(outcome) && !change.has(Event::Cancelled) {
            let harmless = Outcome {
                effect: Effect::Noop,
                ..*outcome
            };
            let weaker = !outcome.ok && outcome.effect == Effect::Unknown;
            if !weaker || !self.dones.contains(&harmless) {
                return unsaid("nobody said");
            }
            let open = |tried: &Tried| tried.kind == AttemptKind::Act && tried.is_open();
            let contested = self.dones.iter().any(|done| done.effect != Effect::Noop);
            // What the lease's end settled is not changed by a report that comes with it.
            let ended = change.has(Event::LeaseEnded) || change.has(Event::HolderGone);
            return if contested || ended || self.tried.iter().any(open) {
                Ok(())
            } else {
                unsaid("a proof was thrown away:")
            };
        }
        let seen = outcome
            .payload
            .is_some_and(|payload| world.saw(change.key, &payload.digest));
        if outcome.effect != Effect::Noop && !seen {
            return unsaid("nobody saw");
        }
        Ok(())
    }

    /// What is dead, or failed without an effect, was not applied since its last fresh start.
    pub(super) fn noop_means_not_applied(&mut self, change: &Committed<'_>) -> Checked {
        if !says_not_applied(change.after) || says_not_applied(change.before) {
            return Ok(());
        }
        if let Some(tried) = self.doubted().next() {
            let what = format!("nobody knows of fence {}", tried.fence.0);
            return broken(Invariant::DeadMeansNotApplied, what);
        }
        match self.tried.iter().find(|tried| self.surely_applied(tried)) {
            Some(tried) => {
                let what = format!("fence {} took effect", tried.fence.0);
                broken(Invariant::DeadMeansNotApplied, what)
            }
            None => Ok(()),
        }
    }

    /// Says whether an attempt took effect, since the last fresh start and by nobody's mistake.
    pub(super) fn surely_applied(&self, tried: &Tried) -> bool {
        let mistaken = tried.cleared == Some(Cleared::Hastily);
        tried.generation == self.generation && tried.effects > 0 && !mistaken
    }

    pub(super) fn starts_afresh(&mut self, change: &Committed<'_>) {
        let forgotten = change.has(Event::Forgotten) || change.has(Event::Dropped);
        if !forgotten && !change.has(Event::Retried) {
            return;
        }
        self.generation += 1;
        self.run += 1;
        self.forgets += u32::from(forgotten);
        self.licensed = false;
        self.loose = false;
        self.rejected = false;
        self.not_applied = false;
        self.dones.clear();
        if change.after.is_none() {
            // The last trace is gone, after two years: fences begin anew.
            self.highest = Fence(0);
            self.tried.clear();
        }
    }

    pub(super) fn fences_rise(&self, change: &Committed<'_>) -> Checked {
        match (change.before, change.after) {
            (Some(before), Some(after)) if after.fence() < before.fence() => {
                let what = format!("from {} to {}", before.fence().0, after.fence().0);
                broken(Invariant::FencesRise, what)
            }
            (_, Some(after)) if after.fence() < self.highest => {
                let what = format!("{} after {}", after.fence().0, self.highest.0);
                broken(Invariant::FencesRise, what)
            }
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    pub(super) fn key_means(&mut self, change: &Committed<'_>, tick: u64) {
        let meaning = |record: Option<&Record>| match record {
            Some(Record::Operation(operation)) => Some(operation.spec.fingerprint),
            Some(Record::Tombstone(tombstone)) => Some(tombstone.fingerprint),
            Some(Record::Stub(_) | Record::Breaker(_)) | None => None,
        };
        match (meaning(change.before), meaning(change.after)) {
            (None, Some(fingerprint)) => self.meanings.push(Meaning {
                fingerprint,
                until: None,
            }),
            (Some(_), None) => {
                if let Some(last) = self.meanings.last_mut() {
                    last.until = Some(tick);
                }
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

pub(super) fn nothing_open_is_purged(change: &Committed<'_>) -> Checked {
    let open = change
        .before
        .is_some_and(|record| record.kind().is_open() && !settled_by_evidence(record, change));
    let left = change.after.and_then(Record::operation).is_some();
    if open && !left {
        let kind = change.before.map(Record::kind);
        let what = format!("{} purged what was {kind:?}", change.entry.command.name());
        return broken(Invariant::NothingOpenPurged, what);
    }
    let retention = change.has(Event::Buried) || change.has(Event::Dropped);
    if retention && !change.retention_may_act {
        return broken(Invariant::NothingOpenPurged, "retention acted on one look");
    }
    let dropped = matches!(change.entry.command, Command::Drop(_));
    if change.before.is_some() && change.after.is_none() && !dropped {
        return broken(Invariant::NothingVanishes, "a record without a trace");
    }
    Ok(())
}

/// Says whether a record promises that the operation was not applied.
pub(super) fn says_not_applied(record: Option<&Record>) -> bool {
    let harmless = |outcome: Outcome| !outcome.ok && outcome.effect == Effect::Noop;
    record.map(Record::kind) == Some(StateKind::Dead) || outcome_of(record).is_some_and(harmless)
}

/// A lease that is over leaves an operation settled, if a `done` was kept meanwhile.
fn settled_by_evidence(record: &Record, change: &Committed<'_>) -> bool {
    let kept = record
        .operation()
        .is_some_and(|operation| matches!(operation.state, State::Running { evidence: Some(_) }));
    kept && running_at(Some(record), change.entry.at).is_none()
}
