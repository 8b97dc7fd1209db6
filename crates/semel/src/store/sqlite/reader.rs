//! Reading records, by any connection.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row};
use semel_core::KeyHash;
use semel_core::ledger::codec::decode_record;
use semel_core::ledger::{Record, StateKind};

use super::body::read_entries;
use super::cache::{Kept, PAYLOAD_MAX, keeps};
use super::failed;
use super::index::{Fold, Hash, beside};
use super::seal::unseal;
use crate::store::bytes::unpack;
use crate::store::{Logged, PAGE_MAX, Page, Place, Query, Result, StoreError, Stored};

fn unreadable(id: u64, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("record {id} cannot be read: {error}"))
}

/// Reads a record from its sealed bytes.
pub(super) fn unsealed_record(id: u64, sealed: &[u8]) -> Result<Record> {
    let bytes = unseal(sealed, &[]).ok_or_else(|| unreadable(id, &"its checksum is wrong"))?;
    decode_record(bytes).map_err(|error| unreadable(id, &error))
}

/// Decodes a row and checks that it is what its columns say.
fn decode(id: u64, version: i64, state: u8, sealed: &[u8]) -> Result<Stored> {
    let record = unsealed_record(id, sealed)?;
    if record.version().0 != version.cast_unsigned() || record.kind().code() != state {
        return Err(unreadable(id, &"its columns differ from its content"));
    }
    Ok(Stored::new(Arc::new(record), Place(id)))
}

/// A record that was found, and how it may be kept in memory.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) stored: Stored,
    pub(super) kept: Option<Kept>,
}

/// Finds a row by its id. A settled one brings its payload along, unless it is large.
const BY_ID: &str = "SELECT operations.id, version, state, record,
        CASE WHEN payload_length <= ?2 THEN substr(body, payload_offset + 1, payload_length) END
     FROM operations LEFT JOIN payloads ON payloads.id = payload_row AND state IN (2, 3)
     WHERE operations.id = ?1";

/// Finds a row by its slot, likewise; without a record when the row is gone.
const BY_SLOT: &str = "SELECT slots.id, version, state, record,
        CASE WHEN payload_length <= ?2 THEN substr(body, payload_offset + 1, payload_length) END
     FROM slots LEFT JOIN operations ON operations.id = slots.id
        LEFT JOIN payloads ON payloads.id = payload_row AND state IN (2, 3)
     WHERE slot = ?1";

/// Finds a row by one of the statements above.
fn look_up(connection: &Connection, statement: &str, by: i64) -> Result<Option<Found>> {
    let load = || {
        connection
            .prepare_cached(statement)?
            .query_row((by, PAYLOAD_MAX), found)
            .optional()
    };
    load()
        .map_err(|error| failed("look a record up", &error))?
        .transpose()
}

fn found(row: &Row<'_>) -> rusqlite::Result<Result<Found>> {
    let id = row.get::<_, i64>(0)?.cast_unsigned();
    let Some(sealed) = row.get_ref(3)?.as_blob_or_null()? else {
        return Ok(Err(unreadable(id, &"its row is gone")));
    };
    let packed = row.get_ref(4)?.as_blob_or_null()?;
    let (version, state) = (row.get(1)?, row.get(2)?);
    Ok(decode(id, version, state, sealed).and_then(|mut stored| {
        if let Some(packed) = packed {
            stored.payload = unpack(packed)?.map(Arc::from);
        }
        let kept = keeps(stored.record.kind())
            .then(|| Kept::new(stored.place, sealed, packed))
            .flatten();
        Ok(Found { stored, kept })
    }))
}

/// Loads a row; `None` when there is none.
pub(super) fn row(connection: &Connection, id: u64) -> Result<Option<Stored>> {
    let load = || {
        connection
            .prepare_cached("SELECT version, state, record FROM operations WHERE id = ?1")?
            .query_row([id.cast_signed()], |row| {
                Ok(decode(
                    id,
                    row.get(0)?,
                    row.get(1)?,
                    row.get_ref(2)?.as_blob()?,
                ))
            })
            .optional()
    };
    load()
        .map_err(|error| failed("load a record", &error))?
        .transpose()
}

