//! Reading, each time in one statement, so that what it brings belongs together.

use std::sync::Arc;

use semel_core::clock::Stamp;
use semel_core::ledger::codec::decode_entry;
use semel_core::ledger::{Fence, StateKind};
use semel_core::{KeyHash, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::batch::decode;
use super::pool::{Parameter, Pool};
use super::statements::{number, shown, state};
use super::time::Time;
use crate::store::bytes::{read_stamp, unpack};
use crate::store::{
    AbsentAsOf, Chunk, Current, Logged, PAGE_MAX, Page, Place, Query, Result, StoreError, Stored,
};

/// The database's clock, in microseconds since 1970.
pub(super) const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The largest packed payload that comes along with its record: a replay needs no second round trip
/// then, and whoever only looks at the record does not wait for megabytes.
const ALONG_MAX: i32 = 32 * 1024;

/// The one row of `semel.head`.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) stamp: Option<Stamp>,
    pub(super) batch: Option<Vec<u8>>,
}

/// Reads a column.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T> {
    row.try_get(index).map_err(|error| {
        StoreError::Corrupt(format!(
            "a row of the schema `semel` cannot be read: {error}"
        ))
    })
}

/// Reads `seq, stamp, batch`.
pub(super) fn head_of(row: &Row) -> Result<Head> {
    let stamp: Option<&[u8]> = column(row, 1)?;
    Ok(Head {
        seq: column::<i64>(row, 0)?.cast_unsigned(),
        stamp: stamp.map(read_stamp).transpose()?,
        batch: column(row, 2)?,
    })
}

/// Learns the database's time and the end of the log.
pub(super) async fn look(pool: &Arc<Pool>, time: &Time) -> Result<u64> {
    let sql = "SELECT seq, stamp, batch, \
               (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM semel.head";
    let rows = pool.read("read the ledger", sql, &[]).await?;
    let Some(row) = rows.first() else {
        return Err(StoreError::Corrupt("`semel.head` has no row".to_owned()));
    };
    let head = head_of(row)?;
    time.hear(head.seq, head.stamp, Timestamp(column(row, 3)?));
    Ok(head.seq)
}

/// Loads what is stored under a key.
pub(super) async fn load(pool: &Arc<Pool>, time: &Time, key: &KeyHash) -> Result<Current> {
    let sql = "SELECT h.seq, h.stamp, h.batch, \
               (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, o.place, o.record, \
               CASE WHEN octet_length(p.packed) <= $2 THEN p.packed END \
               FROM semel.head h LEFT JOIN semel.operations o ON o.key_hash = $1 \
               LEFT JOIN semel.payloads p ON p.place = o.place AND o.has_payload";
    let key: &[u8] = &key.0.0;
    let rows = pool
        .read(
            "read a record",
            sql,
            &[(&key, Type::BYTEA), (&ALONG_MAX, Type::INT4)],
        )
        .await?;
    let Some(row) = rows.first() else {
        return Err(StoreError::Corrupt("`semel.head` has no row".to_owned()));
    };
    let head = head_of(row)?;
    time.hear(head.seq, head.stamp, Timestamp(column(row, 3)?));
    let Some(place) = column::<Option<i64>>(row, 4)? else {
        return Ok(Current::Absent(AbsentAsOf(head.seq)));
    };
    let mut stored = decode(Place(place.cast_unsigned()), column(row, 5)?)?;
    let packed: Option<&[u8]> = column(row, 6)?;
    let payload = packed.map(unpack).transpose()?.flatten();
    stored.payload = payload.map(Arc::from);
    Ok(Current::Stored(stored))
}

/// Loads the record that lies at a place.
pub(super) async fn load_at(pool: &Arc<Pool>, place: Place) -> Result<Option<Stored>> {
    let sql = "SELECT record FROM semel.operations WHERE place = $1";
    let place_number = number(place);
    let parameters: [Parameter<'_>; 1] = [(&place_number, Type::INT8)];
    let rows = pool.read("read a record", sql, &parameters).await?;
    let row = rows.first();
    row.map(|row| decode(place, column(row, 0)?)).transpose()
}

/// Loads the payload of a record.
pub(super) async fn payload(pool: &Arc<Pool>, place: Place) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT p.packed, c.packed FROM semel.operations o \
               LEFT JOIN semel.payloads p ON p.place = o.place AND o.has_payload \
               LEFT JOIN semel.chunks c ON c.place = o.place AND c.fence = o.stream_fence \
               WHERE o.place = $1 AND (o.has_payload OR o.stream_fence IS NOT NULL) ORDER BY c.n";
    let place = number(place);
    let rows = pool
        .read("read a payload", sql, &[(&place, Type::INT8)])
        .await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut bytes = vec![];
    for row in &rows {
        let (whole, piece): (Option<&[u8]>, Option<&[u8]>) = (column(row, 0)?, column(row, 1)?);
        let packed = whole.or(piece);
        bytes.extend(
            packed
                .map(unpack)
                .transpose()?
                .flatten()
                .unwrap_or_default(),
        );
    }
    Ok(Some(bytes))
}

