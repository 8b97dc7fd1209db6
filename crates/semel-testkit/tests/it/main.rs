//! Real processes and a real disk: one binary, as linking is slower than running.

mod crashes;
mod crowds;
mod damage;
mod fixtures;
mod foreign;
mod full;
mod nodes;
mod nodes_clocks;
mod nodes_paused;
mod paused;
mod places;
mod readonly;
mod transactions;
mod wal;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use semel_testkit::process::{Program, Scene};

/// Returns the program that the tests start as an agent.
fn agent() -> Program {
    Program::at(env!("CARGO_BIN_EXE_agent"))
}

/// The ways to mount something of one's own, each for the programs that it starts only: as any user
/// with a namespace of its own, and as root where those are switched off.
const MOUNTERS: [&[&str]; 2] = [&["unshare", "-r", "-m"], &["unshare", "-m"]];

/// Returns the words before a command that may mount something of its own.
///
/// A test that cannot be set up must not look like one that passed: where nobody may mount, this
/// fails and says what to do.
fn mounter(scene: &Scene) -> &'static [&'static str] {
    let mut refused = String::new();
    for way in MOUNTERS {
        let mut command = Command::new(way[0]);
        command
            .args(&way[1..])
            .args(["mount", "-t", "tmpfs", "tmpfs"])
            .arg(scene.path());
        let said = match command.output() {
            Ok(output) if output.status.success() => return way,
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        refused += &format!("  {}: {}\n", way.join(" "), said.trim());
    }
    panic!(
        "this test mounts a file system of its own, and may not here:\n{refused}\
         allow user namespaces (sysctl user.max_user_namespaces, \
         kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a \
         container: the capability SYS_ADMIN), or run the tests as root"
    );
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
