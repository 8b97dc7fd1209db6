//! The index of kin: which rows count among which kin.

use rusqlite::Connection;
use semel_core::identity::{Kin, KinChange};

use super::reader;
use crate::store::{KIN_MAX, Place, Result, Stored};

/// Writes what a change of the row at a place does to the index, in the transaction of the change.
pub(super) fn apply(
    connection: &Connection,
    place: Place,
    change: KinChange,
) -> rusqlite::Result<()> {
    let id = place.0.cast_signed();
    if let Some(Kin(kin)) = change.leaves {
        connection
            .prepare_cached("DELETE FROM kin WHERE kin = ?1 AND id = ?2")?
            .execute((kin.cast_signed(), id))?;
    }
    if let Some(Kin(kin)) = change.enters {
        connection
            .prepare_cached("INSERT OR IGNORE INTO kin (kin, id) VALUES (?1, ?2)")?
            .execute((kin.cast_signed(), id))?;
    }
    Ok(())
}

/// Loads the records that count among these kin.
pub(super) fn load(connection: &Connection, kin: Kin) -> Result<Vec<Stored>> {
    // Of a row that is gone all the same, the record is missing: that is damage, and no absence.
    let statement = "SELECT kin.id, version, state, record
         FROM kin LEFT JOIN operations ON operations.id = kin.id
         WHERE kin = ?1 ORDER BY kin.id LIMIT ?2";
    reader::rows(
        connection,
        statement,
        (kin.0.cast_signed(), i64::from(KIN_MAX) + 1),
    )
}
