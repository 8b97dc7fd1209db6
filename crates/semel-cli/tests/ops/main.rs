//! What those who run a server rely on: notification, traces, metrics, and the files in `deploy/`.

mod deploy;
mod notify;
mod server;
mod sink;
mod told;
mod traces;
