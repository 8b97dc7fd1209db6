//! One message of JSON-RPC as it came: only its envelope is looked at, and its bytes stay what they are.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The largest message that is passed on in either direction, in bytes.
pub(crate) const MESSAGE_MAX: usize = 16 * 1024 * 1024;

/// One JSON-RPC message.
#[derive(Clone)]
pub(crate) struct Message {
    bytes: Bytes,
    kind: Kind,
    id: Option<Span>,
    params: Option<Span>,
    outcome: Option<Span>,
}

/// Where in a message a value lies. Messages are moved about a lot, so they are kept small.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

// Every place in a message can be named.
const _: () = assert!(MESSAGE_MAX <= u32::MAX as usize);

impl Span {
    fn of(range: Range<usize>) -> Self {
        let place = |at: usize| u32::try_from(at).expect("no message is that long");
        Self {
            start: place(range.start),
            end: place(range.end),
        }
    }

    const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Wants an answer.
    Request {
        /// What is asked for.
        method: String,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: String,
    },
    /// Answers a request with a result.
    Result,
    /// Answers a request with an error.
    Error,
}

/// Says why something is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// It is larger than [`MESSAGE_MAX`].
    #[error("a message may have {MESSAGE_MAX} bytes; this one has more")]
    TooLarge,
    /// It is not UTF-8.
    #[error("the message is not UTF-8: byte {offset} belongs to no character")]
    NotUtf8 {
        /// The first byte that is not part of a whole character.
        offset: usize,
    },
    /// It is not JSON.
    #[error("the message is not JSON: {0}")]
    NotJson(String),
    /// It is an array.
    #[error("a batch of messages is not taken: send each by itself")]
    Batch,
    /// It is JSON and no message.
    #[error("the message is not JSON-RPC 2.0: {0}")]
    NotRpc(&'static str),
}

impl Malformed {
    /// Returns the code of JSON-RPC for it.
    pub(crate) const fn code(&self) -> i64 {
        match self {
            Self::NotUtf8 { .. } | Self::NotJson(_) => -32700,
            Self::TooLarge | Self::Batch | Self::NotRpc(_) => -32600,
        }
    }
}

impl Message {
    /// Reads the envelope of a message; the rest is not looked at beyond being JSON.
    ///
    /// Members that are there twice in the envelope are refused: others might read the other one.
    pub(crate) fn read(bytes: impl Into<Bytes>) -> Result<Self, Malformed> {
        let bytes: Bytes = bytes.into();
        if bytes.len() > MESSAGE_MAX {
            return Err(Malformed::TooLarge);
        }
        // Members that are passed over are not checked by the reader of JSON.
        let text = std::str::from_utf8(&bytes).map_err(|error| Malformed::NotUtf8 {
            offset: error.valid_up_to(),
        })?;
        let envelope = Envelope::read(text)?;
        if envelope.twice {
            return Err(Malformed::NotRpc("a member is there twice"));
        }
        if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
            return Err(Malformed::NotRpc("`jsonrpc` is not \"2.0\""));
        }
        let (kind, outcome) = envelope.kind()?;
        let range = |raw: Option<&RawValue>| raw.map(|raw| Span::of(range_in(&bytes, raw)));
        let id = envelope.id.filter(|id| id.get() != "null");
        Ok(Self {
            id: range(id),
            params: range(envelope.params),
            outcome: range(outcome),
            kind,
            bytes,
        })
    }

    /// Writes a request of the gateway's own; `id` and `params` are JSON.
    pub(crate) fn request(id: &str, method: &str, params: &str) -> Result<Self, Malformed> {
        let method = quoted(method);
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#);
        Self::read(text)
    }

    /// Writes a notification of the gateway's own; `params` is JSON.
    pub(crate) fn notification(method: &str, params: &str) -> Result<Self, Malformed> {
        let method = quoted(method);
        Self::read(format!(
            r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#
        ))
    }

    /// Writes the answer to a request; `id` and `result` are JSON.
    pub(crate) fn result(id: &str, result: &str) -> Result<Self, Malformed> {
        Self::read(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ))
    }

    /// Writes the error to a request, or to something whose id could not be read; `error` is JSON.
    pub(crate) fn error(id: Option<&str>, error: &str) -> Result<Self, Malformed> {
        let id = id.unwrap_or("null");
        Self::read(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
    }

    /// Finds the id in something that is no message, so that whoever waits for an answer to it gets one.
    pub(crate) fn id_in(bytes: &[u8]) -> Option<String> {
        let envelope = Envelope::read(std::str::from_utf8(bytes).ok()?).ok()?;
        let id = envelope.id.filter(|id| is_id(id) && !envelope.id_twice)?;
        Some(id.get().to_owned())
    }

    /// Returns what it is.
    pub(crate) const fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the method of a request or a notification.
    pub(crate) fn method(&self) -> Option<&str> {
        match &self.kind {
            Kind::Request { method } | Kind::Notification { method } => Some(method),
            Kind::Result | Kind::Error => None,
        }
    }

    /// Returns the id as it was written.
    pub(crate) fn id(&self) -> Option<&str> {
        self.text(self.id)
    }

    /// Returns the parameters as they were written.
    pub(crate) fn params(&self) -> Option<&str> {
        self.text(self.params)
    }

    /// Returns the result or the error as it was written.
    pub(crate) fn outcome(&self) -> Option<&str> {
        self.text(self.outcome)
    }

    /// Returns the whole as it was written.
    pub(crate) const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the whole on one line, as it is sent where messages end with their line.
    ///
    /// A line break within JSON is white space between two of its words, as strings have theirs
    /// escaped, so that a space says the same. Most messages have none and are not copied.
    pub(crate) fn line(&self) -> Bytes {
        let spaced = |byte: &u8| match byte {
            b'\n' | b'\r' => b' ',
            other => *other,
        };
        if self.bytes.iter().all(|byte| spaced(byte) == *byte) {
            return self.bytes.clone();
        }
        self.bytes.iter().map(spaced).collect()
    }

    /// Returns the same message with another id in the same place.
    pub(crate) fn with_id(&self, id: &str) -> Result<Self, Malformed> {
        match self.id {
            Some(at) => self.replaced(at, id),
            None => Ok(self.clone()),
        }
    }

    /// Returns the same message with other parameters.
    pub(crate) fn with_params(&self, params: &str) -> Result<Self, Malformed> {
        match self.params {
            Some(at) => self.replaced(at, params),
            None => Err(Malformed::NotRpc("there are no parameters")),
        }
    }

    /// Returns the same answer with another result or error.
    pub(crate) fn with_outcome(&self, outcome: &str) -> Result<Self, Malformed> {
        match self.outcome {
            Some(at) => self.replaced(at, outcome),
            None => Err(Malformed::NotRpc("there is no result")),
        }
    }

    fn replaced(&self, at: Span, with: &str) -> Result<Self, Malformed> {
        let at = at.range();
        let (before, after) = (&self.bytes[..at.start], &self.bytes[at.end..]);
        Self::read([before, with.as_bytes(), after].concat())
    }

    fn text(&self, span: Option<Span>) -> Option<&str> {
        // JSON that was read is UTF-8, and values begin and end at characters.
        span.and_then(|span| std::str::from_utf8(&self.bytes[span.range()]).ok())
    }
}

