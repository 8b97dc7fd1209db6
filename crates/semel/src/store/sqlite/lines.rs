//! The lines of tasks: which rows wait in which queue, and which its workers have.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use semel_core::queue::{LineChange, QueueHash};

use super::{failed, payload, reader};
use crate::store::line::{self, Lines, Row, lane_order};
use crate::store::{Place, Result, StoreError, Stored, Waiting};

/// Writes what a change of the row at a place does to its line, in the transaction of the change.
pub(super) fn apply(
    connection: &Connection,
    place: Place,
    change: LineChange,
) -> rusqlite::Result<()> {
    if let Some(spot) = change.leaves {
        let row = Row::new(spot, place);
        connection
            .prepare_cached(
                "DELETE FROM lines WHERE queue = ?1 AND taken = ?2 AND rank = ?3 AND lane = ?4
                    AND at = ?5 AND id = ?6",
            )?
            .execute((
                row.queue,
                row.taken,
                row.rank,
                row.lane,
                row.at,
                place.0.cast_signed(),
            ))?;
    }
    if let Some(spot) = change.enters {
        let row = Row::new(spot, place);
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO lines (queue, taken, rank, lane, at, id, until)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute((
                row.queue,
                row.taken,
                row.rank,
                row.lane,
                row.at,
                place.0.cast_signed(),
                row.until,
            ))?;
    }
    Ok(())
}

/// Loads tasks that wait and are due.
pub(super) fn waiting(connection: &Connection, ask: &Waiting) -> Result<Vec<Stored>> {
    let places = line::next(&mut Looking { connection, ask }, ask)?;
    let mut found = vec![];
    for place in places {
        // One that was dropped since the index was read is nobody's any more.
        let Some(mut stored) = reader::row(connection, place.0)? else {
            continue;
        };
        if ask.inputs {
            stored.payload = payload::small_input(connection, place.0)?.map(Arc::from);
        }
        found.push(stored);
    }
    Ok(found)
}

/// Counts the tasks that workers have.
pub(super) fn taken(
    connection: &Connection,
    queue: QueueHash,
    lane: Option<u64>,
    limit: usize,
) -> Result<usize> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let count = |text: &str, bounds: &[i64]| {
        connection
            .prepare_cached(text)?
            .query_row(rusqlite::params_from_iter(bounds), |row| {
                row.get::<_, i64>(0)
            })
    };
    let queue = queue.0.cast_signed();
    let counted = match lane.map(lane_order) {
        None => count(
            "SELECT count(*) FROM (SELECT 1 FROM lines WHERE queue = ?1 AND taken = 1 LIMIT ?2)",
            &[queue, limit],
        ),
        Some(lane) => count(
            "SELECT count(*) FROM (SELECT 1 FROM lines
                WHERE queue = ?1 AND taken = 1 AND rank = 0 AND lane = ?3 LIMIT ?2)",
            &[queue, limit, lane],
        ),
    };
    let counted = counted.map_err(|error| failed("count tasks", &error))?;
    Ok(usize::try_from(counted).unwrap_or(0))
}

/// The lines of a queue.
struct Looking<'a> {
    connection: &'a Connection,
    ask: &'a Waiting,
}

impl Looking<'_> {
    fn queue(&self) -> i64 {
        self.ask.queue.0.cast_signed()
    }

    fn next(&self, text: &str, bounds: &[i64]) -> Result<Option<i64>> {
        let look = || {
            self.connection
                .prepare_cached(text)?
                .query_row(rusqlite::params_from_iter(bounds), |row| row.get(0))
                .optional()
        };
        look().map_err(|error| looked(&error))
    }
}

impl Looking<'_> {
    fn places(&self, sql: &str, bounds: &[i64]) -> Result<Vec<Place>> {
        let look = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            let bounds = rusqlite::params_from_iter(bounds);
            let rows = statement.query_map(bounds, |row| row.get::<_, i64>(0))?;
            rows.map(|id| Ok(Place(id?.cast_unsigned())))
                .collect::<rusqlite::Result<Vec<_>>>()
        };
        look().map_err(|error| looked(&error))
    }
}

