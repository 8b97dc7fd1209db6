//! The one way to open a connection, shared by every process and thread.

use std::ffi::c_int;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::files::StorePlace;
use super::lock::beside;
use super::{failed, schema};
use crate::owned::{self, FileOwner};
use crate::store::{Result, StoreError};

/// The oldest SQLite whose write-ahead log several processes may reset safely (3.51.3).
const SQLITE_MIN: c_int = 3_051_003;

/// How long a connection waits for SQLite's own locks. They are held for moments only, as writers
/// queue elsewhere; but opening, recovery and checkpoints take them too.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// The pages after which the writer itself writes the log back. Most are in the file by then (see
/// `checkpoint.rs`). Measured: more does not make groups faster, and a short log is overwritten in
/// place, which syncs faster than one that grows.
const CHECKPOINT_PAGES: i64 = 3_000;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Write,
    Read,
    /// Writing the log back, and nothing else.
    WriteBack,
    /// The caller's own.
    Outside,
}

impl Role {
    /// The most that the connection's page cache takes, in KiB. Measured: a large one makes groups
    /// slower, as SQLite walks it when a page was split, and replays faster.
    const fn cache_kib(self) -> i64 {
        match self {
            Self::Write => 8 * 1024,
            Self::Read => 32 * 1024,
            Self::WriteBack => 256,
            // What SQLite has without being asked.
            Self::Outside => 2_000,
        }
    }
}

const STATEMENTS: usize = 64;

/// Makes what a store needs on disk: its directory and its file, readable by the owner only.
pub(super) fn prepare(path: &Path) -> Result<StorePlace> {
    if rusqlite::version_number() < SQLITE_MIN {
        return Err(StoreError::Refused(format!(
            "SQLite {} may corrupt a store that several processes share; 3.51.3 or newer is needed",
            rusqlite::version()
        )));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    owned::make_directories(directory)
        .map_err(|error| unusable("the store's directory", directory, "cannot be made", &error))?;
    refuse_network(directory)?;
    // Made before SQLite sees it, so that nobody else can ever read it. An existing file is not
    // touched here: closing a second handle would drop the locks that SQLite holds on it.
    match owned::make(path, FileOwner::this_process()) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(unusable("the store", path, "cannot be made", &error)),
    }
    // One spelling per file: two spellings in one process would be two stores.
    let file = path
        .canonicalize()
        .map_err(|error| unusable("the store", path, "cannot be found", &error))?;
    // A link may lead to another disk than the one it lies on.
    refuse_network(&file)?;
    refuse_foreign(&file).map_err(|error| error.about(&file))?;
    let examine = |error| unusable("the store", path, "cannot be examined", &error);
    let owner = FileOwner::of(&std::fs::metadata(&file).map_err(examine)?);
    let place = StorePlace {
        given: std::path::absolute(path).map_err(examine)?,
        path: file,
        owner,
    };
    place.examine()?;
    Ok(place)
}

/// Refuses a file that is somebody else's before anything is put beside it.
///
/// Only the file itself is read, without locks and without its log: what it says for certain is
/// believed, and everything else is looked at again when it is the store's turn.
fn refuse_foreign(file: &Path) -> Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Some(uri) = immutable_uri(file) else {
        return Ok(());
    };
    match Connection::open_with_flags(uri, flags).map(|looker| schema::check(&looker)) {
        Ok(Err(refused @ (StoreError::Refused(_) | StoreError::Unusable { .. }))) => Err(refused),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// How the file is read where nothing can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadAccess {
    /// With its write-ahead log, whose index SQLite reads or builds in memory.
    WithLog,
    /// The file alone, as it has no log.
    Alone,
}

impl ReadAccess {
    /// Looks how the file can be read.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let length = |suffix| std::fs::metadata(beside(path, suffix)).map(|file| file.len());
        match (length("-wal"), length("-shm")) {
            (Ok(_), Ok(_)) => Ok(Self::WithLog),
            (Err(_) | Ok(0), _) => Ok(Self::Alone),
            (Ok(_), Err(_)) => Err(StoreError::Unusable {
                text: "it cannot be written here, and its newest entries are in a write-ahead log that \
                       cannot be read without writing"
                    .to_owned(),
                hint: "copy its files (with -wal and -turn) to a place that can be written, and read it there",
            }),
        }
    }
}

