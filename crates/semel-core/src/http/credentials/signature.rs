//! Signatures: the key id says who signs, and stays the same when a retry is signed again.

use super::parameters::{list, only, quoted};

/// Where a signature scheme of `Authorization` has its key id.
#[derive(Clone, Copy, Debug)]
enum KeyIdPlace {
    /// In parameters between separators: the first names are needed, the others are taken where they are there.
    Parameters {
        separators: &'static [u8],
        needed: &'static [&'static str],
        optional: &'static [&'static str],
    },
    /// In `Credential=KEY/DATE/REGION/SERVICE/…`, before the first slash: the rest changes with the day.
    CredentialScope,
    /// Before a colon: `KEY:SIGNATURE`.
    BeforeColon,
}

/// How the names of schemes begin that write their key id into a credential scope: AWS, Google, Alibaba, Tencent.
const SCOPED: [&str; 5] = ["aws4-", "goog4-", "oss4-", "acs3-", "tc3-"];

fn place_of(scheme: &str) -> Option<KeyIdPlace> {
    let parameters = |needed| KeyIdPlace::Parameters {
        separators: b",",
        needed,
        optional: &[],
    };
    Some(match scheme {
        "signature" => parameters(&["keyid"]),
        "hawk" | "mac" => parameters(&["id"]),
        "digest" => parameters(&["username", "realm"]),
        "oauth" => KeyIdPlace::Parameters {
            separators: b",",
            needed: &["oauth_consumer_key"],
            optional: &["oauth_token"],
        },
        // Akamai EdgeGrid.
        "eg1-hmac-sha256" => KeyIdPlace::Parameters {
            separators: b";",
            needed: &["client_token", "access_token"],
            optional: &[],
        },
        // AWS before version 4, Alibaba, Azure Storage.
        "aws" | "oss" | "sharedkey" | "sharedkeylite" => KeyIdPlace::BeforeColon,
        scheme if SCOPED.iter().any(|start| scheme.starts_with(start)) => {
            KeyIdPlace::CredentialScope
        }
        _ => return None,
    })
}

/// Reads the key id of an `Authorization` with a signature scheme; `None` where there is none, or none that can be read.
pub(super) fn key_id(value: &[u8]) -> Option<Vec<Vec<u8>>> {
    let end = value.iter().position(u8::is_ascii_whitespace)?;
    let scheme = core::str::from_utf8(&value[..end]).ok()?;
    let scheme = scheme.to_ascii_lowercase();
    let rest = value[end..].trim_ascii();
    let mut fields = vec![];
    match place_of(&scheme)? {
        KeyIdPlace::Parameters {
            separators,
            needed,
            optional,
        } => {
            let found = list(rest, separators)?;
            fields.push(scheme.into_bytes());
            for name in needed {
                let value = only(&found, name)?;
                fields.extend([name.as_bytes().to_vec(), value.to_vec()]);
            }
            for name in optional {
                if !found.iter().any(|(own, _)| own == name) {
                    continue;
                }
                let value = only(&found, name)?;
                fields.extend([name.as_bytes().to_vec(), value.to_vec()]);
            }
        }
        KeyIdPlace::CredentialScope => {
            let found = list(rest, b",")?;
            let scope = only(&found, "credential")?;
            let key = scope.split(|byte| *byte == b'/').next()?;
            // One key signs with several algorithms of its vendor.
            let vendor = scheme.split('-').next()?;
            fields.extend([vendor.as_bytes().to_vec(), key.to_vec()]);
        }
        KeyIdPlace::BeforeColon => {
            let colon = rest.iter().position(|byte| *byte == b':')?;
            fields.extend([scheme.into_bytes(), rest[..colon].to_vec()]);
        }
    }
    let is_read = fields.iter().all(|field| !field.is_empty());
    is_read.then_some(fields)
}

/// Reads the key id of a `Signature` as the draft before RFC 9421 wrote it: `keyId="…",algorithm="…",signature="…"`.
pub(super) fn draft_key_id(value: &[u8]) -> Option<Vec<u8>> {
    let found = list(value, b",")?;
    only(&found, "keyid").map(<[u8]>::to_vec)
}

/// Reads the key ids of `Signature-Input` (RFC 9421); `None` where one of its signatures names no key.
pub(super) fn key_ids(value: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut keys = vec![];
    for member in members(value)? {
        let mut own = member_key_ids(member)?;
        // Of two key ids in one signature, readers disagree on which one counts.
        match (own.pop(), own.pop()) {
            (Some(key), None) if !key.is_empty() => keys.push(key),
            _ => return None,
        }
    }
    keys.sort();
    (!keys.is_empty()).then_some(keys)
}

/// Splits a dictionary at the commas outside of quotes and parentheses.
fn members(value: &[u8]) -> Option<Vec<&[u8]>> {
    let mut members = vec![];
    let (mut rest, mut start, mut depth) = (value, 0, 0_usize);
    let at = |rest: &[u8]| value.len() - rest.len();
    while let Some(byte) = rest.first() {
        match byte {
            b'"' => {
                (_, rest) = quoted(rest)?;
                continue;
            }
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                members.push(&value[start..at(rest)]);
                start = at(rest) + 1;
            }
            _ => {}
        }
        rest = &rest[1..];
    }
    members.push(&value[start..]);
    (depth == 0).then_some(members)
}

/// Returns the values of `;keyid="…"` behind the covered components of a signature. Those within the parentheses are
/// parameters of components.
fn member_key_ids(member: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut found = vec![];
    let (mut rest, mut depth) = (member, 0_usize);
    while let Some(byte) = rest.first() {
        match byte {
            b'"' => {
                (_, rest) = quoted(rest)?;
                continue;
            }
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            b';' if depth == 0 => {
                let after = rest[1..].trim_ascii_start();
                if let Some(value) = after.strip_prefix(b"keyid=") {
                    let (key, after) = quoted(value).filter(|_| value.first() == Some(&b'"'))?;
                    found.push(key);
                    rest = after;
                    continue;
                }
            }
            _ => {}
        }
        rest = &rest[1..];
    }
    Some(found)
}
