//! Settings of what is redacted.

use semel::Redactor;
use semel::core::redact::{OutputRule, Pattern, RULES_MAX};

use super::Settings;
use crate::failure::Failure;

/// Returns the lines of a list; empty ones are none.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

pub(super) fn is_on(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("`{other}` is neither `on` nor `off`")),
    }
}

pub(super) fn patterns(text: &str) -> Result<Vec<Pattern>, String> {
    each(text, |line| {
        Pattern::new(line).map_err(|error| error.to_string())
    })
}

pub(super) fn outputs(text: &str) -> Result<Vec<OutputRule>, String> {
    each(text, |line| {
        OutputRule::new(line).map_err(|error| error.to_string())
    })
}

pub(super) fn headers(text: &str) -> Result<Redactor, String> {
    let redactor = Redactor::default().allow_headers(lines(text));
    redactor.map_err(|error| error.to_string())
}

/// Reads every line, or says which one is wrong.
fn each<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let rules: Vec<_> = lines(text)
        .map(|line| read(line).map_err(|error| format!("`{line}`: {error}")))
        .collect::<Result<_, _>>()?;
    if rules.len() > RULES_MAX {
        let count = rules.len();
        return Err(format!("{count} entries; the limit is {RULES_MAX}"));
    }
    Ok(rules)
}

impl Settings {
    /// Returns the rules by which what is stored and shown is redacted.
    pub(crate) fn redactor(&self) -> Result<Redactor, Failure> {
        if !self.parsed("redact.enabled", is_on)? {
            return Ok(Redactor::off());
        }
        let redactor = self.parsed("redact.headers", headers)?;
        Ok(redactor
            .patterns(self.parsed("redact.patterns", patterns)?)
            .outputs(self.parsed("redact.outputs", outputs)?))
    }
}
