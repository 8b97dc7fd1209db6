//! What a group writes: each change to its record's row, then what belongs to all of them.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use semel_core::KeyHash;
use semel_core::clock::Stamp;
use semel_core::ledger::{Record, StateKind, Version};

use super::super::body::Body;
use super::super::index::{self, Fold, Folder, Gathering, Hash};
use super::super::shared::{Shared, poisoned};
use super::super::{failed, kin, lines, payload, reader};
use super::item::{PackedPayload, Prepared};
use super::payloads::GroupPayloads;
use super::statements::Statements;
use crate::store::bytes::write_stamp;
use crate::store::{AbsentAsOf, Commit, Current, Expected, Guard, Place, Result, Stored};

/// Rows that are put into the narrow table for each new row, so that folding keeps up.
const FOLD_PER_CLAIM: usize = 2;

/// The fewest rows that a slice puts in: a smaller one would cost a page more than it saves.
const FOLD_SLICE_MIN: usize = 256;

/// By how many bytes a row grows, roughly, when it is settled with a payload.
const ROOM: i64 = 56;

/// Rows that one call to tidy up puts in.
pub(super) const TIDY_SLICE: usize = 4_096;

/// The rows of the present transaction, and where the next ones go.
pub(super) struct Rows {
    pub(super) shared: Arc<Shared>,
    pub(super) folder: Folder,
    pub(super) next_seq: u64,
    pub(super) fold_debt: usize,
    /// Rows that the group makes.
    pub(super) staged: HashMap<Hash, u64>,
    pub(super) body: Body,
    payloads: GroupPayloads,
    pub(super) folded: Option<Fold>,
    pub(super) wrote: bool,
    /// Settled records that the group changes.
    pub(super) touched: Vec<KeyHash>,
}

impl Rows {
    pub(super) fn new(shared: Arc<Shared>, fold: Fold) -> Self {
        Self {
            shared,
            folder: Folder::new(fold),
            next_seq: 1,
            fold_debt: 0,
            staged: HashMap::new(),
            body: Body::default(),
            payloads: GroupPayloads::default(),
            folded: None,
            wrote: false,
            touched: vec![],
        }
    }

    pub(super) fn clear(&mut self) {
        self.staged.clear();
        self.body.clear();
        self.payloads.clear();
        self.folded = None;
        self.wrote = false;
        self.touched.clear();
    }

    /// Writes one change, if what it was decided on is what is stored.
    pub(super) fn apply(&mut self, sql: &mut Statements<'_>, change: &Prepared) -> Result<Commit> {
        if let Some(guard) = &change.guard
            && !guard_holds(sql.connection, guard)?
        {
            return Ok(Commit::GuardChanged);
        }
        match change.expected {
            Expected::Absent(as_of) => match self.find(sql.connection, &change.key, as_of)? {
                Some(stored) => Ok(Commit::Conflict(Current::Stored(stored))),
                None => self.create(sql, change),
            },
            Expected::Version(place, version) => self.replace(sql, change, place, version),
        }
    }

    /// Looks a key up that was absent as of some number of the log: rows that are older than the
    /// narrow table's end were absent then, and newer ones are in the tail.
    pub(super) fn find(
        &self,
        connection: &Connection,
        key: &KeyHash,
        as_of: AbsentAsOf,
    ) -> Result<Option<Stored>> {
        let hash = Hash::of(key);
        // As of this transaction, which may have put rows in and dropped them; the tail hears of it
        // after the commit.
        let indexed_through = self.folded().indexed_through;
        let in_tail = match self.staged.get(&hash) {
            Some(id) => Some(*id),
            None => self.shared.tail.read().unwrap_or_else(poisoned).get(hash),
        };
        let in_tail = in_tail.filter(|id| *id > indexed_through);
        if in_tail.is_none() && indexed_through <= as_of.0 {
            return Ok(None);
        }
        let found = reader::find(connection, key, in_tail)?;
        Ok(found.map(|found| found.stored))
    }

