//! The body of a request, complete before anything is claimed: in memory, or in a file that nobody else can open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use semel_core::http::{BodyDigest, BodyHasher};
use tokio::task::JoinHandle;

use super::{Body, BodyError};

/// The largest body that is kept in memory: what can be compared as a value.
const MEMORY_MAX: usize = semel_core::http::VALUE_MAX;

/// How much of a file is read and written at a time.
const PIECE: usize = 256 * 1024;

/// How long a caller may send nothing of its body.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// The body of a request.
#[derive(Debug)]
pub(super) struct Received {
    kept: Kept,
    pub(super) digest: BodyDigest,
}

#[derive(Debug)]
enum Kept {
    Memory(Bytes),
    File { file: Arc<File>, size: u64 },
}

/// Why there is no body.
#[derive(Debug)]
pub(super) enum NotReceived {
    /// It is larger than what is taken.
    TooLarge,
    /// It broke off.
    Broken(String),
    /// The file for it cannot be written.
    Spool(io::Error),
}

impl Received {
    /// Receives a body to its end.
    pub(super) async fn new(
        mut body: Body,
        mut hasher: BodyHasher,
        limit: u64,
        spool: &Path,
    ) -> Result<Self, NotReceived> {
        if body.size_hint().lower() > limit {
            return Err(NotReceived::TooLarge);
        }
        let mut pieces = BytesMut::new();
        let mut file: Option<Spool> = None;
        let mut size = 0_u64;
        loop {
            let frame = tokio::time::timeout(SILENT_MAX, body.frame()).await;
            let frame = frame.map_err(|_| {
                let seconds = SILENT_MAX.as_secs();
                NotReceived::Broken(format!("nothing of it came for {seconds} s"))
            })?;
            let piece = match frame {
                None => break,
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => piece,
                    // Trailers of a request are for this hop.
                    Err(_) => continue,
                },
                Some(Err(error)) => return Err(NotReceived::Broken(error.to_string())),
            };
            size += piece.len() as u64;
            if size > limit {
                return Err(NotReceived::TooLarge);
            }
            hasher.update(&piece);
            pieces.extend_from_slice(&piece);
            let is_full = pieces.len() >= PIECE;
            match &mut file {
                Some(file) if is_full => file.add(pieces.split().freeze()).await?,
                None if pieces.len() > MEMORY_MAX => {
                    let mut opened = Spool::open(spool).map_err(NotReceived::Spool)?;
                    opened.add(pieces.split().freeze()).await?;
                    file = Some(opened);
                }
                Some(_) | None => {}
            }
        }
        let kept = match file {
            None => Kept::Memory(pieces.freeze()),
            Some(mut file) => {
                file.add(pieces.freeze()).await?;
                Kept::File {
                    file: file.file,
                    size,
                }
            }
        };
        let digest = hasher.finish();
        Ok(Self { kept, digest })
    }

    /// Returns it as far as it is in memory.
    pub(super) fn bytes(&self) -> Option<&Bytes> {
        match &self.kept {
            Kept::Memory(bytes) => Some(bytes),
            Kept::File { .. } => None,
        }
    }

    /// Makes the body that is sent on.
    pub(super) fn body(&self) -> Body {
        match &self.kept {
            Kept::Memory(bytes) if bytes.is_empty() => Body::empty(),
            Kept::Memory(bytes) => Body::full(bytes.clone()),
            Kept::File { file, size } => Body::new(Reading {
                file: Arc::clone(file),
                at: 0,
                size: *size,
                next: None,
            }),
        }
    }
}

/// A file that grows.
struct Spool {
    file: Arc<File>,
    size: u64,
}

impl Spool {
    /// Makes a file that only this process can read, and that is gone with it.
    fn open(directory: &Path) -> io::Result<Self> {
        let mut number = [0; 16];
        getrandom::fill(&mut number).map_err(io::Error::other)?;
        let name = format!(".semel-body-{:032x}", u128::from_ne_bytes(number));
        let path = directory.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self {
            file: Arc::new(file),
            size: 0,
        })
    }

    async fn add(&mut self, piece: Bytes) -> Result<(), NotReceived> {
        let (file, at) = (Arc::clone(&self.file), self.size);
        self.size += piece.len() as u64;
        let written = tokio::task::spawn_blocking(move || file.write_all_at(&piece, at)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map_err(NotReceived::Spool)
    }
}

