//! The processes that are measured: the fixture, the gateway before it, or a plain proxy before it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::fixture;
use super::wire::LOOK;
use crate::running::{Running, free_port};
use crate::serve::process::{listening, semel};

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
    let running = Running::listening(command, port)?;
    Ok((running, format!("127.0.0.1:{port}")))
}
