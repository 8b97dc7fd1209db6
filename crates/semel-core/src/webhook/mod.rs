//! Webhooks: whether a delivery is its sender's, and which operation it is.
//!
//! A sender repeats a delivery until it is answered with success. What stays the same over the attempts is the
//! sender's own id and, byte for byte, the body; what changes is the time of the attempt and so its signature. So the
//! time is judged by the signature alone ([`Proof`]), the operation by the id ([`IdFrom`], [`crate::identity::inbox_key`]),
//! and whether it is the same event by the body.

mod delivery;
mod id;
mod json;
mod mac;
mod proof;
mod refusal;
mod scheme;
mod secret;
mod sign;
mod template;
#[cfg(test)]
mod tests;
mod verify;

pub use crate::text::SourceName;
pub use delivery::Delivery;
pub use id::{IdFrom, IdFromError, SenderId};
pub use mac::{Algorithm, Encoding};
pub use proof::{Proof, ProofError, Tolerance, ToleranceError, Verified};
pub use refusal::Refusal;
pub use scheme::{Keyed, Scheme};
pub use secret::{Secret, SecretError};
pub use template::{Template, TemplateError};
pub use verify::challenge;
