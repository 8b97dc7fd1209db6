//! Writes the log back into the file beside the work, so that no group has to wait for it.
//!
//! A checkpoint that the writer makes holds everybody up for milliseconds. One that runs beside it
//! cannot finish while groups go on being appended, but it leaves little: the writer's own, later,
//! writes back the rest and begins the log anew. Nothing depends on it: without the thread, or when
//! another process writes back at the same time, the writer's own does all of it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::open;

/// The frames after which the log is written back beside the work. Measured: fewer sync the file
/// too often, and more leave too much to the writer.
const FRAMES: i64 = 1_000;

/// A thread that writes back when it is told to; it starts when it is first needed.
#[derive(Debug)]
pub(super) struct Checkpoints {
    path: PathBuf,
    thread: Option<Thread>,
    /// How long the log was when the thread was last told.
    told_at: i64,
}

#[derive(Debug)]
struct Thread {
    wake: SyncSender<()>,
    handle: JoinHandle<()>,
}

impl Checkpoints {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            thread: None,
            told_at: 0,
        }
    }

    /// Looks how long the log has become; to be called after a commit, by the writer.
    pub(super) fn look(&mut self, writer: &Connection) {
        // Why it cannot be told shows with the next group, or does not matter.
        let Ok(frames) = frames(writer) else {
            return;
        };
        if frames < self.told_at {
            // The log has begun anew.
            self.told_at = 0;
        }
        if frames - self.told_at >= FRAMES {
            self.told_at = frames;
            self.tell();
        }
    }

    fn tell(&mut self) {
        if self.thread.is_none() {
            self.thread = start(&self.path).ok();
        }
        if let Some(thread) = &self.thread {
            // One that is at work already, or has ended, needs no word.
            let _told = thread.wake.try_send(());
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Some(Thread { wake, handle }) = self.thread.take() {
            drop(wake);
            // A panic there has cost nothing but the checkpoint.
            let _panicked = handle.join();
        }
    }
}

/// Returns how many frames the log has, without doing anything.
fn frames(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("PRAGMA wal_checkpoint(NOOP)")?
        .query_row([], |row| row.get(1))
}

fn start(path: &Path) -> std::io::Result<Thread> {
    // One word may wait while the thread is at work.
    let (wake, woken) = sync_channel(1);
    let path = path.to_owned();
    let handle = std::thread::Builder::new()
        .name("semel-checkpoint".to_owned())
        .spawn(move || run(&path, &woken))?;
    Ok(Thread { wake, handle })
}

fn run(path: &Path, woken: &Receiver<()>) {
    let Ok(connection) = open::connect(path, open::Role::WriteBack) else {
        return;
    };
    while woken.recv().is_ok() {
        // What was not written back is left to the next one, or to the writer.
        let _left = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::schema;

    /// Makes a store whose log has this many frames and more, as nothing else writes it back.
    fn with_log(directory: &tempfile::TempDir, wanted: i64) -> (PathBuf, Connection) {
        let path = directory.path().join("store");
        std::fs::write(&path, []).expect("an empty file is made");
        let mut writer = open::connect(&path, open::Role::Write).expect("it opens");
        schema::migrate(&mut writer, None).expect("the tables are made");
        writer
            .pragma_update(None, "wal_autocheckpoint", 0)
            .expect("the writer leaves it to others");
        while frames(&writer).expect("it is told") < wanted {
            let filled = writer.execute(
                "INSERT INTO payloads (live, body) VALUES (1, zeroblob(100000))",
                [],
            );
            filled.expect("it is written");
        }
        (path, writer)
    }

    fn written_back(connection: &Connection) -> i64 {
        connection
            .query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(2))
            .expect("it is told")
    }

    #[test]
    fn a_long_log_is_written_back_and_the_thread_ends_with_its_owner() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (path, writer) = with_log(&directory, FRAMES);
        let mut checkpoints = Checkpoints::new(&path);
        checkpoints.look(&writer);
        assert!(checkpoints.thread.is_some(), "it was needed");
        // Dropping it waits until the thread has done what it was told, and has ended.
        drop(checkpoints);
        assert!(written_back(&writer) >= FRAMES);
    }

    #[test]
    fn a_short_log_starts_no_thread() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (path, writer) = with_log(&directory, FRAMES / 2);
        let mut checkpoints = Checkpoints::new(&path);
        checkpoints.look(&writer);
        assert!(checkpoints.thread.is_none());
    }

    #[test]
    fn a_thread_that_cannot_work_harms_nobody() {
        let directory = tempfile::tempdir().expect("a directory is made");
        let (_, writer) = with_log(&directory, FRAMES);
        let mut checkpoints = Checkpoints::new(&directory.path().join("elsewhere"));
        for _ in 0..3 {
            checkpoints.told_at = 0;
            checkpoints.look(&writer);
        }
        drop(checkpoints);
        assert_eq!(written_back(&writer), 0);
    }
}
