//! Where records live. A store never decides: it loads and commits by compare-and-swap.

mod bytes;
#[doc(hidden)]
pub mod group;
mod line;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod sizes;
pub mod sqlite;
mod standing;
#[cfg(any(feature = "postgres", feature = "remote"))]
mod state;
#[cfg(any(feature = "postgres", feature = "remote"))]
pub(crate) mod time;
pub(crate) mod transaction;

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use semel_core::clock::{Reading, Stamp};
use semel_core::identity::{self, Kin, KinChange};
use semel_core::ledger::{Entry, Fence, Record, StateKind, Version};
use semel_core::queue::{Bounds, LineChange, QueueHash};
use semel_core::{Digest, Key, KeyHash, Namespace, PrincipalKey, Timestamp, TokenId, TokenRecord};
use tokio::sync::mpsc;

pub use self::line::{WAITING_MAX, Waiting};
pub use self::sizes::{SIZE_CLASSES, Sizes};
pub use self::standing::{CopyPolicy, Moved, Origin, Stage, Standing};
#[cfg(any(feature = "postgres", feature = "remote"))]
pub(crate) use self::state::state_directory;
pub use crate::owned::FileOwner;
use crate::owned::OwnedDirectory;

/// An answer that may take a while.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a store answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The most records that one `list` or `log` call returns.
pub const PAGE_MAX: usize = 1_000;

/// The largest payload that is stored in one piece; longer answers are streamed in chunks.
pub const PAYLOAD_MAX: usize = 16 * 1024 * 1024;

/// The most kin that a call is judged by. One caller's calls that are alike, and none of them over, are a
/// handful; more are a sign that something repeats itself without end, and each would be read for each call.
pub const KIN_MAX: u16 = 256;

/// The largest input of a task: a worker is handed many at once.
pub const INPUT_MAX: usize = 1024 * 1024;

/// The fence under which the input of a task lies among the streams of its operation: attempts begin with 1.
pub const INPUT: Fence = Fence(0);

/// Keeps records, payloads and the log.
///
/// The trait is used as `Arc<dyn Store>` and is not meant to be implemented outside this crate and
/// its tests: it may change in any release.
pub trait Store: Send + Sync + Debug {
    /// Returns the present time, by which leases are judged.
    fn now(&self) -> Timestamp;

    /// Returns the machine's clocks, by which retention is judged.
    fn reading(&self) -> Reading;

    /// Loads what is stored under a key.
    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>>;

    /// Returns what a first command may be decided on before anything was read, where a commit that
    /// conflicts brings what is stored without a further round trip. No answer may rest on it.
    fn assumed(&self) -> Option<Current> {
        None
    }

    /// Loads the record that lies at a place.
    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>>;

    /// Commits one change if what it was decided on is still what is stored.
    ///
    /// The answer is given after the change is durable. Dropping the future does not take the
    /// change back.
    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>>;

