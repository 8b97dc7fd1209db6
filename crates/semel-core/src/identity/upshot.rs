//! What has become of an operation, told from its record alone.

use crate::effect::Effect;
use crate::ledger::{Attempt, AttemptKind, Operation, State};
use crate::verdict::{Outcome, VerdictKind};

/// What has become of an operation so far, in the words of a door.
///
/// A record does not count those who got its outcome again, so nothing is said of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Upshot {
    /// It was carried out to its end, in success or failure.
    Executed,
    /// Nobody knew whether it took effect, until it was looked up or a person said so.
    Resolved,
    /// Nobody knows whether it took effect.
    InDoubt,
    /// It is being carried out.
    InProgress,
    /// It was tried or given up, and did not take effect.
    NotDone,
}

impl Upshot {
    /// Reads it from an operation as of now; `None` where the record does not tell.
    #[must_use]
    pub fn of(judged: &Operation) -> Option<Self> {
        let said_done = |attempt: &&Attempt| attempt.verdict == Some(VerdictKind::Done);
        let kind = |attempt: &Attempt| attempt.kind;
        // Those before the last may belong to an earlier start.
        let last = judged.attempts.last().filter(said_done).map(kind);
        let any = judged.attempts.iter().rev().find(said_done).map(kind);
        match &judged.state {
            State::Running { .. } => Some(Self::InProgress),
            State::Doubtful => Some(Self::InDoubt),
            State::Dead => Some(Self::NotDone),
            // One that was carried out before, and then given fresh attempts, may have had an effect.
            State::Pending => {
                let is_proved =
                    !judged.attempts.is_empty() && judged.open_since().is_none() && any.is_none();
                is_proved.then_some(Self::NotDone)
            }
            State::Succeeded(settled) | State::Failed(settled) => {
                let resolved = judged.resolved.as_ref();
                let by_order = resolved.is_some_and(|resolved| resolved.at == settled.at);
                match (last, any) {
                    (Some(AttemptKind::Act), _) => Some(Self::Executed),
                    (Some(AttemptKind::Probe), _) => Some(Self::Resolved),
                    (None, _) if by_order => Some(Self::Resolved),
                    // An attempt that was overtaken reported after all.
                    (None, Some(AttemptKind::Act)) => Some(Self::Executed),
                    (None, Some(AttemptKind::Probe)) => Some(Self::Resolved),
                    (None, None) => is_cancelled(&settled.outcome).then_some(Self::NotDone),
                }
            }
        }
    }

    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Resolved => "resolved",
            Self::InDoubt => "in_doubt",
            Self::InProgress => "in_progress",
            Self::NotDone => "not_done",
        }
    }
}

/// Says whether an outcome that no attempt brought is that of an operation which was cancelled.
fn is_cancelled(outcome: &Outcome) -> bool {
    !outcome.ok && outcome.effect == Effect::Noop
}
