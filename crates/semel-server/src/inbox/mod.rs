//! The inbox: webhooks, each of which becomes a task once.
//!
//! A sender has no token. What proves it is its signature over the bytes as they came, which is looked at before anything
//! is read into them; nothing is written for what is not proven. What is proven is submitted under a key made from the
//! sender's own id, so the ledger tells the first delivery from those that follow, on whichever node they arrive.

pub(crate) mod door;
mod envelope;
mod sender;
mod source;

pub use self::sender::{Heard, deliver};
pub use self::source::{Source, Sources};

/// The largest body of a webhook, in bytes: a task's input has a mebibyte, and there are headers beside the body.
pub const BODY_MAX: usize = 1008 * 1024;
