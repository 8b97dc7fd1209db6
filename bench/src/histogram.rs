//! A histogram of durations: fine where they are short, coarser where they are long.
//!
//! Each power of two is cut into the same number of equal steps, so that every value is known to
//! within one part in [`STEPS`] and recording one is a few instructions.

use std::time::Duration;

/// The steps of one power of two: an error of at most 1.6 %, well below what two runs differ by.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// The buckets for every number of nanoseconds up to 2^40, which is eighteen minutes.
const BUCKETS: usize = ((40 - STEP_BITS as usize) + 1) * STEPS as usize;

/// Counts durations.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u32]>,
    total: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
        }
    }

    pub(crate) fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Writes it down for another process: the buckets that are not empty.
    pub(crate) fn to_text(&self) -> String {
        let counts = self.counts.iter().enumerate();
        let used = counts.filter(|(_, count)| **count > 0);
        let words: Vec<_> = used.map(|(at, count)| format!("{at}:{count}")).collect();
        words.join(",")
    }

    /// Reads what another process wrote down.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut read = Self::new();
        for word in text.split_terminator(',') {
            let (at, count) = word.split_once(':')?;
            let count: u32 = count.parse().ok()?;
            *read.counts.get_mut(at.parse::<usize>().ok()?)? += count;
            read.total += u64::from(count);
        }
        Some(read)
    }

    /// Returns the duration that this share of the counted ones did not exceed, in microseconds;
    /// zero when nothing was counted.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts and nanoseconds of one run are far below 2^52"
    )]
    pub(crate) fn percentile_us(&self, share: f64) -> f64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return middle(index) as f64 / 1_000.0;
            }
        }
        0.0
    }
}

fn bucket(nanos: u64) -> usize {
    // Below 2 × STEPS each number has its own bucket; above, the leading bits choose one.
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let index = u64::from(shift) * STEPS + (nanos >> shift);
    usize::try_from(index).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

/// The middle of what a bucket holds.
fn middle(index: usize) -> u64 {
    let index = index as u64;
    let shift = (index / STEPS).saturating_sub(1);
    let low = (index - shift * STEPS) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_known_to_within_one_step() {
        let mut nanos = 1_u64;
        while nanos < 1 << 39 {
            for nanos in [nanos - 1, nanos, nanos + 1] {
                let found = middle(bucket(nanos));
                let error = found.abs_diff(nanos);
                assert!(error <= nanos / STEPS, "{nanos} became {found}");
            }
            nanos = nanos * 3 / 2 + 1;
        }
    }

    #[test]
    fn buckets_follow_each_other_without_gap() {
        let mut last = 0;
        for nanos in 0..200_000 {
            let index = bucket(nanos);
            assert!(index == last || index == last + 1, "{nanos}");
            last = index;
        }
    }

    #[test]
    fn durations_beyond_the_end_are_counted_in_the_last_bucket() {
        let mut histogram = Histogram::new();
        histogram.record(Duration::MAX);
        assert_eq!(histogram.total(), 1);
        assert!(histogram.percentile_us(0.5) > 1e9);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_durations() {
        let mut halves = [Histogram::new(), Histogram::new()];
        for micros in 1..=1_000 {
            halves[micros % 2].record(Duration::from_micros(micros as u64));
        }
        let [mut all, other] = halves;
        all.add(&other);
        assert_eq!(all.total(), 1_000);
        for (share, expected) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0), (0.0, 1.0)] {
            let found = all.percentile_us(share);
            assert!((found / expected - 1.0).abs() < 0.02, "{share}: {found}");
        }
    }

    #[test]
    fn a_histogram_can_be_handed_over() {
        let mut told = Histogram::new();
        for micros in [1, 1, 700, 2_000_000] {
            told.record(Duration::from_micros(micros));
        }
        let heard = Histogram::from_text(&told.to_text()).unwrap();
        assert_eq!((heard.counts, heard.total), (told.counts, told.total));
        assert_eq!(Histogram::from_text("").unwrap().total(), 0);
        for wrong in ["1", "1:x", "999999:1", "1:1 2:2"] {
            assert!(Histogram::from_text(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        assert!(Histogram::new().percentile_us(0.99).abs() < f64::EPSILON);
    }
}
