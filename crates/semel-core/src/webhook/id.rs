//! The sender's own id of what it delivers: the same at every attempt.

use core::fmt;

use super::delivery::Delivery;
use super::json;
use super::proof::Verified;
use super::refusal::Refusal;
use crate::canonical;
use crate::digest::Digest;
use crate::identity::{Pointer, PointerError};

/// Says where the sender's id is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdFrom {
    /// The id that the signature covers, as Standard Webhooks has one.
    Signed,
    /// A header.
    Header(String),
    /// A string or a number in the body.
    Pointer(Pointer),
    /// `source` and `id` of a CloudEvent, in headers or in the body: only both together name an event.
    CloudEvents,
    /// There is none: the body stands for itself, and two events with the same one are taken for one.
    Body,
}

/// Says why a text names no place of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdFromError {
    /// It is none of the known words.
    #[error(
        "an id comes from `signed`, `header:NAME`, a JSON pointer such as `/event/id`, `cloudevents` or `body`"
    )]
    Unknown,
    /// The header's name is none.
    #[error("`header:` is followed by the name of a header")]
    Header,
    /// The pointer is none.
    #[error(transparent)]
    Pointer(#[from] PointerError),
}

impl IdFrom {
    /// Reads where an id is: `signed`, `header:NAME`, a JSON pointer, `cloudevents` or `body`.
    ///
    /// # Errors
    /// Says what is known.
    pub fn parse(text: &str) -> Result<Self, IdFromError> {
        if let Some(name) = text.strip_prefix("header:") {
            let is_token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let is_name = !name.is_empty() && name.bytes().all(is_token);
            let name = is_name.then(|| name.to_ascii_lowercase());
            return name.map(Self::Header).ok_or(IdFromError::Header);
        }
        if text.starts_with('/') {
            return Ok(Self::Pointer(Pointer::new(text)?));
        }
        match text {
            "signed" => Ok(Self::Signed),
            "cloudevents" => Ok(Self::CloudEvents),
            "body" => Ok(Self::Body),
            _ => Err(IdFromError::Unknown),
        }
    }

    /// Finds the id in a delivery that was verified.
    ///
    /// # Errors
    /// Refuses a delivery without one: it could not be told apart from the next.
    pub fn find(&self, delivery: &Delivery<'_>, verified: &Verified) -> Result<SenderId, Refusal> {
        let id = match self {
            Self::Signed => verified.id.clone(),
            Self::Header(name) => delivery.id_header(name)?.map(<[u8]>::to_vec),
            Self::Pointer(pointer) => {
                let body = read(delivery.body)?;
                let value = pointer.find(&body).and_then(json::scalar);
                value.map(String::into_bytes)
            }
            Self::CloudEvents => return cloud_event(delivery),
            Self::Body => Some(format!("sha256:{}", Digest::of(delivery.body)).into_bytes()),
        };
        let id = id.filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| Refusal::NoId {
            place: self.to_string(),
        })?;
        Ok(SenderId(id))
    }
}

impl fmt::Display for IdFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed => f.write_str("signed"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Pointer(pointer) => f.write_str(pointer.as_str()),
            Self::CloudEvents => f.write_str("cloudevents"),
            Self::Body => f.write_str("body"),
        }
    }
}

/// What the sender calls a delivery: any bytes, of any length, but not none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderId(Vec<u8>);

impl SenderId {
    /// Takes an id.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(bytes.to_vec()))
    }

    /// Returns its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Shows it as people would read it.
impl fmt::Display for SenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for SenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

fn read(body: &[u8]) -> Result<Vec<u8>, Refusal> {
    json::canonical(body).map_err(|error| Refusal::NotJson {
        why: error.to_string(),
    })
}

/// Names an event by its source and its id, as a JSON array: neither can reach into the other.
fn cloud_event(delivery: &Delivery<'_>) -> Result<SenderId, Refusal> {
    let media_type = delivery.id_header("content-type")?.unwrap_or_default();
    let media_type = media_type.split(|byte| *byte == b';').next();
    let media_type = media_type.unwrap_or_default().trim_ascii();
    let is = |name: &str| media_type.eq_ignore_ascii_case(name.as_bytes());
    if is("application/cloudevents-batch+json") {
        return Err(Refusal::Batch);
    }
    let [source, id] = if is("application/cloudevents+json") {
        let body = read(delivery.body)?;
        ["/source", "/id"].map(|place| {
            let value = json::find(&body, place).and_then(json::text);
            value.unwrap_or_default().into_bytes()
        })
    } else {
        let header = |name| Ok(plain(delivery.id_header(name)?.unwrap_or_default()));
        [header("ce-source")?, header("ce-id")?]
    };
    for (place, value) in [("source", &source), ("id", &id)] {
        if value.is_empty() {
            let place = format!("the CloudEvent's {place}");
            return Err(Refusal::NoId { place });
        }
    }
    let mut text = b"[".to_vec();
    for (index, part) in [source, id].into_iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        match core::str::from_utf8(&part) {
            Ok(part) => canonical::write_string(&mut text, part),
            // What is no text is told by its digest, which no quotes are around.
            Err(_) => text.extend(Digest::of(&part).hex().as_bytes()),
        }
    }
    text.push(b']');
    Ok(SenderId(text))
}

/// Undoes what the HTTP binding of CloudEvents does to values in headers: an event has one name, however it comes.
fn plain(value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.split_at_checked(2).filter(|_| *first == b'%');
        let code = digits.and_then(|(digits, after)| {
            let digits = core::str::from_utf8(digits).ok()?;
            let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
            Some((byte, after))
        });
        let (byte, after) = code.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    bytes
}
