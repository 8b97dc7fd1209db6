//! One binary for all integration tests of the library: linking is slower than running.

mod conformance;
mod differential;
mod engine;
mod simulation;
