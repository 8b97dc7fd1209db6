//! Requests as they come in, and answers as they go out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version, header,
};
use axum::response::{IntoResponse as _, Response};
use semel::core::http::{CredentialRule, Host};
use semel::core::identity::Observation;
use semel::http::{
    Answer, Became, Caller, Guard, Later, SEMEL_ERROR, Seat, Watch, named_by_connection,
};
use semel::{Engine, Incident, Namespace};

use super::arriving::Arriving;
use super::headers::{Preflight, share, without_hops};
use super::principal::{self, token};
use super::route::{Matches, NoRoute, find};
use crate::config::Config;
use crate::connection::Answers;
use crate::credentials::ShownCredentials;
use crate::http::Problem;
use crate::http::gate::{framed_clearly, read_host};
use crate::incident;
use crate::metrics::Proxied;
use crate::principal_key::PrincipalKey;
use crate::proof::{Line, Proofs, Witness};
use crate::tokens::{Tokens, principal_of};

/// Tell SDKs whether trying again is of any use.
const SHOULD_RETRY: [HeaderName; 2] = [
    HeaderName::from_static("x-should-retry"),
    HeaderName::from_static("stripe-should-retry"),
];

/// What makes the requests of a route take effect once.
pub(super) trait Guards: Clone + Send + Sync + 'static {
    /// Answers a request. Whoever drops the future has left.
    fn handle(
        &self,
        request: Request<semel::http::Body>,
        caller: Caller,
    ) -> impl Future<Output = Answer> + Send;

    /// Waits until everything that was begun has ended.
    fn drained(&self) -> impl Future<Output = ()> + Send;
}

impl Guards for Guard {
    fn handle(
        &self,
        request: Request<semel::http::Body>,
        caller: Caller,
    ) -> impl Future<Output = Answer> + Send {
        Self::handle(self, request, caller)
    }

    fn drained(&self) -> impl Future<Output = ()> + Send {
        Self::drained(self)
    }
}

/// A route, and what guards it.
#[derive(Clone, Debug)]
pub(super) struct Guarded<G> {
    pub(super) guard: G,
    /// Which credentials say whose request it is.
    pub(super) credentials: CredentialRule,
    /// The headers that keys come in.
    pub(super) keys: Vec<HeaderName>,
    /// What says that an answer was given before.
    pub(super) replayed: HeaderName,
    /// What it is called where requests are counted.
    pub(super) label: String,
}

/// What all requests share.
#[derive(Debug)]
pub(super) struct Front<G> {
    routes: Vec<(Matches, Guarded<G>)>,
    engine: Engine,
    config: Config,
    tokens: Tokens,
    principal_key: PrincipalKey,
    proofs: Proofs,
    counts: Arc<Proxied>,
}

impl<G: Guards> Front<G> {
    pub(super) fn new(
        routes: Vec<(Matches, Guarded<G>)>,
        engine: Engine,
        config: Config,
        principal_key: PrincipalKey,
    ) -> Arc<Self> {
        let labels = routes.iter().map(|(_, route)| route.label.as_str());
        Arc::new(Self {
            counts: Arc::new(Proxied::new(labels)),
            routes,
            tokens: Tokens::new(&engine, &config),
            engine,
            config,
            principal_key,
            proofs: Proofs::default(),
        })
    }

    /// Returns where proof of receipt is kept, for the connections that lead here.
    pub(super) fn proofs(&self) -> Proofs {
        self.proofs.clone()
    }

    /// Returns what is counted.
    pub(super) fn counts(&self) -> Arc<Proxied> {
        Arc::clone(&self.counts)
    }

    /// Waits until everything that was begun has ended.
    pub(super) async fn drained(&self) {
        for (_, route) in &self.routes {
            route.guard.drained().await;
        }
    }

