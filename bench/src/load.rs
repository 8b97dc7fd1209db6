//! Closed-loop load: so many callers, each of which asks again as soon as it is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::engines::{Contender, Cycles};
use crate::histogram::Histogram;
use crate::keys::{Dice, Keys};

/// The threads that the callers share, whatever the engine.
pub(crate) const WORKERS: usize = 2;

/// One replay in so many is compared with what was stored, so that comparing costs nothing.
const CHECKED_EVERY: u64 = 64;

/// Replays that a caller makes before it lets the others have the thread: nothing in a replay
/// waits, so without it two callers would have both threads to themselves.
const REPLAYS_PER_TURN: usize = 16;

/// How often the one who waits looks whether a caller has failed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Makes the runtime on which every engine is measured.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// What callers did while they were measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) latency: Histogram,
}

impl Measured {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of one run are far below 2^52"
    )]
    pub(crate) fn per_second(&self) -> f64 {
        self.latency.total() as f64 / self.seconds
    }
}

/// Tells the callers when to count and when to stop.
#[derive(Debug, Default)]
pub(crate) struct Control {
    measuring: AtomicBool,
    /// Whether anybody was answered while it was measured.
    counted: AtomicBool,
    stopped: AtomicBool,
}

impl Control {
    /// Counts an answer, if it is measured.
    pub(crate) fn count(&self, latency: &mut Histogram, took: Duration) {
        if self.measuring.load(Ordering::Relaxed) {
            latency.record(took);
            // Written once only: the callers' threads share it.
            if !self.counted() {
                self.counted.store(true, Ordering::Relaxed);
            }
        }
    }

