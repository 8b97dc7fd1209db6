//! Planted bugs: a simulator that cannot fail proves nothing, so each of these must be caught.

mod rules;

use semel::Rules;
use semel_core::ledger::decide;

use super::checker::Invariant;

/// One planted bug. Rules are broken by wrapping `decide`, the store in `shelf.rs` and `store.rs`,
/// agents and operators where they act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// Rules: a report or renewal counts for whichever attempt is the latest.
    FenceUnchecked,
    /// Rules: an operator's command is taken on any version.
    OrderWithoutVersion,
    /// Rules: a `done` that comes after the lease is refused.
    LateDoneRefused,
    /// Rules: an attempt may give a second definite verdict.
    SettleAcceptedTwice,
    /// Rules: a forgotten key begins its fences anew.
    FenceRestartsAfterForget,
    /// Rules: the end of a lease frees the key.
    DoubtIsRerun,
    /// Rules: a waived doubt leaves no trace in the log.
    WaiverNotLogged,
    /// Rules: an older attempt's `done` is thrown away while a newer one runs.
    EvidenceDropped,
    /// Rules: a lease that has ended can be renewed.
    LapsedLeaseRenewed,
    /// Rules: `unknown` counts as `not_done`, so that a dropped permit frees the key.
    UnknownIsNotDone,
    /// Rules: out of attempts is dead, even when an earlier attempt is open.
    DeadDespiteDoubt,
    /// Rules: a failure that changed nothing is told as `noop`, even when another attempt is open.
    NoopDespiteDoubt,
    /// Rules: an operation that was rejected while another attempt was open is tried again.
    RejectionForgotten,
    /// Rules: a probe need not wait for the doubted lease and the world to settle.
    ProbeTooEarly,
    /// Rules: a running attempt does not keep another one from beginning.
    GrantWhileRunning,
    /// Rules: a failed operation runs again without a Retry.
    FailureIsRerun,
    /// Rules: a later report overwrites a settled outcome.
    ConflictOverwrites,
    /// Rules: retention buries what is not settled.
    OpenIsBuried,
    /// Rules: an operator can forget what is in doubt.
    DoubtIsForgotten,
    /// Rules: a key with another input is answered like the first.
    InputUncompared,
    /// Rules: a settled operation past its retention runs again.
    TombstoneRunsAgain,
    /// Rules: a running attempt's `not_done` or `unknown` counts for more than the `done` that was
    /// kept as evidence meanwhile.
    EvidenceOverruled,
    /// Rules: the exact repeat of an operator's command is carried out again.
    OrderRepeated,
    /// Rules: a forgotten operation leaves nothing behind, not even its fence.
    ForgetLeavesNothing,
    /// Store: a change is written whatever is stored by then.
    VersionUnchecked,
    /// Store: the end of a lease is written whatever is stored by then.
    LeaseEndUnchecked,
    /// Store: a claim on an absent key is written although another one was first.
    InsertUnchecked,
    /// Store: a claim is acknowledged before it is on the disk.
    ClaimNotDurable,
    /// Store: a report is acknowledged and not written.
    SettleLostAfterAck,
    /// Store: an older record is served as the present one.
    StaleRead,
    /// Store: a record is changed without a log entry.
    LogEntryLost,
    /// Store: a settled record disappears.
    RecordVanishes,
    /// Store: a payload is not written.
    PayloadLost,
    /// Store: what is erased is still there.
    PayloadNotErased,
    /// Store: a child begins although its parent changed.
    ParentUnguarded,
    /// Store: leases are judged by a wall clock that jumps.
    WallClockBelieved,
    /// Agent: a process that restarts uses its attempt ids again.
    AttemptIdReused,
    /// Agent: whoever is told to wait acts all the same.
    LoserExecutes,
    /// Agent: whoever meets a doubt acts all the same.
    DoubtIgnored,
    /// Agent: a claim whose fate the store does not know counts as granted.
    FailedClaimExecutes,
    /// Agent: an effect is started after the permit's deadline.
    EffectAfterDeadline,
    /// Agent: the caller is told what the action answered, whatever the ledger says.
    AnswersFromMemory,
    /// Agent: a lost reply is reported as `not_done`.
    LostReplyIsNotDone,
    /// Agent: a probe acts instead of looking.
    ProbeActs,
    /// Agent: a probe reports `not_done` without looking.
    ProbeDoesNotLook,
    /// Operator: a doubt is resolved without looking.
    ResolvedWithoutLooking,
    /// Operator: retention acts on what one look at the clock says.
    RetentionOnOneLook,
}

