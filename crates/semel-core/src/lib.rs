//! The pure rules of Semel: what a retried operation may do, decided once and in one place.
//!
//! This crate never awaits, reads no clock, draws no randomness and does no I/O. Time, ids and
//! chance come in as arguments, so the same inputs always give the same decisions: live, in
//! recovery, in `verify` and in the tests.

#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]

pub mod breaker;
pub mod canonical;
pub mod clock;
pub mod digest;
pub mod effect;
pub mod fingerprint;
pub mod found;
pub mod http;
pub mod identity;
pub mod ledger;
pub mod money;
pub mod policy;
pub mod principal_key;
pub mod queue;
pub mod redact;
pub mod retry;
pub mod text;
pub mod time;
pub mod token;
pub mod verdict;
pub mod webhook;

pub use digest::{Digest, Hashing, KeyHash};
pub use effect::Effect;
pub use fingerprint::{Fingerprint, Input};
pub use found::Found;
pub use money::{Currency, Money, MoneyError};
pub use policy::{Class, OnDoubt, Policy};
pub use principal_key::PrincipalKey;
pub use queue::{Backoff, Priority, Task};
pub use redact::Redactor;
pub use text::{AttemptId, Key, Label, Namespace, Note, Probe, SourceName, TextError};
pub use time::{DurationError, Lease, Retention, TimeError, Timestamp};
pub use token::{Scope, Token, TokenId, TokenRecord};
pub use verdict::{Outcome, Payload, Verdict, VerdictKind};
