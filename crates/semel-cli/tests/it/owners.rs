//! Stores in folders that other users can write to: what they put there is refused, and nothing of the
//! store's owner is touched through it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::run::{Sandbox, Told};

/// The number of a user to whom nothing belongs.
const NOBODY: u32 = 65_534;

const SIDE_FILES: [&str; 5] = ["-wal", "-shm", "-journal", "-turn", "-queue"];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn mode(path: &Path) -> u32 {
    let found = path.symlink_metadata();
    found
        .unwrap_or_else(|error| panic!("{path:?}: {error}"))
        .mode()
        & 0o7777
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// Runs an operation, and expects that it is refused because of this file.
#[track_caller]
fn is_refused(sandbox: &Sandbox, case: &str, file: &Path) {
    let told = sandbox.run("k", "echo x >> effects");
    assert_eq!(told.exit, 119, "{case}: {told:?}");
    let (text, file) = (told.err(), file.display().to_string());
    assert!(text.contains(&file), "{case}: {text}");
    assert_eq!(sandbox.effects("effects"), 0, "{case}: nothing was run");
}

#[test]
fn side_file_that_is_a_link_is_refused_and_its_target_stays() {
    for suffix in SIDE_FILES {
        for made in [false, true] {
            let sandbox = Sandbox::new();
            if made {
                assert_eq!(sandbox.run("first", "true").exit, 0);
            }
            let planted = sandbox.path(&format!("s.db{suffix}"));
            fs::remove_file(&planted).ok();
            let precious = sandbox.path("precious");
            fs::write(&precious, "data").expect("it is written");
            symlink(&precious, &planted).expect("a link is made");
            let case = format!("{suffix}, made {made}");
            is_refused(&sandbox, &case, &planted);
            assert_eq!(fs::read(&precious).expect("it is there"), b"data", "{case}");
        }
    }
}

#[test]
fn side_file_that_every_user_may_write_is_refused_and_one_of_a_group_is_not() {
    for suffix in ["", "-wal", "-shm", "-turn", "-queue"] {
        let sandbox = Sandbox::new();
        assert_eq!(sandbox.run("first", "true").exit, 0);
        let file = sandbox.path(&format!("s.db{suffix}"));
        allow(&file, 0o666);
        is_refused(&sandbox, suffix, &file);
        let hint = format!("chmod 600 {}", file.display());
        let told = sandbox.run("k", "echo x >> effects");
        assert!(told.err().contains(&hint), "{told:?}");
        allow(&file, 0o660);
        assert_eq!(sandbox.run("k", "true").exit, 0, "{suffix}");
        let checked = sandbox.say(&["doctor"]);
        assert_eq!(checked.exit, 0, "{checked:?}");
        let warned = checked.out().contains("warn  permissions");
        assert!(warned, "{suffix}: {checked:?}");
    }
}

#[test]
fn planted_file_with_another_name_of_a_file_is_refused() {
    for suffix in SIDE_FILES {
        let sandbox = Sandbox::new();
        let precious = sandbox.path("precious");
        fs::write(&precious, "data").expect("it is written");
        let planted = sandbox.path(&format!("s.db{suffix}"));
        fs::hard_link(&precious, &planted).expect("a link is made");
        is_refused(&sandbox, suffix, &planted);
        assert_eq!(
            fs::read(&precious).expect("it is there"),
            b"data",
            "{suffix}"
        );
    }
}

#[test]
fn notes_that_are_a_link_or_open_to_all_are_refused() {
    let sandbox = Sandbox::new();
    let notes = sandbox.path("s.db-notes");
    fs::create_dir(sandbox.path("elsewhere")).expect("it is made");
    symlink(sandbox.path("elsewhere"), &notes).expect("a link is made");
    is_refused(&sandbox, "link", &notes);
    fs::remove_file(&notes).expect("it is removed");
    fs::create_dir(&notes).expect("it is made");
    allow(&notes, 0o777);
    is_refused(&sandbox, "open to all", &notes);
    allow(&notes, 0o700);
    assert_eq!(sandbox.run("k", "true").exit, 0);
}

/// Returns the name of the hold of the first attempt of an operation.
fn hold_of(key: &str) -> String {
    let key = semel::Key::new(key).expect("it is a key");
    let hash = semel::core::KeyHash::of(&semel::Namespace::default(), &key);
    format!("{}-1.hold", hash.0)
}

#[test]
fn planted_hold_is_not_followed() {
    let sandbox = Sandbox::new();
    let notes = sandbox.path("s.db-notes");
    fs::create_dir(&notes).expect("it is made");
    allow(&notes, 0o700);
    let precious = sandbox.path("precious");
    fs::write(&precious, "data").expect("it is written");
    symlink(&precious, notes.join(hold_of("k"))).expect("a link is made");
    let told = sandbox.run("k", "echo x >> effects");
    assert_ne!(told.exit, 0, "{told:?}");
    assert!(told.err().contains(".hold"), "{told:?}");
    assert_eq!(fs::read(&precious).expect("it is there"), b"data");
    assert_eq!(sandbox.effects("effects"), 0);
}

/// Puts a file of another user into the sandbox and runs `semel` beside it: as root by giving one away,
/// as any other user by mounting a file of
/// root's over it in a namespace, where that user is the only one with a number of its own.
fn run_beside_anothers(sandbox: &Sandbox, file: &Path) -> Told {
    let words = ["run", "--key", "k", "--", "sh", "-c", "echo x >> effects"];
    fs::write(file, "").expect("it is made");
    allow(file, 0o666);
    if is_root() {
        chown(file, Some(NOBODY), Some(NOBODY)).expect("root gives things away");
        allow(file, 0o600);
        return sandbox.say(&words);
    }
    let mut command = Command::new("unshare");
    sandbox.bare(&mut command);
    let script = "mount --bind /etc/passwd \"$0\" && exec \"$@\"";
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    command
        .arg(file)
        .arg(env!("CARGO_BIN_EXE_semel"))
        .args(words);
    Told::from(command.output().expect("unshare runs"))
}

#[test]
fn side_file_of_another_user_is_refused() {
    for suffix in SIDE_FILES {
        let sandbox = Sandbox::new();
        let planted = sandbox.path(&format!("s.db{suffix}"));
        let told = run_beside_anothers(&sandbox, &planted);
        assert_eq!(told.exit, 119, "{suffix}: {told:?}");
        let text = told.err();
        assert!(text.contains("belongs to user"), "{suffix}: {text}");
        assert!(text.contains("chown"), "{suffix}: {text}");
        assert_eq!(sandbox.effects("effects"), 0, "{suffix}");
    }
}

#[test]
fn root_gives_what_it_makes_to_the_owner_of_the_store() {
    if !is_root() {
        // Only root can open the store of another user and make files for it. What every user sees of it
        // is in `side_file_of_another_user_is_refused`.
        return;
    }
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run("first", "true").exit, 0);
    fs::remove_dir_all(sandbox.path("s.db-notes")).expect("it is removed");
    for suffix in SIDE_FILES {
        fs::remove_file(sandbox.path(&format!("s.db{suffix}"))).ok();
    }
    for path in [sandbox.root(), &sandbox.path("s.db")] {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root gives things away");
    }
    assert_eq!(sandbox.run("second", "true").exit, 0);
    for suffix in [
        "",
        "-wal",
        "-shm",
        "-turn",
        "-queue",
        "-notes",
        "-notes/saved",
    ] {
        let path = sandbox.path(&format!("s.db{suffix}"));
        let Ok(found) = path.symlink_metadata() else {
            assert_eq!(suffix, "-notes/saved", "only counts may be missing");
            continue;
        };
        assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{suffix}");
    }
    // The owner goes on with it.
    let mut owner = Command::new("setpriv");
    sandbox.bare(&mut owner);
    fs::copy(env!("CARGO_BIN_EXE_semel"), sandbox.path("semel")).expect("it is copied");
    owner.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "./semel",
    ]);
    owner.args(["run", "--key", "third", "--", "true"]);
    let told = Told::from(owner.output().expect("setpriv runs"));
    assert_eq!(told.exit, 0, "{told:?}");
}

