//! A call of a tool that acts: claimed, sent at most once, recorded, answered.

use std::sync::Arc;
use std::time::Duration;

use semel::breaker::Pass;
use semel::core::identity::{self, Door, Identity, Observation, Relation, Scope, Source};
use semel::core::ledger::{Delivery, Record, StateKind};
use semel::door::{Admission, Entered};
use semel::{Class, Error, Key, Label, Lease, Permit, Receipt, Request};
use tokio::time::Instant;

use super::super::answer::{self, Doubt, Known, Outcome, ResolveBy, To};
use super::super::ask::Ask;
use super::super::catalogue::Served;
use super::super::edit;
use super::super::http::desk::{Answered, Asked};
use super::super::message::Message;
use super::super::policy::ToolPolicy;
use super::super::say;
use super::super::upstream::{Reply, Upstream};
use super::super::verdict::{Finding, Terms, is_invalid_params};
use super::breaking::counted;
use super::lead::{Led, last_within, unread};
use super::{Exchange, Gateway, Session};
use crate::incident;

/// How often a call begins again after a doubt of its own was looked up, before its caller is told to.
const ROUNDS_MAX: u32 = 5;

/// The lease of a call that can be looked up, which is not possible before its end: it is renewed while the
/// call runs, so a short one costs little and lets nobody wait for long.
const LOOKED_UP_LEASE: Duration = Duration::from_secs(5);

/// A call as the gateway sees it.
pub(super) struct Call<'a> {
    pub(super) session: &'a Session,
    /// What carries it out.
    pub(super) upstream: &'a dyn Upstream,
    pub(super) served: &'a Served,
    /// The tool's name, as the client knows it.
    pub(super) shown: String,
    pub(super) request: &'a Message,
    pub(super) asked: &'a Asked,
    pub(super) ask: Ask,
    pub(super) policy: &'a ToolPolicy,
    pub(super) class: Class,
    pub(super) identity: identity::Call,
}

/// What one try came to.
pub(super) enum Round {
    /// This is the answer.
    Over(Box<Answered>),
    /// The operation may be begun now.
    Again,
}

impl Round {
    pub(super) fn over(answered: impl Into<Answered>) -> Self {
        Self::Over(Box::new(answered.into()))
    }
}

impl Call<'_> {
    /// Says whom the answers are for.
    pub(super) fn to(&self, gateway: &Gateway) -> To<'_> {
        To {
            id: self.request.id().unwrap_or("null"),
            era: self.ask.era,
            tool: &self.shown,
            resolve: gateway.resolve_by(self.asked),
        }
    }

    /// Returns the key that the caller itself gave.
    pub(super) fn own_key(&self) -> Option<&str> {
        self.identity
            .explicit
            .as_ref()
            .map(identity::ClientText::as_str)
    }
}

impl Gateway {
    /// Says how a doubt can be resolved by the client that is told of it.
    pub(super) fn resolve_by(&self, asked: &Asked) -> ResolveBy {
        if self.about.admin_tools && asked.scope.includes(semel::Scope::Operate) {
            ResolveBy::Tool
        } else {
            ResolveBy::Command
        }
    }

