//! Fingerprints: which call a key was first used for.

use core::fmt;

use crate::canonical;
use crate::digest::Digest;
use crate::text::Label;

/// Identifies name and input of a call; the same key with another fingerprint is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub Digest);

/// What a call was given.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Nothing.
    None,
    /// JSON text: two spellings of one value have one fingerprint.
    Json(&'a [u8]),
    /// Anything else, byte for byte.
    Bytes(&'a [u8]),
}

/// Separates the fingerprints of this scheme from every other use of SHA-256.
const SCHEME: &[u8] = b"semel-f1\0";

impl Fingerprint {
    /// Computes the fingerprint of a call.
    ///
    /// # Errors
    /// Refuses JSON that has no single meaning (see [`canonical`]).
    pub fn of(name: &Label, input: Input<'_>) -> Result<Self, canonical::Error> {
        // The name is written as a JSON string: it ends at its own closing quote, so that no
        // name and input can be cut at another place.
        let mut quoted = Vec::with_capacity(name.as_str().len() + 2);
        canonical::write_string(&mut quoted, name.as_str());
        let digest = match input {
            Input::None => Digest::of_parts(&[SCHEME, &quoted, b"n"]),
            Input::Json(text) => {
                let text = canonical::canonicalize(text, &canonical::Limits::default())?;
                Digest::of_parts(&[SCHEME, &quoted, b"j", &text])
            }
            Input::Bytes(bytes) => Digest::of_parts(&[SCHEME, &quoted, b"b", bytes]),
        };
        Ok(Self(digest))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "f1:{}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, input: Input<'_>) -> Fingerprint {
        Fingerprint::of(&Label::new(name).unwrap(), input).unwrap()
    }

    #[test]
    fn spelling_does_not_matter_and_values_do() {
        let first = of("pay", Input::Json(br#"{"amount": 100, "to": "a"}"#));
        assert_eq!(
            first,
            of("pay", Input::Json(br#"{"to":"\u0061","amount":1e2}"#))
        );
        assert_ne!(first, of("pay", Input::Json(br#"{"to":"a","amount":101}"#)));
        assert_ne!(
            first,
            of("refund", Input::Json(br#"{"amount": 100, "to": "a"}"#))
        );
    }

    #[test]
    fn integers_beyond_doubles_keep_their_last_digit() {
        assert_ne!(
            of(
                "post",
                Input::Json(br#"{"channel_id":1234567890123456789}"#)
            ),
            of(
                "post",
                Input::Json(br#"{"channel_id":1234567890123456790}"#)
            )
        );
    }

    #[test]
    fn kinds_of_input_and_borders_of_names_never_collide() {
        let all = [
            of("a", Input::None),
            of("a", Input::Json(b"null")),
            of("a", Input::Bytes(b"null")),
            of("a", Input::Bytes(b"")),
            of("a\"b", Input::Bytes(b"")),
            of("a", Input::Bytes(b"\"b")),
        ];
        for (i, left) in all.iter().enumerate() {
            for right in &all[i + 1..] {
                assert_ne!(left, right);
            }
        }
    }

    #[test]
    fn a_duplicate_member_is_refused_rather_than_guessed() {
        let name = Label::new("pay").unwrap();
        assert!(Fingerprint::of(&name, Input::Json(br#"{"a":1,"a":2}"#)).is_err());
    }

    #[test]
    fn the_scheme_is_fixed_for_ever() {
        assert_eq!(
            of("create-order", Input::Json(br#"{"amount":100}"#)).to_string(),
            "f1:b5e3e4bdf9decf2f8804858a965ab172d90f60574c096b1d3ed9940977580c89"
        );
    }
}
