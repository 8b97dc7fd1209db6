//! How often an answer was given again, and how much work that saved.
//!
//! A replay writes nothing to the ledger, so it is counted beside it, in a small file: added up in
//! memory, and put there now and then without a sync. A crash may lose some counts, never an answer.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Engine;
use crate::receipt::Receipt;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// How many answers were given again.
    pub count: u64,
    /// How long the attempts took whose answers were given again.
    pub saved: Duration,
}

/// Counts since the last time they were put into the file.
#[derive(Debug, Default)]
pub(super) struct Replays {
    count: AtomicU64,
    micros: AtomicU64,
}

impl Replays {
    pub(super) fn add(&self, receipt: &Receipt) {
        let took = match (receipt.started_at, receipt.settled_at) {
            (Some(started), Some(settled)) => settled.since(started),
            (Some(_) | None, _) => Duration::ZERO,
        };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Puts the counts into the file; what cannot be put there is counted again the next time.
    pub(super) fn keep(&self, directory: Option<PathBuf>) {
        let count = self.count.swap(0, Ordering::Relaxed);
        let micros = self.micros.swap(0, Ordering::Relaxed);
        if count == 0 {
            return;
        }
        let kept = directory.is_some_and(|directory| add(&directory, count, micros).is_ok());
        if !kept {
            self.count.fetch_add(count, Ordering::Relaxed);
            self.micros.fetch_add(micros, Ordering::Relaxed);
        }
    }
}

impl Engine {
    /// Returns how often answers of this store were given again on this machine, as far as known.
    #[must_use]
    pub fn replayed(&self) -> Replayed {
        let directory = self.inner.ledger.store.notes();
        self.inner.replays.keep(directory.clone());
        let read = directory.and_then(|directory| {
            let mut file = File::open(file(&directory)).ok()?;
            file.lock_shared().ok()?;
            read(&mut file).ok()
        });
        let (count, micros) = read.unwrap_or_default();
        Replayed {
            count,
            saved: Duration::from_micros(micros),
        }
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("replays")
}

fn add(directory: &Path, count: u64, micros: u64) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(file(directory))?;
    file.lock()?;
    let before = read(&mut file).unwrap_or_default();
    file.rewind()?;
    let after = [
        before.0.saturating_add(count).to_le_bytes(),
        before.1.saturating_add(micros).to_le_bytes(),
    ];
    file.write_all(&after.concat())
}

fn read(file: &mut File) -> io::Result<(u64, u64)> {
    let mut number = || {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes)?;
        io::Result::Ok(u64::from_le_bytes(bytes))
    };
    Ok((number()?, number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_processes_add_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notes");
        for _ in 0..3 {
            let replays = Replays::default();
            replays.count.store(2, Ordering::Relaxed);
            replays.micros.store(5, Ordering::Relaxed);
            replays.keep(Some(path.clone()));
            replays.keep(Some(path.clone()));
        }
        let mut file = File::open(file(&path)).expect("it was made");
        assert_eq!(read(&mut file).expect("it is whole"), (6, 15));
    }

    #[test]
    fn what_cannot_be_kept_is_kept_later() {
        let directory = tempfile::tempdir().expect("a directory");
        let replays = Replays::default();
        replays.count.store(1, Ordering::Relaxed);
        replays.keep(Some(PathBuf::from("/proc/nowhere")));
        replays.keep(Some(directory.path().to_path_buf()));
        let mut file = File::open(file(directory.path())).expect("it was made");
        assert_eq!(read(&mut file).expect("it is whole"), (1, 0));
    }
}
