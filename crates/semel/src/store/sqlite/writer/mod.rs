//! The one writer of a process: it takes a group of changes, writes them in one transaction, and
//! answers each after COMMIT has returned.

mod item;
pub(super) mod outside;
mod payloads;
mod rows;
mod statements;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use semel_core::clock::{Stamp, judge};

use self::item::Answer;
pub(super) use self::item::{Item, Next, PackedPayload, Prepared, When};
use self::rows::{Rows, TIDY_SLICE};
use self::statements::Statements;
use super::cache::Cache;
use super::checkpoint::Checkpoints;
use super::files::{CopyCheck, OpenFiles, StorePlace, another_users};
use super::index::{Fold, Folder, Tail};
use super::lock::{LOCK_WAIT_MAX, TURN, Turnstile, beside};
use super::shared::{Shared, last_group, poisoned};
use super::tokens::{self, TokenChange};
use super::{failed, filter, marks, open, payload, schema, unique};
use crate::clock::Clock;
use crate::owned;
use crate::store::group::Sink;
use crate::store::standing::{file_was_copied, not_adoptable, not_empty, only_read};
use crate::store::{AbsentAsOf, CopyPolicy, Current, Moved, Result, Standing, StoreError};

/// Rows that a process makes before it keeps a filter: a short-lived one would never earn it back.
const FILTER_AFTER: u64 = 1_024;

/// Whether copies that nobody has adopted may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    OnlyRead,
    /// By whoever adopts them.
    Writable,
}

pub(super) struct Writer {
    connection: Connection,
    lock: Turnstile,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    copies: Copies,
    standing: Standing,
    /// Whether a failure has left doubt about what this process knows of the file.
    stale: bool,
    data_version: i64,
    path: PathBuf,
    checkpoints: Checkpoints,
    /// Rows that this process has made since its filter was last begun.
    created: u64,
    rows: Rows,
}

impl Writer {
    pub(super) fn open(
        place: &StorePlace,
        lock: Turnstile,
        clock: Arc<dyn Clock>,
        copies: Copies,
        copied: CopyPolicy,
    ) -> Result<Self> {
        // Even the first look may have to recover the log, so it queues like every write.
        let lock = lock
            .enter_in_time()
            .map_err(|error| unlocked(&error))?
            .ok_or_else(no_turn)?;
        let path = &place.path;
        let mut connection = open::connect(path, open::Role::Write)?;
        let mark = unique()?;
        let check = CopyCheck::of(path, copied)?;
        let is_new = schema::check(&connection)? == 0;
        if schema::migrate(&mut connection, check.mark(path).as_ref())? {
            // An older version that has the store open must not go on answering from memory.
            lock.mark(&mark).map_err(|error| unlocked(&error))?;
        }
        let fold = Fold::load(&connection)?;
        let turn = owned::open_to_read(&beside(path, TURN), place.owner);
        let turn = turn.map_err(|error| unlocked(&error))?;
        let shared = Shared {
            tail: RwLock::new(Tail::new(&fold)),
            stamp: RwLock::new(None),
            cache: Cache::new(Some(turn), mark),
            check,
            files: OnceLock::new(),
        };
        let shared = Arc::new(shared);
        let mut writer = Self {
            connection,
            lock,
            shared: Arc::clone(&shared),
            clock,
            copies,
            standing: Standing::Open,
            stale: true,
            data_version: 0,
            path: path.clone(),
            checkpoints: Checkpoints::new(path),
            created: 0,
            rows: Rows::new(shared, fold),
        };
        // A disk that is full must not keep readers out: the next process that opens it remembers it.
        let remembered = marks::remember_file(&writer.connection, &writer.shared.check, path);
        // What the store remembers of its file has to be in that file, and not in its log: the log is
        // easily left behind when the file is copied, and an empty copy would be a new store.
        if is_new {
            open::write_back(&writer.connection, "TRUNCATE");
        } else if remembered == Ok(true) {
            open::write_back(&writer.connection, "PASSIVE");
        }
        writer.catch_up()?;
        writer.refuse_gap()?;
        // Only now are all its files there. They are examined again, as another user may have put one in
        // place between the first look and SQLite's.
        let files = OpenFiles::note(place)?;
        writer.shared.files.get_or_init(|| files);
        writer.lock.leave().map_err(|error| unlocked(&error))?;
        Ok(writer)
    }

