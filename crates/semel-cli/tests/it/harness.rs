//! Runs the built command on a store of its own, with nothing else in its environment.
//!
//! A [`World`] is a directory with a store. Operations are made through the library, by a clock that
//! is ten minutes behind: so leases are over and ages are known without waiting. What the command
//! answers is compared as a whole, with times written as TIME and the directory as DIR.

use std::future::Future;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use semel::clock::{Clock, SystemClock};
use semel::core::clock::Reading;
use semel::core::ledger::Holder;
use semel::store::sqlite::SqliteStore;
use semel::{Admission, Engine, Key, Label, Lease, Permit, Request};
use tempfile::TempDir;

/// How long ago the library's operations happen; the odd seconds keep ages from changing meanwhile.
pub(crate) const AGO: Duration = Duration::from_secs(605);

/// A directory with a store.
#[derive(Debug)]
pub(crate) struct World {
    directory: TempDir,
}

/// What a command answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Expects exactly this answer.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, stdout: &str, stderr: &str) {
        assert_eq!(
            (self.code, self.stdout.as_str(), self.stderr.as_str()),
            (code, stdout, stderr)
        );
    }

    /// Returns the JSON objects on standard output, one per line.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let lines = self.stdout.lines();
        lines
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        Self { directory }
    }

    /// Returns the path of something in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.path("data/semel.db")
    }

    /// Prepares the command in a clean environment; the store is named there.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.directory.path())
            .env("USER", "ann")
            .env("SEMEL_STORE", format!("sqlite:{}", self.store().display()))
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn semel(&self, args: &[&str]) -> Ran {
        self.run(&mut self.command(args))
    }

    /// Runs a prepared command to its end.
    pub(crate) fn run(&self, command: &mut Command) -> Ran {
        let output = command.output().expect("the command runs");
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: self.plain(&output.stdout),
            stderr: self.plain(&output.stderr),
        }
    }

    /// Replaces what differs from run to run.
    fn plain(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8(bytes.to_vec()).expect("the answer is text");
        let directory = self.directory.path().display().to_string();
        without_times(&text.replace(&directory, "DIR"))
    }

    /// Works on the store through the library, as another process did ten minutes ago.
    pub(crate) fn past<T, F: Future<Output = T>>(&self, work: impl FnOnce(Engine) -> F) -> T {
        self.past_of(semel::holder::this_process(), work)
    }

    /// Works on the store through the library, by the machine's clock.
    pub(crate) fn now<T, F: Future<Output = T>>(&self, work: impl FnOnce(Engine) -> F) -> T {
        let none = Duration::ZERO;
        let clock = Behind {
            wall: none,
            uptime: none,
        };
        self.by_clock(clock, semel::holder::this_process(), work)
    }

    /// Works on the store through the library, on behalf of this holder.
    pub(crate) fn past_of<T, F: Future<Output = T>>(
        &self,
        holder: Option<Holder>,
        work: impl FnOnce(Engine) -> F,
    ) -> T {
        self.by_clock(
            Behind {
                wall: AGO,
                uptime: AGO,
            },
            holder,
            work,
        )
    }

    /// Works on the store through the library, by this clock.
    pub(crate) fn by_clock<T, F: Future<Output = T>>(
        &self,
        clock: Behind,
        holder: Option<Holder>,
        work: impl FnOnce(Engine) -> F,
    ) -> T {
        let runtime = tokio::runtime::Runtime::new().expect("there is a runtime");
        runtime.block_on(async {
            let clock = Arc::new(clock);
            let store = SqliteStore::open_with(self.store(), clock).expect("the store opens");
            let builder = Engine::builder().store(Arc::new(store)).sweep_every(None);
            let engine = builder.holder(holder).start().await;
            work(engine.expect("the engine starts")).await
        })
    }

    /// Returns the number of the last log entry.
    pub(crate) fn entries(&self) -> u64 {
        self.past(|engine| async move { engine.last_entry().await.expect("the log has an end") })
    }
}

/// A clock that is behind.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) wall: Duration,
    pub(crate) uptime: Duration,
}

impl Clock for Behind {
    fn read(&self) -> Reading {
        let now = SystemClock::new().read();
        Reading {
            wall: now.wall.minus(self.wall),
            uptime: now.uptime.saturating_sub(self.uptime),
            ..now
        }
    }
}

/// Writes TIME for every RFC 3339 time with milliseconds.
fn without_times(text: &str) -> String {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00.000Z";
    let fits = |bytes: &[u8]| {
        bytes.len() == SHAPE.len()
            && bytes.iter().zip(SHAPE).all(|(found, shape)| match shape {
                b'0' => found.is_ascii_digit(),
                other => found == other,
            })
    };
    let mut plain = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match rest.as_bytes().get(..SHAPE.len()) {
            Some(bytes) if fits(bytes) => {
                plain.push_str("TIME");
                rest = &rest[SHAPE.len()..];
            }
            Some(_) | None => {
                plain.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    plain
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("a test's key is valid")
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).expect("a test's name is valid")
}

/// A request through the door `run`, with a lease of one minute: it is over by now.
pub(crate) fn request(name: &str) -> Request {
    let minute = Lease::new(Duration::from_secs(60)).expect("a test's lease is valid");
    Request::new("create-order", key(name))
        .door(label("run"))
        .lease(minute)
}

/// Begins, and expects to be the one who acts.
pub(crate) async fn permit(engine: &Engine, request: Request) -> Permit {
    match engine.begin(request).await {
        Ok(Admission::Execute(permit)) => permit,
        other => panic!("a permit was expected: {other:?}"),
    }
}

/// A holder on another host, which nobody can see from here.
pub(crate) fn elsewhere() -> Option<Holder> {
    Some(Holder {
        host: label("mill"),
        pid: 4_242,
        boot: 1,
        pid_namespace: 1,
        started: 1,
    })
}

/// A holder on this host that has ended: its number belongs to another process now.
pub(crate) fn gone() -> Option<Holder> {
    let this = semel::holder::this_process().expect("this system tells who we are");
    Some(Holder {
        host: label("mill"),
        started: this.started + 1,
        ..this
    })
}