    /// Loads the payload of a settled operation; `None` when there is none, or it was erased.
    fn payload<'a>(&'a self, place: Place) -> Pending<'a, Result<Option<Vec<u8>>>>;

    /// Stores the next pieces of a stream that an attempt produces.
    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>>;

    /// Takes a stream away that did not become the answer, once the attempt has been reported.
    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>>;

    /// Loads the pieces of a stream, in the order in which they were stored.
    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>>;

    /// Loads the records that count among these kin, in the order of their places, as many as a door can
    /// judge and one more ([`KIN_MAX`]).
    fn kin(&self, kin: Kin) -> Pending<'_, Result<Vec<Stored>>>;

    /// Loads tasks that wait in the line of a queue and are due: the highest priority first, and of each priority one of
    /// every lane in turn.
    fn waiting(&self, ask: Waiting) -> Pending<'_, Result<Vec<Stored>>>;

    /// Counts the tasks of a queue, or of one lane of it, that its workers have; at most `limit`.
    fn taken(
        &self,
        queue: QueueHash,
        lane: Option<u64>,
        limit: usize,
    ) -> Pending<'_, Result<usize>>;

    /// Lists records.
    fn list(&self, query: Query) -> Pending<'_, Result<Page>>;

    /// Returns the number up to which the log can be read: nothing will appear below it.
    fn end(&self) -> Pending<'_, Result<u64>> {
        // No key has this hash, so the answer says up to which entry that is certain.
        const NOBODY: KeyHash = KeyHash(Digest([0; 32]));
        Box::pin(async move {
            match self.load(&NOBODY).await? {
                Current::Absent(as_of) => Ok(as_of.0),
                Current::Stored(_) => {
                    let text = "a record has a hash of zeroes".to_owned();
                    Err(StoreError::Corrupt(text))
                }
            }
        })
    }

    /// Says whether the numbers of the log have gaps.
    fn has_gaps(&self) -> bool {
        false
    }

    /// Reads the log forward from a number, as far as it is complete.
    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>>;

    /// Reads the mark of the last retention sweep and writes the next one.
    fn sweep_mark(&self, next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>>;

    /// Reads how far the sweeps have come and writes how far they are now.
    fn sweep_progress(&self, next: Option<Progress>) -> Pending<'_, Result<Progress>>;

    /// Hears of keys that other nodes brought to a rest, from now on; `None` where the store cannot
    /// tell. Some may be missed: whoever waits looks now and then as well.
    fn listen(&self) -> Pending<'_, Result<Option<mpsc::Receiver<KeyHash>>>> {
        Box::pin(async { Ok(None) })
    }

    /// Returns how many changes were committed together, where the store groups them.
    fn sizes(&self) -> Option<&Sizes> {
        None
    }

    /// Returns the store if it is in PostgreSQL, where a transaction of the caller's own can settle.
    #[cfg(feature = "postgres")]
    #[doc(hidden)]
    fn as_postgres(&self) -> Option<&postgres::PostgresStore> {
        None
    }

    /// Returns the store if it is in SQLite, where a transaction of the caller's own can settle.
    #[doc(hidden)]
    fn as_sqlite(&self) -> Option<&sqlite::SqliteStore> {
        None
    }

    /// Returns the store if the rules run beside it, on another machine: commands are sent there.
    #[cfg(feature = "remote")]
    #[doc(hidden)]
    fn as_remote(&self) -> Option<&crate::remote::RemoteStore> {
        None
    }

    /// Returns the namespace behind whose wall everybody is who uses the store from here; `None` where
    /// callers choose.
    fn namespace(&self) -> Option<&Namespace> {
        None
    }

    /// Returns a directory beside the store where notes of unstored outcomes can wait.
    fn notes(&self) -> Option<PathBuf>;

    /// Returns the user to whom the notes and their directory must belong.
    fn notes_owner(&self) -> FileOwner {
        FileOwner::this_process()
    }

    /// Says whether operations can be begun and settled in the store from here. It costs a read.
    fn ready(&self) -> Pending<'_, Result<()>> {
        Box::pin(async move { self.end().await.map(drop) })
    }

    /// Writes a consistent copy of the whole store into a new file, while others go on. The copy
    /// may only be read until it is adopted.
    fn backup(&self, to: PathBuf) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            Err(StoreError::Refused(format!(
                "this kind of store cannot be copied into a file ({})",
                to.display()
            )))
        })
    }

    /// Returns a number unlike that of any other store.
    fn id(&self) -> Pending<'_, Result<String>> {
        Box::pin(async { Err(cannot_be_copied()) })
    }

    /// Returns what may be done with the store.
    fn standing(&self) -> Pending<'_, Result<Standing>> {
        Box::pin(async { Ok(Standing::Open) })
    }

    /// Makes an empty store a copy that is to be filled by whoever opened it for that.
    fn become_copy(&self) -> Pending<'_, Result<()>> {
        Box::pin(async { Err(cannot_be_copied()) })
    }

    /// Closes the store: from now on only attempts that run report. When this returns, no begin of
    /// anybody's can be written any more.
    fn close(&self, moved: Moved) -> Pending<'_, Result<()>> {
        let _nowhere = moved;
        Box::pin(async { Err(cannot_be_copied()) })
    }

    /// Reads what the store was copied from and writes how far it is.
    fn origin(&self, next: Option<Origin>) -> Pending<'_, Result<Option<Origin>>> {
        let _nowhere = next;
        Box::pin(async { Ok(None) })
    }

    /// Says that every record of a copy was adopted: from now on it is a store like any other, with
    /// a number of its own.
    fn adopted(&self) -> Pending<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Puts what is spread over the store in order, in a bounded slice; returns whether more is
    /// left to do.
    fn tidy(&self) -> Pending<'_, Result<bool>>;

    /// Returns the secret key under which the credentials of callers are hashed; `None` when there is none yet. No
    /// call of a server returns it.
    fn principal_key(&self) -> Pending<'_, Result<Option<PrincipalKey>>> {
        Box::pin(async { Err(keeps_no_key()) })
    }

    /// Keeps this key unless there is one, durably, and returns the stored one: processes that offer different keys
    /// at the same time get the same one.
    fn offer_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<PrincipalKey>> {
        let _nowhere = key;
        Box::pin(async { Err(keeps_no_key()) })
    }

    /// Takes over the key of the store that this one is a copy of.
    fn replace_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<()>> {
        let _nowhere = key;
        Box::pin(async { Err(keeps_no_key()) })
    }

    /// Keeps a new token; returns `false`, and writes nothing, when there is one with this id. A store
    /// whose ledger has moved takes none.
    fn add_token(&self, token: TokenRecord) -> Pending<'_, Result<bool>> {
        let _nowhere = token;
        Box::pin(async { Err(keeps_no_tokens()) })
    }

    /// Finds a token by its id.
    ///
    /// It is asked for each request to a server: SQLite reads one row of a small table, in the caller's
    /// thread; PostgreSQL takes one round trip, whose answer a server may go by for a second.
    fn token(&self, id: TokenId) -> Pending<'_, Result<Option<TokenRecord>>> {
        let _nobody = id;
        Box::pin(async { Ok(None) })
    }

    /// Lists tokens in the order of their ids, at most [`PAGE_MAX`].
    fn tokens(
        &self,
        after: Option<TokenId>,
        limit: usize,
    ) -> Pending<'_, Result<Vec<TokenRecord>>> {
        let _nothing = (after, limit);
        Box::pin(async { Ok(vec![]) })
    }

    /// Revokes a token, durably; returns `false` when there is none with this id, or it was revoked
    /// before: then it stays as it is.
    fn revoke_token(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<bool>> {
        let _nowhere = (id, at);
        Box::pin(async { Err(keeps_no_tokens()) })
    }

    /// Notes that a token was used; an earlier time than the noted one changes nothing.
    fn note_token_use(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<()>> {
        let _nowhere = (id, at);
        Box::pin(async { Err(keeps_no_tokens()) })
    }
}

/// Opens the directory of a store's notes; `None` when there is none.
///
/// # Errors
/// Fails when it belongs to another user, or every user may write it.
pub(crate) fn open_notes(store: &dyn Store) -> io::Result<Option<OwnedDirectory>> {
    match store.notes() {
        Some(path) => OwnedDirectory::open(&path, store.notes_owner()),
        None => Ok(None),
    }
}

/// Opens the directory of a store's notes, and makes it where there is none.
///
/// # Errors
/// As [`open_notes`]; and when the store keeps no notes.
pub(crate) fn make_notes(store: &dyn Store) -> io::Result<OwnedDirectory> {
    let path = store.notes().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "the store has no directory for notes",
        )
    })?;
    OwnedDirectory::make(&path, store.notes_owner())
}

