mod properties;
mod table;

use super::{CredentialRule, CredentialSource};

/// Reduces these lines by the default rule.
fn read(lines: &[(&str, &str)]) -> Option<Vec<u8>> {
    read_by(&CredentialRule::default(), lines)
}

fn read_by(rule: &CredentialRule, lines: &[(&str, &str)]) -> Option<Vec<u8>> {
    let lines = lines.iter().map(|(name, value)| (*name, value.as_bytes()));
    rule.read(lines, None)
}

/// Makes a rule of these sources.
fn rule(sources: &[&str]) -> CredentialRule {
    let sources = sources.iter();
    CredentialRule {
        sources: sources
            .map(|text| CredentialSource::parse(text).unwrap())
            .collect(),
        ..CredentialRule::default()
    }
}
