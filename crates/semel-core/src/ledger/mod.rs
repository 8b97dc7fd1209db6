//! The ledger: one table of operations, one pure function that decides, one log.
//!
//! ```text
//!            Submit                 Begin                    done
//!  absent ───────────▶ pending ───────────▶ running ───────────────▶ succeeded | failed
//!     │                 ▲  ▲ │ Cancel          │  ▲                       │ Bury
//!     │ Begin           │  │ └───────▶ failed  │  │ waived, probed        ▼
//!     └─────────────────┼──┼──────▶ running    │  │                   tombstone
//!              not_done │  │ resolved          ▼  │                       │ Drop, Forget
//!                       │  └────────────── doubtful ── late done ──▶ …     ▼
//!                       └─ running ── no attempts left ──▶ dead          stub
//! ```
//!
//! [`decide`] is total and deterministic: it runs live, in recovery, in `verify` and as the oracle
//! of the tests. The log is the sequence of accepted commands; records are what it folds to.

mod begin;
pub mod codec;
mod command;
mod decide;
mod decision;
mod entry;
mod lease;
mod order;
mod record;
mod retention;
mod settle;
mod submit;
#[cfg(test)]
mod tests;

pub use command::{
    Adopt, Begin, Command, Expire, Horizon, Order, Renew, Resolution, Resolve, Settle, Sighting,
    Submit,
};
pub use decide::{admit_probe, decide, parent_permits};
pub use decision::{Action, Decision, Event, Grant, Ordered, Rejection, Reply, Reported, Write};
pub use entry::Entry;
pub use record::{
    ATTEMPTS_REMEMBERED, Attempt, AttemptKind, Delivery, Fence, Holder, Operation,
    Order as LastOrder, Parent, ProbeMatch, Record, Resolved, Settled, Spec, State, StateKind,
    Stub, Tombstone, Version,
};
pub use retention::{STUB_KEPT, TOMBSTONE_KEPT};
