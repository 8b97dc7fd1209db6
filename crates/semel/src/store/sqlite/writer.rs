//! The one writer of a process: it takes a group of changes, writes them in one transaction, and
//! answers each after COMMIT has returned.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use semel_core::KeyHash;
use semel_core::clock::{Stamp, judge};
use semel_core::ledger::{Fence, Record, StateKind, Version};
use tokio::sync::oneshot;

use super::body::{Body, write_stamp};
use super::cache::Cache;
use super::index::{self, Fold, Folder, Hash, Tail};
use super::lock::{LOCK_WAIT_MAX, TURN, Turnstile, beside};
use super::shared::{Shared, last_group, poisoned};
use super::{failed, filter, open, payload, reader, schema};
use crate::clock::Clock;
use crate::store::group::{GROUP_MAX, Sink};
use crate::store::{
    AbsentAsOf, Commit, Current, Expected, Guard, Place, Result, StoreError, Stored,
};

/// Rows that are put into the narrow table for each new row, so that folding keeps up.
const FOLD_PER_CLAIM: usize = 2;

/// The fewest rows that a slice puts in: a smaller one would cost a page more than it saves.
const FOLD_SLICE_MIN: usize = 256;

/// By how many bytes a row grows, roughly, when it is settled with a payload.
const ROOM: i64 = 56;

/// The bytes of small payloads that share a row: with them it fits on one page, which is all that a
/// replay reads.
const PAYLOAD_ROW: usize = 3_600;

/// Rows that a process makes before it keeps a filter: a short-lived one would never earn it back.
const FILTER_AFTER: u64 = 1_024;

/// Rows that one call to tidy up puts in.
const TIDY_SLICE: usize = 4_096;

/// What is asked of the writer.
#[derive(Debug)]
pub(super) enum Item {
    Change(Box<Prepared>, oneshot::Sender<Result<Written>>),
    Append {
        place: Place,
        fence: Fence,
        chunks: Vec<(u8, Vec<u8>)>,
        answer: oneshot::Sender<Result<()>>,
    },
    Mark {
        value: [u8; 32],
        answer: oneshot::Sender<Result<()>>,
    },
    Tidy(oneshot::Sender<Result<bool>>),
    /// Looks a key up where nobody can change it meanwhile.
    Find(KeyHash, oneshot::Sender<Result<Current>>),
}

/// What became of a change, and the change itself: freeing it is left to the caller's thread, which
/// made it, as the writer is the one that everybody waits for.
pub(super) type Written = (Commit, Box<Prepared>);

/// A change whose bytes were made in the caller's thread.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) key: KeyHash,
    pub(super) expected: Expected,
    pub(super) entry: Vec<u8>,
    pub(super) next: Option<Next>,
    pub(super) payload: PackedPayload,
    pub(super) guard: Option<Guard>,
    /// Whether the record may be kept in memory as it was.
    pub(super) changes_settled: bool,
}

