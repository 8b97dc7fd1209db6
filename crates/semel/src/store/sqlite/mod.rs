//! The embedded store: one SQLite file that several processes share.

mod backup;
mod body;
mod cache;
mod checkpoint;
mod files;
mod filter;
mod index;
mod kin;
mod lines;
mod lock;
mod marks;
mod open;
mod payload;
mod reader;
mod schema;
mod seal;
mod shared;
mod tokens;
mod transaction;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use rusqlite::{Connection, ErrorCode};
use semel_core::clock::{Reading, Stamp, judge};
use semel_core::identity::Kin;
use semel_core::ledger::codec::{encode_entry, encode_record};
use semel_core::ledger::{Command, Entry, Event, Fence};
use semel_core::queue::QueueHash;
use semel_core::{KeyHash, PrincipalKey, Timestamp, TokenId, TokenRecord};
use tokio::sync::oneshot;

pub use self::files::{CopyCheck, FileIdentity};
use self::files::{NOTES, StorePlace};
use self::index::{Fold, Hash, Tail};
use self::lock::Turnstile;
use self::marks::Marks;
use self::open::ReadAccess;
use self::reader::Found;
use self::shared::{Shared, poisoned};
use self::tokens::TokenChange;
pub(crate) use self::transaction::{Settled, roll_back};
use self::writer::{Copies, Item, Next, PackedPayload, Prepared, When, Writer};
use super::bytes;
use super::group::{Direct, Group, Refused};
use super::standing::{file_was_copied, only_read};
use super::{
    AbsentAsOf, Change, Chunk, Commit, CopyPolicy, Current, FileOwner, Logged, Moved, NewPayload,
    Origin, Page, Pending, Place, Progress, Query, Result, Sizes, Standing, Store, StoreError,
    Stored, Waiting, read_principal_key,
};
use crate::clock::{Clock, SystemClock};

/// Connections that read beside the writer: more than there are cores would only wait.
const READERS_MAX: usize = 4;

/// Returns the version of SQLite that is built in.
#[must_use]
pub fn version() -> &'static str {
    rusqlite::version()
}

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    owner: FileOwner,
    clock: Arc<dyn Clock>,
    readers: Vec<Mutex<Connection>>,
    next_reader: AtomicUsize,
    shared: Arc<Shared>,
    writing: Writing,
}

/// Whether this process can write the store.
#[derive(Debug)]
enum Writing {
    Allowed(Group<Writer>),
    /// The file or its directory cannot be written: everything is refused with this but reading.
    Refused(StoreError, ReadAccess),
}

