//! Real processes and a real disk: one binary, as linking is slower than running.

mod crashes;
mod crowds;
mod damage;
mod fixtures;
mod foreign;
mod full;
mod paused;
mod places;
mod readonly;
mod wal;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use semel_testkit::process::{Program, Scene};

/// Returns the program that the tests start as an agent.
fn agent() -> Program {
    Program::at(env!("CARGO_BIN_EXE_agent"))
}

/// Returns the words before a command that may mount something of its own, where that is allowed.
fn mounter(scene: &Scene) -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-r", "-m"]];
    let allowed = |way: &&[&str]| {
        let mut command = std::process::Command::new(way[0]);
        command
            .args(&way[1..])
            .args(["mount", "-t", "tmpfs", "tmpfs"]);
        let tried = command.arg(scene.path()).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let way = ways.into_iter().find(allowed);
    if way.is_none() {
        let said = writeln!(
            std::io::stderr(),
            "skipped: this user may not mount anything"
        );
        said.expect("standard error is there");
    }
    way
}

/// Returns this file or directory and all that is in it; only their owner may read them.
fn all_private(path: &Path) -> Vec<PathBuf> {
    let metadata = std::fs::symlink_metadata(path).expect("a file is examined");
    let wanted = if metadata.is_dir() { 0o700 } else { 0o600 };
    let mode = metadata.permissions().mode() & 0o7777;
    assert_eq!(mode, wanted, "{} has mode {mode:o}", path.display());
    let mut found = vec![path.to_owned()];
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).expect("a directory is listed") {
            let path = entry.expect("a directory is listed").path();
            found.extend(all_private(&path));
        }
    }
    found
}
