//! Probes: shell commands that find out whether something is done.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::child::recording::Keep;
use crate::child::signals::Signals;
use crate::child::{self, Ended};
use crate::commands::run::data::RunData;
use crate::failure::Failure;

/// How long a probe may take: it looks something up.
const PROBE_MAX: Duration = Duration::from_secs(60);

/// What a probe found.
#[derive(Debug)]
pub(crate) enum Found {
    /// The effect happened; what the probe wrote is the answer.
    Done(RunData),
    /// The effect did not happen.
    NotDone,
    /// The probe does not know, and this is how it ended.
    Unknown(String),
}

/// Makes the shell command of a probe.
pub(crate) fn shell(probe: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(probe).stdin(Stdio::null());
    command
}

/// Runs a probe and judges its exit code: 0 means done, 1 not done, anything else unknown.
pub(crate) async fn look(command: Command, signals: &Signals) -> Result<Found, Failure> {
    let running = match child::start(command, false, Keep::Both, Command::spawn) {
        Ok(running) => running,
        Err(error) => return Ok(Found::Unknown(format!("cannot be run: {error}"))),
    };
    let ended = running
        .end(signals, Some(PROBE_MAX))
        .await
        .map_err(|error| Failure::internal(format!("the probe: {error}")))?;
    Ok(found(ended))
}

fn found(ended: Ended) -> Found {
    if ended.timed_out {
        return Found::Unknown(format!("took longer than {} s", PROBE_MAX.as_secs()));
    }
    match ended.status.code() {
        Some(0) => Found::Done(RunData::new(Some(0), None, ended.recording)),
        Some(1) => Found::NotDone,
        Some(_) | None => Found::Unknown(ended.status.to_string()),
    }
}
