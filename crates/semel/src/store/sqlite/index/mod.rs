//! From a key's hash to its row: a narrow table, filled later in sorted slices.
//!
//! Random keys would dirty one random page per claim. So new rows are first found by the *tail*,
//! kept in memory and in the log, and only when enough of them have gathered are they sorted and
//! inserted, a slice with each group: a whole batch sweeps the table once, in its own order.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use rusqlite::{Connection, OptionalExtension};
use semel_core::KeyHash;

use super::failed;
use super::filter::Filter;
use super::seal::checksum;
use crate::store::{Result, StoreError};

/// Half of a key's hash: wide enough that a collision is damage, not chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Hash(pub(super) u128);

impl Hash {
    pub(super) fn of(key: &KeyHash) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&key.0.0[..16]);
        Self(u128::from_be_bytes(half))
    }

    /// The row id in the narrow table: a quarter of the hash, which may collide.
    pub(super) fn slot(self) -> i64 {
        ((self.0 >> 64) as u64).cast_signed()
    }

    fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// How far the narrow table has been filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fold {
    /// Rows up to this id are in the table.
    pub(super) indexed_through: u64,
    /// Rows up to this id are being put in; equal to `indexed_through` when none are.
    pub(super) batch_end: u64,
    /// Slots below this one are in, of the present batch.
    pub(super) next_slot: i64,
    /// Rows below this id have been looked through for open operations.
    pub(super) next_id: u64,
}

impl Fold {
    pub(super) fn load(connection: &Connection) -> Result<Self> {
        let load = || {
            connection
                .prepare_cached(
                    "SELECT indexed_through, batch_end, next_slot, next_id, sum FROM fold",
                )?
                .query_row([], |row| {
                    let fold = Self {
                        indexed_through: row.get::<_, i64>(0)?.cast_unsigned(),
                        batch_end: row.get::<_, i64>(1)?.cast_unsigned(),
                        next_slot: row.get(2)?,
                        next_id: row.get::<_, i64>(3)?.cast_unsigned(),
                    };
                    Ok((row.get::<_, i64>(4)? == fold.sum()).then_some(fold))
                })
                .optional()
        };
        // Rows that were thought to be in the table, and are not, would look absent.
        load()
            .map_err(|error| failed("read the index", &error))?
            .flatten()
            .ok_or_else(|| {
                StoreError::Corrupt("how far the index is filled cannot be read".to_owned())
            })
    }

    /// The checksum that stands beside these numbers.
    fn sum(&self) -> i64 {
        let numbers = [
            self.indexed_through.to_le_bytes(),
            self.batch_end.to_le_bytes(),
            self.next_slot.to_le_bytes(),
            self.next_id.to_le_bytes(),
        ];
        i64::from(checksum(numbers.as_flattened(), &[]))
    }

    pub(super) fn save(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection
            .prepare_cached(
                "UPDATE fold SET indexed_through = ?1, batch_end = ?2, next_slot = ?3, next_id = ?4,
                    sum = ?5",
            )?
            .execute((
                self.indexed_through.cast_signed(),
                self.batch_end.cast_signed(),
                self.next_slot,
                self.next_id.cast_signed(),
                self.sum(),
            ))
            .map(drop)
    }

    /// Says whether `open_operations` already speaks for this row.
    pub(super) const fn lists(&self, id: u64) -> bool {
        id < self.next_id
    }
}

/// Puts rows into the narrow table; a second row of the same slot goes beside the first.
fn insert_all(
    connection: &Connection,
    rows: impl IntoIterator<Item = (Hash, u64)>,
) -> rusqlite::Result<()> {
    let mut insert = connection
        .prepare_cached("INSERT INTO slots (slot, id) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    for (hash, id) in rows {
        if insert.execute((hash.slot(), id.cast_signed()))? == 0 {
            insert_beside(connection, hash, id.cast_signed())?;
        }
    }
    Ok(())
}

fn insert_beside(connection: &Connection, hash: Hash, id: i64) -> rusqlite::Result<()> {
    let there: i64 = connection
        .prepare_cached("SELECT id FROM slots WHERE slot = ?1")?
        .query_row([hash.slot()], |row| row.get(0))?;
    if there == id {
        return Ok(());
    }
    connection
        .prepare_cached("INSERT OR REPLACE INTO collisions (slot, hash, id) VALUES (?1, ?2, ?3)")?
        .execute((hash.slot(), hash.bytes(), id))
        .map(drop)
}

