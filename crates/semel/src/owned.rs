//! Files beside a store: they belong to the owner of the store, and no other user may write them.
//!
//! A store may lie in a folder that other users can write to. There, another user can make a file or a
//! link before Semel does. So these files are opened without following links, made only where there is
//! none (`O_EXCL`), and refused where their owner or their mode says that another user controls them.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

/// The user and group that files belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    uid: u32,
    gid: u32,
}

/// A file or directory that another user controls.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotOwned(String);

/// The permission bit that lets every user write.
const OTHERS_WRITE: u32 = 0o002;

/// How often a file is looked for again that other processes make and remove at the same time.
const ATTEMPTS: usize = 16;

impl FileOwner {
    /// Returns the user and group of this process.
    #[must_use]
    pub fn this_process() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// Returns the owner of a file.
    #[must_use]
    pub fn of(file: &Metadata) -> Self {
        Self {
            uid: file.uid(),
            gid: file.gid(),
        }
    }

    /// Returns the number of the user.
    #[must_use]
    pub const fn user(self) -> u32 {
        self.uid
    }

    /// Says whether this process can make files that belong to this owner: root can give them away.
    pub(crate) fn is_makeable(self) -> bool {
        let process = rustix::process::geteuid();
        process.is_root() || process.as_raw() == self.uid
    }

    fn differs_from_process(self) -> bool {
        rustix::process::geteuid().as_raw() != self.uid
    }
}

/// Says whether an error means that another user controls a file.
pub(crate) fn is_not_owned(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NotOwned>())
}

fn not_owned(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, NotOwned(text))
}

/// Opens a file for reading and writing, and makes it where there is none.
pub(crate) fn open(path: &Path, owner: FileOwner) -> io::Result<File> {
    open_at(CWD, path, path, owner)
}

/// Opens a file for reading.
pub(crate) fn open_to_read(path: &Path, owner: FileOwner) -> io::Result<File> {
    existing_at(CWD, path, path, owner, OFlags::RDONLY)
}

/// Makes a new file with mode 0600, whatever the umask is, that belongs to this owner.
pub(crate) fn make(path: &Path, owner: FileOwner) -> io::Result<File> {
    make_at(CWD, path, path, owner, OFlags::RDWR)
}

/// Examines a file without opening it; returns `None` when there is none.
///
/// SQLite's own files are examined so: closing a second handle would drop SQLite's locks.
pub(crate) fn examine(path: &Path, owner: FileOwner) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Ok(found) => {
            examine_file(path, &found, owner)?;
            Ok(Some(found))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_at(
    directory: impl std::os::fd::AsFd,
    name: &Path,
    shown: &Path,
    owner: FileOwner,
) -> io::Result<File> {
    // Another process may make or remove the file between the two calls.
    for _ in 0..ATTEMPTS {
        match existing_at(directory.as_fd(), name, shown, owner, OFlags::RDWR) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match make_at(directory.as_fd(), name, shown, owner, OFlags::RDWR) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
    Err(io::Error::other(format!(
        "{} appears and disappears",
        shown.display()
    )))
}

fn existing_at(
    directory: impl std::os::fd::AsFd,
    name: &Path,
    shown: &Path,
    owner: FileOwner,
    access: OFlags,
) -> io::Result<File> {
    // Without NONBLOCK a named pipe in the file's place would block the open.
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => {
            return Err(not_owned(format!(
                "{} is a symbolic link, which is not followed; remove it, or name the file itself",
                shown.display()
            )));
        }
        Err(error) => {
            // A file that may not be opened is usually another user's, and the message has to say so.
            if let (Errno::ACCESS, Ok(found)) = (error, shown.symlink_metadata()) {
                examine_file(shown, &found, owner)?;
            }
            return Err(error.into());
        }
    };
    examine_file(shown, &file.metadata()?, owner)?;
    Ok(file)
}

fn make_at(
    directory: impl std::os::fd::AsFd,
    name: &Path,
    shown: &Path,
    owner: FileOwner,
    access: OFlags,
) -> io::Result<File> {
    refuse_to_make_for_another(shown, owner)?;
    let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    let file = File::from(file);
    // The umask has taken bits away from the mode that was asked for.
    file.set_permissions(Permissions::from_mode(0o600))?;
    if owner.differs_from_process() {
        fchown(&file, Some(owner.uid), Some(owner.gid))?;
    }
    Ok(file)
}

fn refuse_to_make_for_another(shown: &Path, owner: FileOwner) -> io::Result<()> {
    if owner.is_makeable() {
        return Ok(());
    }
    let (process, owner) = (FileOwner::this_process().uid, owner.uid);
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{} is missing, and must be made by user {owner}, who owns the store; this process is \
             user {process}",
            shown.display()
        ),
    ))
}

