//! What is judged: a call, the operations before it, and the answer.

use core::time::Duration;

use super::delivery::Callers;
use super::key::{ClientKey, ClientText, Door, Scope, Source, ledger_key};
use super::pointer::BusinessKey;
use crate::fingerprint::Fingerprint;
use crate::ledger::{Delivery, Operation, Record, StateKind};
use crate::text::Key;
use crate::time::Timestamp;

/// How long a settled call that may not have arrived is taken to be retried, where the scope names
/// a conversation.
pub const WINDOW: Duration = Duration::from_secs(15 * 60);

/// The same without a conversation: callers of one principal are then less surely the same one.
pub const WINDOW_WITHOUT_CONVERSATION: Duration = Duration::from_secs(5 * 60);

/// How long after an effect an identical call is asked about, where the tool asks for it.
pub const CHALLENGE_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// Says what becomes of a call while an identical one is in flight and nobody was seen to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// Both run.
    Distinct,
    /// The second waits for the first one's outcome, and is told how to ask for a second.
    Join,
    /// The second is refused visibly. So is one that comes after an identical one took effect, within
    /// [`CHALLENGE_WINDOW`], until its caller says that it knows of that one and wants another.
    Challenge,
}

impl Door {
    /// Returns what this door does where nothing else is configured.
    #[must_use]
    pub const fn in_flight(self) -> InFlight {
        match self {
            Self::Proxy => InFlight::Distinct,
            Self::Mcp | Self::Inbox => InFlight::Join,
        }
    }
}

/// A call that came in through a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The way in.
    pub door: Door,
    /// Who calls what, and in which conversation.
    pub scope: Scope,
    /// The key that the caller gave.
    pub explicit: Option<ClientText>,
    /// The call id of the caller's harness.
    pub call_id: Option<ClientText>,
    /// The key that the configured pointers found.
    pub business: Option<BusinessKey>,
    /// Name and input.
    pub fingerprint: Fingerprint,
    /// What to do beside an identical call in flight.
    pub in_flight: InFlight,
    /// The operation that the caller was told of and wants once more; a doubt is not waived by it.
    pub repeat_of: Option<Key>,
}

impl Call {
    /// Returns the keys that could each be this call's own: a door loads what is stored under them.
    #[must_use]
    pub fn own_keys(&self) -> Vec<Key> {
        let explicit = self.explicit.clone().map(ClientKey::Explicit);
        let call_id = self.call_id.clone().map(ClientKey::CallId);
        let business = self.business.clone().map(ClientKey::Business);
        let own = [explicit, call_id, business];
        own.iter().flatten().map(|key| self.key(key, 1)).collect()
    }

    pub(super) fn key(&self, client_key: &ClientKey, occurrence: u32) -> Key {
        ledger_key(self.door, &self.scope, client_key, occurrence)
    }

    pub(super) const fn window(&self) -> Duration {
        match self.scope.conversation {
            Some(_) => WINDOW,
            None => WINDOW_WITHOUT_CONVERSATION,
        }
    }
}

/// An operation that an earlier call was for, as the store knows it and the door saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prior {
    /// Its ledger key.
    pub key: Key,
    /// Name and input of its calls.
    pub fingerprint: Fingerprint,
    /// Its number.
    pub occurrence: u32,
    /// Where it stands, its lease judged.
    pub state: StateKind,
    /// Whether its callers got the outcome: see [`Callers::mark`].
    pub delivery: Delivery,
    /// Whether a caller waits for it at this door now, and nothing says that it gave up.
    pub waiting: bool,
    /// Whether what was delivered told the caller of a definite failure although the record is in
    /// doubt, as a proxy does that hands on an upstream's 5xx.
    pub failure_told: bool,
    /// The harness's call ids under which calls were judged to be for it.
    pub call_ids: Vec<ClientText>,
    /// When it, or a call for it, was last seen to move.
    pub last_seen: Timestamp,
}

impl Prior {
    /// Reads what a record says; `None` for a stub, which remembers no call, and a breaker, which is none.
    #[must_use]
    pub fn of(record: &Record, now: Timestamp) -> Option<Self> {
        match record {
            Record::Operation(operation) => Some(Self {
                key: operation.spec.key.clone(),
                fingerprint: operation.spec.fingerprint,
                occurrence: operation.spec.occurrence,
                state: operation.kind_at(now),
                delivery: operation.delivery,
                waiting: false,
                failure_told: false,
                call_ids: Vec::new(),
                last_seen: last_moved(operation),
            }),
            Record::Tombstone(tombstone) => Some(Self {
                key: tombstone.key.clone(),
                fingerprint: tombstone.fingerprint,
                occurrence: tombstone.occurrence,
                state: StateKind::Tombstone,
                delivery: tombstone.delivery,
                waiting: false,
                failure_told: false,
                call_ids: Vec::new(),
                last_seen: tombstone.settled_at,
            }),
            Record::Stub(_) | Record::Breaker(_) => None,
        }
    }

    /// Adds the calls for it that this door holds; `at` is when one of them last moved.
    #[must_use]
    pub fn with(mut self, callers: &Callers, at: Timestamp) -> Self {
        if let Some(mark) = callers.mark() {
            self.delivery = mark;
            self.waiting = callers.is_waiting();
            self.last_seen = self.last_seen.max(at);
        }
        self
    }
}

/// Returns when an operation last moved by itself.
fn last_moved(operation: &Operation) -> Timestamp {
    let attempts = operation.attempts.iter();
    attempts
        .map(|attempt| attempt.ended_at.unwrap_or(attempt.started_at))
        .chain(operation.settled().map(|settled| settled.at))
        .fold(operation.created_at, Timestamp::max)
}

/// Says which operation a call is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The operation's ledger key.
    pub key: Key,
    /// Its number.
    pub occurrence: u32,
    /// How the call stands to the calls before it.
    pub relation: Relation,
    /// What it was told by.
    pub source: Source,
}

/// Says how a call stands to the calls before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// There was none: the operation is new.
    First,
    /// The call repeats one that is not over: it joins it, gets its outcome again, or meets its
    /// doubt.
    Retry,
    /// The earlier ones are over, or run beside it: the operation is new.
    IntendedRepeat,
    /// An identical call is in flight. This one waits with it, and its answer says so and how to
    /// ask for a second.
    Joined,
    /// An identical call is in flight. This one is refused, and belongs to no operation.
    Challenged,
}