    /// Answers a call of a tool.
    pub(super) async fn call(
        &self,
        session: &Session,
        request: &Message,
        asked: &Asked,
        exchange: &Exchange,
    ) -> Answered {
        let read = Ask::read(request.params(), session.client());
        let ask = match read {
            Ok(ask) => ask,
            Err(refused) => return answer::refused(&unread(request), &refused).into(),
        };
        let shown = ask.name.as_str().to_owned();
        if self.is_own_tool(&shown) {
            return self.administer(request, asked, &ask).await.into();
        }
        let led = match self.led(session, request, ask).await {
            Ok(led) => led,
            Err(refusal) => return (*refusal).into(),
        };
        let class = led.served.class(led.ask.name.as_str());
        if class == Class::Safe {
            return self.read(session, &led, asked, &shown, exchange).await;
        }
        let Led {
            served,
            upstream,
            request,
            ask,
        } = led;
        let request = &request;
        let policy = served.policy.tool(ask.name.as_str());
        let scope = Scope {
            principal: asked.principal.clone(),
            target: served.name.clone(),
            conversation: ask.conversation(&asked.headers.0, &served.policy),
        };
        let identity = match ask.call(scope, &asked.headers.0, &served.policy) {
            Ok(identity) => identity,
            Err(refused) => return answer::refused(&unread(request), &refused).into(),
        };
        let mut call = Call {
            session,
            upstream,
            served,
            shown,
            request,
            asked,
            policy,
            class,
            ask,
            identity,
        };
        if call.ask.is_preview {
            return self.preview(&mut call).await.into();
        }
        if let Err(refusal) = self.check_plan(&mut call) {
            return refusal.into();
        }
        let patience = Instant::now() + self.about.wait;
        for _ in 0..ROUNDS_MAX {
            match self.round(&call, exchange, patience).await {
                Round::Over(answered) => return *answered,
                Round::Again => exchange.withdraw(),
            }
        }
        let why = "the same call is looked up again and again";
        answer::store_unavailable(&call.to(self), why).into()
    }

    async fn round(&self, call: &Call<'_>, exchange: &Exchange, patience: Instant) -> Round {
        let pass = match self.admitted_to_claim(call).await {
            Ok(pass) => pass,
            Err(error) => return Round::over(self.refusal(call, &error)),
        };
        let entered = self.doorway.enter(&call.identity, self.claim(call)).await;
        let Entered {
            identity,
            ticket,
            admission,
            delivery,
        } = match entered {
            Ok(entered) => entered,
            Err(error) => return Round::over(self.refusal(call, &error)),
        };
        if let (Admission::Replay(_), Some(ticket)) = (&admission, &ticket) {
            // The answers to identical calls leave in the order of the calls.
            ticket.earlier_answered().await;
        }
        if let Some(ticket) = ticket {
            exchange.judged(ticket);
        }
        match admission {
            Admission::Execute(permit) | Admission::Probe(permit) => {
                let pass = match self.still_admitted(call, pass).await {
                    Ok(pass) => pass,
                    Err(error) => {
                        return Round::over(self.given_back(call, permit, &error).await);
                    }
                };
                if permit.is_probe() {
                    self.look_up(call, &identity, (permit, pass), exchange)
                        .await
                } else {
                    self.execute(call, &identity, (permit, pass), exchange)
                        .await
                }
            }
            Admission::Replay(receipt) => {
                let to = call.to(self);
                let outcome = match identity.relation {
                    Relation::Joined => Outcome::Joined,
                    _ => Outcome::Replayed,
                };
                let now = self.engine.store().now();
                let known = Known {
                    delivery,
                    ..known(&receipt, &identity)
                };
                Round::over(answer::replay(&to, &known, outcome, now))
            }
            Admission::Wait { .. } => {
                exchange.see(Observation::PutOff);
                let explicit = call.own_key();
                Round::over(answer::in_progress(&call.to(self), &identity, explicit))
            }
            Admission::InDoubt(record) => {
                // Nothing is called for now, and a person may be asked.
                drop(pass);
                if let Some(at) = self.look_up_at(&record) {
                    let pause = at.since(self.engine.store().now());
                    if Instant::now() + pause <= patience {
                        tokio::time::sleep(pause).await;
                        return Round::Again;
                    }
                }
                let round = self.doubt(call, &identity, &record, None).await;
                if matches!(round, Round::Over(_)) {
                    exchange.see(Observation::PutOff);
                }
                round
            }
            Admission::Challenged { prior } => {
                Round::over(self.challenged(call, &identity, &prior).await)
            }
        }
    }

    /// Asks whether a second effect is meant.
    async fn challenged(&self, call: &Call<'_>, identity: &Identity, prior: &Record) -> Answered {
        let to = call.to(self);
        let namespace = &call.asked.namespace;
        let payload = match self.engine.payload(namespace, &identity.key).await {
            Ok(payload) => payload.map(Arc::from),
            Err(error) => return self.refusal(call, &error).into(),
        };
        let now = self.engine.store().now();
        match self.receipt(prior, payload) {
            Some(receipt) => answer::challenged(&to, &known(&receipt, identity), now).into(),
            None => answer::expired(&to, &identity.key, &call.identity).into(),
        }
    }

