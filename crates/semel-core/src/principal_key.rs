//! The secret key under which the credentials of callers are hashed.
//!
//! A proxy and a gateway store no credentials: a caller's name is `HMAC-SHA-256(key, SHA-256(label,
//! credentials))`. Weak credentials could be guessed from a plain hash. So the key is random, lies in the store
//! beside the ledger and never leaves it: a process that uses the ledger over HTTP sends the inner digest and gets
//! the code.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::Digest;

/// The secret key of a ledger for the names of callers.
#[derive(Clone, PartialEq, Eq)]
pub struct PrincipalKey([u8; Self::BYTES]);

impl PrincipalKey {
    /// How many bytes a key has: as many as the hash gives.
    pub const BYTES: usize = 32;

    /// Makes a key of random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for the store that keeps them.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Makes the code of a digest.
    #[must_use]
    pub fn code(&self, digest: &Digest) -> Digest {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("an HMAC takes keys of any length");
        mac.update(&digest.0);
        Digest(mac.finalize().into_bytes().into())
    }
}

impl PrincipalKey {
    /// Derives a secret for another purpose, which [`PrincipalKey::code`] never returns: a code is made of 32 bytes, and
    /// this of more.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> [u8; Self::BYTES] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("an HMAC takes keys of any length");
        mac.update(b"semel secret for a purpose of its own\0");
        mac.update(purpose.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for PrincipalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrincipalKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_the_hmac_of_the_digest_and_differs_for_each_key() {
        let digest = Digest([0xdd; 32]);
        let code = PrincipalKey::new([0xaa; 32]).code(&digest);
        // From Python: hmac.new(b"\xaa" * 32, b"\xdd" * 32, "sha256").hexdigest()
        assert_eq!(
            code.hex(),
            "be91ccc0ccd339b7bc6ec6315f2cc1606c8181971154907925222d9777a6daec"
        );
        assert_ne!(PrincipalKey::new([0xab; 32]).code(&digest), code);
        assert_ne!(PrincipalKey::new([0xaa; 32]).code(&code), code);
    }

    #[test]
    fn derived_secrets_differ_by_purpose_and_from_every_code() {
        let key = PrincipalKey::new([0xaa; 32]);
        assert_ne!(key.derive("a"), key.derive("b"));
        assert_eq!(key.derive("a"), key.derive("a"));
        assert_ne!(key.derive("a"), key.code(&Digest::of(b"a")).0);
        assert_ne!(key.derive("a"), PrincipalKey::new([0xab; 32]).derive("a"));
    }

    #[test]
    fn key_is_not_shown_when_it_is_printed() {
        let shown = format!("{:?}", PrincipalKey::new([0xaa; 32]));
        assert_eq!(shown, "PrincipalKey(..)");
    }
}
