//! SHA-256, and the two things that Semel hashes: keys and inputs.

use core::fmt;

use sha2::{Digest as _, Sha256};

use crate::text::{Key, Namespace};
use crate::time::Timestamp;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Hashes some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_parts(&[bytes])
    }

    /// Hashes the concatenation of some parts; the caller keeps their borders unambiguous.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Hashes what comes piece by piece, until a piece cannot be had.
    ///
    /// # Errors
    /// Passes on why not.
    pub fn of_pieces<E>(pieces: impl IntoIterator<Item = Result<Vec<u8>, E>>) -> Result<Self, E> {
        let mut hasher = Sha256::new();
        for piece in pieces {
            hasher.update(piece?);
        }
        Ok(Self(hasher.finalize().into()))
    }

    /// Reads what [`Digest::hex`] writes: 64 digits, in lower case.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// Returns the digest as 64 hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        self.0
            .iter()
            .fold(String::with_capacity(64), |mut text, byte| {
                // Writing to a String cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// A digest of what comes piece by piece, over time.
#[derive(Clone, Debug, Default)]
pub struct Hashing(Sha256);

impl Hashing {
    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the digest of all of them.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// The hash by which a store finds an operation: namespace and key, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub Digest);

impl KeyHash {
    /// Hashes a namespace and a key; no two pairs share their bytes, as a namespace holds no NUL.
    #[must_use]
    pub fn of(namespace: &Namespace, key: &Key) -> Self {
        Self(Digest::of_parts(&[
            namespace.as_str().as_bytes(),
            b"\0",
            key.as_str().as_bytes(),
        ]))
    }

    /// Returns a key for an upstream that honours keys: the same for every attempt of the operation that was made under
    /// this hash at this time, and that of no other one, in this ledger or elsewhere. Two ledgers may know the same key;
    /// they did not make it in the same microsecond.
    #[must_use]
    pub fn upstream_key(&self, created_at: Timestamp) -> String {
        let mut hex = Digest::of_parts(&[
            b"semel-upstream-key\0",
            &self.0.0,
            &created_at.0.to_be_bytes(),
        ])
        .hex();
        hex.truncate(32);
        format!("semel-{hex}")
    }
}