/// Takes a row out of the narrow table.
pub(super) fn remove(connection: &Connection, hash: Hash, id: u64) -> rusqlite::Result<()> {
    let id = id.cast_signed();
    connection
        .prepare_cached("DELETE FROM collisions WHERE slot = ?1 AND id = ?2")?
        .execute((hash.slot(), id))?;
    let removed = connection
        .prepare_cached("DELETE FROM slots WHERE slot = ?1 AND id = ?2")?
        .execute((hash.slot(), id))?;
    if removed == 0 {
        return Ok(());
    }
    // An empty slot means "nothing is here": one that was beside it must take its place.
    let beside = connection
        .prepare_cached("SELECT hash, id FROM collisions WHERE slot = ?1 LIMIT 1")?
        .query_row([hash.slot()], |row| {
            Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    if let Some((other, other_id)) = beside {
        connection
            .prepare_cached("DELETE FROM collisions WHERE slot = ?1 AND hash = ?2")?
            .execute((hash.slot(), other))?;
        connection
            .prepare_cached("INSERT INTO slots (slot, id) VALUES (?1, ?2)")?
            .execute((hash.slot(), other_id))?;
    }
    Ok(())
}

/// Returns the row beside a slot that belongs to this hash.
pub(super) fn beside(connection: &Connection, hash: Hash) -> rusqlite::Result<Option<u64>> {
    connection
        .prepare_cached("SELECT id FROM collisions WHERE slot = ?1 AND hash = ?2")?
        .query_row((hash.slot(), hash.bytes()), |row| row.get::<_, i64>(0))
        .optional()
        .map(|id| id.map(i64::cast_unsigned))
}

/// The rows that are not in the narrow table yet; shared by the writer and the readers.
#[derive(Debug)]
pub(super) struct Tail {
    /// Up to which number of the log these maps know every new row.
    pub(super) known_through: u64,
    /// Rows up to this id are in the table.
    pub(super) indexed_through: u64,
    /// Rows up to this id are in `batch`.
    batch_end: u64,
    /// Rows of the batch that is being put in.
    batch: HashMap<Hash, u64>,
    /// Rows after it.
    fresh: HashMap<Hash, u64>,
    /// Which keys may be in the table, in a busy process.
    pub(super) filter: Option<Filter>,
}

/// How many rows gather before they are put into the table, and for how many log entries one: the
/// larger the table, the more rows must gather for a batch to share its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gathering {
    /// The fewest rows worth a batch; also what a process reads at most when it opens a small store.
    min: u64,
    /// One row of a batch for every this many log entries.
    entries_per_row: u64,
}

impl Gathering {
    /// While groups are small, short-lived processes may be at work: each reads, when it opens the
    /// store, every row that is not in the table.
    const CALM: Self = Self {
        min: 1_024,
        entries_per_row: 64,
    };

    /// While groups are large the rate is what counts.
    const BUSY: Self = Self {
        min: 16_384,
        entries_per_row: 16,
    };

    /// The changes that make a group large: one process at a time does not come near.
    const BUSY_GROUP: u64 = 16;

    /// Chooses by how many changes the present group has.
    pub(super) const fn of_group(changes: u64) -> Self {
        if changes >= Self::BUSY_GROUP {
            Self::BUSY
        } else {
            Self::CALM
        }
    }
}

/// The most rows that gather before a batch: each costs memory in every process.
const BATCH_MAX: u64 = 262_144;

impl Tail {
    pub(super) fn new(fold: &Fold) -> Self {
        Self {
            known_through: fold.indexed_through,
            indexed_through: fold.indexed_through,
            batch_end: fold.batch_end,
            batch: HashMap::new(),
            fresh: HashMap::new(),
            filter: None,
        }
    }

    /// Says whether the narrow table may hold a key; `false` is certain.
    pub(super) fn may_be_indexed(&self, hash: Hash) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| filter.may_hold(hash.slot()))
    }

    /// Begins to remember every key that is added from now on, and those that are here.
    pub(super) fn start_filter(&mut self) -> u64 {
        let mut filter = Filter::new();
        for hash in self.batch.keys().chain(self.fresh.keys()) {
            filter.add(hash.slot());
        }
        let number = filter.number();
        self.filter = Some(filter);
        number
    }

    pub(super) fn get(&self, hash: Hash) -> Option<u64> {
        self.fresh
            .get(&hash)
            .or_else(|| self.batch.get(&hash))
            .copied()
    }

    pub(super) fn add(&mut self, hash: Hash, id: u64) {
        if let Some(filter) = &mut self.filter {
            filter.add(hash.slot());
        }
        self.put(hash, id);
    }

    fn put(&mut self, hash: Hash, id: u64) {
        if id > self.batch_end {
            self.fresh.insert(hash, id);
        } else if id > self.indexed_through {
            self.batch.insert(hash, id);
        }
    }

    /// Takes over how far a committed slice, or another process, has filled the table.
    pub(super) fn advance(&mut self, fold: &Fold) {
        if fold.indexed_through != self.indexed_through {
            self.indexed_through = fold.indexed_through;
            self.batch.retain(|_, id| *id > fold.indexed_through);
        }
        if fold.batch_end != self.batch_end {
            self.batch_end = fold.batch_end;
            for (hash, id) in std::mem::take(&mut self.fresh) {
                self.put(hash, id);
            }
        }
    }

    /// Says whether enough rows have gathered for a batch, or one is under way.
    pub(super) fn wants_folding(&self, gathering: Gathering) -> bool {
        let wanted = self.known_through / gathering.entries_per_row;
        let wanted = wanted.clamp(gathering.min, BATCH_MAX);
        self.batch_end > self.indexed_through || self.fresh.len() as u64 >= wanted
    }

    /// Says whether there is nothing left to put in.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.fresh.is_empty()
    }

    /// Returns the rows of a batch, in the table's order.
    fn sorted(&self, fold: &Fold) -> Vec<(i64, Hash, u64)> {
        let rows = self.batch.iter().chain(&self.fresh);
        // What the present transaction has put in is still in the tail; it may have been dropped
        // since, and must not come back.
        let rows = rows.filter(|(_, id)| (fold.indexed_through + 1..=fold.batch_end).contains(id));
        let mut sorted: Vec<_> = rows.map(|(hash, id)| (hash.slot(), *hash, *id)).collect();
        sorted.sort_unstable();
        sorted
    }
}

