//! How telling goes, for the metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Channel;

/// The names of the channels.
const CHANNELS: [&str; 2] = ["command", "webhook"];

/// Counts for each channel.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    told: [AtomicU64; CHANNELS.len()],
    failed: [AtomicU64; CHANNELS.len()],
    waiting: AtomicUsize,
}

type Counted = [AtomicU64; CHANNELS.len()];

fn add(counts: &Counted, channel: &Channel) {
    let index = CHANNELS.iter().position(|name| *name == channel.name());
    if let Some(index) = index {
        counts[index].fetch_add(1, Ordering::Relaxed);
    }
}

fn read(counts: &Counted) -> impl Iterator<Item = (&'static str, u64)> {
    let counts = counts.iter().map(|it| it.load(Ordering::Relaxed));
    CHANNELS.into_iter().zip(counts)
}

impl Counts {
    pub(super) fn told(&self, channel: &Channel) {
        add(&self.told, channel);
    }

    pub(super) fn failed(&self, channel: &Channel) {
        add(&self.failed, channel);
    }

    pub(super) fn wait(&self, waiting: usize) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(crate) fn deliveries(&self) -> impl Iterator<Item = (&'static str, u64)> {
        read(&self.told)
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        read(&self.failed)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
