//! Where a group's payloads will lie: several small ones to a row.

use rusqlite::Connection;

use super::item::PackedPayload;
use crate::store::group::GROUP_MAX;

/// The bytes of small payloads that share a row: with them it fits on one page, which is all that a
/// replay reads.
const PAYLOAD_ROW: usize = 3_600;

/// What a record's row says of its payload.
#[derive(Clone, Copy, Default)]
pub(super) struct PayloadColumns {
    pub(super) row: Option<i64>,
    pub(super) offset: Option<i64>,
    pub(super) length: Option<i64>,
    pub(super) fence: Option<i64>,
}

/// The payloads that the present group stores.
#[derive(Default)]
pub(super) struct GroupPayloads {
    rows: Vec<PayloadRow>,
}

/// Payloads that lie together in one row.
#[derive(Default)]
struct PayloadRow {
    bytes: Vec<u8>,
    live: i64,
}

impl PayloadRow {
    fn takes(&self, packed: &[u8]) -> bool {
        self.bytes.len() + packed.len() <= PAYLOAD_ROW
    }
}

impl GroupPayloads {
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    /// Says where a payload will lie once it is staged, in the group that begins with this number.
    pub(super) fn place(&self, first_seq: u64, payload: &PackedPayload) -> PayloadColumns {
        match payload {
            PackedPayload::Keep | PackedPayload::Erase => PayloadColumns::default(),
            PackedPayload::Stream(fence) => PayloadColumns {
                fence: Some(fence.0.cast_signed()),
                ..PayloadColumns::default()
            },
            PackedPayload::Bytes { packed, .. } => {
                let (index, offset) = match self.rows.last() {
                    Some(row) if row.takes(packed) => (self.rows.len() - 1, row.bytes.len()),
                    Some(_) | None => (self.rows.len(), 0),
                };
                PayloadColumns {
                    row: Some(row_id(first_seq, index)),
                    offset: i64::try_from(offset).ok(),
                    length: i64::try_from(packed.len()).ok(),
                    fence: None,
                }
            }
        }
    }

    pub(super) fn stage(&mut self, payload: &PackedPayload) {
        match payload {
            PackedPayload::Bytes { packed, .. } => {
                if self.rows.last().is_none_or(|row| !row.takes(packed)) {
                    self.rows.push(PayloadRow::default());
                }
                if let Some(row) = self.rows.last_mut() {
                    row.bytes.extend_from_slice(packed);
                    row.live += 1;
                }
            }
            PackedPayload::Keep | PackedPayload::Erase | PackedPayload::Stream(_) => {}
        }
    }

    /// Stores what was staged.
    pub(super) fn write(&self, connection: &Connection, first_seq: u64) -> rusqlite::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut statement = connection
            .prepare_cached("INSERT INTO payloads (id, live, body) VALUES (?1, ?2, ?3)")?;
        for (index, row) in self.rows.iter().enumerate() {
            statement.execute((row_id(first_seq, index), row.live, &row.bytes))?;
        }
        Ok(())
    }
}

/// The number of one of a group's payload rows: they follow the log's order, too.
fn row_id(first_seq: u64, index: usize) -> i64 {
    (first_seq * GROUP_MAX as u64 + index as u64).cast_signed()
}
