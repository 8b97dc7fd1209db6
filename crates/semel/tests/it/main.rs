//! One binary for all integration tests of the library: linking is slower than running.

mod conformance;
mod copy;
mod copy_tokens;
mod cuts;
mod differential;
mod door;
mod effects;
mod engine;
mod guard;
mod long_line;
mod postgres;
mod postgres_docs;
mod postgres_failover;
mod postgres_faults;
mod postgres_partitions;
mod postgres_tls;
mod postgres_transactions;
mod proxy;
mod remote;
mod simulation;
mod sqlite_transactions;
