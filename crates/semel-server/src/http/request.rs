//! What calls say about an operation, read and checked.

use std::time::Duration;

use semel::{AttemptId, Key, Lease, Request, Retention};
use serde_json::value::RawValue;

use super::numbers::Whole;
use super::problem::Problem;
use super::words::{ClassWord, DoubtWord};
use crate::auth::Caller;

pub(super) fn key_of(text: &str) -> Result<Key, Problem> {
    Key::new(text).map_err(|error| Problem::new("invalid_key", error.to_string()))
}

pub(super) fn attempt_of(text: &str) -> Result<AttemptId, Problem> {
    AttemptId::new(text).map_err(|error| Problem::input(format!("attempt_id: {error}")))
}

/// Describes an action as this caller's.
pub(super) fn described(
    caller: &Caller,
    name: &str,
    key: Key,
    input: Option<&RawValue>,
) -> Request {
    let mut request = Request::new(name, key)
        .namespace(caller.namespace.clone())
        .door(caller.door.clone());
    if let Some(principal) = &caller.principal {
        request = request.principal(principal.clone());
    }
    match input {
        Some(input) => request.input_json(input.get().as_bytes()),
        None => request,
    }
}

/// The policies that a first call fixes.
pub(super) struct Policies {
    pub(super) class: Option<ClassWord>,
    pub(super) on_doubt: Option<DoubtWord>,
    pub(super) max_attempts: Option<Whole>,
    pub(super) retry_within_ms: Option<Whole>,
    pub(super) retention_ms: Option<Whole>,
}

impl Policies {
    /// Adds them to a request.
    pub(super) fn of(self, mut request: Request) -> Result<Request, Problem> {
        if let Some(class) = self.class {
            request = request.class(class.into());
        }
        if let Some(on_doubt) = self.on_doubt {
            request = request.on_doubt(on_doubt.into());
        }
        if let Some(limit) = self.max_attempts {
            request = request.max_attempts(limit.count("max_attempts")?);
        }
        if let Some(window) = self.retry_within_ms {
            request = request.retry_within(positive("retry_within_ms", window.0)?);
        }
        if let Some(retention) = self.retention_ms {
            request = request.retention(retention_of(retention.0)?);
        }
        Ok(request)
    }
}

fn positive(member: &str, millis: u64) -> Result<Duration, Problem> {
    if millis == 0 {
        return Err(Problem::input(format!("{member} must be more than 0")));
    }
    Ok(Duration::from_millis(millis))
}

pub(super) fn lease_of(millis: u64) -> Result<Lease, Problem> {
    Lease::new(Duration::from_millis(millis))
        .map_err(|error| Problem::input(format!("lease_ms: {millis} ms: {error}")))
}

fn retention_of(millis: u64) -> Result<Retention, Problem> {
    Retention::new(Duration::from_millis(millis))
        .map_err(|error| Problem::input(format!("retention_ms: {millis} ms: {error}")))
}
