//! The plain proxies, as npm and PyPI have them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::running;
use crate::running::Running;

/// What installs them, beside the sources of this program.
const SETUP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proxies/setup");

/// Where they are installed.
#[derive(Debug)]
pub(crate) struct Proxies(PathBuf);

impl Proxies {
    /// Installs them beside this program, unless they are there already.
    pub(crate) fn set_up() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let beside = program.parent();
        let beside = beside.context("this program is in no directory")?;
        let output = Command::new(SETUP)
            .arg(beside)
            .stderr(Stdio::inherit())
            .output();
        let output = output.with_context(|| format!("cannot run {SETUP}"))?;
        ensure!(
            output.status.success(),
            "the proxies cannot be installed\nhint: `--only` measures without them"
        );
        let printed = String::from_utf8(output.stdout).context("a path is text")?;
        Ok(Self(PathBuf::from(printed.trim_end())))
    }

    /// Starts npm's. It keeps no events for clients that come back, which would cost it more.
    pub(crate) fn npm(&self) -> Result<(Running, String)> {
        let mut command = Command::new(self.0.join("node"));
        command.arg(self.0.join("node_modules/.bin/mcp-proxy"));
        command.args(["--server", "stream", "--no-eventStore"]);
        running::proxy(command)
    }

    /// Starts PyPI's.
    pub(crate) fn pypi(&self) -> Result<(Running, String)> {
        let mut command = Command::new(self.0.join("python/bin/mcp-proxy"));
        command.args(["--log-level", "ERROR"]);
        running::proxy(command)
    }
}
