//! What the parts of the gateway that touch nothing promise.

mod edit;
mod lines;
mod message;
mod sse;
mod wild;
