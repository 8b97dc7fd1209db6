//! A connection whose first bytes are looked at before it is known who reads them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// A connection whose first bytes may have been read.
#[derive(Debug)]
pub(crate) struct Begun<S> {
    stream: S,
    /// What was read and is to be read again.
    first: Vec<u8>,
}

impl<S> Begun<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self {
            stream,
            first: vec![],
        }
    }
}

impl<S: AsyncRead + Unpin> Begun<S> {
    /// Says whether the connection begins with these words. No more is waited for than it takes to know.
    pub(crate) async fn begins_with(&mut self, words: &[u8]) -> io::Result<bool> {
        while words.starts_with(&self.first) && self.first.len() < words.len() {
            let missing = words.len() - self.first.len();
            let mut limited = (&mut self.stream).take(missing as u64);
            if limited.read_buf(&mut self.first).await? == 0 {
                return Ok(false);
            }
        }
        Ok(self.first == words)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..count]);
        self.first.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn nothing_is_lost_and_no_more_is_waited_for_than_it_takes() {
        for (said, words, begins) in [
            (&b"PRI * and more"[..], &b"PRI *"[..], true),
            (b"PRI *", b"PRI *", true),
            (b"PUT", b"PRI *", false),
            (b"POST / HTTP/1.1", b"PRI *", false),
            (b"G", b"PRI *", false),
        ] {
            let (ours, mut theirs) = tokio::io::duplex(64);
            for byte in said {
                theirs.write_all(&[*byte]).await.expect("there is room");
            }
            let mut begun = Begun::new(ours);
            assert_eq!(begun.begins_with(words).await.expect("it reads"), begins);
            drop(theirs);
            let mut read = vec![];
            begun.read_to_end(&mut read).await.expect("it reads");
            assert_eq!(read, said);
        }
    }

    #[tokio::test]
    async fn a_connection_that_ends_does_not_begin_so() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        theirs.write_all(b"PR").await.expect("there is room");
        drop(theirs);
        let mut begun = Begun::new(ours);
        assert!(!begun.begins_with(b"PRI *").await.expect("it reads"));
    }
}