fn keeps_no_tokens() -> StoreError {
    StoreError::Refused("this kind of store keeps no tokens".to_owned())
}

fn keeps_no_key() -> StoreError {
    StoreError::Refused("this kind of store keeps no key for the names of callers".to_owned())
}

/// Reads a stored key.
fn read_principal_key(bytes: &[u8]) -> Result<PrincipalKey> {
    let bytes = bytes
        .try_into()
        .map_err(|_| StoreError::Corrupt("the mark `principal-key` cannot be read".to_owned()))?;
    Ok(PrincipalKey::new(bytes))
}

fn cannot_be_copied() -> StoreError {
    StoreError::Refused("a ledger cannot be moved from or to this kind of store".to_owned())
}

/// What is stored under a key.
#[derive(Clone, Debug)]
pub enum Current {
    /// Nothing.
    Absent(AbsentAsOf),
    /// A record.
    Stored(Stored),
}

/// Proves up to which number of the log nothing was stored under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct AbsentAsOf(pub u64);

/// A stored record and where it lies.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The record.
    pub record: Arc<Record>,
    /// Where it lies in its store.
    pub place: Place,
    /// The payload of its outcome, where the store had it at hand when it read the record. What a look along a line found has
    /// none yet: there it is what the task's workers are given ([`Waiting::inputs`]).
    pub payload: Option<Arc<[u8]>>,
}

