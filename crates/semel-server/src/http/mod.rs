//! The API: what callers in any language ask over HTTP.

mod begin;
pub(crate) mod body;
mod breakers;
mod described;
mod engine;
pub(crate) mod gate;
mod health;
mod lease;
mod numbers;
mod operations;
mod orders;
mod pages;
mod plan;
mod prefer;
mod problem;
mod query;
mod queues;
mod reference;
mod renew;
mod request;
pub(crate) mod schema;
mod settle;
mod stream;
mod submit;
mod tasks;
mod words;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use semel::{Engine, Timestamp};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use utoipa::openapi::OpenApi;
use utoipa::{IntoResponses, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use self::problem::{Problem, codes};

use self::problem::Said;

use self::body::{Answer, BATCH_MAX, Budget, Calls, Received, answer_each};
use self::query::Parameters;
use crate::config::{Config, Limits};
use crate::feed::Feed;
use crate::inbox::door as inbox;
use crate::metrics::Counts;
use crate::rate::Rates;
use crate::span::{self, Exporter};
use crate::tokens::Tokens;

/// What all handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    config: Config,
    feed: Feed,
    counts: Counts,
    exporter: Exporter,
    rates: Rates,
    tokens: Tokens,
    bodies: Budget,
    streams: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
    openapi: Vec<u8>,
    reference: String,
}

impl Server {
    fn new(engine: Engine, config: Config, stop: watch::Receiver<bool>, api: &OpenApi) -> Self {
        Self(Arc::new(Inner {
            tokens: Tokens::new(&engine, &config),
            engine,
            feed: Feed::default(),
            counts: Counts::new(),
            exporter: Exporter::new(),
            rates: Rates::new(config.rate_limit),
            bodies: Budget::default(),
            streams: Arc::new(Semaphore::new(config.limits.streams)),
            config,
            stop,
            // Strings only: writing them cannot fail.
            openapi: serde_json::to_vec_pretty(api).unwrap_or_default(),
            reference: reference::reference(api),
        }))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.config.limits
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.0.feed
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.0.rates
    }

    pub(crate) fn openapi(&self) -> &[u8] {
        &self.0.openapi
    }

    pub(crate) fn reference(&self) -> &str {
        &self.0.reference
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Counts the bytes of bodies that are held.
    pub(crate) fn bodies(&self) -> &Budget {
        &self.0.bodies
    }

    pub(crate) fn exporter(&self) -> &Exporter {
        &self.0.exporter
    }

    /// Remembers what a begin was answered.
    pub(crate) fn begun(&self, answer: &'static str) {
        span::decided(answer);
        self.counts().begun(answer);
    }

    /// Returns the store's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.engine().store().now()
    }

    /// Takes a place for one more stream, if there is one.
    pub(crate) fn stream_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.streams).try_acquire_owned().ok()
    }

    /// Returns how many streams are open.
    pub(crate) fn streams_open(&self) -> usize {
        let free = self.0.streams.available_permits();
        self.limits().streams.saturating_sub(free)
    }

    /// Waits until the server stops.
    pub(crate) async fn stopping(&self) {
        crate::stopped(&mut self.0.stop.clone()).await;
    }

    /// Waits until the server has been stopping for so long.
    pub(crate) async fn stopped_for(&self, time: Duration) {
        self.stopping().await;
        tokio::time::sleep(time).await;
    }

    /// Does what the store is needed for, within the deadline; waiting for others is on top of it.
    pub(crate) async fn within<T>(
        &self,
        wait: Duration,
        work: impl Future<Output = semel::Result<T>>,
    ) -> Result<T, Problem> {
        let deadline = self.limits().deadline;
        let begun = Instant::now();
        let done = tokio::time::timeout(deadline + wait, work).await;
        if wait.is_zero() {
            self.counts().store_took(begun.elapsed());
        }
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                if matches!(error, semel::Error::Store(_)) {
                    self.counts().store_failed();
                }
                Err(Problem::of(&error, self.now()))
            }
            Err(_) => {
                self.counts().store_failed();
                Err(Problem::timeout(deadline))
            }
        }
    }
}

/// A call's body, not read yet.
#[derive(Debug)]
pub(crate) struct Asked(Body);

impl<S: Sync> FromRequest<S> for Asked {
    type Rejection = Problem;

    /// All that a call says is in its body: a `dry_run` behind a `?` must not be overlooked.
    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        Parameters::read(request.uri().query())?.done()?;
        Ok(Self(request.into_body()))
    }
}

impl Asked {
    async fn read(self, server: &Server) -> Result<Received<'_>, Problem> {
        self.read_up_to(server, server.limits().body).await
    }

    /// Reads a body that may be larger than those of other calls.
    async fn read_up_to(self, server: &Server, limit: usize) -> Result<Received<'_>, Problem> {
        body::read(self.0, &server.0.bodies, limit, server.limits().read).await
    }
}

/// One, or an array of them; what is no such call in an array is answered by itself.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is only described")]
#[serde(untagged)]
pub(crate) enum OneOrMany<T: ToSchema> {
    One(T),
    Many(Vec<serde_json::Value>),
}

