//! The log as users see it: the log knows places, and people know keys.

use std::collections::HashMap;

use semel_core::ledger::Record;
use semel_core::{Key, Namespace};

use crate::engine::Engine;
use crate::error::Result;
use crate::store::{Logged, Place};
use crate::view::EventView;

/// How many names are kept: commands on one operation lie near each other in the log, so few are
/// looked up twice; and a reader that follows the log for months must stay small.
const NAMES_MAX: usize = 4_096;

/// Reads the log forward and finds the keys of its entries.
#[derive(Debug)]
pub struct Events {
    engine: Engine,
    names: HashMap<Place, (Namespace, Key)>,
}

impl Events {
    /// Starts to read.
    #[must_use]
    pub fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            names: HashMap::new(),
        }
    }

    /// Shows a log entry.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn view(&mut self, logged: &Logged) -> Result<EventView> {
        let name = match logged.place {
            Some(place) => self.name(place).await?,
            None => None,
        };
        Ok(EventView::of(logged, name))
    }

    async fn name(&mut self, place: Place) -> Result<Option<(Namespace, Key)>> {
        if let Some(name) = self.names.get(&place) {
            return Ok(Some(name.clone()));
        }
        let stored = self.engine.store().load_at(place).await?;
        let name = stored.and_then(|stored| match &*stored.record {
            Record::Operation(operation) => {
                let spec = &operation.spec;
                Some((spec.namespace.clone(), spec.key.clone()))
            }
            Record::Tombstone(tombstone) => {
                Some((tombstone.namespace.clone(), tombstone.key.clone()))
            }
            Record::Breaker(breaker) => Some((breaker.namespace.clone(), breaker.name.clone())),
            Record::Stub(_) => None,
        });
        if let Some(name) = &name {
            if self.names.len() >= NAMES_MAX {
                self.names.clear();
            }
            self.names.insert(place, name.clone());
        }
        Ok(name)
    }
}
