//! Connections whose other end must take what it asked for: one that does not would keep its place for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long the other end may take nothing.
pub(crate) const TAKES_NOTHING_MAX: Duration = Duration::from_secs(30);

/// A connection that fails when nothing is taken for too long.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    /// Until when what was offered must be taken; set while something is.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self {
            stream,
            patience: None,
        }
    }

    /// Returns what was written, or fails when nothing could be for too long.
    fn within<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.patience = None;
            return written;
        }
        let patience = self
            .patience
            .get_or_insert_with(|| Box::pin(sleep(TAKES_NOTHING_MAX)));
        ready!(patience.as_mut().poll(context));
        patience.as_mut().reset(Instant::now() + TAKES_NOTHING_MAX);
        let text = "the other end takes nothing any more";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.within(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.within(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.within(context, ended)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_for_too_long_fails() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut ours = Patient::new(ours);
        let failed = ours.write_all(&[7; 64]).await.expect_err("nobody reads");
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_waited_for() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Patient::new(ours);
        let reader = tokio::spawn(async move {
            for _ in 0..4 {
                sleep(TAKES_NOTHING_MAX / 2).await;
                theirs
                    .read_exact(&mut [0; 16])
                    .await
                    .expect("it is written");
            }
        });
        ours.write_all(&[7; 64]).await.expect("it is read");
        reader.await.expect("it ends");
    }
}