/// Opens a connection that only reads, where the file or its directory cannot be written.
pub(super) fn connect_to_read(path: &Path, access: ReadAccess) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = match (access, immutable_uri(path)) {
        (ReadAccess::WithLog, _) => Connection::open_with_flags(path, flags),
        (ReadAccess::Alone, Some(uri)) => {
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
        }
        (ReadAccess::Alone, None) => Connection::open_with_flags(path, flags),
    };
    let connection = opened.map_err(|error| failed("open the store", &error))?;
    connection
        .busy_timeout(BUSY_WAIT)
        .map_err(|error| failed("configure the store", &error))?;
    let format = schema::check(&connection)?;
    if format < schema::FORMAT {
        return Err(StoreError::Unusable {
            text: format!(
                "the store has format {format}, and cannot be brought to format {} where it cannot be written",
                schema::FORMAT
            ),
            hint: "open it once where it can be written, or use the version of Semel that made it",
        });
    }
    configure_to_read(&connection).map_err(|error| failed("configure the store", &error))?;
    Ok(connection)
}

fn configure_to_read(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -Role::Read.cache_kib())?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// Names a file so that SQLite takes it for one that nobody changes; `None` when it has no such name.
fn immutable_uri(file: &Path) -> Option<String> {
    let mut uri = "file:".to_owned();
    for character in file.to_str()?.chars() {
        match character {
            '%' => uri.push_str("%25"),
            '?' => uri.push_str("%3f"),
            '#' => uri.push_str("%23"),
            other => uri.push(other),
        }
    }
    uri.push_str("?immutable=1");
    Some(uri)
}

fn unusable(what: &str, path: &Path, how: &str, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{what} {} {how}: {error}", path.display()))
}

/// Refuses file systems whose locks or shared memory do not reach every process.
fn refuse_network(place: &Path) -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        let found = rustix::fs::statfs(place)
            .map_err(|error| unusable("the store", place, "cannot be examined", &error.into()))?;
        #[expect(
            clippy::cast_sign_loss,
            reason = "the kernel's magic numbers are 32 bits"
        )]
        let magic = (found.f_type as u64) & 0xffff_ffff;
        let name = match network_file_system(magic) {
            Some(name) => Some(name),
            None if magic == FUSE => fuse_of(place)
                .map_err(|error| unusable("the store", place, "cannot be examined", &error))?,
            None => None,
        };
        if let Some(name) = name {
            return Err(StoreError::Refused(format!(
                "{} is on {name}, a network file system, where several processes cannot share a \
                 store safely; use a local disk or PostgreSQL",
                place.display()
            )));
        }
    }
    Ok(())
}

/// Names a network file system by the number that the kernel gives it.
#[cfg(target_os = "linux")]
const fn network_file_system(magic: u64) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB2"),
        0x517b => Some("SMB"),
        0x0102_1997 => Some("9P"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x00c3_6400 => Some("Ceph"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        _ => None,
    }
}

/// The number that the kernel gives every file system of a program of its own.
#[cfg(target_os = "linux")]
const FUSE: u64 = 0x6573_5546;

/// File systems of programs that keep their files elsewhere. Others of the kind, such as `fuseblk`,
/// keep them on a local disk.
#[cfg(target_os = "linux")]
const FUSE_NETWORK: &[&str] = &[
    "fuse.sshfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.goofys",
    "fuse.gcsfuse",
    "fuse.blobfuse",
    "fuse.blobfuse2",
    "fuse.mountpoint-s3",
    "fuse.juicefs",
    "fuse.seaweedfs",
    "fuse.glusterfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.mfs",
    "fuse.lizardfs",
    "fuse.quobyte",
    "fuse.curlftpfs",
    "fuse.davfs",
    "fuse.smbnetfs",
    "fuse.google-drive-ocamlfuse",
];

