//! Reading, each time in one statement, so that what it brings belongs together.

use std::sync::Arc;

use semel_core::identity::Kin;
use semel_core::ledger::codec::decode_record;
use semel_core::ledger::{Fence, StateKind};
use semel_core::queue::QueueHash;
use semel_core::{Digest, KeyHash, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::batch::{bucket_at, bucket_of, number, shown};
use super::pool::{Parameter, Pool};
use crate::store::bytes::unpack;
use crate::store::time::Time;
use crate::store::{
    AbsentAsOf, Chunk, Current, KIN_MAX, PAGE_MAX, Page, Place, Query, Result, StoreError, Stored,
    WAITING_MAX, Waiting, line,
};

/// How many buckets there are: the numbers of log entries and places are multiples of it, plus a bucket.
pub(super) const BUCKETS: u64 = 256;

/// The largest packed payload that comes along with its record: a replay needs no second round trip
/// then, and whoever only looks at the record does not wait for megabytes.
pub(super) const ALONG_MAX: i32 = 32 * 1024;

/// Reads a column.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T> {
    row.try_get(index).map_err(|error| {
        StoreError::Corrupt(format!(
            "a row of the schema `semel` cannot be read: {error}"
        ))
    })
}

/// Reads a record.
pub(super) fn decode(place: Place, bytes: &[u8]) -> Result<Stored> {
    let record = decode_record(bytes).map_err(|error| {
        StoreError::Corrupt(format!("record {} cannot be read: {error}", place.0))
    })?;
    Ok(Stored::new(Arc::new(record), place))
}

/// Reads `place, record, packed`, from this column on; without a place nothing is stored.
pub(super) fn current(row: &Row, first: usize) -> Result<Current> {
    let Some(place) = column::<Option<i64>>(row, first)? else {
        return Ok(Current::Absent(AbsentAsOf::default()));
    };
    let mut stored = decode(Place(place.cast_unsigned()), column(row, first + 1)?)?;
    let packed: Option<&[u8]> = column(row, first + 2)?;
    let payload = packed.map(unpack).transpose()?.flatten();
    stored.payload = payload.map(Arc::from);
    Ok(Current::Stored(stored))
}

/// Learns the database's time, the last stored one, and a number that no later entry is below.
pub(super) async fn look(pool: &Arc<Pool>, time: &Time) -> Result<u64> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (SELECT (extract(epoch FROM at) * 1000000)::bigint \
               FROM semel.log ORDER BY seq DESC LIMIT 1), last_value FROM semel.numbers";
    let sent = time.uptime();
    let rows = pool.read("read the ledger", sql, &[]).await?;
    let Some(row) = rows.first() else {
        return Err(StoreError::Corrupt(
            "`semel.numbers` cannot be read".to_owned(),
        ));
    };
    time.hear(Timestamp(column(row, 0)?), sent);
    if let Some(last) = column::<Option<i64>>(row, 1)? {
        time.stored(Timestamp(last));
    }
    let number: i64 = column(row, 2)?;
    Ok(number
        .cast_unsigned()
        .saturating_sub(1)
        .saturating_mul(BUCKETS))
}

/// Loads what is stored under keys, in one round trip.
pub(super) async fn load(pool: &Arc<Pool>, time: &Time, keys: &[KeyHash]) -> Result<Vec<Current>> {
    let homes: Vec<i16> = keys.iter().map(bucket_of).collect();
    let hashes: Vec<&[u8]> = keys.iter().map(|key| &key.0.0[..]).collect();
    let sql = "SELECT n, place, record, packed, clock FROM semel.look($1, $2, $3)";
    let parameters: [Parameter<'_>; 3] = [
        (&homes, Type::INT2_ARRAY),
        (&hashes, Type::BYTEA_ARRAY),
        (&ALONG_MAX, Type::INT4),
    ];
    let sent = time.uptime();
    let rows = pool.read_often("read a record", sql, &parameters).await?;
    let mut found: Vec<Current> = keys
        .iter()
        .map(|_| Current::Absent(AbsentAsOf::default()))
        .collect();
    for row in &rows {
        match column::<Option<i32>>(row, 0)? {
            None => time.hear(Timestamp(column(row, 4)?), sent),
            Some(n) => {
                let index = usize::try_from(n).unwrap_or(0).checked_sub(1);
                let slot = index.and_then(|index| found.get_mut(index));
                let slot = slot.ok_or_else(|| {
                    StoreError::Corrupt("`semel.look` found what was not asked for".to_owned())
                })?;
                *slot = current(row, 1)?;
            }
        }
    }
    Ok(found)
}

