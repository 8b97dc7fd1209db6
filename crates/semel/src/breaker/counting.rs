//! Calls are counted in memory, and written when that matters.
//!
//! While nothing fails there is nothing to write: a success says something only beside a failure. So successes wait for
//! one, here or in the store, and are written with it, together with the time at which they were counted.

use std::sync::Arc;
use std::time::Duration;

use semel_core::Timestamp;
use semel_core::breaker::{Act, Breaker as Stored, Phase, PhaseKind, Report, Settings, Window};
use semel_core::ledger::{Decision, Fence, Record, StateKind, decide};
use tokio::time::Instant;

use super::{Shared, lock};
use crate::error::Result;

/// How often counts are written at most, unless they change the breaker's phase: a target that fails now and then
/// shall not cost a write each time.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// What was counted and not yet written.
#[derive(Debug, Default)]
pub(super) struct Counting {
    pending: std::sync::Mutex<Pending>,
    /// One writes at a time, and takes what has gathered.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Pending {
    /// The fence with which the calls were admitted.
    fence: Fence,
    calls: Window,
    /// What is just being written: it counts, and nobody has seen it stored.
    leaving: Window,
    /// Whether somebody will write it.
    is_due: bool,
    written: Option<Instant>,
}

impl Pending {
    /// Returns all that nobody has seen stored.
    fn all(&self, settings: &Settings, now: Timestamp) -> Window {
        let mut all = self.leaving.clone();
        all.add(&self.calls, settings, now);
        all
    }
}

/// When counts are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// They change the breaker's phase: nobody goes on before that is stored.
    Now,
    /// With what else gathers.
    Soon,
    /// When there is something to weigh them against.
    Whenever,
}

impl Shared {
    /// Counts a call that was admitted with this fence.
    pub(super) async fn count(self: &Arc<Self>, ok: bool, fence: Fence) {
        match self.take_note(ok, fence) {
            Due::Now => {
                // What could not be written stays counted, and is written with what comes next.
                drop(self.flush().await);
            }
            Due::Soon => self.flush_soon(),
            Due::Whenever => {}
        }
    }

    fn take_note(&self, ok: bool, fence: Fence) -> Due {
        let now = self.engine.store().now();
        let mut pending = lock(&self.counting.pending);
        if fence < pending.fence {
            return Due::Whenever;
        }
        if fence > pending.fence {
            pending.fence = fence;
            pending.calls = Window::default();
        }
        pending.calls.count(ok, &self.settings, now);
        let report = self.command(Act::Report(Report {
            fence,
            probe: None,
            calls: pending.all(&self.settings, now),
        }));
        drop(pending);
        let seen = lock(&self.seen).clone();
        let record = seen.as_ref().and_then(|seen| seen.record.as_deref());
        if !ok && opens(decide(record, &report, now)) {
            return Due::Now;
        }
        let breaker = record.and_then(Record::breaker);
        if !ok || breaker.is_none_or(|breaker| has_failures(breaker, now)) {
            Due::Soon
        } else {
            Due::Whenever
        }
    }

    /// Has what was counted written within [`FLUSH_EVERY`], by one task.
    fn flush_soon(self: &Arc<Self>) {
        let wait = {
            let mut pending = lock(&self.counting.pending);
            if std::mem::replace(&mut pending.is_due, true) {
                return;
            }
            let since = pending.written.map(|written| written.elapsed());
            since.map_or(Duration::ZERO, |since| FLUSH_EVERY.saturating_sub(since))
        };
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            if lock(&shared.counting.pending).is_due {
                // What could not be written is written with what comes next.
                drop(shared.flush().await);
            }
        });
    }

    /// Writes what was counted.
    pub(super) async fn flush(&self) -> Result<()> {
        let _turn = self.counting.writing.lock().await;
        let (fence, calls) = {
            let mut pending = lock(&self.counting.pending);
            pending.is_due = false;
            pending.written = Some(Instant::now());
            pending.leaving = std::mem::take(&mut pending.calls);
            (pending.fence, pending.leaving.clone())
        };
        if calls.total().calls() == 0 {
            return Ok(());
        }
        let report = Report {
            fence,
            probe: None,
            calls: calls.clone(),
        };
        let written = self.ask(Act::Report(report)).await;
        lock(&self.counting.pending).leaving = Window::default();
        match written {
            Ok(_) => Ok(()),
            Err(error) => {
                self.put_back(fence, calls);
                Err(error)
            }
        }
    }

    fn put_back(&self, fence: Fence, mut calls: Window) {
        let now = self.engine.store().now();
        let mut pending = lock(&self.counting.pending);
        if pending.fence == fence {
            calls.add(&pending.calls, &self.settings, now);
            pending.calls = calls;
        }
    }
}

fn opens<E>(decided: std::result::Result<Decision, E>) -> bool {
    let Ok(Decision::Write(write)) = decided else {
        return false;
    };
    let kind = write.next.as_ref().map(Record::kind);
    kind == Some(StateKind::Breaker(PhaseKind::Open))
}

/// Says whether there are failures that a success is to be weighed against.
fn has_failures(breaker: &Stored, now: Timestamp) -> bool {
    match &breaker.phase {
        Phase::Closed(window) => {
            window.in_row > 0 || window.counts(&breaker.settings, now).failed > 0
        }
        Phase::Open(_) | Phase::HalfOpen(_) => false,
    }
}
