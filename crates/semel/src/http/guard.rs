//! The course of a request: read, judged, carried out or answered from what is known.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use semel_core::http::{AfterExpiry, BodyHasher, Compare, Protection, dated};
use semel_core::identity::{Identity, Kin, Observation, Source};
use semel_core::ledger::Rejection;
use semel_core::{Found, Key, Label, Lease, Namespace, Note, OnDoubt, Policy, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use super::ask::{Ask, DRY_RUN, HeadVerdict, Treatment, is_coded, is_dry_run, opaque};
use super::carry::{Carrying, Told, is_answered_well, unmarked};
use super::received::{NotReceived, Received};
use super::refusal::{Refusal, SEMEL_ERROR};
use super::rules::{Forward, Rules};
use super::running::Running;
use super::saved::{Joined, saver};
use super::{Answer, Became, Body, Caller, Seat, SendError, Upstream, lookup, replay};
use crate::breaker::{Breakers, Pass};
use crate::door::{Admission, Doorway, Entered, Preview};
use crate::engine::{self, Engine, Permit, Request, Saver};
use crate::error::Error;
use crate::within;

/// How often a request begins again after a doubt of its own was looked up, or an answer that is no longer kept was
/// forgotten, before its caller is told to.
const ROUNDS_MAX: u32 = 5;

/// The longest lease of a request that can be looked up.
const LOOKED_UP_LEASE: Duration = Duration::from_secs(5);

/// Makes requests to an upstream take effect once. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Guard(Arc<Inner>);

pub(super) struct Inner {
    pub(super) doorway: Doorway,
    pub(super) rules: Rules,
    pub(super) upstream: Arc<dyn Upstream>,
    pub(super) running: Running,
    /// What answers that are given again are counted for.
    pub(super) saver: Saver,
    /// What keeps requests from the upstream while it fails, in each namespace.
    pub(super) breakers: Option<Breakers>,
    /// The places of what is under way.
    places: Arc<Semaphore>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// Guards an upstream.
    #[must_use]
    pub fn new(doorway: Doorway, rules: Rules, upstream: Arc<dyn Upstream>) -> Self {
        let places = rules.limits.under_way.min(Semaphore::MAX_PERMITS);
        let target = rules.breaker.as_ref();
        let breakers = target.map(|target| Breakers::new(doorway.engine(), target));
        Self(Arc::new(Inner {
            saver: saver(doorway.engine(), &rules.target),
            doorway,
            upstream,
            running: Running::default(),
            breakers,
            places: Arc::new(Semaphore::new(places)),
            rules,
        }))
    }

    /// Returns how requests are treated.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Answers a request. Whoever drops the future has left: what was begun goes on without them.
    pub async fn handle(&self, request: http::Request<Body>, caller: Caller) -> Answer {
        let answered = self.0.answer(request, &caller).await;
        answered.unwrap_or_else(|refusal| Answer {
            response: refusal.response(),
            became: Became::Refused,
            seat: None,
        })
    }

    /// Returns the engine that keeps the ledger.
    pub(super) fn engine(&self) -> &Engine {
        self.0.doorway.engine()
    }

    /// Says why a request was not even looked at.
    pub(super) fn refused(&self, error: &Error) -> http::Response<Body> {
        Refusal::of(error, &self.0.rules.profile).response()
    }

    /// Waits until everything that was begun has ended.
    pub async fn drained(&self) {
        let all = u32::try_from(self.0.rules.limits.under_way).unwrap_or(u32::MAX);
        // It is closed by nobody.
        drop(self.0.places.acquire_many(all).await);
    }
}

/// What one try came to.
enum Round {
    Over(Box<Answer>),
    /// The operation may be begun now.
    Again,
}

impl Inner {
    async fn answer(
        self: &Arc<Self>,
        request: http::Request<Body>,
        caller: &Caller,
    ) -> Result<Answer, Refusal> {
        let (mut parts, body) = request.into_parts();
        let is_dry = is_dry_run(&parts.headers)?;
        parts.headers.remove(DRY_RUN);
        let namespace = caller.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| self.doorway.engine().namespace());
        let (treatment, body) = match self.rules.judge_head(&parts)? {
            HeadVerdict::ReadBody(kind) => {
                let received = self.received(&parts.headers, body).await?;
                // The body is here: the upstream need not ask for it.
                parts.headers.remove(header::EXPECT);
                let key = self.rules.body_key(&parts.headers, &received)?;
                (self.rules.judge(kind, key)?, Incoming::Whole(received))
            }
            HeadVerdict::Decided(treatment) => (treatment, Incoming::Stream(body)),
        };
        let (protection, key) = match treatment {
            Treatment::Guard { protection, key } => (protection, key),
            Treatment::Pass { .. } if is_dry => return Ok(self.would_pass(&namespace).await),
            Treatment::Pass { is_safe } => {
                return self.pass(parts, body.body(), is_safe, &namespace).await;
            }
        };
        refuse_unguarded(&parts.headers)?;
        let first_sent = self.rules.first_sent(&parts.headers, key.as_ref())?;
        let body = match body {
            Incoming::Whole(received) => received,
            Incoming::Stream(body) => self.received(&parts.headers, body).await?,
        };
        let ask = Ask::new(&self.rules, &parts, caller, &body, protection, key)?;
        let about = Kin::of(&namespace, &ask.call).0;
        let deadline = Instant::now() + self.rules.profile.wait;
        let asked = Asked {
            parts,
            body,
            ask,
            namespace,
            about,
            first_sent,
            deadline,
        };
        if is_dry {
            return Ok(self.dry_run(&asked, caller).await);
        }
        self.refuse_forgotten(&asked, caller).await?;
        let mut has_left = false;
        for _ in 0..ROUNDS_MAX {
            match self.round(&asked, caller, &mut has_left).await? {
                Round::Over(answer) => return Ok(*answer),
                Round::Again => {}
            }
        }
        Err(Refusal::in_flight(
            &self.rules.profile,
            Duration::from_secs(1),
        ))
    }

    /// Takes a place among those that are under way.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| Refusal::overloaded(self.rules.limits.under_way))
    }

    /// Sends a request on that nothing is to be known of.
    async fn pass(
        &self,
        parts: Parts,
        body: Body,
        is_safe: bool,
        namespace: &Namespace,
    ) -> Result<Answer, Refusal> {
        let pass = self.admitted(namespace).await?;
        let sending = self.upstream.send(http::Request::from_parts(parts, body));
        let sent = within(self.rules.timeout, sending).await;
        let is_well = is_answered_well(&sent);
        if let Some(pass) = pass {
            pass.ended(is_well).await;
        }
        match sent {
            Ok(Ok(response)) => Ok(Answer {
                response: unmarked(response),
                became: Became::Passed,
                seat: None,
            }),
            Ok(Err(SendError::NotSent(why))) => Err(Refusal::not_sent(&why)),
            Ok(Err(SendError::Lost(why))) => Err(Refusal::unanswered(&why, false, is_safe)),
            Err(_) => {
                let seconds = self.rules.timeout.as_secs_f64();
                let why = format!("nothing came within {seconds} s");
                Err(Refusal::unanswered(&why, true, is_safe))
            }
        }
    }

    /// Receives the body of a request before anything is claimed.
    async fn received(&self, headers: &HeaderMap, body: Body) -> Result<Received, Refusal> {
        let media = headers.get(header::CONTENT_TYPE);
        let media = media.and_then(|media| media.to_str().ok());
        let compare = if is_coded(headers) {
            Compare::Bytes
        } else {
            self.rules.sameness.compare
        };
        let hasher = BodyHasher::new(compare, &self.rules.sameness.members, media);
        let limits = &self.rules.limits;
        let received = Received::new(body, hasher, limits.request, &limits.spool).await;
        received.map_err(|error| match error {
            NotReceived::TooLarge => Refusal::too_large(limits.request),
            NotReceived::Broken(why) => Refusal::input(format!("the body broke off: {why}")),
            NotReceived::Spool(error) => Refusal::unkept(&error),
        })
    }

    /// Refuses a request that is older than anything that is kept, where nothing is known of it: it may have been carried
    /// out and forgotten.
    pub(super) async fn refuse_forgotten(
        &self,
        asked: &Asked,
        caller: &Caller,
    ) -> Result<(), Refusal> {
        let (rules, profile) = (&self.rules, &self.rules.profile);
        let remembered = dated::remembered(profile, rules.retention.length());
        let now = self.doorway.engine().store().now();
        let Some(first_sent) = asked.first_sent else {
            return Ok(());
        };
        if !dated::is_forgotten(first_sent, remembered, now) {
            return Ok(());
        }
        let claim = self.claim(asked, caller);
        let previewed = self.doorway.preview(&asked.ask.call, claim).await;
        match previewed.map(|previewed| previewed.preview) {
            Ok(Preview::Ledger(engine::Preview::Execute { attempt: 1 })) => {
                Err(Refusal::forgotten(first_sent))
            }
            // Something is known of it, and is not forgotten from one moment to the next.
            Ok(
                Preview::Ledger(
                    engine::Preview::Execute { .. }
                    | engine::Preview::Probe
                    | engine::Preview::Replay(_)
                    | engine::Preview::Wait { .. }
                    | engine::Preview::InDoubt(_),
                )
                | Preview::Challenged { .. },
            ) => Ok(()),
            Err(error) => {
                let is_over = error.rejection() == Some(Rejection::Expired);
                Err(match profile.refusals.expired {
                    // It would be a new request, and it is none.
                    AfterExpiry::Fresh if is_over => Refusal::forgotten(first_sent),
                    AfterExpiry::Fresh | AfterExpiry::Refuse(_) => Refusal::of(&error, profile),
                })
            }
        }
    }

    async fn round(
        self: &Arc<Self>,
        asked: &Asked,
        caller: &Caller,
        has_left: &mut bool,
    ) -> Result<Round, Refusal> {
        let (ask, profile) = (&asked.ask, &self.rules.profile);
        if ask.call.explicit.is_none()
            && let Some(watch) = &caller.watch
        {
            watch.settle(asked.about).await;
        }
        let place = self.place()?;
        let claim = self.claim(asked, caller);
        let pass = self.admitted_to_claim(asked, &claim).await?;
        let entered = self.doorway.enter(&ask.call, claim.clone()).await;
        let Entered {
            identity,
            ticket,
            mut admission,
            ..
        } = match entered {
            Ok(entered) => entered,
            Err(error) => return self.refused(asked, &error).await,
        };
        let seated = Seated {
            asked,
            seat: ticket.map(|ticket| Arc::new(Seat::new(ticket))),
        };
        seated.sits_down(caller, *has_left);
        if let Admission::Wait { .. } = admission {
            let begun = tokio::select! {
                biased;
                (head, reader) = self.running.join(&asked.namespace, &identity.key) => {
                    let rest = Joined::new(self, &asked.namespace, &identity.key, reader);
                    let joined = replay::joined(&self.rules, &head, rest, &asked.accepted());
                    return Ok(self.over(&seated, joined, Became::Joined));
                }
                begun = self.begin_again(asked, claim, &identity) => begun,
            };
            admission = match begun {
                Ok(begun) => begun.into(),
                Err(error) => return self.refused(asked, &error).await,
            };
        }
        let put_off = |refusal: Refusal| {
            let told = Told::put_off(refusal.response());
            self.over(&seated, told, Became::Refused)
        };
        Ok(match admission {
            Admission::Execute(permit) => match self.still_admitted(asked, pass).await {
                Ok(pass) => {
                    let told = self.execute(asked, &identity, permit, place, pass).await?;
                    self.over(&seated, told, Became::Executed)
                }
                Err(refusal) => {
                    self.give_back(permit).await?;
                    put_off(refusal)
                }
            },
            Admission::Probe(permit) => {
                let found = self.look_up(asked, permit).await;
                if let Some(pass) = pass {
                    pass.ended(found != Found::Unclear).await;
                }
                if found == Found::Unclear {
                    return Ok(put_off(Refusal::in_doubt(profile, &identity.key)));
                }
                *has_left = seated.withdraws();
                Round::Again
            }
            Admission::Replay(receipt) => {
                let replayed = replay::told(&self.rules, &receipt, &asked.accepted());
                // What is not given saves nothing.
                if !replayed.response.headers().contains_key(SEMEL_ERROR) {
                    self.count_replay(&receipt);
                }
                self.over(&seated, replayed, Became::Replayed)
            }
            Admission::Wait { retry_after } => put_off(Refusal::in_flight(profile, retry_after)),
            Admission::InDoubt(record) => {
                let Some(pause) = self.look_up_in(&record, asked.deadline) else {
                    return Ok(put_off(Refusal::in_doubt(profile, &identity.key)));
                };
                *has_left = seated.withdraws();
                tokio::time::sleep(pause).await;
                Round::Again
            }
            Admission::Challenged { .. } => {
                return Err(Refusal::internal("a request over HTTP is never challenged"));
            }
        })
    }

    /// Waits for the attempt of somebody else, as long as a caller does.
    async fn begin_again(
        &self,
        asked: &Asked,
        claim: Request,
        identity: &Identity,
    ) -> crate::error::Result<engine::Admission> {
        let left = asked.deadline.saturating_duration_since(Instant::now());
        let client_key = asked.ask.call.explicit.as_ref();
        let client_key = client_key.and_then(|key| Note::from_lossy(key.as_str()));
        let claim = claim
            .key(identity.key.clone())
            .identified(client_key, identity.occurrence);
        self.doorway.engine().begin(claim.wait(left)).await
    }

    /// Carries a request out, and waits for what is told of it. It goes on without whoever waits.
    async fn execute(
        self: &Arc<Self>,
        asked: &Asked,
        identity: &Identity,
        permit: Permit,
        place: OwnedSemaphorePermit,
        pass: Option<Pass>,
    ) -> Result<Told, Refusal> {
        let request = self.forwarded(asked, &permit);
        let carrying = Carrying {
            inner: Arc::clone(self),
            course: self.running.enter(&asked.namespace, &identity.key),
            method: asked.parts.method.clone(),
            accepted: asked.accepted(),
            has_key: identity.source != Source::Fingerprint,
            on_doubt: self.on_doubt(asked.ask.protection),
            place,
            permit,
            pass,
        };
        let (told, answer) = oneshot::channel();
        tokio::spawn(carrying.run(request, told));
        let given_up = |_| Refusal::internal("the request was given up");
        answer.await.map_err(given_up)
    }

    /// Answers whoever waits: those who do not get the outcome come again for it.
    fn over(&self, seated: &Seated<'_>, told: Told, became: Became) -> Round {
        let Told {
            mut response,
            is_outcome,
        } = told;
        let Seated { asked, seat } = seated;
        if self.rules.profile.echoes_key {
            self.echo(&asked.parts.headers, response.headers_mut());
        }
        if !is_outcome && let Some(seat) = seat {
            seat.see(Observation::PutOff);
        }
        let seat = seat.clone().filter(|_| is_outcome);
        Round::Over(Box::new(Answer {
            response,
            became,
            seat: seat.map(|seat| (seat, asked.about)),
        }))
    }

    /// Says what the ledger refuses; forgets what is no longer kept, where that makes a request a new one.
    async fn refused(&self, asked: &Asked, error: &Error) -> Result<Round, Refusal> {
        if let Error::Refused(refusal) = error
            && refusal.rejection == Rejection::Expired
            && self.rules.profile.refusals.expired == AfterExpiry::Fresh
            && let (Some(key), Some(record)) = (&refusal.key, &refusal.record)
        {
            let engine = self.doorway.engine();
            let by = Label::new("proxy").expect("it is a word");
            let operator = engine.operator(&asked.namespace, key, record.version(), by);
            // Where it was faster, another one has forgotten it.
            drop(operator.forget().await);
            return Ok(Round::Again);
        }
        Err(Refusal::of(error, &self.rules.profile))
    }

    /// Repeats the key of a request in its answer.
    fn echo(&self, asked: &HeaderMap, answered: &mut HeaderMap) {
        let names = self.rules.key_headers.iter();
        for (name, key) in names.filter_map(|name| Some((name, asked.get(name)?))) {
            answered.insert(name, key.clone());
        }
    }

    /// Describes the operation that a request is for.
    pub(super) fn claim(&self, asked: &Asked, caller: &Caller) -> Request {
        let (rules, ask) = (&self.rules, &asked.ask);
        // The doorway gives it its key.
        let key = Key::new("proxy").expect("five letters are a key");
        let mut request = Request::new(&ask.name, key)
            .namespace(asked.namespace.clone())
            .input_bytes(&ask.input)
            .class(ask.protection.class)
            .on_doubt(self.on_doubt(ask.protection))
            .lease(self.lease())
            .retention(rules.retention)
            .door(Label::new(ask.call.door.as_str()).expect("it is a word"))
            .wait(Duration::ZERO)
            .uncounted();
        if let Some(principal) = &caller.principal
            && let Ok(principal) = Label::new(principal)
        {
            request = request.principal(principal);
        }
        if let Some(window) = rules.retry_within {
            request = request.retry_within(window);
        }
        if let Some(probe) = &rules.probe {
            request = request.settle_delay(probe.after);
            if let Some(place) = lookup::place(probe, &rules.target, asked) {
                request = request.probe_digest(place.digest());
            }
        }
        request
    }

    /// Returns the lease of an attempt. A doubt cannot be looked up before its end, and it is renewed while the attempt
    /// runs: so a short one costs little, and lets nobody wait for long.
    fn lease(&self) -> Lease {
        let shorter = Lease::new(LOOKED_UP_LEASE).unwrap_or(Lease::DEFAULT);
        match &self.rules.probe {
            Some(_) if shorter.length() < self.rules.lease.length() => shorter,
            Some(_) | None => self.rules.lease,
        }
    }

    /// Says what happens in doubt.
    pub(super) fn on_doubt(&self, protection: Protection) -> OnDoubt {
        let rules = &self.rules;
        let ordinary = match &rules.probe {
            Some(_) => OnDoubt::Probe,
            None => Policy::direct(protection.class).on_doubt,
        };
        rules.on_doubt.or(protection.on_doubt).unwrap_or(ordinary)
    }

    /// Makes the request that is sent: the same for every attempt.
    fn forwarded(&self, asked: &Asked, permit: &Permit) -> http::Request<Body> {
        let mut parts = asked.parts.clone();
        let names = &self.rules.key_headers;
        match self.rules.forward {
            Forward::Pass => {}
            Forward::Strip => names.iter().for_each(|name| {
                parts.headers.remove(name);
            }),
            Forward::Derive => {
                names.iter().for_each(|name| {
                    parts.headers.remove(name);
                });
                let key = HeaderValue::from_str(&permit.upstream_key());
                if let (Some(name), Ok(key)) = (names.first(), key) {
                    parts.headers.insert(name, key);
                }
            }
        }
        // The body is here: nobody has to ask for it.
        parts.headers.remove(header::EXPECT);
        http::Request::from_parts(parts, asked.body.body())
    }
}

