//! Housekeeping: what time does to operations, in bounded slices.

use std::sync::{Arc, Weak};
use std::time::Duration;

use semel_core::Timestamp;
use semel_core::clock::sweep;
use semel_core::ledger::{Command, Decision, Expire, Horizon, Record, StateKind};
use tokio::task::JoinSet;

use super::ledger::{Brought, Subject};
use super::{Engine, Inner};
use crate::error::{Error, Result};
use crate::store::{Pass, Progress, Query, StoreError, open_notes};

/// How many running operations one sweep looks at.
const RUNNING_MAX: usize = 1_000;

/// How many settled operations one sweep looks at.
const SETTLED_MAX: usize = 1_000;

/// How many commands of a sweep go at once: a store writes them together, and others get their turn.
const TOGETHER: usize = 128;

/// How much sooner the background sweep comes again while a pass of retention is under way: a large
/// store would otherwise grow faster than it is cleared.
const SOONER: u32 = 30;

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Leases that had ended.
    pub expired: usize,
    /// Settled operations that became tombstones.
    pub buried: usize,
    /// Tombstones and stubs that were dropped.
    pub dropped: usize,
    /// Whether the pass of retention is not over: the next sweep goes on with it.
    pub unfinished: bool,
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

    /// Sweeps if nobody has for an hour: for processes that are too short-lived to sweep in the
    /// background.
    ///
    /// # Errors
    /// As [`Engine::sweep`].
    pub async fn sweep_if_due(&self) -> Result<Option<Swept>> {
        if self.inner.ledger.is_elsewhere() {
            self.inner.tidy_notes();
            return Ok(None);
        }
        let store = &self.inner.ledger.store;
        let mark = store.sweep_mark(None).await?;
        let (next, _) = sweep(mark.as_ref(), store.now(), &store.reading());
        if mark == Some(next) {
            return Ok(None);
        }
        self.sweep().await.map(Some)
    }
}

/// Sweeps again and again until the engine is gone.
pub(super) async fn run(inner: Weak<Inner>, pause: Duration) {
    let mut next = pause;
    loop {
        tokio::time::sleep(next).await;
        let Some(inner) = inner.upgrade() else { return };
        // A sweep that failed leaves its work to the next one.
        let unfinished = inner.sweep().await.is_ok_and(|swept| swept.unfinished);
        next = if unfinished { pause / SOONER } else { pause };
    }
}

impl Inner {
    async fn sweep(self: &Arc<Self>) -> Result<Swept> {
        if self.ledger.is_elsewhere() {
            // The server sweeps; what lies on this machine is nobody else's.
            self.tidy_notes();
            return Ok(Swept::default());
        }
        let store = &self.ledger.store;
        let stored = store.sweep_progress(None).await?;
        let mut progress = stored;
        let mut swept = Swept {
            expired: self.expire(&mut progress).await?,
            ..Swept::default()
        };
        // A pass goes on with the next sweeps, as a store may hold more than one of them looks at.
        if let Some(horizon) = self.horizon().await? {
            let after = progress.retention.and_then(|pass| pass.after);
            progress.retention = Some(Pass { horizon, after });
        }
        if let Some(pass) = progress.retention {
            progress.retention = self.retain(pass, &mut swept).await?;
            swept.unfinished = progress.retention.is_some();
        }
        if progress != stored {
            store.sweep_progress(Some(progress)).await?;
        }
        store.tidy().await?;
        self.tidy_notes();
        Ok(swept)
    }

    /// Puts in order what lies beside the store on this machine.
    fn tidy_notes(&self) {
        if let Ok(Some(directory)) = open_notes(&*self.ledger.store) {
            crate::hold::tidy(&directory, std::time::SystemTime::now());
        }
    }

    /// Ends the leases that are over.
    async fn expire(self: &Arc<Self>, progress: &mut Progress) -> Result<usize> {
        let query = Query {
            states: vec![StateKind::Running],
            cursor: progress.running,
            limit: RUNNING_MAX,
            ..Query::default()
        };
        let page = self.ledger.store.list(query).await?;
        progress.running = page.next;
        let now = self.ledger.store.now();
        let over = page.items.into_iter().filter(|stored| {
            let operation = stored.record.operation();
            operation.is_some_and(|operation| operation.kind_at(now) != StateKind::Running)
        });
        let expire = Command::Expire(Expire { gone: None });
        let orders = over.map(|stored| (stored.record, expire.clone()));
        self.order_all(orders.collect()).await
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

    /// Applies retention to a slice of the settled operations; returns what is left of the pass.
    async fn retain(self: &Arc<Self>, pass: Pass, swept: &mut Swept) -> Result<Option<Pass>> {
        let horizon = Horizon(pass.horizon);
        let query = Query {
            states: vec![
                StateKind::Succeeded,
                StateKind::Failed,
                StateKind::Tombstone,
                StateKind::Stub,
            ],
            oldest_first: true,
            cursor: pass.after,
            limit: SETTLED_MAX,
            ..Query::default()
        };
        let page = self.ledger.store.list(query).await?;
        let now = self.ledger.store.now();
        let (mut bury, mut drop) = (vec![], vec![]);
        for stored in page.items {
            let (orders, command) = match &*stored.record {
                Record::Operation(_) => (&mut bury, Command::Bury(horizon)),
                Record::Tombstone(_) | Record::Stub(_) => (&mut drop, Command::Drop(horizon)),
                // It was not asked for: no breaker is ever old.
                Record::Breaker(_) => continue,
            };
            // Most are not due: what was just read tells that, without asking the store again.
            let decision = (self.ledger.rules)(Some(&stored.record), &command, now);
            if matches!(decision, Ok(Decision::Write(_))) {
                orders.push((stored.record, command));
            }
        }
        swept.buried += self.order_all(bury).await?;
        swept.dropped += self.order_all(drop).await?;
        let next = page.next;
        Ok(next.map(|after| Pass {
            after: Some(after),
            ..pass
        }))
    }

    /// Carries commands out, many at once; returns how many changed something.
    async fn order_all(self: &Arc<Self>, orders: Vec<(Arc<Record>, Command)>) -> Result<usize> {
        let mut changed = 0;
        for orders in orders.chunks(TOGETHER) {
            let mut ordered = JoinSet::new();
            for (record, command) in orders {
                let (inner, record) = (Arc::clone(self), Arc::clone(record));
                let command = command.clone();
                ordered.spawn(async move { inner.order(&record, &command).await });
            }
            while let Some(order) = ordered.join_next().await {
                let order = order.map_err(|error| {
                    StoreError::Unavailable(format!("a sweep was interrupted: {error}"))
                })?;
                changed += usize::from(order?);
            }
        }
        Ok(changed)
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