/// What the writer remembers of the batch that it puts in.
#[derive(Debug)]
pub(super) struct Folder {
    /// How far the narrow table has been filled, as committed.
    pub(super) fold: Fold,
    /// The present batch in the table's order, once it is worked on.
    sorted: Vec<(i64, Hash, u64)>,
    sorted_end: u64,
}

/// How many row ids are looked through for open operations in one step of a slice.
const OPEN_SCAN: u64 = 4_096;

impl Folder {
    pub(super) fn new(fold: Fold) -> Self {
        Self {
            fold,
            sorted: vec![],
            sorted_end: 0,
        }
    }

    /// Puts a slice into the narrow table and returns how far it is filled then; it counts when
    /// the transaction is committed.
    pub(super) fn slice(
        &mut self,
        connection: &Connection,
        tail: &RwLock<Tail>,
        budget: usize,
    ) -> rusqlite::Result<Fold> {
        let mut fold = self.fold;
        let known = {
            let tail = tail.read().unwrap_or_else(PoisonError::into_inner);
            if fold.batch_end == fold.indexed_through {
                if tail.known_through <= fold.indexed_through {
                    // This very transaction has put everything in.
                    return Ok(fold);
                }
                fold.batch_end = tail.known_through;
                fold.next_slot = i64::MIN;
            }
            if self.sorted_end != fold.batch_end {
                self.sorted = tail.sorted(&fold);
                self.sorted_end = fold.batch_end;
            }
            &self.sorted
        };
        let start = known.partition_point(|(slot, ..)| *slot < fold.next_slot);
        let cut = known.len().min(start + budget);
        // The rows of one slot stay together: a slice that began with the same slot again and
        // again would never get past it.
        let same = |(slot, ..): &&(i64, Hash, u64)| {
            known[start..cut]
                .last()
                .is_some_and(|(last, ..)| slot == last)
        };
        let end = cut + known[cut..].iter().take_while(same).count();
        let rows = known[start..end].iter();
        insert_all(connection, rows.map(|(_, hash, id)| (*hash, *id)))?;
        if let Some((slot, ..)) = known.get(end) {
            fold.next_slot = *slot;
        } else {
            fold.next_slot = i64::MAX;
            scan_open(connection, &mut fold)?;
            if fold.next_id > fold.batch_end {
                fold.indexed_through = fold.batch_end;
            }
        }
        fold.save(connection)?;
        Ok(fold)
    }
}

/// Lists the open operations among the batch's rows, a stretch of ids at a time.
fn scan_open(connection: &Connection, fold: &mut Fold) -> rusqlite::Result<()> {
    let last = fold
        .batch_end
        .min(fold.next_id.saturating_add(OPEN_SCAN - 1));
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO open_operations (id)
             SELECT id FROM operations WHERE id BETWEEN ?1 AND ?2 AND state IN (0, 1, 4, 5, 8, 9, 10)",
        )?
        .execute((fold.next_id.cast_signed(), last.cast_signed()))?;
    fold.next_id = last + 1;
    Ok(())
}
