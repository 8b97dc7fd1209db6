//! How a settlement in the caller's own transaction goes, whatever the database.

use super::{Current, StoreError};

/// What became of a settlement in the caller's transaction; `S` is what its COMMIT needs.
#[derive(Debug)]
pub(crate) enum Wrote<S> {
    Settled(Box<S>, Current),
    /// Nothing was written, as the transaction sees something else.
    Changed(Current),
    /// The transaction does not see this attempt: it is in another database, or has an older snapshot.
    Elsewhere,
    /// It was written within a savepoint.
    #[cfg(feature = "postgres")]
    Nested,
}

/// How the caller's transaction ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Committed,
    /// Nothing of it is there, neither the effect nor the settlement.
    RolledBack(StoreError),
    Unknown(StoreError),
}
