//! Short texts with limits: every string that reaches a record has a bound and no control characters.

use core::fmt;
use std::sync::Arc;

use crate::digest::Digest;

/// Says why a text was refused; the message names what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The text is empty.
    #[error("{what} must not be empty")]
    Empty {
        /// What the text was meant to be.
        what: &'static str,
    },
    /// The text is longer than its limit.
    #[error("{what} has {bytes} bytes; the limit is {limit}")]
    TooLong {
        /// What the text was meant to be.
        what: &'static str,
        /// How many bytes it has.
        bytes: usize,
        /// How many it may have.
        limit: usize,
    },
    /// The text holds a byte or character that is not allowed.
    #[error("{what} must not contain {found:?} (byte {offset}); {allowed}")]
    Character {
        /// What the text was meant to be.
        what: &'static str,
        /// The first character that is not allowed.
        found: char,
        /// Where it stands.
        offset: usize,
        /// What is allowed instead.
        allowed: &'static str,
    },
    /// The text begins or ends with a space.
    #[error("{what} must not begin or end with a space")]
    OuterSpace {
        /// What the text was meant to be.
        what: &'static str,
    },
}

/// Checks length and characters; `allowed` explains the rule to people.
fn check(
    text: &str,
    what: &'static str,
    limit: usize,
    allowed: &'static str,
    permits: impl Fn(char) -> bool,
) -> Result<(), TextError> {
    if text.is_empty() {
        return Err(TextError::Empty { what });
    }
    if text.len() > limit {
        return Err(TextError::TooLong {
            what,
            bytes: text.len(),
            limit,
        });
    }
    match text.char_indices().find(|(_, c)| !permits(*c)) {
        Some((offset, found)) => Err(TextError::Character {
            what,
            found,
            offset,
            allowed,
        }),
        None => Ok(()),
    }
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and takes it.
            ///
            /// # Errors
            /// Refuses what the type's own rule does not allow, naming the first offence.
            pub fn new(text: &str) -> Result<Self, TextError> {
                let check: fn(&str) -> Result<(), TextError> = $check;
                check(text)?;
                Ok(Self(Arc::from(text)))
            }

            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl core::str::FromStr for $name {
            type Err = TextError;
            fn from_str(text: &str) -> Result<Self, TextError> {
                Self::new(text)
            }
        }
    };
}

text_type! {
    /// Names one operation within its namespace: 1 to 255 printable ASCII bytes, no outer spaces.
    Key, |text| {
        check(text, "a key", Key::MAX_BYTES, "use printable ASCII (0x20 to 0x7E)", |c| {
            matches!(c, ' '..='~')
        })?;
        if text.starts_with(' ') || text.ends_with(' ') {
            return Err(TextError::OuterSpace { what: "a key" });
        }
        Ok(())
    }
}

impl Key {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 255;
}

text_type! {
    /// Names a wall between tenants: keys of one namespace are never seen in another.
    Namespace, |text| {
        check(text, "a namespace", 64, "use letters, digits, `.`, `_` and `-`", |c| {
            c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
        })
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self(Arc::from("default"))
    }
}

text_type! {
    /// Identifies one attempt: 1 to 64 printable characters, made for one permit and never reused.
    AttemptId, |text| {
        check(text, "an attempt id", 64, "use printable ASCII without spaces", |c| {
            c.is_ascii_graphic()
        })
    }
}

impl AttemptId {
    /// Makes an id from 128 random bits.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        Self(Arc::from(format!("{bits:032x}")))
    }
}

text_type! {
    /// Labels something for people (a name, a queue, a principal): 1 to 255 bytes, no control characters.
    Label, |text| {
        check(text, "a name", Label::MAX_BYTES, "control characters cannot be shown", |c| !c.is_control())
    }
}

impl Label {
    /// The longest label, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Cuts what was a label before something longer was put into it.
    pub(crate) fn cut(text: &str) -> Self {
        Self(Arc::from(
            &text[..text.floor_char_boundary(Self::MAX_BYTES)],
        ))
    }
}