impl SqliteStore {
    /// Opens the store in this file, making it when it is not there.
    ///
    /// # Errors
    /// Says why the file cannot be used: another format, a network file system, no permission.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, Arc::new(SystemClock::new()))
    }

    /// Opens the store with another clock, for tests.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_with(path: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::open_as(path.as_ref(), clock, Copies::OnlyRead, CopyPolicy::Refuse)
    }

    /// Opens the store, and treats a file that was copied by means other than Semel's as this says. It is
    /// not adopted here: [`Builder::open`](crate::Builder::open) does that.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_copied(path: impl AsRef<Path>, copied: CopyPolicy) -> Result<Self> {
        let clock = Arc::new(SystemClock::new());
        Self::open_as(path.as_ref(), clock, Copies::OnlyRead, copied)
    }

    /// Opens a backup to adopt it. Until it is adopted, `open` gives a store that can be read only.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_copy(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_as(
            path.as_ref(),
            Arc::new(SystemClock::new()),
            Copies::Writable,
            CopyPolicy::Refuse,
        )
    }

    fn open_as(
        path: &Path,
        clock: Arc<dyn Clock>,
        copies: Copies,
        copied: CopyPolicy,
    ) -> Result<Self> {
        let place = open::prepare(path)?;
        Self::open_file(&place, clock, copies, copied).map_err(|error| error.about(&place.path))
    }

    fn open_file(
        place: &StorePlace,
        clock: Arc<dyn Clock>,
        copies: Copies,
        copied: CopyPolicy,
    ) -> Result<Self> {
        let path = &place.path;
        let locks = Turnstile::open(path, place.owner);
        let locks = locks.and_then(|locks| place.refuse_to_make_files().map(|()| locks));
        let locks = match locks {
            Ok(locks) => locks,
            Err(error) => match (place.only_readable(&error), copies) {
                (Some(refusal), Copies::OnlyRead) => {
                    return Self::open_to_read(place, clock, copied, refusal);
                }
                (Some(refusal), Copies::Writable) => return Err(refusal),
                (None, _) => return Err(writer::unlocked(&error)),
            },
        };
        let writer = Writer::open(place, locks, Arc::clone(&clock), copies, copied)?;
        let shared = writer.shared();
        let readers = readers(|| open::connect(path, open::Role::Read))?;
        let group = Group::start("semel-writer", writer).map_err(|error| {
            StoreError::Unavailable(format!("no thread for the writer: {error}"))
        })?;
        Ok(Self {
            path: path.clone(),
            owner: place.owner,
            clock,
            readers,
            next_reader: AtomicUsize::new(0),
            shared,
            writing: Writing::Allowed(group),
        })
    }

    /// Opens a store that cannot be written: everything but reading is refused.
    fn open_to_read(
        place: &StorePlace,
        clock: Arc<dyn Clock>,
        copied: CopyPolicy,
        refusal: StoreError,
    ) -> Result<Self> {
        let path = &place.path;
        let access = ReadAccess::of(path)?;
        let readers = readers(|| open::connect_to_read(path, access))?;
        let shared = {
            let connection = readers[0].lock().unwrap_or_else(PoisonError::into_inner);
            let mut tail = Tail::new(&Fold::load(&connection)?);
            tail.learn(&connection)?;
            let stamp = shared::last_group(&connection)?.map(|(_, stamp)| stamp);
            Arc::new(Shared {
                tail: RwLock::new(tail),
                stamp: RwLock::new(stamp),
                cache: cache::Cache::new(None, unique()?),
                check: CopyCheck::of(path, copied)?,
                files: OnceLock::new(),
            })
        };
        Ok(Self {
            path: path.clone(),
            owner: place.owner,
            clock,
            readers,
            next_reader: AtomicUsize::new(0),
            shared,
            writing: Writing::Refused(refusal, access),
        })
    }

    /// Says whether a copy of the file would be noticed.
    #[must_use]
    pub fn copy_check(&self) -> &CopyCheck {
        &self.shared.check
    }

    /// Says why this process can only read the store, if that is so: a read-only file system, or
    /// another user's store.
    #[must_use]
    pub fn only_reads(&self) -> Option<&StoreError> {
        match &self.writing {
            Writing::Allowed(_) => None,
            Writing::Refused(refusal, _) => Some(refusal),
        }
    }

    /// Returns the file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says which store an error is about: a program may have several.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.about(&self.path))
    }

    /// Borrows a connection that nobody else reads with.
    fn reader(&self) -> MutexGuard<'_, Connection> {
        let start = self.next_reader.fetch_add(1, Ordering::Relaxed);
        let count = self.readers.len();
        for offset in 0..count {
            if let Ok(reader) = self.readers[(start + offset) % count].try_lock() {
                return reader;
            }
        }
        self.readers[start % count]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &KeyHash) -> Result<Current> {
        let age = match self.shared.cache.record(key) {
            Ok(stored) => return Ok(Current::Stored(stored)),
            Err(age) => age,
        };
        if age.is_some()
            && let Some(as_of) = self.absent(key)
        {
            return Ok(Current::Absent(as_of));
        }
        let reader = self.reader();
        if age.is_none() {
            self.shared.look(&reader)?;
        }
        // The tail is looked at before the file: what is in neither was absent as of then.
        let (in_tail, as_of) = {
            let tail = self.shared.tail.read().unwrap_or_else(poisoned);
            (tail.get(Hash::of(key)), AbsentAsOf(tail.known_through))
        };
        let Some(Found { stored, kept }) = reader::find(&reader, key, in_tail)? else {
            return Ok(Current::Absent(as_of));
        };
        if let (Some(age), Some(kept)) = (age, kept) {
            self.shared.cache.keep(age, key, kept);
        }
        Ok(Current::Stored(stored))
    }

    /// Proves from memory that nothing is stored under a key, where that is possible; only while
    /// nobody else has committed.
    fn absent(&self, key: &KeyHash) -> Option<AbsentAsOf> {
        let hash = Hash::of(key);
        let tail = self.shared.tail.read().unwrap_or_else(poisoned);
        let absent = tail.get(hash).is_none() && !tail.may_be_indexed(hash);
        absent.then_some(AbsentAsOf(tail.known_through))
    }

    /// Hands an item to the writer and waits for the answer.
    async fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<Result<T>>) -> Item) -> Result<T> {
        let group = match &self.writing {
            Writing::Allowed(group) => group,
            Writing::Refused(refusal, _) => return self.named(Err(refusal.clone())),
        };
        let (sender, receiver) = oneshot::channel();
        let answer = match group.submit(make(sender), Direct::here()) {
            Ok(()) => receiver.await.unwrap_or_else(|_| {
                let text = "the writer ended before it answered".to_owned();
                Err(StoreError::Unknown(text))
            }),
            Err(Refused::Overloaded) => {
                let text = "too many changes are waiting to be written".to_owned();
                Err(StoreError::Unavailable(text))
            }
            Err(Refused::Stuck) => Err(writer::no_turn()),
        };
        self.named(answer)
    }

    async fn set_mark(&self, name: &'static str, value: Vec<u8>) -> Result<()> {
        let value = Some(value);
        let mark = |answer| Item::Mark {
            name,
            value,
            answer,
        };
        self.ask(mark).await
    }

    async fn stand(&self, marks: Marks, when: When) -> Result<()> {
        let stand = |answer| Item::Stand {
            marks,
            when,
            answer,
        };
        self.ask(stand).await
    }

    async fn change_token(&self, change: TokenChange) -> Result<bool> {
        self.ask(|answer| Item::Token(change, answer)).await
    }

    fn mark(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.named(marks::load(&self.reader(), name))
    }

    async fn number(&self) -> Result<String> {
        if self.mark(marks::ID)?.is_none() {
            let marks = vec![(marks::ID, Some(unique()?.to_vec()))];
            self.stand(marks, When::Missing(marks::ID)).await?;
        }
        let id = self.mark(marks::ID)?.unwrap_or_default();
        let id = id.try_into().map_err(|_| {
            StoreError::Corrupt("the mark that numbers the store cannot be read".to_owned())
        });
        let id: [u8; 16] = self.named(id)?;
        Ok(format!("{:032x}", u128::from_be_bytes(id)))
    }

    async fn keep_principal_key(&self, key: PrincipalKey) -> Result<PrincipalKey> {
        if let Some(stored) = self.principal_key().await? {
            return Ok(stored);
        }
        match self.standing().await? {
            Standing::Open => {}
            Standing::Copy => return self.named(Err(only_read())),
            Standing::Copied { from } => return self.named(Err(file_was_copied(&from))),
            Standing::Closed(moved) => return self.named(Err(Moved::refusal(&moved.to))),
        }
        let marks = vec![(marks::PRINCIPAL_KEY, Some(key.bytes().to_vec()))];
        self.stand(marks, When::Missing(marks::PRINCIPAL_KEY))
            .await?;
        // Another process may have been first.
        let stored = self.principal_key().await?;
        self.named(stored.ok_or_else(|| {
            StoreError::Unavailable(
                "the mark `principal-key` was written and is not there".to_owned(),
            )
        }))
    }

    /// Makes the bytes of a change, in the caller's thread.
    fn prepare(change: Change) -> Result<Box<Prepared>> {
        let payload = match change.payload {
            NewPayload::Keep => PackedPayload::Keep,
            NewPayload::Bytes { bytes, replaces } => PackedPayload::Bytes {
                packed: bytes::pack(&bytes)?,
                replaces,
            },
            NewPayload::Stream(fence) => PackedPayload::Stream(fence),
            NewPayload::Erase => PackedPayload::Erase,
        };
        Ok(Box::new(Prepared {
            key: change.key,
            expected: change.expected,
            entry: encode_entry(&change.entry),
            next: change.next.map(|record| {
                let mut bytes = encode_record(&record);
                seal::seal(&mut bytes, &[]);
                Next { record, bytes }
            }),
            payload,
            guard: change.guard,
            kin: change.kin,
            line: change.line,
            input: change.input.as_deref().map(bytes::pack).transpose()?,
            is_report: change.entry.command.is_report(),
            is_adoption: matches!(change.entry.command, Command::Adopt(_)),
            changes_settled: changes_settled(&change.entry),
        }))
    }

    async fn write(&self, change: Change) -> Result<Commit> {
        let key = change.key;
        let prepared = Self::prepare(change)?;
        let age = prepared.is_settled().then(|| self.shared.cache.age(&key));
        let (commit, spent) = self.ask(|sender| Item::Change(prepared, sender)).await?;
        if let (Some(age), Commit::Done(Current::Stored(stored))) = (age, &commit)
            && let Some(kept) = spent.kept(stored.place)
        {
            // Whoever did not hear of it asks again soon.
            self.shared.cache.keep(age, &key, kept);
        }
        Ok(commit)
    }
}

