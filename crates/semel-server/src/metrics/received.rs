//! What became of the webhooks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::Words;
use super::known;
use super::text::Text;
use crate::http::codes;

/// What becomes of webhooks beside the codes of refusals.
const WORDS: [&str; 7] = [
    "created",
    "noop",
    "challenge",
    "unsigned",
    "wrong_signature",
    "wrong_time",
    "no_id",
];

/// Counts the webhooks of each source. Sources have their names from the settings, never from a request.
#[derive(Debug, Default)]
pub(crate) struct Received(RwLock<BTreeMap<String, Arc<Words>>>);

impl Received {
    /// Counts a webhook by its source, if it has one (any word could be the name of one), and by what became of it: a word, or the code of a refusal.
    /// Returns how many that are.
    pub(crate) fn count(&self, source: Option<&str>, outcome: &str) -> u64 {
        self.source(source.unwrap_or_default()).add(outcome)
    }

    fn source(&self, name: &str) -> Arc<Words> {
        let sources = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = sources.get(name) {
            return Arc::clone(words);
        }
        drop(sources);
        let mut sources = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let words = || Arc::new(Words::new(WORDS.into_iter().chain(codes())));
        Arc::clone(sources.entry(name.to_owned()).or_insert_with(words))
    }
}

/// Writes what was counted.
pub(super) fn write(text: &mut Text, received: &Received) {
    text.metric(&known::INBOX_REQUESTS);
    let sources = received.0.read().unwrap_or_else(PoisonError::into_inner);
    for (name, words) in &*sources {
        for (word, count) in words.read().filter(|(_, count)| *count > 0) {
            let labels = [("source", name.as_str()), ("outcome", word)];
            text.sample(&known::INBOX_REQUESTS, &labels, count);
        }
    }
}
