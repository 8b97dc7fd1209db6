//! `semel proxy`, as clients and upstreams meet it: real processes on real sockets, with the effects counted by an
//! upstream that knows nothing of Semel and fails at every point.
//!
//! Tests are named by the numbers of the checklist that they cover. What is pure about it (how a key is read, what
//! makes two bodies the same) is tested in `semel-core`; here it is enough that it is used.

mod bodies;
mod breakers;
mod clocks;
mod conformance;
mod counted;
mod crashes;
mod direct;
mod expiry;
mod fences;
mod fingerprints;
#[expect(dead_code, reason = "the rest is for the tests of the other commands")]
#[path = "../it/harness.rs"]
mod harness;
#[expect(dead_code, reason = "the rest is for the tests of `semel serve`")]
#[path = "../serve/http.rs"]
mod http;
mod keyless;
mod keys;
mod large;
mod leases;
mod names;
mod namespaces;
mod pages;
mod principal_key;
mod probes;
#[expect(dead_code, reason = "the rest is for the doors that refuse pages")]
#[path = "../serve/pages.rs"]
mod said;
mod savings;
mod scope;
mod semantics;
#[expect(dead_code, reason = "the rest is for the tests of `semel serve`")]
#[path = "../serve/server.rs"]
mod server;
mod setup;
mod shown;
mod storm;
mod streams;
mod transport;
mod upstream;
