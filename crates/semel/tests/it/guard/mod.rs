//! Goal: a guarded request takes effect once, whatever its upstream does and whoever leaves.
//! Method: an upstream within the test counts what it was sent, and answers as it is told to.

mod answers;
mod doubts;
mod durable;
mod kept;
mod layered;
mod streams;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use semel::Engine;
use semel::door::Doorway;
use semel::http::{Body, BodyError, Caller, Guard, Later, Rules, SendError, Upstream};
use semel::store::Store;
use tokio::sync::{Notify, mpsc};

/// What an upstream does with a request.
enum Step {
    /// Answers.
    Answer(u16, &'static str),
    /// Answers with these headers as well.
    Headers(u16, &'static [(&'static str, &'static str)], &'static str),
    /// Answers with what comes.
    Stream(mpsc::Receiver<Result<&'static str, &'static str>>),
    /// Answers with these headers and what comes.
    Coded(
        &'static [(&'static str, &'static str)],
        mpsc::Receiver<Result<&'static str, &'static str>>,
    ),
    /// Waits to be told, then answers.
    Wait(Arc<Notify>, &'static str),
    /// Is not there.
    NotSent,
    /// Takes the request and is gone.
    Lost,
    /// Never answers.
    Never,
}

/// An upstream that counts.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    steps: VecDeque<Step>,
    /// What was sent: path, headers, body.
    sent: Vec<(String, HeaderMap, String)>,
}

impl Shop {
    fn then(self, step: Step) -> Self {
        self.0
            .lock()
            .expect("nobody panicked")
            .steps
            .push_back(step);
        self
    }

    fn sent(&self) -> usize {
        self.0.lock().expect("nobody panicked").sent.len()
    }

    fn last(&self) -> (String, HeaderMap, String) {
        let seen = self.0.lock().expect("nobody panicked");
        seen.sent.last().expect("something was sent").clone()
    }
}

impl Upstream for Shop {
    fn send(&self, request: Request<Body>) -> Later<'static, Result<Response<Body>, SendError>> {
        let shop = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.expect("it is whole").to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            let step = {
                let mut seen = shop.0.lock().expect("nobody panicked");
                let step = seen.steps.pop_front().expect("a step for each request");
                if !matches!(step, Step::NotSent) {
                    let path = parts.uri.to_string();
                    seen.sent.push((path, parts.headers, body));
                }
                step
            };
            let answer = |status: u16, body: Body| {
                let mut response = Response::new(body);
                *response.status_mut() = StatusCode::from_u16(status).expect("a status");
                response
            };
            let stream = |pieces| {
                let frames = futures_util::stream::unfold(
                    pieces,
                    |mut pieces: mpsc::Receiver<Result<&'static str, &'static str>>| async move {
                        let piece = pieces.recv().await?;
                        let frame = piece.map(|it| Frame::data(Bytes::from(it)));
                        Some((frame.map_err(BodyError::from), pieces))
                    },
                );
                answer(200, Body::new(StreamBody::new(Box::pin(frames))))
            };
            let with = |mut response: Response<Body>, headers: &[(&'static str, &str)]| {
                for (name, value) in headers {
                    let value = value.parse().expect("a value");
                    response.headers_mut().append(*name, value);
                }
                response
            };
            match step {
                Step::Answer(status, text) => Ok(answer(status, Body::full(text))),
                Step::Headers(status, headers, text) => {
                    Ok(with(answer(status, Body::full(text)), headers))
                }
                Step::Stream(pieces) => Ok(stream(pieces)),
                Step::Coded(headers, pieces) => Ok(with(stream(pieces), headers)),
                Step::Wait(told, text) => {
                    told.notified().await;
                    Ok(answer(201, Body::full(text)))
                }
                Step::NotSent => Err(SendError::NotSent("connection refused".to_owned())),
                Step::Lost => Err(SendError::Lost("connection reset".to_owned())),
                Step::Never => std::future::pending().await,
            }
        })
    }
}

/// Starts an engine as a process of its own would.
async fn engine_on(store: Arc<dyn Store>) -> Engine {
    let builder = Engine::builder().store(store).sweep_every(None);
    builder.start().await.expect("the engine starts")
}

async fn engine() -> Engine {
    Engine::open("memory:").await.expect("it opens")
}

fn rules() -> Rules {
    Rules {
        target: "https://shop.example".to_owned(),
        ..Rules::default()
    }
}

fn guard(engine: &Engine, shop: &Shop, rules: Rules) -> Guard {
    Guard::new(Doorway::new(engine.clone()), rules, Arc::new(shop.clone()))
}

fn post(key: Option<&str>, body: &str) -> Request<Body> {
    let mut request = Request::post("/orders").header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request
        .body(Body::full(body.to_owned()))
        .expect("a request")
}

/// An answer that was read to its end.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Read {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    fn code(&self) -> Option<&str> {
        self.header("semel-error")
    }
}

async fn ask(guard: &Guard, request: Request<Body>) -> Read {
    read(guard.handle(request, Caller::default()).await.response).await
}

async fn read(response: Response<Body>) -> Read {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("it is whole").to_bytes();
    Read {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

/// Longer than anything here takes: what does not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(60);
