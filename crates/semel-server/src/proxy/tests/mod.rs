//! The door of the proxy over real sockets, with something behind it that only remembers what came.

mod fake;
mod framing;
mod front;
mod retries;
mod serving;
