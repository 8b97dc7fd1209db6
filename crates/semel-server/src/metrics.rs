//! What the server counts.

use std::time::Duration;

use semel::core::ledger::StateKind;

/// Counts what happened.
#[derive(Debug, Default)]
pub(crate) struct Counts {}

impl Counts {
    pub(crate) fn begun(&self, _answer: &'static str) {}
    pub(crate) fn settled(&self, _state: StateKind) {}
    pub(crate) fn answered(&self, _path: &str, _status: u16, _took: Duration) {}
    pub(crate) fn refused_token(&self) {}
    pub(crate) fn text(&self) -> String {
        String::new()
    }
}
