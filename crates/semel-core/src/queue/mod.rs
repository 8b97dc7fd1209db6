//! Queues: tasks that somebody else carries out, and where they wait.
//!
//! A task is an operation with a queue. The ledger decides what becomes of it, as of every operation; what is here
//! says what a task brings along ([`Task`]) and in which line a store finds it ([`Spot`]).

mod limits;
mod line;
mod pace;
mod task;

pub use limits::{Bounds, Limits};
pub use line::{LineChange, QueueHash, Spot, Standing, lane_hash};
pub use pace::{Pace, Rate, RateError};
pub use task::{Backoff, BackoffError, Priority, PriorityError, RETRY_AFTER_MAX, Task};
