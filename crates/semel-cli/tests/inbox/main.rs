//! The inbox, as senders, their enemies and workers meet it: real servers on real stores, counted by what workers get.

#[expect(dead_code, reason = "the rest is for the tests of the other commands")]
#[path = "../it/harness.rs"]
mod harness;
#[expect(dead_code, reason = "the rest is for the tests of `semel serve`")]
#[path = "../serve/http.rs"]
mod http;
#[path = "../serve/pages.rs"]
mod said;
#[expect(dead_code, reason = "the rest is for the tests of `semel serve`")]
#[path = "../serve/server.rs"]
mod server;

mod commands;
mod deliveries;
mod floods;
mod nodes;
mod pages;
mod refusals;
mod replays;
mod secrets;
mod setup;
