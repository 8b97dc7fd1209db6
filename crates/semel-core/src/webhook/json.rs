//! The few values of a body that are looked at.

use crate::canonical::{self, Limits};
use crate::identity::Pointer;

/// Brings a body into the form in which values are found; its size was limited when it was read.
pub(super) fn canonical(body: &[u8]) -> Result<Vec<u8>, canonical::Error> {
    let limits = Limits {
        size: body.len(),
        ..Limits::default()
    };
    canonical::canonicalize(body, &limits)
}

/// Finds a member of canonical JSON.
pub(super) fn find<'a>(canonical: &'a [u8], pointer: &str) -> Option<&'a [u8]> {
    Pointer::new(pointer).ok()?.find(canonical)
}

/// Reads a string of canonical JSON.
pub(super) fn text(value: &[u8]) -> Option<String> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut text = String::with_capacity(inner.len());
    let mut rest = core::str::from_utf8(inner).ok()?.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        text.push(match rest.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let code = (0..4).try_fold(0, |code, _| {
                    let digit = rest.next()?.to_digit(16)?;
                    Some(code * 16 + digit)
                });
                // Only control characters are written in this way.
                char::from_u32(code?)?
            }
            itself @ ('"' | '\\') => itself,
            _ => return None,
        });
    }
    Some(text)
}

/// Reads a string or a number of canonical JSON.
pub(super) fn scalar(value: &[u8]) -> Option<String> {
    match value.first()? {
        b'"' => text(value),
        b'-' | b'0'..=b'9' => String::from_utf8(value.to_vec()).ok(),
        _ => None,
    }
}
