//! What the parts of the gateway that touch nothing promise.

mod edit;
mod message;
mod wild;
