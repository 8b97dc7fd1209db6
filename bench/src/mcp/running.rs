//! The processes that are measured: the fixture, the gateway before it, or a plain proxy before it.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::fixture;
use super::wire::LOOK;
use crate::serve::process::{listening, semel};

/// How long a process may take to end once it was asked to.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// How long a proxy may take to listen: an interpreter reads its libraries first.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked whether something is so by now.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A process; it is ended with this, and with it whatever it has started.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Asked first, so that it waits for its own child: what that spent is then known to be ours.
        let id = i32::try_from(self.0.id()).ok();
        if let Some(id) = id.and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _gone = kill_process(id, Signal::TERM);
        }
        let asked = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && asked.elapsed() < END_PATIENCE {
            std::thread::sleep(LOOK_EVERY);
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Makes the command that is the fixture.
pub(crate) fn fixture() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg(fixture::COMMAND);
    Ok(command)
}

/// Makes the command that is the gateway before the fixture, with its ledger in this directory.
pub(crate) fn gateway(program: &Path, directory: &Path, options: &[&str]) -> Result<Command> {
    let settings = directory.join("semel.toml");
    let text = format!("[mcp.tools.{LOOK}]\nclass = \"safe\"\n");
    std::fs::write(&settings, text).context("cannot write the settings")?;
    let store = format!("sqlite:{}", directory.join("semel.db").display());
    let mut command = semel(program, &store);
    command.arg("--config").arg(settings);
    command.arg("mcp").args(options).arg("--");
    append(&mut command, &fixture()?);
    Ok(command)
}

fn append(command: &mut Command, other: &Command) {
    command.arg(other.get_program()).args(other.get_args());
}

/// Starts the gateway for clients over HTTP and returns where it listens.
pub(crate) fn listening_gateway(program: &Path, directory: &Path) -> Result<(Running, String)> {
    let command = gateway(program, directory, &["--listen", "127.0.0.1:0"])?;
    let (child, address) = listening(command)?;
    let address = address.trim_end_matches("/mcp").to_owned();
    Ok((Running(child), address))
}

/// Starts a plain proxy before the fixture and returns where it listens.
pub(crate) fn proxy(mut command: Command) -> Result<(Running, String)> {
    let port = free_port()?;
    command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--"]);
    append(&mut command, &fixture()?);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let name = command.get_program().display();
    let child = child.with_context(|| format!("cannot start {name}"))?;
    let mut running = Running(child);
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = running.0.try_wait()? {
            bail!("{name} ended before it listened: {status}");
        }
        if started.elapsed() > START_PATIENCE {
            bail!("{name} does not listen");
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok((running, format!("127.0.0.1:{port}")))
}

/// Finds a port that nobody listens at; somebody may take it before the proxy does, which then says so.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("there is no free port")?;
    Ok(listener.local_addr()?.port())
}