#[test]
fn modes_are_exact_whatever_the_umask_is() {
    for umask in ["0", "022", "0277", "0777"] {
        let sandbox = Sandbox::new();
        let mut command = Command::new("sh");
        sandbox.bare(&mut command);
        let script = format!(
            "umask {umask}; s='{semel} --store sqlite:a/b/s.db'; $s run --key k -- true && \
             $s run --key k -- true && $s backup bak.db && $s list",
            semel = env!("CARGO_BIN_EXE_semel")
        );
        let told = Told::from(command.args(["-c", &script]).output().expect("sh runs"));
        assert_eq!(told.exit, 0, "{umask}: {told:?}");
        for (name, wanted) in [
            ("a", 0o700),
            ("a/b", 0o700),
            ("a/b/s.db", 0o600),
            ("a/b/s.db-wal", 0o600),
            ("a/b/s.db-shm", 0o600),
            ("a/b/s.db-turn", 0o600),
            ("a/b/s.db-queue", 0o600),
            ("a/b/s.db-notes", 0o700),
            ("a/b/s.db-notes/saved", 0o600),
            ("bak.db", 0o600),
        ] {
            let found = mode(&sandbox.path(name));
            assert_eq!(found, wanted, "umask {umask}: {name} has mode {found:o}");
        }
    }
}
