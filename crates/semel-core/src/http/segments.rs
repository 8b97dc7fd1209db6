//! A body of several parts, whatever stands between them.
//!
//! Clients make up another boundary for each try. What is between two of them is hashed by itself, and the
//! hashes are hashed: no part can stand for two, and none of them is kept.

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;

/// Hashes what is between the boundaries, piece by piece.
#[derive(Debug)]
pub(super) struct Segments {
    delimiter: Vec<u8>,
    /// What may be the beginning of a delimiter.
    held: Vec<u8>,
    segment: Sha256,
    all: Sha256,
    found: usize,
    /// Nothing of the segment was seen yet.
    is_at_start: bool,
    /// The boundary was met within a part: where its parts end is anybody's guess.
    is_odd: bool,
}

impl Segments {
    pub(super) fn new(boundary: &str) -> Self {
        Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            // The first boundary may be the first line.
            held: b"\r\n".to_vec(),
            segment: Sha256::new(),
            all: Sha256::new(),
            found: 0,
            is_at_start: false,
            is_odd: false,
        }
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        let mut held = core::mem::take(&mut self.held);
        held.extend_from_slice(piece);
        let length = self.delimiter.len();
        let mut start = 0;
        while let Some(at) = find(&held[start..], &self.delimiter) {
            self.take(&held[start..start + at]);
            self.end_segment();
            self.found += 1;
            self.is_at_start = true;
            start += at + length;
        }
        // The last bytes may begin a delimiter that the next piece ends.
        let sure = held.len().saturating_sub(length - 1).max(start);
        self.take(&held[start..sure]);
        held.drain(..sure);
        self.held = held;
    }

    /// Returns the hash of all segments; `None` for a body that is not made of parts.
    pub(super) fn finish(mut self) -> Option<Digest> {
        let held = core::mem::take(&mut self.held);
        self.take(&held);
        self.end_segment();
        (self.found > 0 && !self.is_odd).then(|| Digest(self.all.finalize().into()))
    }

    fn take(&mut self, bytes: &[u8]) {
        let Some(first) = bytes.first() else { return };
        // The end of the line, or of the body, follows a boundary.
        self.is_odd |= self.is_at_start && !matches!(first, b'\r' | b'-' | b' ' | b'\t');
        self.is_at_start = false;
        self.segment.update(bytes);
    }

    fn end_segment(&mut self) {
        self.all.update(self.segment.finalize_reset());
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first) {
        let at = from + at;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}