impl Store for SqliteStore {
    fn now(&self) -> Timestamp {
        let last = *self.shared.stamp.read().unwrap_or_else(poisoned);
        judge(last.as_ref(), &self.clock.read())
    }

    fn reading(&self) -> Reading {
        self.clock.read()
    }

    // Reading takes microseconds from the page cache, less than handing it to another thread.
    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        Box::pin(async move {
            match self.find(key) {
                // Somebody may be dropping the row right now. What looks like damage is looked at
                // again where nobody can change it.
                Err(StoreError::Corrupt(_)) => self.ask(|answer| Item::Find(*key, answer)).await,
                found => self.named(found),
            }
        })
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        Box::pin(async move { self.named(reader::row(&self.reader(), place.0)) })
    }

    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>> {
        Box::pin(self.write(change))
    }

    fn payload(&self, place: Place) -> Pending<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move { self.named(payload::load(&self.reader(), place.0)) })
    }

    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let pack = |chunk: Chunk| Ok((chunk.stream, bytes::pack(&chunk.bytes)?));
            let chunks = chunks.into_iter().map(pack).collect::<Result<Vec<_>>>()?;
            self.ask(|answer| Item::Append {
                place,
                fence,
                chunks,
                answer,
            })
            .await
        })
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        Box::pin(self.ask(move |answer| Item::Discard {
            place,
            fence,
            answer,
        }))
    }

    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>> {
        Box::pin(async move {
            let chunks = payload::chunks(&self.reader(), place.0, fence.0.cast_signed());
            self.named(chunks)
        })
    }

    fn kin(&self, kin: Kin) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(async move { self.named(kin::load(&self.reader(), kin)) })
    }

    fn waiting(&self, ask: Waiting) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(async move { self.named(lines::waiting(&self.reader(), &ask)) })
    }

    fn taken(
        &self,
        queue: QueueHash,
        lane: Option<u64>,
        limit: usize,
    ) -> Pending<'_, Result<usize>> {
        Box::pin(async move { self.named(lines::taken(&self.reader(), queue, lane, limit)) })
    }

    fn list(&self, query: Query) -> Pending<'_, Result<Page>> {
        Box::pin(async move { self.named(reader::list(&self.reader(), &query)) })
    }

    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        Box::pin(async move { self.named(reader::log(&self.reader(), after, limit)) })
    }

    fn sweep_mark(&self, next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>> {
        Box::pin(async move {
            let stored = self.named(marks::load(&self.reader(), marks::SWEEP))?;
            if let Some(next) = next {
                self.set_mark(marks::SWEEP, bytes::write_stamp(&next).to_vec())
                    .await?;
            }
            let stamp = stored.map(|bytes| bytes::read_stamp(&bytes)).transpose();
            self.named(stamp)
        })
    }

    fn sweep_progress(&self, next: Option<Progress>) -> Pending<'_, Result<Progress>> {
        Box::pin(async move {
            let stored = self.named(marks::load(&self.reader(), marks::PROGRESS))?;
            if let Some(next) = next {
                self.set_mark(marks::PROGRESS, bytes::write_progress(&next))
                    .await?;
            }
            let progress = stored.map(|bytes| bytes::read_progress(&bytes)).transpose();
            self.named(progress.map(Option::unwrap_or_default))
        })
    }

    fn sizes(&self) -> Option<&Sizes> {
        match &self.writing {
            Writing::Allowed(group) => Some(group.sizes()),
            Writing::Refused(..) => None,
        }
    }

    fn as_sqlite(&self) -> Option<&SqliteStore> {
        Some(self)
    }

    fn notes(&self) -> Option<PathBuf> {
        Some(lock::beside(&self.path, NOTES))
    }

    fn notes_owner(&self) -> FileOwner {
        self.owner
    }

    fn ready(&self) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            if let Writing::Refused(refusal, _) = &self.writing {
                return self.named(Err(refusal.clone()));
            }
            self.named(self.shared.check_files())?;
            if let Standing::Copied { from } = self.standing().await? {
                return self.named(Err(file_was_copied(&from)));
            }
            self.end().await.map(drop)
        })
    }

    fn backup(&self, to: PathBuf) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let store = self.path.clone();
            let access = match &self.writing {
                Writing::Allowed(_) => None,
                Writing::Refused(_, access) => Some(*access),
            };
            let thread = std::thread::Builder::new().name("semel-backup".to_owned());
            let started = thread.spawn(move || {
                // Whoever asked for it may have gone; the copy is made all the same.
                let _unheard = sender.send(backup::write(&store, access, &to));
            });
            let written = match started {
                Ok(_) => receiver.await.unwrap_or_else(|_| {
                    let text = "the copying thread ended before it answered".to_owned();
                    Err(StoreError::Unavailable(text))
                }),
                Err(error) => Err(StoreError::Unavailable(format!(
                    "no thread to copy the store: {error}"
                ))),
            };
            self.named(written)
        })
    }

    fn id(&self) -> Pending<'_, Result<String>> {
        Box::pin(self.number())
    }

    fn standing(&self) -> Pending<'_, Result<Standing>> {
        Box::pin(async move { self.named(marks::standing(&self.reader(), &self.shared.check)) })
    }

    fn become_copy(&self) -> Pending<'_, Result<()>> {
        Box::pin(self.stand(vec![(marks::COPY, Some(vec![]))], When::Empty))
    }

    fn close(&self, moved: Moved) -> Pending<'_, Result<()>> {
        let marks = vec![(marks::MOVED, Some(moved.to_bytes()))];
        Box::pin(self.stand(marks, When::NoCopy))
    }

    fn origin(&self, next: Option<Origin>) -> Pending<'_, Result<Option<Origin>>> {
        Box::pin(async move {
            let stored = self.mark(marks::ORIGIN)?;
            if let Some(next) = next {
                self.set_mark(marks::ORIGIN, next.to_bytes()).await?;
            }
            let origin = stored.map(|bytes| Origin::from_bytes(&bytes)).transpose();
            self.named(origin)
        })
    }

    fn adopted(&self) -> Pending<'_, Result<()>> {
        // What it was a copy of goes on under the old number, if it does.
        let file = self.shared.check.mark(&self.path);
        let marks = vec![
            (marks::COPY, None),
            (marks::MOVED, None),
            (marks::ID, None),
            (marks::FILE, file.map(|file| file.to_bytes())),
        ];
        Box::pin(self.stand(marks, When::Always))
    }

    fn principal_key(&self) -> Pending<'_, Result<Option<PrincipalKey>>> {
        Box::pin(async move {
            let bytes = self.mark(marks::PRINCIPAL_KEY)?;
            self.named(bytes.as_deref().map(read_principal_key).transpose())
        })
    }

    fn offer_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<PrincipalKey>> {
        Box::pin(self.keep_principal_key(key))
    }

    fn replace_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            self.set_mark(marks::PRINCIPAL_KEY, key.bytes().to_vec())
                .await
        })
    }

    fn tidy(&self) -> Pending<'_, Result<bool>> {
        Box::pin(self.ask(Item::Tidy))
    }

    fn add_token(&self, token: TokenRecord) -> Pending<'_, Result<bool>> {
        Box::pin(self.change_token(TokenChange::Add(Box::new(token))))
    }

    fn token(&self, id: TokenId) -> Pending<'_, Result<Option<TokenRecord>>> {
        Box::pin(async move { self.named(tokens::load(&self.reader(), id)) })
    }

    fn tokens(
        &self,
        after: Option<TokenId>,
        limit: usize,
    ) -> Pending<'_, Result<Vec<TokenRecord>>> {
        Box::pin(async move { self.named(tokens::list(&self.reader(), after, limit)) })
    }

    fn revoke_token(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<bool>> {
        Box::pin(self.change_token(TokenChange::Revoke(id, at)))
    }

    fn note_token_use(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            self.change_token(TokenChange::Used(id, at)).await?;
            Ok(())
        })
    }
}

