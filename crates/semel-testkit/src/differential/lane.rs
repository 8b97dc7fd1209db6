//! One store that runs beside the model, through several handles that come and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel::store::{Current, Store};
use semel_core::KeyHash;

use super::random::Random;
use crate::conformance::Bed;
use crate::conformance::hand::{Applied, Asked};

/// The most handles that are open at once.
const HANDLES_MAX: usize = 3;

/// A store under comparison.
#[derive(Debug)]
pub struct Lane {
    /// What it is called when it differs.
    pub name: &'static str,
    bed: Arc<dyn Bed>,
    handles: Vec<Arc<dyn Store>>,
    random: Random,
    /// What was stored under a key once, as a caller may still believe.
    known: BTreeMap<KeyHash, Current>,
}

impl Lane {
    /// Opens the store once; what happens to it depends on the seed and on nothing else.
    pub async fn new(name: &'static str, bed: Arc<dyn Bed>, seed: u64, number: u64) -> Self {
        let first = bed.open().await;
        Self {
            name,
            bed,
            handles: vec![first],
            random: Random::branch(seed, number + 1),
            known: BTreeMap::new(),
        }
    }

    /// Chooses a handle.
    pub fn pick(&mut self) -> Arc<dyn Store> {
        let index = self.random.index(self.handles.len());
        Arc::clone(&self.handles[index])
    }

    /// Lets something happen that must not be seen: tidying up, handles that close and open.
    pub async fn disturb(&mut self) -> semel::store::Result<()> {
        match self.random.below(100) {
            0..6 => drop(self.pick().tidy().await?),
            6..9 if self.handles.len() < HANDLES_MAX => {
                let another = self.bed.open().await;
                self.handles.push(another);
            }
            9..11 if self.handles.len() > 1 => {
                let index = self.random.index(self.handles.len());
                self.handles.swap_remove(index);
            }
            11 => {
                self.handles.clear();
                self.handles.push(self.bed.open().await);
            }
            _ => {}
        }
        Ok(())
    }

    /// Carries a command out as the engine does: on what was read, or on what is believed.
    pub async fn apply(&mut self, asked: &Asked) -> semel::store::Result<Applied> {
        let store = self.pick();
        let believed = self.known.get(&asked.key).cloned();
        let assumed = believed.filter(|_| self.random.percent(30));
        if assumed.is_some() {
            // Even a caller that believes has its clock from a store that has looked.
            store.load(&asked.key).await?;
        }
        let applied = asked.apply(&*store, assumed).await?;
        // Old beliefs are kept for a while.
        if self.random.percent(40) || !self.known.contains_key(&asked.key) {
            self.known.insert(asked.key, applied.current.clone());
        }
        Ok(applied)
    }

    /// Returns every open handle.
    #[must_use]
    pub fn handles(&self) -> &[Arc<dyn Store>] {
        &self.handles
    }
}
