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
use http::{Request, Response, header};
use http_body::{Frame, SizeHint};
use semel_core::Digest;
use semel_core::identity::Observation;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Answer, Body, BodyError, Caller, Guard, Keyless, Later, Rules, Seat, SendError, Upstream,
};
use crate::door::Doorway;
use crate::engine::Engine;

/// Names on whose behalf a request comes.
type Principal = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

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
        Self {
            doorway: Doorway::new(engine),
            rules,
            principal: Arc::new(credentials),
        }
    }

    /// Says on whose behalf a request comes: the keys of two principals never meet. Unless this is called, that is
    /// whoever shows the same `Authorization`, or else the same `Cookie`; a token that is refreshed between two attempts
    /// makes another one of them.
    #[must_use]
    pub fn principal(
        mut self,
        principal: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.principal = Arc::new(principal);
        self
    }
}

/// Names whoever shows these credentials, without showing them.
fn credentials(parts: &Parts) -> Option<String> {
    let shown = [header::AUTHORIZATION, header::COOKIE];
    let shown = shown.iter().find_map(|name| parts.headers.get(name))?;
    let mut name = Digest::of_parts(&[b"semel-principal\0", shown.as_bytes()]).hex();
    name.truncate(32);
    Some(format!("auth {name}"))
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
            principal: Arc::clone(&self.principal),
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
        let (parts, body) = request.into_parts();
        let caller = Caller {
            principal: (self.principal)(&parts),
            watch: None,
        };
        let body = Body::new(body);
        let (guard, request) = (self.guard.clone(), Request::from_parts(parts, body));
        Box::pin(async move {
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
