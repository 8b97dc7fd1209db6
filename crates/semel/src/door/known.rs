//! What a call is judged by: what the store knows of the calls before it, and what was seen of them here.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel_core::identity::{
    Call, ClientKey, Identity, Kin, Prior, has_lapsed, identify, ledger_key, names,
};
use semel_core::ledger::{Delivery, Record, StateKind};
use semel_core::{Key, KeyHash, Namespace, Timestamp};

use super::memory::Memory;
use super::{Inner, lock};
use crate::engine::Subject;
use crate::error::{Error, Result};
use crate::store::{Current, KIN_MAX, Store, Stored};

/// A call as it was judged.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) identity: Identity,
    /// What is stored under the operation's key, if it is not new.
    pub(super) record: Option<Arc<Record>>,
    /// Whether those who called for it before got their answers.
    pub(super) delivery: Delivery,
    /// As of when.
    pub(super) at: Timestamp,
}

/// A call, and where it is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) call: &'a Call,
    pub(super) namespace: &'a Namespace,
    pub(super) kin: Kin,
}

impl<'a> Asked<'a> {
    fn hash(self, key: &Key) -> KeyHash {
        KeyHash::of(self.namespace, key)
    }

    /// Returns the hash of the ledger key that the call's id would have of its own.
    pub(super) fn by_call_id(self) -> Option<KeyHash> {
        let Call { door, scope, .. } = self.call;
        let id = ClientKey::CallId(self.call.call_id.clone()?);
        Some(self.hash(&ledger_key(*door, scope, &id, 1)))
    }

    /// Says whether the identical calls before it may have to be looked at.
    pub(super) const fn has_kin(self) -> bool {
        self.call.explicit.is_none() && self.call.business.is_none()
    }
}

/// Records by their keys, the newest reading of each.
#[derive(Debug, Default)]
struct Known(BTreeMap<Key, Arc<Record>>);

impl Known {
    fn add(&mut self, namespace: &Namespace, record: Arc<Record>) {
        let (named, key) = match &*record {
            Record::Operation(operation) => (&operation.spec.namespace, &operation.spec.key),
            Record::Tombstone(tombstone) => (&tombstone.namespace, &tombstone.key),
            Record::Stub(_) | Record::Breaker(_) => return,
        };
        // Kin share 64 bits of a hash, which two namespaces may, too.
        if named == namespace {
            let key = key.clone();
            self.0.insert(key, record);
        }
    }

    fn priors(&self, now: Timestamp) -> Vec<Prior> {
        let records = self.0.values();
        records
            .filter_map(|record| Prior::of(record, now))
            .collect()
    }
}

impl Inner {
    /// Judges a call by what is stored and by what was seen here.
    pub(super) async fn judge(self: &Arc<Self>, asked: Asked<'_>) -> Result<Judged> {
        // What is marked as stored while the store is read is known from before.
        let mut seen = lock(&self.memory).of_kin(asked.kin);
        let mut known = Known::default();
        let remembered = self.load_own(asked, &mut known).await?;
        let now = self.store().now();
        let mut own = known.priors(now);
        remember(asked, remembered.as_ref(), &mut own);
        if !names(asked.call, &own) {
            self.load_kin(asked, &mut known).await?;
        }
        let now = self.store().now();
        let mut priors = known.priors(now);
        remember(asked, remembered.as_ref(), &mut priors);
        let memory = lock(&self.memory);
        seen.extend(memory.of_kin(asked.kin));
        for prior in &mut priors {
            let hash = asked.hash(&prior.key);
            if let Some(at) = memory.last_seen(&hash, now) {
                prior.last_seen = prior.last_seen.max(at);
            }
            if let Some((callers, at)) = seen.get(&hash) {
                *prior = prior.clone().with(callers, *at);
            }
        }
        let identity = identify(asked.call, &priors, now);
        self.lapse(memory, asked, &identity, &priors, now);
        let prior = priors.iter().find(|prior| prior.key == identity.key);
        Ok(Judged {
            delivery: prior.map_or(Delivery::Unknown, |prior| prior.delivery),
            record: known.0.remove(&identity.key),
            identity,
            at: now,
        })
    }

    pub(super) fn store(&self) -> &dyn Store {
        &**self.engine.store()
    }

    async fn load(&self, asked: Asked<'_>, key: &Key) -> Result<Option<Arc<Record>>> {
        match self.store().load(&asked.hash(key)).await? {
            Current::Stored(stored) if stored.record.kind() != StateKind::Stub => {
                Ok(Some(stored.record))
            }
            Current::Stored(_) | Current::Absent(_) => Ok(None),
        }
    }

