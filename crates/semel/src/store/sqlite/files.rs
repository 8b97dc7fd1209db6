//! Which files a store is: whether its path still leads to what this process has open, and whether the
//! database is the file that the store remembers.
//!
//! A file that was copied is a second ledger with the same keys: both would run them. So the store
//! remembers the inode and the birth time of its file. A copy has another inode or another birth time,
//! on file systems that keep both; a renamed file keeps them. The device number is never compared across
//! processes, as it changes with a reboot.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use super::lock::beside;
use crate::owned::{self, FileOwner};
use crate::store::{CopyPolicy, Result, StoreError};

/// Where a store lies, and to whom it belongs.
#[derive(Clone, Debug)]
pub(super) struct StorePlace {
    /// The path as it was given, made absolute: a link in it may be turned elsewhere.
    pub(super) given: PathBuf,
    /// The path without links.
    pub(super) path: PathBuf,
    pub(super) owner: FileOwner,
}

/// The files that SQLite makes beside the database.
const SQLITE_FILES: [&str; 2] = ["-wal", "-shm"];

/// The rollback journal. A store with a write-ahead log has none, but SQLite looks for one whenever it opens a database, and
/// writes the pages of one that it finds into the file: a user who plants one would choose what the ledger says.
const JOURNAL: &str = "-journal";

impl StorePlace {
    /// Refuses a store whose own file, log, shared memory or notes another user controls.
    pub(super) fn examine(&self) -> Result<()> {
        let examined = || {
            owned::examine(&self.path, self.owner)?;
            for suffix in SQLITE_FILES.into_iter().chain([JOURNAL]) {
                owned::examine(&beside(&self.path, suffix), self.owner)?;
            }
            owned::OwnedDirectory::open(&beside(&self.path, NOTES), self.owner).map(drop)
        };
        match examined() {
            Err(error) if owned::is_not_owned(&error) => Err(another_users(&error)),
            // What cannot be examined shows when it is opened.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns why the store can only be read, if an error of its lock files means that.
    pub(super) fn only_readable(&self, error: &io::Error) -> Option<StoreError> {
        let process = FileOwner::this_process().user();
        if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
            return Some(StoreError::Unusable {
                text: format!("the store can only be read: {error}"),
                hint: "make the file system writable (`mount -o remount,rw`), or name another store with \
                       --store",
            });
        }
        let is_another_users = process != self.owner.user() && !owned::is_not_owned(error);
        (is_another_users && error.kind() == io::ErrorKind::PermissionDenied).then(|| {
            StoreError::Unusable {
                text: format!(
                    "the store belongs to user {}, and user {process} can only read it: {error}",
                    self.owner.user()
                ),
                hint: "run the command as the store's owner, or name another store with --store",
            }
        })
    }

    /// Says whether SQLite would have to make its files, and cannot make them for the owner.
    pub(super) fn refuse_to_make_files(&self) -> io::Result<()> {
        let is_there = |suffix| beside(&self.path, suffix).symlink_metadata().is_ok();
        if self.owner.is_makeable() || SQLITE_FILES.into_iter().all(is_there) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("its log must be made by user {}", self.owner.user()),
        ))
    }
}

/// What the name of the notes' directory adds to the store's.
pub(super) const NOTES: &str = "-notes";

/// Says that another user controls a file of the store.
pub(super) fn another_users(error: &io::Error) -> StoreError {
    StoreError::Unusable {
        text: error.to_string(),
        hint: "run the command in the message, or use a store in a directory that only you can write",
    }
}

/// What tells an open file from another one, while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
        }
    }
}

/// The files that this process has open, by the paths that must lead to them.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: Vec<(PathBuf, FileId)>,
    /// Why this process may not write any more. It stays so: what it has seen since is another ledger.
    lost: OnceLock<StoreError>,
}

