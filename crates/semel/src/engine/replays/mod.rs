//! How often an answer was given again, and what that saved.
//!
//! A replay writes nothing to the ledger, so it is counted beside it, in a small [file]: added up in memory, and
//! put there now and then without a sync. A crash may lose some counts, never an answer.

mod file;
mod sums;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use semel_core::VerdictKind;
use semel_core::ledger::{AttemptKind, Operation, Record};
use tokio::sync::Notify;

use self::sums::Sums;
pub use self::sums::{Replayed, Saved, Saver};
use super::{Engine, Inner};
use crate::owned::OwnedDirectory;
use crate::store::{Store, make_notes, open_notes};

/// How long the counts of a process that lives on gather before they are put into the file: soon enough for whoever
/// looks what was just saved.
const GATHERING: Duration = Duration::from_secs(1);

/// Puts the counts into the file whenever there are some, until the engine is gone. While there are none, nothing wakes it.
pub(super) async fn run(inner: Weak<Inner>, counted: Arc<Notify>) {
    loop {
        counted.notified().await;
        tokio::time::sleep(GATHERING).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.replays.keep(&*inner.ledger.store);
    }
}

/// What was counted here.
#[derive(Debug, Default)]
pub(super) struct Replays {
    counted: Mutex<Counted>,
    /// Something was counted.
    pub(super) news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Since the last time that it was put into the file.
    waiting: Sums,
    /// Since the process began.
    all: Sums,
}

impl Replays {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, by: &Saver, saved: &Saved) {
        let mut counted = self.counted();
        counted.waiting.add(by, saved);
        counted.all.add(by, saved);
        drop(counted);
        self.news.notify_one();
    }

    /// Puts the counts into the file; what cannot be put there is counted again the next time.
    pub(super) fn keep(&self, store: &dyn Store) {
        self.keep_in(|| make_notes(store));
    }

    fn keep_in(&self, open: impl FnOnce() -> io::Result<OwnedDirectory>) {
        let waiting = std::mem::take(&mut self.counted().waiting);
        if waiting.is_empty() {
            return;
        }
        let kept = open().and_then(|directory| file::add(&directory, &waiting));
        if kept.is_err() {
            self.counted().waiting.add_all(&waiting);
        }
    }
}

impl Engine {
    /// Returns what was saved by answers of this store that were given again on this machine, as far as known.
    #[must_use]
    pub fn replayed(&self) -> Replayed {
        let store = &*self.inner.ledger.store;
        if store.notes().is_none() {
            return self.replayed_here();
        }
        self.inner.replays.keep(store);
        match open_notes(store) {
            Ok(Some(directory)) => file::read(&directory).into(),
            Ok(None) | Err(_) => Replayed::default(),
        }
    }

    /// Returns what was saved by answers that this process gave again.
    #[must_use]
    pub fn replayed_here(&self) -> Replayed {
        self.inner.replays.counted().all.clone().into()
    }

    /// Counts an answer that was given again by a door that counts itself.
    pub(crate) fn count_saved(&self, by: &Saver, saved: &Saved) {
        self.inner.replays.add(by, saved);
    }
}

/// Returns how long the attempt took whose answer stands. Where somebody looked it up or decided it, nobody knows.
pub(crate) fn took(record: &Record) -> Duration {
    let attempts = record.operation().map(|it: &Operation| it.attempts.iter());
    let mut done = attempts.into_iter().flatten().rev().filter(|attempt| {
        attempt.kind == AttemptKind::Act && attempt.verdict == Some(VerdictKind::Done)
    });
    let took = done
        .next()
        .and_then(|attempt| Some(attempt.ended_at?.since(attempt.started_at)));
    took.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use semel_core::Label;

    use super::*;
    use crate::owned::FileOwner;

    fn notes(path: &Path) -> io::Result<OwnedDirectory> {
        OwnedDirectory::make(path, FileOwner::this_process())
    }

    fn run() -> Saver {
        Saver::new(Label::new("run").expect("a word"), None)
    }

    fn once(millis: u64) -> Saved {
        Saved::call(Duration::from_millis(millis), None)
    }

    #[test]
    fn counts_of_several_processes_add_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notes");
        for _ in 0..3 {
            let replays = Replays::default();
            replays.add(&run(), &once(2));
            replays.add(&run(), &once(3));
            replays.keep_in(|| notes(&path));
            replays.keep_in(|| notes(&path));
        }
        let read = Replayed::from(file::read(&notes(&path).expect("it opens")));
        assert_eq!((read.all.calls, read.all.time.as_millis()), (6, 15));
    }

    #[test]
    fn what_cannot_be_kept_is_kept_later() {
        let directory = tempfile::tempdir().expect("a directory");
        let replays = Replays::default();
        replays.add(&run(), &once(1));
        replays.keep_in(|| notes(Path::new("/proc/nowhere")));
        replays.keep_in(|| notes(directory.path()));
        let read = Replayed::from(file::read(&notes(directory.path()).expect("it opens")));
        assert_eq!(read.all.calls, 1);
    }
}