impl Stored {
    /// Makes what is stored at a place, without its payload.
    #[must_use]
    pub const fn new(record: Arc<Record>, place: Place) -> Self {
        Self {
            record,
            place,
            payload: None,
        }
    }
}

/// Where a record lies in its store: the number of its first log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u64);

impl Current {
    /// Returns the record, if there is one.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Absent(_) => None,
            Self::Stored(stored) => Some(&stored.record),
        }
    }
}

/// One accepted command and what it leads to.
#[derive(Debug)]
pub struct Change {
    /// The hash of namespace and key.
    pub key: KeyHash,
    /// What the change was decided on.
    pub expected: Expected,
    /// What the log is to remember.
    pub entry: Entry,
    /// The record from now on.
    pub next: Option<Arc<Record>>,
    /// The new payload, if the command brought one.
    pub payload: NewPayload,
    /// Another record that must not have changed: the parent that permits this child.
    pub guard: Option<Guard>,
    /// What the index of kin has to do, by the record that the change was decided on.
    pub kin: KinChange,
    /// What the lines of tasks have to do, likewise.
    pub line: LineChange,
    /// What the workers of its queue are given, where the command brought it: it is kept as the stream of
    /// [`INPUT`].
    pub input: Option<Arc<[u8]>>,
}

/// What a change was decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing was stored.
    Absent(AbsentAsOf),
    /// A record of this version.
    Version(Place, Version),
}

impl From<&Current> for Expected {
    fn from(current: &Current) -> Self {
        match current {
            Current::Absent(as_of) => Self::Absent(*as_of),
            Current::Stored(stored) => Self::Version(stored.place, stored.record.version()),
        }
    }
}

/// What must hold when a change is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A record is still at this version.
    Version {
        /// Where the record lies.
        place: Place,
        /// The version it must have.
        version: Version,
    },
    /// Workers have fewer tasks than they may.
    Bounds(Bounds),
}

/// What a change does to the operation's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewPayload {
    /// Leaves it as it is.
    Keep,
    /// Stores these bytes.
    Bytes {
        /// The bytes.
        bytes: Arc<[u8]>,
        /// Whether an earlier payload is to be erased; the streams of other attempts stay.
        replaces: bool,
    },
    /// Takes the stream that the attempt with this fence stored.
    Stream(Fence),
    /// Erases it; and every stream too when the record that follows is no living operation.
    Erase,
}

/// What became of a change.
#[derive(Debug)]
pub enum Commit {
    /// It is durable, and this is what is stored now.
    Done(Current),
    /// Something else is stored; nothing was written.
    Conflict(Current),
    /// What had to hold does not; nothing was written.
    GuardChanged,
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Which stream it belongs to (1 is stdout, 2 is stderr).
    pub stream: u8,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One accepted command in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Its number; numbers grow, in an embedded store without gaps.
    pub seq: u64,
    /// The operation's place; `None` when nothing was stored under the key.
    pub place: Option<Place>,
    /// The command and what it led to.
    pub entry: Entry,
}

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Only behind this wall.
    pub namespace: Option<Namespace>,
    /// Only in one of these states, as stored; empty means any.
    pub states: Vec<StateKind>,
    /// Only with this name.
    pub name: Option<String>,
    /// Only through this door.
    pub door: Option<String>,
    /// Only on this queue.
    pub queue: Option<String>,
    /// Only what its client calls exactly so, where a door scopes keys.
    pub client_key: Option<String>,
    /// Only keys that begin so, or clients' own keys that do.
    pub prefix: Option<String>,
    /// Only created at or after this time.
    pub since: Option<Timestamp>,
    /// Only created before this time.
    pub until: Option<Timestamp>,
    /// The oldest first, instead of the newest.
    pub oldest_first: bool,
    /// Only places beyond this one, in the chosen order: the end of the last page.
    pub cursor: Option<Place>,
    /// How many, at most [`PAGE_MAX`].
    pub limit: usize,
}

/// How far the sweeps over a store have come: every process goes on where the last one stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last running operation that was looked at; `None` when all were.
    pub running: Option<Place>,
    /// The pass of retention that is under way.
    pub retention: Option<Pass>,
}

/// One pass of retention over the settled operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Up to when retention may act.
    pub horizon: Timestamp,
    /// The last operation that was looked at.
    pub after: Option<Place>,
}

/// Some records, in the order asked for.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records.
    pub items: Vec<Stored>,
    /// Where the next page begins, if there may be one.
    pub next: Option<Place>,
}

