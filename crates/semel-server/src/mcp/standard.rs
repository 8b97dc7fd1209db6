//! Our own standard input and output, waited for by the runtime where it can wait for them.
//!
//! A thread that waits in a read would cost each message two changes of thread, and would keep the process
//! from ending while nobody writes. Nothing here changes what others see who share the same pipe or socket:
//! a pipe is opened anew and a socket is asked not to wait each time, as the flag that says so for good
//! belongs to all who share it.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::unix::pipe;
use tokio::runtime::Handle;

use super::stdio::Sight;
use crate::unread::unread;

/// What is read from.
pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;

/// What is written to.
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// How much a thread reads at once, and how much may wait for whoever wants it.
const READ_SIZE: usize = 64 * 1024;

/// Opens our standard input.
///
/// # Errors
/// Whatever the system says.
pub(crate) fn input() -> io::Result<Input> {
    input_of(io::stdin().as_fd().try_clone_to_owned()?)
}

/// Opens our standard output, and says what can be seen of the client there.
///
/// # Errors
/// Whatever the system says.
pub(crate) fn output() -> io::Result<(Output, Standard)> {
    let fd = io::stdout().as_fd().try_clone_to_owned()?;
    let output = output_of(fd)?;
    let sight = Standard {
        tells: output.is_some(),
    };
    // A file or a terminal takes what it is given.
    let output = output.unwrap_or_else(|| Box::new(tokio::io::stdout()));
    Ok((output, sight))
}

/// What can be seen of the client at our standard input and output.
#[derive(Debug)]
pub(crate) struct Standard {
    /// Whether what was written is there when we are told so.
    tells: bool,
}

impl Sight for Standard {
    fn unread(&self) -> Option<u64> {
        let unread = self.tells.then(|| unread(io::stdout()))??;
        u64::try_from(unread).ok()
    }

    fn is_closed(&self) -> bool {
        is_closed(io::stdin())
    }
}

/// What tells of a socket whose other end is still open in one direction.
#[cfg(target_os = "linux")]
const HALF_CLOSED: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const HALF_CLOSED: PollFlags = PollFlags::empty();

