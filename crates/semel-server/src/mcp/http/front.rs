//! Clients that come over HTTP: one endpoint for both kinds of the protocol.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use semel::core::http::CredentialRule;
use semel::core::http::site::Resource;
use semel::{Engine, Namespace, Scope};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::answering::{Accepts, Answering, Last};
use super::caller::take_token;
use super::children::Children;
use super::desk::Desk;
use super::headers::{SESSION, passed_on};
use super::relay::{Relay, Unchanged};
use super::resuming::{self, Resumes};
use super::{answer, reading};
use crate::auth::{ANONYMOUS, unauthorized};
use crate::config::Config;
use crate::credentials::ShownCredentials;
use crate::http::Problem;
use crate::http::body::{Budget, read};
use crate::http::gate::{framed_clearly, meant_for_us};
use crate::mcp::message::{MESSAGE_MAX, Malformed, Message};
use crate::principal_key::PrincipalKey;
use crate::proof::{Line, Proofs};
use crate::tokens::{Tokens, principal_of};

/// Where clients find the gateway.
pub(crate) const PATH: &str = "/mcp";

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Front<D: Desk> {
    pub(super) desk: Arc<D>,
    pub(super) proofs: Proofs,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) resumes: Resumes,
    behind: Behind<D>,
    engine: Engine,
    config: Config,
    tokens: Tokens,
    principal_key: PrincipalKey,
    /// Which credentials say whose request it is.
    credentials: CredentialRule,
    bodies: Budget,
}

/// What is behind the gateway.
#[derive(Debug)]
pub(crate) enum Behind<D: Desk> {
    /// A server that speaks HTTP itself.
    Server(Relay<D>),
    /// Child processes.
    Children(Children<D>),
}

/// A message and how it came.
pub(super) struct Came {
    pub(super) message: Message,
    pub(super) by: By,
}

/// How a request came.
pub(super) struct By {
    /// On whose behalf.
    pub(super) principal: Option<String>,
    /// Where its operations live.
    pub(super) namespace: Namespace,
    /// What its sender may do.
    pub(super) scope: Scope,
    /// What is meant for the server.
    pub(super) headers: HeaderMap,
    pub(super) accepts: Accepts,
    /// The connection that it came on.
    pub(super) line: Option<Line>,
}

impl By {
    /// Names the client: a session belongs to whoever shows the same credentials.
    pub(super) fn whose(&self) -> String {
        let session = self.headers.get(SESSION).and_then(|id| id.to_str().ok());
        self.whose_in(session)
    }

    /// Names the client in a session.
    pub(super) fn whose_in(&self, session: Option<&str>) -> String {
        let principal = self.principal.as_deref().unwrap_or_default();
        format!("{principal}\n{}", session.unwrap_or_default())
    }
}

/// Why a request is not answered by a server.
pub(super) enum Refused {
    /// As everywhere else.
    Problem(Problem),
    /// As the protocol says it.
    Said(StatusCode, Box<Message>),
    /// There are other methods.
    Method(&'static str),
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl Refused {
    /// Refuses a request with an error of the protocol.
    pub(super) fn new(status: StatusCode, id: Option<&str>, code: i64, why: &str) -> Self {
        let error = json!({"code": code, "message": why});
        let message = answer(id.unwrap_or("null"), "error", &error.to_string());
        Self::Said(status, Box::new(message))
    }
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        let status = match malformed {
            Malformed::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, None, malformed.code(), &malformed.to_string())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::Said(status, message) => said(status, &message),
            Self::Method(allowed) => {
                let mut response = StatusCode::METHOD_NOT_ALLOWED.into_response();
                let allowed = HeaderValue::from_static(allowed);
                response.headers_mut().insert(header::ALLOW, allowed);
                response
            }
        }
    }
}

