//! How deliveries go, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// What deliveries are counted by.
const VERDICTS: [&str; 4] = ["succeeded", "failed", "not_done", "unknown"];

/// Counts the deliveries of all push queues.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    ended: [AtomicU64; VERDICTS.len()],
    under_way: AtomicU64,
    probes: AtomicU64,
}

/// Counts a delivery as long as it is under way.
#[derive(Debug)]
pub(super) struct UnderWay<'a>(&'a Counts);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub(super) fn begin(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    pub(super) fn ended(&self, verdict: &str) {
        if let Some(index) = VERDICTS.iter().position(|known| *known == verdict) {
            self.ended[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn probed(&self) {
        self.probes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn deliveries(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let ended = self.ended.iter().map(|it| it.load(Ordering::Relaxed));
        VERDICTS.into_iter().zip(ended)
    }

    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    pub(crate) fn probes(&self) -> u64 {
        self.probes.load(Ordering::Relaxed)
    }
}
