//! Adopting a copy: a store that was restored goes on only after its fences are above everything
//! that the original can have granted.

use std::sync::Arc;

use semel_core::Label;
use semel_core::ledger::{Adopt, Command, Record, StateKind};
use tokio::task::JoinSet;

use super::Engine;
use super::ledger::{Brought, Subject};
use crate::error::{Error, Result};
use crate::store::{PAGE_MAX, Query, StoreError};

/// By how much adopting raises every fence: more attempts than the original can have granted since
/// the copy was made, and few enough that a store can be adopted for ever.
const FENCE_STEP: u64 = 1 << 32;

/// What adopting a store did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Records whose fence was raised.
    pub records: u64,
    /// Operations that ran when the copy was made, and are in doubt now.
    pub doubtful: u64,
}

impl Engine {
    /// Makes a copy a store of its own: raises every fence and turns what ran into doubts.
    ///
    /// The store must have been opened to be adopted (`SqliteStore::open_copy`). What was begun in
    /// the original after the copy was made cannot be known, and would run again. When this fails
    /// in the middle the store stays a copy; adopting it again raises some fences twice, which does
    /// no harm.
    ///
    /// # Errors
    /// Fails when the store does, or may not be written.
    pub async fn adopt(&self, by: Label) -> Result<Adopted> {
        self.adopt_while(by, |_| {}).await
    }

    /// As [`Engine::adopt`], and tells after each page how far it has come.
    ///
    /// # Errors
    /// As [`Engine::adopt`].
    pub async fn adopt_while(
        &self,
        by: Label,
        mut progress: impl FnMut(&Adopted),
    ) -> Result<Adopted> {
        let command = Command::Adopt(Adopt {
            fence_step: FENCE_STEP,
            by,
        });
        let ledger = &self.inner.ledger;
        let mut adopted = Adopted::default();
        let mut cursor = None;
        loop {
            let query = Query {
                states: StateKind::ALL.to_vec(),
                oldest_first: true,
                cursor,
                limit: PAGE_MAX,
                ..Query::default()
            };
            let page = ledger.store.list(query).await?;
            // Together, so that they share their commits.
            let mut commands = JoinSet::new();
            for stored in page.items {
                let (inner, command) = (Arc::clone(&self.inner), command.clone());
                commands.spawn(async move {
                    let ran = stored.record.kind() == StateKind::Running;
                    let subject = Subject::unnamed(stored.record.key_hash());
                    let none = Brought::default();
                    let applied = inner.ledger.apply(&subject, None, &command, &none).await?;
                    let now = applied.current.record().map(Record::kind);
                    Ok::<_, Error>(ran && now == Some(StateKind::Doubtful))
                });
            }
            while let Some(doubted) = commands.join_next().await {
                let doubted = doubted.map_err(|error| {
                    StoreError::Unavailable(format!("adopting was interrupted: {error}"))
                })??;
                adopted.records += 1;
                adopted.doubtful += u64::from(doubted);
            }
            progress(&adopted);
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        ledger.store.adopted().await?;
        Ok(adopted)
    }
}
