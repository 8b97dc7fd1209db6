//! The directory that a test shares with its servers, and the servers themselves.
//!
//! `fixture/desk.py` says what each file is. What a server did is counted there, by the server itself and on
//! the disk, so that no gateway and no client has a say in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::World;
use crate::http::Address;
use crate::server::wait_until;

/// Which revisions of the protocol a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// `initialize`, and sessions over HTTP.
    Legacy,
    /// Every request stands for itself.
    Modern,
}

/// The directory, and everything that is started on it.
#[derive(Debug)]
pub(crate) struct Desk {
    world: World,
    /// What is set in the environment of every server.
    settings: Vec<(&'static str, String)>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Makes a desk whose servers find this in their environment (`fixture/server.py`).
    pub(crate) fn with(settings: &[(&'static str, &str)]) -> Self {
        let world = World::new();
        fs::create_dir(world.path("desk")).expect("a directory can be made");
        let settings = settings.iter();
        Self {
            world,
            settings: settings
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
        }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path("desk").join(name)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        // A line that is still being written is not there yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .split('\n')
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Counts the effects so far.
    pub(crate) fn effects(&self) -> usize {
        self.lines("effects").len()
    }

    /// Waits for the effects to be this many.
    #[track_caller]
    pub(crate) fn wait_for_effects(&self, count: usize) {
        wait_until("there are as many effects", || self.effects() == count);
    }

    /// Returns the exact texts of the messages that reached a server.
    pub(crate) fn received(&self) -> Vec<Value> {
        let lines = self.lines("received");
        let lines = lines.iter().map(|line| serde_json::from_str(line));
        lines.map(|line| line.expect("it is JSON")).collect()
    }

    /// Counts the requests of this method that reached a server.
    pub(crate) fn received_of(&self, method: &str) -> usize {
        let named = format!("\"{method}\"");
        let received = self.received();
        let texts = received.iter().filter_map(|line| line["raw"].as_str());
        texts.filter(|text| text.contains(&named)).count()
    }

    /// Returns the process ids of the servers that were started, the newest last.
    pub(crate) fn starts(&self) -> Vec<i32> {
        let lines = self.lines("starts");
        let numbers = lines.iter().map(|line| line.parse());
        numbers.map(|number| number.expect("a number")).collect()
    }

    /// Says what goes wrong at the next effect (`fixture/tools.py`).
    pub(crate) fn next_fault(&self, fault: &str) {
        // Renamed into its place, so that nobody reads half of it.
        fs::write(self.path("fault.new"), fault).expect("it can be written");
        fs::rename(self.path("fault.new"), self.path("fault")).expect("it can be renamed");
    }

    /// Lets whoever holds an answer give it.
    pub(crate) fn release(&self) {
        fs::write(self.path("release"), "").expect("it can be written");
    }

    /// Kills the newest server as a crash would.
    #[track_caller]
    pub(crate) fn kill_server(&self) {
        let pid = *self.starts().last().expect("a server was started");
        let pid = Pid::from_raw(pid).expect("it has a number");
        kill_process(pid, Signal::KILL).expect("it can be killed");
    }

    /// Returns the words that start a server on standard input and output.
    pub(crate) fn words(&self) -> Vec<String> {
        let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/fixture/server.py");
        vec![
            python().to_owned(),
            server.display().to_string(),
            "stdio".to_owned(),
        ]
    }

    /// Sets what every server finds in its environment; a gateway hands it on to its child.
    pub(crate) fn furnish(&self, command: &mut Command) {
        command.env("FIXTURE_DESK", self.world.path("desk"));
        for (name, value) in &self.settings {
            command.env(name, value);
        }
    }

    /// Prepares a server on standard input and output.
    pub(crate) fn server(&self) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        self.furnish(&mut command);
        command
    }
}

/// A server on HTTP; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Remote {
    child: Child,
    port: u16,
}

impl Remote {
    /// Starts a server, and waits until it listens.
    #[track_caller]
    pub(crate) fn start(desk: &Desk) -> Self {
        Self::start_at(desk, 0)
    }

    #[track_caller]
    fn start_at(desk: &Desk, port: u16) -> Self {
        let words = desk.words();
        let mut command = Command::new(&words[0]);
        command
            .args([&words[1], "http"])
            .env("FIXTURE_PORT", port.to_string())
            .stdin(Stdio::null());
        desk.furnish(&mut command);
        // Whoever listened before is gone.
        let file = desk.path("port");
        let _ = fs::remove_file(&file);
        let mut child = command.spawn().expect("the server runs");
        wait_until("the server listens", || {
            let ended = child.try_wait().expect("it can be looked at");
            assert_eq!(ended, None, "the server ended");
            file.exists()
        });
        let port = fs::read_to_string(&file).expect("it can be read");
        Self {
            child,
            port: port.parse().expect("a port"),
        }
    }

    /// Kills the server as a crash would, and starts it again where it was.
    #[track_caller]
    pub(crate) fn crash(&mut self, desk: &Desk) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
        let again = Self::start_at(desk, self.port);
        drop(std::mem::replace(self, again));
    }

    pub(crate) fn address(&self) -> Address {
        Address::Tcp(([127, 0, 0, 1], self.port).into())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It may have been killed by the test already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds the real Python: what is first in the path may need this user's home to find it.
fn python() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        let words = ["-c", "import sys; print(sys.executable)"];
        let output = Command::new("python3").args(words).output();
        let output = output.expect("Python is needed: install `python3`");
        let path = String::from_utf8(output.stdout).expect("a path is text");
        path.trim().to_owned()
    })
}
