//! What credentials are hashed with.

use std::fmt;

use semel::Engine;
use semel::core::Digest;

use crate::StartError;
use crate::notify::hmac;

/// How many bytes of a keyed hash name somebody.
const NAME_BYTES: usize = 16;

/// What credentials are hashed with, so that nobody can guess them from what is stored.
#[derive(Clone)]
pub(crate) struct Pepper(Vec<u8>);

impl fmt::Debug for Pepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pepper")
    }
}

impl Pepper {
    /// Takes 16 to 64 bytes that nobody else knows and that stay the same: a principal is part of a call's scope.
    pub(crate) fn new(bytes: Vec<u8>) -> Result<Self, String> {
        if (16..=64).contains(&bytes.len()) {
            return Ok(Self(bytes));
        }
        Err("16 to 64 bytes are needed".to_owned())
    }

    /// Makes the one of a door to a ledger: the same for as long as the store is the same one.
    pub(crate) async fn of(engine: &Engine, door: &str) -> Result<Self, StartError> {
        // A store without a number of its own is one in memory, or another server's.
        let id = engine.store().id().await.unwrap_or_default();
        let label = format!("semel-{door}-principal\0");
        let hash = Digest::of_parts(&[label.as_bytes(), id.as_bytes()]);
        Self::new(hash.0.to_vec()).map_err(StartError::Upstream)
    }

    /// Names whoever shows these credentials.
    pub(crate) fn principal(&self, credentials: &[u8]) -> String {
        let hash = hmac(&self.0, &[credentials]);
        let name = hash.0[..NAME_BYTES]
            .iter()
            .map(|byte| format!("{byte:02x}"));
        format!("auth {}", name.collect::<String>())
    }
}
