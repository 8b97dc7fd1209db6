//! Who may say what about an attempt: its holder, a probe, an operator.

use semel::core::{Verdict, VerdictKind};
use semel_core::ledger::{
    AttemptKind, Event, Record, Renew, Resolution, Resolve, Settle, StateKind,
};

use super::keylog::{Cleared, KeyLog};
use super::{Checked, Committed, Invariant, broken, outcome_of, running_at};
use crate::sim::operator::HASTY;
use crate::sim::world::Upstream;

impl KeyLog {
    pub(super) fn reported(
        &mut self,
        change: &Committed<'_>,
        settle: &Settle,
        disturbances: u32,
    ) -> Checked {
        let fence = settle.fence;
        let moved = moved(change);
        if let Some(alive) = running_at(change.before, change.entry.at)
            && alive.0 != fence
            && running_at(change.after, change.entry.at) != Some(alive)
        {
            let what = format!("fence {} decided about {}", fence.0, alive.0.0);
            return broken(Invariant::OnlyItsFence, what);
        }
        let forgets = self.forgets;
        let tried = self.tried.iter_mut().find(|tried| {
            tried.fence == fence && tried.id == settle.attempt && tried.forgets == forgets
        });
        let Some(tried) = tried else {
            return if moved {
                broken(Invariant::OnlyItsFence, "a stranger's report was taken")
            } else {
                Ok(())
            };
        };
        let first = tried.spoken.is_none();
        match &settle.verdict {
            Verdict::Unknown { .. } => {
                let own = change.before.is_some_and(|record| record.fence() == fence);
                if moved && !own {
                    return broken(Invariant::OnlyItsFence, "an old `unknown` was taken");
                }
                return Ok(());
            }
            Verdict::Done(_) | Verdict::NotDone { .. } if !first => {
                return if moved {
                    let what = format!("fence {} spoke twice", fence.0);
                    broken(Invariant::FirstVerdictFinal, what)
                } else {
                    Ok(())
                };
            }
            Verdict::Done(outcome) => {
                tried.spoken = Some(VerdictKind::Done);
                tried.reported_done = true;
                let kept = [Event::Settled, Event::SettledLate, Event::EvidenceKept];
                if kept.into_iter().any(|event| change.has(event)) {
                    self.dones.push(*outcome);
                }
            }
            Verdict::NotDone { reject, .. } => {
                tried.spoken = Some(VerdictKind::NotDone);
                // An older attempt's report decides nothing but what becomes of its mark.
                let decides = !change.has(Event::MarkCleared) && moved;
                self.rejected |= *reject && decides;
                if tried.effects > 0 {
                    let what = format!("fence {} acted and said not_done", fence.0);
                    return broken(Invariant::NotDoneIsTrue, what);
                }
                let released = change.has(Event::Released) || change.has(Event::Died);
                let own_word = !change.has(Event::MarkCleared);
                if tried.kind == AttemptKind::Probe && released && own_word {
                    return self.probed(disturbances);
                }
            }
        }
        Ok(())
    }

    /// A probe found nothing: whatever was in doubt did not happen, if it could no longer act.
    fn probed(&mut self, disturbances: u32) -> Checked {
        let now = (disturbances, self.adoptions);
        let fenced = self.upstream == Upstream::Fenced;
        let sure = fenced || self.doubted().all(|tried| tried.disturbances.0 == now.0);
        self.clear(if sure {
            Cleared::Surely
        } else {
            Cleared::Hastily
        })
    }

    fn clear(&mut self, cleared: Cleared) -> Checked {
        let mut wrong = None;
        for tried in self.doubted() {
            tried.cleared = Some(cleared);
            if tried.effects > 0 {
                wrong = Some(tried.fence);
            }
        }
        match (cleared, wrong) {
            (Cleared::Surely, Some(fence)) => {
                let what = format!("fence {} acted and was said not to have", fence.0);
                return broken(Invariant::NotDoneIsTrue, what);
            }
            (Cleared::Hastily, _) => {
                self.licensed = true;
                self.loose = true;
            }
            (Cleared::Surely, None) => {}
        }
        Ok(())
    }

    pub(super) fn resolved(&mut self, change: &Committed<'_>, resolve: &Resolve) -> Checked {
        match resolve.resolution {
            Resolution::Done(outcome) => {
                self.dones.push(outcome);
                Ok(())
            }
            Resolution::NotDone => {
                let hasty = resolve.order.by.as_str() == HASTY;
                let licensed = self.licensed;
                self.clear(if hasty {
                    Cleared::Hastily
                } else {
                    Cleared::Surely
                })?;
                // An operation that waits for its next attempt needs no permission for it.
                if change.before.map(Record::kind) == Some(StateKind::Pending) {
                    self.licensed = licensed;
                }
                Ok(())
            }
        }
    }
}

/// Says whether the operation stands elsewhere now, by more than the end of a lease.
fn moved(change: &Committed<'_>) -> bool {
    let stands = |record: Option<&Record>| (record.map(Record::kind), outcome_of(record));
    stands(change.before) != stands(change.after) && !change.has(Event::LeaseEnded)
}

pub(super) fn renewed(change: &Committed<'_>, renew: &Renew) -> Checked {
    let alive = running_at(change.before, change.entry.at).map(|(fence, _)| fence);
    let operation = change.before.and_then(Record::operation);
    let own = operation.and_then(|operation| operation.latest());
    if alive == Some(renew.fence) && own.is_some_and(|own| own.id == renew.attempt) {
        Ok(())
    } else {
        let what = format!("fence {} renewed while {alive:?} is alive", renew.fence.0);
        broken(Invariant::OnlyItsFence, what)
    }
}
