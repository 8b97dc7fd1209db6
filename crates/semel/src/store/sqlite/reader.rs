//! Reading records, by any connection.

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use semel_core::KeyHash;
use semel_core::ledger::StateKind;
use semel_core::ledger::codec::decode_record;

use super::body::read_entries;
use super::failed;
use super::index::{Fold, Hash, beside};
use super::seal::unseal;
use crate::store::{Logged, PAGE_MAX, Page, Place, Query, Result, StoreError, Stored};

fn unreadable(id: u64, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("record {id} cannot be read: {error}"))
}

/// Decodes a row and checks that it is what its columns say.
fn decode(id: u64, version: i64, state: u8, bytes: &[u8]) -> Result<Stored> {
    let bytes = unseal(bytes, &[]).ok_or_else(|| unreadable(id, &"its checksum is wrong"))?;
    let record = decode_record(bytes).map_err(|error| unreadable(id, &error))?;
    if record.version().0 != version.cast_unsigned() || record.kind().code() != state {
        return Err(unreadable(id, &"its columns differ from its content"));
    }
    Ok(Stored {
        record: Arc::new(record),
        place: Place(id),
    })
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

/// Loads the row of a key, given where the tail found it.
pub(super) fn find(
    connection: &Connection,
    key: &KeyHash,
    in_tail: Option<u64>,
) -> Result<Option<Stored>> {
    let Some(id) = in_tail else {
        return find_indexed(connection, key);
    };
    let stored = row(connection, id)?.ok_or_else(|| unreadable(id, &"its row is gone"))?;
    if stored.record.key_hash() == *key {
        Ok(Some(stored))
    } else {
        Err(unreadable(id, &"it belongs to another key"))
    }
}

/// Loads the row of a key by the narrow table.
pub(super) fn find_indexed(connection: &Connection, key: &KeyHash) -> Result<Option<Stored>> {
    let hash = Hash::of(key);
    let load = || {
        connection
            .prepare_cached(
                "SELECT slots.id, version, state, record
                 FROM slots LEFT JOIN operations ON operations.id = slots.id WHERE slot = ?1",
            )?
            .query_row([hash.slot()], |row| {
                let id = row.get::<_, i64>(0)?.cast_unsigned();
                Ok(match row.get_ref(3)? {
                    ValueRef::Blob(bytes) => decode(id, row.get(1)?, row.get(2)?, bytes),
                    ValueRef::Null
                    | ValueRef::Integer(_)
                    | ValueRef::Real(_)
                    | ValueRef::Text(_) => Err(unreadable(id, &"its row is gone")),
                })
            })
            .optional()
    };
    let found = load()
        .map_err(|error| failed("look a key up", &error))?
        .transpose()?;
    match found {
        None => Ok(None),
        Some(stored) if stored.record.key_hash() == *key => Ok(Some(stored)),
        // Two keys may share a slot, but then both belong there.
        Some(stored) if Hash::of(&stored.record.key_hash()).slot() != hash.slot() => {
            Err(unreadable(stored.place.0, &"it belongs to another key"))
        }
        Some(_) => {
            let other =
                beside(connection, hash).map_err(|error| failed("look a key up", &error))?;
            other.map_or(Ok(None), |id| find(connection, key, Some(id)))
        }
    }
}

/// Lists records in the order of their creation, or against it.
pub(super) fn list(connection: &Connection, query: &Query) -> Result<Page> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    let only_open = !query.states.is_empty() && query.states.iter().all(|state| state.is_open());
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
            (true, _) => oldest_slice(connection, cursor),
            (false, true) => open_slice(connection, cursor, listed_below),
            (false, false) => newest_slice(connection, cursor),
        };
        let rows = rows.map_err(|error| failed("list records", &error))?;
        let Some((last, ..)) = rows.last() else {
            return Ok(page);
        };
        cursor = *last;
        for (id, version, state, bytes) in rows {
            let kind = StateKind::from_code(state);
            if kind.is_some_and(|kind| !query.states.is_empty() && !query.states.contains(&kind)) {
                continue;
            }
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

type Row = (i64, i64, u8, Vec<u8>);

/// Rows that are read at once while listing.
const SLICE: i64 = 256;

fn slice(
    connection: &Connection,
    statement: &str,
    bounds: impl rusqlite::Params,
) -> rusqlite::Result<Vec<Row>> {
    connection
        .prepare_cached(statement)?
        .query_map(bounds, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?
        .collect()
}

fn newest_slice(connection: &Connection, before: i64) -> rusqlite::Result<Vec<Row>> {
    let statement = "SELECT id, version, state, record FROM operations
         WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
    slice(connection, statement, (before, SLICE))
}

fn oldest_slice(connection: &Connection, after: i64) -> rusqlite::Result<Vec<Row>> {
    let statement = "SELECT id, version, state, record FROM operations
         WHERE id > ?1 ORDER BY id LIMIT ?2";
    slice(connection, statement, (after, SLICE))
}

/// Rows whose state is open: the newest are looked through, the others are listed.
fn open_slice(
    connection: &Connection,
    before: i64,
    listed_below: i64,
) -> rusqlite::Result<Vec<Row>> {
    if before > listed_below {
        let statement = "SELECT id, version, state, record FROM operations
             WHERE id < ?1 AND id >= ?2 AND state IN (0, 1, 4, 5) ORDER BY id DESC LIMIT ?3";
        let newest = slice(connection, statement, (before, listed_below, SLICE))?;
        if !newest.is_empty() {
            return Ok(newest);
        }
    }
    let statement = "SELECT operations.id, version, state, record
         FROM open_operations JOIN operations ON operations.id = open_operations.id
         WHERE open_operations.id < ?1 ORDER BY open_operations.id DESC LIMIT ?2";
    slice(connection, statement, (before.min(listed_below), SLICE))
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