    /// Refuses a store that has lost what was committed: those keys would run again.
    fn refuse_gap(&self) -> Result<()> {
        let committed = self.lock.committed().map_err(|error| unlocked(&error))?;
        match committed {
            Some(last) if last >= self.rows.next_seq => Err(StoreError::Corrupt(format!(
                "log entries {} to {last} were committed and are gone: the write-ahead log was \
                 removed or cut, or an older copy was put in its place; what was begun in the gap \
                 cannot be known. Restore the whole store, or remove its `{TURN}` file to go on \
                 with what is left",
                self.rows.next_seq
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses to go on when another process writes another log than this one, or does not use the turn
    /// file that this one has open.
    fn refuse_other_logs(&self, is_marked_by_us: bool, known: Option<u64>) -> Result<()> {
        let lose = |why: &str| match self.shared.files.get() {
            Some(files) => Err(files.lose(why)),
            None => Ok(()),
        };
        if is_marked_by_us {
            return match known {
                // Another process has committed, and left its mark in another turn file.
                Some(known) if self.rows.next_seq > known => {
                    lose(&format!("the store's `{TURN}` file was replaced"))
                }
                Some(_) | None => Ok(()),
            };
        }
        let committed = self.lock.committed().map_err(|error| unlocked(&error))?;
        match committed {
            Some(last) if last >= self.rows.next_seq => lose(&format!(
                "another process has committed log entries up to {last}, and the log that is open here ends \
                 with {}",
                self.rows.next_seq - 1
            )),
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
        let fold = Fold::load(&self.connection)?;
        self.standing = marks::standing(&self.connection, &self.shared.check)?;
        let mut tail = self.shared.tail.write().unwrap_or_else(poisoned);
        self.shared.cache.clear();
        if self.stale {
            *tail = Tail::new(&fold);
            self.created = 0;
            self.rows.folder = Folder::new(fold);
        } else {
            tail.advance(&fold);
            self.rows.folder.fold = fold;
        }
        tail.learn(&self.connection)?;
        self.rows.next_seq = 1;
        if let Some((last_seq, stamp)) = last_group(&self.connection)? {
            self.rows.next_seq = last_seq + 1;
            *self.shared.stamp.write().unwrap_or_else(poisoned) = Some(stamp);
        }
        drop(tail);
        refuse_short_log(&self.connection, &fold, self.rows.next_seq)?;
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
            Ok(()) => {
                answers.into_iter().for_each(Answer::tell);
                self.checkpoints.look(&self.connection);
            }
            Err(error) => {
                answers.into_iter().for_each(|answer| answer.fail(&error));
                items.drain(..).for_each(|item| item.fail(&error));
            }
        }
    }

    fn transact(&mut self, items: &mut Vec<Item>, answers: &mut Vec<Answer>) -> Result<()> {
        if let Some(files) = self.shared.files.get() {
            files.refuse_if_lost()?;
        }
        self.rows.clear();
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
        let known = (!self.stale).then_some(self.rows.next_seq);
        self.catch_up()?;
        self.refuse(items);
        // Others must not answer from memory once this is committed; and this process may, as it
        // has just caught up.
        let is_ours = self.lock.mark(self.shared.cache.mark());
        let is_ours = is_ours.map_err(|error| unlocked(&error))?;
        self.refuse_other_logs(is_ours, known)?;
        let stamp = self.stamp();
        let sql = &mut Statements::new(&self.connection);
        let rows = &mut self.rows;
        for item in items.drain(..) {
            match item {
                Item::Change(change, answer) => {
                    let applied = rows.apply(sql, &change);
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
                    payload::append(sql.connection, place.0, fence.0.cast_signed(), &chunks)
                        .map_err(|error| failed("store a stream", &error))?;
                    rows.wrote = true;
                }
                Item::Discard {
                    place,
                    fence,
                    answer,
                } => {
                    answers.push(Answer::Unit(answer));
                    payload::discard(sql.connection, place.0, fence.0.cast_signed())
                        .map_err(|error| failed("take a stream away", &error))?;
                    rows.wrote = true;
                }
                Item::Mark {
                    name,
                    value,
                    answer,
                } => {
                    answers.push(Answer::Unit(answer));
                    match value {
                        Some(value) => marks::save(sql.connection, name, value)?,
                        None => marks::remove(sql.connection, name)?,
                    }
                    rows.wrote = true;
                }
                Item::Stand {
                    marks,
                    when,
                    answer,
                } => {
                    let refusal = match (when, &self.standing) {
                        (When::Always | When::Missing(_), _) => None,
                        (When::Empty, Standing::Copy) => None,
                        (
                            When::Empty,
                            Standing::Open | Standing::Closed(_) | Standing::Copied { .. },
                        ) => (rows.next_seq > 1).then(not_empty),
                        (When::NoCopy, Standing::Copy) => Some(only_read()),
                        (When::NoCopy, Standing::Copied { from }) => Some(file_was_copied(from)),
                        (When::NoCopy, Standing::Open | Standing::Closed(_)) => None,
                    };
                    let needed = match when {
                        When::Missing(name) => marks::load(sql.connection, name)?.is_none(),
                        When::Always | When::Empty | When::NoCopy => refusal.is_none(),
                    };
                    if needed {
                        marks::put(sql.connection, marks)?;
                        self.standing = marks::standing(sql.connection, &self.shared.check)?;
                        rows.wrote = true;
                    }
                    answers.push(match refusal {
                        Some(error) => Answer::Refused(answer, error),
                        None => Answer::Unit(answer),
                    });
                }
                Item::Token(change, answer) => {
                    // A damaged token is its own answer; the others go on.
                    let changed = match tokens::apply(sql.connection, change) {
                        Err(error) if !matches!(error, StoreError::Corrupt(_)) => {
                            answers.push(Answer::Token(answer, Err(error.clone())));
                            return Err(error);
                        }
                        changed => changed,
                    };
                    rows.wrote |= changed == Ok(true);
                    answers.push(Answer::Token(answer, changed));
                }
                Item::Find(key, answer) => {
                    let as_of = AbsentAsOf(rows.next_seq - 1);
                    let found = rows.find(sql.connection, &key, AbsentAsOf(0));
                    let found =
                        found.map(|found| found.map_or(Current::Absent(as_of), Current::Stored));
                    answers.push(Answer::Found(answer, found));
                }
                Item::Tidy(answer) => {
                    answers.push(Answer::Tidy(answer, Arc::clone(&self.shared)));
                    rows.fold_debt += TIDY_SLICE;
                }
            }
        }
        rows.finish(sql.connection, &stamp)
    }

    /// Refuses what may not be done with the store as it stands.
    fn refuse(&self, items: &mut Vec<Item>) {
        match &self.standing {
            Standing::Open if self.copies == Copies::Writable => {
                // Two processes may have begun to adopt it. Once one is done, operations are begun, and
                // the other one's orders would put them in doubt.
                let adopts =
                    |item: &Item| matches!(item, Item::Change(change, _) if change.is_adoption);
                let refused = items.extract_if(.., |item| adopts(item));
                refused.for_each(|item| item.fail(&not_adoptable()));
            }
            Standing::Open => {}
            Standing::Copy | Standing::Copied { .. } if self.copies == Copies::Writable => {}
            Standing::Copy => refuse_writes(items, &only_read()),
            Standing::Copied { from } => refuse_writes(items, &file_was_copied(from)),
            Standing::Closed(moved) => {
                // Those who report need tokens that are good and can be revoked, and no others.
                let begins = |item: &Item| match item {
                    Item::Change(change, _) => !change.is_report,
                    Item::Token(TokenChange::Add(_), _) => true,
                    _ => false,
                };
                let refused = items.extract_if(.., |item| begins(item));
                refused.for_each(|item| item.fail(&Moved::refusal(&moved.to)));
            }
        }
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

    fn execute(&self, statement: &str) -> Result<()> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut prepared| prepared.execute([]))
            .map(drop)
            .map_err(|error| failed(statement, &error))
    }

    fn commit(&mut self) -> Result<()> {
        if !self.rows.wrote {
            return self.execute("ROLLBACK");
        }
        // Whatever is written into files that were moved or removed, no other process would see.
        self.shared.check_files()?;
        let stamp = self.stamp();
        if let Err(error) = self.execute("COMMIT") {
            self.settle_failed_commit(&error)?;
        }
        // Whoever read one of these before the commit must not keep it after.
        for key in &self.rows.touched {
            self.shared.cache.forget(key);
        }
        let mut tail = self.shared.tail.write().unwrap_or_else(poisoned);
        self.created += self.rows.staged.len() as u64;
        for (hash, id) in self.rows.staged.drain() {
            tail.add(hash, id);
        }
        tail.known_through = self.rows.next_seq - 1;
        if let Some(fold) = &self.rows.folded {
            tail.advance(fold);
        }
        let busy = tail.filter.is_none() && self.created >= FILTER_AFTER;
        drop(tail);
        if busy {
            self.created = 0;
            filter::fill(&self.shared, self.path.clone());
        }
        if self.rows.body.count > 0 {
            *self.shared.stamp.write().unwrap_or_else(poisoned) = Some(stamp);
            // Without this note a lost log might not be noticed; what is written is written.
            let _unnoted = self.lock.note_committed(self.rows.next_seq - 1);
        }
        Ok(())
    }

    /// A failed COMMIT tells nothing: what is stored is read again, never assumed.
    fn settle_failed_commit(&mut self, error: &StoreError) -> Result<()> {
        if !self.connection.is_autocommit() {
            // Still open, so nothing was committed; the caller rolls it back.
            return Err(error.clone());
        }
        let first = self.rows.first_seq().cast_signed();
        let stored: rusqlite::Result<Option<Vec<u8>>> = self
            .connection
            .query_row(
                "SELECT body FROM log WHERE first_seq = ?1",
                [first],
                |row| row.get(0),
            )
            .optional();
        match stored {
            Ok(Some(body)) if self.rows.body.count > 0 && body == self.rows.body.bytes => Ok(()),
            Ok(_) => Err(error.clone()),
            Err(second) => Err(StoreError::Unknown(format!("{error}; then {second}"))),
        }
    }
}

/// Refuses everything but reading, and what changes how the store stands.
fn refuse_writes(items: &mut Vec<Item>, refusal: &StoreError) {
    let reads = |item: &Item| matches!(item, Item::Find(..) | Item::Stand { .. });
    let refused = items.extract_if(.., |item| !reads(item));
    refused.for_each(|item| item.fail(refusal));
}

/// Refuses a log that ends before what is stored: its last group is gone, and the next one would take
/// the numbers of rows that exist.
fn refuse_short_log(connection: &Connection, fold: &Fold, next_seq: u64) -> Result<()> {
    let newest: Option<i64> = connection
        .prepare_cached("SELECT max(id) FROM operations")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(|error| failed("look for the newest record", &error))?;
    let newest = newest.map_or(0, i64::cast_unsigned).max(fold.batch_end);
    if newest >= next_seq {
        return Err(StoreError::Corrupt(format!(
            "the log ends with entry {}, but there are records up to entry {newest}",
            next_seq - 1
        )));
    }
    Ok(())
}

/// Says that another process does not end its turn.
pub(super) fn no_turn() -> StoreError {
    StoreError::Unavailable(format!(
        "another process has had its turn to write for more than {} s; it may have been stopped \
         (`lsof` on the store's `{TURN}` file names it)",
        LOCK_WAIT_MAX.as_secs()
    ))
}

pub(super) fn unlocked(error: &std::io::Error) -> StoreError {
    if owned::is_not_owned(error) {
        return another_users(error);
    }
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