/// Names the network file system of a program that a file lies on, if it does.
#[cfg(target_os = "linux")]
fn fuse_of(place: &Path) -> io::Result<Option<&'static str>> {
    use std::os::unix::fs::MetadataExt as _;
    let device = std::fs::metadata(place)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(fuse_network(&mounts, &format!("{major}:{minor}")))
}

/// Looks a device up among the mounts: its number is the third field, and its type stands after a
/// single dash.
#[cfg(target_os = "linux")]
fn fuse_network(mounts: &str, device: &str) -> Option<&'static str> {
    let mount = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(device))?;
    let (_, described) = mount.split_once(" - ")?;
    let kind = described.split(' ').next()?;
    FUSE_NETWORK.iter().copied().find(|known| *known == kind)
}

/// Opens a connection with the settings that every connection must have.
pub(super) fn connect(path: &Path, role: Role) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .map_err(|error| failed("open the store", &error))?;
    connection
        .busy_timeout(BUSY_WAIT)
        .map_err(|error| failed("configure the store", &error))?;
    // Looked at before anything is changed: the file may be somebody else's.
    schema::check(&connection)?;
    configure(&connection, role).map_err(|error| failed("configure the store", &error))?;
    if connection
        .is_readonly(rusqlite::MAIN_DB)
        .map_err(|error| failed("examine the store", &error))?
    {
        return Err(StoreError::Unavailable("the file is read-only".to_owned()));
    }
    Ok(connection)
}

fn configure(connection: &Connection, role: Role) -> rusqlite::Result<()> {
    write_ahead(connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    #[cfg(target_os = "macos")]
    {
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    }
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -role.cache_kib())?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    // A short-lived process must not pay for writing the log back when it ends.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Without this, binding a value prepares a statement anew to see whether another plan suits it.
    let is_ours = role != Role::Outside;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, is_ours)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// Writes the log back into the file, as far as that can be done now.
pub(super) fn write_back(connection: &Connection, how: &str) {
    let written = connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(()));
    // What was not written back is left to the next checkpoint.
    drop(written);
}

/// Switches to the write-ahead log; two processes that start together may refuse each other.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    let deadline = Instant::now() + BUSY_WAIT;
    loop {
        let switched = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match switched {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(1))
            }
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers_and_local_ones_are_not() {
        for magic in [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x517b, 0x0102_1997] {
            assert!(network_file_system(magic).is_some(), "{magic:#x}");
        }
        assert_eq!(network_file_system(FUSE), None, "its kind tells");
        // ext4, XFS, Btrfs, tmpfs, ZFS, overlayfs.
        for magic in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x0102_1994,
            0x2fc1_2fc1,
            0x794c_7630,
        ] {
            assert_eq!(network_file_system(magic), None, "{magic:#x}");
        }
    }

    #[test]
    fn file_systems_of_programs_are_known_by_their_kind() {
        let mounts = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
90 22 0:44 / /mnt/far rw,nosuid shared:7 - fuse.sshfs ann@far:/home rw,user_id=0
91 22 0:45 / /mnt/with\\040space rw - fuseblk /dev/sdb1 rw
92 22 0:46 / /mnt/bindfs rw master:3 - fuse.bindfs /srv rw
93 22 0:47 / /mnt/bucket rw - fuse.rclone remote:bucket rw
";
        assert_eq!(fuse_network(mounts, "0:44"), Some("fuse.sshfs"));
        assert_eq!(fuse_network(mounts, "0:47"), Some("fuse.rclone"));
        for local in ["254:0", "0:45", "0:46", "0:4", "9:9"] {
            assert_eq!(fuse_network(mounts, local), None, "{local}");
        }
    }

    #[test]
    fn a_file_keeps_its_name_in_a_uri() {
        let uri = immutable_uri(Path::new("/a b/50%?#.db"));
        let expected = "file:/a b/50%25%3f%23.db?immutable=1";
        assert_eq!(uri.as_deref(), Some(expected));
    }
}
