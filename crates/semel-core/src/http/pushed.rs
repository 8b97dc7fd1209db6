//! What the answer of a push queue's target means for the task that was sent to it.
//!
//! | the target answered | the task is |
//! |---|---|
//! | 2xx | done |
//! | 425, 429 and the statuses of a request that is refused for its form or its sender | not done |
//! | 408, 5xx, 1xx, anything beyond | unknown |
//! | 409, to another attempt than the first | unknown: it may be in conflict with an earlier attempt of this very task |
//! | any other | done, in failure |
//!
//! It is what the default profile of the proxy makes of a status, and for 409 what every door that forwards a key of its
//! own makes of it.

use super::profile::Profile;
use super::status::Meaning;

/// What became of a task that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The target carried it out.
    Succeeded,
    /// The target carried it out to an end that is a failure.
    Failed,
    /// The target turned it away before it did anything.
    NotDone,
    /// Nobody knows.
    Unknown,
}

/// The answer to a request that is in conflict with another one.
const CONFLICT: u16 = 409;

/// Says what a status means; `is_first` is whether no earlier attempt can have reached the target.
#[must_use]
pub fn pushed(status: u16, is_first: bool) -> Pushed {
    match Profile::semel().statuses.meaning(status) {
        Meaning::Outcome if (200..=299).contains(&status) => Pushed::Succeeded,
        Meaning::Outcome if status == CONFLICT && !is_first => Pushed::Unknown,
        Meaning::Outcome => Pushed::Failed,
        Meaning::Release => Pushed::NotDone,
        Meaning::Doubt => Pushed::Unknown,
    }
}
