//! Processes that a test kills and starts again.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long something may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(900);

/// How often something is looked at that nobody tells about.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until something is so; what never comes fails the test.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never came to this: {what}");
        std::thread::sleep(LOOK);
    }
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.stderr(Stdio::null()).spawn().expect("it starts"))
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        let id = i32::try_from(self.0.id()).expect("it has a number");
        let pid = Pid::from_raw(id).expect("it has a number");
        kill_process(pid, Signal::TERM).expect("it is ours");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server at a place that stays the same.
pub(crate) struct Node {
    socket: PathBuf,
    make: Box<dyn Fn() -> Command>,
    process: Process,
}

impl Node {
    /// Starts a command that listens there.
    pub(crate) fn start(socket: PathBuf, make: impl Fn() -> Command + 'static) -> Self {
        let process = Process::start(&mut make());
        let make = Box::new(make);
        let node = Self {
            socket,
            make,
            process,
        };
        node.wait();
        node
    }

    /// The store as workers name it.
    pub(crate) fn url(&self) -> String {
        format!("http+unix:{}", self.socket.display())
    }

    /// Kills it and starts it anew.
    pub(crate) fn crash(&mut self) {
        self.process.kill();
        self.process = Process::start(&mut (self.make)());
        self.wait();
    }

    fn wait(&self) {
        wait_until("the server listens", || {
            std::os::unix::net::UnixStream::connect(&self.socket).is_ok()
        });
    }
}
