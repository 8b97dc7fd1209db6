//! What can be asked of the ledger.

use std::sync::Arc;

use super::record::{Delivery, Fence, Holder, Spec, Version};
use crate::breaker::Ask;
use crate::digest::Digest;
use crate::queue::Task;
use crate::text::{AttemptId, Label, Note};
use crate::time::{Lease, Timestamp};
use crate::verdict::{Outcome, Verdict};

/// One thing asked of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Leaves the operation for somebody else to carry out.
    Submit(Submit),
    /// Asks to carry the operation out now.
    Begin(Begin),
    /// Says that the holder is alive.
    Renew(Renew),
    /// Reports what an attempt learned.
    Settle(Settle),
    /// Applies the end of a lease.
    Expire(Expire),
    /// Settles a doubt.
    Resolve(Resolve),
    /// Gives a failed or dead operation fresh attempts.
    Retry(Order),
    /// Ends an operation that has not been applied.
    Cancel(Order),
    /// Erases an operation, all but its fence and version.
    Forget(Order),
    /// Turns a settled operation past its retention into a tombstone.
    Bury(Horizon),
    /// Turns an old tombstone into a stub, or drops an old stub.
    Drop(Horizon),
    /// Marks whether the caller got the answer.
    Deliver(Delivery),
    /// Takes over a restored or copied record: no earlier holder may act on it any more.
    Adopt(Adopt),
    /// Asks something of a breaker, which is no operation.
    Breaker(Box<Ask>),
}

/// See [`Command::Submit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submit {
    /// What the operation is.
    pub spec: Arc<Spec>,
    /// Who carries it out.
    pub queue: Option<Label>,
    /// Not before this time.
    pub run_at: Option<Timestamp>,
    /// What they are given.
    pub task: Option<Arc<Task>>,
}

/// See [`Command::Begin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// What the operation is.
    pub spec: Arc<Spec>,
    /// The id of this attempt, made for it.
    pub attempt: AttemptId,
    /// For how long.
    pub lease: Lease,
    /// Who asks.
    pub holder: Option<Holder>,
    /// Whether it is asked by a worker of the operation's queue.
    pub worker: bool,
    /// What the door found out about the present holder.
    pub sighting: Option<Sighting>,
}

/// What a door found out about the holder of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The attempt whose holder was looked at.
    pub fence: Fence,
    /// Whether it is provably alive; if not, it is provably gone.
    pub alive: bool,
}

/// See [`Command::Renew`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its fence.
    pub fence: Fence,
    /// For how long from now.
    pub lease: Lease,
}

/// See [`Command::Settle`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its fence.
    pub fence: Fence,
    /// What it learned.
    pub verdict: Verdict,
}

/// See [`Command::Expire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expire {
    /// The attempt whose holder is provably gone; without it the clock alone decides.
    pub gone: Option<Fence>,
}

/// See [`Command::Resolve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// Who decided, on which version, and why.
    pub order: Order,
    /// What was decided.
    pub resolution: Resolution,
}

/// What settles a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The effect happened, and this is what it came to.
    Done(Outcome),
    /// The effect did not happen.
    NotDone,
}

/// What every operator's command carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The version that was decided on; on another one the command is refused.
    pub version: Version,
    /// Who decided.
    pub by: Label,
    /// Why.
    pub note: Option<Note>,
}

/// Up to when retention may act: later ends are not due yet, whatever the clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon(pub Timestamp);

/// See [`Command::Adopt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopt {
    /// By how much every fence rises, above anything granted in the gap.
    pub fence_step: u64,
    /// Who adopts.
    pub by: Label,
}

impl Command {
    /// The names of all commands, in the order of their codes.
    pub const NAMES: [&'static str; 14] = [
        "submit", "begin", "renew", "settle", "expire", "resolve", "retry", "cancel", "forget",
        "bury", "drop", "deliver", "adopt", "breaker",
    ];

    /// Returns the word that users see.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Submit(_) => "submit",
            Self::Begin(_) => "begin",
            Self::Renew(_) => "renew",
            Self::Settle(_) => "settle",
            Self::Expire(_) => "expire",
            Self::Resolve(_) => "resolve",
            Self::Retry(_) => "retry",
            Self::Cancel(_) => "cancel",
            Self::Forget(_) => "forget",
            Self::Bury(_) => "bury",
            Self::Drop(_) => "drop",
            Self::Deliver(_) => "deliver",
            Self::Adopt(_) => "adopt",
            Self::Breaker(_) => "breaker",
        }
    }

    /// Says whether the command only tells how an attempt goes that was begun before: a ledger that is
    /// closed takes no other.
    #[must_use]
    pub const fn is_report(&self) -> bool {
        match self {
            Self::Renew(_) | Self::Settle(_) | Self::Expire(_) => true,
            Self::Submit(_)
            | Self::Begin(_)
            | Self::Resolve(_)
            | Self::Retry(_)
            | Self::Cancel(_)
            | Self::Forget(_)
            | Self::Bury(_)
            | Self::Drop(_)
            | Self::Deliver(_)
            | Self::Adopt(_)
            | Self::Breaker(_) => false,
        }
    }

    /// Returns who gave an operator's command.
    #[must_use]
    pub const fn by(&self) -> Option<&Label> {
        match self {
            Self::Resolve(resolve) => Some(&resolve.order.by),
            Self::Retry(order) | Self::Cancel(order) | Self::Forget(order) => Some(&order.by),
            Self::Adopt(adopt) => Some(&adopt.by),
            Self::Breaker(ask) => match ask.order() {
                Some(order) => Some(&order.by),
                None => None,
            },
            Self::Submit(_)
            | Self::Begin(_)
            | Self::Renew(_)
            | Self::Settle(_)
            | Self::Expire(_)
            | Self::Bury(_)
            | Self::Drop(_)
            | Self::Deliver(_) => None,
        }
    }

    /// Returns what a person said about it.
    #[must_use]
    pub const fn note(&self) -> Option<&Note> {
        match self {
            Self::Resolve(resolve) => resolve.order.note.as_ref(),
            Self::Retry(order) | Self::Cancel(order) | Self::Forget(order) => order.note.as_ref(),
            Self::Breaker(ask) => match ask.order() {
                Some(order) => order.note.as_ref(),
                None => None,
            },
            Self::Adopt(_)
            | Self::Submit(_)
            | Self::Begin(_)
            | Self::Renew(_)
            | Self::Settle(_)
            | Self::Expire(_)
            | Self::Bury(_)
            | Self::Drop(_)
            | Self::Deliver(_) => None,
        }
    }

    /// Returns a hash of the whole command, by which its exact repeat is recognised.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&super::codec::encode_command(self))
    }
}
