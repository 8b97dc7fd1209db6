//! What a command ends with when it does not end well.

use semel::{Error, Key};

/// The exit code of wrong usage.
pub(crate) const USAGE: u8 = 64;

/// Says what went wrong, to a person and to a program.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) retryable: bool,
    /// The operation that it is about.
    pub(crate) key: Option<String>,
    /// When a breaker lets a call through again.
    pub(crate) retry_at: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            retryable: matches!(
                code,
                "in_flight" | "breaker_open" | "rate_limited" | "not_sent" | "store_unavailable"
            ),
            key: None,
            retry_at: None,
        }
    }

    /// A value that cannot be used.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::new("invalid_input", message)
    }

    /// There is nothing under this name.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new("not_found", message)
    }

    /// Something is larger than a store takes; how much larger was not read.
    pub(crate) fn too_large(what: &str, limit: usize) -> Self {
        Self::new("too_large", format!("{what} has more than {limit} bytes"))
    }

    /// Something of Semel's own, or of the system's, failed.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new("internal", message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the operation that it is about.
    pub(crate) fn about(mut self, key: &Key) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// Returns the exit code, which belongs to the error's code at every command.
    pub(crate) fn exit(&self) -> u8 {
        exit_code(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            hint: error.hint().map(str::to_owned),
            retryable: error.retryable(),
            retry_at: error.retry_at().map(|at| at.to_string()),
            key: match &error {
                Error::Refused(refusal) => refusal.key.as_ref().map(ToString::to_string),
                _ => None,
            },
        }
    }
}

fn exit_code(code: &str) -> u8 {
    match code {
        "in_doubt" => 120,
        "key_reused" => 121,
        "in_flight" | "breaker_open" | "rate_limited" => 122,
        "dead" | "expired" => 123,
        "invalid_key" | "invalid_input" | "too_large" => USAGE,
        "not_found" => 1,
        "store_unusable" => 119,
        _ => 125,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use super::*;

    /// All codes that users can meet.
    const CODES: [&str; 20] = [
        "in_flight",
        "breaker_open",
        "in_doubt",
        "key_reused",
        "dead",
        "expired",
        "fenced",
        "invalid_key",
        "invalid_input",
        "too_large",
        "not_found",
        "unauthorized",
        "forbidden",
        "rate_limited",
        "not_sent",
        "lost",
        "not_acceptable",
        "store_unavailable",
        "store_unusable",
        "internal",
    ];

    fn pages() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
    }

    fn read(name: &str) -> String {
        let path = pages().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
    }

    /// Returns the cells of the lines of a table.
    fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
        let lines = text.lines().filter(|line| line.starts_with("| "));
        lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
    }

    #[test]
    fn every_code_has_a_page_with_its_numbers() {
        let readme = read("README.md");
        let listed: BTreeMap<String, Vec<&str>> = rows(&readme)
            .skip(1)
            .map(|row| {
                let code = row[0].trim_start_matches("[`").split('`').next();
                (code.unwrap_or_default().to_owned(), row[1..4].to_vec())
            })
            .collect();
        assert_eq!(listed.len(), CODES.len());
        for code in CODES {
            let failure = Failure::new(code, "");
            let numbers = &listed[code];
            let retryable = if failure.retryable { "yes" } else { "no" };
            assert_eq!(numbers[0], failure.exit().to_string(), "{code}");
            assert_eq!(numbers[2], retryable, "{code}");
            let page = read(&format!("{code}.md"));
            assert_eq!(rows(&page).nth(1).as_ref(), Some(numbers), "{code}");
            assert!(page.starts_with(&format!("# `{code}`\n")), "{code}");
        }
    }

    #[test]
    fn no_page_is_about_a_code_that_nobody_meets() {
        for entry in std::fs::read_dir(pages()).expect("there are pages") {
            let name = entry.expect("it can be listed").file_name();
            let name = name.to_string_lossy();
            let code = name.strip_suffix(".md").expect("only pages are there");
            assert!(code == "README" || CODES.contains(&code), "{code}");
        }
    }
}
