//! The load: as many submitters as workers, and a line that is short but seldom empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::contender::{Queue, Submitter, Worker};
use super::task::Tasks;
use crate::histogram::Histogram;
use crate::keys::mix;
use crate::load::{Control, Measured, join};

/// How many tasks there are for each worker, submitted and not yet settled, at most: enough that workers need not wait
/// for submitters, and so few that the time to a start is not that of a long line.
pub(crate) const TASKS_PER_WORKER: u32 = 4;

/// How long one who waits goes without looking whether all is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A queue under load.
pub(super) struct Load<'a, Q> {
    pub(super) runtime: &'a Runtime,
    pub(super) queue: &'a Q,
    pub(super) workers: u32,
}

impl<Q: Queue> Load<'_, Q> {
    /// Measures tasks from their submission to their settlement. Each is counted when it is settled, with the time that
    /// passed from its submission to its start; at the end all must be settled, each of them once.
    pub(super) fn measure(&self, warm_up: Duration, time: Duration) -> Result<Measured> {
        let flow = Arc::new(Flow::new(self.workers)?);
        let mut callers = vec![];
        for _ in 0..self.workers {
            let submitter = self.runtime.block_on(self.queue.submitter())?;
            let worker = self.runtime.block_on(self.queue.worker())?;
            callers.push((submitter, worker));
        }
        let mut tasks = vec![];
        for (submitter, worker) in callers {
            let submitting = Arc::clone(&flow);
            let working = Arc::clone(&flow);
            tasks.push(self.runtime.spawn(async move {
                let done = submitting.submit(submitter).await;
                submitting.ended(done)
            }));
            tasks.push(self.runtime.spawn(async move {
                let done = working.work(worker).await;
                working.ended(done)
            }));
        }
        let seconds = flow.control.measure(warm_up, time);
        let latency = join(self.runtime, tasks)?;
        flow.submitted.same(&flow.settled)?;
        Ok(Measured { seconds, latency })
    }
}

/// What submitters and workers share.
struct Flow {
    tasks: Tasks,
    control: Control,
    room: Semaphore,
    /// How many still submit.
    submitting: AtomicU32,
    failed: AtomicBool,
    submitted: Tally,
    settled: Tally,
}

impl Flow {
    fn new(workers: u32) -> Result<Self> {
        let room = usize::try_from(workers * TASKS_PER_WORKER)?;
        Ok(Self {
            tasks: Tasks::new()?,
            control: Control::default(),
            room: Semaphore::new(room),
            submitting: AtomicU32::new(workers),
            failed: AtomicBool::new(false),
            submitted: Tally::default(),
            settled: Tally::default(),
        })
    }

    async fn submit<S: Submitter>(&self, mut submitter: S) -> Result<Histogram> {
        while !self.control.stopped() {
            let room = tokio::time::timeout(LOOK_EVERY, self.room.acquire());
            let Ok(room) = room.await else { continue };
            // Whoever settles the task gives it back.
            room?.forget();
            let number = self.tasks.keys.take();
            let key = self.tasks.keys.key(number);
            self.submitted.add(number);
            submitter.submit(key, self.tasks.input(number)).await?;
        }
        self.submitting.fetch_sub(1, Ordering::AcqRel);
        Ok(Histogram::new())
    }

    async fn work<W: Worker>(&self, mut worker: W) -> Result<Histogram> {
        let mut latency = Histogram::new();
        while !self.is_over() {
            let Some((held, input)) = worker.lease(LOOK_EVERY).await? else {
                continue;
            };
            let started = self.tasks.now();
            let task = self.tasks.read(&input)?;
            let result = self.tasks.keys.result(task.number);
            worker.settle(held, result).await?;
            let waited = started.saturating_sub(task.submitted);
            self.control.count(&mut latency, waited);
            self.settled.add(task.number);
            self.room.add_permits(1);
        }
        Ok(latency)
    }

    /// Says whether there is nothing more to do, or no way to do it.
    fn is_over(&self) -> bool {
        let is_done = self.submitting.load(Ordering::Acquire) == 0
            && self.settled.count() >= self.submitted.count();
        is_done || self.failed.load(Ordering::Relaxed)
    }

