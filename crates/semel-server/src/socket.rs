//! A connection's socket, of either kind, and one that others may ask while it is used.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::unread::unread;

/// What a socket is asked for to find out whether its peer has left; that it is broken is always told.
#[cfg(target_os = "linux")]
const GOING: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const GOING: PollFlags = PollFlags::HUP;

/// The socket of a connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// A socket that can be asked from elsewhere how it stands. It is closed when its connection drops it, as any
/// other: whoever asks does not keep it.
#[derive(Debug)]
pub(crate) struct Shared(Arc<Mutex<Counted>>);

/// Asks how a socket stands.
#[derive(Clone, Debug)]
pub(crate) struct Look(Weak<Mutex<Counted>>);

#[derive(Debug)]
struct Counted {
    socket: Socket,
    /// How many bytes were written.
    written: u64,
}

/// How a peer left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It closed its side in good order.
    Closed,
    /// The connection was reset.
    Reset,
}

impl Shared {
    pub(crate) fn new(socket: Socket) -> Self {
        Self(Arc::new(Mutex::new(Counted { socket, written: 0 })))
    }

    pub(crate) fn look(&self) -> Look {
        Look(Arc::downgrade(&self.0))
    }

    fn with<T>(&self, poll: impl FnOnce(Pin<&mut Socket>) -> T) -> T {
        poll(Pin::new(&mut locked(&self.0).socket))
    }

    fn write(
        &self,
        write: impl FnOnce(Pin<&mut Socket>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut counted = locked(&self.0);
        let written = write(Pin::new(&mut counted.socket));
        if let Poll::Ready(Ok(count)) = written {
            counted.written += count as u64;
        }
        written
    }
}

impl Look {
    /// Says how many of the bytes that were written the peer has not taken yet; `None` where nobody can tell.
    pub(crate) fn untaken(&self) -> Option<usize> {
        let socket = self.0.upgrade()?;
        unread(&locked(&socket).socket)
    }

    /// Says how many bytes were written; all of them, once the socket is gone.
    pub(crate) fn written(&self) -> u64 {
        self.0
            .upgrade()
            .map_or(u64::MAX, |socket| locked(&socket).written)
    }

    /// Says how many of the bytes that were written the peer has taken; `None` where nobody can tell.
    pub(crate) fn taken(&self) -> Option<u64> {
        let socket = self.0.upgrade()?;
        let counted = locked(&socket);
        let untaken = unread(&counted.socket)?;
        // A local socket counts what it keeps with something on top.
        Some(counted.written.saturating_sub(untaken as u64))
    }

    /// Says how the peer left, if it did, without reading what it may have sent before.
    pub(crate) fn left(&self) -> Option<Left> {
        let socket = self.0.upgrade()?;
        let counted = locked(&socket);
        let mut asked = [PollFd::new(&counted.socket, GOING)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut asked, Some(&now)).ok()?;
        let found = asked[0].revents();
        if found.contains(PollFlags::ERR) {
            return Some(Left::Reset);
        }
        found
            .intersects(GOING | PollFlags::HUP)
            .then_some(Left::Closed)
    }

    /// Says whether the peer sent something that was not read yet.
    pub(crate) fn has_sent(&self) -> bool {
        let Some(socket) = self.0.upgrade() else {
            return false;
        };
        let waiting = rustix::io::ioctl_fionread(&locked(&socket).socket);
        waiting.is_ok_and(|bytes| bytes > 0)
    }
}

fn locked(socket: &Mutex<Counted>) -> MutexGuard<'_, Counted> {
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|socket| socket.poll_read(context, buffer))
    }
}

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(|socket| socket.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(|socket| socket.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        // Sockets of both kinds can.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|socket| socket.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|socket| socket.poll_shutdown(context))
    }
}
