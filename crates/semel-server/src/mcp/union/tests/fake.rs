//! Servers that answer what they are told to, and one client before all of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::HeaderValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::locked::locked;
use crate::mcp::catalogue::{Catalogue, Served};
use crate::mcp::http::children::Server;
use crate::mcp::message::Message;
use crate::mcp::policy::UpstreamPolicy;
use crate::mcp::union::Union;
use crate::mcp::upstream::{Headers, Lost, NotSent, Pending, Replies, Reply, Upstream};

/// Nothing here takes longer.
const SOON: Duration = Duration::from_secs(20);

/// What a server does with a request.
pub(super) enum Does {
    Answers(Value),
    Refuses(i64),
    Dies,
    /// It does not answer until the test is over.
    Waits,
}

/// Says what a server does with a request; before that it may say something unasked.
pub(super) type Script = fn(&Value, &Fake) -> Does;

/// A server.
pub(super) struct Fake {
    number: usize,
    script: Script,
    unasked: mpsc::Sender<Message>,
    received: Arc<Mutex<Vec<Value>>>,
    waiting: Mutex<Vec<mpsc::Sender<Reply>>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    pub(super) const fn number(&self) -> usize {
        self.number
    }

    /// Says something unasked.
    pub(super) fn say(&self, message: &Value) {
        let message = Message::read(message.to_string()).expect("a message");
        self.unasked.try_send(message).expect("there is room");
    }

    /// Says whether somebody waits for an answer.
    pub(super) fn is_waited_for(&self) -> bool {
        locked(&self.waiting).iter().any(|it| !it.is_closed())
    }

    fn receive(&self, message: &Message) -> Value {
        let message: Value = serde_json::from_slice(message.bytes()).expect("JSON");
        locked(&self.received).push(message.clone());
        message
    }
}

impl Upstream for Fake {
    fn request<'a>(
        &'a self,
        request: &'a Message,
        _: &'a Headers,
    ) -> Pending<'a, Result<Replies, NotSent>> {
        Box::pin(async move {
            let (sender, replies) = mpsc::channel(1);
            let id = request.id().expect("a request has one").to_owned();
            let reply = match (self.script)(&self.receive(request), self) {
                Does::Answers(result) => {
                    let answer = Message::result(&id, &result.to_string());
                    let mut headers = Headers::default();
                    let session = HeaderValue::from_static("of this server");
                    headers.0.insert("mcp-session-id", session);
                    Reply::Answer(answer.expect("a message"), headers)
                }
                Does::Refuses(code) => {
                    let error = json!({"code": code, "message": "it is refused"});
                    let answer = Message::error(Some(&id), &error.to_string());
                    Reply::Answer(answer.expect("a message"), Headers::default())
                }
                Does::Dies => Reply::Lost(Lost("the server ended".to_owned())),
                Does::Waits => {
                    locked(&self.waiting).push(sender);
                    return Ok(Replies(replies));
                }
            };
            sender.try_send(reply).expect("there is room");
            Ok(Replies(replies))
        })
    }

    fn tell<'a>(&'a self, message: &'a Message, _: &'a Headers) -> Pending<'a, Result<(), Lost>> {
        Box::pin(async move {
            self.receive(message);
            Ok(())
        })
    }
}

impl Server for Fake {
    fn end(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A client before several servers.
pub(super) struct World {
    pub(super) union: Union,
    heard: mpsc::Receiver<Message>,
    servers: Vec<(String, Arc<Fake>)>,
}

impl World {
    pub(super) fn new(scripts: &[(&str, Script)]) -> Self {
        let served = scripts.iter();
        let served = served
            .map(|(name, _)| Served::new((*name).to_owned(), UpstreamPolicy::default()))
            .collect();
        let catalogue = Arc::new(Catalogue::new(served, true));
        // The client is slow to read, so that what can overtake does.
        let (unasked, heard) = mpsc::channel(1);
        let made = Mutex::new(vec![]);
        let reach = |at: usize, unasked| -> Arc<dyn Server> {
            let fake = Arc::new(Fake {
                number: at,
                script: scripts[at].1,
                unasked,
                received: Arc::default(),
                waiting: Mutex::default(),
            });
            locked(&made).push((scripts[at].0.to_owned(), Arc::clone(&fake)));
            fake
        };
        let union = Union::new(catalogue, reach, unasked);
        let servers = made.into_inner().expect("nobody panics");
        Self {
            union,
            heard,
            servers,
        }
    }

    pub(super) fn server(&self, name: &str) -> &Fake {
        let mut servers = self.servers.iter();
        let found = servers.find(|(known, _)| known == name);
        &found.expect("there is one").1
    }

    /// Returns what a server received of a method.
    pub(super) fn received(&self, server: &str, method: &str) -> Vec<Value> {
        let received = locked(&self.server(server).received);
        let of_method = received
            .iter()
            .filter(|message| message["method"] == method);
        of_method.cloned().collect()
    }

    /// Returns the answers that a server received.
    pub(super) fn answers(&self, server: &str) -> Vec<Value> {
        let received = locked(&self.server(server).received);
        let answers = received
            .iter()
            .filter(|message| message["method"].is_null());
        answers.cloned().collect()
    }

    pub(super) async fn tell(&self, message: &Value) {
        let message = Message::read(message.to_string()).expect("a message");
        let told = self.union.tell(&message, &Headers::default()).await;
        told.expect("somebody hears it");
    }

    /// Sends a request.
    pub(super) async fn send(&self, id: u64, method: &str, params: &Value) {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.tell(&request).await;
    }

    /// Returns the next message that the client hears.
    pub(super) async fn next(&mut self) -> Value {
        let message = timeout(SOON, self.heard.recv()).await;
        let message = message.expect("something comes").expect("somebody speaks");
        serde_json::from_slice(message.bytes()).expect("JSON")
    }

    /// Sends a request, and returns what comes next.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(7, method, &params).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], 7, "{answer}");
        answer
    }
}

/// A server that has these tools and nothing else.
pub(super) fn tools(request: &Value, names: &[&str]) -> Does {
    match request["method"].as_str() {
        Some("tools/list") => {
            let tools = names.iter().map(|name| json!({"name": name}));
            Does::Answers(json!({"tools": tools.collect::<Vec<_>>()}))
        }
        Some("tools/call") => Does::Answers(json!({"called": request["params"]["name"]})),
        Some("server/discover") => Does::Answers(json!({"supportedVersions": ["2026-07-28"]})),
        _ => Does::Refuses(-32601),
    }
}

/// Waits until something is so.
pub(super) async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, waiting).await.expect("it is so in the end");
}