/// Opens connections that read beside the writer.
fn readers(open: impl Fn() -> Result<Connection>) -> Result<Vec<Mutex<Connection>>> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = cores.clamp(1, READERS_MAX);
    (0..count).map(|_| open().map(Mutex::new)).collect()
}

/// Makes a number unlike any other.
fn unique() -> Result<[u8; 16]> {
    let mut number = [0; 16];
    getrandom::fill(&mut number).map_err(|error| {
        StoreError::Unavailable(format!("the system gives no randomness: {error}"))
    })?;
    Ok(number)
}

/// Says what failed, in the caller's terms: what can be tried again, and what is damage.
fn failed(doing: &str, error: &rusqlite::Error) -> StoreError {
    let text = format!("cannot {doing}: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Corrupt(text),
        Some(ErrorCode::NotADatabase) => StoreError::Unusable {
            text: format!("the file is not a SQLite database ({error})"),
            hint: "name another file with --store",
        },
        Some(ErrorCode::DiskFull) => StoreError::Unavailable(format!("{text}: the disk is full")),
        Some(ErrorCode::DatabaseBusy) => {
            StoreError::Unavailable(format!("{text}; {}", busy(error)))
        }
        Some(_) | None => StoreError::Unavailable(text),
    }
}

/// Says what keeps a transaction from writing.
fn busy(error: &rusqlite::Error) -> &'static str {
    let code = error.sqlite_error().map(|error| error.extended_code);
    if code == Some(rusqlite::ffi::SQLITE_BUSY_SNAPSHOT) {
        "others have written since it began to read: begin it anew, with BEGIN IMMEDIATE"
    } else {
        "another transaction on the file has not ended in time"
    }
}

/// Says whether a command changes a record that was settled before: those are the ones that may be
/// kept in memory.
fn changes_settled(entry: &Entry) -> bool {
    match &entry.command {
        Command::Submit(_)
        | Command::Begin(_)
        | Command::Renew(_)
        | Command::Expire(_)
        // A breaker is never settled.
        | Command::Breaker(_) => false,
        // A report can contradict the outcome, or be the first definite word of an older attempt.
        Command::Settle(_) => {
            let changing = [Event::Conflict, Event::MarkCleared];
            entry.events.iter().any(|event| changing.contains(event))
        }
        Command::Resolve(_)
        | Command::Retry(_)
        | Command::Cancel(_)
        | Command::Forget(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_) => true,
    }
}