    fn counted(&self) -> bool {
        self.counted.load(Ordering::Relaxed)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Lets callers be measured for this long, stops them, and returns for how many seconds they were.
    pub(crate) fn measure(&self, warm_up: Duration, time: Duration) -> f64 {
        self.wait(warm_up);
        let began = Instant::now();
        self.measuring.store(true, Ordering::Relaxed);
        self.wait(time);
        // On a busy machine even the first answer may take longer than a short measurement.
        while !self.counted() && !self.stopped() {
            std::thread::sleep(LOOK_EVERY);
        }
        self.measuring.store(false, Ordering::Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        self.stop();
        seconds
    }

    /// Waits, but not for callers that have failed.
    fn wait(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stopped() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// A contender under load.
pub(crate) struct Load<'a, C> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) contender: &'a Arc<C>,
    pub(crate) keys: &'a Arc<Keys>,
    pub(crate) callers: u32,
}

impl<C: Cycles> Load<'_, C> {
    /// Measures cycles of fresh keys.
    pub(crate) fn cycles(&self, warm_up: Duration, time: Duration) -> Result<Measured> {
        let control = Arc::new(Control::default());
        let tasks = self.start_cycles(&control);
        self.measure(&control, tasks, warm_up, time)
    }

    /// Makes cycles until so many keys are settled.
    pub(crate) fn fill(&self, until: u64) -> Result<()> {
        let control = Arc::new(Control::default());
        let tasks = self.start_cycles(&control);
        while self.keys.taken() < until && !control.stopped() {
            std::thread::sleep(LOOK_EVERY);
        }
        control.stop();
        self.join(tasks).map(drop)
    }

    fn start_cycles(&self, control: &Arc<Control>) -> Vec<JoinHandle<Result<Histogram>>> {
        let start = |_| {
            let (contender, keys) = (Arc::clone(self.contender), Arc::clone(self.keys));
            let control = Arc::clone(control);
            let task = async move {
                let done = cycle(&*contender, &keys, &control).await;
                done.inspect_err(|_| control.stop())
            };
            self.runtime.spawn(task)
        };
        (0..self.callers).map(start).collect()
    }

    fn measure(
        &self,
        control: &Control,
        tasks: Vec<JoinHandle<Result<Histogram>>>,
        warm_up: Duration,
        time: Duration,
    ) -> Result<Measured> {
        let seconds = control.measure(warm_up, time);
        let latency = self.join(tasks)?;
        Ok(Measured { seconds, latency })
    }

    fn join(&self, tasks: Vec<JoinHandle<Result<Histogram>>>) -> Result<Histogram> {
        join(self.runtime, tasks)
    }
}

/// Waits for callers, and adds up what they counted.
pub(crate) fn join(
    runtime: &Runtime,
    tasks: Vec<JoinHandle<Result<Histogram>>>,
) -> Result<Histogram> {
    let mut all = Histogram::new();
    for task in tasks {
        let done = runtime.block_on(task).context("a caller panicked")?;
        all.add(&done?);
    }
    Ok(all)
}

impl<C: Contender> Load<'_, C> {
    /// Measures replays of keys that are settled.
    pub(crate) fn replays(&self, warm_up: Duration, time: Duration) -> Result<Measured> {
        ensure!(self.keys.taken() > 0, "no key was settled");
        let control = Arc::new(Control::default());
        let start = |caller| {
            let (contender, keys) = (Arc::clone(self.contender), Arc::clone(self.keys));
            let control = Arc::clone(&control);
            let task = async move {
                let done = replay(&*contender, &keys, &control, caller).await;
                done.inspect_err(|_| control.stop())
            };
            self.runtime.spawn(task)
        };
        let tasks = (0..self.callers).map(start).collect();
        self.measure(&control, tasks, warm_up, time)
    }
}

async fn cycle<C: Cycles>(contender: &C, keys: &Keys, control: &Control) -> Result<Histogram> {
    let mut latency = Histogram::new();
    while !control.stopped() {
        let number = keys.take();
        let (key, result) = (keys.key(number), keys.result(number));
        let took = contender.timed(key, result).await?;
        control.count(&mut latency, took);
    }
    Ok(latency)
}

async fn replay<C: Contender>(
    contender: &C,
    keys: &Keys,
    control: &Control,
    caller: u32,
) -> Result<Histogram> {
    let mut latency = Histogram::new();
    let mut dice = Dice::new(u64::from(caller));
    let settled = keys.taken();
    while !control.stopped() {
        for _ in 0..REPLAYS_PER_TURN {
            let number = dice.below(settled);
            let key = keys.key(number);
            let began = Instant::now();
            let found = contender.replay(key).await?;
            control.count(&mut latency, began.elapsed());
            if number.is_multiple_of(CHECKED_EVERY) {
                let stored = keys.result(number);
                ensure!(found.as_ref() == stored, "a replay gave another result");
            }
        }
        tokio::task::yield_now().await;
    }
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers at once, or late, or fails, or gives wrong results.
    enum Toy {
        Works,
        Slow,
        Fails,
        Lies,
    }

    impl Cycles for Toy {
        async fn cycle(&self, _: crate::keys::Key, _: Vec<u8>) -> Result<()> {
            tokio::task::yield_now().await;
            if matches!(self, Self::Slow) {
                tokio::time::sleep(10 * SHORT).await;
            }
            ensure!(!matches!(self, Self::Fails), "the disk is full");
            Ok(())
        }
    }

    impl Contender for Toy {
        type Found = Vec<u8>;

        async fn replay(&self, _: crate::keys::Key) -> Result<Vec<u8>> {
            ensure!(!matches!(self, Self::Fails), "the disk is full");
            Ok(b"something else".to_vec())
        }
    }

    fn with(toy: Toy, check: impl FnOnce(&Load<'_, Toy>)) {
        let (runtime, keys) = (runtime().unwrap(), Arc::new(Keys::new().unwrap()));
        check(&Load {
            runtime: &runtime,
            contender: &Arc::new(toy),
            keys: &keys,
            callers: 4,
        });
    }

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn cycles_are_counted_after_the_warm_up_only() {
        with(Toy::Works, |load| {
            let measured = load.cycles(SHORT, SHORT).unwrap();
            assert!(measured.latency.total() > 0);
            assert!(measured.latency.total() < load.keys.taken());
            assert!(measured.per_second() > 0.0);
        });
    }

    #[test]
    fn a_measurement_lasts_until_somebody_was_answered() {
        with(Toy::Slow, |load| {
            let measured = load.cycles(Duration::ZERO, SHORT).unwrap();
            assert!(measured.latency.total() > 0);
            assert!(measured.seconds > SHORT.as_secs_f64());
        });
    }

    #[test]
    fn filling_ends_when_enough_keys_are_settled() {
        with(Toy::Works, |load| {
            load.fill(1_000).unwrap();
            assert!(load.keys.taken() >= 1_000);
        });
    }

    #[test]
    fn a_failing_caller_ends_the_run_with_its_error() {
        let long = Duration::from_secs(600);
        with(Toy::Fails, |load| {
            let failed = load.cycles(long, long).unwrap_err();
            assert_eq!(failed.to_string(), "the disk is full");
            let failed = load.fill(u64::MAX).unwrap_err();
            assert_eq!(failed.to_string(), "the disk is full");
        });
    }

    #[test]
    fn a_replay_that_gives_another_result_is_an_error() {
        with(Toy::Lies, |load| {
            load.fill(1_000).unwrap();
            let failed = load.replays(SHORT, Duration::from_secs(600)).unwrap_err();
            assert_eq!(failed.to_string(), "a replay gave another result");
        });
    }
}
