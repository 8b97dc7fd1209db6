//! `Retry-After`: how long somebody who turned a request away wants to be left alone.

use core::time::Duration;

use super::dated::read_date;
use crate::queue::RETRY_AFTER_MAX;
use crate::time::Timestamp;

/// Reads the field: seconds, or a date as HTTP writes it (RFC 9110, section 10.2.3). A date that is over is no wait, and
/// nobody is waited for longer than [`RETRY_AFTER_MAX`]. What is neither says nothing.
#[must_use]
pub fn read_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim_matches([' ', '\t']);
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wait = if is_number {
        // A number that is too large to be read is a long time all the same.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        read_date(text)?.since(now)
    };
    Some(wait.min(RETRY_AFTER_MAX))
}
