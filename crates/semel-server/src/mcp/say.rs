//! What the gateway says where no operation is spoken of: the server is gone, or the gateway's own tools answer.

use serde_json::json;

use super::ask::Era;
use super::edit;
use super::message::{Kind, Message, quoted};
use super::upstream::Refusal;

/// The server does not answer. Codes of our own lie outside of JSON-RPC's range.
const SERVER_GONE: i64 = 1502;

/// Something is wrong on this side.
const INTERNAL: i64 = -32603;

/// The request names nothing that there is.
const INVALID_PARAMS: i64 = -32602;

/// There is no such method.
const NO_METHOD: i64 = -32601;

/// The most that is told of what a server said over HTTP, in bytes.
const SAID_MAX: usize = 1_000;

/// Says that there is no server to answer.
pub(crate) fn server_gone(id: &str, why: &str) -> Message {
    error(id, SERVER_GONE, &format!("semel: {why}"))
}

/// Says that the gateway failed.
pub(crate) fn internal(id: &str) -> Message {
    error(
        id,
        INTERNAL,
        "semel: the gateway failed; what it had begun is in doubt",
    )
}

/// Says that a request cannot be taken.
pub(crate) fn twice(id: &str) -> Message {
    error(
        id,
        -32600,
        "semel: another request with this id is under way",
    )
}

/// Says that several servers have something of this name, and by which names to call them.
pub(crate) fn ambiguous(id: &str, name: &str, names: &[String]) -> Message {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    let text = format!(
        "semel: several servers have a `{name}`, and nothing was done; use {}",
        names.join(" or ")
    );
    error(id, INVALID_PARAMS, &text)
}

/// Says that no server has anything of this name; `what` it is.
pub(crate) fn unknown(id: &str, what: &str, name: &str, servers: &[&str]) -> Message {
    let servers = servers.join(", ");
    let why =
        format!("none of the servers behind this endpoint ({servers}) has the {what} `{name}`");
    wrong_params(id, &why)
}

/// Says that no server is known to have a tool; `silent` are those that did not say which tools they have.
pub(crate) fn unknown_tool(id: &str, name: &str, servers: &[&str], silent: &[String]) -> Message {
    if silent.is_empty() {
        return unknown(id, "tool", name, servers);
    }
    let (servers, silent) = (servers.join(", "), silent.join(", "));
    let why = format!(
        "none of the servers behind this endpoint ({servers}) is known to have the tool `{name}`, and these cannot be \
         asked now: {silent}; nothing was done"
    );
    wrong_params(id, &why)
}

/// Says that a request cannot be led to one of several servers: nobody knows which it is for.
pub(crate) fn leads_nowhere(id: &str, method: &str, servers: &[&str]) -> Message {
    let text = format!(
        "semel: several servers are behind this endpoint ({}), and nobody knows which of them `{method}` is for; \
         a client that needs it is connected to that server alone",
        servers.join(", ")
    );
    error(id, NO_METHOD, &text)
}

/// Says that the parameters of a request are not what it needs.
pub(crate) fn wrong_params(id: &str, why: &str) -> Message {
    error(id, INVALID_PARAMS, &format!("semel: {why}"))
}

/// Says that a request asks for what there is only at single servers.
pub(crate) fn no_method(id: &str, why: &str) -> Message {
    error(id, NO_METHOD, &format!("semel: {why}"))
}

/// Says what a server answered over HTTP: in its own words, where they are an error of JSON-RPC.
pub(crate) fn http_refusal(id: &str, refusal: &Refusal) -> Message {
    let own = Message::read(refusal.body.clone()).ok();
    let own = own.filter(|own| *own.kind() == Kind::Error);
    let own = own.as_ref().and_then(Message::outcome);
    if let Some(Ok(own)) = own.map(|error| Message::error(Some(id), error)) {
        return own;
    }
    let said = String::from_utf8_lossy(&refusal.body);
    let said = &said[..said.floor_char_boundary(SAID_MAX)];
    let text = format!("semel: the server answered HTTP {}: {said}", refusal.status);
    error(id, SERVER_GONE, text.trim_end_matches([':', ' ']))
}

/// Makes the outcome of a call that was looked up: its own answer is lost, this is what is known.
pub(crate) fn looked_up(tool: &str, said: &str, has_schema: bool) -> Vec<u8> {
    let text = format!(
        "semel: an earlier call of `{tool}` took effect, as was looked up; its own answer was lost. What was \
         found follows."
    );
    let mut content = vec![json!({"type": "text", "text": text}).to_string()];
    let found = edit::get(said, &["content"]).and_then(edit::items);
    content.extend(found.unwrap_or_default().into_iter().map(str::to_owned));
    // Without its structured content a success would be held to the tool's schema.
    let content = content.join(",");
    format!(r#"{{"result":{{"content":[{content}],"isError":{has_schema}}}}}"#).into_bytes()
}

/// Answers a call of one of the gateway's own tools.
pub(crate) fn own_tool(id: &str, era: Era, said: Result<String, String>) -> Message {
    let (text, failed) = match said {
        Ok(text) => (text, false),
        Err(text) => (format!("semel: {text}"), true),
    };
    let kind = match era {
        Era::Modern => "\"resultType\":\"complete\",",
        Era::Legacy => "",
    };
    let text = quoted(&text);
    let result =
        format!(r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":{failed}}}"#);
    Message::result(id, &result).unwrap_or_else(|_| internal(id))
}

/// # Panics
/// Never: an id that was read and a text of ours make a message.
fn error(id: &str, code: i64, text: &str) -> Message {
    let error = json!({"code": code, "message": text}).to_string();
    let id = (id != "null").then_some(id);
    Message::error(id, &error).expect("an id that was read and our own text")
}
