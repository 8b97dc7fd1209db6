//! An answer over HTTP, as it is stored and as people see it.
//!
//! It is stored as a line with its status and headers, then its body as it came:
//!
//! ```text
//! {"status":201,"headers":[["content-type","application/json"]]}
//! {"id":42}
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use semel_core::Redactor;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// How every stored answer begins, and nothing else that doors store.
const BEGINNING: &[u8] = b"{\"status\":";

/// How the body is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// As it came.
    #[default]
    Plain,
    /// In pieces, with their pace: each after a line with the milliseconds since the one before it and its length.
    Paced,
    /// Not at all: it was too long.
    Left,
}

/// The line before the body. Any bytes of a header are a text of as many characters.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "is_plain")]
    pub(crate) body: Form,
    /// Whether the upstream coded it in a way that nobody asked for.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) forced: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_plain(form: &Form) -> bool {
    *form == Form::Plain
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Line {
    /// Reads what was stored: the line, and where the body begins.
    pub(crate) fn read(stored: &[u8]) -> Option<(Self, usize)> {
        if !stored.starts_with(BEGINNING) {
            return None;
        }
        let end = stored.iter().position(|byte| *byte == b'\n')?;
        Some((serde_json::from_slice(&stored[..end]).ok()?, end + 1))
    }
}

/// Returns the pieces of a body that was recorded with its pace: how long after the one before it each came, and
/// where it stands; `None` where they are not whole.
pub(crate) fn pieces(stored: &[u8]) -> Option<Vec<(Duration, Range<usize>)>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < stored.len() {
        let end = at + stored[at..].iter().position(|byte| *byte == b'\n')?;
        let (after, length) = std::str::from_utf8(&stored[at..end])
            .ok()?
            .split_once(' ')?;
        let start = end + 1;
        at = start.checked_add(length.parse().ok()?)?;
        if at > stored.len() {
            return None;
        }
        pieces.push((Duration::from_millis(after.parse().ok()?), start..at));
    }
    Some(pieces)
}

/// Returns a body as it came; `None` where it is not kept or not whole.
pub(crate) fn body_of(form: Form, stored: &[u8]) -> Option<Cow<'_, [u8]>> {
    match form {
        Form::Plain => Some(Cow::Borrowed(stored)),
        Form::Paced => {
            let pieces = pieces(stored)?;
            let bytes = pieces.into_iter().flat_map(|(_, place)| &stored[place]);
            Some(bytes.copied().collect())
        }
        Form::Left => None,
    }
}

/// Redacts the body of a stored answer, where it is JSON and the rules name something in it.
pub(crate) fn redacted(redactor: &Redactor, stored: &[u8]) -> Option<Vec<u8>> {
    let (line, start) = Line::read(stored)?;
    let body = match line.body {
        Form::Plain => redactor.output(&stored[start..])?,
        Form::Paced | Form::Left => return None,
    };
    Some([&stored[..start], &body].concat())
}

/// An answer over HTTP.
///
/// Serialized, it is an object with `status`, `headers` and `body`: JSON where it is JSON, else text, and
/// `body_base64` where it is not even that. Of one that was not kept, `body` is null and `body_kept` is false.
#[derive(Clone, Debug)]
pub struct AnswerView {
    /// The status.
    pub status: u16,
    /// The headers, in their order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: AnswerBody,
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub enum AnswerBody {
    /// A JSON value, by its type and in fact.
    Json(Box<RawValue>),
    /// Text.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
    /// It was too long to be kept.
    NotKept,
}

impl AnswerView {
    /// Reads an answer as a door stored it; `None` where it is something else.
    #[must_use]
    pub fn read(stored: &[u8]) -> Option<Self> {
        let (line, start) = Line::read(stored)?;
        let body = match line.body {
            Form::Left => AnswerBody::NotKept,
            form @ (Form::Plain | Form::Paced) => {
                let bytes = body_of(form, &stored[start..])?.into_owned();
                AnswerBody::of(bytes, &line.headers)
            }
        };
        Some(Self {
            status: line.status,
            headers: line.headers,
            body,
        })
    }

    /// Returns it as it may be shown: of headers that are not known to be harmless only the name.
    #[must_use]
    pub fn shown(mut self, redactor: &Redactor) -> Self {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
        let shown = redactor.headers(headers).into_iter();
        self.headers = shown
            .map(|(name, value)| (name.to_owned(), value.into_owned()))
            .collect();
        self
    }
}

impl AnswerBody {
    fn of(bytes: Vec<u8>, headers: &[(String, String)]) -> Self {
        let media = headers.iter().find(|(name, _)| name == "content-type");
        let essence = media.and_then(|(_, value)| value.split(';').next());
        let essence = essence.unwrap_or_default().trim().to_ascii_lowercase();
        let is_json = essence == "application/json" || essence.ends_with("+json");
        match String::from_utf8(bytes) {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(json) if is_json => Self::Json(json),
                Ok(_) | Err(_) => Self::Text(text),
            },
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }

