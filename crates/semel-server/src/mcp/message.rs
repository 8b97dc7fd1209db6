//! One message of JSON-RPC as it came: only its envelope is looked at, and its bytes stay what they are.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The largest message that is passed on in either direction, in bytes.
pub(crate) const MESSAGE_MAX: usize = 16 * 1024 * 1024;

/// One JSON-RPC message.
#[derive(Clone)]
pub(crate) struct Message {
    bytes: Bytes,
    kind: Kind,
    id: Option<Range<usize>>,
    params: Option<Range<usize>>,
    outcome: Option<Range<usize>>,
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
            Self::NotJson(_) => -32700,
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
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            return Err(Malformed::Batch);
        }
        let envelope: Envelope<'_> = serde_json::from_slice(&bytes)
            .map_err(|error| Malformed::NotJson(error.to_string()))?;
        let range = |raw: Option<&RawValue>| raw.map(|raw| range_in(&bytes, raw));
        if envelope.twice {
            return Err(Malformed::NotRpc("a member is there twice"));
        }
        if !envelope.jsonrpc {
            return Err(Malformed::NotRpc("`jsonrpc` is not \"2.0\""));
        }
        let id = envelope.id.filter(|id| id.get() != "null");
        if id.is_some_and(|id| !is_id(id)) {
            return Err(Malformed::NotRpc("`id` is neither a string nor a number"));
        }
        let (kind, outcome) = match (envelope.method, envelope.result, envelope.error) {
            (Some(method), None, None) if id.is_some() => (
                Kind::Request {
                    method: method.into_owned(),
                },
                None,
            ),
            (Some(method), None, None) => (
                Kind::Notification {
                    method: method.into_owned(),
                },
                None,
            ),
            (None, Some(result), None) if id.is_some() => (Kind::Result, Some(result)),
            // An error may be about a message whose id could not be read.
            (None, None, Some(error)) => (Kind::Error, Some(error)),
            (None, None, None) => {
                return Err(Malformed::NotRpc(
                    "there is no `method`, `result` or `error`",
                ));
            }
            (None, Some(_), None) => return Err(Malformed::NotRpc("a result names no request")),
            (Some(_), _, _) | (None, Some(_), Some(_)) => {
                return Err(Malformed::NotRpc(
                    "it is more than one of request, result and error",
                ));
            }
        };
        Ok(Self {
            id: range(id),
            params: range(envelope.params),
            outcome: range(outcome),
            kind,
            bytes,
        })
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
        self.text(self.id.as_ref())
    }

    /// Returns the parameters as they were written.
    pub(crate) fn params(&self) -> Option<&str> {
        self.text(self.params.as_ref())
    }

    /// Returns the result or the error as it was written.
    pub(crate) fn outcome(&self) -> Option<&str> {
        self.text(self.outcome.as_ref())
    }

    /// Returns the whole as it was written.
    pub(crate) const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the same message with another id in the same place.
    pub(crate) fn with_id(&self, id: &str) -> Result<Self, Malformed> {
        match &self.id {
            Some(at) => self.replaced(at, id),
            None => Ok(self.clone()),
        }
    }

    /// Returns the same message with other parameters.
    pub(crate) fn with_params(&self, params: &str) -> Result<Self, Malformed> {
        match &self.params {
            Some(at) => self.replaced(at, params),
            None => Err(Malformed::NotRpc("there are no parameters")),
        }
    }

    /// Returns the same answer with another result or error.
    pub(crate) fn with_outcome(&self, outcome: &str) -> Result<Self, Malformed> {
        match &self.outcome {
            Some(at) => self.replaced(at, outcome),
            None => Err(Malformed::NotRpc("there is no result")),
        }
    }

    fn replaced(&self, at: &Range<usize>, with: &str) -> Result<Self, Malformed> {
        let (before, after) = (&self.bytes[..at.start], &self.bytes[at.end..]);
        Self::read([before, with.as_bytes(), after].concat())
    }

    fn text(&self, range: Option<&Range<usize>>) -> Option<&str> {
        // JSON that was read is UTF-8, and values begin and end at characters.
        range.and_then(|range| std::str::from_utf8(&self.bytes[range.clone()]).ok())
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

fn is_id(id: &RawValue) -> bool {
    matches!(id.get().as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

/// The members that every message has.
struct Envelope<'a> {
    jsonrpc: bool,
    id: Option<&'a RawValue>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    twice: bool,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Envelope<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut envelope = Envelope {
                    jsonrpc: false,
                    id: None,
                    method: None,
                    params: None,
                    result: None,
                    error: None,
                    twice: false,
                };
                let mut seen_version = false;
                while let Some(Text(name)) = map.next_key()? {
                    let member = match &*name {
                        "jsonrpc" => {
                            envelope.twice |= std::mem::replace(&mut seen_version, true);
                            envelope.jsonrpc = map.next_value::<&RawValue>()?.get() == "\"2.0\"";
                            continue;
                        }
                        "method" => {
                            envelope.twice |= envelope.method.is_some();
                            envelope.method = Some(map.next_value::<Text<'de>>()?.0);
                            continue;
                        }
                        "id" => &mut envelope.id,
                        "params" => &mut envelope.params,
                        "result" => &mut envelope.result,
                        "error" => &mut envelope.error,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    envelope.twice |= member.is_some();
                    *member = Some(map.next_value()?);
                }
                Ok(envelope)
            }

            fn visit_seq<S: serde::de::SeqAccess<'de>>(
                self,
                _: S,
            ) -> Result<Self::Value, S::Error> {
                Err(S::Error::custom("an array is no message"))
            }
        }
        deserializer.deserialize_map(Members)
    }
}
