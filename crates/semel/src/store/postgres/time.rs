//! Which time it is: the database's, estimated between two looks at it.
//!
//! Every read and every transaction brings `clock_timestamp()` along. It was read before it arrived,
//! so counting from its arrival by this machine's monotonic clock gives a time that is behind the
//! database's by at most that round trip, and never ahead of it but for the drift of two clocks since
//! the last look. A command is decided right after its record was read, so that is milliseconds. To be
//! behind is the safe side: a lease seems to last longer, never shorter. This machine's wall clock is
//! not looked at.
//!
//! The time never goes back behind one that this node knows to be stored, also when another server with
//! another clock takes over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::Timestamp;
use semel_core::clock::{Reading, Stamp};

use crate::clock::{Clock, SystemClock};

/// The clocks of one node.
#[derive(Debug)]
pub(super) struct Time {
    source: Source,
    known: Mutex<Known>,
}

#[derive(Debug)]
enum Source {
    /// The database's clock.
    Database(SystemClock),
    /// A clock that a test moves.
    Given(Arc<dyn Clock>),
}

#[derive(Debug, Default)]
struct Known {
    /// The last stored time that is known here.
    last: Option<Timestamp>,
    /// The database's time when it was last heard of, and the monotonic clock then.
    heard: Option<(Timestamp, Duration)>,
    /// The last mark of another machine, and when this one first saw it.
    mark: Option<(Stamp, Duration)>,
}

impl Time {
    pub(super) fn of_database() -> Self {
        Self {
            source: Source::Database(SystemClock::new()),
            known: Mutex::default(),
        }
    }

    pub(super) fn given(clock: Arc<dyn Clock>) -> Self {
        Self {
            source: Source::Given(clock),
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns this machine's monotonic clock.
    pub(super) fn uptime(&self) -> Duration {
        match &self.source {
            Source::Database(clock) => clock.read().uptime,
            Source::Given(clock) => clock.read().uptime,
        }
    }

    /// Learns what the database said between the sending of a statement and now. Answers may overtake
    /// each other: an estimate that fits what was said, and is later, is kept.
    pub(super) fn hear(&self, database: Timestamp, sent: Duration) {
        let Source::Database(clock) = &self.source else {
            return;
        };
        let uptime = clock.read().uptime;
        let mut known = self.known();
        let latest = database.plus(uptime.saturating_sub(sent));
        let fits = known.heard.is_some_and(|(at, heard)| {
            let estimate = at.plus(uptime.saturating_sub(heard));
            estimate >= database && estimate <= latest
        });
        if !fits {
            known.heard = Some((database, uptime));
        }
    }

    /// Learns of a time that was stored.
    pub(super) fn stored(&self, at: Timestamp) {
        let mut known = self.known();
        known.last = known.last.max(Some(at));
    }

    /// Reads all clocks; the wall clock is the database's.
    pub(super) fn reading(&self) -> Reading {
        match &self.source {
            Source::Given(clock) => clock.read(),
            Source::Database(clock) => {
                let reading = clock.read();
                let heard = self.known().heard;
                let wall = heard.map_or(reading.wall, |(at, uptime)| {
                    at.plus(reading.uptime.saturating_sub(uptime))
                });
                Reading { wall, ..reading }
            }
        }
    }

    /// The time by which leases are judged.
    pub(super) fn now(&self) -> Timestamp {
        let wall = self.reading().wall;
        let last = self.known().last;
        last.map_or(wall, |last| last.max(wall))
    }

    /// Translates the mark of the last sweep. One that another machine left says nothing about this
    /// machine's monotonic clock: only the time since it was first seen here has provably passed.
    pub(super) fn mark(&self, mark: Stamp) -> Stamp {
        let Source::Database(clock) = &self.source else {
            return mark;
        };
        let Reading { boot, uptime, .. } = clock.read();
        if mark.boot == boot {
            return mark;
        }
        let mut known = self.known();
        let since = match known.mark {
            Some((seen, since)) if seen == mark => since,
            Some(_) | None => uptime,
        };
        known.mark = Some((mark, since));
        Stamp {
            at: mark.at,
            boot,
            uptime: since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    /// Long before any machine of today was built: a wall clock that was looked at would show.
    const THEN: Timestamp = Timestamp(1_000_000_000_000_000);

    fn stamp(at: Timestamp) -> Stamp {
        Stamp {
            at,
            boot: 0,
            uptime: Duration::ZERO,
        }
    }

    #[test]
    fn the_time_is_the_databases_whatever_this_machine_believes() {
        let time = Time::of_database();
        time.hear(THEN, time.uptime());
        let now = time.now();
        assert!(now >= THEN && now < THEN.plus(HOUR), "{now}");
        // A database whose clock was set is followed, in both directions.
        time.hear(THEN.minus(HOUR * 24), time.uptime());
        assert!(time.now() < THEN.minus(HOUR));
    }

    #[test]
    fn an_answer_that_was_long_under_way_does_not_set_the_time_back() {
        let time = Time::of_database();
        let hour_ago = time.uptime().saturating_sub(HOUR);
        time.hear(THEN.plus(HOUR / 2), time.uptime());
        time.hear(THEN, hour_ago);
        assert!(time.now() >= THEN.plus(HOUR / 2));
        // It was said too lately for that to be true.
        time.hear(THEN, time.uptime());
        assert!(time.now() < THEN.plus(HOUR / 2));
    }

    #[test]
    fn the_time_is_never_behind_what_was_stored() {
        let time = Time::of_database();
        time.hear(THEN.minus(HOUR), time.uptime());
        time.stored(THEN);
        assert_eq!(time.now(), THEN);
        // An answer that was overtaken changes nothing.
        time.stored(THEN.minus(HOUR));
        assert_eq!(time.now(), THEN);
    }

    #[test]
    fn the_mark_of_another_machine_counts_from_when_it_was_seen() {
        let time = Time::of_database();
        let boot = time.reading().boot;
        let foreign = Stamp {
            boot: boot ^ 1,
            ..stamp(THEN)
        };
        let seen = time.mark(foreign);
        assert_eq!((seen.at, seen.boot), (THEN, boot));
        assert!(seen.elapsed(&time.reading()) < HOUR);
        assert_eq!(time.mark(foreign), seen);
        let own = Stamp { boot, ..foreign };
        assert_eq!(time.mark(own), own);
    }
}
