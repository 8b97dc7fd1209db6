//! The key of a request: an item of a structured field (RFC 9651), or the bare text that most clients send.
//!
//! A structured field that cannot be read is to be ignored, says its RFC. Here that would be an effect that
//! nobody guards: whatever is no key is an error.

use core::fmt;

/// What a field may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// A quoted string, or a text without quotes, commas, semicolons and spaces. Both are the same key.
    QuotedOrBare,
    /// A quoted string only.
    Quoted,
}

/// Says why a field holds no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFieldError {
    /// The field is there more than once.
    Twice,
    /// It is empty.
    Empty,
    /// It is longer than the limit, in bytes.
    TooLong(usize),
    /// It is a value of another kind than a string.
    NoString,
    /// A byte that no key has.
    Byte(u8),
    /// The closing quote is missing.
    Unclosed,
    /// `\` stands before something else than `"` and `\`.
    Escape,
    /// What follows the string are no parameters.
    Trailing,
    /// The key begins or ends with a space.
    OuterSpace,
}

impl fmt::Display for KeyFieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice => f.write_str("there is more than one"),
            Self::Empty => f.write_str("it is empty"),
            Self::TooLong(limit) => write!(f, "it is longer than {limit} bytes"),
            Self::NoString => f.write_str("a key stands in double quotes"),
            Self::Byte(byte) => write!(f, "the byte 0x{byte:02x} is not allowed in it"),
            Self::Unclosed => f.write_str("the closing quote is missing"),
            Self::Escape => f.write_str("`\\` stands before `\"` and `\\` only"),
            Self::Trailing => f.write_str("only parameters may follow the closing quote"),
            Self::OuterSpace => f.write_str("it begins or ends with a space"),
        }
    }
}

impl core::error::Error for KeyFieldError {}

/// Reads the key from the lines of a field.
///
/// # Errors
/// Says why they hold no key; `Ok(None)` means that there is no such field.
pub fn read_key<'a>(
    lines: impl IntoIterator<Item = &'a [u8]>,
    spelling: Spelling,
    limit: usize,
) -> Result<Option<String>, KeyFieldError> {
    let mut lines = lines.into_iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(KeyFieldError::Twice);
    }
    let text = trimmed(line);
    let key = match (text.first(), spelling) {
        (None, _) => return Err(KeyFieldError::Empty),
        (Some(b'"'), _) => quoted(text)?,
        (Some(_), Spelling::QuotedOrBare) => bare(text)?,
        (Some(_), Spelling::Quoted) => return Err(KeyFieldError::NoString),
    };
    match key.as_bytes() {
        [] => Err(KeyFieldError::Empty),
        long if long.len() > limit => Err(KeyFieldError::TooLong(limit)),
        [b' ', ..] | [.., b' '] => Err(KeyFieldError::OuterSpace),
        _ => Ok(Some(key)),
    }
}

