//! The tower layer: requests to a service of one's own take effect once.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::convert::Infallible;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! use http_body_util::BodyExt as _;
//! use semel::Engine;
//! use semel::http::layer::OnceLayer;
//! use semel::http::{Body, Rules};
//! use tower::{Layer as _, ServiceExt as _, service_fn};
//!
//! static ORDERS: AtomicU32 = AtomicU32::new(0);
//!
//! async fn order(_: http::Request<Body>) -> Result<http::Response<String>, Infallible> {
//!     let number = ORDERS.fetch_add(1, Ordering::Relaxed) + 1;
//!     Ok(http::Response::new(format!("order {number}")))
//! }
//!
//! let engine = Engine::open("memory:").await?;
//! let service = OnceLayer::new(engine, Rules::default()).layer(service_fn(order));
//! for _ in 0..2 {
//!     let request = http::Request::post("/orders").header("idempotency-key", "order-7");
//!     let response = service.clone().oneshot(request.body(String::new())?).await?;
//!     assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "order 1");
//! }
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use semel_core::Digest;
use semel_core::http::CredentialRule;
use semel_core::identity::Observation;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Answer, Body, BodyError, Caller, Guard, Keyless, Later, Rules, Seat, SendError, Upstream,
};
use crate::door::Doorway;
use crate::engine::Engine;

/// Names the caller of a request.
type NameCaller = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// What names the caller of a request.
#[derive(Clone)]
enum Principal {
    /// The credentials that count by this rule.
    Credentials(Arc<CredentialRule>),
    /// A function of the service's own.
    Named(Arc<NameCaller>),
}

/// Makes requests to a service take effect once.
///
/// It sees no connections, so that it cannot tell whether an answer arrived: requests without a key pass, unless the
/// rules require one or make one from parts of the request.
#[derive(Clone)]
pub struct OnceLayer {
    doorway: Doorway,
    rules: Rules,
    principal: Principal,
}

impl fmt::Debug for OnceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceLayer")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl OnceLayer {
    /// Makes a layer that keeps its ledger in an engine. It lives in the runtime in which it was made.
    #[must_use]
    pub fn new(engine: Engine, mut rules: Rules) -> Self {
        let from = &rules.derive_from;
        let has_parts = !from.headers.is_empty() || !from.members.is_empty();
        if rules.keyless == Keyless::Derive && !has_parts {
            rules.keyless = Keyless::Pass;
        }
        let rule = rules.credential_rule();
        Self {
            doorway: Doorway::new(engine),
            rules,
            principal: Principal::Credentials(Arc::new(rule)),
        }
    }

    /// Says on whose behalf a request comes: the keys of two principals never meet. Unless this is called, two requests
    /// have the same principal if they carry the same credentials, by [`Rules::credential_rule`]. A token that is
    /// refreshed between two attempts is another principal.
    #[must_use]
    pub fn principal(
        mut self,
        principal: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.principal = Principal::Named(Arc::new(principal));
        self
    }
}

impl Principal {
    /// Names the caller by its credentials, without showing them: by a code under the ledger's secret key.
    async fn name(&self, parts: &Parts, engine: &Engine) -> crate::Result<Option<String>> {
        let rule = match self {
            Self::Credentials(rule) => rule,
            Self::Named(name) => return Ok(name(parts)),
        };
        let lines = parts.headers.iter();
        let lines = lines.map(|(name, value)| (name.as_str(), value.as_bytes()));
        let Some(credentials) = rule.read(lines, parts.uri.query()) else {
            return Ok(None);
        };
        let digest = Digest::of_parts(&[b"semel-layer-principal\0", &credentials]);
        let mut name = engine.principal_code(&digest).await?.hex();
        name.truncate(32);
        Ok(Some(format!("auth {name}")))
    }
}

impl<S, B> Layer<S> for OnceLayer
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BodyError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    type Service = Once;

    fn layer(&self, service: S) -> Once {
        let upstream = Arc::new(Inside(service));
        Once {
            guard: Guard::new(self.doorway.clone(), self.rules.clone(), upstream),
            principal: self.principal.clone(),
        }
    }
}

/// A service whose requests take effect once.
#[derive(Clone)]
pub struct Once {
    guard: Guard,
    principal: Principal,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

impl Once {
    /// Waits until everything that was begun has ended, before a clean exit.
    pub async fn drained(&self) {
        self.guard.drained().await;
    }
}

impl<B> Service<Request<B>> for Once
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Later<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Each request waits for the service by itself.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (guard, principal) = (self.guard.clone(), self.principal.clone());
        let (parts, body) = request.into_parts();
        let body = Body::new(body);
        Box::pin(async move {
            let principal = match principal.name(&parts, guard.engine()).await {
                Ok(principal) => principal,
                Err(error) => return Ok(guard.refused(&error)),
            };
            let caller = Caller {
                principal,
                namespace: None,
                watch: None,
            };
            let request = Request::from_parts(parts, body);
            let Answer { response, seat, .. } = guard.handle(request, caller).await;
            Ok(match seat {
                Some((seat, _)) => response.map(|body| seated(body, seat)),
                None => response,
            })
        })
    }
}

/// The service behind the layer.
struct Inside<S>(S);

impl<S, B> Upstream for Inside<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BodyError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    fn send(&self, request: Request<Body>) -> Later<'static, Result<Response<Body>, SendError>> {
        let mut service = self.0.clone();
        Box::pin(async move {
            let ready = std::future::poll_fn(|context| service.poll_ready(context)).await;
            ready.map_err(|error| SendError::NotSent(error.into().to_string()))?;
            match service.call(request).await {
                Ok(response) => Ok(response.map(Body::new)),
                Err(error) => Err(SendError::Lost(error.into().to_string())),
            }
        })
    }
}

/// Makes a body that tells when it was given to its end.
fn seated(body: Body, seat: Arc<Seat>) -> Body {
    Body::new(Seated {
        body,
        seat: Some(seat),
    })
}

struct Seated {
    body: Body,
    seat: Option<Arc<Seat>>,
}

impl http_body::Body for Seated {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if (frame.is_none() || self.body.is_end_stream())
            && let Some(seat) = self.seat.take()
        {
            seat.see(Observation::Written);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