/// Loads rows by a statement that gives `id, version, state, record`; without a record the row is gone.
pub(super) fn rows(
    connection: &Connection,
    statement: &str,
    bounds: impl rusqlite::Params,
) -> Result<Vec<Stored>> {
    let load = || {
        let mut statement = connection.prepare_cached(statement)?;
        let rows = statement.query_map(bounds, |row| {
            let id = row.get::<_, i64>(0)?.cast_unsigned();
            Ok(match row.get_ref(3)?.as_blob_or_null()? {
                Some(sealed) => decode(id, row.get(1)?, row.get(2)?, sealed),
                None => Err(unreadable(id, &"its row is gone")),
            })
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    let rows = load().map_err(|error| failed("load records", &error))?;
    rows.into_iter().collect()
}

/// Loads the row of a key, given where the tail found it.
pub(super) fn find(
    connection: &Connection,
    key: &KeyHash,
    in_tail: Option<u64>,
) -> Result<Option<Found>> {
    let Some(id) = in_tail else {
        return find_indexed(connection, key);
    };
    let found = look_up(connection, BY_ID, id.cast_signed())?
        .ok_or_else(|| unreadable(id, &"its row is gone"))?;
    if found.stored.record.key_hash() == *key {
        Ok(Some(found))
    } else {
        Err(unreadable(id, &"it belongs to another key"))
    }
}

/// Loads the row of a key by the narrow table.
fn find_indexed(connection: &Connection, key: &KeyHash) -> Result<Option<Found>> {
    let hash = Hash::of(key);
    let Some(found) = look_up(connection, BY_SLOT, hash.slot())? else {
        return Ok(None);
    };
    let owner = found.stored.record.key_hash();
    if owner == *key {
        Ok(Some(found))
    } else if Hash::of(&owner).slot() == hash.slot() {
        // Two keys may share a slot, but then both belong there.
        let other = beside(connection, hash).map_err(|error| failed("look a key up", &error))?;
        other.map_or(Ok(None), |id| find(connection, key, Some(id)))
    } else {
        let place = found.stored.place.0;
        Err(unreadable(place, &"it belongs to another key"))
    }
}

/// Lists records in the order of their creation, or against it.
pub(super) fn list(connection: &Connection, query: &Query) -> Result<Page> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    let only_open = !query.states.is_empty() && query.states.iter().all(|state| state.is_open());
    let only_rare = !query.states.is_empty() && query.states.iter().all(|state| is_rare(*state));
    let states = wanted_states(&query.states);
    let end = if query.oldest_first { 0 } else { i64::MAX };
    let mut cursor = query.cursor.map_or(end, |place| place.0.cast_signed());
    let listed_below = if only_open {
        Fold::load(connection)?.next_id.cast_signed()
    } else {
        0
    };
    let mut page = Page::default();
    loop {
        let rows = match (query.oldest_first, only_open) {
            (true, _) => oldest_slice(connection, cursor, states),
            (false, false) if only_rare => rare_slice(connection, cursor, states),
            (false, true) => open_slice(connection, cursor, listed_below, states),
            (false, false) => newest_slice(connection, cursor, states),
        };
        let rows = rows.map_err(|error| failed("list records", &error))?;
        let Some((last, ..)) = rows.last() else {
            return Ok(page);
        };
        cursor = *last;
        for (id, version, state, bytes) in rows {
            let stored = decode(id.cast_unsigned(), version, state, &bytes)?;
            if query.matches(&stored.record) {
                if page.items.len() == limit {
                    page.next = page.items.last().map(|stored: &Stored| stored.place);
                    return Ok(page);
                }
                page.items.push(stored);
            }
        }
    }
}

type ListedRow = (i64, i64, u8, Vec<u8>);

/// Rows that are read at once while listing.
const SLICE: i64 = 256;

fn slice(
    connection: &Connection,
    statement: &str,
    bounds: impl rusqlite::Params,
) -> rusqlite::Result<Vec<ListedRow>> {
    connection
        .prepare_cached(statement)?
        .query_map(bounds, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?
        .collect()
}

/// Returns a bit for every state that is wanted, so that rows in other states are passed over
/// without reading them; a code that stands for no state is always wanted, as it is damage.
fn wanted_states(states: &[StateKind]) -> i64 {
    const KNOWN: i64 = (1 << StateKind::ALL.len()) - 1;
    if states.is_empty() {
        return -1;
    }
    let wanted = states
        .iter()
        .fold(0, |bits, state| bits | 1 << state.code());
    wanted | !KNOWN
}

fn newest_slice(
    connection: &Connection,
    before: i64,
    states: i64,
) -> rusqlite::Result<Vec<ListedRow>> {
    let statement = "SELECT id, version, state, record FROM operations
         WHERE id < ?1 AND ?3 >> state & 1 ORDER BY id DESC LIMIT ?2";
    slice(connection, statement, (before, SLICE, states))
}

fn oldest_slice(
    connection: &Connection,
    after: i64,
    states: i64,
) -> rusqlite::Result<Vec<ListedRow>> {
    let statement = "SELECT id, version, state, record FROM operations
         WHERE id > ?1 AND ?3 >> state & 1 ORDER BY id LIMIT ?2";
    slice(connection, statement, (after, SLICE, states))
}

/// Says whether so few operations are in a state that they have an index of their own.
const fn is_rare(state: StateKind) -> bool {
    matches!(state, StateKind::Failed | StateKind::Tombstone)
}

fn rare_slice(
    connection: &Connection,
    before: i64,
    states: i64,
) -> rusqlite::Result<Vec<ListedRow>> {
    let statement = "SELECT id, version, state, record
         FROM operations INDEXED BY rare_operations
         WHERE id < ?1 AND state IN (3, 6) AND ?3 >> state & 1 ORDER BY id DESC LIMIT ?2";
    slice(connection, statement, (before, SLICE, states))
}

/// Rows whose state is open: the newest are looked through, the others are listed.
fn open_slice(
    connection: &Connection,
    before: i64,
    listed_below: i64,
    states: i64,
) -> rusqlite::Result<Vec<ListedRow>> {
    if before > listed_below {
        let statement = "SELECT id, version, state, record FROM operations
             WHERE id < ?1 AND id >= ?2 AND ?4 >> state & 1 ORDER BY id DESC LIMIT ?3";
        let newest = slice(connection, statement, (before, listed_below, SLICE, states))?;
        if !newest.is_empty() {
            return Ok(newest);
        }
    }
    let statement = "SELECT operations.id, version, state, record
         FROM open_operations JOIN operations ON operations.id = open_operations.id
         WHERE open_operations.id < ?1 AND ?3 >> state & 1
         ORDER BY open_operations.id DESC LIMIT ?2";
    slice(
        connection,
        statement,
        (before.min(listed_below), SLICE, states),
    )
}

/// Reads the log forward.
pub(super) fn log(connection: &Connection, after: u64, limit: usize) -> Result<Vec<Logged>> {
    let limit = limit.clamp(1, PAGE_MAX);
    let wanted = i64::try_from(after.saturating_add(1)).unwrap_or(i64::MAX);
    let read = || {
        // The group that holds the wanted entry may begin before it.
        let mut statement = connection.prepare_cached(
            "SELECT first_seq, last_seq, body FROM log WHERE first_seq >=
                coalesce((SELECT max(first_seq) FROM log WHERE first_seq <= ?1), 0)
             ORDER BY first_seq",
        )?;
        let mut rows = statement.query([wanted])?;
        let mut entries = vec![];
        while entries.len() < limit
            && let Some(row) = rows.next()?
        {
            let first = row.get::<_, i64>(0)?.cast_unsigned();
            let last = row.get::<_, i64>(1)?.cast_unsigned();
            match read_entries(first, last, row.get_ref(2)?.as_blob()?) {
                Ok(group) => entries.extend(group.into_iter().filter(|one| one.seq > after)),
                Err(error) => return Ok(Err(error)),
            }
        }
        entries.truncate(limit);
        Ok(Ok(entries))
    };
    read().map_err(|error| failed("read the log", &error))?
}
