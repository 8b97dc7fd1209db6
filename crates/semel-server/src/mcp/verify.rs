//! Verify tools: one that reads is asked whether one that acts has acted.

use std::time::Duration;

use semel::core::Found;
use semel::core::canonical::{self, Limits};
use semel::core::identity::Pointer;

use super::edit;
use super::message::quoted;

/// How long a lost call may still be at work, unless told otherwise.
const AFTER: Duration = Duration::from_secs(5);

/// How to find out whether a call took effect.
///
/// The arguments are a template. A text in it that is a JSON pointer in braces, `"{/order_id}"`,
/// stands for the value there among the arguments of the doubted call, and `"{key}"` for the value
/// that was given to its server as idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// The tool to ask; it must only read.
    pub tool: String,
    arguments: String,
    /// Where in its answer to look.
    pub pointer: Pointer,
    /// How long a lost call may still be at work: before that nothing is looked up.
    pub after: Duration,
    expected: Option<String>,
}

/// Says why verifying is not possible this way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The template is no object.
    #[error("the arguments of a verify tool are a JSON object")]
    NotObject,
    /// The template or the expected value has no single meaning.
    #[error("not JSON with one meaning: {0}")]
    NotJson(#[from] canonical::Error),
    /// A pointer in the template is none.
    #[error("`{{{0}}}` in the arguments of a verify tool is no JSON pointer")]
    Pointer(String),
    /// The doubted call has no such argument.
    #[error("the call has no argument `{0}` to look it up by")]
    Missing(String),
}

impl Verify {
    /// Takes a configuration.
    ///
    /// Without an expected value the call took effect where the pointer finds something that is
    /// neither null, false, zero nor empty.
    ///
    /// # Errors
    /// Refuses what could not be asked.
    pub fn new(
        tool: &str,
        arguments: &str,
        pointer: Pointer,
        expected: Option<&str>,
    ) -> Result<Self, VerifyError> {
        let canonical = |json: &str| {
            let bytes = canonical::canonicalize(json.as_bytes(), &Limits::default())?;
            Ok::<_, VerifyError>(String::from_utf8_lossy(&bytes).into_owned())
        };
        canonical(arguments)?;
        if edit::members(arguments).is_none() {
            return Err(VerifyError::NotObject);
        }
        let verify = Self {
            tool: tool.to_owned(),
            arguments: arguments.to_owned(),
            pointer,
            after: AFTER,
            expected: expected.map(canonical).transpose()?,
        };
        for hole in holes(&verify.arguments) {
            if let Hole::Argument(pointer) = hole.hole
                && Pointer::new(&pointer).is_err()
            {
                return Err(VerifyError::Pointer(pointer));
            }
        }
        Ok(verify)
    }

    /// Says how long a lost call may still be at work.
    #[must_use]
    pub fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }

    /// Fills the template for a call.
    pub(crate) fn arguments(&self, call: &str, key: &str) -> Result<String, VerifyError> {
        let mut filled = String::with_capacity(self.arguments.len());
        let mut copied = 0;
        for hole in holes(&self.arguments) {
            filled.push_str(&self.arguments[copied..hole.start]);
            copied = hole.end;
            match hole.hole {
                Hole::Key => filled.push_str(&quoted(key)),
                Hole::Argument(pointer) => {
                    let missing = || VerifyError::Missing(pointer.clone());
                    let place = Pointer::new(&pointer).map_err(|_| missing())?;
                    let value = edit::get(call, place.tokens()).filter(|it| *it != "null");
                    filled.push_str(value.ok_or_else(missing)?);
                }
            }
        }
        filled.push_str(&self.arguments[copied..]);
        Ok(filled)
    }

    /// Reads the answer: its structured content, else its first text where that is JSON.
    ///
    /// A failure proves nothing, and neither does an answer that is not JSON, or that has no such place.
    pub(crate) fn proof(&self, result: &str) -> Found {
        if edit::is_true(result, &["isError"]) {
            return Found::Unclear;
        }
        let structured = edit::get(result, &["structuredContent"]).map(str::to_owned);
        let told = structured.or_else(|| edit::text(result, &["content", "0", "text"]));
        let limits = Limits::default();
        let told = told.and_then(|it| canonical::canonicalize(it.as_bytes(), &limits).ok());
        told.map_or(Found::Unclear, |told| {
            Found::of(
                &told,
                &self.pointer,
                self.expected.as_deref().map(str::as_bytes),
            )
        })
    }
}

/// A text of the template that stands for something else, with its quotes.
struct Marked {
    start: usize,
    end: usize,
    hole: Hole,
}

enum Hole {
    Key,
    Argument(String),
}

/// Finds the holes in a template that is JSON.
fn holes(template: &str) -> Vec<Marked> {
    let bytes = template.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = template[at..].find('"').map(|offset| at + offset) {
        // The quote that ends the string: one that no backslash escapes.
        let mut end = start + 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let end = (end + 1).min(template.len());
        let is_name = template[end..].trim_ascii_start().starts_with(':');
        let text: Option<String> = serde_json::from_str(&template[start..end]).ok();
        let inner = text
            .as_deref()
            .and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
        let hole = match inner.filter(|_| !is_name) {
            Some("key") => Some(Hole::Key),
            Some(pointer) if pointer.starts_with('/') => Some(Hole::Argument(pointer.to_owned())),
            Some(_) | None => None,
        };
        found.extend(hole.map(|hole| Marked { start, end, hole }));
        at = end;
    }
    found
}
