//! Which request it is: what an operation is named, and what its fingerprint is of.

use super::body::BodyDigest;
use super::profile::Extent;
use crate::digest::Digest;
use crate::fingerprint::{Fingerprint, Input};
use crate::text::Label;

/// A request, as far as it makes a difference.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method, as it was written: methods are case-sensitive.
    pub method: &'a str,
    /// Where it goes, where that makes a difference: scheme and host.
    pub origin: Option<&'a str>,
    /// The path, as it was written.
    pub path: &'a str,
    /// The query, as it was written.
    pub query: Option<&'a str>,
    /// The headers that make a difference, by their names in small letters, in the order of the settings.
    pub headers: &'a [(&'a str, &'a [u8])],
}

impl Request<'_> {
    /// Returns the name of the operation: method and path, as far as a name can hold them.
    #[must_use]
    pub fn name(&self) -> Label {
        let mut text: String = format!("{} {}", self.method, self.path)
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        text.truncate(text.floor_char_boundary(Label::MAX_BYTES));
        let text = text.trim();
        Label::new(text).unwrap_or_else(|_| Label::new("request").expect("it is a word"))
    }

    /// Returns the bytes that the fingerprint is of. No two requests share them: each part tells its length.
    #[must_use]
    pub fn input(&self, extent: Extent, body: &BodyDigest) -> Vec<u8> {
        let mut input = Vec::with_capacity(256);
        let mut put = |part: Option<&[u8]>| match part {
            Some(bytes) => {
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                input.push(1);
                input.extend_from_slice(&length.to_be_bytes());
                input.extend_from_slice(bytes);
            }
            None => input.push(0),
        };
        put(Some(self.method.as_bytes()));
        put(self.origin.map(str::as_bytes));
        put(Some(self.path.as_bytes()));
        // Where the path is a part of the key, the body alone says which request it is.
        let query = match extent {
            Extent::Upstream => self.query,
            Extent::Path => None,
        };
        put(query.map(str::as_bytes));
        for (name, value) in self.headers {
            put(Some(name.as_bytes()));
            put(Some(value));
        }
        put(Some(body.as_bytes()));
        Digest::of(&input).0.to_vec()
    }

    /// Returns the fingerprint.
    #[must_use]
    pub fn fingerprint(&self, extent: Extent, body: &BodyDigest) -> Fingerprint {
        let input = self.input(extent, body);
        Fingerprint::of(&self.name(), Input::Bytes(&input)).expect("bytes are always read")
    }
}