    /// Makes the receipt of an operation that this call did not touch.
    pub(super) fn receipt(&self, record: &Record, payload: Option<Arc<[u8]>>) -> Option<Receipt> {
        Receipt::of(record, true, payload, self.engine.store().now())
    }

    /// Describes the operation that a call is for.
    pub(super) fn claim(&self, call: &Call<'_>) -> Request {
        let policy = call.policy;
        let input = call.ask.input(policy);
        // The doorway gives it its key.
        let key = Key::new("mcp").expect("three letters are a key");
        let mut request = Request::new(call.ask.name.as_str(), key)
            .namespace(call.asked.namespace.clone())
            .input_json(input.as_bytes())
            .class(call.class)
            .on_doubt(policy.on_doubt(call.class))
            .door(Label::new(Door::Mcp.as_str()).expect("it is a word"))
            .wait(self.about.wait);
        let tool = format!("{}/{}", call.served.name, call.ask.name.as_str());
        if let Ok(tool) = Label::new(tool.trim_start_matches('/')) {
            request = request.behind(tool);
        }
        if let Some(principal) = &call.asked.principal
            && let Ok(principal) = Label::new(principal)
        {
            request = request.principal(principal);
        }
        if let Some(verify) = &policy.verify {
            let lease = Lease::new(LOOKED_UP_LEASE).unwrap_or(Lease::DEFAULT);
            request = request.lease(lease).settle_delay(verify.after);
        }
        if let Some(window) = policy.retry_within {
            request = request.retry_within(window);
        }
        request
    }

    /// Sends a call to the server and records what comes of it.
    async fn execute(
        &self,
        call: &Call<'_>,
        identity: &Identity,
        (permit, pass): (Permit, Option<Pass>),
        exchange: &Exchange,
    ) -> Round {
        let to = call.to(self);
        let pinned = permit.upstream_key();
        let pin = call
            .policy
            .inject
            .as_ref()
            .map(|place| (place, pinned.as_str()));
        let forwarded = match call.ask.forwarded(call.request, pin) {
            Ok(forwarded) => forwarded,
            Err(error) => {
                let why = error.to_string();
                return Round::over(match permit.not_done(&why).await {
                    Ok(receipt) => answer::not_done(&to, &known(&receipt, identity), &why),
                    Err(error) => self.refusal(call, &error),
                });
            }
        };
        let (finding, reply) = self.sent(call, &forwarded).await;
        let ended = match &finding {
            Finding::Done {
                ok,
                effect,
                payload,
            } => permit.finish(*ok, *effect, Some(payload.clone())).await,
            Finding::NotDone(why) => permit.not_done(why).await,
            Finding::Unknown(why) => permit.unknown(why).await,
        };
        // Once the outcome is stored: a crash in between costs a count.
        counted(call, pass, reply.as_ref(), exchange).await;
        let receipt = match ended {
            Ok(receipt) => receipt,
            Err(error) => {
                if !matches!(error, Error::Unstored { .. }) {
                    exchange.see(Observation::PutOff);
                }
                return Round::over(self.unstored(call, identity, &error, reply));
            }
        };
        let known = known(&receipt, identity);
        if receipt.replayed {
            // Another attempt's outcome stands: that is what everybody is told.
            let now = self.engine.store().now();
            return Round::over(answer::replay(&to, &known, Outcome::Replayed, now));
        }
        let answered: Answered = match (finding, reply) {
            (Finding::Done { .. }, Some(Reply::Answer(message, headers))) => Answered {
                message: answer::answered(&message, &known, Outcome::Executed),
                headers,
                status: None,
            },
            // What the server asks for, or refuses, its client must hear as it was said.
            (Finding::NotDone(_), Some(Reply::Answer(message, headers))) => Answered {
                message: answer::answered(&message, &known, Outcome::NotDone),
                headers,
                status: None,
            },
            (Finding::Done { .. } | Finding::NotDone(_), Some(Reply::Http(refusal))) => {
                self.handed_on(to.id, refusal)
            }
            (Finding::NotDone(why), _) => answer::not_done(&to, &known, &why).into(),
            (Finding::Unknown(why), _) => {
                let round = self.lost(call, identity, &receipt, &why).await;
                if matches!(round, Round::Over(_)) {
                    // Whoever is told of a doubt has no outcome: when it is settled, they come for it.
                    exchange.see(Observation::PutOff);
                }
                return round;
            }
            (Finding::Done { .. }, _) => say::internal(to.id).into(),
        };
        Round::over(answered)
    }

