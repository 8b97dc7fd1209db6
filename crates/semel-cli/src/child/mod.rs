//! A child process: started with a lock that outlives us, its output passed on and recorded, signals
//! forwarded, its end awaited.

pub(crate) mod identity;
pub(crate) mod output;
pub(crate) mod recording;
pub(crate) mod signals;

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use self::output::Pump;
use self::recording::{Keep, Recording, Shared};
use self::signals::Signals;

/// How long a child has, after it was asked to end, before it is killed.
pub(crate) const KILL_AFTER: Duration = Duration::from_secs(5);

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) timed_out: bool,
    pub(crate) recording: Recording,
}

impl Ended {
    /// Returns the exit code that a shell would report.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.timed_out {
            return TIMED_OUT;
        }
        let code = match self.status.signal() {
            Some(signal) => 128 + signal,
            None => self.status.code().unwrap_or_else(|| i32::from(u8::MAX)),
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

/// The exit code after a timeout, as `timeout` has it.
pub(crate) const TIMED_OUT: u8 = 124;

/// A child that runs.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pump: Pump,
    recording: Arc<Shared>,
}

/// Starts a child whose output is recorded; `spawn` is what starts it.
///
/// All that can fail by itself is done before: an error means that there is no child.
pub(crate) fn start(
    mut command: Command,
    live: bool,
    keep: Keep,
    spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
) -> io::Result<Running> {
    let recording = Arc::new(Shared::new(keep));
    let (inlets, pump) = Pump::start(live, &recording)?;
    let child = spawn(command.stdout(inlets.stdout).stderr(inlets.stderr))?;
    Ok(Running {
        child,
        pump,
        recording,
    })
}

impl Running {
    /// Returns what is recorded while the child runs.
    pub(crate) fn recording(&self) -> Arc<Shared> {
        Arc::clone(&self.recording)
    }

    /// Waits for the child's end, and ends it after the timeout.
    pub(crate) async fn end(
        self,
        signals: &Signals,
        timeout: Option<Duration>,
    ) -> io::Result<Ended> {
        let pid = self.pid()?;
        signals.forward_to(Some(pid));
        let timed_out = until_exit(Whom::Child(pid), timeout).await?;
        // From here on the number may be given to another process.
        signals.forward_to(None);
        self.collect(timed_out)
    }

    /// Waits for the end of a child that leads a group of its own and gets no signals from us; after the timeout ends the
    /// whole group: what the child has started must not act beside the next attempt.
    pub(crate) async fn end_group(
        self,
        timeout: Option<Duration>,
        ended: impl FnOnce(),
    ) -> io::Result<Ended> {
        let timed_out = until_exit(Whom::Group(self.pid()?), timeout).await?;
        // From here on the number may be given to another process.
        ended();
        self.collect(timed_out)
    }

    fn pid(&self) -> io::Result<Pid> {
        let number = i32::try_from(self.child.id()).ok();
        number
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("the child has no number"))
    }

    fn collect(mut self, timed_out: bool) -> io::Result<Ended> {
        let status = self.child.wait()?;
        self.pump.finish()?;
        Ok(Ended {
            status,
            timed_out,
            recording: self.recording.take(),
        })
    }
}

/// Who is ended after a timeout.
#[derive(Clone, Copy, Debug)]
enum Whom {
    Child(Pid),
    /// The child and all others of the group that it leads.
    Group(Pid),
}

impl Whom {
    const fn child(self) -> Pid {
        match self {
            Self::Child(pid) | Self::Group(pid) => pid,
        }
    }

    /// Sends a signal. It can only fail when all of them have ended, and then there is nothing to end.
    fn send(self, signal: Signal) {
        let _ = match self {
            Self::Child(pid) => kill_process(pid, signal),
            Self::Group(pid) => kill_process_group(pid, signal),
        };
    }
}

/// Waits until a child has ended, and ends it after the timeout; says whether that was needed.
async fn until_exit(whom: Whom, timeout: Option<Duration>) -> io::Result<bool> {
    let exited = tokio::task::spawn_blocking(move || exited(whom.child()));
    tokio::pin!(exited);
    let mut timed_out = false;
    let done = async {
        if let Some(timeout) = timeout {
            tokio::select! {
                biased;
                ended = &mut exited => return ended,
                () = tokio::time::sleep(timeout) => {}
            }
            timed_out = true;
            whom.send(Signal::TERM);
            tokio::select! {
                biased;
                ended = &mut exited => return ended,
                () = tokio::time::sleep(KILL_AFTER) => {}
            }
            whom.send(Signal::KILL);
        }
        exited.await
    };
    done.await.map_err(io::Error::other)??;
    if timed_out && matches!(whom, Whom::Group(_)) {
        // The child has ended and is not collected yet, so the group's number is still its own.
        whom.send(Signal::KILL);
    }
    Ok(timed_out)
}

/// Waits until the child has ended, and leaves it to be collected: so its number stays its own.
fn exited(pid: Pid) -> io::Result<()> {
    loop {
        match waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        ) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
