//! A gateway that hands on what it takes, a child that answers what it is told, and a client.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::HttpBody as _;
use axum::http::{HeaderMap, Method, Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use semel::Engine;
use semel::core::http::CredentialRule;
use semel::core::identity::{Exchange, Observation};
use tokio::sync::{mpsc, watch};

use super::soon;
use crate::config::{Config, Listen};
use crate::mcp::edit;
use crate::mcp::http::children::{Server, Start};
use crate::mcp::http::desk::{Answered, Asked, Call, Desk};
use crate::mcp::http::door::Opened;
use crate::mcp::http::front::Behind;
use crate::mcp::http::{answer, failure};
use crate::mcp::message::{Kind, Message};
use crate::mcp::upstream::{Headers, Lost, NotSent, Pending, Replies, Reply, Upstream};
use crate::outbound::Url;
use crate::pool::{Coming, Pool};
use crate::principal_key::PrincipalKey;
use crate::proof::Witness;
use crate::{Auth, Stop};

/// What was seen of one call.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) principal: Option<String>,
    pub(super) seen: Vec<Observation>,
    /// How many calls before it were not known to be delivered when it was judged.
    pub(super) unproved: usize,
    pub(super) is_answered: bool,
    pub(super) has_left: bool,
}

/// Hands calls of tools on to the server, and remembers what was seen of them.
#[derive(Debug)]
pub(super) struct FakeDesk(watch::Sender<Vec<Seen>>);

#[derive(Debug)]
pub(super) struct FakeSession(Arc<dyn Upstream>);

struct FakeCall {
    desk: Arc<FakeDesk>,
    number: usize,
    answer: watch::Receiver<Option<Answered>>,
}

impl FakeDesk {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(vec![])))
    }

    fn note(&self, number: usize, note: impl FnOnce(&mut Seen)) {
        self.0.send_modify(|all| note(&mut all[number]));
    }

    /// Waits until something is so of the calls that were taken.
    pub(super) async fn until(&self, is_so: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let mut all = self.0.subscribe();
        let reached = soon(all.wait_for(|all| is_so(all))).await;
        reached.expect("the desk is there").clone()
    }

    /// Waits until a call ended in this way.
    pub(super) async fn ended(&self, number: usize, exchange: Exchange) -> Seen {
        let is_so = |all: &[Seen]| {
            let seen = all.get(number).map(|call| call.seen.iter().copied());
            seen.is_some_and(|seen| Exchange::of(seen) == exchange)
        };
        self.until(is_so).await.swap_remove(number)
    }
}

impl Desk for FakeDesk {
    type Session = FakeSession;

    fn session(&self, upstream: Arc<dyn Upstream>, _: mpsc::Sender<Message>) -> FakeSession {
        FakeSession(upstream)
    }

    fn overhear(&self, _: &FakeSession, message: &Message) -> bool {
        message.id() == Some("\"semel-question\"")
    }

    fn takes(&self, message: &Message) -> bool {
        message.method() == Some("tools/call")
    }

    fn take(
        self: &Arc<Self>,
        session: &Arc<FakeSession>,
        request: Message,
        asked: Asked,
    ) -> Arc<dyn Call> {
        let mut number = 0;
        self.0.send_modify(|all| {
            number = all.len();
            let is_delivered =
                |call: &&Seen| Exchange::of(call.seen.iter().copied()) == Exchange::Delivered;
            let unproved = number - all.iter().filter(is_delivered).count();
            all.push(Seen {
                unproved,
                principal: asked.principal.clone(),
                ..Seen::default()
            });
        });
        let (sender, answer) = watch::channel(None);
        let (desk, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            let answered = carried_out(&*session.0, &request, &asked).await;
            desk.note(number, |call| call.is_answered = true);
            sender.send_replace(Some(answered));
        });
        Arc::new(FakeCall {
            desk: Arc::clone(self),
            number,
            answer,
        })
    }
}

