//! Requests without keys, whose retries are told from intended repeats by what their connections tell.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{Method, Request, Response};
use bytes::Bytes;
use h2::client::SendRequest;
use semel::Engine;
use semel::http::{Body, Later, Rules, SendError, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::super::{Config, Route, Service};
use super::fake::{PATIENCE, local, said};
use crate::Stop;

/// An upstream that counts its effects, and answers when it is told to.
#[derive(Clone)]
struct Counting {
    effects: Arc<watch::Sender<usize>>,
    answers: watch::Sender<bool>,
}

impl Upstream for Counting {
    fn send(&self, request: Request<Body>) -> Later<'static, Result<Response<Body>, SendError>> {
        if request.method() != Method::POST {
            return Box::pin(async { Ok(Response::new(Body::empty())) });
        }
        let mut number = 0;
        self.effects.send_modify(|effects| {
            *effects += 1;
            number = *effects;
        });
        let mut answers = self.answers.subscribe();
        Box::pin(async move {
            let told = answers.wait_for(|answers| *answers).await;
            told.expect("the test goes on");
            Ok(Response::new(Body::full(format!("effect {number}"))))
        })
    }
}

struct Proxy {
    address: SocketAddr,
    upstream: Counting,
    _stop: Stop,
}

impl Proxy {
    async fn open() -> Self {
        let upstream = Counting {
            effects: Arc::new(watch::Sender::new(0)),
            answers: watch::Sender::new(true),
        };
        let engine = Engine::open("memory:").await.expect("it opens");
        let route = Route::all(Rules::default(), Arc::new(upstream.clone()));
        let routes = vec![route];
        let opened = Service::open(engine, Config { routes }, local()).await;
        let service = opened.expect("there is a port");
        let address = service.address().trim_start_matches("http://");
        let address = address.parse().expect("it is an address");
        let stop = service.stopper();
        tokio::spawn(service.run());
        Self {
            address,
            upstream,
            _stop: stop,
        }
    }

    fn effects(&self) -> usize {
        *self.upstream.effects.borrow()
    }

    /// Waits until there were so many effects.
    async fn acts(&self, count: usize) {
        let mut effects = self.upstream.effects.subscribe();
        let reached = effects.wait_for(|effects| *effects >= count);
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "{}", self.effects());
    }

    async fn connect(&self) -> TcpStream {
        let connected = TcpStream::connect(self.address).await;
        connected.expect("it listens")
    }

    async fn connect_new(&self) -> SendRequest<Bytes> {
        let stream = self.connect().await;
        let (client, connection) = h2::client::handshake(stream).await.expect("it speaks it");
        tokio::spawn(connection);
        client.ready().await.expect("there is room")
    }
}

const ORDER: &str = "POST /order HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}";

const LAST_ORDER: &str =
    "POST /order HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";

/// Has no effect.
const LOOK: &str = "GET /order HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn order(caller: &mut TcpStream) {
    let sent = caller.write_all(ORDER.as_bytes()).await;
    sent.expect("it is sent");
}

/// Reads up to the end of an answer.
async fn read(caller: &mut TcpStream, effect: usize) {
    let end = format!("\r\n\r\neffect {effect}");
    let mut text = vec![];
    while !text.ends_with(end.as_bytes()) {
        text.push(caller.read_u8().await.expect("there is more"));
    }
}

#[tokio::test]
async fn whoever_left_before_the_answer_and_comes_again_retries() {
    let proxy = Proxy::open().await;
    proxy.upstream.answers.send_replace(false);
    let mut caller = proxy.connect().await;
    // With more behind it nothing is read on: only whoever asks the socket knows of the close.
    let sent = caller.write_all(format!("{ORDER}{LOOK}").as_bytes()).await;
    sent.expect("it is sent");
    proxy.acts(1).await;
    let mut again = proxy.connect().await;
    drop(caller);
    let sent = again.write_all(LAST_ORDER.as_bytes()).await;
    sent.expect("it is sent");
    proxy.upstream.answers.send_replace(true);
    let mut answer = String::new();
    let read = again.read_to_string(&mut answer).await;
    read.expect("it is closed in good order");
    assert!(answer.ends_with("effect 1"), "{answer}");
    assert_eq!(proxy.effects(), 1);
}

#[tokio::test]
async fn whoever_has_the_answer_and_comes_again_wants_another_effect() {
    let proxy = Proxy::open().await;
    let mut caller = proxy.connect().await;
    for effect in 1..=3 {
        order(&mut caller).await;
        read(&mut caller, effect).await;
    }
    // From elsewhere, too.
    for effect in 4..=6 {
        let answer = said(proxy.address, LAST_ORDER).await;
        assert!(answer.ends_with(&format!("effect {effect}")), "{answer}");
    }
}

#[tokio::test]
async fn two_who_wait_at_once_want_two_effects() {
    let proxy = Proxy::open().await;
    proxy.upstream.answers.send_replace(false);
    let mut one = proxy.connect().await;
    order(&mut one).await;
    proxy.acts(1).await;
    let mut other = proxy.connect().await;
    order(&mut other).await;
    proxy.acts(2).await;
    proxy.upstream.answers.send_replace(true);
    read(&mut one, 1).await;
    read(&mut other, 2).await;
}

fn new_order() -> Request<()> {
    let request = Request::post("http://localhost/order");
    request.body(()).expect("it is one")
}

async fn effect(response: h2::client::ResponseFuture) -> String {
    let response = response.await.expect("it is answered");
    let mut body = response.into_body();
    let mut all = vec![];
    while let Some(piece) = body.data().await {
        all.extend(piece.expect("it is whole"));
    }
    String::from_utf8(all).expect("it is text")
}

#[tokio::test]
async fn on_streams_whoever_resets_one_retries_and_whoever_has_the_answer_does_not() {
    let proxy = Proxy::open().await;
    let mut client = proxy.connect_new().await;
    proxy.upstream.answers.send_replace(false);
    let (given_up, mut sending) = client
        .send_request(new_order(), true)
        .expect("there is room");
    proxy.acts(1).await;
    sending.send_reset(h2::Reason::CANCEL);
    drop(given_up);
    let (again, _) = client
        .send_request(new_order(), true)
        .expect("there is room");
    proxy.upstream.answers.send_replace(true);
    assert_eq!(effect(again).await, "effect 1");
    for number in 2..=4 {
        let (next, _) = client
            .send_request(new_order(), true)
            .expect("there is room");
        assert_eq!(effect(next).await, format!("effect {number}"));
    }
    assert_eq!(proxy.effects(), 4);
}

#[tokio::test]
async fn on_streams_two_who_wait_at_once_want_two_effects() {
    let proxy = Proxy::open().await;
    let mut client = proxy.connect_new().await;
    proxy.upstream.answers.send_replace(false);
    let (one, _) = client
        .send_request(new_order(), true)
        .expect("there is room");
    proxy.acts(1).await;
    let (other, _) = client
        .send_request(new_order(), true)
        .expect("there is room");
    proxy.acts(2).await;
    proxy.upstream.answers.send_replace(true);
    assert_eq!(effect(one).await, "effect 1");
    assert_eq!(effect(other).await, "effect 2");
}