/// Says whether the other end of a pipe or a socket was closed, whether all was read that came before or not.
fn is_closed(fd: impl AsFd) -> bool {
    let closed = PollFlags::HUP | PollFlags::ERR | HALF_CLOSED;
    let mut polled = [PollFd::new(&fd, HALF_CLOSED)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // Who cannot be asked is there.
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().intersects(closed)
}

fn input_of(fd: OwnedFd) -> io::Result<Input> {
    match kind(&fd)? {
        FileType::Fifo => match pipe::OpenOptions::new().open_receiver(path(&fd)) {
            Ok(receiver) => Ok(Box::new(receiver)),
            // It is somebody else's, or there is no way to open it anew here.
            Err(_) => by_thread(fd),
        },
        FileType::Socket => Ok(Box::new(Socket::new(fd)?)),
        _ => by_thread(fd),
    }
}

fn output_of(fd: OwnedFd) -> io::Result<Option<Output>> {
    Ok(match kind(&fd)? {
        FileType::Fifo => {
            let sender = pipe::OpenOptions::new().open_sender(path(&fd));
            sender.ok().map(|sender| Box::new(sender) as Output)
        }
        FileType::Socket => Some(Box::new(Socket::new(fd)?)),
        _ => None,
    })
}

fn kind(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

fn path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Reads in a thread of its own, which the end of the process does not wait for.
fn by_thread(fd: OwnedFd) -> io::Result<Input> {
    let (ours, mut theirs) = tokio::io::duplex(READ_SIZE);
    let runtime = Handle::current();
    let read = move || {
        let mut chunk = vec![0; READ_SIZE];
        loop {
            match rustix::io::read(&fd, &mut chunk) {
                Err(rustix::io::Errno::INTR) => {}
                // Whoever wants it is gone, or there is no more of it.
                Ok(0) => return,
                Ok(read) => {
                    if runtime.block_on(theirs.write_all(&chunk[..read])).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the standard input cannot be read");
                    return;
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(read)?;
    Ok(Box::new(ours))
}

/// A socket that is asked each time not to wait.
struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    #[expect(
        deprecated,
        reason = "it is unsound only with types that change or close what they own; the other way in is unsafe"
    )]
    fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(AsyncFd::new(fd)?))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            let read = ready.try_io(|fd| Ok(recv(fd, unfilled, RecvFlags::DONTWAIT)?));
            // It was not ready after all where there is none.
            if let Ok(read) = read {
                let (_, count) = read?;
                buffer.advance(count);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if let Ok(written) = ready.try_io(|fd| Ok(send(fd, bytes, flags)?)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::unix::net::UnixStream;

    use rustix::fs::{OFlags, fcntl_getfl};
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn waits(fd: impl AsFd) -> bool {
        let flags = fcntl_getfl(fd).expect("it has flags");
        !flags.contains(OFlags::NONBLOCK)
    }

    async fn all_of(mut input: Input) -> Vec<u8> {
        let mut read = vec![];
        input.read_to_end(&mut read).await.expect("it can be read");
        read
    }

    #[tokio::test]
    async fn a_pipe_is_read_to_its_end_and_stays_as_it_was_for_others() {
        let (reader, mut writer) = io::pipe().expect("there are pipes");
        let others = reader.try_clone().expect("it can be shared");
        let input = input_of(reader.into()).expect("it can be opened");
        assert!(waits(&others));
        writer.write_all(b"some").expect("there is room");
        drop(writer);
        assert_eq!(all_of(input).await, b"some");
    }

    #[tokio::test]
    async fn a_socket_is_read_to_its_end_and_stays_as_it_was_for_others() {
        let (ours, mut theirs) = UnixStream::pair().expect("there are sockets");
        let others = ours.try_clone().expect("it can be shared");
        let input = input_of(ours.into()).expect("it can be opened");
        let reading = tokio::spawn(all_of(input));
        theirs.write_all(b"some").expect("there is room");
        drop(theirs);
        assert_eq!(reading.await.expect("it ends"), b"some");
        assert!(waits(&others));
    }

    #[tokio::test]
    async fn a_file_is_read_to_its_end() {
        let mut file = tempfile::tempfile().expect("there is room");
        file.write_all(b"some").expect("there is room");
        file.rewind().expect("it is a file");
        let input = input_of(file.into()).expect("it can be opened");
        assert_eq!(all_of(input).await, b"some");
    }

    #[tokio::test]
    async fn more_is_written_than_there_is_room_for() {
        let (mut from_pipe, pipe) = io::pipe().expect("there are pipes");
        let (mut from_socket, socket) = UnixStream::pair().expect("there are sockets");
        let shared = (
            pipe.try_clone().expect("it can be shared"),
            socket.try_clone().expect("it can be shared"),
        );
        let much = vec![7; 1024 * 1024];
        let reading = tokio::task::spawn_blocking({
            let size = much.len();
            move || {
                let (mut piped, mut sent) = (vec![0; size], vec![0; size]);
                from_pipe.read_exact(&mut piped).expect("it is written");
                from_socket.read_exact(&mut sent).expect("it is written");
                [piped, sent]
            }
        });
        for fd in [OwnedFd::from(pipe), OwnedFd::from(socket)] {
            let output = output_of(fd).expect("it can be opened");
            let mut output = output.expect("it can be waited for");
            output.write_all(&much).await.expect("somebody reads");
        }
        assert!(waits(&shared.0) && waits(&shared.1));
        assert_eq!(reading.await.expect("it ends"), [much.clone(), much]);
    }

    #[test]
    fn whoever_closed_its_side_is_seen_to_before_all_is_read() {
        let (reader, mut writer) = io::pipe().expect("there are pipes");
        writer.write_all(b"some").expect("there is room");
        assert!(!is_closed(&reader));
        drop(writer);
        assert!(is_closed(&reader));
        let (ours, mut theirs) = UnixStream::pair().expect("there are sockets");
        theirs.write_all(b"some").expect("there is room");
        assert!(!is_closed(&ours));
        drop(theirs);
        assert!(is_closed(&ours));
    }

    #[test]
    fn nobody_waits_for_a_file_to_take_what_it_is_given() {
        let file = tempfile::tempfile().expect("there is room");
        assert!(output_of(file.into()).expect("it is one").is_none());
    }

    #[tokio::test]
    async fn whoever_reads_in_a_thread_need_not_wait_for_it() {
        let (reader, mut writer) = io::pipe().expect("there are pipes");
        let mut input = by_thread(reader.into()).expect("there are threads");
        writer.write_all(b"x").expect("there is room");
        assert_eq!(input.read_u8().await.expect("it is there"), b'x');
        // The thread reads on and on; the runtime ends all the same, or this test would not.
        drop(input);
        std::mem::forget(writer);
    }
}
