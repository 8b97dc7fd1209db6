//! A proxy that has opened its door.

use std::sync::Arc;

use semel::Engine;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::front::{Front, Guarded, Guards, Routed};
use super::route::Matches;
use crate::accepting::Accepting;
use crate::config::Config;
use crate::connection::Spoken;
use crate::door::Door;
use crate::metrics::Proxied;
use crate::principal_key::PrincipalKey;
use crate::replies::Replies;
use crate::tls::Encryption;
use crate::{StartError, Stop};

/// A proxy that has opened its door.
#[derive(Debug)]
pub(super) struct Opened<G> {
    door: Door,
    front: Arc<Front<G>>,
    config: Config,
    stop: watch::Sender<bool>,
}

impl<G: Guards> Opened<G> {
    /// Opens the door.
    ///
    /// # Errors
    /// Says why that is not possible.
    pub(super) async fn open(
        engine: Engine,
        routes: Vec<(Matches, Guarded<G>)>,
        mut config: Config,
    ) -> Result<Self, StartError> {
        let door = Door::open(&engine, &mut config, Spoken::Both).await?;
        if config.listen.is_local() || !config.hosts.is_empty() {
            // Whoever asks for the host of a route means it.
            let named = routes.iter().filter_map(|(matches, _)| matches.name());
            config.hosts.extend(named);
        }
        let principal_key = PrincipalKey::open(&engine, "proxy").await?;
        let (stop, _) = watch::channel(false);
        let front = Front::new(routes, engine, config.clone(), principal_key);
        Ok(Self {
            door,
            front,
            config,
            stop,
        })
    }

    /// Returns where clients find it.
    pub(super) fn address(&self) -> &str {
        &self.door.address
    }

    /// Returns what is counted of its requests.
    pub(super) fn counts(&self) -> Arc<Proxied> {
        self.front.counts()
    }

    /// Returns what stops it.
    pub(super) fn stopper(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Serves until it is told to stop. Then nobody else is let in, and what is under way is answered and recorded, at
    /// most as long as the limit says. Returns whether everything was done by then.
    pub(super) async fn run(self) -> bool {
        let encryption = self.door.encryption;
        let freshening = encryption
            .clone()
            .map(|it| tokio::spawn(Encryption::keep_fresh(it)));
        let accepting = Accepting {
            listener: self.door.listener,
            encryption,
            spoken: Spoken::Both,
            answers: Routed(Arc::clone(&self.front)),
            replies: Replies::new(self.config.drops_replies),
            limits: self.config.limits.clone(),
            proofs: Some(self.front.proofs()),
        };
        let mut all_gone = accepting.run(self.stop.subscribe(), || ()).await;
        if let Some(task) = freshening {
            task.abort();
        }
        let deadline = Instant::now() + self.config.limits.drain;
        let gone = timeout_at(deadline, all_gone.recv()).await;
        // Callers may be gone whose requests go on.
        let drained = timeout_at(deadline, self.front.drained()).await;
        gone.is_ok() && drained.is_ok()
    }
}