impl OpenFiles {
    /// Remembers the files of a store, once SQLite has them open.
    pub(super) fn note(place: &StorePlace) -> Result<Self> {
        let mut files = vec![];
        for suffix in ["", "-wal", "-shm"] {
            let path = beside(&place.path, suffix);
            let examined = owned::examine(&path, place.owner).map_err(|error| {
                if owned::is_not_owned(&error) {
                    another_users(&error)
                } else {
                    unexamined(&path, &error)
                }
            })?;
            let Some(found) = examined else {
                return Err(StoreError::Unavailable(format!(
                    "{} was removed while the store was opened",
                    path.display()
                )));
            };
            let path = if suffix.is_empty() {
                place.given.clone()
            } else {
                path
            };
            files.push((path, FileId::of(&found)));
        }
        Ok(Self {
            files,
            lost: OnceLock::new(),
        })
    }

    /// Refuses to go on when a path leads elsewhere by now: what is written then is in a file that no
    /// other process opens. It costs three `stat` calls.
    ///
    /// The files are not opened for it: closing a second handle would drop SQLite's locks.
    pub(super) fn check(&self) -> Result<()> {
        self.refuse_if_lost()?;
        for (path, open) in &self.files {
            match std::fs::metadata(path) {
                Ok(found) if FileId::of(&found) == *open => {}
                Ok(_) => {
                    let text = format!("another file is at {} now", path.display());
                    return Err(self.lose(&text));
                }
                Err(error) if is_gone(&error) => {
                    let text = format!("{} was moved or removed", path.display());
                    return Err(self.lose(&text));
                }
                Err(error) => return Err(unexamined(path, &error)),
            }
        }
        Ok(())
    }

    /// Refuses to go on in a process that has given the store up.
    pub(super) fn refuse_if_lost(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |lost| Err(lost.clone()))
    }

    /// Gives the store up for this process, and returns what every write is told from now on.
    pub(super) fn lose(&self, why: &str) -> StoreError {
        let lost = self.lost.get_or_init(|| StoreError::Unusable {
            text: format!(
                "{why}, so this process has files open that no other process writes to: nothing is begun \
                 or settled here any more"
            ),
            hint: "restart this process: it then opens the store that is there",
        });
        lost.clone()
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn unexamined(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{} cannot be examined: {error}", path.display()))
}

/// What tells a file from its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    inode: u64,
    /// When it was made, after 1970.
    born: Duration,
}

/// Whether a copied file can be told from the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyCheck {
    /// By this.
    On(FileIdentity),
    /// Not at all, for this reason.
    Off(String),
}

/// What the store remembers of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileMark {
    identity: FileIdentity,
    /// Where it was.
    pub(super) path: String,
}

impl CopyCheck {
    pub(super) fn of(path: &Path, policy: CopyPolicy) -> Result<Self> {
        if policy == CopyPolicy::Ignore {
            return Ok(Self::Off("store.copied = \"ignore\"".to_owned()));
        }
        let examine = || {
            if let Err(name) = file_system(path)? {
                return Ok(Self::Off(format!(
                    "{name} does not keep inode and birth time of files"
                )));
            }
            let found = std::fs::metadata(path)?;
            let born = found.created().ok();
            let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
            Ok(match born {
                Some(born) => Self::On(FileIdentity {
                    inode: found.ino(),
                    born,
                }),
                None => Self::Off("the system does not tell when files were made".to_owned()),
            })
        };
        examine().map_err(|error: io::Error| unexamined(path, &error))
    }

    /// Makes what a store in this file has to remember; `None` where nothing is compared.
    pub(super) fn mark(&self, path: &Path) -> Option<FileMark> {
        match self {
            Self::On(identity) => Some(FileMark {
                identity: *identity,
                path: path.display().to_string(),
            }),
            Self::Off(_) => None,
        }
    }

    /// Says whether a store that remembers this lies in another file now.
    pub(super) fn is_copy_of(&self, remembered: &FileMark) -> bool {
        match self {
            Self::On(identity) => *identity != remembered.identity,
            Self::Off(_) => false,
        }
    }
}

