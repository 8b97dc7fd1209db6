//! Redaction: what must not be stored or shown is replaced before it is.
//!
//! A [`Redactor`] is made of rules: the known kinds of secrets (on by default), the user's own
//! [patterns](Pattern), [pointers](OutputRule) into recorded answers, and the headers that may be kept.
//! It is applied to what people read *about* an operation: errors, notes, arguments, headers. Keys and names
//! stay as they are, as they must work, and answers stay exact unless a rule names a part of them.
//!
//! Redacting twice is the same as redacting once, so every door may do it again without harm: each
//! rule walks over a [`REDACTED`] in the way in which it walks over the secret that was there. All of it
//! takes time in proportion to the text.

mod argument;
mod command;
mod format;
mod header;
mod name;
mod output;
mod pattern;
mod scan;
#[cfg(test)]
mod tests;
mod url;
mod value;

use std::borrow::Cow;
use std::collections::BTreeSet;

pub use header::{HeaderError, USUAL_HEADERS};
pub use output::{OutputRule, OutputRuleError, member};
pub use pattern::{Pattern, PatternError};

use crate::text::{Label, Note};

/// Stands where something was that must not be seen.
pub const REDACTED: &str = "[redacted]";

/// The most rules of one kind: every text is looked through once for each of them.
pub const RULES_MAX: usize = 64;

/// How often a text is looked through. Nearly always nothing is found the second time, as the rules see to
/// it. Where secrets are written into each other one may show only once another is hidden, and whoever
/// redacts again must not be the one to find it.
const ROUNDS_MAX: usize = 4;

/// How often a note is looked through: what is hidden in it may make it so long that it is cut, and what
/// stands at the end is then looked at as the beginning of something.
const CUTS_MAX: usize = 4;

/// The rules by which texts, headers and answers are redacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redactor {
    on: bool,
    patterns: Vec<Pattern>,
    outputs: Vec<OutputRule>,
    headers: BTreeSet<String>,
}

impl Default for Redactor {
    /// Knows the usual secrets and the usual headers.
    fn default() -> Self {
        Self {
            on: true,
            patterns: vec![],
            outputs: vec![],
            headers: USUAL_HEADERS.iter().map(|&name| name.to_owned()).collect(),
        }
    }
}

impl Redactor {
    /// Makes a redactor that changes nothing.
    #[must_use]
    pub fn off() -> Self {
        Self {
            on: false,
            ..Self::default()
        }
    }

    /// Hides what these patterns match, too; beyond [`RULES_MAX`] they are not looked at.
    #[must_use]
    pub fn patterns(mut self, patterns: impl IntoIterator<Item = Pattern>) -> Self {
        self.patterns = patterns.into_iter().take(RULES_MAX).collect();
        self
    }

    /// Hides what these rules name in recorded answers; beyond [`RULES_MAX`] they are not looked at.
    #[must_use]
    pub fn outputs(mut self, rules: impl IntoIterator<Item = OutputRule>) -> Self {
        self.outputs = rules.into_iter().take(RULES_MAX).collect();
        self
    }

    /// Says whether some part of an answer may be redacted.
    #[must_use]
    pub fn names_outputs(&self) -> bool {
        self.on && !self.outputs.is_empty()
    }

    /// Returns a text without its secrets.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.scanned(text, false)
    }

    /// Says whether there is anything in a text that would be redacted.
    #[must_use]
    pub fn finds(&self, text: &str) -> bool {
        self.text(text) != text
    }

    /// Returns a note without its secrets.
    #[must_use]
    pub fn note(&self, note: &Note) -> Option<Note> {
        let mut note = note.clone();
        for _ in 0..CUTS_MAX {
            // A note that is as long as one can be was probably cut, and a secret in it as well.
            let cut = note.as_str().len() + '\u{10ffff}'.len_utf8() > Note::MAX_BYTES;
            let redacted = match self.scanned(note.as_str(), cut) {
                Cow::Borrowed(_) => break,
                Cow::Owned(text) => Note::from_lossy(&text)?,
            };
            note = redacted;
        }
        Some(note)
    }

    /// Returns a label without its secrets.
    #[must_use]
    pub fn label(&self, label: &Label) -> Label {
        match self.text(label.as_str()) {
            Cow::Borrowed(_) => label.clone(),
            Cow::Owned(text) => Label::cut(&text),
        }
    }

    /// Returns an answer without what the rules name, if it is JSON and they name something in it.
    #[must_use]
    pub fn output(&self, json: &[u8]) -> Option<Vec<u8>> {
        let rules = if self.on { &*self.outputs } else { &[] };
        output::redacted(json, rules)
    }

    /// Redacts a text; `cut` says that its end may be missing.
    fn scanned<'a>(&self, text: &'a str, cut: bool) -> Cow<'a, str> {
        if !self.on {
            return Cow::Borrowed(text);
        }
        let mut text = Cow::Borrowed(text);
        for _ in 0..ROUNDS_MAX {
            match self.once(&text, cut) {
                Some(hidden) => text = Cow::Owned(hidden),
                None => break,
            }
        }
        text
    }

    /// Looks through a text once; `None` when nothing is to be hidden in it.
    fn once(&self, text: &str, cut: bool) -> Option<String> {
        // The user's patterns come first. They look at nothing beside what they match, so what they
        // left alone is left alone again, whatever the known kinds then hide of it.
        let mut hidden = None;
        for pattern in &self.patterns {
            let text = hidden.as_deref().unwrap_or(text);
            hidden = pattern.hide(text).or(hidden);
        }
        let text = hidden.as_deref().unwrap_or(text);
        scan::hide(text, cut).or(hidden)
    }
}
