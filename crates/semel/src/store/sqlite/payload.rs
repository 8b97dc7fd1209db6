//! Payloads: kept apart from the records, several small ones to a row, erased in place.

use rusqlite::{Connection, OptionalExtension};

use super::failed;
use crate::store::bytes::{ERASED, unpack};
use crate::store::line::ALONG_MAX;
use crate::store::{Chunk, INPUT, Result};

/// Where a payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// In a row of `payloads`.
    Blob { row: i64, offset: i64, length: i64 },
    /// In `chunks`, as the stream of the attempt with this fence.
    Stream { fence: i64 },
}

/// Finds out where the payload of a row lies.
pub(super) fn locate(connection: &Connection, id: u64) -> rusqlite::Result<Option<Location>> {
    let found = connection
        .prepare_cached(
            "SELECT payload_row, payload_offset, payload_length, stream_fence
             FROM operations WHERE id = ?1",
        )?
        .query_row([id.cast_signed()], |row| {
            let (blob, fence): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(3)?);
            Ok(match (blob, fence) {
                (Some(blob), _) => Some(Location::Blob {
                    row: blob,
                    offset: row.get(1)?,
                    length: row.get(2)?,
                }),
                (None, Some(fence)) => Some(Location::Stream { fence }),
                (None, None) => None,
            })
        })
        .optional()?;
    Ok(found.flatten())
}

/// Loads the payload of a row.
pub(super) fn load(connection: &Connection, id: u64) -> Result<Option<Vec<u8>>> {
    let found = locate(connection, id).map_err(|error| failed("find a payload", &error))?;
    match found {
        None => Ok(None),
        Some(Location::Blob {
            row,
            offset,
            length,
        }) => {
            let packed: Option<Vec<u8>> = connection
                .prepare_cached("SELECT substr(body, ?2 + 1, ?3) FROM payloads WHERE id = ?1")
                .and_then(|mut statement| {
                    statement
                        .query_row((row, offset, length), |row| row.get(0))
                        .optional()
                })
                .map_err(|error| failed("load a payload", &error))?;
            packed.map_or(Ok(None), |packed| unpack(&packed))
        }
        Some(Location::Stream { fence }) => {
            let chunks = chunks(connection, id, fence)?;
            Ok(Some(
                chunks.into_iter().flat_map(|chunk| chunk.bytes).collect(),
            ))
        }
    }
}

/// Loads the pieces of a stream.
pub(super) fn chunks(connection: &Connection, id: u64, fence: i64) -> Result<Vec<Chunk>> {
    let load = || {
        let mut statement = connection.prepare_cached(
            "SELECT stream, body FROM chunks WHERE operation = ?1 AND fence = ?2 ORDER BY n",
        )?;
        let rows = statement.query_map((id.cast_signed(), fence), |row| {
            Ok((row.get::<_, u8>(0)?, row.get::<_, Vec<u8>>(1)?))
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    let stored = load().map_err(|error| failed("load a stream", &error))?;
    let unpacked = stored.into_iter().map(|(stream, packed)| {
        let bytes = unpack(&packed)?;
        Ok(Chunk {
            stream,
            bytes: bytes.unwrap_or_default(),
        })
    });
    unpacked.collect()
}

/// Appends pieces to a stream.
pub(super) fn append(
    connection: &Connection,
    id: u64,
    fence: i64,
    chunks: &[(u8, Vec<u8>)],
) -> rusqlite::Result<()> {
    let first: i64 = connection
        .prepare_cached(
            "SELECT coalesce(max(n), 0) + 1 FROM chunks WHERE operation = ?1 AND fence = ?2",
        )?
        .query_row((id.cast_signed(), fence), |row| row.get(0))?;
    for (n, (stream, packed)) in (first..).zip(chunks) {
        connection
            .prepare_cached(
                "INSERT INTO chunks (operation, fence, n, stream, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((id.cast_signed(), fence, n, stream, packed))?;
    }
    Ok(())
}

/// Stores the input of a task, which no attempt produced.
pub(super) fn put_input(connection: &Connection, id: u64, packed: &[u8]) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO chunks (operation, fence, n, stream, body) VALUES (?1, ?2, 1, 0, ?3)",
        )?
        .execute((id.cast_signed(), INPUT.0.cast_signed(), packed))
        .map(drop)
}

/// Loads the input of a task, unless it is large.
pub(super) fn small_input(connection: &Connection, id: u64) -> Result<Option<Vec<u8>>> {
    let load = || {
        connection
            .prepare_cached(
                "SELECT body FROM chunks WHERE operation = ?1 AND fence = ?2 AND length(body) <= ?3",
            )?
            .query_row(
                (id.cast_signed(), INPUT.0.cast_signed(), ALONG_MAX),
                |row| row.get::<_, Vec<u8>>(0),
            )
            .optional()
    };
    let packed = load().map_err(|error| failed("load an input", &error))?;
    packed.map_or(Ok(None), |packed| unpack(&packed))
}

/// Takes a stream away, unless it is the answer.
pub(super) fn discard(connection: &Connection, id: u64, fence: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM chunks WHERE operation = ?1 AND fence = ?2 AND NOT EXISTS
                (SELECT 1 FROM operations WHERE id = ?1 AND stream_fence = ?2)",
        )?
        .execute((id.cast_signed(), fence))
        .map(drop)
}

/// Erases the payload of a row and every stream that its attempts stored.
pub(super) fn erase_all(connection: &Connection, id: u64) -> rusqlite::Result<()> {
    erase(connection, id, None)?;
    connection
        .prepare_cached("DELETE FROM chunks WHERE operation = ?1")?
        .execute([id.cast_signed()])
        .map(drop)
}

/// Erases the payload of a row, unless it is the stream of the attempt with the kept fence. Other
/// streams are not touched: they belong to attempts that may still report.
pub(super) fn erase(connection: &Connection, id: u64, kept: Option<i64>) -> rusqlite::Result<()> {
    match locate(connection, id)? {
        None => Ok(()),
        Some(Location::Stream { fence }) if kept == Some(fence) => Ok(()),
        Some(Location::Stream { fence }) => connection
            .prepare_cached("DELETE FROM chunks WHERE operation = ?1 AND fence = ?2")?
            .execute((id.cast_signed(), fence))
            .map(drop),
        Some(Location::Blob {
            row,
            offset,
            length,
        }) => erase_blob(connection, row, offset, length),
    }
}

fn erase_blob(connection: &Connection, row: i64, offset: i64, length: i64) -> rusqlite::Result<()> {
    // The row keeps its length, so that the others in it stay where they are; when the last one
    // is erased the whole row goes.
    let erased = vec![ERASED; usize::try_from(length).unwrap_or(0)];
    connection
        .prepare_cached(
            "UPDATE payloads SET live = live - 1,
                body = cast(substr(body, 1, ?2) || ?3 || substr(body, ?2 + ?4 + 1) AS BLOB)
             WHERE id = ?1",
        )?
        .execute((row, offset, erased, length))?;
    connection
        .prepare_cached("DELETE FROM payloads WHERE id = ?1 AND live <= 0")?
        .execute([row])?;
    Ok(())
}
