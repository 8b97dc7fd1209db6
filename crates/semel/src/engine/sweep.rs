//! Housekeeping: what time does to operations, in bounded slices.

use std::sync::{PoisonError, Weak};
use std::time::Duration;

use semel_core::Timestamp;
use semel_core::clock::sweep;
use semel_core::ledger::{Command, Expire, Horizon, Record, StateKind};

use super::ledger::{Brought, Subject};
use super::{Engine, Inner};
use crate::error::{Error, Result};
use crate::store::{Place, Query};

/// How many running operations one sweep looks at.
const RUNNING_MAX: usize = 1_000;

/// How many settled operations one sweep looks at.
const SETTLED_MAX: usize = 1_000;

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Leases that had ended.
    pub expired: usize,
    /// Settled operations that became tombstones.
    pub buried: usize,
    /// Tombstones and stubs that were dropped.
    pub dropped: usize,
}

/// Where the next sweep goes on.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    running: Option<Place>,
    settled: Option<Place>,
    /// Up to when retention may act, while a pass over the settled operations is under way.
    horizon: Option<Timestamp>,
}

impl Engine {
    /// Applies ended leases and retention to a bounded slice of the store.
    ///
    /// Retention acts only after the clocks of two sweeps, at least an hour apart, agree.
    ///
    /// # Errors
    /// Fails when the store does; what was done stays done.
    pub async fn sweep(&self) -> Result<Swept> {
        self.inner.sweep().await
    }
}

/// Sweeps again and again until the engine is gone.
pub(super) async fn run(inner: Weak<Inner>, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let Some(inner) = inner.upgrade() else { return };
        // A sweep that failed leaves its work to the next one.
        drop(inner.sweep().await);
    }
}

impl Inner {
    async fn sweep(&self) -> Result<Swept> {
        let mut swept = Swept {
            expired: self.expire().await?,
            ..Swept::default()
        };
        let horizon = self.horizon().await?;
        // A pass goes on with the next sweeps, as a store may hold more than one of them looks at.
        let horizon = horizon.or(self.cursors().horizon);
        if let Some(horizon) = horizon {
            self.cursors().horizon = Some(horizon);
            self.retain(Horizon(horizon), &mut swept).await?;
        }
        self.ledger.store.tidy().await?;
        Ok(swept)
    }

    fn cursors(&self) -> std::sync::MutexGuard<'_, Cursors> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the leases that are over.
    async fn expire(&self) -> Result<usize> {
        let cursor = self.cursors().running;
        let query = Query {
            states: vec![StateKind::Running],
            cursor,
            limit: RUNNING_MAX,
            ..Query::default()
        };
        let page = self.ledger.store.list(query).await?;
        self.cursors().running = page.next;
        let now = self.ledger.store.now();
        let mut expired = 0;
        for stored in page.items {
            let Some(operation) = stored.record.operation() else {
                continue;
            };
            if operation.kind_at(now) != StateKind::Running {
                let command = Command::Expire(Expire { gone: None });
                expired += usize::from(self.order(&stored.record, &command).await?);
            }
        }
        Ok(expired)
    }

    /// Finds out up to when retention may act, if it may.
    async fn horizon(&self) -> Result<Option<Timestamp>> {
        let store = &self.ledger.store;
        let mark = store.sweep_mark(None).await?;
        let (next, horizon) = sweep(mark.as_ref(), store.now(), &store.reading());
        if mark != Some(next) {
            store.sweep_mark(Some(next)).await?;
        }
        Ok(horizon)
    }

    async fn retain(&self, horizon: Horizon, swept: &mut Swept) -> Result<()> {
        let cursor = self.cursors().settled;
        let query = Query {
            states: vec![
                StateKind::Succeeded,
                StateKind::Failed,
                StateKind::Tombstone,
                StateKind::Stub,
            ],
            oldest_first: true,
            cursor,
            limit: SETTLED_MAX,
            ..Query::default()
        };
        let page = self.ledger.store.list(query).await?;
        {
            let mut cursors = self.cursors();
            cursors.settled = page.next;
            if page.next.is_none() {
                cursors.horizon = None;
            }
        }
        for stored in page.items {
            match &*stored.record {
                Record::Operation(_) => {
                    let buried = self.order(&stored.record, &Command::Bury(horizon)).await?;
                    swept.buried += usize::from(buried);
                }
                Record::Tombstone(_) | Record::Stub(_) => {
                    let dropped = self.order(&stored.record, &Command::Drop(horizon)).await?;
                    swept.dropped += usize::from(dropped);
                }
            }
        }
        Ok(())
    }

    /// Carries a command out and says whether it changed anything.
    async fn order(&self, record: &Record, command: &Command) -> Result<bool> {
        let subject = Subject::unnamed(record.key_hash());
        match self
            .ledger
            .apply(&subject, None, command, &Brought::default())
            .await
        {
            Ok(applied) => {
                Ok(applied.current.record().map(Record::version) != Some(record.version()))
            }
            // Somebody else changed it meanwhile: the next sweep looks again.
            Err(Error::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
