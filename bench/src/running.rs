//! A process that this program started, and ends.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a process may take to end once it was asked to.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// How long a process may take to listen: an interpreter reads its libraries first.
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

    /// Starts what is to listen at a port of this machine, and waits until it does.
    pub(crate) fn listening(mut command: Command, port: u16) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let name = command.get_program().display();
        let child = child.with_context(|| format!("cannot start {name}"))?;
        let mut running = Self(child);
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
        Ok(running)
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

/// Finds a port that nobody listens at; somebody may take it before whom it is for, which then says so.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("there is no free port")?;
    Ok(listener.local_addr()?.port())
}
