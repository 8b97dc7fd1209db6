//! Lines of tasks: which of those that wait are taken next. Every store looks for them in the same order.

use semel_core::Timestamp;
use semel_core::queue::{QueueHash, Spot, Standing};

use super::{Place, Result};

/// The most tasks that one look finds.
pub const WAITING_MAX: usize = 256;

/// The largest packed input of a task that comes along with it: more of them fit into an answer than a look finds.
pub(super) const ALONG_MAX: i32 = 8 * 1024;

/// How many lanes one look goes past in search of tasks that are due: a lane of tasks that were all put off costs a look
/// at the index, and the next look begins elsewhere.
pub(super) const LANES_MAX: usize = 1_024;

/// Which tasks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The queue.
    pub queue: QueueHash,
    /// As of when they may be taken.
    pub now: Timestamp,
    /// The lane that had its turn last: it is the last one to have the next.
    pub after_lane: u64,
    /// How many at the head of each lane are left to others, who look at the same time.
    pub skip: usize,
    /// How many, at most [`WAITING_MAX`].
    pub limit: usize,
    /// Asks for those that workers have, instead of those that wait; lanes and times are not looked at.
    pub taken: bool,
    /// Whether what their workers are given comes along ([`Stored::payload`](super::Stored)), as far as it is small: up to
    /// 8 KiB when it is packed.
    pub inputs: bool,
}

/// A spot as the numbers of a row, in the order of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) queue: i64,
    pub(super) taken: bool,
    pub(super) rank: i16,
    pub(super) lane: i64,
    pub(super) at: i64,
    pub(super) place: Place,
    pub(super) until: Option<i64>,
}

impl Row {
    pub(super) fn new(spot: Spot, place: Place) -> Self {
        let (taken, rank, at, until) = match spot.standing {
            Standing::Waiting { rank, at, until } => {
                (false, rank, at.0, until.map(|until| until.0))
            }
            Standing::Taken => (true, 0, 0, None),
        };
        Self {
            queue: spot.queue.0.cast_signed(),
            taken,
            rank,
            lane: lane_order(spot.lane),
            at,
            place,
            until,
        }
    }
}

/// How a store's index of lines is looked at.
pub(super) trait Lines {
    /// Returns the next priority of which a task waits.
    fn next_rank(&mut self, after: Option<i16>) -> Result<Option<i16>>;

    /// Returns the next lane in which a task of this priority waits, in the order of [`lane_order`].
    fn next_lane(&mut self, rank: i16, after: Option<i64>) -> Result<Option<i64>>;

    /// Returns the tasks that workers have, in the order of the index.
    fn taken(&mut self, skip: usize, limit: usize) -> Result<Vec<Place>>;

    /// Returns the tasks of a lane that are due, the oldest first.
    fn due(&mut self, rank: i16, lane: i64, skip: usize, limit: usize) -> Result<Vec<Place>>;
}

/// Returns a lane as a number by which lanes are in order.
pub(super) const fn lane_order(lane: u64) -> i64 {
    lane.cast_signed()
}

/// Finds the next tasks: the highest priority first, and of each priority one of every lane in turn.
pub(super) fn next(lines: &mut impl Lines, ask: &Waiting) -> Result<Vec<Place>> {
    let limit = ask.limit.clamp(1, WAITING_MAX);
    if ask.taken {
        return lines.taken(ask.skip, limit);
    }
    let mut found = vec![];
    let mut rank = lines.next_rank(None)?;
    while let Some(number) = rank.filter(|_| found.len() < limit) {
        found.extend(of_rank(lines, ask, number, limit - found.len())?);
        rank = lines.next_rank(Some(number))?;
    }
    Ok(found)
}

fn of_rank(lines: &mut impl Lines, ask: &Waiting, rank: i16, limit: usize) -> Result<Vec<Place>> {
    let lanes = lanes_in_turn(lines, ask, rank, limit)?;
    if lanes.is_empty() {
        return Ok(vec![]);
    }
    let share = limit.div_ceil(lanes.len());
    let mut waiting = vec![];
    for lane in lanes {
        waiting.push(lines.due(rank, lane, ask.skip, share)?.into_iter());
    }
    let mut found = vec![];
    for _ in 0..share {
        found.extend(waiting.iter_mut().filter_map(Iterator::next));
    }
    found.truncate(limit);
    Ok(found)
}

/// Finds lanes in which a task is due, beginning behind the one that had its turn last.
fn lanes_in_turn(
    lines: &mut impl Lines,
    ask: &Waiting,
    rank: i16,
    limit: usize,
) -> Result<Vec<i64>> {
    let last = lane_order(ask.after_lane);
    let mut lanes = vec![];
    let (mut after, mut has_wrapped) = (Some(last), false);
    for _ in 0..LANES_MAX {
        let next = lines.next_lane(rank, after)?;
        let Some(lane) = next.filter(|lane| !has_wrapped || *lane <= last) else {
            if has_wrapped {
                break;
            }
            (after, has_wrapped) = (None, true);
            continue;
        };
        if !lines.due(rank, lane, ask.skip, 1)?.is_empty() {
            lanes.push(lane);
        }
        if lanes.len() >= limit {
            break;
        }
        after = Some(lane);
    }
    Ok(lanes)
}
