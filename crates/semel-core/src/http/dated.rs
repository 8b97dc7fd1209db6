//! Requests that say how old they are.
//!
//! A ledger remembers for a while. A request that was first sent before that may have been carried out and forgotten:
//! nobody can know, so it is not carried out. That is what `Repeatability-First-Sent` is for (OASIS Repeatable Requests
//! 1.0), and what a key that is a UUID of version 7 tells by itself.

use core::time::Duration;

use super::profile::{AfterExpiry, Profile};
use crate::ledger::TOMBSTONE_KEPT;
use crate::time::Timestamp;

/// Returns how long something is known of a request: where what is no longer kept runs again, as long as its answer is
/// kept, else as long as a tombstone stands for it.
#[must_use]
pub fn remembered(profile: &Profile, retention: Duration) -> Duration {
    match profile.refusals.expired {
        AfterExpiry::Fresh => retention,
        AfterExpiry::Refuse(_) => retention.saturating_add(TOMBSTONE_KEPT),
    }
}

/// Says whether nothing can be known any more of a request that was first sent then.
#[must_use]
pub fn is_forgotten(first_sent: Timestamp, remembered: Duration, now: Timestamp) -> bool {
    first_sent.plus(remembered) <= now
}

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Reads a date as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7). The two forms that are
/// out of use are none.
#[must_use]
pub fn read_date(text: &str) -> Option<Timestamp> {
    let (name, rest) = text.split_once(", ")?;
    let [day, month, year, time, "GMT"] = rest.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|it| *it == month)? + 1;
    let has_shape = DAYS.contains(&name) && day.len() == 2 && year.len() == 4 && time.len() == 8;
    let written = has_shape.then(|| format!("{year}-{month:02}-{day}T{time}Z"))?;
    written.parse().ok()
}

/// Reads when a key was made, where it is a UUID of version 7 (RFC 9562, section 5.7).
#[must_use]
pub fn made_at(key: &str) -> Option<Timestamp> {
    let bytes = key.as_bytes();
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let has_shape = bytes.len() == 36
        && (0..36).all(|at| {
            if is_dash(at) {
                bytes[at] == b'-'
            } else {
                bytes[at].is_ascii_hexdigit()
            }
        });
    let is_seventh = has_shape && bytes[14] == b'7';
    if !is_seventh || !matches!(bytes[19], b'8' | b'9' | b'a' | b'b' | b'A' | b'B') {
        return None;
    }
    let millis = i64::from_str_radix(&format!("{}{}", &key[..8], &key[9..13]), 16).ok()?;
    Some(Timestamp(millis.checked_mul(1_000)?))
}
