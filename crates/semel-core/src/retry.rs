//! How long a queued operation waits before its next attempt.

use core::time::Duration;

use crate::digest::Digest;
use crate::queue::Backoff;
use crate::text::AttemptId;

/// The first wait lies between zero and this, unless a queue says otherwise.
pub const BASE: Duration = Duration::from_secs(1);

/// No wait is longer than this, unless a queue says otherwise.
pub const CAP: Duration = Duration::from_secs(5 * 60);

/// Returns the wait after attempt number `attempt` ended: full jitter under a doubling ceiling.
///
/// Chance comes from the ended attempt's id, which is random, so that replaying the log gives the
/// same wait without storing it.
#[must_use]
pub fn backoff(times: Backoff, attempt: u32, ended: &AttemptId) -> Duration {
    let doublings = attempt.saturating_sub(1).min(32);
    let ceiling = times
        .base()
        .saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX))
        .min(times.cap());
    let ceiling_micros = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
    let hash = Digest::of_parts(&[b"semel-backoff\0", ended.as_str().as_bytes()]).0;
    let chance = u64::from_le_bytes([
        hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7],
    ]);
    // Multiplying and shifting spreads the chance evenly, without the bias of a remainder.
    let micros = (u128::from(chance) * (u128::from(ceiling_micros) + 1)) >> 64;
    Duration::from_micros(u64::try_from(micros).unwrap_or(ceiling_micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> impl Iterator<Item = AttemptId> {
        (0..2_000u128).map(|n| AttemptId::from_random(n * 7_919))
    }

    #[test]
    fn waits_double_up_to_the_cap_and_use_the_whole_range() {
        for (attempt, ceiling) in [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (u32::MAX, 300)] {
            let ceiling = Duration::from_secs(ceiling);
            let longest = ids()
                .map(|id| backoff(Backoff::default(), attempt, &id))
                .max()
                .unwrap();
            let shortest = ids()
                .map(|id| backoff(Backoff::default(), attempt, &id))
                .min()
                .unwrap();
            assert!(
                longest <= ceiling && longest > ceiling.mul_f64(0.98),
                "{attempt}: {longest:?}"
            );
            assert!(shortest < ceiling.mul_f64(0.02), "{attempt}: {shortest:?}");
        }
    }

    #[test]
    fn the_same_attempt_always_waits_the_same() {
        let id = AttemptId::from_random(42);
        assert_eq!(
            backoff(Backoff::default(), 3, &id),
            backoff(Backoff::default(), 3, &id)
        );
    }
}
