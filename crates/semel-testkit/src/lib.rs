//! What proves that Semel holds: used from tests only, never published.

pub mod certificates;
pub mod conformance;
pub mod counted;
pub mod differential;
pub mod faketime;
pub mod fixture;
mod lines;
pub mod pgbouncer;
pub mod postgres;
pub mod process;
pub mod remote;
pub mod sim;

/// Returns the size that a load test uses: the issue's own with `SEMEL_TEST_FULL=1`, a small one
/// otherwise, so that one switch scales them all.
#[must_use]
pub fn scaled(full: u64, small: u64) -> u64 {
    let wanted = std::env::var("SEMEL_TEST_FULL").is_ok_and(|value| value == "1");
    if wanted { full } else { small }
}
