//! How many tasks of a queue its workers may have at once.

use core::num::NonZeroU32;

use super::line::{QueueHash, Spot};
use crate::ledger::Record;

/// How many tasks workers may have at once; none means as many as they like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of the queue.
    pub queue: Option<NonZeroU32>,
    /// Of one lane of it.
    pub lane: Option<NonZeroU32>,
}

/// What must hold when a worker is given one more task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The queue of the task.
    pub queue: QueueHash,
    /// Its lane.
    pub lane: u64,
    /// How many may be taken, this one among them.
    pub limits: Limits,
}

impl Bounds {
    /// Returns what must hold when this task is taken; `None` where nothing is limited.
    #[must_use]
    pub fn of(record: &Record, limits: Limits) -> Option<Self> {
        let spot = Spot::of(record).filter(|_| limits != Limits::default())?;
        Some(Self {
            queue: spot.queue,
            lane: spot.lane,
            limits,
        })
    }

    /// Says whether there is room for one more. Those that workers have are counted by the caller: of the queue, or of one
    /// lane of it, and no further than asked.
    ///
    /// # Errors
    /// Fails when the count does.
    pub fn leave_room<E>(
        &self,
        mut count: impl FnMut(Option<u64>, usize) -> Result<usize, E>,
    ) -> Result<bool, E> {
        let Limits { queue, lane } = self.limits;
        for (limit, lane) in [(queue, None), (lane, Some(self.lane))] {
            let Some(limit) = limit else { continue };
            let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
            if count(lane, limit)? >= limit {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_below_every_limit() {
        let number = NonZeroU32::new;
        for (queue, lane, of_queue, of_lane, expected) in [
            (None, None, 9, 9, true),
            (number(2), None, 1, 9, true),
            (number(2), None, 2, 0, false),
            (None, number(2), 9, 1, true),
            (None, number(2), 9, 2, false),
            (number(5), number(2), 4, 2, false),
            (number(5), number(2), 5, 1, false),
            (number(5), number(2), 4, 1, true),
        ] {
            let bounds = Bounds {
                queue: QueueHash(1),
                lane: 7,
                limits: Limits { queue, lane },
            };
            let room = bounds.leave_room(|lane, limit| {
                let count: usize = match lane {
                    None => of_queue,
                    Some(lane) => {
                        assert_eq!(lane, 7);
                        of_lane
                    }
                };
                Ok::<_, ()>(count.min(limit))
            });
            assert_eq!(room, Ok(expected), "{bounds:?} {of_queue} {of_lane}");
        }
    }
}
