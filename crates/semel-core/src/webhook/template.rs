//! What a generic signature is made of.

/// The bytes that a sender signs: the body, and before, after and around it the time and fixed texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Timestamp,
    Body,
}

/// Says why a text is no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The body is not in it once.
    #[error("what is signed has `{{body}}` in it, once")]
    Body,
    /// The time is in it more than once.
    #[error("what is signed has `{{timestamp}}` in it once at most")]
    Timestamp,
    /// There is a brace that belongs to neither.
    #[error("what is signed knows `{{timestamp}}` and `{{body}}` and nothing else in braces")]
    Brace,
}

const TIMESTAMP: &str = "{timestamp}";
const BODY: &str = "{body}";

impl Template {
    /// Reads a template such as `v0:{timestamp}:{body}`.
    ///
    /// # Errors
    /// Refuses one without the body, and what it does not know.
    pub fn new(text: &str) -> Result<Self, TemplateError> {
        let mut parts = vec![];
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix(TIMESTAMP) {
                parts.push(Part::Timestamp);
                rest = after;
            } else if let Some(after) = rest.strip_prefix(BODY) {
                parts.push(Part::Body);
                rest = after;
            } else {
                let end = rest.find('{').unwrap_or(rest.len());
                let (text, after) = rest.split_at(end);
                if text.is_empty() || text.contains('}') {
                    return Err(TemplateError::Brace);
                }
                parts.push(Part::Text(text.to_owned()));
                rest = after;
            }
        }
        let count = |part: &Part| parts.iter().filter(|known| *known == part).count();
        if count(&Part::Body) != 1 {
            return Err(TemplateError::Body);
        }
        if count(&Part::Timestamp) > 1 {
            return Err(TemplateError::Timestamp);
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// The body and nothing else.
    #[must_use]
    pub fn body() -> Self {
        Self {
            text: BODY.to_owned(),
            parts: vec![Part::Body],
        }
    }

    /// The time, a dot and the body.
    #[must_use]
    pub fn dated() -> Self {
        Self {
            text: format!("{TIMESTAMP}.{BODY}"),
            parts: vec![Part::Timestamp, Part::Text(".".to_owned()), Part::Body],
        }
    }

    /// Returns it as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Says whether the time is signed.
    #[must_use]
    pub fn is_dated(&self) -> bool {
        self.parts.contains(&Part::Timestamp)
    }

    pub(super) fn fill<'a>(&'a self, timestamp: &'a [u8], body: &'a [u8]) -> Vec<&'a [u8]> {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.as_bytes(),
            Part::Timestamp => timestamp,
            Part::Body => body,
        });
        parts.collect()
    }
}
