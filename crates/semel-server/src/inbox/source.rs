//! Whose webhooks are received, and what becomes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel::core::queue::Priority;
use semel::core::webhook::{IdFrom, Proof, SourceName};
use semel::{Label, Namespace, Retention};

/// One source of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is called, in its address and in keys.
    pub name: SourceName,
    /// What proves that a delivery is its sender's.
    pub proof: Proof,
    /// Where the sender's id is.
    pub id: IdFrom,
    /// Whose workers get its webhooks.
    pub queue: Label,
    /// Which of a queue's tasks go first.
    pub priority: Priority,
    /// The lane of the queue that they are in.
    pub lane: Label,
    /// Headers that the workers get beside the usual ones, in lower case.
    pub headers: Vec<String>,
    /// The wall behind which they live.
    pub namespace: Namespace,
    /// How long they are kept once they are settled.
    pub retention: Retention,
    /// The largest body, in bytes.
    pub body_max: usize,
}

/// All sources, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources(BTreeMap<SourceName, Arc<Source>>);

impl Sources {
    /// Returns the source of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Source>> {
        self.0.get(&SourceName::new(name).ok()?)
    }

    /// Goes through all of them.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.0.values().map(|source| &**source)
    }
}

impl FromIterator<Source> for Sources {
    fn from_iter<T: IntoIterator<Item = Source>>(sources: T) -> Self {
        let named = |source: Source| (source.name.clone(), Arc::new(source));
        Self(sources.into_iter().map(named).collect())
    }
}
