//! Asking a server for its tools, and calling none of them.

use std::time::Duration;

use semel::Class;
use serde_json::json;
use tokio::sync::mpsc;

use super::edit;
use super::http::children;
use super::listed::Listed;
use super::message::{Kind, Message};
use super::policy::{UpstreamPolicy, Why};
use super::upstream::{Headers, Refusal, Reply, WAITING_MAX};
use super::{Road, Server};

/// How long a server may take for an answer: its packages may have to be fetched first.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// The most pages of tools.
const PAGES_MAX: usize = 100;

/// The revision of the protocol that a handshake asks for.
const LEGACY_VERSION: &str = "2025-11-25";
const MODERN_VERSION: &str = "2026-07-28";

/// How a tool would be treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The tool.
    pub name: String,
    /// The class that it gets.
    pub class: Class,
    /// Why.
    pub why: Why,
    /// The class that it would get if the server were believed.
    pub annotated: Option<Class>,
    /// Arguments that look like idempotency keys of the server's own, as JSON pointers.
    pub native_keys: Vec<String>,
}

/// Lists a server's tools and how each would be treated.
///
/// # Errors
/// Says what the server did instead.
pub async fn inspect(server: &Server, policy: &UpstreamPolicy) -> Result<Vec<Inspected>, String> {
    let (unasked, mut coming) = mpsc::channel(WAITING_MAX);
    let road = Road::to(server).map_err(|error| error.to_string())?;
    let reached = road.reach(unasked);
    // What it says unasked is of no interest, and must not hold it up.
    let listening = tokio::spawn(async move { while coming.recv().await.is_some() {} });
    let found = tools(&*reached).await;
    reached.end().await;
    listening.abort();
    let believed = UpstreamPolicy {
        trust_annotations: true,
        ..UpstreamPolicy::default()
    };
    Ok(found?
        .into_iter()
        .map(|tool| {
            let (class, why) = policy.class_of(&tool.name, Some(&tool.annotations));
            let annotated = believed.class_of(&tool.name, Some(&tool.annotations));
            Inspected {
                class,
                why,
                annotated: (annotated.1 == Why::Annotation).then_some(annotated.0),
                native_keys: tool.native_keys,
                name: tool.name,
            }
        })
        .collect())
}

/// Finds out which protocol the server speaks, and asks for its tools.
async fn tools(server: &dyn children::Server) -> Result<Vec<Listed>, String> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "semel", "version": env!("CARGO_PKG_VERSION")},
    });
    let discovered = ask(server, "server/discover", &json!({"_meta": meta})).await?;
    let is_modern = discovered.is_ok_and(|answer| *answer.kind() == Kind::Result);
    if !is_modern {
        // Whatever it says to that, it is of the older kind.
        let hello = json!({
            "protocolVersion": LEGACY_VERSION, "capabilities": {},
            "clientInfo": {"name": "semel", "version": env!("CARGO_PKG_VERSION")},
        });
        let greeted = answered(ask(server, "initialize", &hello).await?, "initialize")?;
        if *greeted.kind() != Kind::Result {
            return Err(refused("initialize", &greeted));
        }
        let ready = Message::notification("notifications/initialized", "{}")
            .map_err(|error| error.to_string())?;
        let told = server.tell(&ready, &Headers::default()).await;
        told.map_err(|lost| lost.to_string())?;
    }
    let mut found = vec![];
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let mut params = serde_json::Map::new();
        if is_modern {
            params.insert("_meta".to_owned(), meta.clone());
        }
        if let Some(cursor) = cursor {
            params.insert("cursor".to_owned(), cursor.into());
        }
        let listed = answered(
            ask(server, "tools/list", &params.into()).await?,
            "tools/list",
        )?;
        let result = listed.outcome().filter(|_| *listed.kind() == Kind::Result);
        let result = result.ok_or_else(|| refused("tools/list", &listed))?;
        found.extend(Listed::read_all(result));
        cursor = edit::text(result, &["nextCursor"]);
        if cursor.is_none() {
            return Ok(found);
        }
    }
    Err(format!(
        "the server lists its tools on more than {PAGES_MAX} pages"
    ))
}

/// Takes an answer for granted: one of HTTP alone is none.
fn answered(answer: Result<Message, Refusal>, method: &str) -> Result<Message, String> {
    answer.map_err(|refusal| format!("{method} was answered with HTTP {}", refusal.status))
}

/// Asks the server something; it may refuse over HTTP, without a message.
async fn ask(
    server: &dyn children::Server,
    method: &str,
    params: &serde_json::Value,
) -> Result<Result<Message, Refusal>, String> {
    let id = format!(
        "\"semel-{method}-{}\"",
        params.get("cursor").map_or(0, |it| it.to_string().len())
    );
    let request =
        Message::request(&id, method, &params.to_string()).map_err(|error| error.to_string())?;
    let asking = async {
        let headers = Headers::default();
        let replies = server.request(&request, &headers).await;
        let mut replies = replies.map_err(|not_sent| not_sent.to_string())?;
        loop {
            match replies.0.recv().await {
                Some(Reply::Aside(_)) => {}
                Some(Reply::Answer(answer, _)) => return Ok(Ok(answer)),
                Some(Reply::Http(refusal)) => return Ok(Err(refusal)),
                Some(Reply::Lost(lost)) => return Err(lost.0),
                None => return Err("the server was given up".to_owned()),
            }
        }
    };
    let answered = tokio::time::timeout(ANSWER_MAX, asking).await;
    answered.map_err(|_| {
        let seconds = ANSWER_MAX.as_secs();
        format!("the server did not answer {method} within {seconds} s")
    })?
}

fn refused(method: &str, answer: &Message) -> String {
    let said = answer
        .outcome()
        .and_then(|error| edit::text(error, &["message"]));
    format!("{method} was refused: {}", said.unwrap_or_default())
}
