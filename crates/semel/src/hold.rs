//! Holds: locks that a child process inherits, so that its life is seen even when the process that
//! started it is gone.
//!
//! A hold is a locked file beside the store, one per attempt. It is taken after the claim and before
//! the child is started; the child inherits the open file, and with it the lock. There is no moment
//! at which the child runs and the lock is free. As the lock belongs to the file, it is seen from
//! another container that shares the directory, too.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::io::FdFlags;
use semel_core::ledger::{Fence, Holder};
use semel_core::{KeyHash, Label};

use crate::owned::OwnedDirectory;

/// A lock on an attempt that lasts as long as anybody has it open.
#[derive(Debug)]
pub struct Hold {
    file: File,
    directory: OwnedDirectory,
    name: String,
}

impl Hold {
    pub(crate) fn take(directory: OwnedDirectory, key: &KeyHash, fence: Fence) -> io::Result<Self> {
        let name = name(key, fence);
        // A store that was here before may have left one of the same name: it is used if it is ours.
        let file = directory.open_file(&name)?;
        lock(&file)?;
        file.set_len(0)?;
        Ok(Self {
            file,
            directory,
            name,
        })
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
            let named = (&self.file)
                .seek(io::SeekFrom::End(0))
                .and_then(|_| (&self.file).write_all(line(&holder).as_bytes()));
            drop(named);
        }
        Ok(child)
    }

    /// Takes the file away once the attempt has been reported.
    ///
    /// # Errors
    /// Fails when the file cannot be removed.
    pub fn release(self) -> io::Result<()> {
        self.directory.remove(&self.name)
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
pub(crate) fn is_alive(directory: &OwnedDirectory, key: &KeyHash, fence: Fence) -> bool {
    is_held(directory, &name(key, fence))
}

/// Says whether the child of an attempt may be alive: its lock is held, its process is not provably
/// gone, or this user may not look.
pub(crate) fn may_be_alive(directory: &OwnedDirectory, key: &KeyHash, fence: Fence) -> bool {
    match look(directory, &name(key, fence)) {
        Look::Absent => false,
        Look::Forbidden | Look::Locked => true,
        Look::Free(children) => children.iter().any(crate::holder::may_live_here),
    }
}

/// Returns the newest attempt of an operation whose child is provably alive.
#[cfg(feature = "remote")]
pub(crate) fn newest_alive(directory: &OwnedDirectory, key: &KeyHash) -> Option<Fence> {
    let prefix = format!("{}-", key.0);
    let fence = |name: &str| -> Option<Fence> {
        let number = name.strip_prefix(&prefix)?.strip_suffix(".hold")?;
        number.parse().ok().map(Fence)
    };
    let names = directory.names(usize::MAX, |name| fence(name).is_some());
    let held = names.iter().filter(|name| is_held(directory, name));
    held.filter_map(|name| fence(name)).max()
}

/// Holds that nobody has held for this long are taken away: their processes were killed.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The most files that one tidying looks at.
const TIDY_MAX: usize = 1_000;

/// Takes away what killed processes have left: a free hold says no more than none.
pub(crate) fn tidy(directory: &OwnedDirectory, now: SystemTime) {
    for name in directory.names(TIDY_MAX, |name| name.ends_with(".hold")) {
        let left = directory
            .read_file(&name)
            .and_then(|file| file.metadata()?.modified());
        let old = left.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > LEFT_AFTER));
        if old && !is_held(directory, &name) {
            // Another process may be tidying, too.
            drop(directory.remove(&name));
        }
    }
}

/// What can be seen of a hold.
enum Look {
    Absent,
    Forbidden,
    Locked,
    /// Nothing has the lock; these children were started with it and may have closed it.
    Free(Vec<Holder>),
}

fn look(directory: &OwnedDirectory, name: &str) -> Look {
    let file = match directory.read_file(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Look::Absent,
        Err(_) => return Look::Forbidden,
    };
    if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return Look::Locked;
    }
    let mut text = String::new();
    match file.take(BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => Look::Free(text.lines().filter_map(parse).collect()),
        Err(_) => Look::Forbidden,
    }
}

