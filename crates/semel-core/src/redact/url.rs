//! Passwords in URLs: `scheme://user:password@host`.

use core::ops::Range;

use super::scan::Scan;

/// How far the host may be: a longer login is none.
const LOGIN_MAX: usize = 1_024;

/// From this length on, a login without a password is a token.
const TOKEN_MIN: usize = 20;

/// Returns the password of the URL whose `://` is here.
pub(super) fn password(scan: &Scan<'_>) -> Option<Range<usize>> {
    let rest = scan.bytes[scan.at..].strip_prefix(b"://")?;
    let rest = &rest[..rest.len().min(LOGIN_MAX)];
    let word = rest.iter().position(|byte| {
        byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>')
    });
    let word = &rest[..word.unwrap_or(rest.len())];
    let start = scan.at + b"://".len();
    let slash = word
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let authority = &word[..slash.unwrap_or(word.len())];
    let Some(colon) = authority.iter().position(|byte| *byte == b':') else {
        // A user's name, or a token instead of one.
        let at = authority.iter().rposition(|byte| *byte == b'@')?;
        return (at >= TOKEN_MIN).then(|| start..start + at);
    };
    if authority.first() == Some(&b'[') && !authority.contains(&b'@') {
        // An address with colons of its own.
        return None;
    }
    // A password may hold a slash or an `@` that nobody escaped; a port does not.
    let host = word.iter().rposition(|byte| *byte == b'@')?;
    let port = &authority[colon + 1..];
    if colon >= host || (!authority.contains(&b'@') && port.iter().all(u8::is_ascii_digit)) {
        return None;
    }
    Some(start + colon + 1..start + host).filter(|password| !password.is_empty())
}
