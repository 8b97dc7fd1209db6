//! An agent's process, seen from the test that started it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Orders;

/// How long any agent may take: far beyond the slowest machine, so that a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often an agent is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// How an agent's program is started.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    before: Vec<String>,
    uid: Option<u32>,
    directory: Option<PathBuf>,
}

impl Program {
    /// Starts this file.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            before: vec![],
            uid: None,
            directory: None,
        }
    }

    /// Starts it by `sh -c SCRIPT`, which ends with `exec "$@"`.
    #[must_use]
    pub fn through_shell(mut self, script: &str) -> Self {
        let shell = ["sh", "-c", script, "sh"].map(str::to_owned);
        self.before.splice(0..0, shell);
        self
    }

    /// Starts it by another program that takes a command.
    #[must_use]
    pub fn through(mut self, words: &[&str]) -> Self {
        self.before
            .splice(0..0, words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Starts it as another user; only root may.
    #[must_use]
    pub const fn as_user(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// Starts it in this directory.
    #[must_use]
    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Makes the command.
    #[must_use]
    pub fn command(&self, args: &[String]) -> Command {
        use std::os::unix::process::CommandExt as _;
        let path = self.path.display().to_string();
        let words: Vec<_> = self.before.iter().chain([&path]).chain(args).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// Starts an agent.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn start(&self, orders: &Orders) -> Agent {
        self.start_with(orders, Stdio::null())
    }

    /// Starts an agent that waits at the barrier for the end of this input.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn start_with(&self, orders: &Orders, input: impl Into<Stdio>) -> Agent {
        let mut command = self.command(&orders.to_args());
        let started = command.stdin(input).stdout(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{command:?} starts: {error}"));
        let output = child.stdout.take().map(BufReader::new);
        Agent { child, output }
    }

    /// Starts agents that begin together: each opens the store, then all are let go at once.
    ///
    /// # Panics
    /// When one does not get ready.
    #[must_use]
    pub fn start_together(&self, orders: &[Orders]) -> Vec<Agent> {
        let (reader, writer) = std::io::pipe().expect("there is a pipe");
        let start = |orders: &Orders| {
            let orders = Orders {
                barrier: true,
                ..orders.clone()
            };
            let input = reader.try_clone().expect("a pipe has many readers");
            self.start_with(&orders, input)
        };
        let mut agents: Vec<_> = orders.iter().map(start).collect();
        agents.iter_mut().for_each(Agent::wait_until_ready);
        drop(writer);
        agents
    }
}

/// A started agent; killed when dropped.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

/// How an agent ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// What it said besides being ready: why the store refused.
    pub said: String,
}

impl Ended {
    /// Says whether the agent was killed.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        self.status.signal() == Some(Signal::KILL.as_raw())
    }
}

impl Agent {
    /// Returns the process id.
    ///
    /// # Panics
    /// Never: a started process has one.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until the agent has its store open and waits at the barrier.
    ///
    /// # Panics
    /// When it ends before that.
    pub fn wait_until_ready(&mut self) {
        let mut line = String::new();
        let output = self.output.as_mut().expect("the output is read once");
        let read = output.read_line(&mut line);
        read.expect("the agent's output is text");
        assert_eq!(line, "ready\n", "an agent opens its store and waits");
    }

    /// Sends a signal, if the agent is still there.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn signal(&self, signal: Signal) {
        // The child was not waited for, so its number cannot belong to anybody else.
        kill_process(self.pid(), signal).expect("a parent may signal its child");
    }

    /// Waits until the kernel says that the process is stopped.
    ///
    /// # Panics
    /// When it ends instead, or is never stopped.
    pub fn wait_until_stopped(&mut self) {
        let stat = format!("/proc/{}/stat", self.pid().as_raw_nonzero());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let text = std::fs::read_to_string(&stat).expect("the agent is there");
            let state = text.rsplit_once(')').map(|(_, rest)| rest.trim_start());
            if state.is_some_and(|state| state.starts_with('T')) {
                return;
            }
            assert!(!self.has_ended(), "the agent ended before it was stopped");
            std::thread::sleep(LOOK);
        }
        panic!("the agent is never stopped: {:?}", self.pid());
    }

    /// Kills the agent, whatever it is doing.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn kill(&mut self) {
        self.child.kill().expect("a parent may kill its child");
    }

    /// Says whether the agent has ended.
    ///
    /// # Panics
    /// When the system does not say.
    pub fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().expect("a parent may wait");
        status.is_some()
    }

    /// Waits for the agent's end.
    ///
    /// # Panics
    /// When it does not end in time: no agent may hang.
    #[must_use]
    pub fn wait(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a parent may wait") {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "an agent hangs: {:?}",
                self.pid()
            );
            std::thread::sleep(LOOK);
        };
        let mut said = String::new();
        if let Some(mut output) = self.output.take() {
            let read = output.read_to_string(&mut said);
            read.expect("the agent's output is text");
        }
        Ended { status, said }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // A test that failed must not leave processes behind; one that ended was waited for.
        if matches!(self.child.try_wait(), Ok(None)) {
            let killed = self.child.kill().and_then(|()| self.child.wait());
            drop(killed);
        }
    }
}
