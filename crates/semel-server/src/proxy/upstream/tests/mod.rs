//! The client against servers that do what a test says, over real sockets.

mod driven;
mod failing;
mod many;
mod pooled;
mod server;
mod shape;
mod turned_away;
mod wire;

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use semel::http::{Body, BodyError, SendError, Upstream as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Client, Options, Version};
use crate::outbound::Url;

/// Longer than anything here takes: what does not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(30);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("it comes before patience ends")
}

/// Waits until the system has seen something, while no task here can: what the other side did a moment ago may still
/// be on its way.
fn until(is_seen: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_seen() {
        assert!(begun.elapsed() < PATIENCE, "it is not seen");
        std::thread::yield_now();
    }
}

fn client(url: &str, options: Options) -> Client {
    let url = Url::parse(url).expect("it is an address");
    Client::new(&url, options).expect("it can be used")
}

fn full(text: &'static str) -> Body {
    Body::full(text)
}

fn empty() -> Body {
    Body::empty()
}

/// A body of which nobody knows how long it is, and where its pieces come from.
fn in_pieces() -> (mpsc::UnboundedSender<Result<Frame<Bytes>, BodyError>>, Body) {
    let (sender, mut pieces) = mpsc::unbounded_channel();
    let pieces = futures_util::stream::poll_fn(move |context| pieces.poll_recv(context));
    (sender, Body::new(StreamBody::new(pieces)))
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(empty()).expect("it is a request")
}

fn post(path: &str, text: &'static str) -> Request<Body> {
    Request::post(path)
        .body(full(text))
        .expect("it is a request")
}

type Sent = Result<Response<Body>, SendError>;

/// Begins to send, while the test plays the server.
fn begin(client: &Client, request: Request<Body>) -> JoinHandle<Sent> {
    tokio::spawn(client.send(request))
}

async fn end(sending: JoinHandle<Sent>) -> Sent {
    soon(sending).await.expect("it does not panic")
}

/// An answer that was read.
#[derive(Debug)]
struct Read {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
    trailers: Option<HeaderMap>,
}

async fn read(answer: Response<Body>) -> Result<Read, BodyError> {
    let (head, body) = answer.into_parts();
    let body = soon(body.collect()).await?;
    let trailers = body.trailers().cloned();
    Ok(Read {
        status: head.status,
        headers: head.headers,
        text: String::from_utf8(body.to_bytes().to_vec()).expect("it is text"),
        trailers,
    })
}

/// Returns the text of the answer to a request that goes well.
async fn text(sending: JoinHandle<Sent>) -> String {
    let answer = end(sending).await.expect("there is an answer");
    read(answer).await.expect("it is whole").text
}

/// Reads an answer up to its first piece, and leaves the rest.
async fn first_piece(body: &mut Body) -> Bytes {
    let frame = soon(body.frame()).await.expect("there is a piece");
    let frame = frame.expect("it came");
    frame.into_data().expect("it is data")
}

fn is_not_sent(sent: &Sent) -> bool {
    matches!(sent, Err(SendError::NotSent(_)))
}

fn is_lost(sent: &Sent) -> bool {
    matches!(sent, Err(SendError::Lost(_)))
}
