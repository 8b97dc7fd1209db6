//! Whose turn it is in the lines that this process takes from, and how many may have one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::queue::{Pace, QueueHash, Rate};
use tokio::time::Instant;

use super::asks::Asked;
use super::settings::QueueSettings;
use crate::store::{Result, Store, WAITING_MAX};

/// How many tasks at the head of a line are left to others, at most, while several processes take from it: further back
/// than all of them together reach, nobody needs to go.
const SKIP_MAX: usize = WAITING_MAX;

/// Two to the power of 64, divided by the golden ratio: its multiples lie evenly, however many they are.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// How often a process that finds nothing to take looks after what workers have.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The most queues whose turns are remembered; beyond it those are forgotten that nobody takes from just now.
const LINES_MAX: usize = 4_096;

/// The most lanes whose pace is remembered; beyond it all of them may begin anew.
const LANES_MAX: usize = 10_000;

/// Whose turn it is in the line of a queue, as far as this process takes from it.
#[derive(Debug)]
pub(super) struct Turn {
    /// The lane that had its turn last.
    pub(super) lane: u64,
    /// How many at the head are left to others.
    pub(super) skip: usize,
    pace: Pace,
    lanes: HashMap<u64, Pace>,
    since: Instant,
    /// How many of those that workers have were looked after.
    pub(super) looked_after: usize,
    looks_after_at: Option<Instant>,
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            lane: 0,
            skip: 0,
            pace: Pace::default(),
            lanes: HashMap::new(),
            since: Instant::now(),
            looked_after: 0,
            looks_after_at: None,
        }
    }
}

impl Turn {
    /// Says whether it is time to look after those that workers have.
    pub(super) fn looks_after(&mut self) -> bool {
        let now = Instant::now();
        let is_time = self.looks_after_at.is_none_or(|at| at <= now);
        if is_time {
            self.looks_after_at = Some(now + LOOK_AFTER);
        }
        is_time
    }

    /// Begins the next look elsewhere: one look goes past so many lanes only, and there may be more in which all tasks
    /// are put off. Lanes are hashes, so steps of this length come by all of them soon.
    pub(super) fn go_on(&mut self) {
        self.lane = self.lane.wrapping_add(STRIDE);
    }

    /// Goes further back while others take the same tasks, and comes back when they do not.
    pub(super) fn learn(&mut self, tried: usize, lost: usize) {
        self.skip = if lost * 4 > tried {
            (self.skip * 2 + tried).min(SKIP_MAX)
        } else {
            self.skip / 2
        };
    }
}

/// How many more tasks may be taken from a queue right now.
#[derive(Debug)]
pub(super) struct Room<'a> {
    settings: QueueSettings,
    queue: QueueHash,
    left: usize,
    lanes: HashMap<u64, usize>,
    store: &'a dyn Store,
}

impl<'a> Room<'a> {
    /// Counts what workers have.
    pub(super) async fn of(
        store: &'a dyn Store,
        queue: QueueHash,
        settings: QueueSettings,
        wanted: usize,
    ) -> Result<Self> {
        let mut room = Self {
            settings,
            queue,
            left: wanted,
            lanes: HashMap::new(),
            store,
        };
        if let Some(limit) = settings.concurrency {
            room.left = wanted.min(room.free(None, limit.get()).await?);
        }
        Ok(room)
    }

    async fn free(&self, lane: Option<u64>, limit: u32) -> Result<usize> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let taken = self.store.taken(self.queue, lane, limit).await?;
        Ok(limit.saturating_sub(taken))
    }

    pub(super) const fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Takes a place for a task of this lane, if there is one.
    pub(super) async fn take(&mut self, turn: &mut Turn, lane: u64) -> Result<bool> {
        if self.is_full() {
            return Ok(false);
        }
        if let Some(limit) = self.settings.lane_concurrency {
            if !self.lanes.contains_key(&lane) {
                let free = self.free(Some(lane), limit.get()).await?;
                self.lanes.insert(lane, free);
            }
            if self.lanes.get(&lane) == Some(&0) {
                return Ok(false);
            }
        }
        if !self.paced(turn, lane) {
            return Ok(false);
        }
        self.left -= 1;
        if let Some(free) = self.lanes.get_mut(&lane) {
            *free -= 1;
        }
        Ok(true)
    }

    /// Asks whether it is soon enough for another task.
    fn paced(&mut self, turn: &mut Turn, lane: u64) -> bool {
        let now = turn.since.elapsed();
        if turn.lanes.len() >= LANES_MAX {
            turn.lanes.clear();
        }
        let of_lane = self.settings.lane_rate;
        let mut of_lane = of_lane.map(|rate| (rate, turn.lanes.entry(lane).or_default()));
        if let Some((rate, pace)) = &of_lane
            && !pace.wait(*rate, now).is_zero()
        {
            return false;
        }
        if let Some(rate) = self.settings.rate
            && turn.pace.take(rate, now).is_err()
        {
            self.left = 0;
            return false;
        }
        if let Some((rate, pace)) = &mut of_lane {
            pace.reserve(*rate, now);
        }
        true
    }
}

/// A line that this process takes from.
#[derive(Debug)]
pub(super) struct Line {
    /// Whoever has the turn looks along the line for all who ask, as they would find the same tasks.
    asked: Mutex<Asked>,
    retries: Mutex<Pace>,
    since: Instant,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            asked: Mutex::default(),
            retries: Mutex::default(),
            since: Instant::now(),
        }
    }
}

impl Line {
    /// Returns those who ask.
    pub(super) fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long the next retry has to wait for its turn in the queue's budget.
    pub(super) fn retry(&self, budget: Rate) -> Duration {
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        retries.reserve(budget, self.since.elapsed())
    }
}

/// The lines that this process takes from.
#[derive(Debug, Default)]
pub(in crate::engine) struct Turns(Mutex<HashMap<QueueHash, Arc<Line>>>);

impl Turns {
    /// Returns the line of a queue.
    pub(super) fn of(&self, queue: QueueHash) -> Arc<Line> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= LINES_MAX {
            turns.retain(|_, line| Arc::strong_count(line) > 1);
        }
        Arc::clone(turns.entry(queue).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_loses_races_goes_further_back_and_comes_back() {
        let mut turn = Turn::default();
        turn.learn(10, 0);
        assert_eq!(turn.skip, 0);
        turn.learn(10, 5);
        turn.learn(10, 5);
        assert_eq!(turn.skip, 30);
        for _ in 0..9 {
            turn.learn(100, 100);
        }
        assert_eq!(turn.skip, SKIP_MAX);
        for _ in 0..9 {
            turn.learn(10, 0);
        }
        assert_eq!(turn.skip, 0);
    }
}
