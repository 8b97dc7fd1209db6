//! `semel run` and `semel ensure`, as real processes.

mod bad_input;
mod basics;
mod children;
mod clocks;
mod crashes;
mod crowds;
mod doubts;
mod ensure;
mod hidden;
mod signals;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;

/// An empty directory with a store of its own, and nothing else in the environment.
pub(crate) struct Sandbox {
    directory: tempfile::TempDir,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Makes the `semel` command with these words.
    pub(crate) fn semel(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
        self.bare(&mut command);
        command.args(words);
        command
    }

    /// Gives a command this directory and a small environment.
    pub(crate) fn bare(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.root())
            .env("USER", "tester")
            .env(
                "SEMEL_STORE",
                format!("sqlite:{}", self.path("s.db").display()),
            )
            .current_dir(self.root())
            .stdin(Stdio::null());
    }

    /// Leaves the namespaces of this machine, as a user or, where that is not allowed, as root.
    pub(crate) fn unshare(&self) -> Command {
        for user in [&["--user", "--map-root-user"][..], &[]] {
            let mut command = Command::new("unshare");
            self.bare(&mut command);
            command.args(user);
            let mut tried = Command::new("unshare");
            tried
                .args(user)
                .args(["--mount", "true"])
                .stderr(Stdio::null());
            if tried.status().expect("unshare runs").success() {
                return command;
            }
        }
        panic!("namespaces cannot be left here: allow user namespaces, or run the tests as root");
    }

    /// Runs `semel` with these words.
    pub(crate) fn say(&self, words: &[&str]) -> Told {
        Told::from(self.semel(words).output().expect("semel runs"))
    }

    /// Runs `semel run --key KEY -- sh -c SCRIPT`.
    pub(crate) fn run(&self, key: &str, script: &str) -> Told {
        self.say(&["run", "--key", key, "--", "sh", "-c", script])
    }

    /// Returns the record as JSON.
    pub(crate) fn record(&self, key: &str) -> serde_json::Value {
        let told = self.say(&["show", key, "--json"]);
        told.json()
    }

    /// Counts the lines that effects have left.
    pub(crate) fn effects(&self, name: &str) -> usize {
        fs::read_to_string(self.path(name)).map_or(0, |text| text.lines().count())
    }

    /// Makes a gate: whoever reads it waits until it is opened.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        let path = self.path(name);
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
        let shut = fs::OpenOptions::new().read(true).write(true).open(&path);
        let shut = Mutex::new(Some(shut.expect("it was made")));
        Gate { path, shut }
    }

    pub(crate) fn verified(&self) {
        let told = self.say(&["verify"]);
        assert_eq!(told.exit, 0, "{told:?}");
    }
}

/// A named pipe: `cat GATE` waits until it is opened.
pub(crate) struct Gate {
    path: PathBuf,
    /// While somebody could write, whoever reads waits.
    shut: Mutex<Option<fs::File>>,
}

impl Gate {
    /// Lets those through who wait, once somebody does; later ones wait for the next time.
    pub(crate) fn open(&self) {
        let mut shut = self.shut.lock().expect("nobody panics with it");
        if shut.is_some() {
            wait_until("somebody is at the gate", || self.has_visitor());
            *shut = None;
        } else {
            let opened = fs::OpenOptions::new().write(true).open(&self.path);
            drop(opened.expect("somebody waits"));
        }
    }

    /// Counts those who wait at a gate that was not opened yet.
    pub(crate) fn visitors(&self) -> usize {
        let processes = fs::read_dir("/proc")
            .expect("it can be read")
            .filter_map(Result::ok);
        let waits = |process: &fs::DirEntry| {
            let open = fs::read_dir(process.path().join("fd"))
                .into_iter()
                .flatten();
            let mut open = open.filter_map(Result::ok);
            open.any(|file| fs::read_link(file.path()).is_ok_and(|target| target == self.path))
        };
        // Ourselves, and our children before they have become what they are to be.
        let exe = |process: &fs::DirEntry| fs::read_link(process.path().join("exe")).ok();
        let own = std::env::current_exe().ok();
        processes
            .filter(|process| exe(process) != own)
            .filter(waits)
            .count()
    }

    pub(crate) fn has_visitor(&self) -> bool {
        self.visitors() > 0
    }
}

/// What a process said and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) exit: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl From<Output> for Told {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        let signal = output.status.signal().map(|signal| -signal);
        Self {
            exit: output.status.code().or(signal).expect("it ended"),
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }
}

impl Told {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Waits until something is so; a minute means that it never will be.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed().as_secs() < 60, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Collects a child that was started with pipes.
pub(crate) fn told(child: Child) -> Told {
    Told::from(child.wait_with_output().expect("it can be waited for"))
}

/// Lets a command be started with pipes.
pub(crate) fn piped(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::piped()).stderr(Stdio::piped())
}