fn looked(error: &rusqlite::Error) -> StoreError {
    failed("look along a line", error)
}

impl Lines for Looking<'_> {
    fn next_rank(&mut self, after: Option<i16>) -> Result<Option<i16>> {
        let after = after.map_or(i64::MIN, i64::from);
        let rank = self.next(
            "SELECT rank FROM lines WHERE queue = ?1 AND taken = 0 AND rank > ?2
             ORDER BY rank LIMIT 1",
            &[self.queue(), after],
        )?;
        Ok(rank.and_then(|rank| i16::try_from(rank).ok()))
    }

    fn next_lane(&mut self, rank: i16, after: Option<i64>) -> Result<Option<i64>> {
        let (text, after) = match after {
            None => (
                "SELECT lane FROM lines WHERE queue = ?1 AND taken = 0 AND rank = ?2 AND lane >= ?3
                 ORDER BY lane LIMIT 1",
                i64::MIN,
            ),
            Some(after) => (
                "SELECT lane FROM lines WHERE queue = ?1 AND taken = 0 AND rank = ?2 AND lane > ?3
                 ORDER BY lane LIMIT 1",
                after,
            ),
        };
        self.next(text, &[self.queue(), rank.into(), after])
    }

    fn taken(&mut self, skip: usize, limit: usize) -> Result<Vec<Place>> {
        let sql = "SELECT id FROM lines WHERE queue = ?1 AND taken = 1
             ORDER BY rank, lane, at, id LIMIT ?2 OFFSET ?3";
        self.places(sql, &[self.queue(), number(limit), number(skip)])
    }

    fn due(&mut self, rank: i16, lane: i64, skip: usize, limit: usize) -> Result<Vec<Place>> {
        let bounds = [
            self.queue(),
            rank.into(),
            lane,
            self.ask.now.0,
            number(limit),
            number(skip),
        ];
        let sql = "SELECT id FROM lines WHERE queue = ?1 AND taken = 0 AND rank = ?2 AND lane = ?3
                AND at <= ?4 AND (until IS NULL OR until > ?4)
             ORDER BY at, id LIMIT ?5 OFFSET ?6";
        self.places(sql, &bounds)
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use semel_core::Timestamp;

    use super::super::schema;
    use super::*;

    const QUEUE: i64 = 7;

    /// A hundred lanes of three priorities, each with so many tasks that are due and as many that are put off.
    fn filled(tasks: i64) -> Connection {
        let mut connection = Connection::open_in_memory().expect("it opens");
        schema::migrate(&mut connection, None).expect("it is a store");
        connection
            .execute(
                "WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?2)
                 INSERT INTO lines (queue, taken, rank, lane, at, id)
                 SELECT ?1, 0, n % 3 - 1, n % 100, CASE n % 2 WHEN 0 THEN n ELSE 1000000000 + n END, n FROM n",
                (QUEUE, tasks),
            )
            .expect("it is filled");
        connection
    }

    /// Counts the steps of SQLite's machine for one look.
    fn steps(connection: &mut Connection, skip: usize, taken: bool) -> u64 {
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        connection
            .progress_handler(
                1,
                Some(move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                    false
                }),
            )
            .expect("it counts");
        let ask = Waiting {
            queue: QueueHash(QUEUE.cast_unsigned()),
            now: Timestamp(500_000_000),
            after_lane: 50,
            skip,
            limit: 10,
            taken,
            inputs: false,
        };
        let lines = &mut Looking {
            connection,
            ask: &ask,
        };
        let found = line::next(lines, &ask).expect("it is looked for");
        assert_eq!(found.len(), if taken { 0 } else { 10 });
        steps.load(Ordering::Relaxed)
    }

    #[test]
    fn a_look_costs_the_same_however_many_wait() {
        let (mut few, mut many) = (filled(20_000), filled(400_000));
        for (skip, taken) in [(0, false), (20, false), (0, true)] {
            let few = steps(&mut few, skip, taken);
            let many = steps(&mut many, skip, taken);
            assert!(many <= few + few / 10, "{few} steps, then {many}");
            assert!(many < 5_000, "{many} steps for ten tasks");
        }
    }
}
