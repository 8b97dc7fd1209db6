//! An idle queue: workers wait, and one task at a time is submitted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::contender::{Queue, Submitter, Worker};
use super::task::Tasks;
use crate::histogram::Histogram;

/// The workers that wait.
pub(crate) const WORKERS: u32 = 8;

/// How long a worker waits at a time; it is woken much sooner.
const WAIT: Duration = Duration::from_secs(2);

/// How long the queue is left alone between two tasks: by then every worker waits again.
const PAUSE: Duration = Duration::from_millis(5);

/// How fast tasks start.
#[derive(Debug)]
pub(super) struct Starts {
    /// From the call that submits to the start.
    pub(super) starts: Histogram,
    /// What the commits alone take that are in it.
    pub(super) commits: Histogram,
}

/// Submits one task after the other for this long; the commits alone are measured in between, so that both have the
/// same conditions.
pub(super) async fn measure<Q: Queue>(queue: &Q, time: Duration) -> Result<Starts> {
    let tasks = Arc::new(Tasks::new()?);
    let mut submitter = queue.submitter().await?;
    let (tell, mut told) = mpsc::channel(1);
    // They end with this.
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let worker = queue.worker().await?;
        workers.spawn(work(worker, Arc::clone(&tasks), tell.clone()));
    }
    drop(tell);
    let mut measured = Starts {
        starts: Histogram::new(),
        commits: Histogram::new(),
    };
    let began = Instant::now();
    let mut is_warm = false;
    while began.elapsed() < time || measured.starts.total() == 0 {
        tokio::time::sleep(PAUSE).await;
        let number = tasks.keys.take();
        let key = tasks.keys.key(number);
        submitter.submit(key, tasks.input(number)).await?;
        let Some(waited) = told.recv().await else {
            break;
        };
        let waited = waited?;
        tokio::time::sleep(PAUSE).await;
        let keys = [tasks.keys.take(), tasks.keys.take()].map(|number| tasks.keys.key(number));
        let commits = submitter.commits(keys, tasks.input(number)).await?;
        // The first ones find nothing prepared.
        if is_warm {
            measured.starts.record(waited);
            measured.commits.record(commits);
        }
        is_warm |= began.elapsed() > time / 8;
    }
    workers.shutdown().await;
    let starts = measured.starts.total();
    (starts > 0)
        .then_some(measured)
        .context("the workers ended")
}

/// Carries tasks out, and tells how long each waited once it is settled.
async fn work<W: Worker>(mut worker: W, tasks: Arc<Tasks>, tell: mpsc::Sender<Result<Duration>>) {
    loop {
        let waited = match one(&mut worker, &tasks).await {
            Ok(None) => continue,
            Ok(Some(waited)) => Ok(waited),
            Err(error) => Err(error),
        };
        let failed = waited.is_err();
        if tell.send(waited).await.is_err() || failed {
            return;
        }
    }
}

async fn one<W: Worker>(worker: &mut W, tasks: &Tasks) -> Result<Option<Duration>> {
    let Some((held, input)) = worker.lease(WAIT).await? else {
        return Ok(None);
    };
    let started = tasks.now();
    let task = tasks.read(&input)?;
    let result = tasks.keys.result(task.number);
    worker.settle(held, result).await?;
    Ok(Some(started.saturating_sub(task.submitted)))
}
