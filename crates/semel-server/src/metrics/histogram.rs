//! Distributions of times, in classes that are fixed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel::store::{SIZE_CLASSES, Sizes};

/// The classes: from what a replay takes in memory to what the deadline allows.
const SECONDS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Counts how long things took.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// The last one is for what took longer than all classes.
    counts: [AtomicU64; SECONDS.len() + 1],
    micros: AtomicU64,
}

/// What a distribution is as of now.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    /// How many were at most so large.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl Histogram {
    pub(crate) fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let class = SECONDS.partition_point(|most| *most < seconds);
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Read {
        let micros = self.micros.load(Ordering::Relaxed);
        let counts = self.counts.each_ref().map(|it| it.load(Ordering::Relaxed));
        Read::of(&SECONDS, &counts, micros as f64 / 1e6)
    }
}

impl Read {
    /// Adds up what is counted class by class.
    fn of(bounds: &[f64], counts: &[u64], sum: f64) -> Self {
        let mut count = 0;
        let mut buckets = vec![];
        for (index, here) in counts.iter().enumerate() {
            count += here;
            if let Some(bound) = bounds.get(index) {
                buckets.push((*bound, count));
            }
        }
        Self {
            buckets,
            count,
            sum,
        }
    }

    pub(super) fn of_sizes(sizes: &Sizes) -> Self {
        let (groups, items) = sizes.read();
        let bounds = SIZE_CLASSES.map(|size| size as f64);
        Self::of(&bounds, &groups, items as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_include_their_bound_and_those_below() {
        let histogram = Histogram::default();
        for millis in [1, 1, 2, 20_000] {
            histogram.add(Duration::from_millis(millis));
        }
        let read = histogram.read();
        assert_eq!(read.buckets[..3], [(0.000_5, 0), (0.001, 2), (0.002_5, 3)]);
        assert_eq!((read.buckets[13], read.count), ((10.0, 3), 4));
        assert!((read.sum - 20.004).abs() < 1e-9);
    }
}
