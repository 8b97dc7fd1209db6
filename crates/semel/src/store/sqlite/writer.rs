//! The one writer of a process: it takes a group of changes, writes them in one transaction, and
//! answers each after COMMIT has returned.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rusqlite::{Connection, OptionalExtension};
use semel_core::KeyHash;
use semel_core::clock::{Stamp, judge};
use semel_core::ledger::{Fence, Record, StateKind};
use tokio::sync::oneshot;

use super::body::{Body, read_fresh, read_stamp, write_stamp};
use super::index::{self, Fold, Folder, Hash, Tail};
use super::lock::Turnstile;
use super::{failed, open, payload, reader, schema};
use crate::clock::Clock;
use crate::store::group::Sink;
use crate::store::{
    AbsentAsOf, Commit, Current, Expected, Guard, Place, Result, StoreError, Stored,
};

/// Rows that are put into the narrow table for each new row, so that folding keeps up.
const FOLD_PER_CLAIM: usize = 2;

/// The fewest rows that a slice puts in: a smaller one would cost a page more than it saves.
const FOLD_SLICE_MIN: usize = 256;

/// Rows that one call to tidy up puts in.
const TIDY_SLICE: usize = 4_096;

/// What is asked of the writer.
#[derive(Debug)]
pub(super) enum Item {
    Change(Box<Prepared>, oneshot::Sender<Result<Commit>>),
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
}

/// A change whose bytes were made in the caller's thread.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) key: KeyHash,
    pub(super) expected: Expected,
    pub(super) entry: Vec<u8>,
    pub(super) next: Option<Next>,
    pub(super) payload: PackedPayload,
    pub(super) guard: Option<Guard>,
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
    Commit(oneshot::Sender<Result<Commit>>, Result<Commit>),
    Unit(oneshot::Sender<Result<()>>),
    Tidy(oneshot::Sender<Result<bool>>, Arc<Shared>),
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
    group: GroupRows,
}

/// What the writer tells the readers of its own process.
#[derive(Debug)]
pub(super) struct Shared {
    /// The rows that the narrow table does not have yet.
    pub(super) tail: RwLock<Tail>,
    /// The last stored time.
    pub(super) stamp: RwLock<Option<Stamp>>,
}

/// What the present transaction adds.
#[derive(Default)]
struct GroupRows {
    staged: HashMap<Hash, u64>,
    body: Body,
    payloads: Vec<u8>,
    payloads_live: i64,
    folded: Option<Fold>,
    wrote: bool,
}

pub(super) fn poisoned<T>(error: PoisonError<T>) -> T {
    error.into_inner()
}

