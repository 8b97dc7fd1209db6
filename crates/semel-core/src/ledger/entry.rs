//! What the log remembers of an accepted command.

use super::command::Command;
use super::decision::Event;
use super::record::{Fence, StateKind};
use crate::digest::KeyHash;
use crate::time::Timestamp;

/// One accepted command, with its time and what it led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was accepted: replaying the command at this time gives the same decision.
    pub at: Timestamp,
    /// The hash of namespace and key, where nothing is stored under it.
    pub unplaced: Option<KeyHash>,
    /// The command.
    pub command: Command,
    /// What happened.
    pub events: Vec<Event>,
    /// The state afterwards; `None` when nothing is stored.
    pub state: Option<StateKind>,
    /// The fence afterwards.
    pub fence: Fence,
}
