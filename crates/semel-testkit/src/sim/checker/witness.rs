//! What the world saw and what callers were told, held against the log.

use semel::core::VerdictKind;
use semel::{Effect, Fingerprint, Timestamp};
use semel_core::ledger::{AttemptKind, Command, Fence, Record};

use super::keylog::{Cleared, KeyLog, Tried};
use super::{Checked, Invariant, Told, broken, outcome_of, running_at};
use crate::sim::shelf::Shelf;

impl KeyLog {
    pub(super) fn started(
        &mut self,
        fence: Option<Fence>,
        record: Option<&Record>,
        now: Timestamp,
        disturbances: u32,
    ) -> Checked {
        let Some(fence) = fence else {
            return broken(Invariant::LosersWait, "acts without a permit");
        };
        let adoptions = self.adoptions;
        let Some(tried) = self.tried.iter_mut().rev().find(|t| t.fence == fence) else {
            let what = format!("acts with fence {}, which the log does not know", fence.0);
            return broken(Invariant::ClaimBeforeEffect, what);
        };
        tried.started = true;
        if tried.kind == AttemptKind::Probe {
            return broken(Invariant::LosersWait, "a probe acts");
        }
        let disturbed = tried.disturbances != (disturbances, adoptions);
        let running = running_at(record, now).map(|(fence, _)| fence);
        if running != Some(fence) && !disturbed {
            let what = format!("fence {} acts while the ledger counts {running:?}", fence.0);
            return broken(Invariant::OneLease, what);
        }
        Ok(())
    }

    pub(super) fn happened(&mut self, fence: Option<Fence>) -> Checked {
        let Some(fence) = fence else {
            return broken(Invariant::LosersWait, "an effect without a permit");
        };
        let Some(tried) = self.tried.iter_mut().rev().find(|t| t.fence == fence) else {
            let what = format!("an effect with unknown fence {}", fence.0);
            return broken(Invariant::ClaimBeforeEffect, what);
        };
        tried.effects += 1;
        if tried.spoken == Some(VerdictKind::NotDone) || tried.cleared == Some(Cleared::Surely) {
            let what = format!("fence {} acted after it was said not to", fence.0);
            return broken(Invariant::NotDoneIsTrue, what);
        }
        let run = tried.run;
        let mut by_it = self.tried.iter().filter(|tried| tried.fence == fence);
        if self.not_applied && by_it.any(|tried| self.surely_applied(tried)) {
            let what = format!("fence {} took effect after all", fence.0);
            return broken(Invariant::DeadMeansNotApplied, what);
        }
        let of_this = |tried: &&Tried| tried.run == run;
        let effects: u32 = self.tried.iter().filter(of_this).map(|t| t.effects).sum();
        if effects > 1 {
            let what = format!("effect {effects} of one run, by fence {}", fence.0);
            return broken(Invariant::AtMostOnce, what);
        }
        Ok(())
    }

    pub(super) fn told(&self, since: u64, told: Told) -> Checked {
        let mut alike = self
            .settlements
            .iter()
            .filter(|s| s.told == told)
            .peekable();
        if alike.peek().is_none() {
            let what = format!("told {told:?}, which the log never held");
            return broken(Invariant::ToldIsStored, what);
        }
        if alike.any(|settlement| settlement.until.is_none_or(|until| until > since)) {
            Ok(())
        } else {
            let what = format!("told {told:?}, which was over before the call");
            broken(Invariant::AnswerWasRead, what)
        }
    }

    pub(super) fn admitted(&self, since: u64, meaning: Fingerprint) -> Checked {
        let meant = self.meanings.iter().any(|known| {
            known.fingerprint == meaning && known.until.is_none_or(|until| until > since)
        });
        if meant {
            Ok(())
        } else {
            broken(Invariant::KeyMeansOneThing, "answered for another input")
        }
    }

    pub(super) fn refused_done(&self, fence: Fence) -> Checked {
        let lost = self.tried.iter().any(|tried| {
            tried.fence == fence
                && tried.forgets == self.forgets
                && tried.spoken.is_none()
                && !tried.reported_done
        });
        if lost {
            let what = format!("the done of fence {} left no trace", fence.0);
            broken(Invariant::LateDoneKept, what)
        } else {
            Ok(())
        }
    }

    pub(super) fn open_attempts(&self) -> Vec<Fence> {
        let open = self.tried.iter().filter(|tried| {
            tried.kind == AttemptKind::Act && tried.is_open() && tried.forgets == self.forgets
        });
        open.map(|tried| tried.fence).collect()
    }

    pub(super) fn latest_holder(&self) -> Option<(Fence, usize)> {
        self.tried.last().map(|tried| (tried.fence, tried.process))
    }

    /// Whoever acted did so on a claim that the log still holds.
    pub(super) fn claims_are_in(&self, shelf: &Shelf) -> Checked {
        for tried in self.tried.iter().filter(|tried| tried.started) {
            let held = shelf.log.iter().any(|logged| {
                matches!(&logged.entry.command, Command::Begin(begin) if begin.attempt == tried.id)
                    && logged.entry.fence == tried.fence
            });
            if !held {
                let what = format!("the claim with fence {} was lost", tried.fence.0);
                return broken(Invariant::ClaimBeforeEffect, what);
            }
        }
        Ok(())
    }

    pub(super) fn nothing_lost(&self, record: Option<&Record>) -> Checked {
        let happened = self
            .tried
            .iter()
            .any(|tried| tried.generation == self.generation && tried.effects > 0);
        let known = record.is_some_and(|record| match record {
            Record::Operation(operation) => {
                outcome_of(Some(record)).is_some_and(|outcome| outcome.effect != Effect::Noop)
                    || operation.open_since().is_some()
            }
            Record::Tombstone(tombstone) => tombstone.effect != Effect::Noop,
            Record::Stub(_) | Record::Breaker(_) => false,
        });
        if happened && !known && !self.loose {
            return broken(Invariant::RecordIsTrue, "an effect that nobody knows of");
        }
        Ok(())
    }
}