fn examine_file(shown: &Path, found: &Metadata, owner: FileOwner) -> io::Result<()> {
    let path = shown.display();
    if found.file_type().is_symlink() {
        return Err(not_owned(format!(
            "{path} is a symbolic link, which is not followed; remove it, or name the file itself"
        )));
    }
    if !found.is_file() {
        return Err(not_owned(format!(
            "{path} is not a regular file; remove it"
        )));
    }
    if found.nlink() > 1 {
        return Err(not_owned(format!(
            "{path} has {} names (hard links), so another path leads to it, too; remove the others",
            found.nlink()
        )));
    }
    examine_owner(shown, found, owner, 0o600)
}

fn examine_owner(shown: &Path, found: &Metadata, owner: FileOwner, wanted: u32) -> io::Result<()> {
    let (path, mode) = (shown.display(), found.mode() & 0o7777);
    if found.uid() != owner.uid {
        let (uid, owner) = (found.uid(), owner.uid);
        return Err(not_owned(format!(
            "{path} (mode {mode:04o}) belongs to user {uid}, and the store to user {owner}; remove it, or \
             `chown {owner} {path}` if its content is yours"
        )));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(not_owned(format!(
            "{path} (owner {}) has mode {mode:04o}: every user may write it; `chmod {wanted:o} {path}`",
            found.uid()
        )));
    }
    Ok(())
}

/// Makes a directory with mode 0700, whatever the umask is, and those above it that are missing.
pub(crate) fn make_directories(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(parent)?;
    }
    match make_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    rustix::fs::mkdir(path, Mode::RWXU)?;
    // The umask has taken bits away from the mode that was asked for.
    std::fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// A directory of small files beside a store. Its files are reached through its handle: replacing the
/// directory does not redirect them.
#[derive(Debug)]
pub(crate) struct OwnedDirectory {
    handle: OwnedFd,
    path: PathBuf,
    owner: FileOwner,
}

impl OwnedDirectory {
    /// Opens the directory, and makes it where there is none.
    pub(crate) fn make(path: &Path, owner: FileOwner) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            if let Some(opened) = Self::open(path, owner)? {
                return Ok(opened);
            }
            refuse_to_make_for_another(path, owner)?;
            if let Some(parent) = path.parent() {
                make_directories(parent)?;
            }
            match make_directory(path) {
                Ok(()) if owner.differs_from_process() => {
                    lchown(path, Some(owner.uid), Some(owner.gid))?;
                }
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Err(io::Error::other(format!(
            "{} appears and disappears",
            path.display()
        )))
    }