/// A request that takes effect once, read to its end.
pub(super) struct Asked {
    pub(super) parts: Parts,
    pub(super) body: Received,
    pub(super) ask: Ask,
    /// Where its operation lives.
    pub(super) namespace: Namespace,
    about: u64,
    /// When it was sent for the first time, where it says so.
    first_sent: Option<Timestamp>,
    deadline: Instant,
}

impl Asked {
    /// Returns the codings that its caller can read.
    pub(super) fn accepted(&self) -> Vec<HeaderValue> {
        let lines = self.parts.headers.get_all(header::ACCEPT_ENCODING);
        lines.iter().cloned().collect()
    }
}

/// A request that was let in, and its place.
struct Seated<'a> {
    asked: &'a Asked,
    /// There for all that belong to an operation.
    seat: Option<Arc<Seat>>,
}

impl Seated<'_> {
    /// Lets its door say what it sees of the caller from now on.
    fn sits_down(&self, caller: &Caller, has_left: bool) {
        let Some(seat) = &self.seat else { return };
        if has_left {
            seat.see(Observation::Cancelled);
        }
        if let Some(watch) = &caller.watch {
            watch.admitted(Arc::clone(seat), self.asked.about);
        }
    }

    /// Takes it back, to be judged once more. Returns whether its caller was seen to have left.
    fn withdraws(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.withdraw())
    }
}

/// The body of a request, as far as it was read.
enum Incoming {
    Stream(Body),
    Whole(Received),
}

impl Incoming {
    /// Makes the body that is sent on.
    fn body(self) -> Body {
        match self {
            Self::Stream(body) => body,
            Self::Whole(received) => received.body(),
        }
    }
}

/// Refuses what cannot be guarded, before it is carried out.
fn refuse_unguarded(headers: &HeaderMap) -> Result<(), Refusal> {
    match opaque(headers) {
        Some(why) => Err(Refusal::unsupported(why)),
        None => Ok(()),
    }
}
