//! What the rules answer.

use core::fmt;

use super::record::{AttemptKind, Fence, Record, State, StateKind};
use crate::breaker;
use crate::effect::Effect;
use crate::time::Timestamp;

/// What is to be done about a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Answer; nothing is stored.
    Answer(Reply),
    /// Store, and answer after it is durable.
    Write(Box<Write>),
}

/// What is to be stored, in one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The record from now on; `None` when there is none and only the log remembers, or when the
    /// last trace was dropped.
    pub next: Option<Record>,
    /// What happened, for the log.
    pub events: Vec<Event>,
    /// What the caller is told after the commit.
    pub reply: Reply,
    /// What the engine does after the commit; losing one may delay, never corrupt.
    pub after: Vec<Action>,
}

impl Write {
    /// Says whether it settles an operation that was not settled before: only then may an effect be
    /// committed together with it. A report that is merely kept, as evidence or as a contradiction, or
    /// that comes after another attempt's kept one, would let the effect happen beside another one.
    #[must_use]
    pub fn settles(&self, before: Option<&Record>) -> bool {
        let is_settled = |record: &Record| {
            let operation = record.operation();
            operation.is_some_and(|operation| operation.settled().is_some())
        };
        let has_evidence = |record: &Record| {
            let state = record.operation().map(|operation| &operation.state);
            matches!(state, Some(State::Running { evidence: Some(_) }))
        };
        let was_done = before.is_some_and(|record| is_settled(record) || has_evidence(record));
        let reported = matches!(self.reply, Reply::Reported(reported) if !reported.conflict);
        reported && !was_done && self.next.as_ref().is_some_and(is_settled)
    }
}

/// What the caller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The operation is known; `created` says whether it was not before.
    Submitted {
        /// Whether this command made it.
        created: bool,
    },
    /// The caller may act, or probe.
    Granted(Grant),
    /// The operation was settled before; the record holds the outcome.
    Replay,
    /// The lease was renewed.
    Renewed {
        /// Its new end.
        lease_until: Timestamp,
    },
    /// The report was taken; the record says what the operation came to.
    Reported(Reported),
    /// The operator's command was accepted.
    Ordered(Ordered),
    /// What a breaker was asked is so.
    Breaker(breaker::Reply),
    /// There was nothing to do.
    Kept,
    /// The command was refused, and the log remembers it.
    Refused(Rejection),
}

/// A permit's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To act or to probe.
    pub kind: AttemptKind,
    /// The fence of the attempt.
    pub fence: Fence,
    /// The number of the attempt.
    pub number: u32,
    /// Until when it may act.
    pub lease_until: Timestamp,
}

/// What came of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// The state that the operation is in now.
    pub state: StateKind,
    /// Whether the same was reported before.
    pub repeated: bool,
    /// Whether it came after the attempt's lease had ended, or settled what was open without it.
    pub late: bool,
    /// Whether it contradicts what is stored.
    pub conflict: bool,
}

/// What came of an operator's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// The state it led to.
    pub state: StateKind,
    /// Whether it is the exact repeat of the last accepted one.
    pub repeated: bool,
    /// What the attempts before a Retry did: `unknown` unless the failure proved `noop`.
    pub previous_effect: Option<Effect>,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The key was used with another fingerprint.
    KeyReused,
    /// Another attempt is running, or somebody else will carry the operation out.
    InFlight {
        /// When it is worth asking again.
        until: Option<Timestamp>,
    },
    /// Nobody knows whether the effect happened.
    InDoubt {
        /// Whether the doubt is about the caller's own attempt.
        own: bool,
        /// When a probe may look.
        probe_at: Option<Timestamp>,
    },
    /// Out of attempts, and not applied.
    Dead,
    /// Settled, and past its retention.
    Expired,
    /// The attempt or the version is not the present one.
    Fenced,
    /// The state does not allow the command.
    Refused {
        /// The state.
        state: StateKind,
    },
    /// There is no such operation.
    NotFound,
    /// The target is left alone.
    BreakerOpen {
        /// When a call may be tried; `None` when a person must close the breaker.
        retry_at: Option<Timestamp>,
    },
}

impl Rejection {
    /// Returns the stable code that users see.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::KeyReused => "key_reused",
            Self::InFlight { .. } => "in_flight",
            Self::InDoubt { .. } => "in_doubt",
            Self::Dead => "dead",
            Self::Expired => "expired",
            Self::Fenced | Self::Refused { .. } => "fenced",
            Self::NotFound => "not_found",
            Self::BreakerOpen { .. } => "breaker_open",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyReused => f.write_str("the key was first used with another name or input"),
            Self::InFlight { .. } => f.write_str("another attempt holds the operation"),
            Self::InDoubt { own: true, .. } => {
                f.write_str("nobody knows whether this very attempt took effect")
            }
            Self::InDoubt { own: false, .. } => {
                f.write_str("nobody knows whether an earlier attempt took effect")
            }
            Self::Dead => f.write_str("the operation is out of attempts and was not applied"),
            Self::Expired => {
                f.write_str("the operation was settled and its outcome is past its retention")
            }
            Self::Fenced => f.write_str("another attempt or another command came first"),
            Self::Refused { state } => {
                write!(
                    f,
                    "the operation is {}, which does not allow this",
                    state.as_str()
                )
            }
            Self::NotFound => f.write_str("there is no such operation"),
            Self::BreakerOpen { retry_at: Some(at) } => {
                write!(f, "the breaker is open; the next try is at {at}")
            }
            Self::BreakerOpen { retry_at: None } => {
                f.write_str("the breaker is open until somebody closes it")
            }
        }
    }
}