    /// Opens the directory; returns `None` when there is none.
    pub(crate) fn open(path: &Path, owner: FileOwner) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(not_owned(format!(
                    "{} is not a directory, or a symbolic link to one, which is not followed; remove it",
                    path.display()
                )));
            }
            Err(error) => return Err(error.into()),
        };
        let handle = File::from(handle);
        examine_owner(path, &handle.metadata()?, owner, 0o700)?;
        Ok(Some(Self {
            handle: handle.into(),
            path: path.to_owned(),
            owner,
        }))
    }

    /// Opens a file for reading and writing, and makes it where there is none.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        open_at(
            self.handle.as_fd(),
            Path::new(name),
            &self.path.join(name),
            self.owner,
        )
    }

    /// Opens a file for reading.
    pub(crate) fn read_file(&self, name: &str) -> io::Result<File> {
        let shown = self.path.join(name);
        let name = Path::new(name);
        existing_at(
            self.handle.as_fd(),
            name,
            &shown,
            self.owner,
            OFlags::RDONLY,
        )
    }

    /// Makes a new file.
    pub(crate) fn make_file(&self, name: &str) -> io::Result<File> {
        let shown = self.path.join(name);
        let name = Path::new(name);
        make_at(self.handle.as_fd(), name, &shown, self.owner, OFlags::RDWR)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// Gives a file another name, in the place of a file that has it.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
    }

    /// Waits until the names of its files are on disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.handle)?)
    }

    /// Lists the names of its files that pass a test, at most this many.
    pub(crate) fn names(&self, limit: usize, test: impl Fn(&str) -> bool) -> Vec<String> {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.handle) else {
            return vec![];
        };
        let names =
            entries.filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()));
        names.filter(|name| test(name)).take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().expect("it is there").mode() & 0o7777
    }

    /// Another user's number, which no file of a test has.
    fn another() -> FileOwner {
        let process = FileOwner::this_process();
        FileOwner {
            uid: process.uid + 1,
            gid: process.gid,
        }
    }

    #[test]
    fn link_is_not_followed_and_its_target_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let precious = directory.path().join("precious");
        std::fs::write(&precious, "data").expect("it is written");
        let owner = FileOwner::this_process();
        for target in [precious.clone(), directory.path().join("nothing")] {
            let link = directory.path().join("link");
            symlink(&target, &link).expect("a link is made");
            let opened = open(&link, owner).expect_err("links are not followed");
            assert!(is_not_owned(&opened), "{opened}");
            let opened = open_to_read(&link, owner).expect_err("links are not followed");
            assert!(is_not_owned(&opened), "{opened}");
            let examined = examine(&link, owner).expect_err("it is a link");
            assert!(is_not_owned(&examined), "{examined}");
            make(&link, owner).expect_err("the name is taken");
            std::fs::remove_file(link).expect("it is removed");
        }
        assert_eq!(std::fs::read(precious).expect("it is there"), b"data");
        assert!(!directory.path().join("nothing").exists());
    }

    #[test]
    fn file_of_another_owner_mode_or_kind_is_refused_with_a_command_that_helps() {
        let directory = tempfile::tempdir().expect("a directory");
        let owner = FileOwner::this_process();
        let file = directory.path().join("file");
        drop(open(&file, owner).expect("it is made"));
        let refused = |words: &str, owner: FileOwner| {
            let errors = [
                open(&file, owner).expect_err(words),
                open_to_read(&file, owner).expect_err(words),
                examine(&file, owner).expect_err(words),
            ];
            for error in errors {
                let text = error.to_string();
                assert!(
                    is_not_owned(&error) && text.contains(words),
                    "{words}: {text}"
                );
            }
        };
        refused("chown", another());
        std::fs::set_permissions(&file, Permissions::from_mode(0o602)).expect("it is ours");
        refused("chmod 600", owner);
        std::fs::set_permissions(&file, Permissions::from_mode(0o660)).expect("it is ours");
        open(&file, owner).expect("a group may write: volumes have such modes");
        std::fs::hard_link(&file, directory.path().join("second")).expect("a link is made");
        refused("hard links", owner);
        std::fs::remove_file(&file).expect("it is removed");
        rustix::fs::mknodat(CWD, &file, rustix::fs::FileType::Fifo, Mode::RWXU, 0)
            .expect("a named pipe is made");
        refused("not a regular file", owner);
    }

    #[test]
    fn directory_that_is_a_link_or_writable_by_all_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let owner = FileOwner::this_process();
        let notes = directory.path().join("a/b/notes");
        drop(OwnedDirectory::make(&notes, owner).expect("it is made"));
        for made in [
            &notes,
            &directory.path().join("a/b"),
            &directory.path().join("a"),
        ] {
            assert_eq!(mode(made), 0o700);
        }
        let link = directory.path().join("link");
        symlink(&notes, &link).expect("a link is made");
        assert!(is_not_owned(
            &OwnedDirectory::make(&link, owner).expect_err("it is a link")
        ));
        assert!(is_not_owned(
            &OwnedDirectory::open(&notes, another()).expect_err("it is ours")
        ));
        std::fs::set_permissions(&notes, Permissions::from_mode(0o703)).expect("it is ours");
        let error = OwnedDirectory::open(&notes, owner).expect_err("all users may write it");
        assert!(error.to_string().contains("chmod 700"), "{error}");
    }
}