/// Writes a key as the value of a field: bare where that can be read, as most servers expect it, else as a quoted string.
#[must_use]
pub fn write_key(key: &str) -> String {
    if !key.is_empty() && bare(key.as_bytes()).is_ok() {
        return key.to_owned();
    }
    let escaped = key.replace('\\', r"\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// Takes away the white space around a field's value. HTTP allows tabs there.
fn trimmed(line: &[u8]) -> &[u8] {
    let is_inner = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = line.iter().position(is_inner).unwrap_or(line.len());
    let end = line.iter().rposition(is_inner).map_or(start, |at| at + 1);
    &line[start..end]
}

fn bare(text: &[u8]) -> Result<String, KeyFieldError> {
    for &byte in text {
        match byte {
            // A comma joins two lines into one.
            b',' => return Err(KeyFieldError::Twice),
            b'"' | b';' | b' ' => return Err(KeyFieldError::NoString),
            0x21..=0x7e => {}
            _ => return Err(KeyFieldError::Byte(byte)),
        }
    }
    Ok(ascii(text))
}

/// Reads an item whose value is a string, and passes over its parameters.
fn quoted(text: &[u8]) -> Result<String, KeyFieldError> {
    let (string, rest) = string(text)?;
    let rest = parameters(rest)?;
    match rest.first() {
        None => Ok(string),
        Some(b',') => Err(KeyFieldError::Twice),
        Some(_) => Err(KeyFieldError::Trailing),
    }
}

/// Reads a string that begins with its quote; returns what follows it.
fn string(text: &[u8]) -> Result<(String, &[u8]), KeyFieldError> {
    let mut value = Vec::with_capacity(text.len());
    let mut at = 1;
    loop {
        match text.get(at) {
            None => return Err(KeyFieldError::Unclosed),
            Some(b'"') => return Ok((ascii(&value), &text[at + 1..])),
            Some(b'\\') => {
                at += 1;
                match text.get(at) {
                    Some(escaped @ (b'"' | b'\\')) => value.push(*escaped),
                    Some(_) => return Err(KeyFieldError::Escape),
                    None => return Err(KeyFieldError::Unclosed),
                }
            }
            Some(plain @ 0x20..=0x7e) => value.push(*plain),
            Some(other) => return Err(KeyFieldError::Byte(*other)),
        }
        at += 1;
    }
}

/// Passes over parameters: they say nothing about which key it is, but they must be some.
fn parameters(mut rest: &[u8]) -> Result<&[u8], KeyFieldError> {
    while let Some(after) = rest.strip_prefix(b";") {
        let start = after.iter().position(|byte| *byte != b' ');
        let after = &after[start.unwrap_or(after.len())..];
        let is_first = |byte: &u8| matches!(byte, b'a'..=b'z' | b'*');
        if !after.first().is_some_and(is_first) {
            return Err(KeyFieldError::Trailing);
        }
        let is_name =
            |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*');
        let end = after.iter().position(|byte| !is_name(byte));
        rest = &after[end.unwrap_or(after.len())..];
        if let Some(value) = rest.strip_prefix(b"=") {
            rest = bare_item(value)?;
        }
    }
    Ok(rest)
}

/// Passes over the value of a parameter; returns what follows it.
fn bare_item(text: &[u8]) -> Result<&[u8], KeyFieldError> {
    let invalid = Err(KeyFieldError::Trailing);
    match text.first() {
        Some(b'"') => string(text).map(|(_, rest)| rest),
        Some(b'-' | b'0'..=b'9') => number(text).map_or(invalid, Ok),
        Some(b'@') => match number(&text[1..]) {
            Some(rest) if !text[..text.len() - rest.len()].contains(&b'.') => Ok(rest),
            _ => invalid,
        },
        Some(b'?') => match text {
            [b'?', b'0' | b'1', rest @ ..] => Ok(rest),
            _ => invalid,
        },
        Some(b':') => bytes(&text[1..]).map_or(invalid, Ok),
        Some(b'%') => display_string(text).map_or(invalid, Ok),
        Some(b'*' | b'A'..=b'Z' | b'a'..=b'z') => Ok(token(text)),
        Some(_) | None => invalid,
    }
}

/// Passes over an integer of up to 15 digits, or a decimal of up to 12 and 3.
fn number(text: &[u8]) -> Option<&[u8]> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(unsigned);
    let rest = &unsigned[whole..];
    let Some(fraction) = rest.strip_prefix(b".") else {
        return (1..=15).contains(&whole).then_some(rest);
    };
    let places = digits(fraction);
    ((1..=12).contains(&whole) && (1..=3).contains(&places)).then(|| &fraction[places..])
}

fn token(text: &[u8]) -> &[u8] {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(byte);
    let end = text.iter().position(|byte| !is_token(byte));
    &text[end.unwrap_or(text.len())..]
}

/// Passes over a byte sequence whose first colon was taken.
fn bytes(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|byte| *byte == b':')?;
    let padded = &text[..end];
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let digits = padded.iter().take_while(|byte| is_digit(byte)).count();
    let padding = &padded[digits..];
    // Padding may be left out; a single digit is less than a byte.
    let fits = match digits % 4 {
        0 => padding.is_empty(),
        1 => false,
        two_or_three => padding.len() <= 4 - two_or_three,
    };
    (fits && padding.iter().all(|byte| *byte == b'=')).then(|| &text[end + 1..])
}

/// Passes over a display string: percent-encoded UTF-8 in quotes.
fn display_string(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text.strip_prefix(b"%\"")?;
    let mut decoded = Vec::new();
    loop {
        match rest {
            [b'"', after @ ..] => {
                return core::str::from_utf8(&decoded).is_ok().then_some(after);
            }
            [b'%', high, low, after @ ..] => {
                let digit = |byte: &u8| match byte {
                    b'0'..=b'9' => Some(byte - b'0'),
                    b'a'..=b'f' => Some(byte - b'a' + 10),
                    _ => None,
                };
                decoded.push(digit(high)? << 4 | digit(low)?);
                rest = after;
            }
            [b'%', ..] => return None,
            [plain @ 0x20..=0x7e, after @ ..] => {
                decoded.push(*plain);
                rest = after;
            }
            _ => return None,
        }
    }
}

fn ascii(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}