    async fn answered<'a>(
        &'a self,
        mut parts: Parts,
        body: Body,
        course: &mut Course<'a>,
    ) -> Result<Response, Problem> {
        let line = parts.extensions.remove::<Line>();
        parts.extensions.clear();
        let host = addressed(&mut parts)?;
        if !self.config.accepts_host(&host) {
            let text = "the request does not name this proxy, or one of its routes, as its host";
            let hint = "name the host in a route, or add it to `serve.hosts`";
            return Err(Problem::new("forbidden", text).hint(hint));
        }
        let path = parts.uri.path();
        let route = find(&self.routes, &parts.method, &host, path).map_err(unrouted)?;
        course.route = Some(&route.label);
        let (principal, namespace) = self.principal(&mut parts, route).await?;
        refuse_odd(&parts.headers, &route.keys)?;
        let preflight = Preflight::of(&parts.method, &parts.headers);
        without_hops(&mut parts.headers);
        let watch = line.clone().map(|line| {
            let proofs = self.proofs.clone();
            Arc::new(Sight { proofs, line }) as Arc<dyn Watch>
        });
        let request = Request::from_parts(parts, semel::http::Body::new(Arriving::new(body)));
        let caller = Caller {
            principal,
            namespace,
            watch,
        };
        let answer = route.guard.handle(request, caller).await;
        let Answer {
            response,
            became,
            seat,
        } = answer;
        course.became = became;
        let (mut parts, body) = response.into_parts();
        without_hops(&mut parts.headers);
        // The upstream's is not ours.
        parts.version = Version::default();
        let shown = [route.replayed.clone(), SEMEL_ERROR];
        share(&mut parts.headers, preflight.as_ref(), &route.keys, &shown);
        let body = Body::new(body);
        let body = match (line, seat) {
            (Some(line), Some((seat, about))) => line.watched(body, seat, about),
            _ => body,
        };
        Ok(Response::from_parts(parts, body))
    }

    /// Finds out on whose behalf a request comes, and in which namespace where that is a token's; what is meant for the
    /// proxy itself does not go on.
    async fn principal(
        &self,
        parts: &mut Parts,
        route: &Guarded<G>,
    ) -> Result<(Option<String>, Option<Namespace>), Problem> {
        let granted = match token(&mut parts.headers)? {
            Some(token) => {
                let deadline = self.config.limits.deadline;
                let writer = self.tokens.admit_writer(&self.engine, &token, deadline);
                Some(writer.await.map_err(|problem| match problem.code() {
                    "unauthorized" => principal::refused(),
                    _ => problem,
                })?)
            }
            None if self.config.needs_token() => return Err(principal::refused()),
            None => None,
        };
        let query = parts.uri.query();
        let shown = ShownCredentials::new(&parts.headers, query, &route.credentials);
        let holder = granted.as_ref().map(principal_of);
        let principal = shown.principal(holder, &self.principal_key).await?;
        Ok((principal, granted.map(|granted| granted.namespace)))
    }
}

/// Answers the requests of all routes. Cheap to clone.
pub(super) struct Routed<G>(pub(super) Arc<Front<G>>);

impl<G> Clone for Routed<G> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<G: Guards> Answers for Routed<G> {
    async fn answer(&self, request: Request<Body>) -> Response {
        let (begun, method) = (Instant::now(), request.method().clone());
        let mut course = Course::default();
        let response = self.respond(request, &mut course).await;
        course.ended(&self.0.counts, &method, &response, begun.elapsed());
        response
    }
}

/// What is known of a request, for those who count and log.
#[derive(Debug)]
struct Course<'a> {
    route: Option<&'a str>,
    became: Became,
}

impl Default for Course<'_> {
    fn default() -> Self {
        Self {
            route: None,
            became: Became::Refused,
        }
    }
}

impl Course<'_> {
    /// Counts a request whose answer begins, and logs it: nothing of what it or its caller said.
    fn ended(&self, counts: &Proxied, method: &Method, response: &Response, took: Duration) {
        // What an upstream says under this name does not come through.
        let code = response.headers().get(SEMEL_ERROR);
        let code = code.and_then(|code| code.to_str().ok());
        let became = code.unwrap_or(self.became.as_str());
        if let Some(incident) = response.extensions().get::<Incident>() {
            incident::log(incident);
        }
        counts.answered(self.route, became, took);
        let (route, status) = (self.route.unwrap_or("none"), response.status().as_u16());
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(%method, route, status, became, took_ms, "answered");
    }
}

impl<G: Guards> Routed<G> {
    async fn respond<'a>(&'a self, request: Request<Body>, course: &mut Course<'a>) -> Response {
        let (parts, body) = request.into_parts();
        if let Err(problem) = clear(&parts) {
            // Nobody wants the rest, whatever it is.
            let mut response = refused(problem);
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            return response;
        }
        let answered = self.0.answered(parts, body, course).await;
        answered.unwrap_or_else(refused)
    }
}

