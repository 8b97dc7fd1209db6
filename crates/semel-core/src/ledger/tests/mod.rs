//! The rules, checked against the tables and the numbered rules of the design.
//!
//! Every state is reached by running real commands from nothing, so no test rests on a record that
//! the ledger could not hold.

mod callers;
mod effects;
mod holders;
mod operators;
mod probes;
mod properties;
mod rules;
mod states;
mod table;
mod tasks;
mod transactions;
mod world;
