//! JSON Web Tokens: issuer and subject stay the same when a token is refreshed.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::canonical::{Limits, canonicalize};
use crate::identity::Pointer;

/// The schemes of `Authorization` that a token may stand behind.
const SCHEMES: [&str; 3] = ["bearer", "dpop", "jwt"];

/// Reads `iss` and `sub` of a token, which is not verified; `None` where it is no token, or lacks one of them.
pub(super) fn issuer_and_subject(value: &[u8]) -> Option<[Vec<u8>; 2]> {
    let text = core::str::from_utf8(value).ok()?;
    let token = match text.split_once(' ') {
        Some((scheme, token)) => SCHEMES
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
            .then(|| token.trim())?,
        None => text,
    };
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    // Repeated members have no single meaning, and are refused there.
    let claims = canonicalize(&payload, &Limits::default()).ok()?;
    let claim = |pointer: &str| {
        let value = Pointer::new(pointer).ok()?.find(&claims)?.to_vec();
        let is_text = value.first() == Some(&b'"') && value.len() > 2;
        is_text.then_some(value)
    };
    Some([claim("/iss")?, claim("/sub")?])
}
