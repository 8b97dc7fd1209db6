//! The connections of HTTP/1.1 that wait for their next request, and how many there may be in all.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::http1::{Lease, Line};
use crate::locked::locked;

/// The most connections that wait. Each takes some 20 KB; whoever has more callers than that opens some anew.
const KEPT_MAX: usize = 512;

/// How often those that waited too long are closed. Nobody waits for that.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// How long a connection may have waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    /// For a request that may have an effect.
    pub(super) unsafe_max: Duration,
    /// For one that asks only.
    pub(super) safe_max: Duration,
}

/// The connections to one server.
#[derive(Debug)]
pub(super) struct Pool {
    ages: Ages,
    connections_max: usize,
    places: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The one that came last is at the end.
    lines: Vec<Kept>,
    is_swept: bool,
}

#[derive(Debug)]
struct Kept {
    line: Line,
    since: Instant,
    keep_alive: Option<Duration>,
}

impl Kept {
    /// Says whether it has not waited for too long.
    fn is_fresh(&self, age_max: Duration) -> bool {
        let age_max = self.keep_alive.map_or(age_max, |said| said.min(age_max));
        self.since.elapsed() < age_max
    }
}

impl Pool {
    pub(super) fn new(connections_max: usize, ages: Ages) -> Self {
        let connections_max = connections_max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            ages,
            connections_max,
            places: Arc::new(Semaphore::new(connections_max)),
            waiting: Mutex::default(),
        }
    }

    /// Waits for a place among all connections. Nobody gets it before those who came earlier.
    pub(super) async fn place(&self, patience: Duration) -> Result<OwnedSemaphorePermit, String> {
        let place = Arc::clone(&self.places).acquire_owned();
        match tokio::time::timeout(patience, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(closed)) => Err(closed.to_string()),
            Err(_) => Err(busy(self.connections_max, patience)),
        }
    }

    /// Takes a connection that a request can go out on, if there is one.
    pub(super) fn take(&self, is_safe: bool) -> Option<Line> {
        let age_max = if is_safe {
            self.ages.safe_max
        } else {
            self.ages.unsafe_max
        };
        loop {
            // The newest is the least likely to be closed; when it is too old, they all are.
            let newest = locked(&self.waiting)
                .lines
                .pop_if(|kept| kept.is_fresh(age_max))?;
            if newest.line.is_free() {
                return Some(newest.line);
            }
        }
    }

    /// Makes room for one more connection, for which there is a place: one that waits is closed if there would be too
    /// many otherwise.
    pub(super) fn make_room(&self) {
        let used = self.connections_max - self.places.available_permits();
        let mut waiting = locked(&self.waiting);
        let excess = (used + waiting.lines.len()).saturating_sub(self.connections_max);
        let closed: Vec<Kept> = waiting.lines.drain(..excess).collect();
        drop(waiting);
        drop(closed);
    }

    /// Keeps a connection for the next request.
    pub(super) fn put(self: &Arc<Self>, lease: Lease) {
        let Lease {
            line,
            place,
            keep_alive,
        } = lease;
        let mut waiting = locked(&self.waiting);
        let closed = (waiting.lines.len() >= KEPT_MAX).then(|| waiting.lines.remove(0));
        waiting.lines.push(Kept {
            line,
            since: Instant::now(),
            keep_alive,
        });
        if !waiting.is_swept {
            waiting.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
        drop(waiting);
        drop(closed);
        // Whoever gets the place finds the connection.
        drop(place);
    }

    /// Closes those that waited too long for any request; says whether none is left.
    fn close_old(&self) -> bool {
        let mut waiting = locked(&self.waiting);
        let safe_max = self.ages.safe_max;
        let old: Vec<Kept> = waiting
            .lines
            .extract_if(.., |kept| !kept.is_fresh(safe_max))
            .collect();
        let is_empty = waiting.lines.is_empty();
        waiting.is_swept = !is_empty;
        drop(waiting);
        drop(old);
        is_empty
    }
}

async fn sweep(pool: std::sync::Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        match pool.upgrade() {
            Some(pool) if !pool.close_old() => {}
            _ => return,
        }
    }
}

/// Says that there was no place.
pub(super) fn busy(connections_max: usize, patience: Duration) -> String {
    let seconds = patience.as_secs_f64();
    format!("all {connections_max} connections were in use for {seconds} s")
}
