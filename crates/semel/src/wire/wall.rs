//! The wall between namespaces: what a caller may see of a store.

use std::collections::HashMap;

use semel_core::identity::Kin;
use semel_core::ledger::{Command, Record};
use semel_core::queue::QueueHash;
use semel_core::{KeyHash, Namespace};

use crate::store::{AbsentAsOf, Current, Logged, Place, Result, Store, Stored, Waiting};

/// A store as somebody behind a wall sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wall<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) namespace: &'a Namespace,
}

impl Wall<'_> {
    /// Loads what is stored under a key; another namespace's is not there.
    pub(super) async fn load(self, key: &KeyHash) -> Result<Current> {
        match self.store.load(key).await? {
            Current::Stored(stored) if !self.has(&stored).await? => {
                Ok(Current::Absent(AbsentAsOf(self.store.end().await?)))
            }
            current => Ok(current),
        }
    }

    /// Loads what lies at a place; another namespace's is not there.
    pub(super) async fn load_at(self, place: Place) -> Result<Option<Stored>> {
        match self.store.load_at(place).await? {
            Some(stored) if self.has(&stored).await? => Ok(Some(stored)),
            Some(_) | None => Ok(None),
        }
    }

    /// Loads the records that count among these kin; another namespace's are not there.
    pub(super) async fn kin(self, kin: Kin) -> Result<Vec<Stored>> {
        let found = self.store.kin(kin).await?;
        let is_own = |stored: &Stored| named(&stored.record) == Some(self.namespace);
        Ok(found.into_iter().filter(is_own).collect())
    }

    /// Loads tasks that wait and are due; another namespace's are not there.
    pub(super) async fn waiting(self, ask: Waiting) -> Result<Vec<Stored>> {
        let found = self.store.waiting(ask).await?;
        let is_own = |stored: &Stored| named(&stored.record) == Some(self.namespace);
        Ok(found.into_iter().filter(is_own).collect())
    }

    /// Counts the tasks that workers of a queue have. Its hash can be made by anybody: one task tells whose they are.
    pub(super) async fn taken(
        self,
        queue: QueueHash,
        lane: Option<u64>,
        limit: usize,
    ) -> Result<usize> {
        let one = Waiting {
            queue,
            now: self.store.now(),
            after_lane: 0,
            skip: 0,
            limit: 1,
            taken: true,
            inputs: false,
        };
        if self.waiting(one).await?.is_empty() {
            return Ok(0);
        }
        self.store.taken(queue, lane, limit).await
    }

    /// Says whether what lies at a place is the caller's.
    pub(super) async fn has_place(self, place: Place) -> Result<bool> {
        Ok(self.load_at(place).await?.is_some())
    }

    /// Says whether a record is the caller's.
    pub(super) async fn has(self, stored: &Stored) -> Result<bool> {
        match named(&stored.record) {
            Some(namespace) => Ok(namespace == self.namespace),
            None => self.began_at(stored.place).await,
        }
    }

    /// Says whether the first command at a place was the caller's: a stub has forgotten whose it was,
    /// and so has the place of one that was dropped.
    async fn began_at(self, place: Place) -> Result<bool> {
        let Some(before) = place.0.checked_sub(1) else {
            return Ok(false);
        };
        let first = self.store.log(before, 1).await?.into_iter().next();
        Ok(first.is_some_and(|first| {
            first.seq == place.0 && self.is_named(&first.entry.command) == Some(true)
        }))
    }

    /// Says whether a command names the caller's namespace; `None` when it names none.
    fn is_named(self, command: &Command) -> Option<bool> {
        let spec = match command {
            Command::Submit(submit) => &submit.spec,
            Command::Begin(begin) => &begin.spec,
            Command::Breaker(ask) => return Some(ask.namespace == *self.namespace),
            Command::Renew(_)
            | Command::Settle(_)
            | Command::Expire(_)
            | Command::Resolve(_)
            | Command::Retry(_)
            | Command::Cancel(_)
            | Command::Forget(_)
            | Command::Bury(_)
            | Command::Drop(_)
            | Command::Deliver(_)
            | Command::Adopt(_) => return None,
        };
        Some(spec.namespace == *self.namespace)
    }

    /// Leaves out the log entries that are not the caller's. What was about no operation is nobody's.
    pub(super) async fn own(self, page: Vec<Logged>) -> Result<Vec<Logged>> {
        let mut known: HashMap<Place, bool> = HashMap::new();
        let mut own = vec![];
        for logged in page {
            let Some(place) = logged.place else { continue };
            let is_own = match (self.is_named(&logged.entry.command), known.get(&place)) {
                (Some(is_own), _) => is_own,
                (None, Some(is_own)) => *is_own,
                (None, None) => match self.store.load_at(place).await? {
                    Some(stored) => self.has(&stored).await?,
                    None => self.began_at(place).await?,
                },
            };
            known.insert(place, is_own);
            if is_own {
                own.push(logged);
            }
        }
        Ok(own)
    }
}

/// Returns the namespace that a record names; a stub names none.
fn named(record: &Record) -> Option<&Namespace> {
    match record {
        Record::Operation(operation) => Some(&operation.spec.namespace),
        Record::Tombstone(tombstone) => Some(&tombstone.namespace),
        Record::Breaker(breaker) => Some(&breaker.namespace),
        Record::Stub(_) => None,
    }
}
