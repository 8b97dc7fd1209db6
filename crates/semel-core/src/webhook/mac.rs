//! Codes over bytes: made, written and compared.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Sha256, Sha512};
use subtle::ConstantTimeEq as _;

use super::secret::Secret;

/// Base64 as senders write it: some leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What an HMAC hashes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Reads the word that users see.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let known = [Self::Sha256, Self::Sha512];
        known.into_iter().find(|known| known.as_str() == word)
    }

    /// Makes the code of the concatenation of some parts.
    pub(super) fn code(self, secret: &Secret, parts: &[&[u8]]) -> Vec<u8> {
        macro_rules! code {
            ($hash:ty) => {{
                let mut mac = Hmac::<$hash>::new_from_slice(secret.bytes())
                    .expect("an HMAC takes keys of any length");
                parts.iter().for_each(|part| mac.update(part));
                mac.finalize().into_bytes().to_vec()
            }};
        }
        match self {
            Self::Sha256 => code!(Sha256),
            Self::Sha512 => code!(Sha512),
        }
    }
}

/// How a code is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Hexadecimal digits.
    #[default]
    Hex,
    /// Base64 with the standard alphabet.
    Base64,
}

impl Encoding {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Base64 => "base64",
        }
    }

    /// Reads the word that users see.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let known = [Self::Hex, Self::Base64];
        known.into_iter().find(|known| known.as_str() == word)
    }

    pub(super) fn write(self, code: &[u8]) -> String {
        match self {
            Self::Hex => code.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::Base64 => BASE64.encode(code),
        }
    }

    /// Reads a code; what is none equals no code.
    pub(super) fn read(self, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Hex => from_hex(text),
            Self::Base64 => BASE64.decode(text).ok(),
        }
    }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8; 2]| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok();
    rest.is_empty()
        .then(|| pairs.iter().map(byte).collect())
        .flatten()
}

/// Says whether any of the codes that were sent is one that a secret makes. Every one is compared, and each in constant
/// time: how long it takes tells nothing about how much of it was right.
pub(super) fn is_any(sent: &[Vec<u8>], made: &[Vec<u8>]) -> bool {
    let mut found = subtle::Choice::from(0);
    for sent in sent {
        for made in made {
            found |= sent.as_slice().ct_eq(made);
        }
    }
    found.into()
}
