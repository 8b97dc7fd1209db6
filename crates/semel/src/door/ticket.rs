//! Tickets: what a door says of a call after it was let in.

use std::sync::Arc;

use semel_core::KeyHash;
use semel_core::identity::{CallerId, Observation};

use super::{Inner, lock};

/// One call at a doorway, through which its door says what it sees of the answer.
///
/// It is kept until the receipt is proved or nothing more can be seen. Dropping it says that the caller is
/// gone: without the outcome, if that was not written before.
#[derive(Debug)]
#[must_use = "a dropped ticket says that its caller has left"]
pub struct Ticket {
    pub(super) inner: Arc<Inner>,
    pub(super) operation: KeyHash,
    pub(super) caller: CallerId,
}

impl Ticket {
    /// Takes note of something that was seen of the call and its answer.
    pub fn see(&self, observation: Observation) {
        let now = self.inner.store().now();
        let mut memory = lock(&self.inner.memory);
        if memory.see(&self.operation, self.caller, observation, now) {
            self.inner.due.notify_one();
        }
    }

    /// Takes the call back as if it had not been let in: it is to be judged once more, as after a doubt was
    /// resolved on its behalf. Returns whether its caller was seen to have left.
    #[must_use = "whoever has left must be said to have left when the call is let in again"]
    pub fn withdraw(self) -> bool {
        lock(&self.inner.memory).withdraw(&self.operation, self.caller)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let now = self.inner.store().now();
        let mut memory = lock(&self.inner.memory);
        if memory.leave(&self.operation, self.caller, now) {
            self.inner.due.notify_one();
        }
    }
}
