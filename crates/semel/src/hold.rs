//! Holds: locks that a child process inherits, so that its life is seen even when the process that
//! started it is gone.
//!
//! A hold is a locked file beside the store, one per attempt. It is taken after the claim and before
//! the child is started; the child inherits the open file, and with it the lock. There is no moment
//! at which the child runs and the lock is free. As the lock belongs to the file, it is seen from
//! another container that shares the directory, too.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::io::FdFlags;
use semel_core::ledger::{Fence, Holder};
use semel_core::{KeyHash, Label};

/// A lock on an attempt that lasts as long as anybody has it open.
#[derive(Debug)]
pub struct Hold {
    file: File,
    path: PathBuf,
}

impl Hold {
    pub(crate) fn take(directory: &Path, key: &KeyHash, fence: Fence) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let path = path(directory, key, fence);
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?;
        lock(&file)?;
        // A store that was here before may have left one of the same name.
        file.set_len(0)?;
        Ok(Self { file, path })
    }

    /// Starts a child that inherits the lock, and names it in the file for the case that it closes
    /// what it inherited.
    ///
    /// # Errors
    /// Fails when the child cannot be started: then there is none.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let file = self.file.as_fd();
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::fcntl_setfd(file, FdFlags::empty())?;
        let child = command.spawn();
        // Children of other attempts must not keep this one alive. It cannot fail: it just worked.
        rustix::io::fcntl_setfd(file, FdFlags::CLOEXEC)?;
        drop(one);
        let child = child?;
        if let Some(holder) = crate::holder::process(child.id()) {
            // The lock alone tells as much, unless the child closes it: the name is a second proof.
            drop((&self.file).write_all(line(&holder).as_bytes()));
        }
        Ok(child)
    }

    /// Takes the file away once the attempt has been reported.
    ///
    /// # Errors
    /// Fails when the file cannot be removed.
    pub fn release(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

/// Whoever looks has the lock for a moment; whoever has it for longer than all these pauses holds it.
const LOCK_PAUSES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

fn lock(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_PAUSES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    let text = "a process of an earlier store still holds this attempt";
    Err(io::Error::new(io::ErrorKind::WouldBlock, text))
}

/// What is open to inherit is inherited by every child that is started meanwhile.
static ONE: Mutex<()> = Mutex::new(());

/// Says whether the child of an attempt is provably alive.
pub(crate) fn is_alive(directory: &Path, key: &KeyHash, fence: Fence) -> bool {
    is_held(&path(directory, key, fence))
}

/// Returns the newest attempt of an operation whose child is provably alive.
#[cfg(feature = "remote")]
pub(crate) fn newest_alive(directory: &Path, key: &KeyHash) -> Option<Fence> {
    let prefix = format!("{}-", key.0);
    let fence = |path: &Path| -> Option<Fence> {
        let name = path.file_name()?.to_str()?;
        let number = name.strip_prefix(&prefix)?.strip_suffix(".hold")?;
        number.parse().ok().map(Fence)
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let held = paths.filter_map(|path| fence(&path).filter(|_| is_held(&path)));
    held.max()
}

/// Holds that nobody has held for this long are taken away: their processes were killed.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The most files that one tidying looks at.
const TIDY_MAX: usize = 1_000;

/// Takes away what killed processes have left: a free hold says no more than none.
pub(crate) fn tidy(directory: &Path, now: SystemTime) {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    for entry in entries.filter_map(Result::ok).take(TIDY_MAX) {
        let path = entry.path();
        let is_hold = path.extension().is_some_and(|end| end == "hold");
        let left = entry.metadata().and_then(|file| file.modified());
        let old = left.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > LEFT_AFTER));
        if is_hold && old && !is_held(&path) {
            // Somebody else may be tidying, too.
            drop(std::fs::remove_file(&path));
        }
    }
}

fn is_held(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else {
        return false;
    };
    if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return true;
    }
    let mut text = String::new();
    let read = file.read_to_string(&mut text).is_ok();
    read && text
        .lines()
        .filter_map(parse)
        .any(|child| crate::holder::is_alive(&child))
}

