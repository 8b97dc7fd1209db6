//! Goal: no secret survives, no ordinary text is touched, and doing it again changes nothing.
//!
//! Method: tables of texts as people and programs write them; then random texts with secrets planted
//! in them, and texts made of the pieces that the rules look at.

mod properties;
mod rules;
mod samples;

use super::{OutputRule, Pattern, Redactor};

fn text(text: &str) -> String {
    Redactor::default().text(text).into_owned()
}

fn with_patterns(patterns: &[&str]) -> Redactor {
    let patterns = patterns.iter().map(|text| Pattern::new(text));
    Redactor::default().patterns(patterns.map(|pattern| pattern.expect("it is a pattern")))
}

fn with_outputs(rules: &[&str]) -> Redactor {
    let rules = rules.iter().map(|text| OutputRule::new(text));
    Redactor::default().outputs(rules.map(|rule| rule.expect("it is a rule")))
}
