//! Tickets: what a door says of a call after it was let in.

use std::sync::Arc;

use semel_core::KeyHash;
use semel_core::identity::{CallerId, Observation};
use tokio::time::{Duration, timeout};

use super::{Inner, lock};

/// How long an answer waits for those of earlier identical calls. They are ready at the same moment, so that only a
/// client that does not read its own answer makes another one wait that long.
const ORDER_LIMIT: Duration = Duration::from_secs(2);

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
        drop(memory);
        self.inner.answered.notify_waiters();
    }

    /// Waits until the earlier calls for the same operation are answered or gone, for at most two seconds. A door
    /// calls it before it answers a call that joined another one.
    ///
    /// A client that gave its first call up, and has the outcome from its second, may make the same call a third
    /// time at once. While the first has no answer, that third call would be taken for the first one's retry.
    pub async fn earlier_answered(&self) {
        let in_order = async {
            loop {
                // Before the look: an answer in between wakes it too.
                let answered = self.inner.answered.notified();
                if !lock(&self.inner.memory).has_earlier_waiting(&self.operation, self.caller) {
                    return;
                }
                answered.await;
            }
        };
        // After the limit the order is given up, and not the answer.
        drop(timeout(ORDER_LIMIT, in_order).await);
    }

    /// Takes the call back as if it had not been let in: it is to be judged once more, as after a doubt was
    /// resolved on its behalf. Returns whether its caller was seen to have left.
    #[must_use = "whoever has left must be said to have left when the call is let in again"]
    pub fn withdraw(self) -> bool {
        let has_left = lock(&self.inner.memory).withdraw(&self.operation, self.caller);
        self.inner.answered.notify_waiters();
        has_left
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let now = self.inner.store().now();
        let mut memory = lock(&self.inner.memory);
        if memory.leave(&self.operation, self.caller, now) {
            self.inner.due.notify_one();
        }
        drop(memory);
        self.inner.answered.notify_waiters();
    }
}
