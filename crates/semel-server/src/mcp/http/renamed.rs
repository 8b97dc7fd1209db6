//! Requests of several clients to one child: each goes by a name that no other has, and gets its own back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::http::StatusCode;

use super::answering::Own;
use super::children::Server;
use super::headers::Learned;
use super::routes::SUBSCRIPTION;
use crate::mcp::ask::CLIENT_CAPABILITIES;
use crate::mcp::edit;
use crate::mcp::message::{Kind, Malformed, Message};
use crate::mcp::upstream::Headers;

/// Where a request names what its progress goes by.
const TOKEN: [&str; 2] = ["_meta", "progressToken"];

/// Gives names.
#[derive(Debug, Default)]
pub(super) struct Names(AtomicU64);

impl Names {
    fn next(&self) -> String {
        format!("\"semel-c{}\"", self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A request that goes by another name.
pub(super) struct Renamed {
    /// Its own id, as it was written.
    id: String,
    /// What it goes by, for its progress too.
    name: String,
    /// What its progress goes by, as it was written.
    token: Option<String>,
    /// Whether it says of its client what every request must say.
    is_complete: bool,
    /// Learns from the answer.
    learned: Option<Learned>,
    /// Whom to tell when its client leaves before the answer.
    server: Option<Arc<dyn Server>>,
    is_answered: AtomicBool,
}

impl Renamed {
    /// Gives a request another name.
    pub(super) fn new(names: &Names, message: &Message) -> Result<(Message, Self), Malformed> {
        let name = names.next();
        let mut renamed = message.with_id(&name)?;
        let params = message.params().unwrap_or("{}");
        let token = edit::get(params, &TOKEN).map(str::to_owned);
        if token.is_some() {
            let params = edit::set(params, &TOKEN, &name);
            let params = params.map_err(|_| Malformed::NotRpc("`params` cannot be read"))?;
            renamed = renamed.with_params(&params)?;
        }
        let own = Self {
            id: message.id().unwrap_or("null").to_owned(),
            name,
            token,
            is_complete: edit::get(params, &["_meta", CLIENT_CAPABILITIES]).is_some(),
            learned: None,
            server: None,
            is_answered: AtomicBool::new(false),
        };
        Ok((renamed, own))
    }

    /// Learns from the answer, which is a list of tools.
    pub(super) fn learns(&mut self, learned: &Learned) {
        self.learned = Some(learned.clone());
    }

    /// Tells the server when the client leaves before the answer: closing the stream is how it cancels.
    pub(super) fn cancels(&mut self, server: &Arc<dyn Server>) {
        self.server = Some(Arc::clone(server));
    }

    /// Gives a message back its own names; `None` where it has none.
    fn given_back(&self, message: &Message) -> Option<Message> {
        let name = |json: &str, path: &[&str]| edit::get(json, path) == Some(&self.name);
        match message.kind() {
            Kind::Result | Kind::Error => {
                let outcome = message.outcome()?;
                let message = message.with_id(&self.id).ok()?;
                if name(outcome, &SUBSCRIPTION) {
                    let outcome = edit::set(outcome, &SUBSCRIPTION, &self.id).ok()?;
                    return message.with_outcome(&outcome).ok();
                }
                Some(message)
            }
            Kind::Notification { .. } | Kind::Request { .. } => {
                let params = message.params()?;
                let (path, own): (&[&str], &str) = if name(params, &["progressToken"]) {
                    (&["progressToken"], self.token.as_deref()?)
                } else if name(params, &SUBSCRIPTION) {
                    (&SUBSCRIPTION, &self.id)
                } else if name(params, &["requestId"]) {
                    (&["requestId"], &self.id)
                } else {
                    return None;
                };
                let params = edit::set(params, path, own).ok()?;
                message.with_params(&params).ok()
            }
        }
    }
}

impl Own for Renamed {
    fn restored(&self, message: Message) -> Message {
        if matches!(message.kind(), Kind::Result | Kind::Error) {
            self.is_answered.store(true, Ordering::Relaxed);
        }
        if let (Some(learned), Kind::Result) = (&self.learned, message.kind()) {
            learned.learn(message.outcome().unwrap_or_default());
        }
        self.given_back(&message).unwrap_or(message)
    }

    fn status(&self, message: &Message) -> StatusCode {
        let code = match message.kind() {
            Kind::Error => edit::get(message.outcome().unwrap_or_default(), &["code"]),
            Kind::Result | Kind::Request { .. } | Kind::Notification { .. } => None,
        };
        match code {
            Some("-32601") => StatusCode::NOT_FOUND,
            Some("-32020" | "-32021" | "-32022") => StatusCode::BAD_REQUEST,
            Some("-32602") if !self.is_complete => StatusCode::BAD_REQUEST,
            Some(_) | None => StatusCode::OK,
        }
    }
}

impl Drop for Renamed {
    fn drop(&mut self) {
        let Some(server) = self.server.take() else {
            return;
        };
        if self.is_answered.load(Ordering::Relaxed) {
            return;
        }
        let name = &self.name;
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{name}}}}}"#
        );
        if let Ok(message) = Message::read(text) {
            tokio::spawn(async move {
                // A server that is gone has nothing to give up.
                drop(server.tell(&message, &Headers::default()).await);
            });
        }
    }
}
