//! Delivery: whether a caller got the outcome, told from what a door saw.
//!
//! ```text
//!              Written                     a proof
//!  waiting ───────────────▶ written ─────────────────▶ delivered
//!     │ left, or told to       │ cancelled, reset,        │ cancelled, reset
//!     ▼ come again             ▼ not sent                 ▼
//!   lost ◀──────────────────── ◀───────────────────────── ◀
//! ```

use core::time::Duration;
use std::collections::BTreeMap;

use super::call::Relation;
use crate::ledger::Delivery;
use crate::time::Timestamp;

/// How late the word that a caller gave up may come after its retry. A client sends both at once, and where each has
/// a connection of its own the retry may be read first. Longer than that takes on a busy machine; shorter than
/// anybody waits before giving up a call that was not made in the same moment.
pub const CROSSING: Duration = Duration::from_secs(2);

/// One call and its answer, as its door sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exchange {
    /// The caller waits, and nothing says that it gave up.
    Waiting,
    /// The answer was written completely; nobody knows whether it arrived.
    Written {
        /// Whether the caller has closed its side since, so that the connection proves no more.
        closed: bool,
    },
    /// The answer was written completely and its receipt is proved.
    Delivered,
    /// The caller left without the outcome, or may have.
    Lost,
}

/// Something that a door saw of one call and its answer.
///
/// A door reports what belongs to this call. On a connection that carries calls one after the
/// other, a close or reset belongs to the newest one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Observation {
    /// The answer was written to its last byte, with the outcome in it.
    Written,
    /// An answer without the outcome was given: still in flight, or in doubt. Whoever got it comes
    /// again to learn the outcome, and must not be taken for somebody who has it.
    PutOff,
    /// The answer could not be written completely.
    NotWritten,
    /// The caller cancelled the call.
    Cancelled,
    /// The caller closed its side in good order.
    Closed,
    /// The connection or the stream of this call was reset.
    Reset,
    /// The same call came again on the same connection: its caller reads what it is sent.
    RepeatedHere,
    /// The caller's TCP acknowledged every byte of the answer.
    Acknowledged,
    /// A different message of the conversation came: it went on.
    WentOn,
}

impl Observation {
    /// Says whether this is how a caller goes that gave up.
    const fn is_going(self) -> bool {
        match self {
            Self::NotWritten | Self::Cancelled | Self::Closed | Self::Reset => true,
            Self::Written
            | Self::PutOff
            | Self::RepeatedHere
            | Self::Acknowledged
            | Self::WentOn => false,
        }
    }
}

impl Exchange {
    /// Returns the exchange after something more was seen of it.
    ///
    /// Proofs count only after the answer was written: what came before it cannot have been sent
    /// by somebody who had read it. The end of an exchange as lost is final.
    #[must_use]
    pub const fn after(self, observation: Observation) -> Self {
        match observation {
            Observation::Written => match self {
                Self::Waiting => Self::Written { closed: false },
                Self::Written { .. } | Self::Delivered | Self::Lost => self,
            },
            Observation::PutOff => match self {
                Self::Waiting => Self::Lost,
                Self::Written { .. } | Self::Delivered | Self::Lost => self,
            },
            Observation::Closed => match self {
                Self::Waiting => Self::Lost,
                Self::Written { .. } => Self::Written { closed: true },
                Self::Delivered | Self::Lost => self,
            },
            Observation::NotWritten | Observation::Cancelled | Observation::Reset => Self::Lost,
            Observation::RepeatedHere | Observation::Acknowledged => match self {
                Self::Written { closed: false } => Self::Delivered,
                Self::Written { closed: true } | Self::Waiting | Self::Delivered | Self::Lost => {
                    self
                }
            },
            Observation::WentOn => match self {
                Self::Written { .. } => Self::Delivered,
                Self::Waiting | Self::Delivered | Self::Lost => self,
            },
        }
    }

    /// Folds everything that was seen of one call, in order.
    #[must_use]
    pub fn of(observations: impl IntoIterator<Item = Observation>) -> Self {
        let observations = observations.into_iter();
        observations.fold(Self::Waiting, Self::after)
    }

