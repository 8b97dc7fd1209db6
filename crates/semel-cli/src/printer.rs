//! All that is written: data to standard output, everything else to standard error.

use std::io::Write as _;
use std::process::ExitCode;

use semel::Error;

/// The exit code of a usage error.
const USAGE: u8 = 64;

/// Writes for people, or for programs.
#[derive(Debug)]
pub(crate) struct Printer {
    json: bool,
}

impl Printer {
    pub(crate) const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Writes an answer: one JSON object, or lines for people.
    pub(crate) fn answer(&self, json: &serde_json::Value, lines: &str) {
        if self.json {
            out(&json.to_string())
        } else {
            out(lines)
        }
    }

    pub(crate) fn error(&self, error: &Error) -> ExitCode {
        self.fail_with(
            error.code(),
            &error.to_string(),
            error.hint(),
            error.retryable(),
        )
    }

    pub(crate) fn fail(&self, code: &str, message: &str, hint: Option<&str>) -> ExitCode {
        self.fail_with(code, message, hint, false)
    }

    fn fail_with(
        &self,
        code: &str,
        message: &str,
        hint: Option<&str>,
        retryable: bool,
    ) -> ExitCode {
        if self.json {
            let error = serde_json::json!({
                "ok": false,
                "error": {"code": code, "message": message, "hint": hint, "retryable": retryable},
            });
            out(&error.to_string());
        }
        err(&format!("semel: {message}"));
        if let Some(hint) = hint {
            err(&format!("hint: {hint}"));
        }
        ExitCode::from(exit_code(code))
    }
}

/// Writes what clap has to say: help and version are answers, the rest is a usage error.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // Whoever closed the pipe does not want to read it.
    drop(error.print());
    if error.use_stderr() {
        ExitCode::from(USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Returns the exit code of an error, the same at every command.
fn exit_code(code: &str) -> u8 {
    match code {
        "in_doubt" => 120,
        "key_reused" => 121,
        "in_flight" | "breaker_open" => 122,
        "dead" | "expired" => 123,
        "invalid_key" | "invalid_input" | "too_large" => USAGE,
        "not_found" => 1,
        _ => 125,
    }
}

// A broken pipe is not an error: whoever read has read enough.
fn out(text: &str) {
    drop(writeln!(std::io::stdout(), "{text}"));
}

fn err(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}
