//! Commands for a ledger that another machine keeps: they are sent there, and the rules run there.

use semel_core::ledger::{Begin, Command, Sighting};

use super::ledger::{Applied, Brought, Ledger, Subject};
use crate::error::Result;
use crate::hold;
use crate::remote::{RemoteStore, Told};
use crate::store::open_notes;

impl Ledger {
    /// Has a command carried out where the store is.
    pub(super) async fn send(
        &self,
        remote: &RemoteStore,
        subject: &Subject,
        command: &Command,
        brought: &Brought,
    ) -> Result<Applied> {
        let seen = self.seen_here(subject, command);
        let command = seen.as_ref().unwrap_or(command);
        match remote.apply(subject, command, brought).await? {
            Told::Applied { reply, current, at } => {
                if !matches!(command, Command::Begin(_) | Command::Renew(_)) {
                    // What others wait for may have come to its end.
                    self.waiters.wake(&subject.hash);
                }
                Ok(Applied { reply, current, at })
            }
            Told::Refused { rejection, record } => Err(subject.refused_on(rejection, record)),
        }
    }

    /// Adds to a Begin that a process of an attempt is alive on this machine: nobody else can see that.
    /// What is stored is not known yet, so it is said whether the clock doubts the holder or not; a
    /// sighting of another attempt says nothing to the rules.
    fn seen_here(&self, subject: &Subject, command: &Command) -> Option<Command> {
        let Command::Begin(begin) = command else {
            return None;
        };
        if begin.sighting.is_some() {
            return None;
        }
        let directory = open_notes(&*self.store).ok()??;
        let fence = hold::newest_alive(&directory, &subject.hash)?;
        let sighting = Some(Sighting { fence, alive: true });
        Some(Command::Begin(Begin {
            sighting,
            ..begin.clone()
        }))
    }
}
