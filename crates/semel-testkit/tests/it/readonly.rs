//! A store that may not be written: clear errors, and nothing executed.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use semel_testkit::process::{Ended, Keys, Orders, Program, Scene};

use crate::{agent, mounter};

/// A user whom permissions concern: this one, or `nobody` when this one is root.
struct Subject {
    scene: Scene,
    program: Program,
}

/// The number of the user `nobody`, to whom nothing belongs.
const NOBODY: u32 = 65_534;

impl Subject {
    fn new() -> Self {
        let scene = Scene::new();
        let program = if rustix::process::geteuid().is_root() {
            // Where the program lies, `nobody` may not be able to look.
            let copy = scene.path().join("agent");
            std::fs::copy(env!("CARGO_BIN_EXE_agent"), &copy).expect("the agent is copied");
            chown(scene.path(), Some(NOBODY), Some(NOBODY)).expect("root gives things away");
            Program::at(copy).as_user(NOBODY)
        } else {
            agent()
        };
        // The world must stay writable, or an effect could not even happen.
        std::fs::create_dir(scene.path().join("home")).expect("a directory is made");
        let subject = Self { scene, program };
        subject.give_away(&subject.home());
        subject
    }

    fn home(&self) -> std::path::PathBuf {
        self.scene.path().join("home")
    }

    fn store(&self) -> std::path::PathBuf {
        self.home().join("store.db")
    }

    fn give_away(&self, path: &Path) {
        if rustix::process::geteuid().is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("root gives things away");
        }
    }

    fn send(&self, key: &str) -> Ended {
        let orders = Orders {
            store: self.store(),
            ..Orders::new(&self.scene, Keys::These(vec![key.to_owned()]))
        };
        self.program.start(&orders).wait()
    }

    /// Makes the store by carrying one operation out.
    fn make_store(&self) {
        let ended = self.send("hold-0");
        assert!(ended.status.success(), "{}", ended.said);
    }

    /// Tries another operation; it must be refused with these words, and not happen.
    fn is_refused(&self, case: &str, words: &[&str]) {
        let before = self.scene.sink().lines().len();
        let Ended { status, mut said } = self.send("hold-1");
        if status.success() {
            // The store opened, and the claim was refused.
            let last = self.scene.told().words().pop();
            said = last.map(|(_, word)| word.to_string()).unwrap_or_default();
        } else {
            assert_eq!(status.code(), Some(3), "{case}: {said}");
        }
        let path = self.home().display().to_string();
        for word in [&path]
            .into_iter()
            .map(String::as_str)
            .chain(words.iter().copied())
        {
            assert!(said.contains(word), "{case}: `{word}` is not in: {said}");
        }
        let after = self.scene.sink().lines().len();
        assert_eq!(before, after, "{case}: nothing was executed");
    }
}

fn allow(path: &Path, mode: u32) {
    let set = std::fs::set_permissions(path, Permissions::from_mode(mode));
    set.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

#[test]
fn a_directory_that_may_not_be_written_gets_no_store() {
    let subject = Subject::new();
    allow(&subject.home(), 0o500);
    subject.is_refused("unwritable", &["cannot be made", "Permission denied"]);
    allow(&subject.home(), 0o000);
    subject.is_refused("unreadable", &["Permission denied"]);
    allow(&subject.home(), 0o700);
    assert_eq!(
        std::fs::read_dir(subject.home())
            .expect("it is listed")
            .count(),
        0,
        "nothing was made"
    );
    // A directory that would have to be made where nothing may be made.
    std::fs::remove_dir(subject.home()).expect("it is empty");
    allow(subject.scene.path(), 0o500);
    subject.is_refused("no directory", &["cannot be made", "Permission denied"]);
    allow(subject.scene.path(), 0o700);
}

#[test]
fn a_store_whose_files_may_not_be_written_is_refused() {
    let subject = Subject::new();
    subject.make_store();
    for (name, cause) in [
        ("store.db", "read-only"),
        ("store.db-wal", "store.db"),
        ("store.db-shm", "store.db"),
        ("store.db-queue", "Permission denied"),
        ("store.db-turn", "Permission denied"),
    ] {
        for mode in [0o400, 0o000] {
            let file = subject.home().join(name);
            allow(&file, mode);
            let case = format!("{name} with mode {mode:o}");
            let cause = if mode == 0 { "store.db" } else { cause };
            subject.is_refused(&case, &["store_unavailable", cause]);
            allow(&file, 0o600);
        }
    }
    let ended = subject.send("hold-1");
    assert!(ended.status.success(), "all is well again: {}", ended.said);
    assert_eq!(subject.scene.sink().lines().len(), 2);
}

#[test]
fn a_store_in_a_directory_that_became_read_only_works_on_or_is_refused() {
    let subject = Subject::new();
    subject.make_store();
    allow(&subject.home(), 0o500);
    // All its files are there, so nothing has to be made.
    let Ended { status, said } = subject.send("hold-1");
    assert!(status.success(), "{said}");
    // Without its log and locks it cannot work, and says so.
    allow(&subject.home(), 0o700);
    for name in ["store.db-queue", "store.db-turn"] {
        std::fs::remove_file(subject.home().join(name)).expect("it was there");
    }
    allow(&subject.home(), 0o500);
    subject.is_refused("no lock files", &["store.db", "Permission denied"]);
    allow(&subject.home(), 0o700);
    assert_eq!(subject.scene.sink().lines().len(), 2);
}

#[test]
fn claim_in_a_store_on_a_read_only_file_system_is_refused() {
    let scene = Scene::new();
    let mounter = mounter(&scene);
    let home = scene.path().join("home");
    std::fs::create_dir(&home).expect("a directory is made");
    let script = format!(
        "mount --bind {home} {home} && mount -o remount,bind,ro {home} && exec \"$@\"",
        home = home.display(),
    );
    let orders = |key: &str| Orders {
        store: home.join("store.db"),
        ..Orders::new(&scene, Keys::These(vec![key.to_owned()]))
    };
    let read_only = agent().through_shell(&script).through(mounter);
    for made in [false, true] {
        if made {
            let ended = agent().start(&orders("hold-0")).wait();
            assert!(ended.status.success(), "{}", ended.said);
        }
        let Ended { status, mut said } = read_only.start(&orders("hold-1")).wait();
        if made {
            // The store opens to be read, and the claim is refused.
            assert!(status.success(), "{said}");
            let last = scene.told().words().pop();
            said = last.map(|(_, word)| word.to_string()).unwrap_or_default();
            assert!(said.contains("store_unusable"), "{said}");
        } else {
            assert_eq!(status.code(), Some(3), "made {made}: {said}");
        }
        let clear = said.contains("Read-only file system") && said.contains("home/store.db");
        assert!(clear, "made {made}: {said}");
        assert_eq!(scene.sink().lines().len(), usize::from(made));
    }
}
