//! The known kinds of secrets: one walk over a text.

use core::ops::Range;

use super::{REDACTED, format, url, value};

/// A walk over a text, from its beginning to its end.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    pub(super) text: &'a str,
    pub(super) bytes: &'a [u8],
    /// Where it stands.
    pub(super) at: usize,
    /// Where the last secret ended, or what stands for one. Nothing looks back beyond that, as a second walk
    /// would see something else there.
    pub(super) fresh: usize,
    /// Whether the end of the text may be missing.
    pub(super) cut: bool,
    copied: usize,
    out: String,
    changed: bool,
}

/// Hides what looks like a secret; `None` when nothing does.
pub(super) fn hide(text: &str, cut: bool) -> Option<String> {
    let mut scan = Scan {
        text,
        bytes: text.as_bytes(),
        at: 0,
        fresh: 0,
        cut,
        copied: 0,
        out: String::new(),
        changed: false,
    };
    while let Some(&byte) = scan.bytes.get(scan.at) {
        match scan.secret(byte) {
            Some(secret) => scan.pass(secret),
            None => scan.at += 1,
        }
    }
    if !scan.changed {
        return None;
    }
    scan.out.push_str(&text[scan.copied..]);
    Some(scan.out)
}

impl Scan<'_> {
    /// Returns the secret that something at this place announces, or that begins here.
    fn secret(&self, byte: u8) -> Option<Range<usize>> {
        let announced = match byte {
            b':' => url::password(self).or_else(|| value::after_sign(self)),
            b'=' => value::after_sign(self),
            b' ' | b'\t' => value::after_space(self),
            b'[' if self.text[self.at..].starts_with(REDACTED) => {
                Some(self.at..self.at + REDACTED.len())
            }
            _ => None,
        };
        announced.or_else(|| self.is_fresh().then(|| format::known(self)).flatten())
    }

    /// Goes behind a secret and leaves [`REDACTED`] for it, in the same way whether it was hidden before.
    fn pass(&mut self, secret: Range<usize>) {
        if self.text[secret.clone()] != *REDACTED {
            self.out.push_str(&self.text[self.copied..secret.start]);
            self.out.push_str(REDACTED);
            self.copied = secret.end;
            self.changed = true;
        }
        self.at = secret.end;
        self.fresh = secret.end;
    }

    /// Says whether a word may begin here.
    fn is_fresh(&self) -> bool {
        let before = &self.bytes[self.fresh..self.at];
        match before {
            [] => true,
            // The letters of an escape in JSON or in a URL are not those of a word.
            [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
            [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => true,
            [.., last] => !(last.is_ascii_alphanumeric() || *last == b'_'),
        }
    }
}