/// One answer, or an array of answers and problems.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is only described")]
#[serde(untagged)]
pub(crate) enum Answers<T: ToSchema> {
    One(T),
    Many(Vec<Item<T>>),
}

/// What one call of an array is answered with.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is only described")]
#[serde(untagged)]
pub(crate) enum Item<T: ToSchema> {
    Answer(T),
    Problem(Said),
}

/// What every call may be refused with.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "these are only described")]
pub(crate) enum Refusals {
    /// The request cannot be understood.
    #[response(status = 400, content_type = "application/problem+json")]
    Invalid(#[to_schema] Said),
    /// A valid token is needed, or a valid signature.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(#[to_schema] Said),
    /// The token does not allow it, or the request comes from a page of somebody else's.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(#[to_schema] Said),
    /// There is no such operation.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(#[to_schema] Said),
    /// `in_flight`, `in_doubt`, `dead` or `fenced`.
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(#[to_schema] Said),
    /// Settled, and past its retention.
    #[response(status = 410, content_type = "application/problem+json")]
    Expired(#[to_schema] Said),
    /// Larger than the server takes.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(#[to_schema] Said),
    /// The key was first used with another name or input.
    #[response(status = 422, content_type = "application/problem+json")]
    KeyReused(#[to_schema] Said),
    /// Too many requests.
    #[response(status = 429, content_type = "application/problem+json")]
    RateLimited(#[to_schema] Said),
    /// The store does not answer.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(#[to_schema] Said),
}

/// Answers one call, or many in an array.
pub(crate) async fn many_or_one<T, F, A>(
    server: &Server,
    asked: Asked,
    answer: F,
) -> Result<Response, Problem>
where
    T: DeserializeOwned,
    F: Fn(T) -> A,
    A: Future<Output = Result<Answer, Problem>>,
{
    let received = asked.read(server).await?;
    match Calls::read(&received.bytes, BATCH_MAX)? {
        Calls::One(call) => json(Box::pin(answer(body::call(call)?)).await?),
        Calls::Many(calls) => {
            let body = answer_each(&calls, answer).await;
            json(Answer { status: 200, body })
        }
    }
}

/// Answers one call.
pub(crate) async fn one<T, A>(
    server: &Server,
    asked: Asked,
    answer: impl FnOnce(T) -> A,
) -> Result<Response, Problem>
where
    T: DeserializeOwned,
    A: Future<Output = Result<Answer, Problem>>,
{
    let received = asked.read(server).await?;
    json(Box::pin(answer(body::call(&received.bytes)?)).await?)
}

/// Makes a response of an answer.
pub(crate) fn json(answer: Answer) -> Result<Response, Problem> {
    let mut response = Response::new(Body::from(answer.body));
    let media_type = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    Ok(response)
}

/// Makes the whole service.
pub(crate) fn service(
    engine: Engine,
    config: Config,
    stop: watch::Receiver<bool>,
) -> (Server, Router) {
    let (api, mut openapi) = OpenApiRouter::with_openapi(pages::openapi())
        .routes(routes!(begin::begin))
        .routes(routes!(renew::renew))
        .routes(routes!(settle::settle))
        .routes(routes!(submit::submit))
        .routes(routes!(tasks::submit))
        .routes(routes!(lease::lease))
        .routes(routes!(queues::list))
        .routes(routes!(orders::resolve))
        .routes(routes!(orders::retry))
        .routes(routes!(orders::cancel))
        .routes(routes!(orders::forget))
        .routes(routes!(breakers::list))
        .routes(routes!(breakers::open))
        .routes(routes!(breakers::close))
        .routes(routes!(breakers::reset))
        .routes(routes!(operations::list))
        .routes(routes!(operations::show))
        .routes(routes!(operations::events))
        .routes(routes!(stream::events))
        .routes(routes!(health::metrics))
        .split_for_parts();
    // Senders have no token: what they sign is what lets them in.
    let (received, described) = OpenApiRouter::new()
        .routes(routes!(inbox::receive))
        .split_for_parts();
    openapi.merge(described);
    let server = Server::new(engine, config, stop, &openapi);
    // It is no part of the API: its bytes change with the version.
    let api = api.route(semel::wire::PATH, post(engine::call));
    let inside = api.layer(middleware::from_fn_with_state(
        server.clone(),
        gate::authenticate,
    ));
    let router = inside
        .merge(received)
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(pages::openapi_json))
        .route("/", get(pages::home))
        .route("/docs", get(pages::reference))
        .route("/errors/{code}", get(pages::error))
        .fallback(nowhere)
        .layer(middleware::from_fn_with_state(server.clone(), gate::pass))
        .with_state(server.clone());
    (server, router)
}

async fn nowhere(State(_): State<Server>, request: Request) -> Response {
    nothing_at(request.uri().path()).into_response()
}

fn nothing_at(path: &str) -> Problem {
    Problem::not_found(format!("there is nothing at {path}"))
        .hint("the API is under /v1; /docs and /openapi.json describe it")
}
