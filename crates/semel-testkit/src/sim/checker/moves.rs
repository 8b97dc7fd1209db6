//! Where an operation may go: outcomes stay, fences rise, and nothing that matters is purged.

use semel::Effect;
use semel_core::ledger::{Command, Event, Fence, Record, State, StateKind};

use super::keylog::{KeyLog, Meaning, Settlement, Tried};
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
                if !change.has(Event::Cancelled) && !self.dones.contains(&outcome) {
                    return broken(Invariant::RecordIsTrue, format!("nobody said {outcome:?}"));
                }
                let seen = outcome
                    .payload
                    .is_some_and(|payload| world.saw(change.key, &payload.digest));
                if outcome.effect != Effect::Noop && !seen {
                    return broken(Invariant::RecordIsTrue, format!("nobody saw {outcome:?}"));
                }
                self.settlements.push(Settlement {
                    told: Told::of(&outcome),
                    at: change.now,
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

    pub(super) fn noop_means_not_applied(&mut self, change: &Committed<'_>) -> Checked {
        let dies = change.after.map(Record::kind) == Some(StateKind::Dead)
            && change.before.map(Record::kind) != Some(StateKind::Dead);
        if !dies && !change.has(Event::Cancelled) {
            return Ok(());
        }
        let open = self.doubted().next().map(|tried| tried.fence);
        let generation = self.generation;
        let of_this = |tried: &&Tried| tried.generation == generation;
        let effects: u32 = self.tried.iter().filter(of_this).map(|t| t.effects).sum();
        match open {
            Some(fence) => {
                let what = format!("nobody knows of fence {}", fence.0);
                broken(Invariant::DeadMeansNotApplied, what)
            }
            None if effects > 0 && !self.loose => {
                broken(Invariant::DeadMeansNotApplied, "it took effect")
            }
            None => Ok(()),
        }
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
        self.conflict = false;
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
            Some(Record::Stub(_)) | None => None,
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

/// A lease that is over leaves an operation settled, if a `done` was kept meanwhile.
fn settled_by_evidence(record: &Record, change: &Committed<'_>) -> bool {
    let kept = record
        .operation()
        .is_some_and(|operation| matches!(operation.state, State::Running { evidence: Some(_) }));
    kept && running_at(Some(record), change.entry.at).is_none()
}