    /// Loads what is stored under the keys that could each be the call's own; returns the key under
    /// which its id is remembered.
    async fn load_own(&self, asked: Asked<'_>, known: &mut Known) -> Result<Option<Key>> {
        let id = asked.by_call_id();
        let remembered = id.and_then(|id| lock(&self.memory).by_call_id(&id).cloned());
        let own = asked.call.own_keys();
        for key in own.iter().chain(&remembered) {
            if let Some(record) = self.load(asked, key).await? {
                known.add(asked.namespace, record);
            }
        }
        Ok(remembered)
    }

    /// Loads the last number that is taken, then those that count: in this order, as what another
    /// process begins in between is then among them.
    async fn load_kin(self: &Arc<Self>, asked: Asked<'_>, known: &mut Known) -> Result<()> {
        if asked.call.is_numbered()
            && let Some(last) = self.last_numbered(asked).await?
        {
            known.add(asked.namespace, last);
        }
        for stored in self.counting(asked).await? {
            known.add(asked.namespace, stored.record);
        }
        let held = lock(&self.memory).keys_of(asked.kin);
        for key in held {
            if !known.0.contains_key(&key)
                && let Some(record) = self.load(asked, &key).await?
            {
                known.add(asked.namespace, record);
            }
        }
        Ok(())
    }

    /// Loads those that count; an error where there are more than can be judged.
    async fn counting(self: &Arc<Self>, asked: Asked<'_>) -> Result<Vec<Stored>> {
        let found = self.store().kin(asked.kin).await?;
        if found.len() <= usize::from(KIN_MAX) {
            return Ok(found);
        }
        // What nobody came for again makes room; the others have to be dealt with by somebody.
        let now = self.store().now();
        let lapsed = found.iter().filter(|stored| {
            let prior = Prior::of(&stored.record, now);
            prior.is_some_and(|prior| has_lapsed(asked.call, &prior, now))
        });
        for stored in lapsed {
            let subject = Subject::unnamed(stored.record.key_hash());
            lock(&self.memory).lapse(subject);
        }
        self.store_marks().await;
        let found = self.store().kin(asked.kin).await?;
        if found.len() <= usize::from(KIN_MAX) {
            return Ok(found);
        }
        Err(Error::Crowded {
            limit: usize::from(KIN_MAX),
        })
    }

    /// Finds an operation of the call's fingerprint after whose number the next one is free.
    async fn last_numbered(&self, asked: Asked<'_>) -> Result<Option<Arc<Record>>> {
        let taken = |number| async move {
            let key = asked.call.numbered(number);
            self.load(asked, &key).await
        };
        let hint = lock(&self.memory).number(asked.kin);
        let mut last = match hint {
            Some(number) => taken(number).await?.map(|record| (number, record)),
            None => None,
        };
        // Numbers are given out one after the other, so each step may be twice as long.
        let mut free = None;
        let mut step = 1;
        while free.is_none() {
            let low = last.as_ref().map_or(0, |(number, _)| *number);
            let next: u32 = low.saturating_add(step);
            match taken(next).await? {
                Some(record) if next < u32::MAX => last = Some((next, record)),
                Some(_) | None => free = Some(next),
            }
            step = step.saturating_mul(2);
        }
        while let (Some((low, _)), Some(high)) = (&last, free)
            && high - low > 1
        {
            let middle = low + (high - low) / 2;
            match taken(middle).await? {
                Some(record) => last = Some((middle, record)),
                None => free = Some(middle),
            }
        }
        if let Some((number, _)) = &last {
            lock(&self.memory).learn_number(asked.kin, *number);
        }
        Ok(last.map(|(_, record)| record))
    }

    /// Leaves to be marked what nobody came for again, unless this call does.
    fn lapse(
        &self,
        mut memory: std::sync::MutexGuard<'_, Memory>,
        asked: Asked<'_>,
        identity: &Identity,
        priors: &[Prior],
        now: Timestamp,
    ) {
        let lapsed = priors
            .iter()
            .filter(|prior| prior.key != identity.key && has_lapsed(asked.call, prior, now));
        let mut any = false;
        for prior in lapsed {
            any |= memory.lapse(Subject::new(asked.namespace, &prior.key));
        }
        drop(memory);
        if any {
            self.due.notify_one();
        }
    }
}

/// Says of the operation under which a call's id is remembered that it is.
fn remember(asked: Asked<'_>, remembered: Option<&Key>, priors: &mut [Prior]) {
    let named = priors
        .iter_mut()
        .filter(|prior| Some(&prior.key) == remembered);
    for prior in named {
        prior.call_ids.extend(asked.call.call_id.clone());
    }
}