impl Bug {
    /// Every planted bug.
    pub const ALL: [Self; 47] = [
        Self::FenceUnchecked,
        Self::OrderWithoutVersion,
        Self::LateDoneRefused,
        Self::SettleAcceptedTwice,
        Self::FenceRestartsAfterForget,
        Self::DoubtIsRerun,
        Self::WaiverNotLogged,
        Self::EvidenceDropped,
        Self::LapsedLeaseRenewed,
        Self::UnknownIsNotDone,
        Self::DeadDespiteDoubt,
        Self::NoopDespiteDoubt,
        Self::RejectionForgotten,
        Self::ProbeTooEarly,
        Self::GrantWhileRunning,
        Self::FailureIsRerun,
        Self::ConflictOverwrites,
        Self::OpenIsBuried,
        Self::DoubtIsForgotten,
        Self::InputUncompared,
        Self::TombstoneRunsAgain,
        Self::EvidenceOverruled,
        Self::OrderRepeated,
        Self::ForgetLeavesNothing,
        Self::VersionUnchecked,
        Self::LeaseEndUnchecked,
        Self::InsertUnchecked,
        Self::ClaimNotDurable,
        Self::SettleLostAfterAck,
        Self::StaleRead,
        Self::LogEntryLost,
        Self::RecordVanishes,
        Self::PayloadLost,
        Self::PayloadNotErased,
        Self::ParentUnguarded,
        Self::WallClockBelieved,
        Self::AttemptIdReused,
        Self::LoserExecutes,
        Self::DoubtIgnored,
        Self::FailedClaimExecutes,
        Self::EffectAfterDeadline,
        Self::AnswersFromMemory,
        Self::LostReplyIsNotDone,
        Self::ProbeActs,
        Self::ProbeDoesNotLook,
        Self::ResolvedWithoutLooking,
        Self::RetentionOnOneLook,
    ];

