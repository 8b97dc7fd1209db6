//! A server as a real process, on a store of its own.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::World;
use crate::http::{Address, Answer, Asked, Connection, PATIENCE};

/// How often something is looked at that nobody tells about.
const LOOK: Duration = Duration::from_millis(5);

/// What Linux counts a process's time in, each second: the same on every machine.
const TICKS: u64 = 100;

/// Waits until something is so; what never comes fails the test.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never came to this: {what}");
        std::thread::sleep(LOOK);
    }
}

/// What a server has written to standard error so far.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<Lines>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

/// A running server; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: Address,
    log: Arc<Log>,
}

impl Server {
    /// Starts a server on the world's store, at a free port of this machine's own address.
    #[track_caller]
    pub(crate) fn start(world: &World) -> Self {
        Self::start_with(world, &[])
    }

    /// Starts a server with more words after `serve`.
    #[track_caller]
    pub(crate) fn start_with(world: &World, words: &[&str]) -> Self {
        let mut args = vec!["serve", "--listen", "127.0.0.1:0"];
        args.extend(words);
        Self::spawn(&mut world.command(&args))
    }

    /// Starts a prepared command, and waits until it listens.
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::try_spawn(command)
            .unwrap_or_else(|(status, said)| panic!("the server did not start ({status}):\n{said}"))
    }

    /// Starts a prepared command, and returns how it ended if it does not listen.
    pub(crate) fn try_spawn(command: &mut Command) -> Result<Self, (ExitStatus, String)> {
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the command runs");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let log = Arc::new(Log::default());
        let writer = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines() {
                let line = line.unwrap_or_else(|error| format!("(unreadable: {error})"));
                writer.lines.lock().expect("nobody panics").lines.push(line);
                writer.grown.notify_all();
            }
            writer.lines.lock().expect("nobody panics").ended = true;
            writer.grown.notify_all();
        });
        let mut server = Self {
            child,
            address: Address::Unix("nowhere".into()),
            log,
        };
        match server.wait_for_line(listening) {
            Some(address) => {
                server.address = address;
                Ok(server)
            }
            None => Err((server.wait(), server.said())),
        }
    }

    /// Waits until a line says something; none when the server ends without it.
    #[track_caller]
    pub(crate) fn wait_for_line<T>(&self, look: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let end = Instant::now() + PATIENCE;
        let mut lines = self.log.lines.lock().expect("nobody panics");
        let mut next = 0;
        loop {
            while let Some(line) = lines.lines.get(next) {
                next += 1;
                let parsed = serde_json::from_str(line).unwrap_or(Value::Null);
                if let Some(found) = look(&parsed) {
                    return Some(found);
                }
            }
            if lines.ended {
                return None;
            }
            assert!(Instant::now() < end, "it never said so: {:?}", lines.lines);
            (lines, _) = self
                .log
                .grown
                .wait_timeout(lines, PATIENCE)
                .expect("nobody panics");
        }
    }

    /// Returns what the server wrote to standard error so far.
    pub(crate) fn said(&self) -> String {
        let lines = self.log.lines.lock().expect("nobody panics");
        lines.lines.join("\n")
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn port(&self) -> u16 {
        match &self.address {
            Address::Tcp(address) => address.port(),
            Address::Unix(path) => panic!("{} has no port", path.display()),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens a connection.
    #[track_caller]
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.address)
            .unwrap_or_else(|error| panic!("{:?}: {error}\n{}", self.address, self.said()))
    }

    /// Sends a request on a connection of its own.
    #[track_caller]
    pub(crate) fn ask(&self, asked: Asked) -> Answer {
        let mut connection = self.connect();
        let sent = connection.send(&asked.bytes());
        let answer = sent.and_then(|()| connection.answer());
        answer.unwrap_or_else(|error| panic!("{asked:?}: {error}\n{}", self.said()))
    }

    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Answer {
        self.ask(Asked::get(target))
    }

    #[track_caller]
    pub(crate) fn post(&self, target: &str, body: &Value) -> Answer {
        self.ask(Asked::post(target, body))
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("it has a number");
        kill_process(pid, signal).expect("it can be told");
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be looked at") {
                return status;
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.said());
            std::thread::sleep(LOOK);
        }
    }

    /// Says whether the process is still there.
    pub(crate) fn runs(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("it can be looked at")
            .is_none()
    }

    /// Ends the server as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Returns how much of the processors' time the process has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.expect("the process is there");
        // The name before them is in parentheses; time in user and kernel mode are the 14th and 15th field.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|text| text.parse().unwrap_or(0)).sum();
        Duration::from_millis(ticks * 1_000 / TICKS)
    }

    /// Returns how much memory the process has, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kilobytes: u64 = kilobytes
            .and_then(|text| text.parse().ok())
            .expect("it has memory");
        kilobytes * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.runs() {
            self.kill();
        }
    }
}

/// Finds out from a line where the server listens.
fn listening(line: &Value) -> Option<Address> {
    if line["message"] != "listening" {
        return None;
    }
    let address = line["address"].as_str()?;
    let plain = ["http://", "https://"]
        .iter()
        .find_map(|scheme| address.strip_prefix(scheme));
    let address = plain.unwrap_or(address);
    match address.strip_prefix("unix:") {
        Some(path) => Some(Address::Unix(path.into())),
        None => {
            // The gateway for MCP has one path, and says so.
            let place = address.split('/').next().unwrap_or_default();
            Some(Address::Tcp(place.parse::<SocketAddr>().ok()?))
        }
    }
}
