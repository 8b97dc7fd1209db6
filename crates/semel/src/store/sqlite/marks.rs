//! Small things that a store remembers by name.

use rusqlite::{Connection, OptionalExtension};
use semel_core::Timestamp;

use super::failed;
use super::seal::{seal, unseal};
use crate::store::{Pass, Place, Progress, Result, StoreError};

/// The clocks of the last retention sweep.
pub(super) const SWEEP: &str = "sweep";

/// How far the sweeps have come.
pub(super) const PROGRESS: &str = "sweep-progress";

/// Stands in a copy until it is adopted.
pub(super) const COPY: &str = "copy";

/// Writes how far the sweeps have come. No place has the number zero.
pub(super) fn write_progress(progress: &Progress) -> Vec<u8> {
    let place = |place: Option<Place>| place.map_or(0, |place| place.0).to_le_bytes();
    let running = place(progress.running);
    match progress.retention {
        None => running.to_vec(),
        Some(Pass { horizon, after }) => [running, horizon.0.to_le_bytes(), place(after)].concat(),
    }
}

/// Reads how far the sweeps have come.
pub(super) fn read_progress(bytes: &[u8]) -> Result<Progress> {
    let place = |bytes: [u8; 8]| match u64::from_le_bytes(bytes) {
        0 => None,
        number => Some(Place(number)),
    };
    match bytes.as_chunks::<8>() {
        ([running], []) => Ok(Progress {
            running: place(*running),
            retention: None,
        }),
        ([running, horizon, after], []) => Ok(Progress {
            running: place(*running),
            retention: Some(Pass {
                horizon: Timestamp(i64::from_le_bytes(*horizon)),
                after: place(*after),
            }),
        }),
        _ => Err(StoreError::Corrupt(format!(
            "the mark `{PROGRESS}` cannot be read"
        ))),
    }
}

/// Loads a mark; `None` when it was never set.
pub(super) fn load(connection: &Connection, name: &str) -> Result<Option<Vec<u8>>> {
    let sealed: Option<Vec<u8>> = connection
        .prepare_cached("SELECT value FROM marks WHERE name = ?1")
        .and_then(|mut statement| statement.query_row([name], |row| row.get(0)).optional())
        .map_err(|error| failed("read a mark", &error))?;
    let Some(sealed) = sealed else {
        return Ok(None);
    };
    match unseal(&sealed, &[name.as_bytes()]) {
        Some(value) => Ok(Some(value.to_vec())),
        None => Err(StoreError::Corrupt(format!(
            "the mark `{name}` cannot be read"
        ))),
    }
}

/// Sets a mark.
pub(super) fn save(connection: &Connection, name: &str, mut value: Vec<u8>) -> Result<()> {
    seal(&mut value, &[name.as_bytes()]);
    connection
        .prepare_cached("INSERT OR REPLACE INTO marks (name, value) VALUES (?1, ?2)")
        .and_then(|mut statement| statement.execute((name, value)))
        .map(drop)
        .map_err(|error| failed("set a mark", &error))
}

/// Takes a mark away.
pub(super) fn remove(connection: &Connection, name: &str) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM marks WHERE name = ?1")
        .and_then(|mut statement| statement.execute([name]))
        .map(drop)
        .map_err(|error| failed("remove a mark", &error))
}
