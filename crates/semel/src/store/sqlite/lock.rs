//! A fair lock between the processes that share one file.
//!
//! SQLite's own back-off starves whoever sleeps; a single blocking lock lets the one that just
//! let go take it again. So there are two: whoever wants to write first takes the *queue* lock,
//! waits with it for the *turn* lock, and lets the queue go when its turn has come. The one who
//! just had its turn must queue again behind whoever already waits for it.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::owned::{self, FileOwner};

/// The longest that anybody waits for a turn. Turns take milliseconds, so that even a crowd of
/// processes on a slow disk gets through in this time; whoever has one for longer was stopped.
pub(super) const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// What the name of the turn file adds to the store's.
pub(super) const TURN: &str = "-turn";

/// Where in the turn file the number of the last committed log entry stands, after the mark.
const COMMITTED_AT: u64 = 16;

/// The two lock files of a store, opened by this process.
#[derive(Debug)]
pub(super) struct Turnstile {
    queue: File,
    turn: File,
    held: bool,
}

impl Turnstile {
    pub(super) fn open(store: &Path, owner: FileOwner) -> io::Result<Self> {
        Ok(Self {
            queue: owned::open(&beside(store, "-queue"), owner)?,
            turn: owned::open(&beside(store, TURN), owner)?,
            held: false,
        })
    }

    /// Leaves this process's mark in the turn file; returns whether it was there already.
    ///
    /// Only the one whose turn it is may do so, and must before it commits.
    pub(super) fn mark(&self, mark: &[u8; 16]) -> io::Result<bool> {
        use std::os::unix::fs::FileExt as _;
        let mut found = [0; 16];
        if self.turn.read_at(&mut found, 0)? == found.len() && found == *mark {
            return Ok(true);
        }
        self.turn.write_all_at(mark, 0)?;
        Ok(false)
    }

    /// Notes up to which number the log is committed, so that a log that was cut is noticed.
    ///
    /// Only the one whose turn it is may do so, and only after the commit: then this number is
    /// never ahead of what is durable, although it is not synced itself.
    pub(super) fn note_committed(&self, seq: u64) -> io::Result<()> {
        use std::os::unix::fs::FileExt as _;
        let mut note = [0; 16];
        note[..8].copy_from_slice(&seq.to_le_bytes());
        note[8..].copy_from_slice(&(!seq).to_le_bytes());
        self.turn.write_all_at(&note, COMMITTED_AT)
    }

    /// Returns up to which number the log was committed; `None` when nobody noted it.
    pub(super) fn committed(&self) -> io::Result<Option<u64>> {
        use std::os::unix::fs::FileExt as _;
        let (mut seq, mut check) = ([0; 8], [0; 8]);
        let read = self.turn.read_at(&mut seq, COMMITTED_AT)?
            + self.turn.read_at(&mut check, COMMITTED_AT + 8)?;
        let (seq, check) = (u64::from_le_bytes(seq), u64::from_le_bytes(check));
        Ok((read == 16 && seq == !check).then_some(seq))
    }

    /// Waits for this process's turn; does nothing when it has come already.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        if self.held {
            return Ok(());
        }
        lock(&self.queue)?;
        let turn = lock(&self.turn);
        self.queue.unlock()?;
        turn?;
        self.held = true;
        Ok(())
    }

    /// Waits for this process's turn for at most [`LOCK_WAIT_MAX`]; `None` when it has not come.
    pub(super) fn enter_in_time(mut self) -> io::Result<Option<Self>> {
        if self.try_enter()? {
            return Ok(Some(self));
        }
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("semel-open".to_owned());
        thread.spawn(move || {
            let entered = self.enter().map(|()| self);
            // If nobody listens any more, the turn is given up with the files.
            drop(sender.send(entered));
        })?;
        match receiver.recv_timeout(LOCK_WAIT_MAX) {
            Ok(entered) => entered.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Takes the turn if nobody else has or wants it.
    pub(super) fn try_enter(&mut self) -> io::Result<bool> {
        if self.held {
            return Ok(true);
        }
        if !try_lock(&self.queue)? {
            return Ok(false);
        }
        let turn = try_lock(&self.turn);
        self.queue.unlock()?;
        self.held = turn?;
        Ok(self.held)
    }

    pub(super) fn leave(&mut self) -> io::Result<()> {
        if self.held {
            self.turn.unlock()?;
            self.held = false;
        }
        Ok(())
    }
}

/// Returns the path of a file that belongs to a store.
pub(super) fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn lock(file: &File) -> io::Result<()> {
    loop {
        match file.lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
