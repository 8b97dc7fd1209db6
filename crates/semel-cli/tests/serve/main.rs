//! `semel serve`, as its clients, its operators and its enemies meet it: real processes on real sockets.

#[expect(dead_code, reason = "the rest is for the tests of the other commands")]
#[path = "../it/harness.rs"]
mod harness;
mod hostile;
mod http;
mod incidents;
mod kill;
mod lifecycle;
mod namespaces;
mod outage;
mod pages;
mod probes;
mod queues;
mod rates;
mod replaced;
mod server;
mod shapes;
mod streams;
mod tls;
mod tokens;