impl Writer {
    pub(super) fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut lock = Turnstile::open(path).map_err(|error| unlocked(&error))?;
        // Even the first look may have to recover the log, so it queues like every write.
        lock.enter().map_err(|error| unlocked(&error))?;
        let mut connection = open::connect(path)?;
        schema::migrate(&mut connection)?;
        let fold = Fold::load(&connection).map_err(|error| failed("open the index", &error))?;
        let shared = Shared {
            tail: RwLock::new(Tail::new(&fold)),
            stamp: RwLock::new(None),
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
            group: GroupRows::default(),
        };
        writer.catch_up()?;
        writer.lock.leave().map_err(|error| unlocked(&error))?;
        Ok(writer)
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
        let fold =
            Fold::load(&self.connection).map_err(|error| failed("read the index", &error))?;
        let mut tail = self.shared.tail.write().unwrap_or_else(poisoned);
        if self.stale {
            *tail = Tail::new(&fold);
            self.folder = Folder::new(fold);
        } else {
            tail.advance(&fold);
            self.folder.fold = fold;
        }
        let known = tail.known_through;
        for group in groups_after(&self.connection, known)? {
            for (hash, id) in read_fresh(&group.fresh)? {
                tail.add(hash, id);
            }
            tail.known_through = group.last_seq;
        }
        let last = last_group(&self.connection)?;
        if let Some((last_seq, stamp)) = last {
            self.next_seq = last_seq + 1;
            tail.known_through = tail.known_through.max(last_seq);
            *self.shared.stamp.write().unwrap_or_else(poisoned) = Some(stamp);
        }
        self.data_version = version;
        self.stale = false;
        Ok(())
    }

    fn run(&mut self, items: &mut Vec<Item>) {
        let entered = self.lock.enter().map_err(|error| unlocked(&error));
        let mut answers = Vec::with_capacity(items.len());
        let written = entered.and_then(|()| self.transact(items, &mut answers));
        // The others' turn comes before the answers: they have waited for longer.
        let left = self.lock.leave().map_err(|error| unlocked(&error));
        match written.and(left) {
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
        for item in items.drain(..) {
            match item {
                Item::Change(change, answer) => {
                    let applied = self.apply(&change);
                    // Damage in one record is that record's answer; the others go on. Any other
                    // failure is the whole group's.
                    let (applied, failure) = match applied {
                        Err(error @ StoreError::Corrupt(_)) => (Err(error), None),
                        Err(error) => (Err(error.clone()), Some(error)),
                        Ok(commit) => (Ok(commit), None),
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
            Expected::Version(place, version) => {
                let found = self.version_of(place)?;
                if found == Some(version.0) {
                    return self.replace(change, place);
                }
                let current = reader::row(&self.connection, place.0)?;
                Ok(Commit::Conflict(current.map_or_else(
                    || Current::Absent(AbsentAsOf(self.next_seq - 1)),
                    Current::Stored,
                )))
            }
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
        let (in_tail, indexed_through) = {
            let tail = self.shared.tail.read().unwrap_or_else(poisoned);
            (
                self.group
                    .staged
                    .get(&hash)
                    .copied()
                    .or_else(|| tail.get(hash)),
                tail.indexed_through,
            )
        };
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
                    payload_length, stream_fence, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
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
                    &next.bytes,
                ))
            })
            .map_err(|error| failed("store a record", &error))?;
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

    fn replace(&mut self, change: &Prepared, place: Place) -> Result<Commit> {
        let Some(next) = &change.next else {
            return self.remove(change, place);
        };
        let id = place.0.cast_signed();
        let state = next.record.kind();
        let stored = if matches!(change.payload, PackedPayload::Keep) {
            self.connection
                .prepare_cached(
                    "UPDATE operations SET version = ?2, state = ?3, record = ?4 WHERE id = ?1",
                )
                .and_then(|mut statement| {
                    let version = next.record.version().0.cast_signed();
                    statement.execute((id, version, state.code(), &next.bytes))
                })
        } else {
            self.replace_with_payload(change, next, id)
        };
        stored.map_err(|error| failed("store a record", &error))?;
        self.list_open(place, state)?;
        self.log(Some(place), &change.entry);
        Ok(Commit::Done(Current::Stored(Stored {
            record: Arc::clone(&next.record),
            place,
        })))
    }

    fn replace_with_payload(
        &mut self,
        change: &Prepared,
        next: &Next,
        id: i64,
    ) -> rusqlite::Result<usize> {
        let erases = match change.payload {
            PackedPayload::Erase => true,
            PackedPayload::Bytes { replaces, .. } => replaces,
            PackedPayload::Keep | PackedPayload::Stream(_) => false,
        };
        if erases {
            payload::erase(&self.connection, id.cast_unsigned())?;
        }
        let payload = self.place_payload(&change.payload);
        self.connection
            .prepare_cached(
                "UPDATE operations SET version = ?2, state = ?3, payload_row = ?4,
                    payload_offset = ?5, payload_length = ?6, stream_fence = ?7, record = ?8
                 WHERE id = ?1",
            )?
            .execute((
                id,
                next.record.version().0.cast_signed(),
                next.record.kind().code(),
                payload.row,
                payload.offset,
                payload.length,
                payload.fence,
                &next.bytes,
            ))
    }

    /// Removes the last trace of a key.
    fn remove(&mut self, change: &Prepared, place: Place) -> Result<Commit> {
        // Other processes may know the row from the log's tail: it is indexed first, so that
        // nobody looks for it there any more.
        while self.folded().indexed_through < place.0 {
            self.fold(TIDY_SLICE)?;
        }
        payload::erase(&self.connection, place.0)
            .and_then(|()| index::remove(&self.connection, Hash::of(&change.key), place.0))
            .and_then(|()| {
                self.connection
                    .prepare_cached("DELETE FROM operations WHERE id = ?1")?
                    .execute([place.0.cast_signed()])
            })
            .map_err(|error| failed("remove a record", &error))?;
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

    fn place_payload(&mut self, payload: &PackedPayload) -> PayloadColumns {
        match payload {
            PackedPayload::Keep | PackedPayload::Erase => PayloadColumns::default(),
            PackedPayload::Stream(fence) => PayloadColumns {
                fence: Some(fence.0.cast_signed()),
                ..PayloadColumns::default()
            },
            PackedPayload::Bytes { packed, .. } => {
                let offset = self.group.payloads.len();
                self.group.payloads.extend_from_slice(packed);
                self.group.payloads_live += 1;
                PayloadColumns {
                    row: Some(self.first_seq().cast_signed()),
                    offset: i64::try_from(offset).ok(),
                    length: i64::try_from(packed.len()).ok(),
                    fence: None,
                }
            }
        }
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
            if group.payloads_live > 0 {
                self.connection
                    .prepare_cached("INSERT INTO payloads (id, live, body) VALUES (?1, ?2, ?3)")
                    .and_then(|mut statement| {
                        statement.execute((first, group.payloads_live, &group.payloads))
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
        let mut tail = self.shared.tail.write().unwrap_or_else(poisoned);
        for (hash, id) in self.group.staged.drain() {
            tail.add(hash, id);
        }
        tail.known_through = self.next_seq - 1;
        if let Some(fold) = &self.group.folded {
            tail.advance(fold);
        }
        if self.group.body.count > 0 {
            *self.shared.stamp.write().unwrap_or_else(poisoned) = Some(stamp);
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

impl GroupRows {
    fn clear(&mut self) {
        self.staged.clear();
        self.body.clear();
        self.payloads.clear();
        self.payloads_live = 0;
        self.folded = None;
        self.wrote = false;
    }
}

struct LogGroup {
    last_seq: u64,
    fresh: Vec<u8>,
}

/// Reads which rows were made after a number of the log.
fn groups_after(connection: &Connection, known: u64) -> Result<Vec<LogGroup>> {
    let read = || {
        connection
            .prepare_cached(
                "SELECT last_seq, fresh FROM log WHERE first_seq > ?1 ORDER BY first_seq",
            )?
            .query_map([known.cast_signed()], |row| {
                Ok(LogGroup {
                    last_seq: row.get::<_, i64>(0)?.cast_unsigned(),
                    fresh: row.get(1)?,
                })
            })?
            .collect::<rusqlite::Result<Vec<_>>>()
    };
    read().map_err(|error| failed("read the log", &error))
}

fn last_group(connection: &Connection) -> Result<Option<(u64, Stamp)>> {
    let last: Option<(i64, Vec<u8>)> = connection
        .prepare_cached("SELECT last_seq, stamp FROM log ORDER BY first_seq DESC LIMIT 1")
        .and_then(|mut statement| {
            statement
                .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        })
        .map_err(|error| failed("read the log", &error))?;
    last.map(|(seq, stamp)| Ok((seq.cast_unsigned(), read_stamp(&stamp)?)))
        .transpose()
}

fn unlocked(error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("the store's lock files cannot be used: {error}"))
}

impl Sink for Writer {
    type Item = Item;

    fn try_ready(&mut self) -> bool {
        // An error shows again, with its message, when the writer enters in earnest.
        self.lock.try_enter().unwrap_or(false)
    }

    fn write(&mut self, items: &mut Vec<Item>) {
        self.run(items);
    }
}

impl Answer {
    // A caller that went away does not hear its answer; what is stored is stored.
    fn tell(self) {
        match self {
            Self::Commit(sender, commit) => drop(sender.send(commit)),
            Self::Unit(sender) => drop(sender.send(Ok(()))),
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
        }
    }
}
