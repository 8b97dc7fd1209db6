//! Business keys: the values of an input that name the business at hand.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::canonical;
use crate::text::Label;

/// Points at a value within a JSON document (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer {
    text: String,
    tokens: Vec<String>,
}

/// Says why a text is no pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// The text neither is empty nor begins with a slash.
    #[error("a JSON pointer is empty or begins with `/`, as in `/order/id`")]
    NoSlash,
    /// A tilde is followed by neither `0` nor `1`.
    #[error("`~` at byte {offset} of a JSON pointer must be `~0` (a tilde) or `~1` (a slash)")]
    Tilde {
        /// The tilde.
        offset: usize,
    },
    /// The text is too long.
    #[error("a JSON pointer has {bytes} bytes; the limit is {limit}", limit = Pointer::MAX_BYTES)]
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
}

impl Pointer {
    /// The longest pointer, in bytes: enough for any that a person writes into a configuration.
    pub const MAX_BYTES: usize = 1_024;

    /// Reads a pointer in its plain form; the `#/…` form of URLs is none.
    ///
    /// # Errors
    /// Refuses what RFC 6901 does not allow.
    pub fn new(text: &str) -> Result<Self, PointerError> {
        if text.len() > Self::MAX_BYTES {
            return Err(PointerError::TooLong { bytes: text.len() });
        }
        let mut parts = text.split('/');
        // The part before the first slash; for an empty text the only one.
        if parts.next() != Some("") {
            return Err(PointerError::NoSlash);
        }
        let misplaced = text.match_indices('~').find(|(at, _)| {
            let next = text.as_bytes().get(at + 1);
            !matches!(next, Some(b'0' | b'1'))
        });
        if let Some((offset, _)) = misplaced {
            return Err(PointerError::Tilde { offset });
        }
        Ok(Self {
            text: text.to_owned(),
            // In this order, so that `~01` becomes `~1` and not a slash.
            tokens: parts
                .map(|part| part.replace("~1", "/").replace("~0", "~"))
                .collect(),
        })
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the names of the members, from the outermost on.
    #[must_use]
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Finds the value within canonical JSON; every part of that is canonical itself.
    pub(crate) fn find<'a>(&self, canonical: &'a [u8]) -> Option<&'a [u8]> {
        self.tokens
            .iter()
            .try_fold(canonical, |value, token| step(value, token))
    }

    /// Finds the innermost value that is there on the way.
    pub(crate) fn nearest<'a>(&self, canonical: &'a [u8]) -> &'a [u8] {
        let mut nearest = canonical;
        for token in &self.tokens {
            match step(nearest, token) {
                Some(value) => nearest = value,
                None => break,
            }
        }
        nearest
    }
}

/// Names the business at hand: what is done, and the values that the pointers found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusinessKey(Arc<str>);

impl BusinessKey {
    /// Takes the key from an input; `None` where it has none.
    ///
    /// That is so where a pointer finds nothing, or finds null or something empty, which names no
    /// business: all such inputs would be one operation. It is so as well without any pointer.
    /// The name is a part of the key, as an order can be charged and refunded; the order in which
    /// the pointers are configured is not.
    ///
    /// # Errors
    /// Refuses input that has no single meaning, repeated members above all (see [`canonical`]).
    pub fn of(
        name: &Label,
        pointers: &[Pointer],
        json: &[u8],
    ) -> Result<Option<Self>, canonical::Error> {
        let input = canonical::canonicalize(json, &canonical::Limits::default())?;
        let mut found = BTreeMap::new();
        for pointer in pointers {
            match pointer.find(&input) {
                Some(b"null" | b"\"\"" | b"[]" | b"{}") | None => return Ok(None),
                Some(value) => found.insert(pointer.as_str(), value),
            };
        }
        if found.is_empty() {
            return Ok(None);
        }
        let text = String::from_utf8(written(name, &found)).map_err(|error| {
            let offset = error.utf8_error().valid_up_to();
            canonical::Error::InvalidUtf8 { offset }
        })?;
        Ok(Some(Self(Arc::from(text))))
    }

    /// Returns the key as JSON: `["charge",{"/order_id":"7"}]`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BusinessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn written(name: &Label, found: &BTreeMap<&str, &[u8]>) -> Vec<u8> {
    let mut out = b"[".to_vec();
    canonical::write_string(&mut out, name.as_str());
    for (index, (pointer, value)) in found.iter().enumerate() {
        out.extend(if index == 0 { &b",{"[..] } else { b"," });
        canonical::write_string(&mut out, pointer);
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.extend(b"}]");
    out
}

/// Goes from a value to its member or item.
fn step<'a>(value: &'a [u8], token: &str) -> Option<&'a [u8]> {
    match value.split_first()? {
        (b'{', members) => {
            // A name is written in one way only, so its bytes can be compared.
            let mut wanted = Vec::new();
            canonical::write_string(&mut wanted, token);
            let mut rest = members;
            loop {
                let (name, after) = split_value(rest)?;
                let (value, after) = split_value(after.strip_prefix(b":")?)?;
                if name == wanted {
                    return Some(value);
                }
                rest = after.strip_prefix(b",")?;
            }
        }
        (b'[', items) => {
            let mut rest = items;
            for _ in 0..index(token)? {
                let (_, after) = split_value(rest)?;
                rest = after.strip_prefix(b",")?;
            }
            split_value(rest).map(|(item, _)| item)
        }
        _ => None,
    }
}

/// Reads an index as RFC 6901 writes it; `-`, the item after the last, is never there.
fn index(token: &str) -> Option<usize> {
    let is_number = token.bytes().all(|b| b.is_ascii_digit());
    let has_leading_zero = token.len() > 1 && token.starts_with('0');
    if is_number && !has_leading_zero {
        token.parse().ok()
    } else {
        None
    }
}

/// Splits canonical text after its first value; `None` where no value begins.
fn split_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            b',' | b':' if depth == 0 => return None,
            b',' | b':' => at += 1,
            // A number, `true`, `false` or `null`.
            _ => {
                let rest = text.get(at..)?;
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']');
                at += rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
        if depth == 0 {
            return text.split_at_checked(at);
        }
    }
}

/// Returns the place after the closing quote of the string that opens at `open`.
fn string_end(text: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}