/// Loads the pieces of a stream.
pub(super) async fn stream(pool: &Arc<Pool>, place: Place, fence: Fence) -> Result<Vec<Chunk>> {
    let sql = "SELECT stream, packed FROM semel.chunks WHERE place = $1 AND fence = $2 ORDER BY n";
    let (place, fence) = (number(place), fence.0.cast_signed());
    let parameters: [Parameter<'_>; 2] = [(&place, Type::INT8), (&fence, Type::INT8)];
    let rows = pool.read("read a stream", sql, &parameters).await?;
    let chunks = rows.iter().map(|row| {
        let stream: i16 = column(row, 0)?;
        Ok(Chunk {
            stream: u8::try_from(stream).unwrap_or(u8::MAX),
            bytes: unpack(column(row, 1)?)?.unwrap_or_default(),
        })
    });
    chunks.collect()
}

/// Loads a mark.
pub(super) async fn mark(pool: &Arc<Pool>, name: &str) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT value FROM semel.marks WHERE name = $1";
    let rows = pool
        .read("read a mark", sql, &[(&name, Type::TEXT)])
        .await?;
    rows.first().map(|row| column(row, 0)).transpose()
}

/// Reads the log forward.
pub(super) async fn log(pool: &Arc<Pool>, after: u64, limit: usize) -> Result<Vec<Logged>> {
    let sql = "SELECT seq, place, entry FROM semel.log WHERE seq > $1 ORDER BY seq LIMIT $2";
    let limit = i64::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(i64::MAX);
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let parameters: [Parameter<'_>; 2] = [(&after, Type::INT8), (&limit, Type::INT8)];
    let rows = pool.read("read the log", sql, &parameters).await?;
    let mut logged = vec![];
    for (row, expected) in rows.iter().zip(after.saturating_add(1)..) {
        let seq: i64 = column(row, 0)?;
        if seq != expected {
            return Err(StoreError::Corrupt(format!(
                "the log goes on with entry {seq} where entry {expected} should be"
            )));
        }
        let place: Option<i64> = column(row, 1)?;
        let entry = decode_entry(column(row, 2)?)
            .map_err(|error| StoreError::Corrupt(format!("log entry {seq}: {error}")))?;
        logged.push(Logged {
            seq: seq.cast_unsigned(),
            place: place.map(|place| Place(place.cast_unsigned())),
            entry,
        });
    }
    Ok(logged)
}

/// Lists records. The columns only narrow the search; the record itself says whether it is meant.
pub(super) async fn list(pool: &Arc<Pool>, query: &Query) -> Result<Page> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    let mut items: Vec<Stored> = vec![];
    let mut cursor = query.cursor;
    loop {
        let found = candidates(pool, query, cursor, limit + 1).await?;
        let last = found.last().map(|stored| stored.place);
        let more = found.len() > limit;
        for stored in found {
            if !query.matches(&stored.record) {
                continue;
            }
            if items.len() == limit {
                let next = items.last().map(|stored| stored.place);
                return Ok(Page { items, next });
            }
            items.push(stored);
        }
        if !more {
            return Ok(Page { items, next: None });
        }
        cursor = last;
    }
}

const SELECT: &str = "SELECT place, record FROM semel.operations WHERE state = ANY($1) \
    AND (state = 'stub' OR (($2 IS NULL OR namespace = $2) AND ($3 IS NULL OR name = $3) \
    AND ($4 IS NULL OR door = $4) AND ($5 IS NULL OR queue = $5) \
    AND ($6 IS NULL OR starts_with(key, $6)) \
    AND ($7 IS NULL OR coalesce(created_at, settled_at) >= $7) \
    AND ($8 IS NULL OR coalesce(created_at, settled_at) <= $8))) ";

async fn candidates(
    pool: &Arc<Pool>,
    query: &Query,
    cursor: Option<Place>,
    limit: usize,
) -> Result<Vec<Stored>> {
    let states: Vec<&str> = if query.states.is_empty() {
        let all = StateKind::ALL.into_iter();
        all.filter(|kind| *kind != StateKind::Stub)
            .map(state)
            .collect()
    } else {
        query.states.iter().copied().map(state).collect()
    };
    // The planner uses the short index of open operations only when it is told that all are open.
    let open = !query.states.is_empty() && query.states.iter().all(|kind| kind.is_open());
    let open = if open {
        "AND state IN ('pending', 'running', 'doubtful', 'dead') "
    } else {
        ""
    };
    let order = if query.oldest_first {
        "AND place > $9 ORDER BY place LIMIT $10"
    } else {
        "AND place < $9 ORDER BY place DESC LIMIT $10"
    };
    let start = if query.oldest_first { 0 } else { i64::MAX };
    let cursor = cursor.map_or(start, number);
    let namespace = query.namespace.as_ref().map(semel_core::Namespace::as_str);
    let (since, until) = (query.since.map(shown), query.until.map(shown));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let parameters: [Parameter<'_>; 10] = [
        (&states, Type::TEXT_ARRAY),
        (&namespace, Type::TEXT),
        (&query.name, Type::TEXT),
        (&query.door, Type::TEXT),
        (&query.queue, Type::TEXT),
        (&query.prefix, Type::TEXT),
        (&since, Type::TIMESTAMPTZ),
        (&until, Type::TIMESTAMPTZ),
        (&cursor, Type::INT8),
        (&limit, Type::INT8),
    ];
    let sql = format!("{SELECT}{open}{order}");
    let rows = pool.read("list records", &sql, &parameters).await?;
    let stored = rows.iter().map(|row| {
        let place: i64 = column(row, 0)?;
        decode(Place(place.cast_unsigned()), column(row, 1)?)
    });
    stored.collect()
}
