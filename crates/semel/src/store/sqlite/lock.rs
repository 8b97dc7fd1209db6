//! A fair lock between the processes that share one file.
//!
//! SQLite's own back-off starves whoever sleeps; a single blocking lock lets the one that just
//! let go take it again. So there are two: whoever wants to write first takes the *queue* lock,
//! waits with it for the *turn* lock, and lets the queue go when its turn has come. The one who
//! just had its turn must queue again behind whoever already waits for it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// What the name of the turn file adds to the store's.
pub(super) const TURN: &str = "-turn";

/// The two lock files of a store, opened by this process.
#[derive(Debug)]
pub(super) struct Turnstile {
    queue: File,
    turn: File,
    held: bool,
}

impl Turnstile {
    pub(super) fn open(store: &Path) -> io::Result<Self> {
        Ok(Self {
            queue: open(&beside(store, "-queue"))?,
            turn: open(&beside(store, TURN))?,
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

fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path)
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