impl Query {
    /// Says whether a record is asked for.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        let in_states = self.states.is_empty() || self.states.contains(&record.kind());
        match record {
            Record::Operation(operation) => {
                let spec = &operation.spec;
                let called = spec.client_key.as_ref().map(semel_core::Note::as_str);
                let is = |wanted: &Option<String>, found: Option<&str>| {
                    wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
                };
                in_states
                    && self.in_wall_and_prefix(&spec.namespace, &spec.key, called)
                    && is(&self.client_key, called)
                    && is(&self.name, Some(spec.name.as_str()))
                    && is(
                        &self.door,
                        spec.door.as_ref().map(semel_core::Label::as_str),
                    )
                    && is(
                        &self.queue,
                        operation.queue.as_ref().map(semel_core::Label::as_str),
                    )
                    && self.since.is_none_or(|since| operation.created_at >= since)
                    && self.until.is_none_or(|until| operation.created_at < until)
            }
            // A tombstone has only its key and its end left to be asked for; the key tells what its
            // client called it.
            Record::Tombstone(tombstone) => {
                let key = &tombstone.key;
                let is_called = |text: &String| identity::is_made_from(key, text);
                in_states
                    && self.in_wall_and_prefix(
                        &tombstone.namespace,
                        key,
                        identity::client_text(key),
                    )
                    && self.client_key.as_ref().is_none_or(is_called)
                    && (&self.name, &self.door, &self.queue) == (&None, &None, &None)
                    && self.since.is_none_or(|since| tombstone.settled_at >= since)
                    && self.until.is_none_or(|until| tombstone.settled_at < until)
            }
            // A breaker is no operation: only who asks for breakers gets it.
            Record::Breaker(breaker) => {
                self.states.contains(&record.kind())
                    && self
                        .namespace
                        .as_ref()
                        .is_none_or(|wall| *wall == breaker.namespace)
                    && (&self.door, &self.queue, &self.client_key, &self.prefix)
                        == (&None, &None, &None, &None)
                    && self
                        .name
                        .as_deref()
                        .is_none_or(|name| name == breaker.name.as_str())
                    && self.since.is_none_or(|since| breaker.created_at >= since)
                    && self.until.is_none_or(|until| breaker.created_at < until)
            }
            // A stub has forgotten even its key: it is no operation any more.
            Record::Stub(_) => self.states.contains(&StateKind::Stub),
        }
    }

    fn in_wall_and_prefix(&self, namespace: &Namespace, key: &Key, called: Option<&str>) -> bool {
        let begins = |prefix: &String| {
            let mut names = [Some(key.as_str()), called].into_iter().flatten();
            names.any(|name| name.starts_with(prefix.as_str()))
        };
        self.namespace.as_ref().is_none_or(|wall| wall == namespace)
            && self.prefix.as_ref().is_none_or(begins)
    }
}

/// Says why a store could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be used right now; nothing was written.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Nobody knows whether the change was written; reading again will tell.
    #[error("the store failed while committing, and whether it did is not known: {0}")]
    Unknown(String),
    /// The store holds something that it should not.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// The store is not one that this version may open, or not in this place.
    #[error("{0}")]
    Refused(String),
    /// The store may not be written as it is: a copy, closed, another format, or no longer the file that
    /// its path leads to. Nothing was written, and trying again does not help.
    #[error("{text}")]
    Unusable {
        /// What is wrong.
        text: String,
        /// What an operator can do about it.
        hint: &'static str,
    },
    /// The store does not know the caller.
    #[error("{0}")]
    Unauthorized(String),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// Something is larger than a store takes.
    #[error("{what} has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        size: usize,
        /// How large it may be.
        limit: usize,
    },
}

impl StoreError {
    /// Says which file it is about.
    fn about(self, path: &std::path::Path) -> Self {
        let named = |text: String| format!("{}: {text}", path.display());
        match self {
            Self::Unavailable(text) => Self::Unavailable(named(text)),
            Self::Unknown(text) => Self::Unknown(named(text)),
            Self::Corrupt(text) => Self::Corrupt(named(text)),
            Self::Refused(text) => Self::Refused(named(text)),
            Self::Unusable { text, hint } => Self::Unusable {
                text: named(text),
                hint,
            },
            other @ (Self::Unauthorized(_) | Self::Forbidden(_) | Self::TooLarge { .. }) => other,
        }
    }
}
