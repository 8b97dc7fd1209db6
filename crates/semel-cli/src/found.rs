//! The operation that a KEY on the command line names.

use std::sync::Arc;

use semel::core::ledger::{Operation, Record, StateKind};
use semel::store::Place;
use semel::{Engine, Key, Named, Namespace, Timestamp};

use crate::context::Context;
use crate::failure::Failure;

/// A record that was read, and when.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) namespace: Namespace,
    pub(crate) key: Key,
    pub(crate) record: Arc<Record>,
    pub(crate) place: Place,
    pub(crate) now: Timestamp,
}

impl Found {
    /// Makes it from a listed record; a forgotten one has no key.
    pub(crate) fn listed(stored: semel::store::Stored, now: Timestamp) -> Option<Self> {
        let (namespace, key) = match &*stored.record {
            Record::Operation(operation) => (&operation.spec.namespace, &operation.spec.key),
            Record::Tombstone(tombstone) => (&tombstone.namespace, &tombstone.key),
            Record::Stub(_) | Record::Breaker(_) => return None,
        };
        Some(Self {
            namespace: namespace.clone(),
            key: key.clone(),
            place: stored.place,
            record: Arc::clone(&stored.record),
            now,
        })
    }

    /// Returns the state as of when it was read.
    pub(crate) fn state(&self) -> StateKind {
        self.record.kind_at(self.now)
    }

    pub(crate) fn operation(&self) -> Option<&Operation> {
        self.record.operation()
    }

    /// Returns the same operation as it is after something was stored.
    pub(crate) fn with(&self, record: Arc<Record>) -> Self {
        Self {
            record,
            ..self.clone()
        }
    }
}

/// Finds the operation that a KEY names: by its key, or by what its client calls it.
pub(crate) async fn find(context: &Context, engine: &Engine, text: &str) -> Result<Found, Failure> {
    let found = find_trace(context, engine, text).await?;
    match &*found.record {
        Record::Stub(_) | Record::Breaker(_) => Err(not_found(&found.namespace, text)),
        Record::Operation(_) | Record::Tombstone(_) => Ok(found),
    }
}

/// Finds what is left under a key, also of an operation that was forgotten.
pub(crate) async fn find_trace(
    context: &Context,
    engine: &Engine,
    text: &str,
) -> Result<Found, Failure> {
    let namespace = context.namespace()?;
    match engine.find(&namespace, text).await? {
        None => Err(not_found(&namespace, text)),
        Some(Named { key, stored }) => Ok(Found {
            namespace,
            key,
            record: stored.record,
            place: stored.place,
            now: engine.store().now(),
        }),
    }
}

fn not_found(namespace: &Namespace, key: &str) -> Failure {
    Failure::not_found(format!("{key}: there is no such operation in {namespace}"))
        .hint("`semel list` shows what there is; --namespace looks behind another wall")
}
