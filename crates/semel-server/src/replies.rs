//! Replies, and those that are lost on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::Method;

/// Chooses which replies are lost.
#[derive(Clone, Debug)]
pub(crate) struct Replies(Option<Arc<AtomicU64>>);

/// Says that a reply is lost on purpose: the connection is closed without a word.
#[derive(Debug, thiserror::Error)]
#[error("the reply is dropped, as it was asked for")]
pub(crate) struct Dropped;

impl Replies {
    pub(crate) fn new(drops: bool) -> Self {
        Self(drops.then(Arc::default))
    }

    /// Says whether the reply to this call is to be lost: every second one, so that a retry is answered.
    pub(crate) fn loses(&self, method: &Method) -> bool {
        let counted = self.0.as_ref().filter(|_| method == Method::POST);
        counted.is_some_and(|count| count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2))
    }
}
