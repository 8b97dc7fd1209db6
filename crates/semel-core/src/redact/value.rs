//! Values that are secrets because of the name before them.

use core::ops::Range;

use super::name::{self, Kind};
use super::scan::Scan;
use super::{REDACTED, format};

/// The longest name that is read: of a longer one, the end.
const NAME_MAX: usize = 64;

/// How many blanks may stand between a name, its sign and its value.
const BLANKS_MAX: usize = 16;

/// From this length on, a word is not one that people write.
const WORD_MAX: usize = 20;

/// How credentials are announced within a header.
const SCHEMES: [&str; 6] = ["bearer", "basic", "digest", "token", "negotiate", "apikey"];

/// A name, and what stands around it.
struct Named {
    kind: Kind,
    /// The quote that stands before the name, and the one that stands behind it.
    opened: Option<u8>,
    closed: Option<u8>,
}

/// Returns the secret after `=` or `:`.
pub(super) fn after_sign(scan: &Scan<'_>) -> Option<Range<usize>> {
    let rest = &scan.bytes[scan.at..];
    let (colon, length) = match rest {
        // A path in a program, a URL, or a sign that comes to its end with the next character.
        [b':', b':' | b'=', ..] | [b':', b'/', b'/', ..] => return None,
        [b':', ..] => (true, 1),
        [b'=', b'=' | b'>', ..] => (false, 2),
        _ => (false, 1),
    };
    let named = named_before(scan)?;
    let start = scan.at + length;
    let at = start + blanks(&scan.bytes[start..]);
    let bare = quote_at(&scan.bytes[at..]).is_none();
    if colon && bare {
        if named.kind == Kind::Line && named.closed.is_none() {
            return line(scan, at, named.opened);
        }
        // What is within an object or a list has names of its own.
        let rest = &scan.text[at..];
        if rest.starts_with(['{', '[']) && !rest.starts_with(REDACTED) {
            return None;
        }
    }
    let value = value_at(scan, at)?;
    let doubtful = named.kind == Kind::Token && colon && named.closed.is_none();
    (!doubtful || looks_secret(&scan.text[value.clone()])).then_some(value)
}

/// Returns the secret after the blank that follows a flag, or the name of a scheme.
pub(super) fn after_space(scan: &Scan<'_>) -> Option<Range<usize>> {
    let before = &scan.bytes[scan.fresh..scan.at];
    // Also within a list: `["--password", "…"]`.
    let before = before.strip_suffix(b",").unwrap_or(before);
    let (before, quote) = match before {
        [rest @ .., quote @ (b'"' | b'\'')] => (rest, Some(*quote)),
        _ => (before, None),
    };
    let size = before
        .iter()
        .rev()
        .take(NAME_MAX)
        .take_while(|byte| name::is_of_name(**byte))
        .count();
    let word = &before[before.len() - size..];
    let at = scan.at + blanks(&scan.bytes[scan.at..]);
    if word.first() == Some(&b'-') {
        let word = core::str::from_utf8(word).ok()?;
        let kind = name::kind(word)?;
        let value = value_at(scan, at)?;
        let text = &scan.text[value.clone()];
        let another_flag = text.starts_with('-')
            && quote_at(&scan.bytes[at..]).is_none()
            && format::private_key(text).is_none();
        let ordinary = kind != Kind::Secret && quote.is_none() && !looks_secret(text);
        return (!another_flag && !ordinary).then_some(value);
    }
    let is_scheme = [&b"bearer"[..], b"basic"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme));
    if !is_scheme {
        return None;
    }
    let value = bare(scan, at);
    looks_like_credentials(&scan.text[value.clone()]).then_some(value)
}

/// Reads the name before a sign.
fn named_before(scan: &Scan<'_>) -> Option<Named> {
    let mut before = &scan.bytes[scan.fresh..scan.at];
    if scan.bytes[scan.at] == b'=' {
        before = before.strip_suffix(b":").unwrap_or(before);
    }
    for _ in 0..BLANKS_MAX {
        match before {
            [rest @ .., b' ' | b'\t'] => before = rest,
            _ => break,
        }
    }
    let mut closed = None;
    if let [rest @ .., quote @ (b'"' | b'\'' | b'`' | b']')] = before {
        closed = Some(*quote);
        before = rest;
        while let [rest @ .., b'\\'] = before {
            before = rest;
        }
    }
    let size = before
        .iter()
        .rev()
        .take(NAME_MAX)
        .take_while(|byte| name::is_of_name(**byte))
        .count();
    let (rest, name) = before.split_at(before.len() - size);
    let kind = name::kind(core::str::from_utf8(name).ok()?)?;
    let opened = rest
        .last()
        .copied()
        .filter(|byte| matches!(byte, b'"' | b'\'' | b'`'));
    Some(Named {
        kind,
        opened,
        closed,
    })
}