    fn ended(&self, done: Result<Histogram>) -> Result<Histogram> {
        done.inspect_err(|_| {
            self.failed.store(true, Ordering::Relaxed);
            self.control.stop();
        })
    }
}

/// Which tasks there were: how many, and the sum of their numbers, each of them mixed up.
#[derive(Debug, Default)]
struct Tally {
    count: AtomicU64,
    sum: AtomicU64,
}

impl Tally {
    fn add(&self, number: u64) {
        self.sum.fetch_add(mix(number), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn same(&self, settled: &Self) -> Result<()> {
        let (ours, theirs) = (self.count(), settled.count());
        let is_same = self.sum.load(Ordering::Relaxed) == settled.sum.load(Ordering::Relaxed);
        ensure!(
            ours == theirs && is_same,
            "{ours} tasks were submitted and {theirs} settled, not each of them once"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::runtime;
    use anyhow::Context as _;
    use std::sync::Mutex;
    use tokio::sync::Notify;

    /// A queue in memory, and what is wrong with it.
    #[derive(Clone)]
    struct Toy {
        line: Arc<Mutex<Vec<Vec<u8>>>>,
        wake: Arc<Notify>,
        fault: Option<Fault>,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        Twice,
        OtherInput,
        Refuses,
    }

    impl Queue for Toy {
        type Submitter = Self;
        type Worker = Self;

        async fn submitter(&self) -> Result<Self> {
            Ok(self.clone())
        }

        async fn worker(&self) -> Result<Self> {
            Ok(self.clone())
        }
    }

    impl Submitter for Toy {
        async fn submit(&mut self, _: crate::keys::Key, mut input: Vec<u8>) -> Result<()> {
            if self.fault == Some(Fault::OtherInput) {
                input[100] ^= 1;
            }
            let mut line = self.line.lock().unwrap();
            if self.fault == Some(Fault::Twice) {
                line.push(input.clone());
            }
            line.push(input);
            self.wake.notify_one();
            Ok(())
        }

        async fn commits(&mut self, _: [crate::keys::Key; 2], _: Vec<u8>) -> Result<Duration> {
            Ok(Duration::ZERO)
        }
    }

    impl Worker for Toy {
        type Held = ();

        async fn lease(&mut self, wait: Duration) -> Result<Option<((), Vec<u8>)>> {
            tokio::task::yield_now().await;
            if self.line.lock().unwrap().is_empty() {
                let _woken = tokio::time::timeout(wait, self.wake.notified()).await;
            }
            Ok(self.line.lock().unwrap().pop().map(|input| ((), input)))
        }

        async fn settle(&mut self, (): (), _: Vec<u8>) -> Result<()> {
            (self.fault != Some(Fault::Refuses))
                .then_some(())
                .context("the disk is full")
        }
    }

    const SHORT: Duration = Duration::from_millis(20);

    fn measure(fault: Option<Fault>, time: Duration) -> Result<Measured> {
        let runtime = runtime().unwrap();
        let toy = Toy {
            line: Arc::default(),
            wake: Arc::default(),
            fault,
        };
        let load = Load {
            runtime: &runtime,
            queue: &toy,
            workers: 4,
        };
        load.measure(SHORT, time)
    }

    #[test]
    fn tasks_are_counted_when_they_are_settled() {
        let measured = measure(None, SHORT).unwrap();
        assert!(measured.latency.total() > 0);
        assert!(measured.latency.percentile_us(0.5) > 0.0);
    }

    #[test]
    fn a_task_that_is_settled_twice_is_an_error() {
        let failed = measure(Some(Fault::Twice), SHORT).unwrap_err().to_string();
        assert!(failed.contains("not each of them once"), "{failed}");
    }

    #[test]
    fn a_failing_caller_ends_the_run_with_its_error() {
        let long = Duration::from_secs(600);
        let failed = measure(Some(Fault::Refuses), long).unwrap_err();
        assert_eq!(failed.to_string(), "the disk is full");
        let failed = measure(Some(Fault::OtherInput), long).unwrap_err();
        assert!(failed.to_string().contains("another input"), "{failed}");
    }
}
