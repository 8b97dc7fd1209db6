//! The key for the names of callers goes along with its ledger: under another one, the retry of a proxied request
//! would be another operation.

use super::{Copied, Copying};
use crate::error::Result;

impl<W: FnMut(&Copied)> Copying<'_, W> {
    /// Brings the key to the target, in place of one that was made while the target was empty.
    pub(super) async fn bring_principal_key(&self) -> Result<()> {
        if let Some(key) = self.from.principal_key().await? {
            self.to.store().replace_principal_key(key).await?;
        }
        Ok(())
    }
}
