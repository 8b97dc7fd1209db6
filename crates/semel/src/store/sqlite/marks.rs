//! Small things that a store remembers by name.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::failed;
use super::files::{CopyCheck, FileMark};
use super::seal::{seal, unseal};
use crate::store::{Moved, Result, Standing, StoreError};

/// The clocks of the last retention sweep.
pub(super) const SWEEP: &str = "sweep";

/// How far the sweeps have come.
pub(super) const PROGRESS: &str = "sweep-progress";

/// Stands in a copy until it is adopted.
pub(super) const COPY: &str = "copy";

/// Stands in a store whose ledger has moved, and says where to.
pub(super) const MOVED: &str = "moved";

/// What the store was copied from, and how far.
pub(super) const ORIGIN: &str = "origin";

/// Which file the store is in, so that a copy of the file is noticed.
pub(super) const FILE: &str = "file";

/// A number unlike that of any other store; set when it is first asked for.
pub(super) const ID: &str = "id";

/// The secret key under which the credentials of callers are hashed; set when it is first asked for.
pub(super) const PRINCIPAL_KEY: &str = "principal-key";

/// Marks that are set or taken away together.
pub(super) type Marks = Vec<(&'static str, Option<Vec<u8>>)>;

/// Sets marks, and takes those away that have no value.
pub(super) fn put(connection: &Connection, marks: Marks) -> Result<()> {
    marks.into_iter().try_for_each(|(name, value)| match value {
        Some(value) => save(connection, name, value),
        None => remove(connection, name),
    })
}

/// Reads what may be done with the store, which lies in the file that `check` is about.
pub(super) fn standing(connection: &Connection, check: &CopyCheck) -> Result<Standing> {
    if load(connection, COPY)?.is_some() {
        return Ok(Standing::Copy);
    }
    if let Some(remembered) = file(connection)?
        && check.is_copy_of(&remembered)
    {
        let from = remembered.path;
        return Ok(Standing::Copied { from });
    }
    match load(connection, MOVED)? {
        Some(moved) => Ok(Standing::Closed(Moved::from_bytes(&moved)?)),
        None => Ok(Standing::Open),
    }
}

/// Reads which file the store was in.
pub(super) fn file(connection: &Connection) -> Result<Option<FileMark>> {
    let stored = load(connection, FILE)?;
    stored.map(|bytes| FileMark::from_bytes(&bytes)).transpose()
}

/// Remembers which file the store is in, where it remembers none or only its path has changed. A copy
/// still remembers the original. Returns whether anything was written.
pub(super) fn remember_file(
    connection: &Connection,
    check: &CopyCheck,
    path: &Path,
) -> Result<bool> {
    let Some(present) = check.mark(path) else {
        return Ok(false);
    };
    match (standing(connection, check)?, file(connection)?) {
        (Standing::Copy | Standing::Copied { .. }, _) => Ok(false),
        (Standing::Open | Standing::Closed(_), Some(known)) if known == present => Ok(false),
        (Standing::Open | Standing::Closed(_), _) => {
            save(connection, FILE, present.to_bytes())?;
            Ok(true)
        }
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
