//! Reads string literals.

use super::Error;

/// The text of a string literal, its escapes undone.
pub(super) enum Text<'a> {
    /// The literal has no escapes. It also has nothing to escape, so it is its own canonical form,
    /// which spares most strings a second look.
    Plain(&'a str),
    Unescaped(String),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Unescaped(text) => text,
        }
    }
}

/// Reads the string literal whose opening quote is at `open`, and gives the position after its
/// closing quote.
pub(super) fn scan(text: &str, open: usize) -> Result<(Text<'_>, usize), Error> {
    let end_of_input = Error::UnexpectedEnd { offset: text.len() };
    let bytes = text.as_bytes();
    let mut unescaped: Option<String> = None;
    let mut start = open + 1;
    loop {
        let rest = text.get(start..).ok_or(end_of_input)?;
        let length = rest.bytes().position(ends_run).ok_or(end_of_input)?;
        let run = rest.get(..length).ok_or(end_of_input)?;
        let at = start + length;
        match bytes.get(at) {
            Some(b'"') => {
                let text = match unescaped {
                    Some(unescaped) => Text::Unescaped(unescaped + run),
                    None => Text::Plain(run),
                };
                return Ok((text, at + 1));
            }
            Some(b'\\') => {
                let (character, end) = escape(bytes, at)?;
                let unescaped = unescaped.get_or_insert_default();
                unescaped.push_str(run);
                unescaped.push(character);
                start = end;
            }
            Some(_) => return Err(Error::ControlCharacter { offset: at }),
            None => return Err(end_of_input),
        }
    }
}

/// Tells whether a byte of a string literal does not stand for itself.
fn ends_run(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0x00..=0x1F)
}

/// Reads the escape whose backslash is at `at`: its character, and the position after it.
fn escape(bytes: &[u8], at: usize) -> Result<(char, usize), Error> {
    let Some(letter) = bytes.get(at + 1) else {
        return Err(Error::UnexpectedEnd {
            offset: bytes.len(),
        });
    };
    let character = match letter {
        b'"' | b'\\' | b'/' => char::from(*letter),
        b'b' => '\u{8}',
        b'f' => '\u{C}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode_escape(bytes, at),
        _ => return Err(Error::InvalidEscape { offset: at }),
    };
    Ok((character, at + 2))
}

/// The length of an escape like `\u00e9`.
const UNICODE_ESCAPE: usize = 6;

/// Reads one `\u` escape, or two of them if they are a surrogate pair.
fn unicode_escape(bytes: &[u8], at: usize) -> Result<(char, usize), Error> {
    let first = code_unit(bytes, at)?;
    let after = at + UNICODE_ESCAPE;
    let lone = Error::LoneSurrogate { offset: at };
    if !matches!(first, 0xD800..=0xDBFF) {
        let character = char::from_u32(u32::from(first)).ok_or(lone)?;
        return Ok((character, after));
    }
    if !bytes
        .get(after..)
        .is_some_and(|rest| rest.starts_with(b"\\u"))
    {
        return Err(lone);
    }
    let second = code_unit(bytes, after)?;
    let character = char::decode_utf16([first, second])
        .next()
        .and_then(Result::ok)
        .ok_or(lone)?;
    Ok((character, after + UNICODE_ESCAPE))
}

/// Reads the four hexadecimal digits of the `\u` escape at `at`.
fn code_unit(bytes: &[u8], at: usize) -> Result<u16, Error> {
    let Some(digits) = bytes.get(at + 2..at + UNICODE_ESCAPE) else {
        return Err(Error::UnexpectedEnd {
            offset: bytes.len(),
        });
    };
    digits.iter().try_fold(0, |unit: u16, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return Err(Error::InvalidEscape { offset: at }),
        };
        Ok(unit << 4 | u16::from(value))
    })
}