fn path(directory: &Path, key: &KeyHash, fence: Fence) -> PathBuf {
    directory.join(format!("{}-{}.hold", key.0, fence.0))
}

fn line(child: &Holder) -> String {
    let Holder {
        host,
        pid,
        boot,
        pid_namespace,
        started,
    } = child;
    format!("{pid} {started} {pid_namespace} {boot} {host}\n")
}

fn parse(line: &str) -> Option<Holder> {
    let mut words = line.splitn(5, ' ');
    Some(Holder {
        pid: words.next()?.parse().ok()?,
        started: words.next()?.parse().ok()?,
        pid_namespace: words.next()?.parse().ok()?,
        boot: words.next()?.parse().ok()?,
        host: Label::new(words.next()?).ok()?,
    })
}

/// A process that is being started has everything open for a moment that this one has: tests that
/// look at locks must not run beside those that start processes.
#[cfg(test)]
pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> KeyHash {
        KeyHash(semel_core::Digest::of(b"key"))
    }

    #[test]
    fn a_hold_is_seen_while_it_is_open_and_not_after() {
        let _alone = alone();
        let directory = tempfile::tempdir().expect("a directory");
        let look = |fence| is_alive(directory.path(), &key(), Fence(fence));
        assert!(!look(1), "nobody has ever held it");
        let hold = Hold::take(directory.path(), &key(), Fence(1)).expect("it is free");
        assert!(look(1) && look(1), "looking does not take it");
        assert!(!look(2), "another attempt is another hold");
        drop(hold);
        assert!(!look(1), "the file stays, the lock does not");
    }

    #[test]
    fn a_child_keeps_the_hold_after_its_parent_let_go() {
        let _alone = alone();
        let directory = tempfile::tempdir().expect("a directory");
        let look = || is_alive(directory.path(), &key(), Fence(1));
        let hold = Hold::take(directory.path(), &key(), Fence(1)).expect("it is free");
        let mut child = hold.spawn(&mut cat()).expect("cat runs");
        std::fs::write(path(directory.path(), &key(), Fence(1)), "").expect("it can be emptied");
        drop(hold);
        assert!(look(), "the child has it");
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(!look(), "the child is gone");
    }

    #[test]
    fn a_child_that_closes_what_it_inherited_is_known_by_its_number() {
        let _alone = alone();
        let directory = tempfile::tempdir().expect("a directory");
        let look = || is_alive(directory.path(), &key(), Fence(1));
        let hold = Hold::take(directory.path(), &key(), Fence(1)).expect("it is free");
        let one = ONE.lock().expect("nobody panics with it");
        let mut child = cat().spawn().expect("cat runs");
        drop(one);
        let named = line(&crate::holder::process(child.id()).expect("it is there"));
        (&hold.file)
            .write_all(named.as_bytes())
            .expect("it can be named");
        drop(hold);
        assert!(look(), "it was never given the lock, but it is there");
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(!look(), "the child is gone");
    }

    #[test]
    fn what_killed_processes_have_left_goes_after_a_day() {
        let _alone = alone();
        let directory = tempfile::tempdir().expect("a directory");
        let take = |fence| Hold::take(directory.path(), &key(), Fence(fence)).expect("it is free");
        let left = || {
            std::fs::read_dir(directory.path())
                .expect("it lists")
                .count()
        };
        let held = take(1);
        drop(take(2));
        std::fs::write(directory.path().join("a.note"), "").expect("it can be written");
        tidy(directory.path(), SystemTime::now());
        assert_eq!(left(), 3, "nothing is old");
        tidy(directory.path(), SystemTime::now() + 2 * LEFT_AFTER);
        assert_eq!(left(), 2, "the one that nobody holds is gone");
        drop(held);
        tidy(directory.path(), SystemTime::now() + 2 * LEFT_AFTER);
        assert_eq!(left(), 1);
    }

    fn cat() -> Command {
        let mut cat = Command::new("cat");
        cat.stdin(std::process::Stdio::piped());
        cat
    }
}