/// Refuses what others could read differently, and what would be no request any more.
fn clear(parts: &Parts) -> Result<(), Problem> {
    framed_clearly(&parts.headers)?;
    if parts.method == Method::CONNECT {
        let text = "this is no proxy for CONNECT: requests are sent to it as to the upstream";
        return Err(Problem::input(text).with_status(StatusCode::NOT_IMPLEMENTED));
    }
    Ok(())
}

/// Says for which host a request is, and leaves its target without it: the same for all forms and versions.
fn addressed(parts: &mut Parts) -> Result<Host, Problem> {
    let unclear = || Problem::input("it is not clear for which host the request is");
    let named = parts.headers.get(header::HOST);
    let named = named.map(|host| host.to_str().map_err(|_| unclear()));
    let target = parts.uri.authority().map(|it| it.as_str());
    let host = match (named.transpose()?, target) {
        (Some(named), Some(target)) if !named.eq_ignore_ascii_case(target) => {
            return Err(unclear());
        }
        (Some(host), _) | (None, Some(host)) => host.to_owned(),
        (None, None) => return Err(unclear()),
    };
    let read = read_host(&host)?;
    let value = HeaderValue::try_from(&host).map_err(|_| unclear())?;
    parts.headers.insert(header::HOST, value);
    let path = parts.uri.path_and_query().cloned();
    parts.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    parts.version = Version::HTTP_11;
    Ok(read)
}

fn unrouted(why: NoRoute) -> Problem {
    match why {
        NoRoute::Found => Problem::not_found("no route fits this request")
            .hint("`proxy.route` in semel.toml says which there are"),
        NoRoute::Dots => Problem::input("the path has `.` or `..` in it")
            .hint("resolve them before the request is sent"),
    }
}

/// Refuses what cannot be guarded: a key that its sender takes back, and connections that become something else.
fn refuse_odd(headers: &HeaderMap, keys: &[HeaderName]) -> Result<(), Problem> {
    let named = named_by_connection(headers);
    if let Some(key) = keys.iter().find(|key| named.contains(key)) {
        let text = format!("`Connection` names `{key}`, which is not about the connection");
        return Err(Problem::input(text));
    }
    let upgrades: Vec<_> = headers.get_all(header::UPGRADE).iter().collect();
    if upgrades.is_empty() {
        return Ok(());
    }
    let has_key = keys.iter().any(|key| headers.contains_key(key));
    let is_socket = upgrades.iter().any(|upgrade| {
        let protocols = upgrade.as_bytes().split(|byte| *byte == b',');
        let mut protocols = protocols.map(<[u8]>::trim_ascii);
        protocols.any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
    });
    if has_key || is_socket {
        let text = "a connection that becomes something else cannot be made safe to retry";
        let hint = "send requests without `Upgrade`, or connect to the upstream itself";
        let problem = Problem::input(text).hint(hint);
        return Err(problem.with_status(StatusCode::NOT_IMPLEMENTED));
    }
    // Whoever can go on without it may: servers need not heed it (RFC 9110, section 7.8).
    Ok(())
}

/// Answers with a refusal of ours.
fn refused(problem: Problem) -> Response {
    let (code, is_retryable) = (problem.code(), problem.is_retryable());
    let mut response = problem.without_page().into_response();
    let headers = response.headers_mut();
    headers.insert(SEMEL_ERROR, HeaderValue::from_static(code));
    if !is_retryable {
        for name in SHOULD_RETRY {
            headers.insert(name, HeaderValue::from_static("false"));
        }
    }
    response
}

/// What is seen of the connection of one request.
struct Sight {
    proofs: Proofs,
    line: Line,
}

impl Watch for Sight {
    fn settle(&self, about: u64) -> Later<'_, ()> {
        Box::pin(self.proofs.settle(about))
    }

    fn admitted(&self, seat: Arc<Seat>, about: u64) {
        let witness: Arc<dyn Witness> = seat;
        self.line.admitted(&witness, about);
    }
}

impl Witness for Seat {
    fn see(&self, seen: Observation) {
        Self::see(self, seen);
    }
}