#[derive(Debug)]
pub(super) struct Next {
    pub(super) record: Arc<Record>,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum PackedPayload {
    Keep,
    Bytes { packed: Vec<u8>, replaces: bool },
    Stream(Fence),
    Erase,
}

/// What a group's items are to be told once it is committed.
enum Answer {
    Commit(oneshot::Sender<Result<Written>>, Result<Written>),
    Unit(oneshot::Sender<Result<()>>),
    Tidy(oneshot::Sender<Result<bool>>, Arc<Shared>),
    Found(oneshot::Sender<Result<Current>>, Result<Current>),
}

pub(super) struct Writer {
    connection: Connection,
    lock: Turnstile,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    folder: Folder,
    /// Whether a failure has left doubt about what this process knows of the file.
    stale: bool,
    data_version: i64,
    next_seq: u64,
    fold_debt: usize,
    path: PathBuf,
    /// Rows that this process has made since its filter was last begun.
    created: u64,
    group: GroupRows,
}

/// What the present transaction adds.
#[derive(Default)]
struct GroupRows {
    staged: HashMap<Hash, u64>,
    body: Body,
    payloads: Vec<PayloadRow>,
    folded: Option<Fold>,
    wrote: bool,
    /// Settled records that the group changes.
    touched: Vec<(KeyHash, Place)>,
}

impl Writer {
    pub(super) fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        // Even the first look may have to recover the log, so it queues like every write.
        let entered = Turnstile::open(path).and_then(Turnstile::enter_in_time);
        let lock = entered
            .map_err(|error| unlocked(&error))?
            .ok_or_else(no_turn)?;
        let mut connection = open::connect(path, open::Role::Write)?;
        let mark = own_mark()?;
        if schema::migrate(&mut connection)? {
            // An older version that has the store open must not go on answering from memory.
            lock.mark(&mark).map_err(|error| unlocked(&error))?;
        }
        let fold = Fold::load(&connection).map_err(|error| failed("open the index", &error))?;
        let shared = Shared {
            tail: RwLock::new(Tail::new(&fold)),
            stamp: RwLock::new(None),
            cache: Cache::open(&beside(path, TURN), mark).map_err(|error| unlocked(&error))?,
        };
        let mut writer = Self {
            connection,
            lock,
            shared: Arc::new(shared),
            clock,
            folder: Folder::new(fold),
            stale: true,
            data_version: 0,
            next_seq: 1,
            fold_debt: 0,
            path: path.to_owned(),
            created: 0,
            group: GroupRows::default(),
        };
        writer.catch_up()?;
        writer.refuse_gap()?;
        writer.lock.leave().map_err(|error| unlocked(&error))?;
        Ok(writer)
    }

