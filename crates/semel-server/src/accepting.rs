//! Letting callers in, as many at once as there may be.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};

use crate::config::Limits;
use crate::connection::{Answers, Connection, Spoken, serve};
use crate::listener::Listener;
use crate::proof::Proofs;
use crate::replies::Replies;
use crate::tls::Encryption;

/// The pause after a connection could not be accepted: there may be no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An open door, and what is behind it.
pub(crate) struct Accepting<A> {
    pub(crate) listener: Listener,
    pub(crate) encryption: Option<Encryption>,
    pub(crate) spoken: Spoken,
    pub(crate) answers: A,
    pub(crate) replies: Replies,
    pub(crate) limits: Limits,
    /// Where proof of receipt is kept, for those who want it.
    pub(crate) proofs: Option<Proofs>,
}

impl<A: Answers> Accepting<A> {
    /// Serves connections until it is told to stop; then the door is closed. What is returned says nothing more when
    /// all connections are gone. Each holds what `connected` makes.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        mut stop: watch::Receiver<bool>,
        connected: impl Fn() -> T,
    ) -> mpsc::Receiver<()> {
        let places = Arc::new(Semaphore::new(self.limits.connections));
        // Every connection holds a sender: when all are gone, all connections are.
        let (alive, all_gone) = mpsc::channel::<()>(1);
        loop {
            let place = tokio::select! {
                biased;
                () = crate::stopped(&mut stop) => break,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let Ok(place) = place else { break };
            let socket = tokio::select! {
                biased;
                () = crate::stopped(&mut stop) => break,
                socket = self.listener.accept() => socket,
            };
            let socket = match socket {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let connection = Connection {
                acceptor: self.encryption.as_ref().map(Encryption::acceptor),
                spoken: self.spoken,
                answers: self.answers.clone(),
                replies: self.replies.clone(),
                head: self.limits.head,
                proofs: self.proofs.clone(),
                stop: stop.clone(),
            };
            let (alive, connected) = (alive.clone(), connected());
            tokio::spawn(async move {
                serve(socket, connection).await;
                drop((place, alive, connected));
            });
        }
        all_gone
    }
}
