//! Names of callers: codes of their credentials, under a key that the store keeps.

use semel_core::{Digest, PrincipalKey};
use tokio::sync::OnceCell;

use super::Engine;
use crate::error::Result;
use crate::store::StoreError;

/// The key, once it was asked for. It stays the same for as long as the store does.
pub(super) type KnownKey = OnceCell<PrincipalKey>;

impl Engine {
    /// Makes the code of a digest under the ledger's secret key. The first call makes the key; all processes that
    /// use the ledger get the same codes, also those that use it over HTTP.
    ///
    /// # Errors
    /// Fails when the store does, and on a copy that may only be read and has no key.
    pub async fn principal_code(&self, digest: &Digest) -> Result<Digest> {
        #[cfg(feature = "remote")]
        if let Some(remote) = self.store().as_remote() {
            return Ok(remote.principal_code(digest).await?);
        }
        Ok(self.known_key().await?.code(digest))
    }

    /// Derives a secret for a purpose of a server's own from the ledger's key: the same for every process that opens the
    /// store itself. `None` on a ledger that another server keeps, as the key does not leave it.
    ///
    /// # Errors
    /// As [`Engine::principal_code`].
    pub async fn derive_secret(&self, purpose: &str) -> Result<Option<[u8; PrincipalKey::BYTES]>> {
        #[cfg(feature = "remote")]
        if self.store().as_remote().is_some() {
            return Ok(None);
        }
        Ok(Some(self.known_key().await?.derive(purpose)))
    }

    async fn known_key(&self) -> Result<&PrincipalKey> {
        let key = &self.inner.principal_key;
        key.get_or_try_init(|| self.key()).await
    }

    /// Loads the key, or makes it.
    async fn key(&self) -> Result<PrincipalKey> {
        let store = self.store();
        if let Some(key) = store.principal_key().await? {
            return Ok(key);
        }
        let mut random = [0; PrincipalKey::BYTES];
        getrandom::fill(&mut random).map_err(|error| {
            StoreError::Unavailable(format!("the system gives no randomness: {error}"))
        })?;
        // Another process may have stored one meanwhile: the stored one counts.
        Ok(store.offer_principal_key(PrincipalKey::new(random)).await?)
    }
}
