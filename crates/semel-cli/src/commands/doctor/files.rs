//! What a doctor looks at on the disk.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use semel::Engine;
use semel::store::sqlite::{CopyCheck, SqliteStore};

use super::{Check, Grade};

/// Less free space than this is soon used up by a busy ledger.
const FREE_WARN: u64 = 1 << 30;

/// Less free space than this may not take the next checkpoint of the write-ahead log.
const FREE_BAD: u64 = 64 << 20;

/// Looks whether anybody else can read the ledger.
pub(super) fn permissions(path: &Path) -> Check {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let mut open = vec![];
    let mut files = vec![path.to_path_buf()];
    let ends = ["-wal", "-shm", "-journal", "-turn", "-queue", "-notes"];
    files.extend(ends.map(|end| beside(path, end)));
    for (path, wanted) in files
        .iter()
        .map(|path| (path.as_path(), if path.is_dir() { 0o700 } else { 0o600 }))
        .chain([(directory, 0o700)])
    {
        // What is not there is open to nobody.
        let Ok(found) = std::fs::metadata(path) else {
            continue;
        };
        let mode = found.permissions().mode() & 0o777;
        if mode & !wanted != 0 {
            open.push((path.to_path_buf(), mode, wanted));
        }
    }
    let Some((path, mode, wanted)) = open.first() else {
        return Check::new(
            "permissions",
            Grade::Ok,
            "only the owner can read the store",
        );
    };
    let text = format!("{} has mode {mode:04o}", path.display());
    // A directory that others may list shows only that there is a ledger. Volumes are often open to a group.
    let is_minor = |(path, mode, _): &(PathBuf, u32, u32)| path == directory || mode & 0o007 == 0;
    let grade = if open.iter().all(is_minor) {
        Grade::Warn
    } else {
        Grade::Bad
    };
    Check::new("permissions", grade, text).hint(format!("chmod {wanted:04o} {}", path.display()))
}

/// Says whether a copy of the store's file would be noticed.
pub(super) fn copies(store: &SqliteStore) -> Check {
    match store.copy_check() {
        CopyCheck::On(_) => Check::new(
            "copies",
            Grade::Ok,
            "a copy of the file would be noticed (inode and birth time)",
        ),
        CopyCheck::Off(why) => {
            let text = format!("a copy of the file would not be noticed: {why}");
            Check::new("copies", Grade::Warn, text)
                .hint("copy the store with `semel backup`, never with `cp`")
        }
    }
}

/// Looks how much room is left.
pub(super) fn disk(path: &Path) -> Check {
    let found = match rustix::fs::statvfs(path) {
        Ok(found) => found,
        Err(error) => return Check::new("disk", Grade::Warn, format!("unknown: {error}")),
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let text = format!("{} MiB free", free >> 20);
    match free {
        0..FREE_BAD => Check::new("disk", Grade::Bad, text),
        FREE_BAD..FREE_WARN => Check::new("disk", Grade::Warn, text),
        FREE_WARN.. => return Check::new("disk", Grade::Ok, text),
    }
    .hint("make room: an outcome that cannot be stored is a doubt")
}

/// Looks for outcomes that wait beside the store; opening it has just delivered all that could be.
pub(super) fn notes(engine: &Engine) -> Check {
    let directory = engine.store().notes();
    if let Some(refused) = directory.as_deref().and_then(|path| refused(engine, path)) {
        return refused;
    }
    let waiting = directory.as_deref().map_or(0, count);
    match (waiting, directory) {
        (0, _) | (_, None) => Check::new("notes", Grade::Ok, "none waiting"),
        (waiting, Some(directory)) => Check::new(
            "notes",
            Grade::Warn,
            format!("{waiting} could not be delivered"),
        )
        .hint(format!(
            "they are in {}: outcomes that the ledger could not take, or files that are no report of an attempt",
            directory.display()
        )),
    }
}

/// Finds fault with a directory of notes that another user controls: nothing in it is delivered.
fn refused(engine: &Engine, path: &Path) -> Option<Check> {
    let found = path.symlink_metadata().ok()?;
    let owner = engine.store().notes_owner().user();
    let mode = found.permissions().mode() & 0o7777;
    let hint = if !found.is_dir() {
        format!("remove {}: it is a link or a file", path.display())
    } else if found.uid() != owner {
        format!("chown {owner} {}", path.display())
    } else if mode & 0o002 != 0 {
        format!("chmod 0700 {}", path.display())
    } else {
        return None;
    };
    let text = format!(
        "{} (user {}, mode {mode:04o}) is another user's, or open to all; nothing in it is delivered",
        path.display(),
        found.uid()
    );
    Some(Check::new("notes", Grade::Bad, text).hint(hint))
}

fn count(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "note"))
        .count()
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}
