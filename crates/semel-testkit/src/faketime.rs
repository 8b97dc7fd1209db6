//! Processes whose wall clock is wrong, by Debian's libfaketime.

use std::path::PathBuf;

/// The library, for programs with several threads.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// Returns the environment in which a process takes it to be earlier or later by this, as `+1h`.
/// Its monotonic clock goes on as it does. A process that is killed leaves two small files of the
/// library behind in `/dev/shm`, so let it end.
///
/// # Panics
/// When libfaketime is not installed.
#[must_use]
pub fn environment(offset: &str) -> [(&'static str, String); 4] {
    [
        ("LD_PRELOAD", library().display().to_string()),
        ("FAKETIME", offset.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("NO_FAKE_STAT", "1".to_owned()),
    ]
}

fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten();
    let mut paths = folders.filter_map(|folder| Some(folder.ok()?.path().join(LIBRARY)));
    let found = paths.find(|path| path.exists());
    found.expect("libfaketime is installed (`./test` does it): /usr/lib/*/faketime")
}
