//! Which time it is where the store is: the server's, estimated between two looks at it.
//!
//! Every answer of a server brings its time along (PostgreSQL's `clock_timestamp()`). It was read before it arrived,
//! so counting from its arrival by this machine's monotonic clock gives a time that is behind the
//! server's by at most that round trip, and never ahead of it but for the drift of two clocks since
//! the last look. A command is decided right after its record was read, so that is milliseconds. To be
//! behind is the safe side: a lease seems to last longer, never shorter. This machine's wall clock is
//! not looked at.
//!
//! The time never goes back behind one that this node knows to be stored, also when another server with
//! another clock takes over.

#![cfg_attr(
    not(feature = "postgres"),
    expect(dead_code, reason = "a remote store is not swept from here")
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::Timestamp;
use semel_core::clock::{Reading, Stamp};

use crate::clock::{Clock, SystemClock};

/// The clocks of one node.
#[derive(Debug)]
pub(crate) struct Time {
    source: Source,
    known: Mutex<Known>,
}

#[derive(Debug)]
enum Source {
    /// The server's clock.
    Server(SystemClock),
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
    pub(crate) fn of_server() -> Self {
        Self {
            source: Source::Server(SystemClock::new()),
            known: Mutex::default(),
        }
    }

    pub(crate) fn given(clock: Arc<dyn Clock>) -> Self {
        Self {
            source: Source::Given(clock),
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns this machine's monotonic clock.
    pub(crate) fn uptime(&self) -> Duration {
        match &self.source {
            Source::Server(clock) => clock.read().uptime,
            Source::Given(clock) => clock.read().uptime,
        }
    }

    /// Learns what the database said between the sending of a statement and now. Answers may overtake
    /// each other: an estimate that fits what was said, and is later, is kept.
    pub(crate) fn hear(&self, database: Timestamp, sent: Duration) {
        let Source::Server(clock) = &self.source else {
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
    pub(crate) fn stored(&self, at: Timestamp) {
        let mut known = self.known();
        known.last = known.last.max(Some(at));
    }

    /// Reads all clocks; the wall clock is the database's.
    pub(crate) fn reading(&self) -> Reading {
        match &self.source {
            Source::Given(clock) => clock.read(),
            Source::Server(clock) => {
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
    pub(crate) fn now(&self) -> Timestamp {
        let wall = self.reading().wall;
        let last = self.known().last;
        last.map_or(wall, |last| last.max(wall))
    }

    /// Translates the mark of the last sweep. One that another machine left says nothing about this
    /// machine's monotonic clock: only the time since it was first seen here has provably passed.
    pub(crate) fn mark(&self, mark: Stamp) -> Stamp {
        let Source::Server(clock) = &self.source else {
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
        let time = Time::of_server();
        time.hear(THEN, time.uptime());
        let now = time.now();
        assert!(now >= THEN && now < THEN.plus(HOUR), "{now}");
        // A database whose clock was set is followed, in both directions.
        time.hear(THEN.minus(HOUR * 24), time.uptime());
        assert!(time.now() < THEN.minus(HOUR));
    }

    #[test]
    fn an_answer_that_was_long_under_way_does_not_set_the_time_back() {
        let time = Time::of_server();
        // Nothing is longer under way than the machine is.
        let long = time.uptime() / 2;
        time.hear(THEN.plus(long / 2), time.uptime());
        time.hear(THEN, time.uptime().saturating_sub(long));
        assert!(time.now() >= THEN.plus(long / 2));
        // It was said too lately for that to be true.
        time.hear(THEN, time.uptime());
        assert!(time.now() < THEN.plus(long / 2));
    }

    #[test]
    fn the_time_is_never_behind_what_was_stored() {
        let time = Time::of_server();
        time.hear(THEN.minus(HOUR), time.uptime());
        time.stored(THEN);
        assert_eq!(time.now(), THEN);
        // An answer that was overtaken changes nothing.
        time.stored(THEN.minus(HOUR));
        assert_eq!(time.now(), THEN);
    }

    #[test]
    fn the_mark_of_another_machine_counts_from_when_it_was_seen() {
        let time = Time::of_server();
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