/// A body that is read from a file.
struct Reading {
    file: Arc<File>,
    at: u64,
    size: u64,
    next: Option<JoinHandle<io::Result<Bytes>>>,
}

impl http_body::Body for Reading {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.at == self.size {
            return Poll::Ready(None);
        }
        let (file, at) = (Arc::clone(&self.file), self.at);
        let length = usize::try_from(self.size - at).map_or(PIECE, |left| left.min(PIECE));
        let next = self.next.get_or_insert_with(|| {
            tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; length];
                file.read_exact_at(&mut piece, at)?;
                Ok(piece.into())
            })
        });
        let read = ready!(Pin::new(next).poll(context));
        self.next = None;
        let piece = read.map_err(io::Error::other)??;
        self.at += piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.size
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size - self.at)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;
    use semel_core::http::{Compare, Members};

    use super::*;

    fn hasher() -> BodyHasher {
        BodyHasher::new(Compare::Bytes, &Members::default(), None)
    }

    #[tokio::test]
    async fn c068_c079_a_body_of_any_size_comes_out_as_it_went_in() {
        let directory = tempfile::tempdir().expect("there is a place for it");
        for size in [
            0,
            1,
            PIECE,
            MEMORY_MAX,
            MEMORY_MAX + 1,
            5 * PIECE + 7,
            3_000_000,
        ] {
            let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let (one, other) = bytes.split_at(size / 3);
            let pieces = [one.to_vec(), other.to_vec()];
            let pieces = pieces.map(|piece| Ok::<_, BodyError>(Frame::data(Bytes::from(piece))));
            let body = Body::new(StreamBody::new(stream::iter(pieces)));
            let received = Received::new(body, hasher(), u64::MAX, directory.path()).await;
            let received = received.expect("it is complete");
            assert_eq!(received.bytes().is_some(), size <= MEMORY_MAX, "{size}");
            let mut expected = hasher();
            expected.update(&bytes);
            assert_eq!(received.digest, expected.finish(), "{size}");
            for _ in 0..2 {
                let sent = received.body();
                assert_eq!(sent.size_hint().exact(), Some(size as u64));
                let sent = sent.collect().await.expect("it can be read").to_bytes();
                assert_eq!(sent, bytes, "{size}");
            }
        }
        let left = std::fs::read_dir(directory.path()).expect("it is there");
        assert_eq!(left.count(), 0, "nothing is left over");
    }

    #[tokio::test]
    async fn c077_what_is_too_large_is_not_taken() {
        let directory = tempfile::tempdir().expect("there is a place for it");
        let taken = Received::new(Body::full(vec![0; 10]), hasher(), 10, directory.path()).await;
        assert!(taken.is_ok());
        let announced =
            Received::new(Body::full(vec![0; 11]), hasher(), 10, directory.path()).await;
        assert!(matches!(announced, Err(NotReceived::TooLarge)));
        let pieces = [6, 5].map(|size| Ok::<_, BodyError>(Frame::data(Bytes::from(vec![0; size]))));
        let body = Body::new(StreamBody::new(stream::iter(pieces)));
        let unannounced = Received::new(body, hasher(), 10, directory.path()).await;
        assert!(matches!(unannounced, Err(NotReceived::TooLarge)));
    }

    #[tokio::test]
    async fn c078_what_breaks_off_is_no_body() {
        let directory = tempfile::tempdir().expect("there is a place for it");
        let pieces = [
            Ok(Frame::data(Bytes::from("a"))),
            Err(BodyError::from("gone")),
        ];
        let body = Body::new(StreamBody::new(stream::iter(pieces)));
        let received = Received::new(body, hasher(), 10, directory.path()).await;
        assert!(matches!(received, Err(NotReceived::Broken(why)) if why == "gone"));
    }
}
