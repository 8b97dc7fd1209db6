//! Push queues: the tasks of a queue are sent to a URL.
//!
//! One loop for each queue ([`courier`]) takes tasks as long as the target's breaker is closed, sends each once
//! ([`delivery`]), and reports to the ledger what the answer means ([`judge`]). A target that fails is left alone by its
//! breaker, and nothing is claimed meanwhile.

mod counts;
mod courier;
mod delivery;
mod http;
mod judge;
mod parcel;
mod transport;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use semel::breaker::Target;
use semel::{Engine, Label, Namespace};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) use self::counts::Counts;

use self::courier::Courier;
use self::delivery::Desk;
use self::http::Http;
use crate::notify::Secret;
use crate::outbound::Url;

/// A queue whose tasks are sent to a URL.
#[derive(Clone, Debug)]
pub struct Push {
    /// The wall behind which the queue is.
    pub namespace: Namespace,
    /// The queue.
    pub queue: Label,
    /// Where its tasks are sent to.
    pub url: Url,
    /// What they are signed with.
    pub secret: Option<Secret>,
    /// How long one may take, from the first byte of the connection to the last of the answer.
    pub timeout: Duration,
    /// How many are under way at once.
    pub concurrency: usize,
    /// The breaker of the target.
    pub breaker: Target,
}

impl Push {
    /// How long a delivery may take unless the queue says otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(30);

    /// The longest that a delivery may take: beyond it nobody waits for an answer over HTTP, but asks for one later.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);

    /// How many deliveries are under way at once unless the queue says otherwise: few enough for a target that was just
    /// started again.
    pub const CONCURRENCY: usize = 8;

    /// The most deliveries under way at once: each has a connection of its own, and one look at a queue finds no more.
    pub const CONCURRENCY_MAX: usize = semel::store::WAITING_MAX;
}

/// Queues whose targets can be sent to.
pub(crate) struct Pushing(Vec<(Arc<Push>, Http)>);

impl fmt::Debug for Pushing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.0.iter().map(|(push, _)| push.queue.as_str());
        f.debug_list().entries(queues).finish()
    }
}

impl Pushing {
    /// Gets ready to send to these targets.
    pub(crate) fn new(pushes: &[Push]) -> Result<Self, String> {
        let ready = pushes.iter().map(|push| {
            let http = Http::new(push.url.clone());
            let http = http.map_err(|error| format!("queues.{}: {error}", push.queue))?;
            Ok((Arc::new(push.clone()), http))
        });
        ready.collect::<Result<_, String>>().map(Self)
    }

    /// Sends until the server stops; what is under way then is followed to its end.
    pub(crate) async fn run(
        self,
        engine: Engine,
        counts: Arc<Counts>,
        stop: watch::Receiver<bool>,
    ) {
        let mut couriers = JoinSet::new();
        for (push, http) in self.0 {
            let desk = Desk::new(
                engine.clone(),
                push,
                http,
                Arc::clone(&counts),
                stop.clone(),
            );
            couriers.spawn(Courier::new(desk).run());
        }
        while let Some(ended) = couriers.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a push queue broke down");
            }
        }
    }
}
