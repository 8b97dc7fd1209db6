//! Finding an operation by name: by its own key, or by what its client calls it.
//!
//! A door that scopes keys stores `proxy/0c52a1d5f1e0b7a3/order-7` for a client that said `order-7`, and the
//! client's log says only that. So people may use either, as long as it means one operation.

use semel_core::ledger::{Record, StateKind};
use semel_core::{Key, KeyHash, Namespace, Note};

use super::Engine;
use crate::error::{Ambiguous, Error, Result};
use crate::store::{Current, Query, Stored};

/// The most operations of one name that a refusal lists: enough to see which one is meant, and few enough to
/// be read.
const NAMESAKES_MAX: usize = 5;

/// An operation that was found by name.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its key in the ledger.
    pub key: Key,
    /// What is stored.
    pub stored: Stored,
}

impl Engine {
    /// Finds the operation that a name means: the one with exactly this key, else the one that its client
    /// calls so. What is left of a forgotten operation is found by its key only.
    ///
    /// A name that is no key of the ledger is looked for among all operations, which takes as long as listing
    /// them.
    ///
    /// # Errors
    /// `invalid_input` when clients gave this name to several operations, whatever their states: which one is
    /// meant is not guessed. `invalid_key` when it is neither a key nor any client's.
    pub async fn find(&self, namespace: &Namespace, name: &str) -> Result<Option<Named>> {
        self.find_among(namespace, name, |_| true).await
    }

    /// Finds an operation as [`Engine::find`] does, among those that the caller may see: the others are not
    /// there.
    ///
    /// # Errors
    /// As [`Engine::find`].
    pub async fn find_among(
        &self,
        namespace: &Namespace,
        name: &str,
        is_seen: impl Fn(&Record) -> bool,
    ) -> Result<Option<Named>> {
        let key = Key::new(name);
        if let Ok(key) = &key
            && let Current::Stored(stored) = self.store().load(&KeyHash::of(namespace, key)).await?
            && is_seen(&stored.record)
        {
            let key = key.clone();
            return Ok(Some(Named { key, stored }));
        }
        let found = self.called(namespace, name, is_seen).await?;
        let now = self.store().now();
        let state = |named: &Named| named.stored.record.kind_at(now);
        match only(name, found, state)? {
            None => key.map(|_| None).map_err(Error::from),
            one => Ok(one),
        }
    }

    /// Lists what clients call so, as far as it takes to know whether it is one.
    async fn called(
        &self,
        namespace: &Namespace,
        name: &str,
        is_seen: impl Fn(&Record) -> bool,
    ) -> Result<Vec<Named>> {
        let mut found = vec![];
        // Nothing else is kept as a client's key.
        if Note::new(name).is_err() {
            return Ok(found);
        }
        let mut query = Query {
            namespace: Some(namespace.clone()),
            client_key: Some(name.to_owned()),
            limit: NAMESAKES_MAX + 1,
            ..Query::default()
        };
        loop {
            let page = self.store().list(query.clone()).await?;
            let seen = page.items.into_iter().filter(|it| is_seen(&it.record));
            found.extend(seen.filter_map(named));
            query.cursor = page.next;
            if page.next.is_none() || found.len() > NAMESAKES_MAX {
                return Ok(found);
            }
        }
    }
}

/// Returns what was listed with its key; what was forgotten has none, and a breaker is no operation.
fn named(stored: Stored) -> Option<Named> {
    let key = match &*stored.record {
        Record::Operation(operation) => operation.spec.key.clone(),
        Record::Tombstone(tombstone) => tombstone.key.clone(),
        Record::Stub(_) | Record::Breaker(_) => return None,
    };
    Some(Named { key, stored })
}

/// Returns the only one that was found; of several none, whatever their states: another one may be meant than
/// the one about which something can be done.
fn only(
    name: &str,
    mut found: Vec<Named>,
    state: impl Fn(&Named) -> StateKind,
) -> Result<Option<Named>> {
    if found.len() < 2 {
        return Ok(found.pop());
    }
    let listed = found.iter().take(NAMESAKES_MAX);
    Err(Error::Ambiguous(Ambiguous {
        name: name.to_owned(),
        namesakes: listed
            .map(|named| (named.key.clone(), state(named)))
            .collect(),
        more: found.len() > NAMESAKES_MAX,
    }))
}
