//! The cookies of a request, and which of them say nothing about the caller.

use core::fmt;

use super::{CredentialError, is_token};

/// The name of a cookie, or with `*` at its end the beginning of names. Names of cookies are case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookiePattern {
    name: String,
    is_beginning: bool,
}

impl CookiePattern {
    /// Reads a pattern as settings write it.
    ///
    /// # Errors
    /// Refuses what is not the name of a cookie, and a `*` alone: to ignore all cookies, `Cookie` is left out of the
    /// credentials.
    pub fn parse(text: &str) -> Result<Self, CredentialError> {
        let (name, is_beginning) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        if name.is_empty() || name.contains('*') || !name.bytes().all(is_token) {
            return Err(CredentialError::Pattern(text.to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            is_beginning,
        })
    }

    pub(super) fn fits(&self, name: &[u8]) -> bool {
        let own = self.name.as_bytes();
        if self.is_beginning {
            name.starts_with(own)
        } else {
            name == own
        }
    }
}

impl fmt::Display for CookiePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_beginning { "*" } else { "" };
        write!(f, "{}{star}", self.name)
    }
}

/// Returns the cookies of all lines, by name and value. HTTP/2 sends each in a line of its own.
pub(super) fn all<'a>(lines: &'a [&'a [u8]]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let pairs = lines
        .iter()
        .flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.map(<[u8]>::trim_ascii).filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=');
        // A cookie without a name has a value only.
        let (name, value) = match equals {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (&pair[..0], pair),
        };
        (!pair.is_empty()).then(|| (name.trim_ascii_end(), value.trim_ascii_start()))
    })
}
