//! The breakers of one target in several namespaces.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use semel_core::{Key, Namespace};

use super::{Breaker, Target, lock};
use crate::engine::Engine;
use crate::error::Result;

/// The breakers of one target, one in each namespace: what callers of one see fail keeps no others away. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Breakers {
    engine: Engine,
    target: Target,
    /// That of the engine's own namespace, which most calls need.
    own: Breaker,
    others: Arc<Mutex<HashMap<Namespace, Breaker>>>,
}

/// How many namespaces' breakers are kept at hand; when there are more, all are let go and taken up again.
const NAMESPACES_MAX: usize = 1_024;

impl Breakers {
    /// Makes the breakers of a target.
    #[must_use]
    pub fn new(engine: &Engine, target: &Target) -> Self {
        Self {
            engine: engine.clone(),
            target: target.clone(),
            own: engine.breaker_of(target),
            others: Arc::default(),
        }
    }

    /// Returns the one of a namespace.
    #[must_use]
    pub fn of(&self, namespace: &Namespace) -> Breaker {
        if self.own.0.namespace == *namespace {
            return self.own.clone();
        }
        let mut others = lock(&self.others);
        if let Some(breaker) = others.get(namespace) {
            return breaker.clone();
        }
        if others.len() >= NAMESPACES_MAX {
            others.clear();
        }
        let breaker = self.engine.breaker_in(namespace, &self.target);
        others.insert(namespace.clone(), breaker.clone());
        breaker
    }

    /// Writes what was counted here, if anything was: for processes that end.
    ///
    /// # Errors
    /// Fails when the store does; what was counted stays counted.
    pub async fn flush(&self) -> Result<()> {
        let others: Vec<Breaker> = lock(&self.others).values().cloned().collect();
        let mut flushed = self.own.flush().await;
        for breaker in others {
            flushed = flushed.and(breaker.flush().await);
        }
        flushed
    }

    /// Returns the name of the target.
    #[must_use]
    pub fn name(&self) -> &Key {
        self.target.name()
    }
}
