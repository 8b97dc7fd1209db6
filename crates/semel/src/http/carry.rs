//! Carrying a request out: sent once, judged by what came, recorded, and told only then.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header, response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Full};
use semel_core::http::{LastEvent, Meaning, effect, is_well};
use semel_core::{Effect, OnDoubt};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::error::Elapsed;

use super::guard::Inner;
use super::live::{End, Live};
use super::recorder::Recorder;
use super::refusal::{Refusal, SEMEL_ERROR, do_not_retry};
use super::replay;
use super::running::Course;
use super::stored::{Form, Head};
use super::{Body, BodyError, SendError};
use crate::breaker::Pass;
use crate::engine::Permit;
use crate::receipt::Receipt;
use crate::within;

/// The longest answer that is stored before its first byte is passed on.
const FIRST_MAX: usize = 1024 * 1024;

/// How much of a streaming answer is kept in memory for those who join it.
const JOIN_MAX: usize = 1024 * 1024;

/// How long the last event of a stream waits for the end of the answer.
const HELD_MAX: Duration = Duration::from_secs(2);

/// Says that an outcome could not be stored.
const STORED: HeaderName = HeaderName::from_static("idempotency-stored");

/// A request that is to be carried out.
pub(super) struct Carrying {
    pub(super) inner: Arc<Inner>,
    pub(super) permit: Permit,
    pub(super) course: Course,
    pub(super) method: Method,
    /// The codings that its caller can read.
    pub(super) accepted: Vec<HeaderValue>,
    /// Whether a key says that it is the same request: then it must not be carried out twice, even by whoever was told of
    /// a failure.
    pub(super) has_key: bool,
    pub(super) on_doubt: OnDoubt,
    /// Its place among those that are under way.
    pub(super) place: OwnedSemaphorePermit,
    /// What lets it through to the upstream, where a breaker stands before it.
    pub(super) pass: Option<Pass>,
}

/// What is told to the caller.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) response: Response<Body>,
    /// Whether whoever has it has the outcome.
    pub(super) is_outcome: bool,
}

impl Told {
    pub(super) const fn outcome(response: Response<Body>) -> Self {
        Self {
            response,
            is_outcome: true,
        }
    }

    pub(super) const fn put_off(response: Response<Body>) -> Self {
        Self {
            response,
            is_outcome: false,
        }
    }
}

/// What an attempt ended without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    /// It provably did nothing.
    Effect,
    /// Nobody knows what it did.
    Knowledge,
}

impl Carrying {
    /// Carries it out, whether or not anybody waits for the answer.
    pub(super) async fn run(mut self, request: http::Request<Body>, told: oneshot::Sender<Told>) {
        if !self.permit.is_alive() {
            let why = "the permit ended before anything was sent";
            return tell(told, self.not_sent(why).await);
        }
        let sending = self.inner.upstream.send(request);
        let sent = within(self.inner.rules.timeout, sending).await;
        let is_well = is_answered_well(&sent);
        if let Some(pass) = self.pass.take() {
            pass.ended(is_well).await;
        }
        match sent {
            Err(_) => {
                let seconds = self.inner.rules.timeout.as_secs_f64();
                let why = format!("nothing came within {seconds} s");
                tell(told, self.lost(&why, true).await);
            }
            Ok(Err(SendError::NotSent(why))) => tell(told, self.not_sent(&why).await),
            Ok(Err(SendError::Lost(why))) => tell(told, self.lost(&why, false).await),
            Ok(Ok(response)) => self.answered(unmarked(response), told).await,
        }
    }

    async fn answered(self, mut response: Response<Body>, told: oneshot::Sender<Told>) {
        let status = response.status();
        let why = format!("the upstream answered {status}");
        match self.inner.rules.profile.statuses.meaning(status.as_u16()) {
            Meaning::Outcome => self.record(response, told).await,
            // Whoever comes next may try.
            Meaning::Release => {
                let ended = self.ended(Without::Effect, &why).await;
                tell(told, ended.unwrap_or_else(|| Told::put_off(response)));
            }
            Meaning::Doubt => {
                if !self.retries() {
                    do_not_retry(response.headers_mut());
                }
                if self.has_key {
                    let ended = self.ended(Without::Knowledge, &why).await;
                    tell(told, ended.unwrap_or_else(|| Told::put_off(response)));
                } else {
                    // Whoever gave no key and gets it knows that it failed, and may want to try again.
                    self.record(response, told).await;
                }
            }
        }
    }

    /// Says whether a doubt is sent again.
    fn retries(&self) -> bool {
        self.on_doubt == OnDoubt::Retry
    }

    async fn not_sent(self, why: &str) -> Told {
        let ended = self.ended(Without::Effect, why).await;
        ended.unwrap_or_else(|| Told::put_off(Refusal::not_sent(why).response()))
    }