fn blanks(bytes: &[u8]) -> usize {
    let blanks = bytes.iter().take(BLANKS_MAX);
    blanks
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count()
}

/// Returns a quote, and the backslashes before it, with which something begins.
fn quote_at(bytes: &[u8]) -> Option<&[u8]> {
    let slashes = bytes
        .iter()
        .take(8)
        .take_while(|byte| **byte == b'\\')
        .count();
    match bytes.get(slashes) {
        Some(b'"' | b'\'' | b'`') => Some(&bytes[..=slashes]),
        Some(_) | None => None,
    }
}

/// Returns the value that begins here, unless it tells nothing.
fn value_at(scan: &Scan<'_>, at: usize) -> Option<Range<usize>> {
    if let Some(quote) = quote_at(&scan.bytes[at..]) {
        return Some(quoted(scan.bytes, at + quote.len(), quote)).filter(|value| !value.is_empty());
    }
    let value = bare(scan, at);
    let text = &scan.text[value.clone()];
    match text {
        "" | "null" | "true" | "false" | "None" | "undefined" => None,
        _ => Some(with_scheme(scan, value)),
    }
}

/// Returns what stands between quotes; without the second one, all that follows.
fn quoted(bytes: &[u8], start: usize, quote: &[u8]) -> Range<usize> {
    let rest = &bytes[start..];
    let end = if let [quote] = quote {
        let mut escaped = false;
        rest.iter().position(|byte| {
            let ends = byte == quote && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        })
    } else {
        rest.windows(quote.len()).position(|window| window == quote)
    };
    start..end.map_or(bytes.len(), |end| start + end)
}

/// Returns a value without quotes.
fn bare(scan: &Scan<'_>, start: usize) -> Range<usize> {
    let mut at = start;
    while let Some(&byte) = scan.bytes.get(at) {
        if scan.text.is_char_boundary(at) && scan.text[at..].starts_with(REDACTED) {
            at += REDACTED.len();
            continue;
        }
        if byte == b'-'
            && let Some(length) = format::private_key(&scan.text[at..])
        {
            at += length;
            continue;
        }
        let next = scan.bytes.get(at + 1);
        match byte {
            b'"' | b'\'' | b'`' | b'&' | b';' => break,
            _ if byte.is_ascii_whitespace() => break,
            b',' | b')' | b']' | b'}' | b'>' if next.is_none_or(|next| ends(*next)) => break,
            _ => at += 1,
        }
    }
    let slashes = scan.bytes[start..at].iter().rev();
    let slashes = slashes.take_while(|byte| **byte == b'\\').count();
    start..at - slashes
}

/// Says whether a comma or a bracket before this byte is no part of a value.
const fn ends(next: u8) -> bool {
    next.is_ascii_whitespace()
        || matches!(
            next,
            b',' | b')' | b']' | b'}' | b'>' | b'"' | b'\'' | b'`' | b'&' | b';'
        )
}

/// Adds the credentials that the name of a scheme announces.
fn with_scheme(scan: &Scan<'_>, value: Range<usize>) -> Range<usize> {
    let text = &scan.text[value.clone()];
    let is_scheme = SCHEMES
        .iter()
        .any(|scheme| text.eq_ignore_ascii_case(scheme));
    let at = value.end + blanks(&scan.bytes[value.end..]);
    if !is_scheme || at == value.end {
        return value;
    }
    let credentials = bare(scan, at);
    if credentials.is_empty() {
        return value;
    }
    value.start..credentials.end
}

/// Returns the rest of a header's line, or of the quotes that it stands in.
fn line(scan: &Scan<'_>, start: usize, quote: Option<u8>) -> Option<Range<usize>> {
    let rest = &scan.bytes[start..];
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'\n' | b'\r') || Some(*byte) == quote);
    let rest = &rest[..end.unwrap_or(rest.len())];
    let rest = rest.trim_ascii_end();
    let slashes = rest.iter().rev().take_while(|byte| **byte == b'\\').count();
    let size = rest.len() - slashes;
    (size > 0).then(|| start..start + size)
}

/// Says whether something is rather a secret than a word of a sentence.
fn looks_secret(text: &str) -> bool {
    let word = text.trim_matches(|c: char| c.is_ascii_punctuation());
    let bytes = word.as_bytes();
    let camel = bytes
        .windows(2)
        .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    let odd = |byte: &u8| byte.is_ascii_digit() || b"+=~$%^*!@#".contains(byte);
    text == REDACTED || word.len() >= WORD_MAX || camel || bytes.iter().any(odd)
}

/// Says whether a word after `Bearer` or `Basic` is a credential.
fn looks_like_credentials(text: &str) -> bool {
    /// The shortest; `Basic` plans and `bearer` bonds are followed by shorter words, or by plain ones.
    const LEAST: usize = 8;
    text == REDACTED || (text.len() >= LEAST && looks_secret(text))
}
