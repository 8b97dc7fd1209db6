//! What is stored of a breaker.

use super::settings::Settings;
use super::window::Window;
use crate::digest::{Digest, KeyHash};
use crate::ledger::{Fence, Version};
use crate::text::{AttemptId, Key, Label, Namespace, Note};
use crate::time::Timestamp;

/// The breaker of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// The wall behind which its name lives.
    pub namespace: Namespace,
    /// What people call it.
    pub name: Key,
    /// How many commands were accepted.
    pub version: Version,
    /// Counts the changes of its phase: what was begun before one says nothing after it.
    pub fence: Fence,
    /// When the first command was accepted.
    pub created_at: Timestamp,
    /// When its phase changed last.
    pub since: Timestamp,
    /// The thresholds that the last command brought.
    pub settings: Settings,
    /// Where it stands.
    pub phase: Phase,
    /// The hash of the last accepted order, so that its repeat changes nothing.
    pub last_order: Option<Digest>,
}

/// Where a breaker stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Calls go through and are counted.
    Closed(Window),
    /// Nothing goes through.
    Open(Open),
    /// One call goes through, to find out whether the target is back.
    HalfOpen(Probe),
}

/// See [`Phase::Open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// From then on a probe may go through; `None` when only a person closes it.
    pub until: Option<Timestamp>,
    /// How often it opened without having been closed.
    pub times: u32,
    /// The person who opened it, if one did.
    pub forced: Option<Forced>,
}

/// A person who opened a breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    /// Who.
    pub by: Label,
    /// Why.
    pub note: Option<Note>,
}

/// See [`Phase::HalfOpen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who probes.
    pub id: AttemptId,
    /// Until when nobody else does, unless the holder says that it is alive.
    pub until: Timestamp,
    /// How often the breaker opened without having been closed.
    pub times: u32,
}

/// A phase without its details, as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseKind {
    /// See [`Phase::Closed`].
    Closed,
    /// See [`Phase::Open`].
    Open,
    /// See [`Phase::HalfOpen`].
    HalfOpen,
}

impl PhaseKind {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl Breaker {
    /// Returns the hash by which a store finds the breaker of this name.
    #[must_use]
    pub fn hash_of(namespace: &Namespace, name: &Key) -> KeyHash {
        // A namespace is not empty and has no NUL in it, so that no key of an operation is hashed from such bytes.
        KeyHash(Digest::of_parts(&[
            b"\0semel-breaker\0",
            namespace.as_str().as_bytes(),
            b"\0",
            name.as_str().as_bytes(),
        ]))
    }

    /// Returns the phase without its details.
    #[must_use]
    pub const fn kind(&self) -> PhaseKind {
        match self.phase {
            Phase::Closed(_) => PhaseKind::Closed,
            Phase::Open(_) => PhaseKind::Open,
            Phase::HalfOpen(_) => PhaseKind::HalfOpen,
        }
    }

    /// Returns when a call may be tried that is refused now; `None` when none is, or only a person can tell.
    #[must_use]
    pub const fn next_try(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Closed(_) => None,
            Phase::Open(open) => open.until,
            Phase::HalfOpen(probe) => Some(probe.until),
        }
    }

    /// Says whether the end of a wait has come. A clock that went back by more than the whole wait is not believed, as
    /// the breaker would stay shut for as long as the clock was wrong.
    #[must_use]
    pub(super) fn is_over(&self, until: Timestamp, now: Timestamp) -> bool {
        let wait = until.since(self.since);
        now >= until || now.plus(wait) < self.since
    }
}
