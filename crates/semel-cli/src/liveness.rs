//! Whether the process behind an attempt may still act.

use semel::core::ledger::{Attempt, AttemptKind, Operation};
use semel::holder::{Presence, presence};
use semel::{Timestamp, span};

/// Names a holder and says whether its process is there, or what it started.
pub(crate) fn holder(attempt: &Attempt, held: bool) -> String {
    match &attempt.holder {
        None => "unknown".to_owned(),
        Some(holder) => {
            let seen = match presence(holder) {
                Presence::Alive => "alive",
                Presence::Gone | Presence::Unseen if held => "what it started is alive",
                Presence::Gone => "gone",
                Presence::Unseen => "cannot be seen from here",
            };
            format!("{}, pid {} ({seen})", holder.host, holder.pid)
        }
    }
}

/// Says when a lease ends or ended.
pub(crate) fn lease(attempt: &Attempt, now: Timestamp) -> String {
    let until = attempt.lease_until;
    if until > now {
        format!("its lease ends in {}", span(until.since(now)))
    } else {
        format!("its lease ended {} ago", span(now.since(until)))
    }
}

/// Returns the attempts whose holders may still act: they have not spoken, nobody has resolved them,
/// and either their lease is not over or their process is alive.
pub(crate) fn may_act(
    operation: &Operation,
    now: Timestamp,
    held: impl Fn(&Attempt) -> bool,
) -> Vec<&Attempt> {
    let silent = operation.attempts.iter().filter(|attempt| {
        let running = attempt.ended_at.is_none();
        attempt.verdict.is_none() && (attempt.open || running) && attempt.kind == AttemptKind::Act
    });
    silent
        .filter(|attempt| match attempt.holder.as_ref().map(presence) {
            Some(Presence::Alive) => true,
            Some(Presence::Gone) => held(attempt),
            Some(Presence::Unseen) | None => attempt.lease_until > now || held(attempt),
        })
        .collect()
}
