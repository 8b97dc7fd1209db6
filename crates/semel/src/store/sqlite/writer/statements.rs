//! The statements that a group repeats for each of its changes, looked up once.

use rusqlite::{CachedStatement, Connection, Result};

/// A connection, and what was prepared on it for the present group.
pub(super) struct Statements<'c> {
    pub(super) connection: &'c Connection,
    create: Option<CachedStatement<'c>>,
    update: Option<CachedStatement<'c>>,
    settle: Option<CachedStatement<'c>>,
}

impl<'c> Statements<'c> {
    pub(super) const fn new(connection: &'c Connection) -> Self {
        Self {
            connection,
            create: None,
            update: None,
            settle: None,
        }
    }

    /// Stores a new record.
    pub(super) fn create(&mut self) -> Result<&mut CachedStatement<'c>> {
        held(
            &mut self.create,
            self.connection,
            "INSERT INTO operations (id, version, state, payload_row, payload_offset,
                payload_length, stream_fence, room, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, zeroblob(?8), ?9)",
        )
    }

    /// Replaces a record and leaves its payload as it is.
    pub(super) fn update(&mut self) -> Result<&mut CachedStatement<'c>> {
        held(
            &mut self.update,
            self.connection,
            "UPDATE operations SET version = ?3, state = ?4, record = ?5
             WHERE id = ?1 AND version = ?2",
        )
    }

    /// Replaces a record and says where its payload lies.
    pub(super) fn settle(&mut self) -> Result<&mut CachedStatement<'c>> {
        held(
            &mut self.settle,
            self.connection,
            "UPDATE operations SET version = ?3, state = ?4, record = ?5, payload_row = ?6,
                payload_offset = ?7, payload_length = ?8, stream_fence = ?9, room = NULL
             WHERE id = ?1 AND version = ?2",
        )
    }
}

fn held<'a, 'c>(
    slot: &'a mut Option<CachedStatement<'c>>,
    connection: &'c Connection,
    text: &str,
) -> Result<&'a mut CachedStatement<'c>> {
    let statement = match slot.take() {
        Some(statement) => statement,
        None => connection.prepare_cached(text)?,
    };
    Ok(slot.insert(statement))
}