async fn carried_out(upstream: &dyn Upstream, request: &Message, asked: &Asked) -> Answered {
    let id = request.id().unwrap_or("null");
    let mut replies = match upstream.request(request, &asked.headers).await {
        Ok(replies) => replies,
        Err(not_sent) => return failure(id, &not_sent.to_string()).into(),
    };
    while let Some(reply) = replies.0.recv().await {
        match reply {
            Reply::Aside(message) => {
                let asides = asked.asides.as_ref().expect("there is a place for them");
                drop(asides.send(message).await);
            }
            Reply::Answer(message, headers) => {
                return Answered {
                    message,
                    headers,
                    status: None,
                };
            }
            Reply::Http(refusal) => {
                return Answered {
                    message: failure(id, "refused"),
                    headers: refusal.headers,
                    status: Some(refusal.status),
                };
            }
            Reply::Lost(lost) => return failure(id, &lost.0).into(),
        }
    }
    failure(id, "nothing came").into()
}

impl Witness for FakeCall {
    fn see(&self, seen: Observation) {
        self.desk.note(self.number, |call| call.seen.push(seen));
    }
}

impl Call for FakeCall {
    fn answer(&self) -> Pending<'_, Answered> {
        Box::pin(async {
            let mut answer = self.answer.clone();
            let answer = answer.wait_for(Option::is_some).await;
            answer
                .expect("it is answered")
                .clone()
                .expect("it is there")
        })
    }

    fn forwards_cancel(&self) -> bool {
        false
    }
}

impl Drop for FakeCall {
    fn drop(&mut self) {
        self.desk.note(self.number, |call| call.has_left = true);
    }
}

/// What the children of a test were told, and by which of them; `end` is their end.
pub(super) type Told = Arc<watch::Sender<Vec<(usize, String)>>>;

/// Starts children that answer with what they were asked.
#[derive(Debug, Default)]
pub(super) struct FakeStart {
    pub(super) told: Told,
    count: std::sync::atomic::AtomicUsize,
}

#[derive(Debug)]
struct FakeChild {
    number: usize,
    told: Told,
    unasked: mpsc::Sender<Message>,
}

impl FakeStart {
    pub(super) fn new(told: &Told) -> Box<Self> {
        Box::new(Self {
            told: Arc::clone(told),
            count: 0.into(),
        })
    }
}

impl Start for FakeStart {
    fn start(&self, unasked: mpsc::Sender<Message>) -> Arc<dyn Server> {
        let number = self
            .count
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new(FakeChild {
            number,
            told: Arc::clone(&self.told),
            unasked,
        })
    }
}

/// Waits until children were told something.
pub(super) async fn told(told: &Told, what: &str) -> (usize, String) {
    let mut all = told.subscribe();
    let find = |all: &Vec<(usize, String)>| all.iter().any(|(_, text)| text.contains(what));
    let all = soon(all.wait_for(find)).await.expect("it is there");
    let found = all.iter().find(|(_, text)| text.contains(what));
    found.expect("it was found").clone()
}

impl FakeChild {
    fn note(&self, text: &str) {
        let number = self.number;
        self.told
            .send_modify(|all| all.push((number, text.to_owned())));
    }

    async fn say(&self, text: &str) {
        let message = Message::read(text.to_owned()).expect("it is one");
        drop(self.unasked.send(message).await);
    }

    /// Says what goes before an answer, and returns the answer; `None` where there is none yet.
    async fn answer(&self, message: &Message) -> Option<Message> {
        let id = message.id()?;
        let params = message.params().unwrap_or("{}");
        if let Some(token) = edit::get(params, &["_meta", "progressToken"]) {
            for progress in 1..=2 {
                self.say(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}}}}}"#
                ))
                .await;
            }
        }
        let result = match message.method()? {
            "initialize" => {
                self.say(r#"{"jsonrpc":"2.0","method":"notifications/early"}"#)
                    .await;
                r#"{"protocolVersion":"2025-06-18"}"#
            }
            "subscriptions/listen" => {
                self.say(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/news","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
                ))
                .await;
                return None;
            }
            "ask" => {
                self.say(r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create"}"#)
                    .await;
                return None;
            }
            "unknown" => return Some(answer(id, "error", r#"{"code":-32601,"message":"no"}"#)),
            "tools/list" => {
                r#"{"tools":[{"name":"t","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}"#
            }
            _ => params,
        };
        Some(answer(id, "result", result))
    }
}

impl Upstream for FakeChild {
    fn request<'a>(
        &'a self,
        request: &'a Message,
        _: &'a Headers,
    ) -> Pending<'a, Result<Replies, NotSent>> {
        Box::pin(async move {
            self.note(&String::from_utf8_lossy(request.bytes()));
            let (sender, replies) = mpsc::channel(1);
            if let Some(answer) = self.answer(request).await {
                drop(sender.send(Reply::Answer(answer, Headers::default())).await);
            }
            Ok(Replies(replies))
        })
    }

    fn tell<'a>(&'a self, message: &'a Message, _: &'a Headers) -> Pending<'a, Result<(), Lost>> {
        Box::pin(async move {
            self.note(&String::from_utf8_lossy(message.bytes()));
            if matches!(message.kind(), Kind::Request { .. })
                && let Some(answer) = self.answer(message).await
            {
                drop(self.unasked.send(answer).await);
            }
            Ok(())
        })
    }
}

