//! Headers: what is not known to be harmless is not kept.

use std::borrow::Cow;

use super::{REDACTED, Redactor};

/// The headers that may be kept: they say how a message is written, and not on whose behalf.
pub const USUAL_HEADERS: [&str; 38] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "cache-control",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "host",
    "idempotency-key",
    "idempotent-replayed",
    "if-match",
    "if-none-match",
    "last-event-id",
    "last-modified",
    "prefer",
    "range",
    "retry-after",
    "server",
    "te",
    "traceparent",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "x-request-id",
];

/// Says why a text is no name of a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not the name of a header")]
pub struct HeaderError {
    name: String,
}

impl Redactor {
    /// Keeps these headers beside the [usual ones](USUAL_HEADERS).
    ///
    /// # Errors
    /// Refuses what cannot be the name of a header.
    pub fn allow_headers<'a>(
        mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, HeaderError> {
        for name in names {
            let of_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if name.is_empty() || !name.bytes().all(of_token) {
                let name = name.to_owned();
                return Err(HeaderError { name });
            }
            self.headers.insert(name.to_ascii_lowercase());
        }
        Ok(self)
    }

    /// Returns headers as they may be stored or shown: those that are allowed, without what looks
    /// like a secret in them, and of the others the name.
    pub fn headers<'a>(
        &self,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Vec<(&'a str, Cow<'a, str>)> {
        let kept = headers.into_iter().map(|(name, value)| {
            let value = if !self.on {
                Cow::Borrowed(value)
            } else if self.headers.contains(&name.to_ascii_lowercase()) {
                self.text(value)
            } else {
                Cow::Borrowed(REDACTED)
            };
            (name, value)
        });
        kept.collect()
    }
}
