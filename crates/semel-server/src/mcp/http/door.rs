//! The door for clients over HTTP: opened, served, closed.

use std::sync::Arc;

use semel::Engine;
use semel::core::http::CredentialRule;
use tokio::sync::watch;

use super::desk::Desk;
use super::front::{Behind, Front, PATH};
use crate::accepting::Accepting;
use crate::config::Config;
use crate::connection::Spoken;
use crate::door::Door;
use crate::principal_key::PrincipalKey;
use crate::replies::Replies;
use crate::tls::Encryption;
use crate::{StartError, Stop};

/// A gateway that has opened its door.
#[derive(Debug)]
pub(crate) struct Opened<D: Desk> {
    door: Door,
    front: Arc<Front<D>>,
    config: Config,
    stop: watch::Sender<bool>,
}

impl<D: Desk> Opened<D> {
    /// Opens the door.
    ///
    /// # Errors
    /// Says why that is not possible.
    pub(crate) async fn open(
        desk: Arc<D>,
        behind: Behind<D>,
        engine: Engine,
        mut config: Config,
        principal_key: PrincipalKey,
        credentials: CredentialRule,
    ) -> Result<Self, StartError> {
        let door = Door::open(&engine, &mut config, Spoken::Http1).await?;
        let (stop, stopped) = watch::channel(false);
        let front = Front::new(
            desk,
            behind,
            engine,
            config.clone(),
            principal_key,
            credentials,
            stopped,
        );
        Ok(Self {
            door,
            front,
            config,
            stop,
        })
    }

    /// Returns where clients find it.
    pub(crate) fn address(&self) -> String {
        format!("{}{PATH}", self.door.address)
    }

    /// Returns what stops it.
    pub(crate) fn stopper(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Serves until it is told to stop; then drains, at most as long as the limit says, and waits for what goes on
    /// without its client. Returns whether everything was done by then.
    pub(crate) async fn run(self, drained: impl Future<Output = ()>) -> bool {
        let encryption = self.door.encryption;
        let freshening = encryption
            .clone()
            .map(|it| tokio::spawn(Encryption::keep_fresh(it)));
        let accepting = Accepting {
            listener: self.door.listener,
            encryption,
            spoken: Spoken::Http1,
            answers: self.front.router(),
            replies: Replies::new(self.config.drops_replies),
            limits: self.config.limits.clone(),
            proofs: Some(self.front.proofs()),
        };
        let mut all_gone = accepting.run(self.stop.subscribe(), || ()).await;
        if let Some(task) = freshening {
            task.abort();
        }
        let gone = tokio::time::timeout(self.config.limits.drain, all_gone.recv()).await;
        drained.await;
        self.front.end().await;
        gone.is_ok()
    }
}
