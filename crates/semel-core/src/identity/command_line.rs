//! Which operation a command line is, where its caller gave no key.

use crate::canonical;
use crate::digest::Digest;
use crate::text::{Key, Label};

/// Separates derived keys from every other use of SHA-256.
const SCHEME: &[u8] = b"semel-run-1\0";

/// A command line: what is fingerprinted, and what a key is derived from.
#[derive(Clone, Copy, Debug)]
pub struct CommandLine<'a> {
    /// What is done.
    pub name: &'a Label,
    /// The program and its arguments, as they were written.
    pub arguments: &'a [&'a [u8]],
    /// The digest of a file that belongs to the operation.
    pub input: Option<Digest>,
}

impl CommandLine<'_> {
    /// Returns the bytes that stand for this command line in a fingerprint.
    ///
    /// Every argument begins with its length, so that no two command lines share their bytes.
    #[must_use]
    pub fn input(&self) -> Vec<u8> {
        let mut bytes = self.spelled_out();
        match self.input {
            None => bytes.push(0),
            Some(digest) => {
                bytes.push(1);
                bytes.extend_from_slice(&digest.0);
            }
        }
        bytes
    }

    /// Derives a key from name, arguments and working directory: `<name>:<32 hex digits>`.
    #[must_use]
    pub fn derived_key(&self, directory: &[u8]) -> Key {
        let mut name = vec![];
        canonical::write_string(&mut name, self.name.as_str());
        let digest = Digest::of_parts(&[SCHEME, &name, &self.spelled_out(), directory]);
        let written: String = self
            .name
            .as_str()
            .chars()
            .map(|c| if matches!(c, '!'..='~') { c } else { '_' })
            .take(Key::MAX_BYTES - HEX_DIGITS - 1)
            .collect();
        let text = format!("{written}:{}", &digest.hex()[..HEX_DIGITS]);
        Key::new(&text).unwrap_or_else(|_| unreachable!("printable ASCII of the right length"))
    }

    fn spelled_out(&self) -> Vec<u8> {
        let mut bytes = (self.arguments.len() as u64).to_le_bytes().to_vec();
        for argument in self.arguments {
            bytes.extend_from_slice(&(argument.len() as u64).to_le_bytes());
            bytes.extend_from_slice(argument);
        }
        bytes
    }
}

/// 128 bits: no two command lines of one person will ever share them.
const HEX_DIGITS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, arguments: &[&[u8]], directory: &[u8]) -> String {
        let name = Label::new(name).unwrap();
        let line = CommandLine {
            name: &name,
            arguments,
            input: None,
        };
        line.derived_key(directory).to_string()
    }

    /// These keys are in people's stores: they must never change.
    #[test]
    fn derived_keys_are_fixed_for_ever() {
        for (name, arguments, directory, expected) in [
            (
                "true",
                &[b"true" as &[u8]] as &[&[u8]],
                b"/" as &[u8],
                "true:34413fe1e1ef4934c19d451bae5904d5",
            ),
            (
                "send-mail",
                &[b"/usr/bin/send-mail", b"--to", b"a@example.org"],
                b"/home/a",
                "send-mail:aa745ace641325fdc0b5cf962e6a43f7",
            ),
            (
                "gr\u{fc}\u{df}e \u{1f600}",
                &[b"x", b"\xff\x00"],
                b"",
                "gr__e__:b642a027bd0b795e5b1726511cbc15dc",
            ),
        ] {
            assert_eq!(key(name, arguments, directory), expected);
        }
    }

    #[test]
    fn nothing_that_differs_shares_a_key() {
        let base = key("n", &[b"a", b"b"], b"/d");
        for other in [
            key("m", &[b"a", b"b"], b"/d"),
            key("n", &[b"ab"], b"/d"),
            key("n", &[b"a", b"b", b""], b"/d"),
            key("n", &[b"a"], b"b/d"),
            key("n", &[b"a", b"b"], b"/e"),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn a_long_name_still_makes_a_key() {
        let long = "x".repeat(255);
        assert_eq!(key(&long, &[b"x"], b"/").len(), Key::MAX_BYTES);
    }

    #[test]
    fn the_input_file_belongs_to_the_fingerprint() {
        let name = Label::new("n").unwrap();
        let line = |input| CommandLine {
            name: &name,
            arguments: &[b"a"],
            input,
        };
        let with = |bytes: &[u8]| line(Some(Digest::of(bytes))).input();
        assert_ne!(line(None).input(), with(b""));
        assert_ne!(with(b"1"), with(b"2"));
        assert_eq!(with(b"1"), with(b"1"));
    }
}
