//! Servers as processes on one store.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The longest that a test waits for something that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A directory with a store, for servers and commands.
#[derive(Debug)]
pub(crate) struct World {
    directory: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
        let store = format!("sqlite:{}", self.path("semel.db").display());
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.directory.path())
            .env("SEMEL_STORE", store)
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command and returns what it wrote.
    pub(crate) fn semel(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("it runs");
        String::from_utf8(output.stdout).expect("it is text")
    }

    /// Starts a server with these settings, and waits until it listens.
    pub(crate) fn serve(&self, settings: &[(&str, &str)]) -> Server {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.envs(settings.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it has one")).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let address = loop {
            let line = lines.next().expect("it listens").expect("it is text");
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| json!({"line": line}));
            if let Some(address) = line["address"].as_str() {
                let (_, place) = address.split_once("://").expect("it is a URL");
                break place.to_owned();
            }
            assert!(line["line"].is_null(), "{line}");
        };
        let kept = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut log = kept.lock().expect("nobody panics with it");
                log.push_str(&line);
                log.push('\n');
            }
        });
        Server {
            child,
            address,
            log,
        }
    }
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: String,
    log: Arc<Mutex<String>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Server {
    /// Ends it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Ends it with SIGTERM, and expects it to end well.
    pub(crate) fn stop(mut self) {
        let id = i32::try_from(self.child.id()).expect("it has a number");
        let pid = Pid::from_raw(id).expect("it has a number");
        kill_process(pid, Signal::TERM).expect("it runs");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// Returns the port that it listens at.
    pub(crate) fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u64 {
        self.child.id().into()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").clone()
    }

    /// Sends a request and returns the head and the body of its answer.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let size = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
             content-length: {size}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("it is an answer");
        (head.to_owned(), body.to_owned())
    }

    /// Posts JSON, and expects it to be accepted.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let (head, answer) = self.ask("POST", path, "", &body.to_string());
        assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{answer}");
        serde_json::from_str(&answer).expect("it is JSON")
    }

    /// Begins an operation and settles it with what comes with the verdict.
    pub(crate) fn settled(&self, key: &str, verdict: &Value) -> Value {
        let grant = self.post("/v1/begin", &json!({"key": key, "name": "pay"}));
        let mut report = verdict.clone();
        for member in ["key", "attempt_id", "fence"] {
            report[member] = grant[member].clone();
        }
        self.post("/v1/settle", &report)
    }

    /// Leaves an operation in doubt.
    pub(crate) fn doubt(&self, key: &str) {
        let settled = self.settled(key, &json!({"verdict": "unknown", "error": "lost"}));
        assert_eq!(settled["state"], "doubtful");
    }

    /// Returns the value of a series of the metrics.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let (_, text) = self.ask("GET", "/metrics", "", "");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = line.unwrap_or_else(|| panic!("{series}: {text}"));
        value.parse().expect("it is a number")
    }
}