    /// Sends a request once and waits for what comes of it.
    async fn sent(&self, call: &Call<'_>, forwarded: &Message) -> (Finding, Option<Reply>) {
        let timeout = call.policy.timeout.unwrap_or(self.about.timeout);
        let replies = match call.upstream.request(forwarded, &call.asked.headers).await {
            Ok(replies) => replies,
            Err(not_sent) => return (Finding::of_not_sent(&not_sent), None),
        };
        let last = last_within(timeout, call.session, call.asked, replies).await;
        // What was sent, with the key that may have been put among the arguments.
        let arguments = forwarded.params();
        let arguments = arguments.and_then(|params| edit::get(params, &["arguments"]));
        let served = call.served;
        let refuted = is_invalid_params(&last) && served.refutes(call.ask.name.as_str(), arguments);
        let terms = Terms {
            effect: call.policy.effect,
            lost_texts: &served.policy.lost_texts,
            refuted,
        };
        let finding = Finding::of(&last, &terms);
        let finding = finding.unwrap_or_else(|| Finding::Unknown("nothing came".to_owned()));
        (finding, Some(last))
    }

    /// Says what came of a call whose outcome the ledger did not take.
    fn unstored(
        &self,
        call: &Call<'_>,
        identity: &Identity,
        error: &Error,
        reply: Option<Reply>,
    ) -> Answered {
        match (error, reply) {
            // The caller gets what there is, marked: the operation is in doubt.
            (Error::Unstored { .. }, Some(Reply::Answer(message, headers))) => {
                tracing::error!(%error, key = %identity.key, "an outcome could not be stored");
                let concealed = incident::conceal_from(error);
                let told = concealed.as_ref().unwrap_or(error).to_string();
                Answered {
                    message: answer::unstored(&message, &identity.key, &told),
                    headers,
                    status: None,
                }
            }
            _ => self.refusal(call, error).into(),
        }
    }

    /// Says why a call was not carried out.
    pub(super) fn refusal(&self, call: &Call<'_>, error: &Error) -> Message {
        let to = call.to(self);
        if let Error::Refused(refusal) = error
            && let Some(record) = refusal.record.as_deref()
            && record.kind_at(self.engine.store().now()) == StateKind::Doubtful
            && let Some(receipt) = self.receipt(record, None)
        {
            let doubt = Doubt::earlier(&to, &receipt);
            return answer::in_doubt(&to, &recorded(&receipt, record), &doubt);
        }
        let concealed = incident::conceal_from(error);
        let error = concealed.as_ref().unwrap_or(error);
        answer::not_begun(&to, &call.identity, error)
    }
}

/// Says what is known of the operation that a call was judged to be for.
pub(super) const fn known<'a>(receipt: &'a Receipt, identity: &Identity) -> Known<'a> {
    Known {
        receipt,
        source: identity.source,
        occurrence: identity.occurrence,
        delivery: Delivery::Unknown,
    }
}

/// Says what is known of an operation that the ledger spoke of itself.
fn recorded<'a>(receipt: &'a Receipt, record: &Record) -> Known<'a> {
    let operation = record.operation();
    Known {
        receipt,
        source: Source::of(&receipt.key).unwrap_or(Source::Explicit),
        occurrence: operation.map_or(1, |operation| operation.spec.occurrence),
        delivery: operation.map_or(Delivery::Unknown, |operation| operation.delivery),
    }
}

/// Says what is known of an operation that was asked for by its name: no word is lost on how it was
/// recognised.
pub(super) const fn bare(receipt: &Receipt) -> Known<'_> {
    Known {
        receipt,
        source: Source::Explicit,
        occurrence: 1,
        delivery: Delivery::Unknown,
    }
}
