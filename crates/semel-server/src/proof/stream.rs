//! A connection that tells what it sees.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use semel::core::identity::Observation;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::{Sight, Streams, Turns};

/// How long a connection that this side closes waits for the peer to take its last answer.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// How often it is looked at meanwhile.
const LINGER_LOOK: Duration = Duration::from_millis(5);

/// A connection that tells what passes.
pub(crate) struct Watched<S> {
    stream: S,
    sight: Arc<dyn Sight>,
    closing: Option<Closing>,
}

impl<S> fmt::Debug for Watched<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("sight", &self.sight)
            .finish_non_exhaustive()
    }
}

/// A connection that was closed from here and waits for the peer to take its last answer.
struct Closing {
    until: Instant,
    next: Pin<Box<Sleep>>,
}

impl<S> Watched<S> {
    pub(crate) fn turns(stream: S, turns: Arc<Turns>) -> Self {
        Self::new(stream, turns)
    }

    pub(crate) fn streams(stream: S, streams: Arc<Streams>) -> Self {
        Self::new(stream, streams)
    }

    fn new(stream: S, sight: Arc<dyn Sight>) -> Self {
        Self {
            stream,
            sight,
            closing: None,
        }
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        // The last look, while there is a socket to look at.
        self.sight.look();
        self.sight.closed();
    }
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Waits until the peer has taken the last answer, or has left, or for long enough.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let closing = self.closing.get_or_insert_with(|| Closing {
            until: Instant::now() + LINGER_MAX,
            next: Box::pin(sleep(LINGER_LOOK)),
        });
        loop {
            if self.sight.is_settled() || Instant::now() >= closing.until {
                return Poll::Ready(());
            }
            let mut scratch = [0; 1_024];
            let mut scratch = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(context, &mut scratch) {
                Poll::Ready(Ok(())) if scratch.filled().is_empty() => {
                    self.sight.over(Observation::Closed);
                }
                // It is not waited for any more.
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => self.sight.over(end_of(&error)),
                Poll::Pending => {
                    ready!(closing.next.as_mut().poll(context));
                    closing.next.as_mut().reset(Instant::now() + LINGER_LOOK);
                }
            }
        }
    }
}

/// Says how a connection ended that can be read no more.
fn end_of(error: &io::Error) -> Observation {
    // Many close an encrypted connection without the words for it.
    if error.kind() == io::ErrorKind::UnexpectedEof {
        Observation::Closed
    } else {
        Observation::Reset
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // What was acknowledged was so before whatever is read now.
        self.sight.look();
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        match &read {
            Ok(()) if buffer.filled().len() > before => {
                self.sight.heard(&buffer.filled()[before..])
            }
            Ok(()) if buffer.remaining() > 0 => self.sight.over(Observation::Closed),
            Ok(()) => {}
            Err(error) => self.sight.over(end_of(error)),
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, sight, .. } = &mut *self;
        let mut write = || Pin::new(&mut *stream).poll_write(context, bytes);
        let written = sight.written_by(&[IoSlice::new(bytes)], &mut write);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, sight, .. } = &mut *self;
        let mut write = || Pin::new(&mut *stream).poll_write_vectored(context, pieces);
        let written = sight.written_by(pieces, &mut write);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        let flushed = self.noted(flushed);
        if let Poll::Ready(Ok(())) = flushed {
            self.sight.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        self.poll_linger(context).map(Ok)
    }
}

impl<S> Watched<S> {
    fn noted<T>(&self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &done {
            self.sight.over(Observation::Reset);
        }
        done
    }
}
