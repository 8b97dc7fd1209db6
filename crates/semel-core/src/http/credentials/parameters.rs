//! Lists of `name=value`, as headers and queries write them.

/// Reads `name=value` pairs between separators; values may stand in double quotes. `None` for anything else, so that a
/// value that two parsers would read differently is not read at all.
pub(super) fn list(text: &[u8], separators: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut rest = text.trim_ascii();
    while !rest.is_empty() {
        let is_end = |byte: &u8| *byte == b'=' || separators.contains(byte);
        let end = rest.iter().position(is_end).unwrap_or(rest.len());
        let name = core::str::from_utf8(rest[..end].trim_ascii()).ok()?;
        let has_gap = name
            .bytes()
            .any(|byte| byte.is_ascii_whitespace() || byte == b'"');
        if name.is_empty() || has_gap {
            return None;
        }
        let mut value = Vec::new();
        rest = &rest[end..];
        if let Some(after) = rest.strip_prefix(b"=") {
            (value, rest) = self::value(after.trim_ascii_start(), separators)?;
        }
        found.push((name.to_ascii_lowercase(), value));
        rest = rest.trim_ascii_start();
        match rest.split_first() {
            None => {}
            Some((byte, after)) if separators.contains(byte) => rest = after.trim_ascii_start(),
            Some(_) => return None,
        }
    }
    Some(found)
}

/// Reads one value; returns what follows it.
fn value<'a>(text: &'a [u8], separators: &[u8]) -> Option<(Vec<u8>, &'a [u8])> {
    if text.first() == Some(&b'"') {
        return quoted(text);
    }
    let is_end = |byte: &u8| separators.contains(byte) || byte.is_ascii_whitespace();
    let end = text.iter().position(is_end).unwrap_or(text.len());
    let value = &text[..end];
    (!value.contains(&b'"')).then(|| (value.to_vec(), &text[end..]))
}

/// Reads a text that begins with its quote; returns what follows its end.
pub(super) fn quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some((value, &text[at + 1..])),
            b'\\' => {
                at += 1;
                value.push(*text.get(at)?);
            }
            plain => value.push(*plain),
        }
        at += 1;
    }
}

/// Returns the value of the only parameter of a name. One that is there twice has no single meaning.
pub(super) fn only<'a>(found: &'a [(String, Vec<u8>)], name: &str) -> Option<&'a [u8]> {
    let mut values = found.iter().filter(|(own, _)| own == name);
    let (_, value) = values.next()?;
    (values.next().is_none() && !value.is_empty()).then_some(value)
}

/// Reads the member `profile` of a dictionary: `profile="https://agent.example/p"; version="2026-01-11"`.
pub(super) fn profile(value: &[u8]) -> Option<Vec<u8>> {
    let found = list(value, b",;")?;
    only(&found, "profile").map(<[u8]>::to_vec)
}

/// Returns the parameters of a query: the names decoded, the values as they were written.
pub(super) fn query(query: &str) -> impl Iterator<Item = (String, Vec<u8>)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), value.as_bytes().to_vec())
    })
}

/// Undoes percent-encoding; what is no encoding stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digit = |at: usize| {
            after
                .get(at)
                .and_then(|byte| char::from(*byte).to_digit(16))
        };
        let (byte, after) = match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                let code = u8::try_from(high * 16 + low).unwrap_or(b'%');
                (code, &after[2..])
            }
            (b'+', ..) => (b' ', after),
            (other, ..) => (*other, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