/// Answers with a message.
pub(super) fn said(status: StatusCode, message: &Message) -> Response {
    let mut response = Response::new(Body::from(message.bytes().clone()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

impl<D: Desk> Front<D> {
    pub(crate) fn new(
        desk: Arc<D>,
        behind: Behind<D>,
        engine: Engine,
        config: Config,
        principal_key: PrincipalKey,
        credentials: CredentialRule,
        stop: watch::Receiver<bool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            desk,
            behind,
            proofs: Proofs::default(),
            tokens: Tokens::new(&engine, &config),
            engine,
            config,
            principal_key,
            credentials,
            bodies: Budget::default(),
            stop,
            resumes: Resumes::default(),
        })
    }

    /// Returns where proof of receipt is kept, for the connections that lead here.
    pub(crate) fn proofs(&self) -> Proofs {
        self.proofs.clone()
    }

    /// Returns what answers requests.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route(PATH, any(Self::handle))
            .with_state(Arc::clone(self))
    }

    /// Ends what clients have begun here and nobody can go on with.
    pub(crate) async fn end(&self) {
        if let Behind::Children(children) = &self.behind {
            children.end().await;
        }
    }

    async fn handle(State(front): State<Arc<Self>>, request: Request) -> Response {
        let (mut parts, body) = request.into_parts();
        let meant = framed_clearly(&parts.headers).and_then(|()| {
            let head = (&parts.method, &parts.uri, &parts.headers);
            meant_for_us(&front.config, head, Resource::Call)
        });
        let origin = match meant {
            Ok(origin) => origin,
            Err(problem) => {
                // Nobody wants the rest, whatever it is.
                let mut response = problem.into_response();
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
                return response;
            }
        };
        if origin.is_none() {
            // It is the own one, if there is one, and says nothing to the server behind.
            parts.headers.remove(header::ORIGIN);
        }
        let answered = match &origin {
            Some(_) if parts.method == Method::OPTIONS => Ok(permitted()),
            _ => front.answer(parts, body).await,
        };
        let mut response = answered.unwrap_or_else(Refused::into_response);
        if let Some(origin) = origin {
            share(response.headers_mut(), origin);
        }
        response
    }

    async fn answer(&self, parts: Parts, body: Body) -> Result<Response, Refused> {
        let by = self.by(&parts).await?;
        match (&parts.method, &self.behind) {
            (&Method::POST, behind) => {
                let bytes = self.body(&parts.headers, body).await?;
                let message = Message::read(bytes)?;
                let came = Came { message, by };
                match behind {
                    Behind::Server(relay) => relay.post(self, came).await,
                    Behind::Children(children) => children.post(self, &parts.headers, came).await,
                }
            }
            (&Method::GET, _) if resuming::asked_for(&by.headers).is_some() => {
                self.resumed(by).await
            }
            (&Method::GET, Behind::Server(relay)) => relay.get(self, by).await,
            (&Method::DELETE, Behind::Server(relay)) => relay.delete(by).await,
            (&Method::GET, Behind::Children(children)) => children.get(self, &by),
            (&Method::DELETE, Behind::Children(children)) => children.delete(&by).await,
            _ => Err(Refused::Method("GET, POST, DELETE")),
        }
    }

    /// Gives the rest of an answer that broke off.
    async fn resumed(&self, by: By) -> Result<Response, Refused> {
        let event = resuming::asked_for(&by.headers).unwrap_or_default();
        let Some(kept) = self.resumes.take(event, &by.whose()) else {
            let why = "there is no more of this answer: the same call gets it again";
            return Err(Refused::new(StatusCode::NOT_FOUND, None, -32600, why));
        };
        let (_, nothing) = mpsc::channel(1);
        let answering = Answering {
            id: kept.id,
            about: kept.about,
            asides: nothing,
            last: Last::Call(kept.call),
            resumes: self.resumes_for(&by),
            prefers_events: true,
            own: Box::new(Unchanged),
            waits: None,
        };
        Ok(answering.response(by.accepts, by.line).await)
    }

    /// Returns where answers are kept for a client, if it can ask for them.
    pub(super) fn resumes_for(&self, by: &By) -> Option<(Resumes, String)> {
        resuming::knows(&by.headers).then(|| (self.resumes.clone(), by.whose()))
    }

    /// Finds out how a request came.
    async fn by(&self, parts: &Parts) -> Result<By, Refused> {
        let mut shown = parts.headers.clone();
        let granted = match take_token(&mut shown)? {
            Some(token) => {
                let deadline = self.config.limits.deadline;
                let writer = self.tokens.admit_writer(&self.engine, &token, deadline);
                Some(writer.await?)
            }
            None if self.config.needs_token() => return Err(unauthorized().into()),
            None => None,
        };
        let headers = passed_on(&shown);
        let query = parts.uri.query();
        let principal = ShownCredentials::new(&shown, query, &self.credentials);
        let holder = granted.as_ref().map(principal_of);
        let principal = principal.principal(holder, &self.principal_key).await?;
        let (namespace, scope) = match granted {
            Some(granted) => (granted.namespace, granted.scope),
            None => (self.engine.namespace(), ANONYMOUS),
        };
        Ok(By {
            principal,
            namespace,
            scope,
            headers,
            accepts: Accepts::of(&parts.headers),
            line: parts.extensions.get::<Line>().cloned(),
        })
    }

    /// Reads the body of a message.
    async fn body(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, Refused> {
        let unsupported =
            |why: &str| Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, -32600, why);
        let kind = reading::media_type(headers).unwrap_or_default();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(unsupported("a message is sent as application/json"));
        }
        // What the server undoes is not what was looked at here.
        if headers.contains_key(header::CONTENT_ENCODING) {
            return Err(unsupported("a message is sent in no other coding"));
        }
        if body.size_hint().lower() > MESSAGE_MAX as u64 {
            return Err(Malformed::TooLarge.into());
        }
        let patience = self.config.limits.read;
        let mut received = read(body, &self.bodies, MESSAGE_MAX, patience).await?;
        Ok(std::mem::take(&mut received.bytes).into())
    }
}

/// Tells a browser what pages of a trusted origin may ask.
fn permitted() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
        // Which headers repeat arguments is only known to the tools.
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "*, authorization"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Lets pages of a trusted origin read an answer.
fn share(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    const SHOWN: HeaderName = header::ACCESS_CONTROL_EXPOSE_HEADERS;
    let shown = "mcp-session-id, mcp-protocol-version, www-authenticate";
    headers.insert(SHOWN, HeaderValue::from_static(shown));
}
