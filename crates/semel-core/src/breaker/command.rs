//! What can be asked of a breaker, and what is answered.

use core::time::Duration;

use super::record::{Breaker, PhaseKind};
use super::settings::Settings;
use super::window::Window;
use crate::digest::KeyHash;
use crate::ledger::Fence;
use crate::text::{AttemptId, Key, Label, Namespace, Note};
use crate::time::{Lease, Timestamp};

/// One thing asked of one breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The wall behind which its name lives.
    pub namespace: Namespace,
    /// What people call it.
    pub name: Key,
    /// The thresholds of whoever asks.
    pub settings: Settings,
    /// What is asked.
    pub act: Act,
}

/// See [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// May the target be called?
    Admit(Admit),
    /// This became of calls.
    Report(Report),
    /// Let nothing through, for this long, or until somebody closes it.
    Open(Order, Option<Duration>),
    /// Let calls through again.
    Close(Order),
    /// Let calls through again, and forget what became of those before.
    Reset(Order),
}

/// See [`Act::Admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit {
    /// Who asks, made for one call: should it be the probe, this tells its report from others'.
    pub id: AttemptId,
    /// How long it may be silent as the probe.
    pub lease: Lease,
}

/// See [`Act::Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The fence with which the calls were admitted.
    pub fence: Fence,
    /// Who probed, when it is the probe's report.
    pub probe: Option<AttemptId>,
    /// What became of them. A probe that tells of none gives its place back.
    pub calls: Window,
}

/// What every order of a person carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The fence that it was decided on, 0 where there was no breaker. The version will not do: a busy breaker counts
    /// faster than a person decides, and counting changes nothing about the decision.
    pub fence: Fence,
    /// Who decided.
    pub by: Label,
    /// Why.
    pub note: Option<Note>,
}

/// What whoever asks is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The target may be called.
    Admitted(Admitted),
    /// The report was counted.
    Counted,
    /// The report is about calls that say nothing any more.
    Ignored,
    /// The order was carried out.
    Ordered {
        /// Where the breaker stands now.
        phase: PhaseKind,
        /// Whether it stood there before, or the same order was given before.
        repeated: bool,
    },
}

/// The terms of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What its report must name.
    pub fence: Fence,
    /// Until when the probe may be silent, where the call is one.
    pub probe_until: Option<Timestamp>,
}

impl Ask {
    /// Returns the hash by which a store finds the breaker.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        Breaker::hash_of(&self.namespace, &self.name)
    }

    /// Returns who gave an order, and why.
    #[must_use]
    pub const fn order(&self) -> Option<&Order> {
        match &self.act {
            Act::Open(order, _) | Act::Close(order) | Act::Reset(order) => Some(order),
            Act::Admit(_) | Act::Report(_) => None,
        }
    }
}
