//! What senders sign with.

use core::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// A secret that a sender and this inbox share. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// Says why a text is no secret, without showing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It does not have the form of Standard Webhooks.
    #[error("a secret of Standard Webhooks is whsec_ and 24 to 64 bytes in base64")]
    Form,
    /// It is half of a pair of keys.
    #[error(
        "it is a key for asymmetric signatures (v1a), which are not verified; ask the sender for a whsec_ secret"
    )]
    Asymmetric,
    /// It could be guessed.
    #[error("a secret has at least {limit} bytes", limit = Secret::MIN_BYTES)]
    Short,
    /// It is longer than any sender makes one.
    #[error("a secret has at most {limit} bytes", limit = Secret::MAX_BYTES)]
    Long,
}

impl Secret {
    /// How a secret of Standard Webhooks begins.
    pub const PREFIX: &str = "whsec_";
    /// The fewest bytes: fewer can be guessed.
    pub const MIN_BYTES: usize = 8;
    /// The most bytes: a file that was named by mistake is longer.
    pub const MAX_BYTES: usize = 1_024;

    /// Takes a text as it is, as Stripe, GitHub and Slack do.
    ///
    /// # Errors
    /// Refuses one that is too short or too long.
    pub fn plain(text: &str) -> Result<Self, SecretError> {
        match text.len() {
            0..Self::MIN_BYTES => Err(SecretError::Short),
            Self::MIN_BYTES..=Self::MAX_BYTES => Ok(Self(text.as_bytes().to_vec())),
            _ => Err(SecretError::Long),
        }
    }

    /// Reads a secret of Standard Webhooks: `whsec_` and 24 to 64 bytes in base64.
    ///
    /// # Errors
    /// Says what is wrong, without showing it.
    pub fn standard(text: &str) -> Result<Self, SecretError> {
        if text.starts_with("whpk_") || text.starts_with("whsk_") {
            return Err(SecretError::Asymmetric);
        }
        let bytes = text.strip_prefix(Self::PREFIX);
        let bytes = bytes.and_then(|text| BASE64_STANDARD.decode(text).ok());
        let bytes = bytes.filter(|bytes| (24..=64).contains(&bytes.len()));
        bytes.map(Self).ok_or(SecretError::Form)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
