//! Notification: doubts and dead operations are told to people, once each.
//!
//! Each notification is itself an operation in the ledger, in a namespace of its own. So several servers on
//! one store tell each thing once, a restart repeats nothing, and one that was cut off is tried again.

mod channel;
mod command;
mod counts;
mod desk;
mod message;
mod signature;
mod subject;
mod watch;
mod webhook;

pub use self::signature::Secret;

pub(crate) use self::channel::Channel;
pub(crate) use self::counts::Counts;
pub(crate) use self::signature::hmac;

use std::sync::Arc;

use semel::core::ledger::Operation;
use semel::{Engine, Namespace};
use tokio::sync::{mpsc, watch as stop};

use self::desk::Desk;

/// The namespace of notifications.
const NAMESPACE: &str = "semel";

/// How many subjects may be found and not be taken up yet.
const FOUND_MAX: usize = 64;

/// Says whether a namespace is that of notifications, about which nothing is told.
pub(crate) fn is_own(namespace: &Namespace) -> bool {
    namespace.as_str() == NAMESPACE
}

/// Says whether a server that serves one namespace, or all of them, tells of an operation.
fn is_told(operation: &Operation, only: Option<&Namespace>) -> bool {
    only.is_none_or(|only| *only == operation.spec.namespace)
}

/// Tells everything, or what is in one namespace, until the server stops; what is being told then is told to its end.
pub(crate) async fn run(
    engine: Engine,
    only: Option<Namespace>,
    channels: Vec<Channel>,
    counts: Arc<Counts>,
    stop: stop::Receiver<bool>,
) {
    let (sender, found) = mpsc::channel(FOUND_MAX);
    let watching = tokio::spawn(watch::run(engine.clone(), only.clone(), sender));
    Desk::new(engine, only, channels, counts)
        .run(found, stop)
        .await;
    watching.abort();
}
