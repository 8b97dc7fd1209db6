//! Passes on what a child writes, as it comes, and records it.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::PipeFlags;

use super::recording::Shared;

/// How much is read at once.
const BUFFER: usize = 128 * 1024;

/// A thread that moves both streams: one alone sees in which order they come.
#[derive(Debug)]
pub(crate) struct Pump {
    thread: JoinHandle<io::Result<()>>,
    /// Closing it says that the child has ended.
    ended: OwnedFd,
}

/// The ends that a child is to write to.
#[derive(Debug)]
pub(crate) struct Inlets {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// One of a child's streams.
#[derive(Debug)]
struct Stream {
    number: u8,
    /// Until it has ended.
    from: Option<File>,
    /// Whether somebody still reads what we pass on.
    live: bool,
}

impl Pump {
    /// Starts to move what will be written to the inlets; `live` says that it is passed on, too.
    pub(crate) fn start(live: bool, recording: &Arc<Shared>) -> io::Result<(Inlets, Self)> {
        let (out, stdout) = pipe()?;
        let (err, stderr) = pipe()?;
        let (end, ended) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let recording = Arc::clone(recording);
        let stream = |number, from| Stream {
            number,
            from: Some(from),
            live,
        };
        let streams = [stream(1, out), stream(2, err)];
        let thread = std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || pump(streams, &end, &recording))?;
        Ok((Inlets { stdout, stderr }, Self { thread, ended }))
    }

    /// Moves what is left, now that the child has ended. What its own children write later is not
    /// waited for.
    pub(crate) fn finish(self) -> io::Result<()> {
        drop(self.ended);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the output's thread panicked")))
    }
}

/// Makes a wide pipe that does not block its reader.
fn pipe() -> io::Result<(File, OwnedFd)> {
    let (from, inlet) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // A wider pipe means fewer turns; where the system does not allow it, it stays as it is.
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(&from, 1024 * 1024);
    let flags = rustix::fs::fcntl_getfl(&from)? | rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&from, flags)?;
    Ok((from.into(), inlet))
}

fn pump(mut streams: [Stream; 2], end: &OwnedFd, recording: &Shared) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let mut moved = false;
        for stream in &mut streams {
            moved |= stream.pass(&mut buffer, recording)?;
        }
        if streams.iter().all(|stream| stream.from.is_none()) {
            return Ok(());
        }
        if !moved && !wait(&streams, end)? {
            return Ok(());
        }
    }
}

impl Stream {
    /// Moves what is there, once; says whether there was anything.
    fn pass(&mut self, buffer: &mut [u8], recording: &Shared) -> io::Result<bool> {
        let Some(from) = &mut self.from else {
            return Ok(false);
        };
        match from.read(buffer) {
            Ok(0) => {
                self.from = None;
                Ok(true)
            }
            Ok(size) => {
                let bytes = &buffer[..size];
                recording.add(self.number, bytes);
                if self.live {
                    // Whoever reads us has read enough; the child goes on, and its answer is kept.
                    self.live = write(self.number, bytes).is_ok();
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Waits until there is something to read; `false` when there is nothing and the child has ended.
fn wait(streams: &[Stream], end: &OwnedFd) -> io::Result<bool> {
    loop {
        let open = streams.iter().filter_map(|stream| stream.from.as_ref());
        let open = open.map(std::os::fd::AsFd::as_fd);
        let mut watched: Vec<_> = [end.as_fd()]
            .into_iter()
            .chain(open)
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        match poll(&mut watched, None) {
            Ok(_) => return Ok(watched[1..].iter().any(|file| !file.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes to our own standard output (1) or standard error (2), past their buffers.
pub(crate) fn write(stream: u8, bytes: &[u8]) -> io::Result<()> {
    if stream == 1 {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    } else {
        io::stderr().lock().write_all(bytes)
    }
}
