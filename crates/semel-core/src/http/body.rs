//! What of a request's body makes it the same request.

use sha2::{Digest as _, Sha256};

use super::segments::Segments;
use crate::canonical::{self, Limits};
use crate::digest::Digest;
use crate::identity::Pointer;

/// How bodies are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// By what the type says: JSON by its value, forms with files by their parts, others byte for byte.
    #[default]
    ByType,
    /// Byte for byte, whatever it is.
    Bytes,
}

/// The members of a body in JSON that make a difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Only these; empty means all. A body that has none of them counts as a whole.
    pub only: Vec<Pointer>,
    /// Not the values of these.
    pub except: Vec<Pointer>,
}

impl Members {
    /// Returns what is left of canonical JSON.
    fn left(&self, canonical: Vec<u8>) -> Vec<u8> {
        let found = |pointer: &Pointer| {
            let value = pointer.find(&canonical)?;
            let text = pointer.as_str().as_bytes();
            // Each part tells its length: no two lists share the bytes.
            let lengths = [text.len() as u64, value.len() as u64].map(u64::to_be_bytes);
            Some([&lengths[0], text, &lengths[1], value].concat())
        };
        let only: Vec<u8> = self.only.iter().filter_map(found).flatten().collect();
        if !only.is_empty() {
            return only;
        }
        let mut left = canonical;
        for pointer in &self.except {
            let Some(value) = pointer.find(&left) else {
                continue;
            };
            let start = value.as_ptr() as usize - left.as_ptr() as usize;
            let range = start..start + value.len();
            left.splice(range, *b"null");
        }
        left
    }
}

/// The longest body that is compared as a value; a longer one is compared byte for byte.
pub const VALUE_MAX: usize = 1024 * 1024;

/// Hashes a body piece by piece, whatever its length.
#[derive(Debug)]
pub struct BodyHasher {
    whole: Sha256,
    kind: Kind,
    members: Members,
}

#[derive(Debug)]
enum Kind {
    Bytes,
    /// As long as it may be a value, all of it is kept.
    Json(Vec<u8>),
    Parts(Box<Segments>),
}

/// What a body is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyDigest(Digest);

impl BodyHasher {
    /// Begins with a body of a type, as the header `Content-Type` says it.
    #[must_use]
    pub fn new(compare: Compare, members: &Members, content_type: Option<&str>) -> Self {
        let media = content_type.unwrap_or_default();
        let kind = match compare {
            Compare::Bytes => Kind::Bytes,
            Compare::ByType if is_json(media) => Kind::Json(Vec::new()),
            Compare::ByType => boundary(media).map_or(Kind::Bytes, |boundary| {
                Kind::Parts(Box::new(Segments::new(&boundary)))
            }),
        };
        Self {
            whole: Sha256::new(),
            kind,
            members: members.clone(),
        }
    }

    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.whole.update(piece);
        match &mut self.kind {
            Kind::Bytes => {}
            Kind::Json(kept) if kept.len() + piece.len() <= VALUE_MAX => {
                kept.extend_from_slice(piece)
            }
            Kind::Json(_) => self.kind = Kind::Bytes,
            Kind::Parts(segments) => segments.update(piece),
        }
    }

    /// Returns what the body is recognised by, once it is complete.
    #[must_use]
    pub fn finish(self) -> BodyDigest {
        let bytes: [u8; 32] = self.whole.finalize().into();
        let limits = Limits {
            size: VALUE_MAX,
            ..Limits::default()
        };
        // What has no single value is compared as it is written, and never taken for another one.
        let of = match self.kind {
            Kind::Bytes => None,
            Kind::Json(kept) => canonical::canonicalize(&kept, &limits)
                .ok()
                .map(|text| (b"j", Digest::of(&self.members.left(text)))),
            Kind::Parts(segments) => segments.finish().map(|digest| (b"m", digest)),
        };
        let (kind, digest) = of.unwrap_or((b"b", Digest(bytes)));
        BodyDigest(Digest::of_parts(&[kind, &digest.0]))
    }
}

impl BodyDigest {
    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0.0
    }
}

/// Says whether a type is JSON: `application/json`, `text/json`, and all that end in `+json`.
#[must_use]
pub fn is_json(media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

/// Returns what is between the parts of a form with files.
fn boundary(media: &str) -> Option<String> {
    /// RFC 2046.
    const LONGEST: usize = 70;
    let mut pieces = media.split(';');
    let essence = pieces.next()?.trim();
    if !essence.get(..10)?.eq_ignore_ascii_case("multipart/") {
        return None;
    }
    let found = pieces.find_map(|piece| {
        let (name, value) = piece.trim().split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then_some(value)
    })?;
    let found = found
        .strip_prefix('"')
        .and_then(|it| it.strip_suffix('"'))
        .unwrap_or(found);
    let is_one = (1..=LONGEST).contains(&found.len()) && !found.contains(['"', '\\']);
    is_one.then(|| found.to_owned())
}
