//! A client over standard input and output: one thread that has so many calls in flight at once.

use std::io::{Read as _, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::wire::{self, Calls};
use crate::histogram::Histogram;
use crate::keys::Keys;
use crate::load::Measured;
use crate::running::Running;
use crate::serve::process::cannot_start;

/// The most calls in flight. A call has fewer than 256 bytes and a pipe holds 64 KiB, so that writing them
/// never waits for somebody who waits for us.
pub(crate) const IN_FLIGHT_MAX: i64 = 256;

/// How much is read at once: what a pipe holds.
const READ_SIZE: usize = 64 * 1024;

/// A conversation with a server, or with what stands before it; the process is ended with this.
#[derive(Debug)]
pub(crate) struct Talk {
    // In this order: who is waited for must have seen the end of its input.
    to: ChildStdin,
    from: ChildStdout,
    /// What was read of a line that is not whole yet.
    held: Vec<u8>,
    pub(crate) process: Running,
}

impl Talk {
    /// Starts the process and makes the handshake.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| cannot_start(&command))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.context("the process has no pipes")?;
        let mut talk = Self {
            to,
            from,
            held: vec![],
            process: Running(child),
        };
        talk.to.write_all(wire::initialize().as_bytes())?;
        talk.to.write_all(b"\n")?;
        let mut greeted = false;
        while !greeted {
            talk.more(|line| {
                let text = String::from_utf8_lossy(line);
                ensure!(text.contains(r#""result""#), "no handshake: {text}");
                greeted = true;
                Ok(())
            })?;
        }
        talk.to.write_all(wire::INITIALIZED.as_bytes())?;
        talk.to.write_all(b"\n")?;
        Ok(talk)
    }

    /// Keeps so many calls in flight, and counts those that begin and end after the warm-up.
    pub(crate) fn measure(
        &mut self,
        calls: Calls,
        in_flight: u32,
        warm_up: Duration,
        time: Duration,
    ) -> Result<Measured> {
        let keys = Keys::new()?;
        let order = |number| {
            let key = keys.key(number);
            String::from_utf8(key.to_vec()).context("keys are hexadecimal digits")
        };
        // Whoever was answered calls again at once, with the next number of its own.
        let in_flight = u64::from(in_flight);
        let place = |number: u64| usize::try_from(number % in_flight).unwrap_or_default();
        let mut batch = vec![];
        for number in 0..in_flight {
            batch.extend_from_slice(calls.write(number, &order(number)?).as_bytes());
            batch.push(b'\n');
        }
        let started = Instant::now();
        let mut began = vec![started; place(in_flight - 1) + 1];
        let (mut latency, mut counting) = (Histogram::new(), None::<Instant>);
        let mut open = in_flight;
        let mut seconds = None;
        self.to.write_all(&batch)?;
        while open > 0 {
            batch.clear();
            self.more(|line| {
                let number = wire::answered(line)?;
                wire::check(number, &order(number)?, line)?;
                let now = Instant::now();
                let at = place(number);
                if let Some(since) = counting
                    && seconds.is_none()
                {
                    latency.record(now - began[at]);
                    if now - since >= time {
                        seconds = Some((now - since).as_secs_f64());
                    }
                } else if now - started >= warm_up {
                    counting = counting.or(Some(now));
                }
                if seconds.is_some() {
                    open -= 1;
                    return Ok(());
                }
                let next = number + in_flight;
                batch.extend_from_slice(calls.write(next, &order(next)?).as_bytes());
                batch.push(b'\n');
                began[at] = now;
                Ok(())
            })?;
            self.to.write_all(&batch)?;
        }
        let seconds = seconds.context("nothing was measured")?;
        Ok(Measured { seconds, latency })
    }

    /// Reads what there is, and hands on the lines that are whole.
    fn more(&mut self, mut line: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let start = self.held.len();
        self.held.resize(start + READ_SIZE, 0);
        let read = self.from.read(&mut self.held[start..])?;
        self.held.truncate(start + read);
        ensure!(read > 0, "the process closed its output");
        let Some(whole) = self.held.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        for whole in self.held[..whole].split(|byte| *byte == b'\n') {
            line(whole)?;
        }
        self.held.drain(..=whole);
        Ok(())
    }
}