/// Loads the record that lies at a place.
pub(super) async fn load_at(pool: &Arc<Pool>, place: Place) -> Result<Option<Stored>> {
    let sql = "SELECT record FROM semel.operations WHERE place = $1 AND bucket = $2";
    let (at, bucket) = (number(place), bucket_at(place));
    let parameters: [Parameter<'_>; 2] = [(&at, Type::INT8), (&bucket, Type::INT2)];
    let rows = pool.read("read a record", sql, &parameters).await?;
    let row = rows.first();
    row.map(|row| decode(place, column(row, 0)?)).transpose()
}

/// Loads the records that count among these kin.
pub(super) async fn kin(pool: &Arc<Pool>, time: &Time, kin: Kin) -> Result<Vec<Stored>> {
    let sql = "SELECT place, record, clock FROM semel.kin($1, $2)";
    let (number, limit) = (kin.0.cast_signed(), i32::from(KIN_MAX) + 1);
    let parameters: [Parameter<'_>; 2] = [(&number, Type::INT8), (&limit, Type::INT4)];
    records(pool, time, sql, &parameters).await
}

/// The column in which a look along a line has what the workers of a task are given.
const INPUT_COLUMN: usize = 3;

/// Loads the records that a function found; the last row, without a place, has the time.
async fn records(
    pool: &Arc<Pool>,
    time: &Time,
    sql: &'static str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Stored>> {
    let sent = time.uptime();
    let rows = pool.read_often("read records", sql, parameters).await?;
    let mut found = vec![];
    for row in &rows {
        let Some(place) = column::<Option<i64>>(row, 0)? else {
            time.hear(Timestamp(column(row, 2)?), sent);
            continue;
        };
        let place = Place(place.cast_unsigned());
        let record: Option<&[u8]> = column(row, 1)?;
        let record = record.ok_or_else(|| {
            StoreError::Corrupt(format!("record {} is indexed and not there", place.0))
        })?;
        let mut stored = decode(place, record)?;
        if row.len() > INPUT_COLUMN
            && let Some(packed) = column::<Option<&[u8]>>(row, INPUT_COLUMN)?
        {
            stored.payload = unpack(packed)?.map(Arc::from);
        }
        found.push(stored);
    }
    Ok(found)
}

/// Loads tasks that wait and are due.
pub(super) async fn waiting(pool: &Arc<Pool>, time: &Time, ask: &Waiting) -> Result<Vec<Stored>> {
    if ask.taken {
        return in_hand(pool, time, ask).await;
    }
    let sql = "SELECT place, record, clock, input FROM semel.waiting($1, $2, $3, $4, $5, $6, $7)";
    let small = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let queue = ask.queue.0.cast_signed();
    let after = line::lane_order(ask.after_lane);
    let (skip, limit) = (small(ask.skip), small(ask.limit.clamp(1, WAITING_MAX)));
    let lanes = small(line::LANES_MAX);
    // Nothing is as short as that.
    let along = if ask.inputs { line::ALONG_MAX } else { -1 };
    let parameters: [Parameter<'_>; 7] = [
        (&queue, Type::INT8),
        (&ask.now.0, Type::INT8),
        (&after, Type::INT8),
        (&skip, Type::INT4),
        (&limit, Type::INT4),
        (&lanes, Type::INT4),
        (&along, Type::INT4),
    ];
    records(pool, time, sql, &parameters).await
}

/// Loads the tasks that workers have.
async fn in_hand(pool: &Arc<Pool>, time: &Time, ask: &Waiting) -> Result<Vec<Stored>> {
    let sql = "SELECT l.place, o.record, NULL::bigint FROM semel.lines l \
        JOIN semel.operations o ON o.place = l.place AND o.bucket = (l.place & 255)::smallint \
        WHERE l.queue = $1 AND l.taken = 1 ORDER BY l.rank, l.lane, l.at, l.place LIMIT $2 OFFSET $3";
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let queue = ask.queue.0.cast_signed();
    let (limit, skip) = (number(ask.limit.clamp(1, WAITING_MAX)), number(ask.skip));
    let parameters: [Parameter<'_>; 3] = [
        (&queue, Type::INT8),
        (&limit, Type::INT8),
        (&skip, Type::INT8),
    ];
    records(pool, time, sql, &parameters).await
}

/// Counts the tasks that workers have.
pub(super) async fn taken(
    pool: &Arc<Pool>,
    queue: QueueHash,
    lane: Option<u64>,
    limit: usize,
) -> Result<usize> {
    let sql = "SELECT count(*) FROM (SELECT FROM semel.lines WHERE queue = $1 AND taken = 1 \
               AND ($2::bigint IS NULL OR lane = $2) LIMIT $3) AS counted";
    let queue = queue.0.cast_signed();
    let lane = lane.map(line::lane_order);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let parameters: [Parameter<'_>; 3] = [
        (&queue, Type::INT8),
        (&lane, Type::INT8),
        (&limit, Type::INT8),
    ];
    let rows = pool.read("count tasks", sql, &parameters).await?;
    let count: i64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Loads the payload of a record.
pub(super) async fn payload(pool: &Arc<Pool>, place: Place) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT p.packed, c.packed FROM semel.operations o \
               LEFT JOIN semel.payloads p ON o.has_payload AND p.place = o.place \
               AND p.bucket = o.bucket \
               LEFT JOIN semel.chunks c ON c.place = o.place AND c.bucket = o.bucket \
               AND c.fence = o.stream_fence \
               WHERE o.place = $1 AND o.bucket = $2 AND (o.has_payload OR o.stream_fence IS NOT NULL) ORDER BY c.n";
    let (at, bucket) = (number(place), bucket_at(place));
    let parameters: [Parameter<'_>; 2] = [(&at, Type::INT8), (&bucket, Type::INT2)];
    let rows = pool.read("read a payload", sql, &parameters).await?;
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
    let sql = "SELECT stream, packed FROM semel.chunks \
               WHERE place = $1 AND bucket = $2 AND fence = $3 ORDER BY n";
    let (at, bucket, fence) = (number(place), bucket_at(place), fence.0.cast_signed());
    let parameters: [Parameter<'_>; 3] = [
        (&at, Type::INT8),
        (&bucket, Type::INT2),
        (&fence, Type::INT8),
    ];
    let rows = pool.read_often("read a stream", sql, &parameters).await?;
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

/// Lists records. The columns only narrow the search; the record itself says whether it is meant.
pub(super) async fn list(pool: &Arc<Pool>, query: &Query) -> Result<Page> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    let mut items: Vec<Stored> = vec![];
    let mut cursor = query.cursor;
    let mut step = limit + 1;
    loop {
        let found = candidates(pool, query, cursor, step).await?;
        let last = found.last().map(|stored| stored.place);
        let more = found.len() == step;
        // The first look is enough for most; what the columns cannot tell may be rare.
        step = PAGE_MAX + 1;
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

/// What a client calls an operation has no column: it is somewhere in the record, or its digest is in the key.
const SELECT: &str = "SELECT place, record FROM semel.operations WHERE state = ANY($1) \
    AND (state = 'stub' OR (($2 IS NULL OR namespace = $2) AND ($3 IS NULL OR name = $3) \
    AND ($4 IS NULL OR door = $4) AND ($5 IS NULL OR queue = $5) \
    AND ($6 IS NULL OR starts_with(key, $6) OR position(convert_to($6, 'UTF8') IN record) > 0) \
    AND ($7 IS NULL OR coalesce(created_at, settled_at) >= $7) \
    AND ($8 IS NULL OR coalesce(created_at, settled_at) <= $8) \
    AND ($11 IS NULL OR position(convert_to($11, 'UTF8') IN record) > 0 OR strpos(key, $12) > 0))) ";

async fn candidates(
    pool: &Arc<Pool>,
    query: &Query,
    cursor: Option<Place>,
    limit: usize,
) -> Result<Vec<Stored>> {
    let states: Vec<&str> = if query.states.is_empty() {
        let all = StateKind::OPERATIONS.into_iter();
        all.filter(|kind| *kind != StateKind::Stub)
            .map(StateKind::as_str)
            .collect()
    } else {
        query
            .states
            .iter()
            .copied()
            .map(StateKind::as_str)
            .collect()
    };
    // The planner uses the short indexes of open operations and of breakers only when it is told that all are such.
    let is_breaker = |kind: &StateKind| matches!(kind, StateKind::Breaker(_));
    let all =
        |is: &dyn Fn(&StateKind) -> bool| !query.states.is_empty() && query.states.iter().all(is);
    let open = if all(&is_breaker) {
        "AND state IN ('closed', 'open', 'half_open') "
    } else if all(&|kind| kind.is_open() && !is_breaker(kind)) {
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
    let called = query.client_key.as_ref();
    let digest = called.map(|text| Digest::of(text.as_bytes()).hex());
    let parameters: [Parameter<'_>; 12] = [
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
        (&query.client_key, Type::TEXT),
        (&digest, Type::TEXT),
    ];
    let sql = format!("{SELECT}{open}{order}");
    let rows = pool.read("list records", &sql, &parameters).await?;
    let stored = rows.iter().map(|row| {
        let place: i64 = column(row, 0)?;
        decode(Place(place.cast_unsigned()), column(row, 1)?)
    });
    stored.collect()
}