    /// Returns the mark of this call alone.
    #[must_use]
    pub const fn delivery(self) -> Delivery {
        match self {
            Self::Waiting | Self::Written { .. } => Delivery::Unknown,
            Self::Delivered => Delivery::Delivered,
            Self::Lost => Delivery::Undelivered,
        }
    }
}

/// The calls that one operation stands for, as far as a door holds them.
///
/// Kept in memory beside the record: [`Callers::mark`] is what becomes durable. A door drops it once
/// nobody waits and the mark is stored; kept longer, it would hide what another process stored since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    exchanges: BTreeMap<CallerId, Exchange>,
    entered: u32,
    /// When the newest of them came.
    newest_at: Option<Timestamp>,
    /// Whether a caller that another process holds may wait as well.
    unseen: bool,
}

/// Names one call among the [`Callers`] of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerId(u32);

impl Callers {
    /// Enters a call as it was judged; `None` for one that was refused and belongs to no operation.
    ///
    /// A retry takes the place of all that do not wait, so that one lost answer excuses one repeat
    /// and not every later one. A call that joined stands beside the others.
    pub fn enter(&mut self, relation: Relation, now: Timestamp) -> Option<CallerId> {
        match relation {
            Relation::First | Relation::IntendedRepeat => {}
            Relation::Retry => {
                self.exchanges
                    .retain(|_, exchange| *exchange == Exchange::Waiting);
                self.unseen = false;
            }
            Relation::Joined => self.unseen |= !self.is_waiting(),
            Relation::Challenged => return None,
        }
        self.entered = self.entered.wrapping_add(1);
        self.newest_at = Some(now);
        let id = CallerId(self.entered);
        self.exchanges.insert(id, Exchange::Waiting);
        Some(id)
    }

    /// Takes note of something that was seen of a call; a call whose place was taken is passed over.
    ///
    /// A caller that is seen to go within [`CROSSING`] of a later identical call has made that one instead: its
    /// place is taken, as if the two had been seen in the order in which they were sent.
    pub fn see(&mut self, id: CallerId, observation: Observation, now: Timestamp) {
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            return;
        };
        let after = exchange.after(observation);
        let goes = observation.is_going() && after == Exchange::Lost && *exchange != after;
        *exchange = after;
        let has_later = self.exchanges.keys().next_back() != Some(&id);
        let is_late = self.newest_at.is_some_and(|at| now.since(at) <= CROSSING);
        if goes && has_later && is_late {
            self.exchanges.remove(&id);
        }
    }

    /// Takes a call out as if it had not been entered: it is judged once more. Returns what was seen of it;
    /// `None` for one whose place was taken.
    pub fn withdraw(&mut self, id: CallerId) -> Option<Exchange> {
        self.exchanges.remove(&id)
    }

    /// Says whether somebody waits here, and nothing says that they gave up.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let mut exchanges = self.exchanges.values();
        exchanges.any(|exchange| *exchange == Exchange::Waiting)
    }

    /// Says whether a call that was entered before this one still waits for its answer.
    #[must_use]
    pub fn has_earlier_waiting(&self, id: CallerId) -> bool {
        let mut earlier = self.exchanges.range(..id);
        earlier.any(|(_, exchange)| *exchange == Exchange::Waiting)
    }

    /// Gives the mark of the operation; `None` where no call is held here, so that the record's own
    /// mark stands.
    ///
    /// It is delivered only if each call is: where two joined and one lost its answer, the next
    /// call is that one's retry. It cannot be known to be where another process holds one of them.
    #[must_use]
    pub fn mark(&self) -> Option<Delivery> {
        let marks = self.exchanges.values().map(|exchange| exchange.delivery());
        let own = marks.reduce(less_sure)?;
        Some(if self.unseen {
            less_sure(own, Delivery::Unknown)
        } else {
            own
        })
    }
}

/// Returns the mark that promises less.
const fn less_sure(left: Delivery, right: Delivery) -> Delivery {
    match (left, right) {
        (Delivery::Undelivered, _) | (_, Delivery::Undelivered) => Delivery::Undelivered,
        (Delivery::Unknown, _) | (_, Delivery::Unknown) => Delivery::Unknown,
        (Delivery::Lapsed, _) | (_, Delivery::Lapsed) => Delivery::Lapsed,
        (Delivery::Delivered, Delivery::Delivered) => Delivery::Delivered,
    }
}
