//! Small things that a store remembers by name.

use rusqlite::{Connection, OptionalExtension};

use super::failed;
use super::seal::{seal, unseal};
use crate::store::{Result, StoreError};

/// The clocks of the last retention sweep.
pub(super) const SWEEP: &str = "sweep";

/// How far the sweeps have come.
pub(super) const PROGRESS: &str = "sweep-progress";

/// Stands in a copy until it is adopted.
pub(super) const COPY: &str = "copy";

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
