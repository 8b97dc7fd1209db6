//! Makes what agents do happen once.
//!
//! Agents retry: on timeouts, crashes, lost replies and races. An [`Engine`] keeps a ledger of
//! operations, so that a retried one takes effect once and every attempt gets a [`Receipt`]. Where
//! nobody can know what happened, the operation is *in doubt*: visible, held, and settled by a
//! probe or a person, never guessed.
//!
//! ```
//! # async fn example() -> Result<(), semel::Error> {
//! use semel::{Engine, Key};
//!
//! let engine = Engine::open("memory:").await?;
//! for _ in 0..2 {
//!     let order = engine
//!         .effect("create-order", Key::new("order-7")?)
//!         .input(&serde_json::json!({"amount": 100}))
//!         .run(|_attempt| async { Ok(42) }) // runs the first time only
//!         .await?;
//!     assert_eq!(order.value, 42);
//! }
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```

#![warn(missing_docs)]

mod answer_view;
pub mod breaker;
pub mod clock;
pub mod door;
pub mod effects;
mod engine;
mod error;
mod events;
mod hold;
pub mod holder;
#[cfg(feature = "http")]
pub mod http;
mod incident;
mod owned;
mod receipt;
#[cfg(feature = "remote")]
pub mod remote;
pub mod store;
mod time_limit;
#[cfg(any(feature = "postgres", feature = "remote"))]
mod tls;
mod token_view;
pub mod trace;
pub mod view;
#[doc(hidden)]
pub mod wire;

pub use engine::{
    Admission, Adopted, Attempt, Builder, Claimed, Completed, Copied, Difference, EffectCall,
    Engine, Failure, Fault, Found, Granted, Job, Kept, Named, NewToken, Operator, Permit, Phase,
    Point, Preview, QueueSettings, Queueing, Rehearsal, Replayed, Request, Revoked, Rules, Saved,
    Saver, Swept, Take, Taken, Tally, Verified, WAIT_MAX, Way, Worked, Worker, redacted_answer,
};
pub use error::{Ambiguous, Error, Refusal, Result};
pub use events::Events;
pub use hold::Hold;
pub use incident::{Concealed, Incident, IncidentId};
pub use receipt::{Receipt, span};
pub use semel_core as core;
pub use semel_core::{
    AttemptId, Backoff, Class, Effect, Fingerprint, Key, Label, Lease, Namespace, Note, OnDoubt,
    Outcome, Payload, Policy, Priority, Probe, Redactor, Retention, Scope, Timestamp, Token,
    TokenId, TokenRecord,
};
pub use store::CopyPolicy;
pub use store::group::together;
pub use time_limit::within;

// Their transactions are given to permits: the versions must be the same.
pub use rusqlite;
#[cfg(feature = "postgres")]
pub use tokio_postgres;
