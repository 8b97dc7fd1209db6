//! Queues through the command line: submitters, workers and servers as real processes, on real stores.

mod commands;
mod dead;
#[expect(dead_code, reason = "the rest is for the tests of the other commands")]
#[path = "../it/harness.rs"]
mod harness;
mod limits;
mod push;
mod storm;
mod target;
mod workers;
