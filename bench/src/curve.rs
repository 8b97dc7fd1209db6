//! How the speed of a store changes while it fills.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::core::per_key;
use crate::disk::{self, Scratch};
use crate::engines::{Embedded, Semel};
use crate::keys::Keys;
use crate::load::{self, Load, Measured};
use crate::machine::Watch;
use crate::progress::say;

/// The callers that fill the store: enough to keep the disk busy.
pub(crate) const CALLERS: u32 = 256;

/// The speed of a store that holds so many keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) keys: u64,
    pub(crate) cycles_per_s: f64,
    /// What an empty store reached just before: the machine may be busier now than at the start.
    pub(crate) empty_cycles_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) replays_per_s: f64,
    pub(crate) disk_bytes_per_key: f64,
    /// Over all keys so far.
    pub(crate) written_bytes_per_key: f64,
}

impl Point {
    pub(crate) fn ratio(&self) -> f64 {
        self.cycles_per_s / self.empty_cycles_per_s
    }
}

/// Returns at how many keys to look: 0, 100,000, 500,000 and so on, and at the end.
pub(crate) fn steps(keys: u64) -> Vec<u64> {
    let mut steps = vec![0];
    let (mut decade, mut factors) = (100_000_u64, [1, 5].as_slice());
    while decade < keys {
        let decades = factors.iter().map(|factor| factor * decade);
        steps.extend(decades.filter(|step| *step < keys));
        (decade, factors) = (decade.saturating_mul(10), &[1, 2, 5]);
    }
    steps.push(keys);
    steps
}

pub(crate) fn run(scratch: &Scratch, seconds: Duration, keys: u64) -> Result<Vec<Point>> {
    let filling = Store::open(scratch)?;
    let mut written = 0;
    let mut points = vec![];
    for step in steps(keys) {
        let watch = Watch::start();
        let before = disk::written_bytes()?;
        filling.load().fill(step)?;
        written += disk::written_bytes()? - before;
        let empty = Store::open(scratch)?.cycles(seconds)?;
        let before = disk::written_bytes()?;
        // An empty store is measured as an empty store is, and a full one after a warm-up too.
        let cycles = filling.cycles(seconds)?;
        written += disk::written_bytes()? - before;
        let replays = filling.load().replays(seconds / 8, seconds / 2)?;
        let point = Point {
            keys: step,
            cycles_per_s: cycles.per_second(),
            empty_cycles_per_s: empty.per_second(),
            p50_us: cycles.latency.percentile_us(0.5),
            p99_us: cycles.latency.percentile_us(0.99),
            replays_per_s: replays.per_second(),
            disk_bytes_per_key: per_key(
                disk::allocated_bytes(filling.directory.path())?,
                &filling.keys,
            ),
            written_bytes_per_key: per_key(written, &filling.keys),
        };
        say(&format!(
            "{step:>10} keys: {:>9.0} cycles/s, {:.2} of an empty store's ({})",
            point.cycles_per_s,
            point.ratio(),
            watch.others()
        ));
        points.push(point);
    }
    Ok(points)
}

/// A store and what belongs to it.
struct Store {
    // Dropped in this order: the store before its threads, and both before their files.
    contender: Arc<Semel>,
    runtime: Runtime,
    keys: Arc<Keys>,
    directory: TempDir,
}

impl Store {
    fn open(scratch: &Scratch) -> Result<Self> {
        let directory = scratch.fresh()?;
        let runtime = load::runtime()?;
        Ok(Self {
            contender: Arc::new(runtime.block_on(Semel::open(directory.path()))?),
            runtime,
            keys: Arc::new(Keys::new()?),
            directory,
        })
    }

    fn load(&self) -> Load<'_, Semel> {
        Load {
            runtime: &self.runtime,
            contender: &self.contender,
            keys: &self.keys,
            callers: CALLERS,
        }
    }

    fn cycles(&self, seconds: Duration) -> Result<Measured> {
        self.load().cycles(seconds / 4, seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_like_coins_and_end_with_the_last_key() {
        assert_eq!(
            steps(5_000_000),
            [0, 100_000, 500_000, 1_000_000, 2_000_000, 5_000_000]
        );
        assert_eq!(steps(700_000), [0, 100_000, 500_000, 700_000]);
        assert_eq!(steps(1_000), [0, 1_000]);
        assert_eq!(
            steps(30_000_000)[5..],
            [5_000_000, 10_000_000, 20_000_000, 30_000_000]
        );
    }
}
