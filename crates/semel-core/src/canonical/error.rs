//! Why a text has no canonical form.

use super::MAX_EXPONENT;

/// Says why a text was refused, and at which byte.
///
/// No variant carries a piece of the text: payloads may hold secrets, and errors end up in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input is longer than [`Limits::size`](super::Limits::size).
    #[error("input too large at byte {limit}: it has {size} bytes where {limit} are allowed")]
    TooLarge {
        /// The length of the input.
        size: usize,
        /// The length allowed.
        limit: usize,
    },
    /// The input is empty or holds nothing but whitespace.
    #[error("no JSON value at byte {offset}: the input is empty or only whitespace")]
    Empty {
        /// The length of the input.
        offset: usize,
    },
    /// The input is not UTF-8.
    #[error("invalid UTF-8 at byte {offset}")]
    InvalidUtf8 {
        /// The first byte that is not part of a whole character.
        offset: usize,
    },
    /// A byte order mark stands where JSON text is expected.
    #[error("byte order mark at byte {offset}: JSON is sent without one")]
    ByteOrderMark {
        /// The first byte of the mark.
        offset: usize,
    },
    /// The input ends inside a value.
    #[error("input ends at byte {offset}, before the JSON value is complete")]
    UnexpectedEnd {
        /// The length of the input.
        offset: usize,
    },
    /// Something stands where JSON's grammar wants something else.
    #[error("unexpected character at byte {offset}: expected {expected}")]
    Unexpected {
        /// The first byte that does not fit.
        offset: usize,
        /// What would fit.
        expected: &'static str,
    },
    /// More text follows the value.
    #[error("unexpected data at byte {offset}, after the end of the JSON value")]
    TrailingData {
        /// The first byte after the value that is not whitespace.
        offset: usize,
    },
    /// Arrays and objects are nested deeper than [`Limits::depth`](super::Limits::depth).
    #[error("nesting too deep at byte {offset}: at most {limit} levels are allowed")]
    TooDeep {
        /// The bracket or brace that goes too deep.
        offset: usize,
        /// The depth allowed.
        limit: usize,
    },
    /// An object has two members of one name, escapes undone.
    #[error("repeated member at byte {offset}: the object already has a member of that name")]
    DuplicateMember {
        /// The name that repeats an earlier one.
        offset: usize,
    },
    /// A string holds an unescaped control character.
    #[error("control character in a string at byte {offset}: it must be escaped")]
    ControlCharacter {
        /// The control character.
        offset: usize,
    },
    /// A string holds an escape that JSON does not have.
    #[error("invalid escape in a string at byte {offset}")]
    InvalidEscape {
        /// The backslash of the escape.
        offset: usize,
    },
    /// A string escapes one half of a surrogate pair without the other.
    #[error("lone surrogate in a string at byte {offset}: it stands for no character")]
    LoneSurrogate {
        /// The backslash of the escape.
        offset: usize,
    },
    /// A number has a zero before its other digits.
    #[error("number with a leading zero at byte {offset}")]
    LeadingZero {
        /// The zero.
        offset: usize,
    },
    /// A number lacks a digit, or has a sign or a point where none may be.
    #[error("invalid number at byte {offset}: expected a digit")]
    InvalidNumber {
        /// Where a digit is missing.
        offset: usize,
    },
    /// A number is spelled `NaN` or `Infinity`.
    #[error("`NaN` or `Infinity` at byte {offset}: JSON has only finite numbers")]
    NotFinite {
        /// The start of the number.
        offset: usize,
    },
    /// A number is too large or too close to zero; see [`MAX_EXPONENT`].
    #[error("number out of range at byte {offset}: its exponent is beyond ±{MAX_EXPONENT}")]
    NumberOutOfRange {
        /// The start of the number.
        offset: usize,
    },
}

impl Error {
    /// Gives the position in the input, in bytes, that the error is about.
    #[must_use]
    pub const fn offset(&self) -> usize {
        match *self {
            Self::TooLarge { limit: offset, .. }
            | Self::Empty { offset }
            | Self::InvalidUtf8 { offset }
            | Self::ByteOrderMark { offset }
            | Self::UnexpectedEnd { offset }
            | Self::Unexpected { offset, .. }
            | Self::TrailingData { offset }
            | Self::TooDeep { offset, .. }
            | Self::DuplicateMember { offset }
            | Self::ControlCharacter { offset }
            | Self::InvalidEscape { offset }
            | Self::LoneSurrogate { offset }
            | Self::LeadingZero { offset }
            | Self::InvalidNumber { offset }
            | Self::NotFinite { offset }
            | Self::NumberOutOfRange { offset } => offset,
        }
    }
}