    async fn lost(self, why: &str, timed_out: bool) -> Told {
        let refusal = Refusal::lost(why, self.permit.key(), timed_out, self.retries());
        let ended = self.ended(Without::Knowledge, why).await;
        ended.unwrap_or_else(|| Told::put_off(refusal.response()))
    }

    /// Reports that there is no outcome. Returns what is to be told instead of what came, where the ledger knows better.
    async fn ended(self, without: Without, why: &str) -> Option<Told> {
        let Self {
            inner,
            permit,
            accepted,
            ..
        } = self;
        let key = permit.key().clone();
        let ended = match without {
            Without::Effect => permit.not_done(why).await,
            Without::Knowledge => permit.unknown(why).await,
        };
        match ended {
            Ok(receipt) => stands(&inner, &receipt, &accepted),
            Err(error) => {
                let refusal = Refusal::unreported(why, &error, &key);
                Some(Told::put_off(refusal.response()))
            }
        }
    }

    /// Records an answer and hands it on: whole where that can be, else as it comes.
    async fn record(self, response: Response<Body>, told: oneshot::Sender<Told>) {
        let (parts, mut body) = response.into_parts();
        let limit = FIRST_MAX.min(self.inner.rules.limits.answer) as u64;
        let size = body.size_hint().upper();
        let is_short = size.is_some_and(|size| size <= limit);
        let begun = match begin(&mut body, is_short).await {
            Ok(begun) => begun,
            Err(why) => return tell(told, self.lost(&why, false).await),
        };
        match begun.end {
            Some(trailers) => tell(told, self.whole(parts, begun.bytes, trailers).await),
            None => self.stream(parts, begun.bytes, body, told).await,
        }
    }

    /// Stores an answer that is here, then hands it on.
    async fn whole(
        self,
        parts: response::Parts,
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    ) -> Told {
        let Self {
            inner,
            permit,
            accepted,
            ..
        } = self;
        let head = Head::kept(parts.status, &parts.headers).asked_with(&accepted);
        let payload = if bytes.len() <= inner.rules.limits.answer {
            [&head.line()[..], &bytes].concat()
        } else {
            head.with(Form::Left).line()
        };
        let (ok, did) = (parts.status.is_success(), effect_of(&self.method, &parts));
        let (status, key) = (parts.status, permit.key().clone());
        let finished = permit.finish(ok, did, Some(payload)).await;
        let mut response = Response::from_parts(parts, whole(bytes, trailers));
        match finished {
            Ok(receipt) => {
                let stands = stands(&inner, &receipt, &accepted);
                stands.unwrap_or_else(|| Told::outcome(response))
            }
            // A newer attempt runs, and its outcome may be another: what came is nobody's.
            Err(error) if error.rejection().is_some() => {
                let why = format!("the upstream answered {status}");
                Told::put_off(Refusal::unreported(&why, &error, &key).response())
            }
            // The caller gets what there is, marked: the operation is in doubt.
            Err(_) => {
                let value = HeaderValue::from_static("false");
                response.headers_mut().insert(STORED, value);
                Told::put_off(response)
            }
        }
    }

    /// Hands an answer on as it comes, and records it. Its end is told when it is stored.
    async fn stream(
        self,
        parts: response::Parts,
        first: Bytes,
        mut body: Body,
        told: oneshot::Sender<Told>,
    ) {
        // Held until its end: those who come then find it in the ledger.
        let Self {
            inner,
            permit,
            course,
            accepted,
            place: _place,
            ..
        } = self;
        let rules = &inner.rules;
        let left = body.size_hint().exact();
        let left = left.map(|rest| rest + first.len() as u64);
        let media = parts.headers.get(header::CONTENT_TYPE);
        let last = LastEvent::of(media.and_then(|media| media.to_str().ok()));
        let (ok, did) = (parts.status.is_success(), effect_of(&self.method, &parts));
        let form = if rules.keeps_pace {
            Form::Paced
        } else {
            Form::Plain
        };
        let head = Head::kept(parts.status, &parts.headers);
        let head = head.asked_with(&accepted).with(form);
        let (live, reader) = Live::new(JOIN_MAX);
        course.streams(head.clone(), &live);
        let mut recorder = Recorder::new(head, rules.limits.answer);
        tell(
            told,
            Told::outcome(Response::from_parts(parts, Body::new(reader))),
        );
        let mut follower = Follower {
            live: &live,
            left,
            last,
            held: Vec::new(),
            trailers: None,
        };
        let ended = follower
            .follow(first, &mut body, &permit, &mut recorder)
            .await;
        let Follower { held, trailers, .. } = follower;
        let end = match ended {
            Ok(()) => match recorder.finish(permit, ok, did).await {
                // Another attempt's outcome stands, and that is not what was passed on.
                Ok(receipt) if receipt.replayed => {
                    End::Broken("another attempt was faster".to_owned())
                }
                Ok(_) => {
                    live.end(held, End::Whole(trailers));
                    return;
                }
                Err(error) => End::Broken(error.to_string()),
            },
            Err(why) => {
                // Should the report fail, the lease runs out, and that is the same doubt.
                drop(permit.unknown(&why).await);
                End::Broken(why)
            }
        };
        live.end(Vec::new(), end);
    }
}

