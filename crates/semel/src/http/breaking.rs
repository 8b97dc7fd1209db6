//! Requests before an upstream that fails: whoever need not call it is answered all the same.

use semel_core::Namespace;

use super::guard::{Asked, Inner};
use super::refusal::Refusal;
use crate::breaker::Pass;
use crate::door::Preview;
use crate::engine::{self, Permit, Request};
use crate::error::Error;

impl Inner {
    /// Asks whether the upstream may be called, right before it is.
    pub(super) async fn admitted(&self, namespace: &Namespace) -> Result<Option<Pass>, Refusal> {
        match &self.breakers {
            None => Ok(None),
            Some(breakers) => {
                let pass = breakers.of(namespace).admit().await;
                pass.map(Some).map_err(|error| self.left_alone(&error))
            }
        }
    }

    /// Says whether the upstream might be called now, and takes no place.
    pub(super) async fn would_be_admitted(&self, namespace: &Namespace) -> Result<(), Refusal> {
        match &self.breakers {
            None => Ok(()),
            Some(breakers) => {
                let admitted = breakers.of(namespace).would_admit().await;
                admitted.map_err(|error| self.left_alone(&error))
            }
        }
    }

    /// Asks whether the upstream may be called, before anything is claimed. While the breaker is closed that is a look.
    /// While it is not, only those are refused who would have to call: an answer that is stored, or that somebody else is
    /// just getting, needs no upstream. Of all who would, one takes the place of the probe; the others claim nothing.
    pub(super) async fn admitted_to_claim(
        &self,
        asked: &Asked,
        claim: &Request,
    ) -> Result<Option<Pass>, Refusal> {
        let Some(breakers) = &self.breakers else {
            return Ok(None);
        };
        let closed = breakers.of(&asked.namespace).pass_if_closed().await;
        if let Some(pass) = closed.map_err(|error| self.left_alone(&error))? {
            return Ok(Some(pass));
        }
        let foreseen = self.doorway.preview(&asked.ask.call, claim.clone()).await;
        let calls = match foreseen.map(|foreseen| foreseen.preview) {
            Ok(Preview::Ledger(engine::Preview::Execute { .. } | engine::Preview::Probe)) => true,
            Ok(
                Preview::Ledger(
                    engine::Preview::Replay(_)
                    | engine::Preview::Wait { .. }
                    | engine::Preview::InDoubt(_),
                )
                | Preview::Challenged { .. },
            ) => false,
            // What is wrong with it is said by whoever begins it.
            Err(_) => false,
        };
        if calls {
            self.admitted(&asked.namespace).await
        } else {
            Ok(None)
        }
    }

    /// Asks once more when the claim is there: the breaker may have opened meanwhile, and whoever waited for another
    /// attempt has not asked at all. A probe has its place.
    pub(super) async fn still_admitted(
        &self,
        asked: &Asked,
        pass: Option<Pass>,
    ) -> Result<Option<Pass>, Refusal> {
        match pass {
            Some(pass) if pass.is_probe() => Ok(Some(pass)),
            Some(_) | None => self.admitted(&asked.namespace).await,
        }
    }

    /// Gives a claim back whose upstream is left alone after all.
    pub(super) async fn give_back(&self, permit: Permit) -> Result<(), Refusal> {
        let released = permit.not_done("the breaker opened before anything was sent");
        let released = released.await.map(drop);
        released.map_err(|error| Refusal::of(&error, &self.rules.profile))
    }

    fn left_alone(&self, error: &Error) -> Refusal {
        if error.code() == "breaker_open" {
            let now = self.doorway.engine().store().now();
            Refusal::breaker_open(&error.to_string(), error.retry_at(), now)
        } else {
            Refusal::of(error, &self.rules.profile)
        }
    }
}
