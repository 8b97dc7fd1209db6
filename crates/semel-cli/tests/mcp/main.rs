//! `semel mcp`, as clients and servers of MCP meet it: real processes, with the effects counted by the server.
//!
//! Whatever is asserted of the gateway is shown without it as well, on the same server with the same client:
//! the duplicate must be there before its absence proves anything.

mod admin;
mod bad;
mod breakers;
mod calls;
mod desk;
mod direct;
mod errors;
#[expect(dead_code, reason = "the rest is for the tests of the other commands")]
#[path = "../it/harness.rs"]
mod harness;
#[expect(dead_code, reason = "the rest is for the tests of `semel serve`")]
#[path = "../serve/http.rs"]
mod http;
mod incidents;
mod inspect;
mod legs;
mod limits;
mod looked_up;
mod market;
mod matrix;
mod named;
mod namespaces;
mod pages;
mod person;
mod plans;
mod policies;
mod repeats;
#[path = "../serve/pages.rs"]
mod said;
#[expect(dead_code, reason = "the rest is for the tests of `semel serve`")]
#[path = "../serve/server.rs"]
mod server;
mod servers;
mod setup;
mod streams;
mod tasks;
mod transparency;
mod wire;
