//! Marks become durable behind the calls: nobody waits for them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use semel_core::ledger::{Command, Delivery, StateKind};
use tokio::task::JoinSet;

use super::{Inner, lock};
use crate::engine::{Brought, Subject};
use crate::error::Error;
use crate::store::group::together;
use crate::store::{Current, StoreError};

/// How long marks gather before they are stored. Whoever calls next would wait behind their sync, so it
/// should be one for many; a crash loses what was gathered, which swallows one repeat for each.
const GATHER: Duration = Duration::from_millis(50);

/// The pause before marks are tried again that the store did not take.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Marks that are stored at once.
const AT_ONCE: usize = 256;

/// Stores marks for as long as the doorway is there.
pub(super) async fn run(inner: Weak<Inner>) {
    loop {
        let Some(due) = inner.upgrade().map(|inner| Arc::clone(&inner.due)) else {
            return;
        };
        due.notified().await;
        tokio::time::sleep(GATHER).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        if !inner.store_marks().await {
            inner.due.notify_one();
            drop(inner);
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

/// What became of a mark.
enum Fate {
    /// It is stored, or never can be: the operation was forgotten, or the store takes no marks.
    Settled,
    /// The store is not there right now.
    Later,
}

impl Inner {
    /// Stores the marks that are due; returns whether none is left because of the store.
    pub(super) async fn store_marks(self: &Arc<Self>) -> bool {
        // One after the other: of two marks of one operation the later one must be stored last, and who
        // asks for all of them waits for those that are on their way.
        let _turn = self.storing.lock().await;
        loop {
            let marks = lock(&self.memory).take_due();
            if marks.is_empty() {
                return true;
            }
            let mut all = true;
            for some in marks.chunks(AT_ONCE) {
                all &= self.store_some(some).await;
            }
            if !all {
                return false;
            }
        }
    }

    async fn store_some(self: &Arc<Self>, marks: &[(Subject, Delivery)]) -> bool {
        let mut tasks = JoinSet::new();
        for (subject, mark) in marks.iter().cloned() {
            let inner = Arc::clone(self);
            tasks.spawn(together(async move {
                let fate = inner.store_mark(&subject, mark).await;
                let mut memory = lock(&inner.memory);
                match fate {
                    Fate::Settled => memory.stored(subject.hash, mark),
                    Fate::Later => memory.unstored(subject.hash),
                }
                matches!(fate, Fate::Settled)
            }));
        }
        let stored = tasks.join_all().await;
        stored.into_iter().all(|stored| stored)
    }

    async fn store_mark(&self, subject: &Subject, mark: Delivery) -> Fate {
        // A doubt is met again whatever its callers got; and whoever looks into it decides on a version, which
        // must not change under their hands for nothing.
        if mark != Delivery::Delivered && self.is_doubtful(subject).await {
            return Fate::Settled;
        }
        let command = Command::Deliver(mark);
        let brought = Brought::default();
        match self.engine.apply(subject, &command, &brought).await {
            Err(Error::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))) => Fate::Later,
            Ok(_) | Err(_) => Fate::Settled,
        }
    }

    async fn is_doubtful(&self, subject: &Subject) -> bool {
        match self.store().load(&subject.hash).await {
            Ok(Current::Stored(stored)) => {
                stored.record.kind_at(self.store().now()) == StateKind::Doubtful
            }
            Ok(Current::Absent(_)) | Err(_) => false,
        }
    }
}
