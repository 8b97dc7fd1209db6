//! Headers of the transport: those that repeat what a message says, and those that are passed on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::locked::locked;
use crate::mcp::edit;
use crate::mcp::message::Message;

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(crate) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// The code of JSON-RPC for headers that do not say what the body says.
pub(crate) const HEADER_MISMATCH: i64 = -32020;

/// How headers begin that repeat an argument of a tool.
const PARAM: &str = "mcp-param-";

/// How a value begins and ends that could not be written as it is.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// The deepest that an argument may lie which a header repeats.
const DEPTH_MAX: usize = 16;

/// The most arguments of one tool that headers repeat: there may be so many headers and no more.
const MIRRORS_MAX: usize = 64;

/// Headers that are about one connection only (RFC 9110), and those that each side writes for itself.
const OWN: [HeaderName; 11] = [
    header::CONNECTION,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
    header::PROXY_AUTHENTICATE,
    header::EXPECT,
    // What is compressed cannot be read on its way.
    header::ACCEPT_ENCODING,
];

/// Returns what is meant for the other end, of either direction.
pub(crate) fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<&str> = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let is_own = |name: &HeaderName| {
        OWN.contains(name)
            || name == "keep-alive"
            || named
                .iter()
                .any(|named| name.as_str().eq_ignore_ascii_case(named))
    };
    let passed = headers.iter().filter(|(name, _)| !is_own(name));
    passed
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns what may go with another message of the same client: all but what repeats the first one.
pub(crate) fn for_another(headers: &HeaderMap) -> HeaderMap {
    let is_about = |name: &HeaderName| {
        [METHOD, NAME].contains(name)
            || name == "idempotency-key"
            || name.as_str().starts_with(PARAM)
    };
    let kept = headers.iter().filter(|(name, _)| !is_about(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What of a message's parameters headers repeat.
#[derive(Deserialize)]
struct Params<'a> {
    name: Option<String>,
    uri: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
}

fn params(message: &Message) -> Option<Params<'_>> {
    serde_json::from_str(message.params()?).ok()
}

/// Returns the version that a request of the newer kind names for itself; the older ones agree on one at their start.
pub(crate) fn own_version(message: &Message) -> Option<String> {
    params(message)?.meta?.version
}

/// Returns what `Mcp-Name` repeats, for the requests that have it.
fn name_of(message: &Message, params: &Params<'_>) -> Option<String> {
    match message.method() {
        Some("tools/call" | "prompts/get") => params.name.clone(),
        Some("resources/read") => params.uri.clone(),
        Some("tasks/get" | "tasks/update" | "tasks/cancel") => {
            edit::text(message.params()?, &["taskId"])
        }
        _ => None,
    }
}

/// The arguments of one tool that headers repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mirrors(Vec<(HeaderName, Vec<String>)>);

impl Mirrors {
    /// Reads them from the schema of a tool's input. What is not annotated as it should be is not repeated.
    fn of(schema: &Value) -> Self {
        let mut found = vec![];
        collect(schema, &mut vec![], &mut found);
        Self(found)
    }

    const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each header with the value that it must have for these arguments.
    fn values(&self, arguments: Option<&RawValue>) -> Vec<(&HeaderName, String)> {
        let arguments = arguments.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        let Some(arguments) = arguments else {
            return vec![];
        };
        let value_of = |path: &[String]| {
            let mut at = &arguments;
            for step in path {
                at = at.get(step)?;
            }
            match at {
                Value::String(text) => Some(text.clone()),
                Value::Bool(yes) => Some(yes.to_string()),
                Value::Number(number) => Some(number.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            }
        };
        let each = self.0.iter();
        each.filter_map(|(name, path)| Some((name, value_of(path)?)))
            .collect()
    }
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<(HeaderName, Vec<String>)>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (property, schema) in properties.into_iter().flatten() {
        if path.len() == DEPTH_MAX || found.len() == MIRRORS_MAX {
            return;
        }
        path.push(property.clone());
        let kind = schema.get("type").and_then(Value::as_str);
        let named = schema.get("x-mcp-header").and_then(Value::as_str);
        if let (Some("string" | "integer" | "boolean"), Some(name)) = (kind, named)
            && let Ok(name) = HeaderName::try_from(format!("{PARAM}{name}"))
            && found.iter().all(|(known, _)| *known != name)
        {
            found.push((name, path.clone()));
        }
        collect(schema, path, found);
        path.pop();
    }
}

/// Reads from a list of tools which arguments headers repeat, by the names of the tools.
fn listed(result: &str) -> BTreeMap<String, Mirrors> {
    #[derive(Deserialize)]
    struct Listed {
        tools: Vec<Value>,
    }
    let listed = serde_json::from_str(result).unwrap_or(Listed { tools: vec![] });
    let tools = listed.tools.into_iter();
    tools
        .filter_map(|tool| {
            let name = tool.get("name")?.as_str()?.to_owned();
            Some((name, Mirrors::of(tool.get("inputSchema")?)))
        })
        .collect()
}

/// The most tools whose arguments are repeated in headers.
const TOOLS_MAX: usize = 10_000;

/// What was learned of the arguments that headers repeat, by the names of the tools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learned(Arc<Mutex<BTreeMap<String, Mirrors>>>);

impl Learned {
    /// Returns the arguments of a tool that headers repeat.
    pub(crate) fn of(&self, tool: &str) -> Mirrors {
        locked(&self.0).get(tool).cloned().unwrap_or_default()
    }

    /// Learns from a list of tools.
    pub(crate) fn learn(&self, result: &str) {
        let mut known = locked(&self.0);
        for (tool, mirrors) in listed(result) {
            if mirrors.is_empty() {
                known.remove(&tool);
            } else if known.len() < TOOLS_MAX || known.contains_key(&tool) {
                known.insert(tool, mirrors);
            }
        }
    }
}

/// Adds the headers that a request of the newer kind must have and does not have yet.
pub(crate) fn repeat(
    message: &Message,
    mirrors: impl FnOnce(&str) -> Mirrors,
    headers: &mut HeaderMap,
) {
    let Some(params) = params(message) else {
        return;
    };
    let Some(version) = params
        .meta
        .as_ref()
        .and_then(|meta| meta.version.as_deref())
    else {
        return;
    };
    let name = name_of(message, &params);
    let is_repeated = headers
        .keys()
        .any(|header| header.as_str().starts_with(PARAM));
    let mut add = |header: &HeaderName, value: Option<HeaderValue>| {
        if let Some(value) = value {
            headers.entry(header).or_insert(value);
        }
    };
    add(&VERSION, HeaderValue::from_str(version).ok());
    let method = message.method().map(HeaderValue::from_str);
    add(&METHOD, method.and_then(Result::ok));
    add(&NAME, name.as_deref().and_then(encoded));
    if message.method() == Some("tools/call")
        && !is_repeated
        && let Some(name) = &name
    {
        let mirrors = mirrors(name);
        for (header, value) in mirrors.values(params.arguments) {
            add(header, encoded(&value));
        }
    }
}

/// Checks that the headers of a request of the newer kind say what its body says.
pub(crate) fn agree(
    message: &Message,
    mirrors: impl FnOnce(&str) -> Mirrors,
    headers: &HeaderMap,
) -> Result<(), String> {
    let Some(params) = params(message) else {
        return Err("the parameters cannot be read".to_owned());
    };
    let version = params.meta.as_ref().and_then(|meta| meta.version.clone());
    same(headers, &VERSION, version.as_deref(), |text| {
        Some(text.to_owned())
    })?;
    same(headers, &METHOD, message.method(), |text| {
        Some(text.to_owned())
    })?;
    let name = name_of(message, &params);
    if name.is_some() {
        same(headers, &NAME, name.as_deref(), decoded)?;
    }
    if message.method() == Some("tools/call")
        && let Some(name) = &name
    {
        let mirrors = mirrors(name);
        let values = mirrors.values(params.arguments);
        for (header, _) in &mirrors.0 {
            let value = values.iter().find(|(name, _)| *name == header);
            let value = value.map(|(_, value)| value.as_str());
            if value.is_some() || headers.contains_key(header) {
                same(headers, header, value, decoded)?;
            }
        }
    }
    Ok(())
}

fn same(
    headers: &HeaderMap,
    name: &HeaderName,
    body: Option<&str>,
    read: impl Fn(&str) -> Option<String>,
) -> Result<(), String> {
    let mut lines = headers.get_all(name).into_iter();
    let Some(line) = lines.next() else {
        return Err(format!("the header {name} is missing"));
    };
    let said = line.to_str().ok().and_then(read);
    let Some(said) = said.filter(|_| lines.next().is_none()) else {
        return Err(format!("the header {name} cannot be read"));
    };
    let is_same = body.is_some_and(|body| body == said || same_number(body, &said));
    if is_same {
        return Ok(());
    }
    Err(format!("the header {name} does not say what the body says"))
}

/// Says whether two texts are the same whole number, however it is written.
fn same_number(left: &str, right: &str) -> bool {
    let whole = |text: &str| {
        let text = text.split_once('.').map_or(Some(text), |(whole, rest)| {
            rest.bytes().all(|digit| digit == b'0').then_some(whole)
        });
        text.and_then(|text| text.parse::<i64>().ok())
    };
    whole(left).is_some_and(|left| whole(right) == Some(left))
}

/// Writes a value as a header has it: as it is where that is possible, else in base64.
fn encoded(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    let is_marked = text.starts_with(ENCODED.0) && text.ends_with(ENCODED.1);
    if is_plain && !is_marked && text.trim() == text {
        return HeaderValue::from_str(text).ok();
    }
    let (begin, end) = ENCODED;
    HeaderValue::from_str(&format!("{begin}{}{end}", BASE64_STANDARD.encode(text))).ok()
}

/// Reads such a value.
fn decoded(text: &str) -> Option<String> {
    let inner = text.strip_prefix(ENCODED.0);
    match inner.and_then(|text| text.strip_suffix(ENCODED.1)) {
        None => Some(text.to_owned()),
        Some(inner) => String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(arguments: &Value) -> Message {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "charge", "arguments": arguments,
            "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
        Message::read(message.to_string()).expect("it is one")
    }

    fn mirrors() -> Mirrors {
        Mirrors::of(&json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "twice": {"type": "string", "x-mcp-header": "region"},
            "amount": {"type": "number", "x-mcp-header": "Amount"},
            "bad": {"type": "string", "x-mcp-header": "two words"},
            "order": {"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
            "many": {"type": "array", "items": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
        }}))
    }

    fn headers_of(arguments: &Value) -> HeaderMap {
        let mut headers = HeaderMap::new();
        repeat(&call(arguments), |_| mirrors(), &mut headers);
        headers
    }

    #[test]
    fn a_request_of_the_newer_kind_is_repeated_in_headers() {
        let headers = headers_of(&json!({"region": "us", "amount": 1.5, "order": {"count": 7}}));
        let shown = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_str().expect("plain"))
        };
        assert_eq!(shown("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(shown("mcp-method"), Some("tools/call"));
        assert_eq!(shown("mcp-name"), Some("charge"));
        assert_eq!(shown("mcp-param-region"), Some("us"));
        assert_eq!(shown("mcp-param-count"), Some("7"));
        assert_eq!(headers.len(), 5, "{headers:?}");
        assert_eq!(headers_of(&json!({"region": null})).len(), 3);
    }

    #[test]
    fn a_task_is_named_in_a_header() {
        let get = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "t-1",
            "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
        let get = Message::read(get.to_string()).expect("it is one");
        let mut headers = HeaderMap::new();
        repeat(&get, |_| Mirrors::default(), &mut headers);
        assert_eq!(headers[NAME], "t-1");
        assert_eq!(agree(&get, |_| Mirrors::default(), &headers), Ok(()));
        headers.insert(NAME, HeaderValue::from_static("t-2"));
        assert!(agree(&get, |_| Mirrors::default(), &headers).is_err());
    }

    #[test]
    fn what_repeats_one_message_does_not_go_with_another() {
        let mut headers = headers_of(&json!({"region": "us"}));
        headers.insert("idempotency-key", HeaderValue::from_static("k"));
        headers.insert("authorization", HeaderValue::from_static("Bearer a"));
        let left = for_another(&headers);
        let names: Vec<_> = left.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["mcp-protocol-version", "authorization"]);
    }

    #[test]
    fn what_a_client_sent_is_left_alone() {
        let mut headers = HeaderMap::new();
        headers.insert(METHOD, HeaderValue::from_static("other"));
        headers.insert("mcp-param-x", HeaderValue::from_static("1"));
        repeat(&call(&json!({"region": "us"})), |_| mirrors(), &mut headers);
        assert_eq!(headers[METHOD], "other");
        assert!(!headers.contains_key("mcp-param-region"));
    }

    #[test]
    fn an_older_request_gets_no_headers() {
        let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;
        let message = Message::read(message).expect("it is one");
        let mut headers = HeaderMap::new();
        repeat(&message, |_| mirrors(), &mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn values_are_encoded_as_the_specification_shows() {
        for (text, header) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("", ""),
        ] {
            assert_eq!(encoded(text).expect("it can be"), header, "{text:?}");
            assert_eq!(decoded(header).as_deref(), Some(text));
        }
        assert_eq!(decoded("=?base64?!?="), None);
    }

    #[test]
    fn headers_must_say_what_the_body_says() {
        let arguments = json!({"region": "us", "order": {"count": 7}});
        let right = headers_of(&arguments);
        let checked = |headers: &HeaderMap| agree(&call(&arguments), |_| mirrors(), headers);
        assert_eq!(checked(&right), Ok(()));
        for (name, value) in [
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-method", "tools/list"),
            ("mcp-name", "Charge"),
            ("mcp-param-region", "eu"),
            ("mcp-param-count", "8"),
            ("mcp-param-region", "=?base64?!?="),
        ] {
            let mut wrong = right.clone();
            wrong.insert(name, HeaderValue::from_static(value));
            assert!(checked(&wrong).is_err(), "{name}");
            wrong.remove(name);
            assert!(checked(&wrong).is_err(), "{name} is missing");
        }
        let mut same = right.clone();
        same.insert("mcp-param-count", HeaderValue::from_static("7.0"));
        same.insert("mcp-name", HeaderValue::from_static("=?base64?Y2hhcmdl?="));
        assert_eq!(checked(&same), Ok(()));
        let mut unasked = headers_of(&json!({}));
        assert_eq!(agree(&call(&json!({})), |_| mirrors(), &unasked), Ok(()));
        unasked.insert("mcp-param-region", HeaderValue::from_static("us"));
        assert!(agree(&call(&json!({})), |_| mirrors(), &unasked).is_err());
    }

    #[test]
    fn what_is_about_one_connection_stays_on_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("host", "a"),
            ("content-length", "7"),
            ("authorization", "Bearer x"),
            ("mcp-session-id", "s"),
            ("x-unknown", "kept"),
        ] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        let passed = passed_on(&headers);
        let mut names: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "mcp-session-id", "x-unknown"]);
    }
}