text_type! {
    /// Names a source of webhooks: it is a part of the address that the sender has and of every key, so it holds nothing
    /// that either would read as a separator.
    SourceName, |text| {
        let rule = "use letters, digits, `_` and `-`";
        check(text, "the name of a source", SourceName::MAX_BYTES, rule, |c| {
            c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
        })
    }
}

impl SourceName {
    /// The longest name, in bytes: a key has to have room for the sender's id after it.
    pub const MAX_BYTES: usize = 64;
}

text_type! {
    /// Explains something to people (an error, a note): up to 1,024 bytes, control characters removed.
    Note, |text| check(text, "a note", Note::MAX_BYTES, "control characters cannot be shown", |c| {
        !c.is_control()
    })
}

text_type! {
    /// A shell command that finds out whether an effect happened: up to 1,024 bytes. The ledger keeps its digest; the
    /// text stays in the process that was given it.
    Probe, |text| {
        let rule = "a longer one belongs into a script of its own";
        // A shell takes blank text for a command that succeeds, and so for a proof.
        let text = if text.trim().is_empty() { "" } else { text };
        check(text, "a probe", Probe::MAX_BYTES, rule, |c| c != '\0')
    }
}

impl Probe {
    /// The longest probe, in bytes.
    pub const MAX_BYTES: usize = 1_024;

    /// Returns the SHA-256 of the text, by which records tell one probe from another.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}

impl Note {
    /// The longest note, in bytes; longer ones are cut, as a record must stay small.
    pub const MAX_BYTES: usize = 1_024;

    /// Cuts and cleans any text until it is a note; `None` when nothing is left.
    #[must_use]
    pub fn from_lossy(text: &str) -> Option<Self> {
        let mut clean = String::with_capacity(text.len().min(Self::MAX_BYTES));
        for c in text
            .trim()
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
        {
            if clean.len() + c.len_utf8() > Self::MAX_BYTES {
                break;
            }
            clean.push(c);
        }
        if clean.is_empty() {
            None
        } else {
            Some(Self(Arc::from(clean)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printable_ascii_of_1_to_255_bytes() {
        let longest = "k".repeat(255);
        for good in ["a", "order-7", "a b", "~!\"#", longest.as_str()] {
            assert_eq!(
                Key::new(good).map(|k| k.as_str().to_owned()),
                Ok(good.to_owned())
            );
        }
        assert!(matches!(Key::new(""), Err(TextError::Empty { .. })));
        assert!(matches!(
            Key::new(&"k".repeat(256)),
            Err(TextError::TooLong {
                bytes: 256,
                limit: 255,
                ..
            })
        ));
        for (bad, offset) in [("a\u{7f}", 1), ("\n", 0), ("ab\u{e9}", 2), ("tab\there", 3)] {
            assert!(
                matches!(Key::new(bad), Err(TextError::Character { offset: at, .. }) if at == offset),
                "{bad:?}"
            );
        }
        for bad in [" a", "a ", " "] {
            assert!(
                matches!(Key::new(bad), Err(TextError::OuterSpace { .. })),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn namespaces_cannot_hold_what_a_path_or_scope_would_read_as_a_separator() {
        for bad in ["", "a/b", "a b", "a\0b", "é"] {
            assert!(Namespace::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Namespace::default().as_str(), "default");
    }

    #[test]
    fn notes_are_cut_at_a_character_and_cleaned() {
        let text = format!("\u{1b}[31m{}", "é".repeat(2_000));
        let note = Note::from_lossy(&text).expect("something is left");
        assert!(note.as_str().len() <= Note::MAX_BYTES);
        assert!(!note.as_str().contains('\u{1b}'));
        assert_eq!(Note::from_lossy(" \n "), None);
        assert!(Note::new(note.as_str()).is_ok());
    }
}
