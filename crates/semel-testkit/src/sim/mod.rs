//! A seeded simulator of whole histories: the real engine over a simulated store, in virtual time.
//!
//! Several agents, each with an engine of its own, claim keys, act in an outside world that counts
//! effects, and report; operators read and act later; commands are lost, delivered late and
//! delivered again; processes die and stop at every await and between all store steps; clocks jump
//! both ways; the store fails. One number draws all of it, so the same seed is the same history.
//!
//! The parts: `plan` draws what a history is made of, `process` lets processes die and stop,
//! `store` and `shelf` are the store, `world` counts effects, `agent`, `acting`, `worker` and
//! `operator` take part, `trouble` comes from outside, `finale` brings everything to an end,
//! `checker` watches the invariants (and says when another effect is licensed), and `bugs` proves
//! that it can fail.

mod acting;
mod agent;
mod bugs;
mod checker;
mod clock;
mod finale;
mod history;
mod operator;
mod plan;
mod process;
mod raw;
mod rng;
mod run;
mod shelf;
mod store;
mod trace;
mod trouble;
mod worker;
mod world;

pub use bugs::Bug;
pub use checker::{Invariant, Violation};
pub use process::Point;
pub use run::{Caught, Report, Summary, hunt, run, run_many};
pub use store::Fault;
pub use trace::{Coverage, Seen};
