//! Telling by a command of the operator's.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin};

use super::channel::Told;
use super::message::Message;

/// How long a command may run; then it is killed, with what it started.
const RUN_MAX: Duration = Duration::from_secs(60);

/// How much of what a command complains about is kept.
const COMPLAINT_MAX: usize = 512;

/// What the server knows and a command does not need.
const KEPT_FROM_IT: [&str; 3] = ["SEMEL_TOKEN", "SEMEL_NOTIFY_SECRET", "SEMEL_NOTIFY_WEBHOOK"];

/// Runs a line of shell.
#[derive(Debug)]
pub(crate) struct Command(String);

impl Command {
    pub(super) fn new(line: &str) -> Self {
        Self(line.to_owned())
    }

    /// Runs it once: it is told when it ends with 0.
    pub(super) async fn tell(&self, id: &str, message: &Message, json: Vec<u8>) -> Told {
        let mut command = tokio::process::Command::new("sh");
        command
            .args(["-c", &self.0])
            .env("SEMEL_NOTIFY_ID", id)
            .env("SEMEL_NOTIFY_TYPE", message.kind)
            .env("SEMEL_NOTIFY_NAMESPACE", &message.namespace)
            .env("SEMEL_NOTIFY_KEY", &message.key)
            .env(
                "SEMEL_NOTIFY_EVENT",
                String::from_utf8_lossy(&json).as_ref(),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for name in KEPT_FROM_IT {
            command.env_remove(name);
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Told::No(format!("it cannot be started: {error}")),
        };
        let group = child.id();
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let running = async {
            let (_, complaint, ended) =
                tokio::join!(give(stdin, &json), complaint(stderr), ended(&mut child),);
            (ended, complaint)
        };
        let Ok((ended, complaint)) = tokio::time::timeout(RUN_MAX, running).await else {
            kill(group);
            let seconds = RUN_MAX.as_secs();
            return Told::Unknown(format!("it was killed after {seconds} s"));
        };
        match ended {
            Ok(status) if status.success() => Told::Yes,
            Ok(status) if status.code().is_some() => Told::No(format!("{status}: {complaint}")),
            Ok(status) => Told::Unknown(format!("{status}: {complaint}")),
            Err(error) => Told::Unknown(error.to_string()),
        }
    }
}

async fn ended(child: &mut Child) -> std::io::Result<ExitStatus> {
    child.wait().await
}

async fn give(stdin: Option<ChildStdin>, json: &[u8]) {
    if let Some(mut stdin) = stdin {
        // A command need not read it: it has the same in its environment.
        drop(stdin.write_all(json).await);
    }
}

/// Reads what a command says is wrong; the rest of it is read too, so that it can go on.
async fn complaint(stderr: Option<ChildStderr>) -> String {
    let mut kept = vec![];
    if let Some(mut stderr) = stderr {
        let mut piece = [0; 1_024];
        while let Ok(size @ 1..) = stderr.read(&mut piece).await {
            let room = COMPLAINT_MAX.saturating_sub(kept.len());
            kept.extend_from_slice(&piece[..size.min(room)]);
        }
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

fn kill(group: Option<u32>) {
    let group = group.and_then(|id| i32::try_from(id).ok());
    if let Some(group) = group.and_then(Pid::from_raw) {
        // It may have ended just now.
        let _ended = kill_process_group(group, Signal::KILL);
    }
}
