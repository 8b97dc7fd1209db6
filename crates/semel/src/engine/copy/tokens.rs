//! Tokens go along with their ledger, so that a server goes on with the new store and its callers notice
//! nothing.

use super::{Copied, Copying};
use crate::error::Result;
use crate::store::PAGE_MAX;

impl<W: FnMut(&Copied)> Copying<'_, W> {
    /// Brings every token to the target. It can be done again: what was revoked or used meanwhile is
    /// brought up to date, and no revocation is ever taken back.
    pub(super) async fn bring_tokens(&mut self) -> Result<()> {
        let to = self.to.store();
        let mut after = None;
        self.report.tokens = 0;
        loop {
            let page = self.from.tokens(after, PAGE_MAX).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.id);
            self.report.tokens += page.len() as u64;
            for token in page {
                if to.add_token(token.clone()).await? {
                    continue;
                }
                if let Some(at) = token.revoked_at {
                    to.revoke_token(token.id, at).await?;
                }
                if let Some(at) = token.last_used_at {
                    to.note_token_use(token.id, at).await?;
                }
            }
        }
    }
}
