//! Copies of a store, and why they may not be written at once.
//!
//! A copy knows nothing of what the original does afterwards: a key that was begun there is absent
//! here. So a copy is marked, and only read until it is adopted.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::Backup;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::lock::beside;
use super::open::ReadAccess;
use super::{failed, marks, open, unique};
use crate::owned::{self, FileOwner};
use crate::store::{Result, StoreError};

/// Writes a consistent copy of the whole store into a new file.
pub(super) fn write(store: &Path, access: Option<ReadAccess>, to: &Path) -> Result<()> {
    if to.symlink_metadata().is_ok() {
        return Err(exists(to));
    }
    let partial = Partial::new(to)?;
    copy(store, access, &partial.0)?;
    publish(&partial.0, to)
}

/// A copy that is not whole yet; removed unless it got its name.
struct Partial(PathBuf);

impl Partial {
    fn new(to: &Path) -> Result<Self> {
        let number = u128::from_le_bytes(unique()?);
        let path = beside(to, &format!(".{number:032x}"));
        // Made before SQLite sees it, so that nobody else can ever read it.
        owned::make(&path, FileOwner::this_process()).map_err(|error| unwritten(to, &error))?;
        Ok(Self(path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        for file in [self.0.clone(), beside(&self.0, "-journal")] {
            // It has its name by now, or there was nothing to remove.
            let _gone = std::fs::remove_file(file);
        }
    }
}

/// Copies everything as of one moment, while others go on, and marks the copy.
fn copy(store: &Path, access: Option<ReadAccess>, partial: &Path) -> Result<()> {
    let source = match access {
        Some(access) => open::connect_to_read(store, access)?,
        None => open::connect(store, open::Role::Read)?,
    };
    let doing = |error: rusqlite::Error| failed("copy the store", &error);
    let mut copy = Connection::open(partial).map_err(doing)?;
    // In one step: a copy in several would begin anew whenever somebody writes.
    Backup::new(&source, &mut copy)
        .and_then(|backup| backup.step(-1))
        .map_err(doing)?;
    // A copy is one file, without a log beside it.
    copy.pragma_update_and_check(None, "journal_mode", "DELETE", |row| {
        row.get::<_, String>(0)
    })
    .map_err(doing)?;
    copy.pragma_update(None, "synchronous", "FULL")
        .map_err(doing)?;
    marks::save(&copy, marks::COPY, vec![])?;
    // The store remembers the file that it is in, and this is another one.
    marks::remove(&copy, marks::FILE)?;
    copy.close()
        .map_err(|(_, error)| failed("copy the store", &error))
}

/// Gives the copy its name, once it is on the disk; never that of a file that exists.
fn publish(partial: &Path, to: &Path) -> Result<()> {
    let directory = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let publish = || {
        File::open(partial)?.sync_all()?;
        renameat_with(CWD, partial, CWD, to, RenameFlags::NOREPLACE)?;
        File::open(directory)?.sync_all()
    };
    publish().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(to),
        _ => unwritten(to, &error),
    })
}

fn exists(to: &Path) -> StoreError {
    StoreError::Refused(format!(
        "{} exists already; a backup overwrites nothing",
        to.display()
    ))
}

fn unwritten(to: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{} cannot be written: {error}", to.display()))
}
