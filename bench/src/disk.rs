//! The disk: where to work, what was written, what it takes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// File systems that live in memory: a sync costs nothing there, so a figure would mean nothing.
const IN_MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// A directory of this run on a real disk; it is removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: TempDir,
}

impl Scratch {
    /// Makes a directory in the given one, or beside this program: that is the target directory,
    /// which is on a disk more often than the system's temporary one.
    pub(crate) fn make(parent: Option<&Path>) -> Result<Self> {
        let parent = match parent {
            Some(given) => given.to_owned(),
            None => beside_this_program()?,
        };
        fs::create_dir_all(&parent)
            .with_context(|| format!("cannot make the directory {}", parent.display()))?;
        if let Some(name) = in_memory(file_system(&parent)?) {
            bail!(
                "{} is on {name}, which lives in memory: a sync costs nothing there\n\
                 hint: name a directory on a real disk with `--dir PATH`",
                parent.display()
            );
        }
        let directory = tempfile::Builder::new()
            .prefix("semel-bench-")
            .tempdir_in(&parent)
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        Ok(Self { directory })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes an empty directory for one measurement, after everything older is on the disk: what
    /// was written before must not slow down what is measured now.
    pub(crate) fn fresh(&self) -> Result<TempDir> {
        let directory = tempfile::tempdir_in(self.path()).context("cannot make a directory")?;
        let handle = File::open(directory.path()).context("cannot open a directory")?;
        rustix::fs::syncfs(&handle).context("cannot sync the disk")?;
        Ok(directory)
    }
}

fn beside_this_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program")?;
    Ok(match program.parent() {
        Some(directory) => directory.to_owned(),
        None => PathBuf::from("."),
    })
}

fn file_system(directory: &Path) -> Result<u64> {
    let found = rustix::fs::statfs(directory)
        .with_context(|| format!("cannot examine {}", directory.display()))?;
    #[expect(
        clippy::cast_sign_loss,
        reason = "the kernel's magic numbers are 32 bits"
    )]
    Ok((found.f_type as u64) & 0xffff_ffff)
}

fn in_memory(magic: u64) -> Option<&'static str> {
    let known = IN_MEMORY.iter().find(|(number, _)| *number == magic);
    known.map(|(_, name)| *name)
}

/// The bytes that the files of a directory occupy on the disk.
pub(crate) fn allocated_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).context("cannot list a directory")? {
        let entry = entry.context("cannot list a directory")?;
        let metadata = entry.metadata().context("cannot examine a file")?;
        bytes += if metadata.is_dir() {
            allocated_bytes(&entry.path())?
        } else {
            // The kernel counts in blocks of 512 bytes, whatever the file system's are.
            metadata.blocks() * 512
        };
    }
    Ok(bytes)
}

/// The bytes that this process has sent to the disk so far, as the kernel counts them.
pub(crate) fn written_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io").context("cannot read /proc/self/io")?;
    parse_written(&text).context("/proc/self/io does not tell the bytes written")
}

fn parse_written(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_in_memory_are_known_by_their_number() {
        assert_eq!(in_memory(0x0102_1994), Some("tmpfs"));
        assert_eq!(in_memory(0x8584_58f6), Some("ramfs"));
        assert_eq!(in_memory(0xef53), None, "ext4 is a disk");
    }

    #[test]
    fn a_directory_in_memory_is_refused_with_a_hint() {
        let shared = Path::new("/dev/shm");
        if in_memory(file_system(shared).unwrap_or(0)).is_none() {
            return; // This machine has no such place to be refused.
        }
        let refused = Scratch::make(Some(shared)).unwrap_err().to_string();
        assert!(refused.contains("/dev/shm is on tmpfs"), "{refused}");
        assert!(refused.contains("--dir"), "{refused}");
    }

    #[test]
    fn written_bytes_are_those_that_reach_the_disk() {
        let text = "rchar: 1\nwchar: 2\nwrite_bytes: 4096\ncancelled_write_bytes: 5\n";
        assert_eq!(parse_written(text), Some(4_096));
        assert_eq!(parse_written("wchar: 2\n"), None);
        assert!(written_bytes().is_ok());
    }

    #[test]
    fn occupied_bytes_are_counted_in_subdirectories_too() {
        let directory = tempfile::tempdir_in(".").unwrap();
        fs::create_dir(directory.path().join("below")).unwrap();
        fs::write(directory.path().join("below/file"), [7; 10_000]).unwrap();
        let synced = File::open(directory.path().join("below/file")).unwrap();
        synced.sync_all().unwrap();
        assert!(allocated_bytes(directory.path()).unwrap() >= 10_000);
    }
}