impl Server for FakeChild {
    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async { self.note("end") })
    }
}

/// A gateway with its door open.
pub(super) struct Gate {
    pub(super) address: SocketAddr,
    pub(super) desk: Arc<FakeDesk>,
    pub(super) engine: Engine,
    stop: Stop,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl Gate {
    pub(super) async fn open(behind: Behind<FakeDesk>) -> Self {
        Self::with(behind, Auth::Loopback).await
    }

    pub(super) async fn with(behind: Behind<FakeDesk>, auth: Auth) -> Self {
        let engine = Engine::open("memory:").await.expect("it opens");
        let mut config = Config::new(Listen::Tcp(([127, 0, 0, 1], 0).into()));
        config.auth = auth;
        let principal_key = PrincipalKey::open(&engine, "mcp").await.expect("it opens");
        let desk = FakeDesk::new();
        let rule = CredentialRule::default();
        let opened = Opened::open(
            Arc::clone(&desk),
            behind,
            engine.clone(),
            config,
            principal_key,
            rule,
        );
        let opened = opened.await.expect("it opens");
        let address = opened.address();
        let address = address.strip_prefix("http://").expect("it is plain");
        let address = address.strip_suffix("/mcp").expect("it is there");
        let gate = Self {
            address: address.parse().expect("it is an address"),
            desk,
            engine,
            stop: opened.stopper(),
        };
        tokio::spawn(opened.run(async {}));
        gate
    }

    pub(super) fn client(&self) -> Client {
        let url = format!("http://{}/mcp", self.address);
        let pool = Pool::new(Url::parse(&url).expect("it is right"));
        Client(pool.expect("it can be made"))
    }
}

/// A client over HTTP.
pub(super) struct Client(Pool);

pub(super) struct Got {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    body: Coming,
}

impl Client {
    pub(super) async fn send(&self, method: Method, with: &[(&str, &str)], body: &str) -> Got {
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .body(Full::new(Bytes::from(body.to_owned())))
            .expect("it can be");
        let headers = request.headers_mut();
        for (name, value) in [
            ("host", "localhost"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ]
        .iter()
        .chain(with)
        {
            let name = axum::http::HeaderName::try_from(*name).expect("it is a name");
            headers.insert(name, value.parse().expect("it is a value"));
        }
        headers.retain_some();
        let answer: Response<Coming> = soon(self.0.send(request)).await.expect("it is answered");
        let (parts, body) = answer.into_parts();
        Got {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }

    pub(super) async fn post(&self, with: &[(&str, &str)], body: &str) -> Got {
        self.send(Method::POST, with, body).await
    }
}

trait RetainSome {
    fn retain_some(&mut self);
}

impl RetainSome for HeaderMap {
    /// Takes out what a test made empty.
    fn retain_some(&mut self) {
        let empty: Vec<_> = self
            .iter()
            .filter(|(_, value)| value.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        for name in empty {
            self.remove(name);
        }
    }
}

impl Got {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("it is plain"))
    }

    /// Reads the whole body.
    pub(super) async fn text(self) -> String {
        let body = soon(self.body.collect()).await.expect("it is whole");
        String::from_utf8(body.to_bytes().to_vec()).expect("it is text")
    }

    /// Reads the body until something was said.
    pub(super) async fn until(&mut self, what: &str) -> String {
        let mut text = String::new();
        while !text.contains(what) {
            assert!(!self.body.is_end_stream(), "{what} was not said: {text}");
            let frame = soon(self.body.frame()).await.expect("there is more");
            let data = frame.expect("it is whole").into_data().expect("it is data");
            text.push_str(std::str::from_utf8(&data).expect("it is text"));
        }
        text
    }
}