    /// Returns the bytes that were kept.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Json(json) => Some(json.get().as_bytes()),
            Self::Text(text) => Some(text.as_bytes()),
            Self::Bytes(bytes) => Some(bytes),
            Self::NotKept => None,
        }
    }
}

impl Serialize for AnswerView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("status", &self.status)?;
        map.serialize_entry("headers", &Headers::of(&self.headers))?;
        match &self.body {
            AnswerBody::Json(json) => map.serialize_entry("body", json)?,
            AnswerBody::Text(text) => map.serialize_entry("body", text)?,
            AnswerBody::Bytes(bytes) => {
                map.serialize_entry("body_base64", &STANDARD.encode(bytes))?;
            }
            AnswerBody::NotKept => {
                map.serialize_entry("body", &())?;
                map.serialize_entry("body_kept", &false)?;
            }
        }
        map.end()
    }
}

/// Headers by their names: one value is a text, more of them are a list.
#[derive(Serialize)]
#[serde(transparent)]
struct Headers<'a>(BTreeMap<&'a str, Values<'a>>);

#[derive(Serialize)]
#[serde(untagged)]
enum Values<'a> {
    One(&'a str),
    Many(Vec<&'a str>),
}

impl<'a> Headers<'a> {
    fn of(headers: &'a [(String, String)]) -> Self {
        let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in headers {
            by_name.entry(name).or_default().push(value);
        }
        let values = by_name.into_iter().map(|(name, values)| match *values {
            [one] => (name, Values::One(one)),
            _ => (name, Values::Many(values)),
        });
        Self(values.collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(stored: &[u8]) -> Value {
        serde_json::to_value(AnswerView::read(stored).expect("it is one")).expect("it is JSON")
    }

    #[test]
    fn an_answer_is_shown_by_its_parts() {
        let kind = |kind: &str| {
            format!("{{\"status\":201,\"headers\":[[\"content-type\",\"{kind}\"]]}}\n")
        };
        let headers = |kind: &str| json!({"content-type": kind});
        for (media, body, expected) in [
            ("application/json", "{\"id\": 42}", json!({"id": 42})),
            ("application/problem+json; v=1", "[1]", json!([1])),
            ("application/json", "{\"id\": 42", json!("{\"id\": 42")),
            ("text/plain", "42", json!("42")),
            (
                "text/event-stream",
                "data: 1\n\ndata: 2\n\n",
                json!("data: 1\n\ndata: 2\n\n"),
            ),
        ] {
            let stored = format!("{}{body}", kind(media));
            let all = json!({"status": 201, "headers": headers(media), "body": expected});
            assert_eq!(seen(stored.as_bytes()), all);
        }
        let odd = [kind("image/png").as_bytes(), b"\xff\x00"].concat();
        let all = json!({"status": 201, "headers": headers("image/png"), "body_base64": "/wA="});
        assert_eq!(seen(&odd), all);
    }

    #[test]
    fn repeated_headers_paces_and_what_is_not_kept_are_shown() {
        let paced = b"{\"status\":200,\"headers\":[[\"link\",\"a\"],[\"link\",\"b\"]],\"body\":\"paced\"}\n0 4\none\n7 3\ntwo";
        let all = json!({"status": 200, "headers": {"link": ["a", "b"]}, "body": "one\ntwo"});
        assert_eq!(seen(paced), all);
        let left = b"{\"status\":200,\"headers\":[],\"body\":\"left\"}\n";
        let all = json!({"status": 200, "headers": {}, "body": null, "body_kept": false});
        assert_eq!(seen(left), all);
    }

    #[test]
    fn what_else_is_stored_is_no_answer() {
        for stored in [
            &b"{\"status\":200,\"headers\":[]}"[..],
            b"{\"status\":200,\"headers\":[],\"more\":1}\n",
            b"{\"exit_code\":0}\n",
            b"{\"headers\":[],\"status\":200}\n",
            b"{\"status\":\"ok\"}\n{}",
            b"",
            b"{\"status\":200,\"headers\":[],\"body\":\"paced\"}\n0 9\nshort",
        ] {
            assert!(
                AnswerView::read(stored).is_none(),
                "{}",
                String::from_utf8_lossy(stored)
            );
        }
    }

    #[test]
    fn headers_that_may_tell_something_are_not_shown() {
        let stored = b"{\"status\":200,\"headers\":[[\"content-type\",\"text/plain\"],[\"x-account\",\"7\"]]}\nhi";
        let view = AnswerView::read(stored)
            .expect("it is one")
            .shown(&Redactor::default());
        let shown: Vec<_> = view
            .headers
            .iter()
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(shown, ["text/plain", "[redacted]"]);
    }
}
