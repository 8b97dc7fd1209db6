//! Calls before a server that fails: whoever need not call it is answered all the same.

use semel::breaker::Pass;
use semel::door::Preview as Door;
use semel::{Error, Namespace, Permit, Preview};

use super::super::answer::{self, To};
use super::super::catalogue::Served;
use super::super::http::desk::{Answered, Asked};
use super::super::message::Message;
use super::super::policy::Cancel;
use super::super::say;
use super::super::upstream::Reply;
use super::super::verdict::is_well;
use super::call::Call;
use super::lead::{Led, last_within};
use super::{Exchange, Gateway, Session};
use crate::incident;

impl Served {
    /// Asks whether the server may be called, right before it is.
    async fn admitted(&self, namespace: &Namespace) -> Result<Option<Pass>, Error> {
        match &self.breakers {
            None => Ok(None),
            Some(breakers) => breakers.of(namespace).admit().await.map(Some),
        }
    }
}

impl Gateway {
    /// Asks whether the server may be called, before anything is claimed. While the breaker is closed that is a look.
    /// While it is not, only those are refused who would have to call: an answer that is stored, or that somebody else
    /// is just getting, needs no server. Of all who would, one takes the place of the probe; the others claim nothing.
    pub(super) async fn admitted_to_claim(&self, call: &Call<'_>) -> Result<Option<Pass>, Error> {
        let Some(breakers) = &call.served.breakers else {
            return Ok(None);
        };
        let breaker = breakers.of(&call.asked.namespace);
        if let Some(pass) = breaker.pass_if_closed().await? {
            return Ok(Some(pass));
        }
        let foreseen = self.doorway.preview(&call.identity, self.claim(call)).await;
        let calls = match foreseen.map(|foreseen| foreseen.preview) {
            Ok(Door::Ledger(Preview::Execute { .. } | Preview::Probe)) => true,
            Ok(
                Door::Ledger(Preview::Replay(_) | Preview::Wait { .. } | Preview::InDoubt(_))
                | Door::Challenged { .. },
            ) => false,
            // What is wrong with it is said by whoever begins it.
            Err(_) => false,
        };
        if calls {
            call.served.admitted(&call.asked.namespace).await
        } else {
            Ok(None)
        }
    }

    /// Asks once more when the claim is there: the breaker may have opened meanwhile, and whoever waited for another
    /// attempt has not asked at all. A probe has its place.
    pub(super) async fn still_admitted(
        &self,
        call: &Call<'_>,
        pass: Option<Pass>,
    ) -> Result<Option<Pass>, Error> {
        match pass {
            Some(pass) if pass.is_probe() => Ok(Some(pass)),
            Some(_) | None => call.served.admitted(&call.asked.namespace).await,
        }
    }

    /// Gives a claim back whose server is left alone after all, and says why. A doubt that was to be looked up stays
    /// one.
    pub(super) async fn given_back(&self, call: &Call<'_>, permit: Permit, why: &Error) -> Message {
        let reason = "the breaker opened before anything was sent";
        let released = if permit.is_probe() {
            permit.unknown(reason).await
        } else {
            permit.not_done(reason).await
        };
        match released {
            Ok(_) => self.refusal(call, why),
            Err(error) => self.refusal(call, &error),
        }
    }

    /// Passes on a call of a tool that only reads; a breaker before its server is asked, and told what became of it.
    pub(super) async fn read(
        &self,
        session: &Session,
        led: &Led<'_>,
        asked: &Asked,
        shown: &str,
        exchange: &Exchange,
    ) -> Answered {
        let request = &led.request;
        let id = request.id().unwrap_or("null");
        let mut pass = match led.served.admitted(&asked.namespace).await {
            Ok(Some(pass)) => Some(pass),
            Ok(None) => return self.passed(session, led.upstream, request, asked).await,
            Err(error) => {
                let to = To {
                    id,
                    era: led.ask.era,
                    tool: shown,
                    resolve: self.resolve_by(asked),
                };
                return answer::not_admitted(&to, &incident::conceal(error)).into();
            }
        };
        // A pass is dropped with whoever does not wait for the answer: that says nothing of the server.
        let mut sending = led.upstream.request(request, &asked.headers);
        let sent = tokio::select! {
            sent = &mut sending => sent,
            () = exchange.given_up() => {
                pass = None;
                // Half of a message would spoil the next one.
                sending.await
            }
        };
        let policy = led.served.policy.tool(led.ask.name.as_str());
        let timeout = policy.timeout.unwrap_or(self.about.timeout);
        let came = match sent {
            Ok(replies) => tokio::select! {
                reply = last_within(timeout, session, asked, replies) => Ok(reply),
                () = exchange.given_up() => {
                    pass = None;
                    Err("it was cancelled".to_owned())
                }
            },
            Err(not_sent) => Err(not_sent.to_string()),
        };
        if let Some(pass) = pass {
            pass.ended(came.as_ref().is_ok_and(is_well)).await;
        }
        match came {
            Ok(reply) => self.handed(id, reply),
            Err(why) => say::server_gone(id, &why).into(),
        }
    }
}

/// Tells a breaker what came for a call that acts; `None` where nothing was sent.
pub(super) async fn counted(
    call: &Call<'_>,
    pass: Option<Pass>,
    came: Option<&Reply>,
    exchange: &Exchange,
) {
    let Some(pass) = pass else { return };
    let is_well = came.is_some_and(is_well);
    // Who was told of a cancel need not answer: then the pass is dropped, and counts as nothing.
    if is_well || !(call.policy.cancel == Cancel::Forward && exchange.is_given_up()) {
        pass.ended(is_well).await;
    }
}