    fn create(&mut self, sql: &mut Statements<'_>, change: &Prepared) -> Result<Commit> {
        let id = self.next_seq;
        let Some(next) = &change.next else {
            self.log(None, &change.entry);
            return Ok(Commit::Done(Current::Absent(AbsentAsOf(id))));
        };
        let place = Place(id);
        let payload = self.payloads.place(self.first_seq(), &change.payload);
        sql.create()
            .and_then(|statement| {
                statement.execute((
                    id.cast_signed(),
                    next.record.version().0.cast_signed(),
                    next.record.kind().code(),
                    payload.row,
                    payload.offset,
                    payload.length,
                    payload.fence,
                    ROOM,
                    &next.bytes,
                ))
            })
            .map_err(|error| failed("store a record", &error))?;
        self.payloads.stage(&change.payload);
        place_in_indexes(sql.connection, place, change)?;
        let hash = Hash::of(&change.key);
        self.staged.insert(hash, id);
        self.body.push_fresh(hash, id);
        self.fold_debt += FOLD_PER_CLAIM;
        self.log(Some(place), &change.entry);
        Ok(Commit::Done(Current::Stored(Stored::new(
            Arc::clone(&next.record),
            place,
        ))))
    }

    fn replace(
        &mut self,
        sql: &mut Statements<'_>,
        change: &Prepared,
        place: Place,
        version: Version,
    ) -> Result<Commit> {
        let connection = sql.connection;
        let Some(next) = &change.next else {
            return self.remove(connection, change, place, version);
        };
        let erases = match change.payload {
            PackedPayload::Erase | PackedPayload::Stream(_) => true,
            PackedPayload::Bytes { replaces, .. } => replaces,
            PackedPayload::Keep => false,
        };
        if erases {
            if version_of(connection, place)? != Some(version.0) {
                return self.conflict(connection, &change.key, place);
            }
            let erased = match &*next.record {
                Record::Operation(_) => {
                    let kept = self.payloads.place(self.first_seq(), &change.payload).fence;
                    payload::erase(connection, place.0, kept)
                }
                Record::Tombstone(_) | Record::Stub(_) | Record::Breaker(_) => {
                    payload::erase_all(connection, place.0)
                }
            };
            erased.map_err(|error| failed("erase a payload", &error))?;
        }
        let id = place.0.cast_signed();
        let state = next.record.kind();
        let (old, new) = (
            version.0.cast_signed(),
            next.record.version().0.cast_signed(),
        );
        let payload = self.payloads.place(self.first_seq(), &change.payload);
        let stored = if matches!(change.payload, PackedPayload::Keep) {
            sql.update()
                .and_then(|statement| statement.execute((id, old, new, state.code(), &next.bytes)))
        } else {
            sql.settle().and_then(|statement| {
                statement.execute((
                    id,
                    old,
                    new,
                    state.code(),
                    &next.bytes,
                    payload.row,
                    payload.offset,
                    payload.length,
                    payload.fence,
                ))
            })
        };
        if stored.map_err(|error| failed("store a record", &error))? == 0 {
            return self.conflict(connection, &change.key, place);
        }
        self.touch(change);
        self.payloads.stage(&change.payload);
        place_in_indexes(connection, place, change)?;
        self.list_open(connection, place, state)?;
        self.log(Some(place), &change.entry);
        Ok(Commit::Done(Current::Stored(Stored::new(
            Arc::clone(&next.record),
            place,
        ))))
    }

    /// Forgets a settled record before its change is committed, and remembers to do so after.
    fn touch(&mut self, change: &Prepared) {
        if change.changes_settled {
            self.shared.cache.forget(&change.key);
            self.touched.push(change.key);
        }
    }

    /// Hands back what is stored instead of what a change expected: perhaps at another place, when
    /// the record was dropped and its key has begun anew.
    fn conflict(&self, connection: &Connection, key: &KeyHash, place: Place) -> Result<Commit> {
        let current = match reader::row(connection, place.0)? {
            Some(stored) => Some(stored),
            None => self.find(connection, key, AbsentAsOf(0))?,
        };
        Ok(Commit::Conflict(current.map_or_else(
            || Current::Absent(AbsentAsOf(self.next_seq - 1)),
            Current::Stored,
        )))
    }

    /// Removes the last trace of a key.
    fn remove(
        &mut self,
        connection: &Connection,
        change: &Prepared,
        place: Place,
        version: Version,
    ) -> Result<Commit> {
        if version_of(connection, place)? != Some(version.0) {
            return self.conflict(connection, &change.key, place);
        }
        // Other processes may know the row from the log's tail: it is indexed first, so that
        // nobody looks for it there any more.
        while self.folded().indexed_through < place.0 {
            self.fold(connection, TIDY_SLICE)?;
        }
        payload::erase_all(connection, place.0)
            .and_then(|()| index::remove(connection, Hash::of(&change.key), place.0))
            .and_then(|()| {
                connection
                    .prepare_cached("DELETE FROM operations WHERE id = ?1")?
                    .execute([place.0.cast_signed()])
            })
            .map_err(|error| failed("remove a record", &error))?;
        self.touch(change);
        place_in_indexes(connection, place, change)?;
        self.list_open(connection, place, StateKind::Stub)?;
        self.log(Some(place), &change.entry);
        Ok(Commit::Done(Current::Absent(AbsentAsOf(self.next_seq - 1))))
    }

