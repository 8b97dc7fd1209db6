//! Recorded answers: the values that a rule names, and no other byte.

use core::ops::Range;

use crate::identity::{Pointer, PointerError};

/// What stands in JSON where a value was.
const REDACTED_JSON: &[u8] = b"\"[redacted]\"";

/// Names values within a JSON answer: a JSON pointer (RFC 6901) in which `*` stands for any member or
/// element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRule {
    pointer: Pointer,
}

/// Says why a text names no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputRuleError {
    /// It is no pointer.
    #[error(transparent)]
    Pointer(#[from] PointerError),
    /// It goes too deep.
    #[error(
        "a rule for answers goes {depth} levels deep; the limit is {}",
        OutputRule::DEPTH_MAX
    )]
    TooDeep {
        /// How deep it goes.
        depth: usize,
    },
}

impl OutputRule {
    /// How deep a rule may go: the answer is walked through that far, one call for each level.
    pub const DEPTH_MAX: usize = 64;

    /// Reads a rule, as in `/card/number` or `/items/*/token`.
    ///
    /// # Errors
    /// Refuses what is no JSON pointer.
    pub fn new(text: &str) -> Result<Self, OutputRuleError> {
        let pointer = Pointer::new(text)?;
        let depth = pointer.tokens().len();
        if depth > Self::DEPTH_MAX {
            return Err(OutputRuleError::TooDeep { depth });
        }
        Ok(Self { pointer })
    }
}

/// Replaces the values that the rules name; `None` when they name none, or when this is no JSON.
pub(super) fn redacted(json: &[u8], rules: &[OutputRule]) -> Option<Vec<u8>> {
    if rules.is_empty() {
        return None;
    }
    let paths: Vec<_> = rules.iter().map(|rule| rule.pointer.tokens()).collect();
    let named = named(json, &paths)?;
    let mut out = Vec::with_capacity(json.len());
    let mut copied = 0;
    for value in &named {
        out.extend_from_slice(&json[copied..value.start]);
        out.extend_from_slice(REDACTED_JSON);
        copied = value.end;
    }
    out.extend_from_slice(&json[copied..]);
    (!named.is_empty()).then_some(out)
}

/// Returns where the value of a member of a JSON object stands.
#[must_use]
pub fn member(json: &[u8], name: &str) -> Option<Range<usize>> {
    let path = [name.to_owned()];
    let found = named(json, &[&path])?;
    found.into_iter().next()
}

/// Finds the values that the paths lead to, in their order; `None` when this is no JSON as far as it was
/// looked at.
fn named(json: &[u8], paths: &[&[String]]) -> Option<Vec<Range<usize>>> {
    core::str::from_utf8(json).ok()?;
    let mut walk = Walk {
        json,
        at: 0,
        named: vec![],
    };
    walk.blanks();
    walk.value(paths)?;
    walk.blanks();
    (walk.at == json.len()).then_some(walk.named)
}

/// A walk over a JSON text.
struct Walk<'a> {
    json: &'a [u8],
    at: usize,
    named: Vec<Range<usize>>,
}

impl Walk<'_> {
    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.blanks();
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// Walks over a value. It goes into it only as far as the paths lead.
    fn value(&mut self, paths: &[&[String]]) -> Option<()> {
        let start = self.at;
        if paths.is_empty() || paths.iter().any(|path| path.is_empty()) {
            self.skip()?;
            if !paths.is_empty() {
                self.named.push(start..self.at);
            }
            return Some(());
        }
        match self.peek()? {
            b'{' => self.object(paths),
            b'[' => self.array(paths),
            _ => self.skip(),
        }
    }

    fn object(&mut self, paths: &[&[String]]) -> Option<()> {
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            self.blanks();
            let name = self.string()?;
            let name = decoded(&self.json[name])?;
            self.take(b':')?;
            self.blanks();
            self.value(&within(paths, &name))?;
            if self.take(b'}').is_some() {
                return Some(());
            }
            self.take(b',')?;
        }
    }

    fn array(&mut self, paths: &[&[String]]) -> Option<()> {
        self.take(b'[')?;
        if self.take(b']').is_some() {
            return Some(());
        }
        for index in 0_usize.. {
            self.blanks();
            self.value(&within(paths, &index.to_string()))?;
            if self.take(b']').is_some() {
                return Some(());
            }
            self.take(b',')?;
        }
        None
    }

    /// Walks over a string and returns what is between its quotes.
    fn string(&mut self) -> Option<Range<usize>> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(start..self.at - 1);
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// Walks over a value without looking into it, however deep it is.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth > 0 => self.at += 1,
                _ => self.literal()?,
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Walks over a number, `true`, `false` or `null`.
    fn literal(&mut self) -> Option<()> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.') = self.peek() {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// Returns what is left of the paths that lead into this member or element.
fn within<'a>(paths: &[&'a [String]], name: &str) -> Vec<&'a [String]> {
    let into = paths.iter().filter_map(|path| {
        let (first, rest) = path.split_first()?;
        (first == "*" || first == name).then_some(rest)
    });
    into.collect()
}

/// Reads the escapes of a string; halves of surrogate pairs that stand alone become U+FFFD.
fn decoded(raw: &[u8]) -> Option<String> {
    let text = core::str::from_utf8(raw).ok()?;
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut units: Vec<u16> = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first != '\\' {
            units.extend(first.encode_utf16(&mut [0; 2]).iter());
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let escape = rest.as_bytes().get(1)?;
        let unit = match escape {
            b'"' | b'\\' | b'/' => u16::from(*escape),
            b'b' => 0x8,
            b'f' => 0xc,
            b'n' => 0xa,
            b'r' => 0xd,
            b't' => 0x9,
            b'u' => u16::from_str_radix(rest.get(2..6)?, 16).ok()?,
            _ => return None,
        };
        units.push(unit);
        rest = rest.get(if *escape == b'u' { 6 } else { 2 }..)?;
    }
    Some(String::from_utf16_lossy(&units))
}
