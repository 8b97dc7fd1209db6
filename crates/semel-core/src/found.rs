//! What looking up an effect shows.

use crate::identity::Pointer;

/// What looking showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The effect happened.
    Happened,
    /// It did not.
    DidNot,
    /// Nobody can tell from that.
    Unclear,
}

impl Found {
    /// Reads it from canonical JSON: whether the value that is pointed at is the expected one, or, where none is
    /// expected, neither null, false, zero nor empty.
    ///
    /// Where nothing is there, the effect did not happen only if a list is too short for it or null stands where it would
    /// be. A member that is missing may be misspelt here.
    #[must_use]
    pub fn of(canonical: &[u8], at: &Pointer, expected: Option<&[u8]>) -> Self {
        let happened = match (expected, at.find(canonical)) {
            (Some(expected), Some(found)) => expected == found,
            (None, Some(found)) => {
                !matches!(found, b"null" | b"false" | b"0" | b"\"\"" | b"[]" | b"{}")
            }
            (_, None) => match at.nearest(canonical) {
                [b'[', ..] | b"null" => false,
                _ => return Self::Unclear,
            },
        };
        if happened {
            Self::Happened
        } else {
            Self::DidNot
        }
    }
}
