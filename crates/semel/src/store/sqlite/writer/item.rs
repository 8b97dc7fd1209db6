//! What is asked of the writer, and what it answers once the group is committed.

use std::sync::Arc;

use semel_core::KeyHash;
use semel_core::identity::KinChange;
use semel_core::ledger::{Fence, Record};
use semel_core::queue::LineChange;
use tokio::sync::oneshot;

use super::super::cache::{Kept, keeps};
use super::super::marks::Marks;
use super::super::shared::{Shared, poisoned};
use super::super::tokens::TokenChange;
use crate::store::{Commit, Current, Expected, Guard, Place, Result, StoreError};

/// What is asked of the writer.
#[derive(Debug)]
pub(in crate::store::sqlite) enum Item {
    Change(Box<Prepared>, oneshot::Sender<Result<Written>>),
    Append {
        place: Place,
        fence: Fence,
        chunks: Vec<(u8, Vec<u8>)>,
        answer: oneshot::Sender<Result<()>>,
    },
    Discard {
        place: Place,
        fence: Fence,
        answer: oneshot::Sender<Result<()>>,
    },
    Mark {
        name: &'static str,
        /// `None` takes the mark away.
        value: Option<Vec<u8>>,
        answer: oneshot::Sender<Result<()>>,
    },
    /// Changes what may be done with the store, or what it is.
    Stand {
        marks: Marks,
        when: When,
        answer: oneshot::Sender<Result<()>>,
    },
    /// Changes a token, and says whether there was something to change.
    Token(TokenChange, oneshot::Sender<Result<bool>>),
    Tidy(oneshot::Sender<Result<bool>>),
    /// Looks a key up where nobody can change it meanwhile.
    Find(KeyHash, oneshot::Sender<Result<Current>>),
}

/// What must be so for marks to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::sqlite) enum When {
    Always,
    /// The store is empty, or a copy already; else the change is refused.
    Empty,
    /// The store is no copy; else the change is refused.
    NoCopy,
    /// There is no mark of this name; else there is nothing to do.
    Missing(&'static str),
}

/// What became of a change, and the change itself: freeing it is left to the caller's thread, which
/// made it, as the writer is the one that everybody waits for.
pub(in crate::store::sqlite) type Written = (Commit, Box<Prepared>);

/// A change whose bytes were made in the caller's thread.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Prepared {
    pub(in crate::store::sqlite) key: KeyHash,
    pub(in crate::store::sqlite) expected: Expected,
    pub(in crate::store::sqlite) entry: Vec<u8>,
    pub(in crate::store::sqlite) next: Option<Next>,
    pub(in crate::store::sqlite) payload: PackedPayload,
    pub(in crate::store::sqlite) guard: Option<Guard>,
    pub(in crate::store::sqlite) kin: KinChange,
    pub(in crate::store::sqlite) line: LineChange,
    /// The packed input of a task.
    pub(in crate::store::sqlite) input: Option<Vec<u8>>,
    /// Whether it only tells how an attempt goes: a closed store takes no other.
    pub(in crate::store::sqlite) is_report: bool,
    /// Whether it adopts a record of a copy.
    pub(in crate::store::sqlite) is_adoption: bool,
    /// Whether the record may be kept in memory as it was.
    pub(in crate::store::sqlite) changes_settled: bool,
}

impl Prepared {
    /// Says whether the record is settled from now on.
    pub(in crate::store::sqlite) fn is_settled(&self) -> bool {
        let next = self.next.as_ref();
        next.is_some_and(|next| keeps(next.record.kind()))
    }

    /// Returns how the record may be kept in memory, where its whole answer is at hand.
    pub(in crate::store::sqlite) fn kept(&self, place: Place) -> Option<Kept> {
        let next = self.next.as_ref()?;
        let settled = next.record.operation()?.settled()?;
        match &self.payload {
            PackedPayload::Bytes { packed, .. } => Kept::new(place, &next.bytes, Some(packed)),
            PackedPayload::Keep if settled.outcome.payload.is_none() => {
                Kept::new(place, &next.bytes, None)
            }
            PackedPayload::Keep | PackedPayload::Stream(_) | PackedPayload::Erase => None,
        }
    }
}

#[derive(Debug)]
pub(in crate::store::sqlite) struct Next {
    pub(in crate::store::sqlite) record: Arc<Record>,
    pub(in crate::store::sqlite) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(in crate::store::sqlite) enum PackedPayload {
    Keep,
    Bytes { packed: Vec<u8>, replaces: bool },
    Stream(Fence),
    Erase,
}

/// What a group's items are to be told once it is committed.
pub(super) enum Answer {
    Commit(oneshot::Sender<Result<Written>>, Result<Written>),
    Unit(oneshot::Sender<Result<()>>),
    Refused(oneshot::Sender<Result<()>>, StoreError),
    Token(oneshot::Sender<Result<bool>>, Result<bool>),
    Tidy(oneshot::Sender<Result<bool>>, Arc<Shared>),
    Found(oneshot::Sender<Result<Current>>, Result<Current>),
}

impl Answer {
    // A caller that went away does not hear its answer; what is stored is stored.
    pub(super) fn tell(self) {
        match self {
            Self::Commit(sender, commit) => drop(sender.send(commit)),
            Self::Unit(sender) => drop(sender.send(Ok(()))),
            Self::Refused(sender, error) => drop(sender.send(Err(error))),
            Self::Token(sender, changed) => drop(sender.send(changed)),
            Self::Found(sender, found) => drop(sender.send(found)),
            Self::Tidy(sender, shared) => {
                let left = !shared.tail.read().unwrap_or_else(poisoned).is_empty();
                drop(sender.send(Ok(left)));
            }
        }
    }

    pub(super) fn fail(self, error: &StoreError) {
        match self {
            Self::Commit(sender, Err(own @ StoreError::Corrupt(_))) => drop(sender.send(Err(own))),
            Self::Commit(sender, _) => drop(sender.send(Err(error.clone()))),
            Self::Unit(sender) | Self::Refused(sender, _) => {
                drop(sender.send(Err(error.clone())));
            }
            Self::Token(sender, _) | Self::Tidy(sender, _) => {
                drop(sender.send(Err(error.clone())));
            }
            Self::Found(sender, _) => drop(sender.send(Err(error.clone()))),
        }
    }
}

impl Item {
    pub(super) fn fail(self, error: &StoreError) {
        match self {
            Self::Change(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::Append { answer, .. }
            | Self::Discard { answer, .. }
            | Self::Stand { answer, .. }
            | Self::Mark { answer, .. } => {
                drop(answer.send(Err(error.clone())));
            }
            Self::Token(_, answer) | Self::Tidy(answer) => {
                drop(answer.send(Err(error.clone())));
            }
            Self::Find(_, answer) => drop(answer.send(Err(error.clone()))),
        }
    }
}
