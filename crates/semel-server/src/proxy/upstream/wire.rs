//! The socket under a connection, which knows how many bytes have left.
//!
//! It is the lowest place: what TLS accepts may be written in part before it reports an error, while a socket that
//! reports an error has taken nothing. So "no byte left since" can be wrong in one direction only.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::locked::locked;

/// A connection's socket. It is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Wire(Arc<Mutex<Inner>>);

/// What is known of a wire from elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// None once its connection is over.
    stream: Option<TcpStream>,
    left: u64,
    is_shut: bool,
}

/// What a wire looks like from this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It is open, and everything that came was read.
    Quiet,
    /// It is open, and something came that nobody has read.
    Unread,
    /// The other side has closed it, or it is broken.
    Closed,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> (Self, Gate) {
        let inner = Arc::new(Mutex::new(Inner {
            stream: Some(stream),
            left: 0,
            is_shut: false,
        }));
        (Self(Arc::clone(&inner)), Gate(inner))
    }

    fn with<T>(
        &self,
        poll: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut locked(&self.0).stream {
            Some(stream) => poll(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Writes while the gate is open, and counts what leaves before anybody can ask.
    fn write(
        &self,
        poll: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let inner = &mut *locked(&self.0);
        let Some(stream) = inner.stream.as_mut().filter(|_| !inner.is_shut) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let written = poll(Pin::new(stream));
        if let Poll::Ready(Ok(bytes)) = &written {
            inner.left += *bytes as u64;
        }
        written
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        locked(&self.0).stream = None;
    }
}

impl Gate {
    /// Returns how many bytes have left by now.
    pub(super) fn left(&self) -> u64 {
        locked(&self.0).left
    }

    /// Says whether nothing has left since then. If so, nothing will: the gate is shut in the same moment, and what
    /// lies in somebody's buffer stays there.
    pub(super) fn held_back_since(&self, left: u64) -> bool {
        let mut inner = locked(&self.0);
        let nothing_left = inner.left == left;
        inner.is_shut |= nothing_left;
        nothing_left
    }

    /// Looks at the socket itself: whoever reads it may not have been told yet.
    pub(super) fn look(&self) -> Look {
        let inner = locked(&self.0);
        let Some(stream) = &inner.stream else {
            return Look::Closed;
        };
        let mut byte = [0];
        let seen = recv(
            stream,
            byte.as_mut_slice(),
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        );
        match seen {
            Err(rustix::io::Errno::AGAIN) => Look::Quiet,
            Ok((1.., _)) => Look::Unread,
            Ok((0, _)) | Err(_) => Look::Closed,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(|stream| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(|stream| stream.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(context))
    }
}
