//! Canonical JSON: one byte sequence for each JSON value, for fingerprints.
//!
//! A fingerprint decides whether a call is a repeat. Two calls that mean the same must give the
//! same bytes, or an effect happens twice; two calls that differ must give different bytes, or a
//! real effect is suppressed. So [`canonicalize`] is strict about what it reads and exact about
//! what it keeps.
//!
//! The bytes are those of RFC 8785 (JCS): no whitespace, members sorted by the UTF-16 code units
//! of their names, the short escapes and `\u00xx` for control characters and nothing else escaped,
//! numbers as ECMAScript prints them. Text is never normalised: `é` as one or as two code points
//! are two strings.
//!
//! # Numbers
//!
//! RFC 8785 reads every number as a double. That makes 2^53 and 2^53 + 1 one value, which two
//! orders with neighbouring 64-bit ids are not. Here a number is its exact decimal value, and the
//! rule looks at that value only, never at its spelling:
//!
//! 1. An integer keeps all its digits.
//! 2. A non-integer of at most 17 significant digits becomes the nearest double, unless that
//!    double is an integer.
//! 3. Every other non-integer keeps all its digits.
//!
//! All three are laid out as ECMAScript lays out a number: `1e21` gives `1e+21`, `1.50` gives
//! `1.5`, `-0` gives `0`, `12345678901234567890` stays itself.
//!
//! Why two values share bytes only by rule 2: the text written is a JSON number, a JSON number
//! denotes one decimal value, and rules 1 and 3 write a text that denotes the value read. Rule 2
//! writes the shortest text of a double that is no integer; it has at most 17 digits, rounds to
//! that same double and so denotes no integer either. Reading it back takes rule 2 again and gives
//! the same text: no value of rules 1 and 3 is written that way. Hence two values share bytes
//! exactly if they are equal, or if both fall under rule 2 and share a double.
//! That last is RFC 8785's own equivalence (`333333333.33333329` and `333333333.3333333` in its
//! example), and it needs at least 16 significant digits, or a magnitude below 1e-307.
//!
//! Departures from RFC 8785, all for numbers that a double cannot carry faithfully:
//!
//! - An integer beyond ±(2^53 − 1) is not rounded: `9007199254740993` stays, also where a double
//!   holds it exactly but is printed with fewer digits (`295147905179352825856`, which RFC 8785
//!   writes as `295147905179352830000`).
//! - A non-integer of more than 17 significant digits is not rounded.
//! - A non-integer that a double would turn into an integer is not rounded:
//!   `0.99999999999999999` is not `1`, `2e-324` is not `0`, `9007199254740993.5` stays.
//! - Numbers too large for a double (`1e400`) are kept; RFC 8785 refuses them.
//!
//! Numbers of magnitude beyond [`MAX_EXPONENT`] are refused, so that no text of a few bytes stands
//! for a number nobody could write out.
//!
//! # Cost
//!
//! One pass writes the output in the order of the input; a second one puts the members of unsorted
//! objects in place, and only if there are any. Neither recurses, so nesting costs heap, not
//! stack. The output is at most about five times as long as the input (`1e20` is the worst case),
//! and usually shorter.

mod draft;
mod error;
mod number;
mod parser;
mod string;
#[cfg(test)]
mod tests;
mod writer;

pub use error::Error;
pub use number::MAX_EXPONENT;
pub use writer::write_string;

/// Bounds what [`canonicalize`] accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest input, in bytes.
    pub size: usize,
    /// The deepest nesting of arrays and objects; a bare string or number has depth 0.
    pub depth: usize,
}

impl Limits {
    /// The largest input by default: 1 MiB.
    pub const DEFAULT_SIZE: usize = 1024 * 1024;
    /// The deepest nesting by default.
    pub const DEFAULT_DEPTH: usize = 128;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            size: Self::DEFAULT_SIZE,
            depth: Self::DEFAULT_DEPTH,
        }
    }
}

/// Gives the canonical bytes of the one JSON value in `input`.
///
/// Equal values give equal bytes however they are spelled, and different values give different
/// bytes; the [module](self) says what equal means for numbers. The result is JSON again and its
/// own canonical form, though it may be longer than `limits.size`.
///
/// # Errors
///
/// Refuses whatever is not one JSON value within `limits`, and the JSON texts whose meaning
/// readers disagree on: repeated members, lone surrogates, a byte order mark.
pub fn canonicalize(input: &[u8], limits: &Limits) -> Result<Vec<u8>, Error> {
    if input.len() > limits.size {
        return Err(Error::TooLarge {
            size: input.len(),
            limit: limits.size,
        });
    }
    let text = str::from_utf8(input).map_err(|invalid| Error::InvalidUtf8 {
        offset: invalid.valid_up_to(),
    })?;
    parser::Parser::new(text, limits.depth).document()
}
