//! Names whose values are secrets.

/// How surely what follows a name is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Always.
    Secret,
    /// Unless it looks like an ordinary word: people write of tokens more often than they write one.
    Token,
    /// A header: all of the line.
    Line,
}

/// Endings of names, without their separators and in small letters.
const ENDINGS: [(&str, Kind); 22] = [
    ("password", Kind::Secret),
    ("passwd", Kind::Secret),
    ("passphrase", Kind::Secret),
    ("passcode", Kind::Secret),
    ("secret", Kind::Secret),
    ("secretkey", Kind::Secret),
    ("secretaccesskey", Kind::Secret),
    ("secretkeybase", Kind::Secret),
    ("signingkey", Kind::Secret),
    ("encryptionkey", Kind::Secret),
    ("accountkey", Kind::Secret),
    ("mysqlpwd", Kind::Secret),
    ("token", Kind::Token),
    ("apikey", Kind::Token),
    ("accesskey", Kind::Token),
    ("authkey", Kind::Token),
    ("sessionid", Kind::Token),
    ("jwt", Kind::Token),
    ("amzsignature", Kind::Token),
    ("bearer", Kind::Token),
    ("authorization", Kind::Line),
    ("cookie", Kind::Line),
];

/// The longest ending, and the separators that may stand in it.
const LOOK_MAX: usize = 40;

/// Says what follows a name, where that is a secret.
pub(super) fn kind(name: &str) -> Option<Kind> {
    let bytes = name.as_bytes();
    let end = &bytes[bytes.len().saturating_sub(LOOK_MAX)..];
    let plain: Vec<u8> = end
        .iter()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .map(u8::to_ascii_lowercase)
        .collect();
    // In capitals it is the working directory.
    if plain == b"pwd" && name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Some(Kind::Secret);
    }
    let found = ENDINGS
        .iter()
        .find(|(ending, _)| plain.ends_with(ending.as_bytes()));
    found.map(|(_, kind)| *kind)
}

/// Says whether a byte may be part of a name.
pub(super) const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}
