//! Circuit breakers: whether a target may be called, decided from what became of the calls before.
//!
//! ```text
//!             too many failures                 the time has come, one probe
//!   closed ──────────────────────▶ open ─────────────────────────────────▶ half-open
//!     ▲                             ▲ ▲                                      │   │
//!     │ Close, Reset                │ └────────── the probe failed ──────────┘   │
//!     └─────────────────────────────┼──────────── the probe succeeded ◀──────────┘
//!                                   └ Open (a person)
//! ```
//!
//! A breaker is a record of the ledger like an operation: one pure function decides ([`decide`]), it is committed by
//! compare-and-swap, and the log has its changes. Its key's hash has a domain of its own, so that no operation's key
//! leads to it.

mod command;
mod decide;
mod record;
mod settings;
#[cfg(test)]
mod tests;
mod window;

pub use command::{Act, Admit, Admitted, Ask, Order, Reply, Report};
pub(crate) use decide::adopt;
pub use decide::{HALF_OPEN_RETRY, decide};
pub use record::{Breaker, Forced, Open, Phase, PhaseKind, Probe};
pub use settings::{Settings, SettingsError};
pub use window::{Counts, SLICES_MAX, Slice, Window};