fn is_held(directory: &OwnedDirectory, name: &str) -> bool {
    match look(directory, name) {
        Look::Absent | Look::Forbidden => false,
        Look::Locked => true,
        Look::Free(children) => children.iter().any(crate::holder::is_alive),
    }
}

/// The most that is read of a hold: a line for each child of its attempt.
const BYTES_MAX: u64 = 64 * 1024;

fn name(key: &KeyHash, fence: Fence) -> String {
    format!("{}-{}.hold", key.0, fence.0)
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

    use std::path::Path;

    use crate::owned::FileOwner;

    fn open(directory: &tempfile::TempDir) -> OwnedDirectory {
        let owner = FileOwner::this_process();
        OwnedDirectory::make(directory.path(), owner).expect("it is ours")
    }

    fn path(directory: &Path, key: &KeyHash, fence: Fence) -> std::path::PathBuf {
        directory.join(name(key, fence))
    }

    fn key() -> KeyHash {
        KeyHash(semel_core::Digest::of(b"key"))
    }

    #[test]
    fn a_hold_is_seen_while_it_is_open_and_not_after() {
        let _alone = alone();
        let directory = tempfile::tempdir().expect("a directory");
        let look = |fence| is_alive(&open(&directory), &key(), Fence(fence));
        assert!(!look(1), "nobody has ever held it");
        let hold = Hold::take(open(&directory), &key(), Fence(1)).expect("it is free");
        assert!(look(1) && look(1), "looking does not take it");
        assert!(!look(2), "another attempt is another hold");
        drop(hold);
        assert!(!look(1), "the file stays, the lock does not");
    }

    #[test]
    fn a_child_keeps_the_hold_after_its_parent_let_go() {
        let _alone = alone();
        let directory = tempfile::tempdir().expect("a directory");
        let look = || is_alive(&open(&directory), &key(), Fence(1));
        let hold = Hold::take(open(&directory), &key(), Fence(1)).expect("it is free");
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
        let look = || is_alive(&open(&directory), &key(), Fence(1));
        let hold = Hold::take(open(&directory), &key(), Fence(1)).expect("it is free");
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
        let take = |fence| Hold::take(open(&directory), &key(), Fence(fence)).expect("it is free");
        let left = || {
            std::fs::read_dir(directory.path())
                .expect("it lists")
                .count()
        };
        let held = take(1);
        drop(take(2));
        std::fs::write(directory.path().join("a.note"), "").expect("it can be written");
        tidy(&open(&directory), SystemTime::now());
        assert_eq!(left(), 3, "nothing is old");
        tidy(&open(&directory), SystemTime::now() + 2 * LEFT_AFTER);
        assert_eq!(left(), 2, "the one that nobody holds is gone");
        drop(held);
        tidy(&open(&directory), SystemTime::now() + 2 * LEFT_AFTER);
        assert_eq!(left(), 1);
    }

    #[test]
    fn link_in_the_place_of_a_hold_is_refused_and_its_target_stays() {
        let _alone = alone();
        let directory = tempfile::tempdir().expect("a directory");
        let precious = directory.path().join("precious");
        std::fs::write(&precious, "data").expect("it is written");
        let planted = path(directory.path(), &key(), Fence(1));
        std::os::unix::fs::symlink(&precious, planted).expect("a link is made");
        let taken = Hold::take(open(&directory), &key(), Fence(1));
        assert!(crate::owned::is_not_owned(
            &taken.expect_err("links are not followed")
        ));
        assert_eq!(std::fs::read(&precious).expect("it is there"), b"data");
        assert!(!is_alive(&open(&directory), &key(), Fence(1)));
    }

    fn cat() -> Command {
        let mut cat = Command::new("cat");
        cat.stdin(std::process::Stdio::piped());
        cat
    }
}