    /// Keeps the list of open operations true for rows that it already speaks for.
    fn list_open(&self, connection: &Connection, place: Place, state: StateKind) -> Result<()> {
        if !self.folded().lists(place.0) {
            return Ok(());
        }
        let statement = if state.is_open() {
            "INSERT OR IGNORE INTO open_operations (id) VALUES (?1)"
        } else {
            "DELETE FROM open_operations WHERE id = ?1"
        };
        connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.execute([place.0.cast_signed()]))
            .map(drop)
            .map_err(|error| failed("list an open operation", &error))
    }

    /// The number of this group's first entry, which is also the number of its payloads.
    pub(super) fn first_seq(&self) -> u64 {
        self.next_seq - self.body.count
    }

    fn log(&mut self, place: Option<Place>, entry: &[u8]) {
        self.body.push(place, entry);
        self.next_seq += 1;
        self.wrote = true;
    }

    /// Writes what belongs to the whole group: its log entries, its payloads, a slice of the index.
    pub(super) fn finish(&mut self, connection: &Connection, stamp: &Stamp) -> Result<()> {
        if self.body.count > 0 {
            self.append_log(connection, stamp)
                .map_err(|error| failed("append to the log", &error))?;
            self.payloads
                .write(connection, self.first_seq())
                .map_err(|error| failed("store payloads", &error))?;
        }
        let wanted = {
            let tail = self.shared.tail.read().unwrap_or_else(poisoned);
            tail.wants_folding(Gathering::of_group(self.body.count))
                || (self.fold_debt >= TIDY_SLICE && !tail.is_empty())
        };
        if !wanted {
            self.fold_debt = 0;
        } else if self.fold_debt >= FOLD_SLICE_MIN {
            self.fold(connection, self.fold_debt)?;
        }
        Ok(())
    }

    fn append_log(&mut self, connection: &Connection, stamp: &Stamp) -> rusqlite::Result<()> {
        let (first, last) = (self.first_seq(), self.next_seq - 1);
        let stamp = write_stamp(stamp);
        self.body.seal(first, last, &stamp);
        connection
            .prepare_cached(
                "INSERT INTO log (first_seq, last_seq, stamp, fresh, body)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((
                first.cast_signed(),
                last.cast_signed(),
                stamp,
                &self.body.fresh,
                &self.body.bytes,
            ))
            .map(drop)
    }

    /// How far the narrow table is filled, as of the present transaction.
    fn folded(&self) -> Fold {
        self.folded.unwrap_or(self.folder.fold)
    }

    fn fold(&mut self, connection: &Connection, budget: usize) -> Result<()> {
        let fold = self
            .folder
            .slice(connection, &self.shared.tail, budget)
            .map_err(|error| failed("fill the index", &error))?;
        self.folder.fold = fold;
        self.folded = Some(fold);
        self.wrote = true;
        self.fold_debt = 0;
        Ok(())
    }
}

/// Writes what belongs to a record beside its row: where it is found, and what its task is given.
fn place_in_indexes(connection: &Connection, place: Place, change: &Prepared) -> Result<()> {
    let write = || {
        kin::apply(connection, place, change.kin)?;
        lines::apply(connection, place, change.line)?;
        match &change.input {
            None => Ok(()),
            Some(input) => payload::put_input(connection, place.0, input),
        }
    };
    write().map_err(|error| failed("index a record", &error))
}

fn guard_holds(connection: &Connection, guard: &Guard) -> Result<bool> {
    match guard {
        Guard::Version { place, version } => Ok(version_of(connection, *place)? == Some(version.0)),
        // Those of this group are in the table already, and nobody else writes meanwhile.
        Guard::Bounds(bounds) => {
            bounds.leave_room(|lane, limit| lines::taken(connection, bounds.queue, lane, limit))
        }
    }
}

fn version_of(connection: &Connection, place: Place) -> Result<Option<u64>> {
    connection
        .prepare_cached("SELECT version FROM operations WHERE id = ?1")
        .and_then(|mut statement| {
            statement
                .query_row([place.0.cast_signed()], |row| row.get::<_, i64>(0))
                .optional()
        })
        .map(|version| version.map(i64::cast_unsigned))
        .map_err(|error| failed("read a version", &error))
}