    /// Returns the bug of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|bug| format!("{bug:?}") == name)
    }

    /// Returns the rules that a history with this bug follows.
    pub(crate) fn rules(self) -> Rules {
        match self {
            Self::FenceUnchecked => rules::fence_unchecked,
            Self::OrderWithoutVersion => rules::order_without_version,
            Self::LateDoneRefused => rules::late_done_refused,
            Self::SettleAcceptedTwice => rules::settle_accepted_twice,
            Self::FenceRestartsAfterForget => rules::fence_restarts_after_forget,
            Self::DoubtIsRerun => rules::doubt_is_rerun,
            Self::WaiverNotLogged => rules::waiver_not_logged,
            Self::EvidenceDropped => rules::evidence_dropped,
            Self::LapsedLeaseRenewed => rules::lapsed_lease_renewed,
            Self::UnknownIsNotDone => rules::unknown_is_not_done,
            Self::DeadDespiteDoubt => rules::dead_despite_doubt,
            Self::NoopDespiteDoubt => rules::noop_despite_doubt,
            Self::RejectionForgotten => rules::rejection_forgotten,
            Self::ProbeTooEarly => rules::probe_too_early,
            Self::GrantWhileRunning => rules::grant_while_running,
            Self::FailureIsRerun => rules::failure_is_rerun,
            Self::ConflictOverwrites => rules::conflict_overwrites,
            Self::OpenIsBuried => rules::open_is_buried,
            Self::DoubtIsForgotten => rules::doubt_is_forgotten,
            Self::InputUncompared => rules::input_uncompared,
            Self::TombstoneRunsAgain => rules::tombstone_runs_again,
            Self::EvidenceOverruled => rules::evidence_overruled,
            Self::OrderRepeated => rules::order_repeated,
            Self::ForgetLeavesNothing => rules::forget_leaves_nothing,
            Self::VersionUnchecked
            | Self::LeaseEndUnchecked
            | Self::InsertUnchecked
            | Self::ClaimNotDurable
            | Self::SettleLostAfterAck
            | Self::StaleRead
            | Self::LogEntryLost
            | Self::RecordVanishes
            | Self::PayloadLost
            | Self::PayloadNotErased
            | Self::RetentionOnOneLook
            | Self::ParentUnguarded
            | Self::WallClockBelieved
            | Self::AttemptIdReused
            | Self::LoserExecutes
            | Self::DoubtIgnored
            | Self::FailedClaimExecutes
            | Self::EffectAfterDeadline
            | Self::AnswersFromMemory
            | Self::LostReplyIsNotDone
            | Self::ProbeActs
            | Self::ProbeDoesNotLook
            | Self::ResolvedWithoutLooking => decide,
        }
    }

    /// Returns the invariants by which this bug shows; each of them must catch it.
    #[must_use]
    pub const fn breaks(self) -> &'static [Invariant] {
        match self {
            Self::AttemptIdReused => &[Invariant::AtMostOnce],
            Self::DoubtIsRerun
            | Self::WaiverNotLogged
            | Self::UnknownIsNotDone
            | Self::RejectionForgotten => &[Invariant::ClaimLicensed],
            Self::ClaimNotDurable => &[Invariant::ClaimBeforeEffect],
            Self::SettleLostAfterAck | Self::AnswersFromMemory => &[Invariant::ToldIsStored],
            Self::FenceUnchecked | Self::LapsedLeaseRenewed => &[Invariant::OnlyItsFence],
            Self::FenceRestartsAfterForget | Self::InsertUnchecked => &[Invariant::FencesRise],
            Self::StaleRead => &[
                Invariant::AnswerWasRead,
                Invariant::SameOutcome,
                Invariant::Progress,
            ],
            Self::OpenIsBuried | Self::DoubtIsForgotten | Self::RetentionOnOneLook => {
                &[Invariant::NothingOpenPurged]
            }
            Self::PayloadNotErased => &[Invariant::NothingLingers],
            Self::ForgetLeavesNothing | Self::PayloadLost => &[Invariant::NothingVanishes],
            Self::VersionUnchecked
            | Self::LeaseEndUnchecked
            | Self::LogEntryLost
            | Self::RecordVanishes => &[Invariant::LogIsState],
            Self::LoserExecutes
            | Self::DoubtIgnored
            | Self::FailedClaimExecutes
            | Self::ProbeActs => &[Invariant::LosersWait],
            Self::FailureIsRerun | Self::TombstoneRunsAgain | Self::EvidenceOverruled => {
                &[Invariant::NoGrantAfterDone]
            }
            Self::GrantWhileRunning | Self::WallClockBelieved | Self::EffectAfterDeadline => {
                &[Invariant::OneLease]
            }
            Self::SettleAcceptedTwice => &[Invariant::FirstVerdictFinal],
            Self::LateDoneRefused | Self::EvidenceDropped => &[Invariant::LateDoneKept],
            Self::DeadDespiteDoubt | Self::NoopDespiteDoubt => &[Invariant::DeadMeansNotApplied],
            Self::ParentUnguarded => &[Invariant::ChildNeedsParent],
            Self::ConflictOverwrites => &[Invariant::RecordIsTrue],
            Self::OrderWithoutVersion
            | Self::OrderRepeated
            | Self::ProbeTooEarly
            | Self::LostReplyIsNotDone
            | Self::ProbeDoesNotLook
            | Self::ResolvedWithoutLooking => &[Invariant::NotDoneIsTrue],
            Self::InputUncompared => &[Invariant::KeyMeansOneThing],
        }
    }
}
