//! Writes strings in canonical form.

/// Appends `text` as a canonical JSON string, quotes included.
///
/// Only the quote, the backslash and the characters below U+0020 are escaped, each in one way, so
/// different texts give different bytes and the closing quote cannot be mistaken for content.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    for run in text.as_bytes().split_inclusive(|byte| is_escaped(*byte)) {
        match run.split_last() {
            Some((last, plain)) if is_escaped(*last) => {
                out.extend_from_slice(plain);
                write_escape(out, *last);
            }
            Some(_) | None => out.extend_from_slice(run),
        }
    }
    out.push(b'"');
}

/// Appends a text that is known to hold nothing to escape.
pub(super) fn write_plain_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0x00..=0x1F)
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        0x08 => b'b',
        0x09 => b't',
        0x0A => b'n',
        0x0C => b'f',
        0x0D => b'r',
        b'"' | b'\\' => byte,
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend([hex_digit(byte >> 4), hex_digit(byte & 0x0F)]);
            return;
        }
    };
    out.extend([b'\\', short]);
}

fn hex_digit(value: u8) -> u8 {
    match value {
        0..=9 => b'0' + value,
        _ => b'a' + (value - 10),
    }
}