    /// Refuses a store that has lost what was committed: those keys would run again.
    fn refuse_gap(&self) -> Result<()> {
        let committed = self.lock.committed().map_err(|error| unlocked(&error))?;
        match committed {
            Some(last) if last >= self.next_seq => Err(StoreError::Corrupt(format!(
                "log entries {} to {last} were committed and are gone: the write-ahead log was \
                 removed or cut, or an older copy was put in its place; what was begun in the gap \
                 cannot be known. Restore the whole store, or remove its `{TURN}` file to go on \
                 with what is left",
                self.next_seq
            ))),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Learns what other processes have written since the last look.
    fn catch_up(&mut self) -> Result<()> {
        let version: i64 = self
            .connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|error| failed("look for changes", &error))?;
        if version == self.data_version && !self.stale {
            return Ok(());
        }
        schema::check_again(&self.connection)?;
        let fold =
            Fold::load(&self.connection).map_err(|error| failed("read the index", &error))?;
        let mut tail = self.shared.tail.write().unwrap_or_else(poisoned);
        self.shared.cache.clear();
        if self.stale {
            *tail = Tail::new(&fold);
            self.created = 0;
            self.folder = Folder::new(fold);
        } else {
            tail.advance(&fold);
            self.folder.fold = fold;
        }
        tail.learn(&self.connection)?;
        self.next_seq = 1;
        if let Some((last_seq, stamp)) = last_group(&self.connection)? {
            self.next_seq = last_seq + 1;
            *self.shared.stamp.write().unwrap_or_else(poisoned) = Some(stamp);
        }
        self.data_version = version;
        self.stale = false;
        Ok(())
    }

    fn run(&mut self, items: &mut Vec<Item>) {
        let entered = self.lock.enter().map_err(|error| unlocked(&error));
        let mut answers = Vec::with_capacity(items.len());
        let written = match entered {
            // All were given up while the turn did not come.
            Ok(()) if items.is_empty() => Ok(()),
            Ok(()) => self.transact(items, &mut answers),
            Err(error) => Err(error),
        };
        // The others' turn comes before the answers: they have waited for longer. If it cannot be
        // given up, it is kept, and given up with the next group; what was written is written.
        let _kept = self.lock.leave();
        match written {
            Ok(()) => answers.into_iter().for_each(Answer::tell),
            Err(error) => {
                answers.into_iter().for_each(|answer| answer.fail(&error));
                items.drain(..).for_each(|item| item.fail(&error));
            }
        }
    }

    fn transact(&mut self, items: &mut Vec<Item>, answers: &mut Vec<Answer>) -> Result<()> {
        self.group.clear();
        self.execute("BEGIN IMMEDIATE")?;
        let filled = self.fill(items, answers);
        let result = match filled {
            Ok(()) => self.commit(),
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            self.stale = true;
            if !self.connection.is_autocommit()
                && let Err(second) = self.execute("ROLLBACK")
            {
                return Err(StoreError::Unavailable(format!("{error}; then {second}")));
            }
        }
        result
    }

    fn fill(&mut self, items: &mut Vec<Item>, answers: &mut Vec<Answer>) -> Result<()> {
        self.catch_up()?;
        // Others must not answer from memory once this is committed; and this process may, as it
        // has just caught up.
        self.lock
            .mark(self.shared.cache.mark())
            .map_err(|error| unlocked(&error))?;
        for item in items.drain(..) {
            match item {
                Item::Change(change, answer) => {
                    let applied = self.apply(&change);
                    // Damage in one record is that record's answer; the others go on. Any other
                    // failure is the whole group's.
                    let (applied, failure) = match applied {
                        Err(error @ StoreError::Corrupt(_)) => (Err(error), None),
                        Err(error) => (Err(error.clone()), Some(error)),
                        Ok(commit) => (Ok((commit, change)), None),
                    };
                    answers.push(Answer::Commit(answer, applied));
                    if let Some(error) = failure {
                        return Err(error);
                    }
                }
                Item::Append {
                    place,
                    fence,
                    chunks,
                    answer,
                } => {
                    answers.push(Answer::Unit(answer));
                    payload::append(&self.connection, place.0, fence.0.cast_signed(), &chunks)
                        .map_err(|error| failed("store a stream", &error))?;
                    self.group.wrote = true;
                }
                Item::Mark { value, answer } => {
                    answers.push(Answer::Unit(answer));
                    self.save_mark(&value)?;
                    self.group.wrote = true;
                }
                Item::Find(key, answer) => {
                    let as_of = AbsentAsOf(self.next_seq - 1);
                    let found = self.find(&key, AbsentAsOf(0));
                    let found =
                        found.map(|found| found.map_or(Current::Absent(as_of), Current::Stored));
                    answers.push(Answer::Found(answer, found));
                }
                Item::Tidy(answer) => {
                    answers.push(Answer::Tidy(answer, Arc::clone(&self.shared)));
                    self.fold_debt += TIDY_SLICE;
                }
            }
        }
        self.finish_group()
    }

    /// Writes one change, if what it was decided on is what is stored.
    fn apply(&mut self, change: &Prepared) -> Result<Commit> {
        if let Some(guard) = &change.guard
            && !self.guard_holds(guard)?
        {
            return Ok(Commit::GuardChanged);
        }
        match change.expected {
            Expected::Absent(as_of) => match self.find(&change.key, as_of)? {
                Some(stored) => Ok(Commit::Conflict(Current::Stored(stored))),
                None => self.create(change),
            },
            Expected::Version(place, version) => self.replace(change, place, version),
        }
    }

    fn guard_holds(&self, guard: &Guard) -> Result<bool> {
        Ok(self.version_of(guard.place)? == Some(guard.version.0))
    }

    fn version_of(&self, place: Place) -> Result<Option<u64>> {
        self.connection
            .prepare_cached("SELECT version FROM operations WHERE id = ?1")
            .and_then(|mut statement| {
                statement
                    .query_row([place.0.cast_signed()], |row| row.get::<_, i64>(0))
                    .optional()
            })
            .map(|version| version.map(i64::cast_unsigned))
            .map_err(|error| failed("read a version", &error))
    }

    /// Looks a key up that was absent as of some number of the log: rows that are older than the
    /// narrow table's end were absent then, and newer ones are in the tail.
    fn find(&self, key: &KeyHash, as_of: AbsentAsOf) -> Result<Option<Stored>> {
        let hash = Hash::of(key);
        // As of this transaction, which may have put rows in and dropped them; the tail hears of it
        // after the commit.
        let indexed_through = self.folded().indexed_through;
        let in_tail = match self.group.staged.get(&hash) {
            Some(id) => Some(*id),
            None => self.shared.tail.read().unwrap_or_else(poisoned).get(hash),
        };
        let in_tail = in_tail.filter(|id| *id > indexed_through);
        if in_tail.is_none() && indexed_through <= as_of.0 {
            return Ok(None);
        }
        reader::find(&self.connection, key, in_tail)
    }

    fn create(&mut self, change: &Prepared) -> Result<Commit> {
        let id = self.next_seq;
        let Some(next) = &change.next else {
            self.log(None, &change.entry);
            return Ok(Commit::Done(Current::Absent(AbsentAsOf(id))));
        };
        let place = Place(id);
        let payload = self.place_payload(&change.payload);
        self.connection
            .prepare_cached(
                "INSERT INTO operations (id, version, state, payload_row, payload_offset,
                    payload_length, stream_fence, room, record)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, zeroblob(?8), ?9)",
            )
            .and_then(|mut statement| {
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
        self.stage_payload(&change.payload);
        let hash = Hash::of(&change.key);
        self.group.staged.insert(hash, id);
        self.group.body.push_fresh(hash, id);
        self.fold_debt += FOLD_PER_CLAIM;
        self.log(Some(place), &change.entry);
        Ok(Commit::Done(Current::Stored(Stored {
            record: Arc::clone(&next.record),
            place,
        })))
    }

    fn replace(&mut self, change: &Prepared, place: Place, version: Version) -> Result<Commit> {
        let Some(next) = &change.next else {
            return self.remove(change, place, version);
        };
        let erases = match change.payload {
            PackedPayload::Erase | PackedPayload::Stream(_) => true,
            PackedPayload::Bytes { replaces, .. } => replaces,
            PackedPayload::Keep => false,
        };
        if erases {
            if self.version_of(place)? != Some(version.0) {
                return self.conflict(&change.key, place);
            }
            let erased = match &*next.record {
                Record::Operation(_) => {
                    let kept = self.place_payload(&change.payload).fence;
                    payload::erase(&self.connection, place.0, kept)
                }
                Record::Tombstone(_) | Record::Stub(_) => {
                    payload::erase_all(&self.connection, place.0)
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
        let payload = self.place_payload(&change.payload);
        let stored = if matches!(change.payload, PackedPayload::Keep) {
            self.connection
                .prepare_cached(
                    "UPDATE operations SET version = ?3, state = ?4, record = ?5
                     WHERE id = ?1 AND version = ?2",
                )
                .and_then(|mut statement| {
                    statement.execute((id, old, new, state.code(), &next.bytes))
                })
        } else {
            self.connection
                .prepare_cached(
                    "UPDATE operations SET version = ?3, state = ?4, record = ?5, payload_row = ?6,
                        payload_offset = ?7, payload_length = ?8, stream_fence = ?9, room = NULL
                     WHERE id = ?1 AND version = ?2",
                )
                .and_then(|mut statement| {
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
            return self.conflict(&change.key, place);
        }
        self.touch(change, place);
        self.stage_payload(&change.payload);
        self.list_open(place, state)?;
        self.log(Some(place), &change.entry);
        Ok(Commit::Done(Current::Stored(Stored {
            record: Arc::clone(&next.record),
            place,
        })))
    }

    /// Forgets a settled record before its change is committed, and remembers to do so after.
    fn touch(&mut self, change: &Prepared, place: Place) {
        if change.changes_settled {
            self.shared.cache.forget(&change.key, place);
            self.group.touched.push((change.key, place));
        }
    }

    /// Hands back what is stored instead of what a change expected: perhaps at another place, when
    /// the record was dropped and its key has begun anew.
    fn conflict(&self, key: &KeyHash, place: Place) -> Result<Commit> {
        let current = match reader::row(&self.connection, place.0)? {
            Some(stored) => Some(stored),
            None => self.find(key, AbsentAsOf(0))?,
        };
        Ok(Commit::Conflict(current.map_or_else(
            || Current::Absent(AbsentAsOf(self.next_seq - 1)),
            Current::Stored,
        )))
    }

    /// Removes the last trace of a key.
    fn remove(&mut self, change: &Prepared, place: Place, version: Version) -> Result<Commit> {
        if self.version_of(place)? != Some(version.0) {
            return self.conflict(&change.key, place);
        }
        // Other processes may know the row from the log's tail: it is indexed first, so that
        // nobody looks for it there any more.
        while self.folded().indexed_through < place.0 {
            self.fold(TIDY_SLICE)?;
        }
        payload::erase_all(&self.connection, place.0)
            .and_then(|()| index::remove(&self.connection, Hash::of(&change.key), place.0))
            .and_then(|()| {
                self.connection
                    .prepare_cached("DELETE FROM operations WHERE id = ?1")?
                    .execute([place.0.cast_signed()])
            })
            .map_err(|error| failed("remove a record", &error))?;
        self.touch(change, place);
        self.list_open(place, StateKind::Stub)?;
        self.log(Some(place), &change.entry);
        Ok(Commit::Done(Current::Absent(AbsentAsOf(self.next_seq - 1))))
    }

    /// Keeps the list of open operations true for rows that it already speaks for.
    fn list_open(&self, place: Place, state: StateKind) -> Result<()> {
        if !self.folded().lists(place.0) {
            return Ok(());
        }
        let statement = if state.is_open() {
            "INSERT OR IGNORE INTO open_operations (id) VALUES (?1)"
        } else {
            "DELETE FROM open_operations WHERE id = ?1"
        };
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.execute([place.0.cast_signed()]))
            .map(drop)
            .map_err(|error| failed("list an open operation", &error))
    }

    /// Says where a payload will lie once it is staged.
    fn place_payload(&self, payload: &PackedPayload) -> PayloadColumns {
        match payload {
            PackedPayload::Keep | PackedPayload::Erase => PayloadColumns::default(),
            PackedPayload::Stream(fence) => PayloadColumns {
                fence: Some(fence.0.cast_signed()),
                ..PayloadColumns::default()
            },
            PackedPayload::Bytes { packed, .. } => {
                let rows = &self.group.payloads;
                let (index, offset) = match rows.last() {
                    Some(row) if row.takes(packed) => (rows.len() - 1, row.bytes.len()),
                    Some(_) | None => (rows.len(), 0),
                };
                PayloadColumns {
                    row: Some(self.payload_row(index)),
                    offset: i64::try_from(offset).ok(),
                    length: i64::try_from(packed.len()).ok(),
                    fence: None,
                }
            }
        }
    }

    fn stage_payload(&mut self, payload: &PackedPayload) {
        match payload {
            PackedPayload::Bytes { packed, .. } => {
                let rows = &mut self.group.payloads;
                if rows.last().is_none_or(|row| !row.takes(packed)) {
                    rows.push(PayloadRow::default());
                }
                if let Some(row) = rows.last_mut() {
                    row.bytes.extend_from_slice(packed);
                    row.live += 1;
                }
            }
            PackedPayload::Keep | PackedPayload::Erase | PackedPayload::Stream(_) => {}
        }
    }

    /// The number of one of this group's payload rows: they follow the log's order, too.
    fn payload_row(&self, index: usize) -> i64 {
        (self.first_seq() * GROUP_MAX as u64 + index as u64).cast_signed()
    }

    /// The number of this group's first entry, which is also the number of its payloads.
    fn first_seq(&self) -> u64 {
        self.next_seq - self.group.body.count
    }

    fn log(&mut self, place: Option<Place>, entry: &[u8]) {
        self.group.body.push(place, entry);
        self.next_seq += 1;
        self.group.wrote = true;
    }

    /// Writes what belongs to the whole group: its log entries, its payloads, a slice of the index.
    fn finish_group(&mut self) -> Result<()> {
        let group = &self.group;
        if group.body.count > 0 {
            let first = self.first_seq().cast_signed();
            let last = (self.next_seq - 1).cast_signed();
            let stamp = write_stamp(&self.stamp());
            self.connection
                .prepare_cached(
                    "INSERT INTO log (first_seq, last_seq, stamp, fresh, body)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )
                .and_then(|mut statement| {
                    statement.execute((first, last, stamp, &group.body.fresh, &group.body.bytes))
                })
                .map_err(|error| failed("append to the log", &error))?;
            for (index, row) in group.payloads.iter().enumerate() {
                self.connection
                    .prepare_cached("INSERT INTO payloads (id, live, body) VALUES (?1, ?2, ?3)")
                    .and_then(|mut statement| {
                        statement.execute((self.payload_row(index), row.live, &row.bytes))
                    })
                    .map_err(|error| failed("store payloads", &error))?;
            }
        }
        let wanted = {
            let tail = self.shared.tail.read().unwrap_or_else(poisoned);
            tail.wants_folding() || (self.fold_debt >= TIDY_SLICE && !tail.is_empty())
        };
        if !wanted {
            self.fold_debt = 0;
        } else if self.fold_debt >= FOLD_SLICE_MIN {
            self.fold(self.fold_debt)?;
        }
        Ok(())
    }

    /// How far the narrow table is filled, as of the present transaction.
    fn folded(&self) -> Fold {
        self.group.folded.unwrap_or(self.folder.fold)
    }

    fn fold(&mut self, budget: usize) -> Result<()> {
        let fold = self
            .folder
            .slice(&self.connection, &self.shared.tail, budget)
            .map_err(|error| failed("fill the index", &error))?;
        self.folder.fold = fold;
        self.group.folded = Some(fold);
        self.group.wrote = true;
        self.fold_debt = 0;
        Ok(())
    }

    fn stamp(&self) -> Stamp {
        let reading = self.clock.read();
        let last = *self.shared.stamp.read().unwrap_or_else(poisoned);
        Stamp {
            at: judge(last.as_ref(), &reading),
            boot: reading.boot,
            uptime: reading.uptime,
        }
    }

    fn save_mark(&self, value: &[u8; 32]) -> Result<()> {
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO marks (name, value) VALUES ('sweep', ?1)")
            .and_then(|mut statement| statement.execute([value]))
            .map(drop)
            .map_err(|error| failed("store the sweep's mark", &error))
    }

    fn execute(&self, statement: &str) -> Result<()> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut prepared| prepared.execute([]))
            .map(drop)
            .map_err(|error| failed(statement, &error))
    }

    fn commit(&mut self) -> Result<()> {
        if !self.group.wrote {
            return self.execute("ROLLBACK");
        }
        let stamp = self.stamp();
        if let Err(error) = self.execute("COMMIT") {
            self.settle_failed_commit(&error)?;
        }
        // Whoever read one of these before the commit must not keep it after.
        for (key, place) in &self.group.touched {
            self.shared.cache.forget(key, *place);
        }
        let mut tail = self.shared.tail.write().unwrap_or_else(poisoned);
        self.created += self.group.staged.len() as u64;
        for (hash, id) in self.group.staged.drain() {
            tail.add(hash, id);
        }
        tail.known_through = self.next_seq - 1;
        if let Some(fold) = &self.group.folded {
            tail.advance(fold);
        }
        let busy = tail.filter.is_none() && self.created >= FILTER_AFTER;
        drop(tail);
        if busy {
            self.created = 0;
            filter::fill(&self.shared, self.path.clone());
        }
        if self.group.body.count > 0 {
            *self.shared.stamp.write().unwrap_or_else(poisoned) = Some(stamp);
            // Without this note a lost log might not be noticed; what is written is written.
            let _unnoted = self.lock.note_committed(self.next_seq - 1);
        }
        Ok(())
    }

    /// A failed COMMIT tells nothing: what is stored is read again, never assumed.
    fn settle_failed_commit(&mut self, error: &StoreError) -> Result<()> {
        if !self.connection.is_autocommit() {
            // Still open, so nothing was committed; the caller rolls it back.
            return Err(error.clone());
        }
        let first = self.first_seq().cast_signed();
        let stored: rusqlite::Result<Option<Vec<u8>>> = self
            .connection
            .query_row(
                "SELECT body FROM log WHERE first_seq = ?1",
                [first],
                |row| row.get(0),
            )
            .optional();
        match stored {
            Ok(Some(body)) if self.group.body.count > 0 && body == self.group.body.bytes => Ok(()),
            Ok(_) => Err(error.clone()),
            Err(second) => Err(StoreError::Unknown(format!("{error}; then {second}"))),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct PayloadColumns {
    row: Option<i64>,
    offset: Option<i64>,
    length: Option<i64>,
    fence: Option<i64>,
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

impl GroupRows {
    fn clear(&mut self) {
        self.staged.clear();
        self.body.clear();
        self.payloads.clear();
        self.folded = None;
        self.wrote = false;
        self.touched.clear();
    }
}

/// Makes a mark unlike that of any other process, or of another store handle in this one.
fn own_mark() -> Result<[u8; 16]> {
    let mut mark = [0; 16];
    getrandom::fill(&mut mark).map_err(|error| {
        StoreError::Unavailable(format!("the system gives no randomness: {error}"))
    })?;
    Ok(mark)
}

/// Says that another process does not end its turn.
pub(super) fn no_turn() -> StoreError {
    StoreError::Unavailable(format!(
        "another process has had its turn to write for more than {} s; it may have been stopped \
         (`lsof` on the store's `{TURN}` file names it)",
        LOCK_WAIT_MAX.as_secs()
    ))
}

fn unlocked(error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("the store's lock files cannot be used: {error}"))
}

impl Sink for Writer {
    type Item = Item;

    const PATIENCE: Duration = LOCK_WAIT_MAX;

    fn try_ready(&mut self) -> bool {
        // An error shows again, with its message, when the items are written.
        self.lock.try_enter().unwrap_or(false)
    }

    fn ready(&mut self) {
        // An error shows again, with its message, when the items are written.
        let _shown_again = self.lock.enter();
    }

    fn write(&mut self, items: &mut Vec<Item>) {
        self.run(items);
    }

    fn give_up(item: Item) {
        item.fail(&no_turn());
    }
}

impl Answer {
    // A caller that went away does not hear its answer; what is stored is stored.
    fn tell(self) {
        match self {
            Self::Commit(sender, commit) => drop(sender.send(commit)),
            Self::Unit(sender) => drop(sender.send(Ok(()))),
            Self::Found(sender, found) => drop(sender.send(found)),
            Self::Tidy(sender, shared) => {
                let left = !shared.tail.read().unwrap_or_else(poisoned).is_empty();
                drop(sender.send(Ok(left)));
            }
        }
    }

    fn fail(self, error: &StoreError) {
        match self {
            Self::Commit(sender, Err(own @ StoreError::Corrupt(_))) => drop(sender.send(Err(own))),
            Self::Commit(sender, _) => drop(sender.send(Err(error.clone()))),
            Self::Unit(sender) => drop(sender.send(Err(error.clone()))),
            Self::Tidy(sender, _) => drop(sender.send(Err(error.clone()))),
            Self::Found(sender, _) => drop(sender.send(Err(error.clone()))),
        }
    }
}

impl Item {
    fn fail(self, error: &StoreError) {
        match self {
            Self::Change(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::Append { answer, .. } | Self::Mark { answer, .. } => {
                drop(answer.send(Err(error.clone())));
            }
            Self::Tidy(answer) => drop(answer.send(Err(error.clone()))),
            Self::Find(_, answer) => drop(answer.send(Err(error.clone()))),
        }
    }
}
