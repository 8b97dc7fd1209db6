//! The server that is measured: `semel serve`, a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A running server; it is ended with this.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) address: String,
}

impl Process {
    pub(crate) fn start(program: &Path, store: &str) -> Result<Self> {
        let mut command = semel(program, store);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        let (child, address) = listening(command)?;
        Ok(Self { child, address })
    }

    /// Returns the memory that it has, in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).context("the server is gone")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
        let kilobytes: u64 = kilobytes.context("the system does not say how much memory it has")?;
        Ok(kilobytes * 1024)
    }
}

/// Makes the command that is measured, on this store.
pub(crate) fn semel(program: &Path, store: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--store", store]);
    // Settings of whoever measures must not change what is measured.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command
}

/// Starts `semel` as a server and returns where it listens, once it does.
pub(crate) fn listening(mut command: Command) -> Result<(Child, String)> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.with_context(|| cannot_start(&command))?;
    let log = child.stderr.take().context("the server has no log")?;
    let mut lines = BufReader::new(log).lines();
    for line in lines.by_ref() {
        let line = line?;
        let Ok(said) = serde_json::from_str::<Value>(&line) else {
            bail!("the server does not start: {line}");
        };
        if let Some(address) = said["address"].as_str() {
            let address = address.trim_start_matches("http://").to_owned();
            // Somebody must read what else it says, or it would wait.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok((child, address));
        }
    }
    bail!("the server ended before it listened")
}

/// Says what to do when `semel` is not where it was looked for.
pub(crate) fn cannot_start(command: &Command) -> String {
    format!(
        "cannot start {}\nhint: `cargo build --release` makes it, or name it with `--semel PATH`",
        command.get_program().display()
    )
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has nothing that is not on disk.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
