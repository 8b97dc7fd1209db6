//! Whether a lease costs more the more tasks wait.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use super::contender::{Queue, Submitter, Worker};
use super::semel::Semel;
use super::skip_locked::SkipLocked;
use super::task::Tasks;
use super::{Name, Places};
use crate::histogram::Histogram;
use crate::load::runtime;
use crate::machine::Watch;
use crate::progress::say;

/// The submitters that fill the ledger: enough to keep its writer busy.
const FILLERS: usize = 1_024;

/// How many leases are measured at each size, and how many come before, for a warm cache.
const LEASES: u32 = 1_000;
const WARM_UP: u32 = 100;

/// How many tasks wait when it is looked first.
const FIRST: u64 = 10_000;

/// One queue with so many tasks that wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) name: Name,
    pub(crate) waiting: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// How fast those were submitted that were added for this point.
    pub(crate) filled_per_s: f64,
}

/// Returns how many tasks wait at each look: ten times as many as before, and at last all.
pub(super) fn steps(tasks: u64) -> Vec<u64> {
    let decades = (0..).map_while(|power| FIRST.checked_mul(10_u64.checked_pow(power)?));
    let mut steps: Vec<_> = decades.take_while(|step| *step < tasks).collect();
    steps.push(tasks);
    steps
}

/// A queue that can be filled fast.
trait Fill: Queue {
    fn fill(self: &Arc<Self>, tasks: &Arc<Tasks>, count: u64) -> impl Future<Output = Result<()>>;
}

impl Fill for Semel {
    /// Through the engine: whoever submits while others do shares a commit with them.
    async fn fill(self: &Arc<Self>, tasks: &Arc<Tasks>, count: u64) -> Result<()> {
        let left = Arc::new(AtomicU64::new(count));
        let mut fillers = JoinSet::new();
        for _ in 0..FILLERS {
            let mut submitter = self.submitter().await?;
            let (tasks, left) = (Arc::clone(tasks), Arc::clone(&left));
            fillers.spawn(async move {
                let one_less = |left: u64| left.checked_sub(1);
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                    .is_ok()
                {
                    let number = tasks.keys.take();
                    let key = tasks.keys.key(number);
                    submitter.submit(key, tasks.input(number)).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = fillers.join_next().await {
            done.context("a submitter panicked")??;
        }
        Ok(())
    }
}

impl Fill for SkipLocked {
    async fn fill(self: &Arc<Self>, _: &Arc<Tasks>, count: u64) -> Result<()> {
        Self::fill(self, count).await
    }
}

/// Measures every queue that can be filled, one after the other: each has the disk to itself.
pub(crate) fn run(places: &Places<'_>, names: &[Name], tasks: u64) -> Result<Vec<Point>> {
    let mut points = vec![];
    for name in names.iter().copied() {
        let measured = one(places, name, tasks);
        points.extend(measured.with_context(|| name.as_str())?);
    }
    Ok(points)
}

fn one(places: &Places<'_>, name: Name, tasks: u64) -> Result<Vec<Point>> {
    match name {
        Name::SemelSqlite => {
            let directory = places.scratch.fresh()?;
            let url = Places::sqlite(directory.path());
            curve(places, name, tasks, || Ok(()), Semel::open(&url))
        }
        Name::SemelPostgres => {
            let database = places.server()?.database()?;
            let rest = || database.settle_down();
            let points = curve(places, name, tasks, rest, Semel::open(&database.url()))?;
            database.remove()?;
            Ok(points)
        }
        Name::SkipLocked => {
            let database = places.server()?.database()?;
            let rest = || database.settle_down();
            let points = curve(places, name, tasks, rest, SkipLocked::open(&database.url()))?;
            database.remove()?;
            Ok(points)
        }
        // Its line is in memory, and so is everything in it.
        Name::RedisStreams => Ok(vec![]),
    }
}

fn curve<Q: Fill>(
    places: &Places<'_>,
    name: Name,
    tasks: u64,
    rest: impl Fn() -> Result<()>,
    open: impl Future<Output = Result<Q>>,
) -> Result<Vec<Point>> {
    let runtime = runtime()?;
    let queue = Arc::new(runtime.block_on(open)?);
    let made = Arc::new(Tasks::new()?);
    let mut worker = runtime.block_on(queue.worker())?;
    let (mut waiting, mut points) = (0, vec![]);
    for step in steps(tasks) {
        let watch = places.watch()?;
        let added = step - waiting;
        let began = Instant::now();
        runtime.block_on(queue.fill(&made, added))?;
        let took = began.elapsed();
        rest()?;
        let leases = runtime.block_on(leases(&mut worker, &made))?;
        waiting = step.saturating_sub(u64::from(LEASES + WARM_UP));
        let point = Point {
            name,
            waiting: step,
            p50_us: leases.percentile_us(0.5),
            p99_us: leases.percentile_us(0.99),
            filled_per_s: per_second(added, took),
        };
        told(&point, &watch);
        points.push(point);
    }
    drop(worker);
    runtime.block_on(async { drop(queue) });
    Ok(points)
}

/// Measures leases, one after the other, and settles what was leased.
async fn leases<W: Worker>(worker: &mut W, tasks: &Tasks) -> Result<Histogram> {
    let mut leases = Histogram::new();
    for number in 0..WARM_UP + LEASES {
        let began = Instant::now();
        let leased = worker.lease(Duration::ZERO).await?;
        let took = began.elapsed();
        let Some((held, _)) = leased else {
            ensure!(number > 0, "nothing waits in a queue that was filled");
            break;
        };
        worker.settle(held, tasks.keys.result(0)).await?;
        if number >= WARM_UP || leases.total() == 0 {
            leases.record(took);
        }
    }
    Ok(leases)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one run are far below 2^52"
)]
fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

fn told(point: &Point, watch: &Watch) {
    say(&format!(
        "{:>10} waiting: {:<14} p50 {:>8.1} µs, p99 {:>8.1} µs, filled with {:.0}/s ({})",
        point.waiting,
        point.name.as_str(),
        point.p50_us,
        point.p99_us,
        point.filled_per_s,
        watch.others(),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_look_is_at_ten_times_as_many_tasks() {
        assert_eq!(steps(5_000_000), [10_000, 100_000, 1_000_000, 5_000_000]);
        assert_eq!(steps(100_000), [10_000, 100_000]);
        assert_eq!(steps(7), [7]);
        assert!(steps(u64::MAX).is_sorted());
    }
}