impl fmt::Debug for Message {
    /// Shows what it is and not what it says, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("kind", &self.kind)
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// Says where in a text a value lies that was read from it.
pub(crate) fn range_in(text: &[u8], value: &RawValue) -> Range<usize> {
    let value = value.get();
    let start = value.as_ptr() as usize - text.as_ptr() as usize;
    start..start + value.len()
}

/// Writes a text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    semel::core::canonical::write_string(&mut out, text);
    // It was a text before it got its quotes.
    String::from_utf8(out).unwrap_or_default()
}

fn is_id(id: &RawValue) -> bool {
    matches!(id.get().as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

/// The members that every message has, as they were written.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    twice: bool,
    id_twice: bool,
}

impl<'a> Envelope<'a> {
    fn read(text: &'a str) -> Result<Self, Malformed> {
        if text.trim_ascii_start().starts_with('[') {
            return Err(Malformed::Batch);
        }
        serde_json::from_str(text).map_err(|error| {
            if error.is_data() {
                Malformed::NotRpc("it is not an object")
            } else {
                Malformed::NotJson(error.to_string())
            }
        })
    }

    /// Says what the message is, and where it is an answer, what it answers.
    fn kind(&self) -> Result<(Kind, Option<&'a RawValue>), Malformed> {
        // An error may be about a message whose id could not be read.
        let is_null = self.id.is_some_and(|id| id.get() == "null");
        if self.id.is_some_and(|id| !is_id(id)) && !(is_null && self.error.is_some()) {
            return Err(Malformed::NotRpc("`id` is neither a string nor a number"));
        }
        match (self.method, self.result, self.error) {
            (Some(method), None, None) => {
                let method: Option<String> = serde_json::from_str(method.get()).ok();
                let method = method.ok_or(Malformed::NotRpc("`method` is not a string"))?;
                Ok(match self.id {
                    Some(_) => (Kind::Request { method }, None),
                    None => (Kind::Notification { method }, None),
                })
            }
            (None, Some(_), None) if self.id.is_none() => {
                Err(Malformed::NotRpc("a result names no request"))
            }
            (None, Some(result), None) => Ok((Kind::Result, Some(result))),
            (None, None, Some(error)) => Ok((Kind::Error, Some(error))),
            (None, None, None) => Err(Malformed::NotRpc(
                "there is no `method`, `result` or `error`",
            )),
            (Some(_), _, _) | (None, Some(_), Some(_)) => Err(Malformed::NotRpc(
                "it is more than one of request, result and error",
            )),
        }
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Envelope<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut envelope = Envelope::default();
                while let Some(Name(name)) = map.next_key()? {
                    let member = match &*name {
                        "jsonrpc" => &mut envelope.jsonrpc,
                        "id" => &mut envelope.id,
                        "method" => &mut envelope.method,
                        "params" => &mut envelope.params,
                        "result" => &mut envelope.result,
                        "error" => &mut envelope.error,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    let twice = member.is_some();
                    *member = Some(map.next_value()?);
                    envelope.twice |= twice;
                    envelope.id_twice |= twice && name == "id";
                }
                Ok(envelope)
            }
        }
        deserializer.deserialize_map(Members)
    }
}