/// Follows an answer that streams.
struct Follower<'a> {
    live: &'a Live,
    /// How much is still to come, where that is known: then the last byte is the end, and nothing follows it.
    left: Option<u64>,
    /// Looks for the last event, where there may be one.
    last: Option<LastEvent>,
    /// What is held up from the last event or the last byte on: whoever reads that takes it for the end.
    held: Vec<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Follower<'_> {
    /// Hands on and records what comes, up to its end.
    ///
    /// # Errors
    /// Says why there is no more of an answer that is not whole.
    async fn follow(
        &mut self,
        first: Bytes,
        body: &mut Body,
        permit: &Permit,
        recorder: &mut Recorder,
    ) -> Result<(), String> {
        let mut next = if first.is_empty() {
            self.next(body).await
        } else {
            Some(Ok(Frame::data(first)))
        };
        while let Some(frame) = next {
            let frame = frame.map_err(|error| format!("the answer broke off: {error}"))?;
            match frame.into_data() {
                Ok(piece) => {
                    recorder.add(permit, &piece).await;
                    self.pass(piece).await;
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
            next = self.next(body).await;
        }
        Ok(())
    }

    async fn pass(&mut self, piece: Bytes) {
        self.left = self
            .left
            .map(|left| left.saturating_sub(piece.len() as u64));
        let is_last = self.last.as_mut().is_some_and(|last| last.is_in(&piece));
        if is_last || self.left == Some(0) || !self.held.is_empty() {
            self.held.push(piece);
        } else {
            self.live.add(piece).await;
        }
    }

    async fn next(&mut self, body: &mut Body) -> Option<Result<Frame<Bytes>, BodyError>> {
        if self.held.is_empty() {
            return body.frame().await;
        }
        if let Ok(next) = tokio::time::timeout(HELD_MAX, body.frame()).await {
            return next;
        }
        // There is more to come, or an upstream that does not end.
        self.last = None;
        for piece in std::mem::take(&mut self.held) {
            self.live.add(piece).await;
        }
        body.frame().await
    }
}

/// What came of sending a request: the head of an answer, or why there is none.
pub(super) type Sent = Result<Result<Response<Body>, SendError>, Elapsed>;

/// Says what a breaker is told of a request. The head of an answer is enough: an upstream that gives one is there.
pub(super) fn is_answered_well(sent: &Sent) -> bool {
    matches!(sent, Ok(Ok(response)) if is_well(response.status().as_u16()))
}

/// Takes out what would be taken for a word of ours.
pub(super) fn unmarked(mut response: Response<Body>) -> Response<Body> {
    for name in [SEMEL_ERROR, STORED] {
        response.headers_mut().remove(name);
    }
    response
}

/// Tells whoever waits for the answer, if anybody still does: others get it when they come again.
fn tell(told: oneshot::Sender<Told>, what: Told) {
    drop(told.send(what));
}

/// Returns what is told where another attempt's outcome stands.
fn stands(inner: &Inner, receipt: &Receipt, accepted: &[HeaderValue]) -> Option<Told> {
    receipt
        .replayed
        .then(|| replay::told(&inner.rules, receipt, accepted))
}

fn effect_of(method: &Method, parts: &response::Parts) -> Effect {
    effect(method.as_str(), parts.status.as_u16())
}

/// Makes the body of an answer that is here.
fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
    match trailers {
        None => Body::full(bytes),
        Some(trailers) => {
            let trailers = std::future::ready(Some(Ok(trailers)));
            Body::new(Full::new(bytes).with_trailers(trailers))
        }
    }
}

/// What came of an answer before it made anybody wait.
struct Begun {
    bytes: Bytes,
    /// There at its end.
    end: Option<Option<HeaderMap>>,
}

/// Takes what is there of an answer already; all of it, where it is known to be short.
async fn begin(body: &mut Body, is_short: bool) -> Result<Begun, String> {
    let mut bytes = BytesMut::new();
    let mut trailers = None;
    loop {
        let next = if is_short {
            body.frame().await
        } else {
            let poll = std::future::poll_fn(|context| {
                Poll::Ready(match Pin::new(&mut *body).poll_frame(context) {
                    Poll::Ready(frame) => Some(frame),
                    Poll::Pending => None,
                })
            });
            match poll.await {
                Some(next) => next,
                None => break,
            }
        };
        match next {
            None => {
                let (bytes, end) = (bytes.freeze(), Some(trailers));
                return Ok(Begun { bytes, end });
            }
            Some(Err(error)) => return Err(format!("the answer broke off: {error}")),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
        }
        if !is_short && bytes.len() >= FIRST_MAX {
            break;
        }
    }
    let (bytes, end) = (bytes.freeze(), None);
    Ok(Begun { bytes, end })
}