/// What happened, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The operation was submitted.
    Submitted,
    /// A queue was attached to it.
    QueueAttached,
    /// An attempt to act began.
    Begun,
    /// A probe began.
    ProbeBegun,
    /// A doubt was waived, so that another attempt could begin.
    DoubtWaived,
    /// A lease was renewed.
    Renewed,
    /// A lease ran out.
    LeaseEnded,
    /// A lease was ended because its holder is gone.
    HolderGone,
    /// The operation was settled.
    Settled,
    /// The operation was settled by a report that came late.
    SettledLate,
    /// A `done` of an older attempt was kept while a newer one runs.
    EvidenceKept,
    /// A report contradicts what is stored.
    Conflict,
    /// The operation waits for another attempt.
    Released,
    /// The operation is in doubt.
    Doubted,
    /// The operation is out of attempts.
    Died,
    /// An attempt's open mark was cleared.
    MarkCleared,
    /// A report fitted nothing and is only remembered here.
    Unplaced,
    /// A doubt was settled.
    Resolved,
    /// Fresh attempts were given.
    Retried,
    /// The operation was cancelled.
    Cancelled,
    /// The operation was erased.
    Forgotten,
    /// The operation became a tombstone.
    Buried,
    /// A tombstone became a stub, or a stub was dropped.
    Dropped,
    /// The delivery mark was set.
    Delivered,
    /// The record was adopted.
    Adopted,
    /// A breaker counted calls.
    BreakerCounted,
    /// A breaker opened.
    BreakerOpened,
    /// A breaker lets one call through.
    BreakerHalfOpen,
    /// The call that goes through goes on.
    BreakerProbeRenewed,
    /// The call that was to go through does not: another one may.
    BreakerProbeReturned,
    /// A breaker closed.
    BreakerClosed,
    /// A breaker was closed, and what it had counted forgotten.
    BreakerReset,
}

impl Event {
    /// All events, in the order of their codes.
    pub const ALL: [Self; 32] = [
        Self::Submitted,
        Self::QueueAttached,
        Self::Begun,
        Self::ProbeBegun,
        Self::DoubtWaived,
        Self::Renewed,
        Self::LeaseEnded,
        Self::HolderGone,
        Self::Settled,
        Self::SettledLate,
        Self::EvidenceKept,
        Self::Conflict,
        Self::Released,
        Self::Doubted,
        Self::Died,
        Self::MarkCleared,
        Self::Unplaced,
        Self::Resolved,
        Self::Retried,
        Self::Cancelled,
        Self::Forgotten,
        Self::Buried,
        Self::Dropped,
        Self::Delivered,
        Self::Adopted,
        Self::BreakerCounted,
        Self::BreakerOpened,
        Self::BreakerHalfOpen,
        Self::BreakerProbeRenewed,
        Self::BreakerProbeReturned,
        Self::BreakerClosed,
        Self::BreakerReset,
    ];

    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::QueueAttached => "queue_attached",
            Self::Begun => "begun",
            Self::ProbeBegun => "probe_begun",
            Self::DoubtWaived => "doubt_waived",
            Self::Renewed => "renewed",
            Self::LeaseEnded => "lease_ended",
            Self::HolderGone => "holder_gone",
            Self::Settled => "settled",
            Self::SettledLate => "settled_late",
            Self::EvidenceKept => "evidence_kept",
            Self::Conflict => "conflict",
            Self::Released => "released",
            Self::Doubted => "doubted",
            Self::Died => "died",
            Self::MarkCleared => "mark_cleared",
            Self::Unplaced => "unplaced",
            Self::Resolved => "resolved",
            Self::Retried => "retried",
            Self::Cancelled => "cancelled",
            Self::Forgotten => "forgotten",
            Self::Buried => "buried",
            Self::Dropped => "dropped",
            Self::Delivered => "delivered",
            Self::Adopted => "adopted",
            Self::BreakerCounted => "breaker_counted",
            Self::BreakerOpened => "breaker_opened",
            Self::BreakerHalfOpen => "breaker_half_open",
            Self::BreakerProbeRenewed => "breaker_probe_renewed",
            Self::BreakerProbeReturned => "breaker_probe_returned",
            Self::BreakerClosed => "breaker_closed",
            Self::BreakerReset => "breaker_reset",
        }
    }

    /// Returns the number that stands for this event in stored bytes.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Submitted => 0,
            Self::QueueAttached => 1,
            Self::Begun => 2,
            Self::ProbeBegun => 3,
            Self::DoubtWaived => 4,
            Self::Renewed => 5,
            Self::LeaseEnded => 6,
            Self::HolderGone => 7,
            Self::Settled => 8,
            Self::SettledLate => 9,
            Self::EvidenceKept => 10,
            Self::Conflict => 11,
            Self::Released => 12,
            Self::Doubted => 13,
            Self::Died => 14,
            Self::MarkCleared => 15,
            Self::Unplaced => 16,
            Self::Resolved => 17,
            Self::Retried => 18,
            Self::Cancelled => 19,
            Self::Forgotten => 20,
            Self::Buried => 21,
            Self::Dropped => 22,
            Self::Delivered => 23,
            Self::Adopted => 24,
            Self::BreakerCounted => 25,
            Self::BreakerOpened => 26,
            Self::BreakerHalfOpen => 27,
            Self::BreakerProbeRenewed => 28,
            Self::BreakerProbeReturned => 29,
            Self::BreakerClosed => 30,
            Self::BreakerReset => 31,
        }
    }

    /// Says whether it happens to breakers only, and never to an operation.
    #[must_use]
    pub const fn is_of_breakers(self) -> bool {
        self.code() >= Self::BreakerCounted.code()
    }

    /// Reads the number that stands for an event in stored bytes.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// What the engine does after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Wakes those who wait for this operation.
    Wake,
    /// Looks at this operation again then.
    LookAgain(Timestamp),
}
