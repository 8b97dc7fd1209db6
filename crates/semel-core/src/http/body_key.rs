//! Keys in bodies: some APIs take the key of a request as a member of its JSON.

use core::fmt;

use super::body::VALUE_MAX;
use crate::canonical::{Limits, canonicalize};
use crate::identity::Pointer;
use crate::text::Key;

/// Says why a body holds no key that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyKeyError {
    /// It is JSON by its type, and cannot be read as such.
    Unreadable(String),
    /// Two members have a key.
    Twice,
    /// The member is something else than a text of 1 to 255 bytes without control characters.
    NoText(Pointer),
}

impl fmt::Display for BodyKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => {
                write!(
                    f,
                    "the key is a member of the body, which cannot be read: {why}"
                )
            }
            Self::Twice => f.write_str("two members of the body have a key: which one is meant?"),
            Self::NoText(pointer) => {
                let (name, limit) = (pointer.as_str(), Key::MAX_BYTES);
                write!(
                    f,
                    "`{name}` of the body is not a text of 1 to {limit} bytes"
                )
            }
        }
    }
}

impl core::error::Error for BodyKeyError {}

/// Reads the key from the body of a request: the only one of these members that is there. A null is none.
///
/// # Errors
/// Says why the member that is there holds no key, or why JSON cannot be read. A body of another type has no key.
pub fn read_body_key(
    body: &[u8],
    is_json: bool,
    members: &[Pointer],
) -> Result<Option<String>, BodyKeyError> {
    let limits = Limits {
        size: VALUE_MAX,
        ..Limits::default()
    };
    let canonical = match canonicalize(body, &limits) {
        Ok(canonical) => canonical,
        Err(_) if body.is_empty() || !is_json => return Ok(None),
        Err(error) => return Err(BodyKeyError::Unreadable(error.to_string())),
    };
    let mut found = None;
    for pointer in members {
        let value = match pointer.find(&canonical) {
            None | Some(b"null") => continue,
            Some(value) => value,
        };
        if found.is_some() {
            return Err(BodyKeyError::Twice);
        }
        let text = text(value).ok_or_else(|| BodyKeyError::NoText(pointer.clone()))?;
        found = Some(text);
    }
    Ok(found)
}

/// Returns a canonical text without its quotes and escapes; control characters are in no key.
fn text(canonical: &[u8]) -> Option<String> {
    let [b'"', inner @ .., b'"'] = canonical else {
        return None;
    };
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next()? {
                escaped @ (b'"' | b'\\') => text.push(*escaped),
                _ => return None,
            },
            0x7f => return None,
            plain => text.push(*plain),
        }
    }
    let text = String::from_utf8(text).ok()?;
    (1..=Key::MAX_BYTES).contains(&text.len()).then_some(text)
}
