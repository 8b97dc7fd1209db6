//! One run of the child: its lines in and out, and its end.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Command, Shared, Unsent};
use crate::mcp::lines::{Line, Lines};
use crate::mcp::message::Message;

/// How long the process may take to end by itself once its input is closed.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// How long it may take after it was asked to end.
const TERM_PATIENCE: Duration = Duration::from_secs(2);

/// How long one message may take to be read by the process.
const WRITE_MAX: Duration = Duration::from_secs(60);

/// A running child.
#[derive(Debug)]
pub(super) struct Process {
    stdin: ChildStdin,
    pid: Option<u32>,
    started: Instant,
    ended: watch::Receiver<Option<Ended>>,
    /// Whether it was told to end.
    ending: Arc<AtomicBool>,
    /// Whether a line was begun and not finished: nothing more can be said then.
    broken: bool,
}

/// How a child ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) lived: Duration,
}

impl Process {
    /// Starts the child and reads what it says until it ends.
    pub(super) fn start(command: &Command, shared: Arc<Shared>) -> std::io::Result<Self> {
        let mut child = tokio::process::Command::new(&command.program)
            .args(&command.arguments)
            .envs(
                command
                    .environment
                    .0
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("the child has no pipes"));
        };
        let (pid, started) = (child.id(), Instant::now());
        let (sender, ended) = watch::channel(None);
        let ending = Arc::new(AtomicBool::new(false));
        let is_ending = Arc::clone(&ending);
        tokio::spawn(async move {
            read(stdout, &shared).await;
            // A child that closed its output cannot answer any more, whether it lives or not.
            let why = match tokio::time::timeout(END_PATIENCE, child.wait()).await {
                Ok(Ok(status)) => said_of(status),
                Ok(Err(error)) => format!("the server cannot be waited for: {error}"),
                Err(_) => {
                    drop(child.start_kill());
                    drop(child.wait().await);
                    "the server closed its output".to_owned()
                }
            };
            if !is_ending.load(Ordering::Relaxed) {
                tracing::warn!("{why}");
            }
            let lived = started.elapsed();
            // Before its callers hear of it: whoever comes next must not write to what is gone.
            sender.send_replace(Some(Ended { lived }));
            shared.ended(&why).await;
        });
        Ok(Self {
            stdin,
            pid,
            started,
            ended,
            ending,
            broken: false,
        })
    }

    /// Returns how it ended, if it has.
    pub(super) fn has_ended(&self) -> Option<Ended> {
        if self.broken {
            let lived = self.started.elapsed();
            return Some(Ended { lived });
        }
        self.ended.borrow().clone()
    }

    /// Writes a message as one line.
    pub(super) async fn write(&mut self, message: &Message) -> Result<(), Unsent> {
        let mut line = message.line().to_vec();
        line.push(b'\n');
        let mut written = 0;
        let writing = async {
            while written < line.len() {
                match self.stdin.write(&line[written..]).await {
                    Ok(0) => return Err("the server takes no more".to_owned()),
                    Ok(count) => written += count,
                    Err(error) => return Err(format!("the server cannot be written to: {error}")),
                }
            }
            Ok(())
        };
        let done = tokio::time::timeout(WRITE_MAX, writing).await;
        let why = match done {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => why,
            Err(_) => "the server does not read what it is sent".to_owned(),
        };
        if written == 0 {
            return Err(Unsent::Nothing(why));
        }
        self.broken = true;
        Err(Unsent::Perhaps(why))
    }

    /// Ends it: closes its input, waits, asks, kills.
    pub(super) async fn end(self) {
        let Self {
            stdin,
            pid,
            mut ended,
            ending,
            ..
        } = self;
        ending.store(true, Ordering::Relaxed);
        drop(stdin);
        let over = tokio::time::timeout(END_PATIENCE, ended.wait_for(Option::is_some));
        if over.await.is_ok() {
            return;
        }
        for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
            let raw = pid.and_then(|pid| i32::try_from(pid).ok());
            if let Some(pid) = raw.and_then(rustix::process::Pid::from_raw)
                && ended.borrow().is_none()
            {
                // It may have ended just now.
                let _gone = rustix::process::kill_process(pid, signal);
            }
            let over = tokio::time::timeout(TERM_PATIENCE, ended.wait_for(Option::is_some));
            if over.await.is_ok() {
                return;
            }
        }
    }
}

/// Reads what the child says until it closes its output.
async fn read(stdout: ChildStdout, shared: &Shared) {
    let mut lines = Lines::new(stdout);
    loop {
        match lines.next().await {
            Ok(Some(Line::Message(message))) => shared.said(message).await,
            // What is no message is noise: it goes to our log and never to the client.
            Ok(Some(Line::Noise(noise))) => {
                tracing::warn!(why = %noise.why, starts = noise.start, "the server wrote what is no message");
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the server cannot be read");
                return;
            }
        }
    }
}

fn said_of(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the server ended with exit code {code}"),
        (None, Some(signal)) => format!("the server was ended by signal {signal}"),
        (None, None) => "the server ended".to_owned(),
    }
}