impl FileMark {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let FileIdentity { inode, born } = self.identity;
        let (seconds, nanoseconds) = (born.as_secs(), born.subsec_nanos());
        format!("{inode} {seconds} {nanoseconds} {}", self.path).into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let read = || {
            let mut words = std::str::from_utf8(bytes).ok()?.splitn(4, ' ');
            let inode = words.next()?.parse().ok()?;
            let seconds = words.next()?.parse().ok()?;
            let nanoseconds: u32 = words.next()?.parse().ok()?;
            let born = Duration::from_secs(seconds)
                .checked_add(Duration::from_nanos(nanoseconds.into()))?;
            Some(Self {
                identity: FileIdentity { inode, born },
                path: words.next()?.to_owned(),
            })
        };
        read().ok_or_else(|| {
            StoreError::Corrupt("the mark that tells the store's file cannot be read".to_owned())
        })
    }
}

/// Returns whether the file system keeps inode and birth time of a file as long as the file lives, or the
/// name of one that is not known to.
#[cfg(target_os = "linux")]
fn file_system(path: &Path) -> io::Result<std::result::Result<(), String>> {
    #[expect(
        clippy::cast_sign_loss,
        reason = "the kernel's magic numbers are 32 bits"
    )]
    let magic = (rustix::fs::statfs(path)?.f_type as u64) & 0xffff_ffff;
    Ok(known_file_system(magic))
}

#[cfg(target_os = "linux")]
fn known_file_system(magic: u64) -> std::result::Result<(), String> {
    match magic {
        // ext2, ext3 and ext4; XFS; Btrfs; F2FS; ZFS; tmpfs.
        0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 | 0x2fc1_2fc1 | 0x0102_1994 => Ok(()),
        0x794c_7630 => Err("overlayfs".to_owned()),
        0x6573_5546 => Err("a FUSE file system".to_owned()),
        other => Err(format!("the file system of type {other:#x}")),
    }
}

#[cfg(target_os = "macos")]
fn file_system(path: &Path) -> io::Result<std::result::Result<(), String>> {
    let found = rustix::fs::statfs(path)?;
    let name = found.f_fstypename.iter().take_while(|byte| **byte != 0);
    let name: String = name.map(|byte| char::from(byte.cast_unsigned())).collect();
    Ok(if name == "apfs" { Ok(()) } else { Err(name) })
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn file_system(_: &Path) -> io::Result<std::result::Result<(), String>> {
    Ok(Err("this system".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(inode: u64, nanoseconds: u64) -> FileIdentity {
        FileIdentity {
            inode,
            born: Duration::from_nanos(nanoseconds),
        }
    }

    #[test]
    fn mark_is_read_as_it_was_written() {
        let mark = FileMark {
            identity: identity(u64::MAX, 7_000_000_001),
            path: "/a b/c d.db".to_owned(),
        };
        assert_eq!(FileMark::from_bytes(&mark.to_bytes()), Ok(mark));
        for wrong in ["", "1", "1 2", "1 2 3", "a 2 3 /x", "1 2 4294967296 /x"] {
            assert!(FileMark::from_bytes(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn another_inode_or_birth_time_is_a_copy_and_another_path_is_not() {
        let here = CopyCheck::On(identity(1, 2));
        let mark = |inode, born| FileMark {
            identity: identity(inode, born),
            path: "/elsewhere".to_owned(),
        };
        assert!(!here.is_copy_of(&mark(1, 2)));
        assert!(here.is_copy_of(&mark(2, 2)) && here.is_copy_of(&mark(1, 3)));
        assert!(!CopyCheck::Off(String::new()).is_copy_of(&mark(3, 3)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_file_systems_that_keep_both_are_compared() {
        for kept in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0xf2f5_2010,
            0x2fc1_2fc1,
            0x0102_1994,
        ] {
            assert_eq!(known_file_system(kept), Ok(()), "{kept:#x}");
        }
        // overlayfs, FUSE, NFS, vfat.
        for other in [0x794c_7630, 0x6573_5546, 0x6969, 0x4d44] {
            assert!(known_file_system(other).is_err(), "{other:#x}");
        }
    }
}
