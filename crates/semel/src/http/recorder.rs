//! Records an answer while it passes.

use bytes::{Bytes, BytesMut};
use semel_core::{Effect, Hashing, Payload};
use tokio::time::Instant;

use super::stored::{Form, Head, Piece};
use crate::engine::Permit;
use crate::error::Result;
use crate::receipt::Receipt;
use crate::store::Chunk;

/// How much of an answer is stored at a time. What is shorter is stored in one piece, with the verdict.
const PIECE: usize = 64 * 1024;

/// The stream that an answer is stored as.
const STREAM: u8 = 1;

/// An answer that is recorded.
#[derive(Debug)]
pub(super) struct Recorder {
    head: Head,
    /// What is not stored yet.
    waiting: BytesMut,
    hashing: Hashing,
    size: u64,
    limit: usize,
    appended: bool,
    /// Whether all of it can be kept.
    is_kept: bool,
    last: Instant,
}

impl Recorder {
    pub(super) fn new(head: Head, limit: usize) -> Self {
        let line = head.line();
        let mut recorder = Self {
            head,
            waiting: BytesMut::new(),
            hashing: Hashing::default(),
            size: 0,
            limit: limit.saturating_add(line.len()),
            appended: false,
            is_kept: true,
            last: Instant::now(),
        };
        recorder.put(&line);
        recorder
    }

    fn put(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.hashing.update(bytes);
        self.waiting.extend_from_slice(bytes);
    }

    /// Takes the next piece. What cannot be stored is not kept; that it was done is known all the same.
    pub(super) async fn add(&mut self, permit: &Permit, piece: &Bytes) {
        if !self.is_kept {
            return;
        }
        if self.head.form == Form::Paced {
            let now = Instant::now();
            let line = Piece::line(now - self.last, piece.len());
            self.last = now;
            self.put(line.as_bytes());
        }
        self.put(piece);
        let is_too_long = self.size > self.limit as u64;
        let is_due = self.waiting.len() >= PIECE;
        if is_too_long || is_due && self.append(permit).await.is_err() {
            self.drop_all();
        }
    }

    fn drop_all(&mut self) {
        self.is_kept = false;
        self.waiting = BytesMut::new();
    }

    async fn append(&mut self, permit: &Permit) -> Result<()> {
        let bytes = std::mem::take(&mut self.waiting).to_vec();
        self.appended = true;
        let stream = STREAM;
        permit.append(vec![Chunk { stream, bytes }]).await
    }

    /// Reports the end of it.
    pub(super) async fn finish(
        mut self,
        permit: Permit,
        ok: bool,
        effect: Effect,
    ) -> Result<Receipt> {
        if self.is_kept && self.appended && self.append(&permit).await.is_err() {
            self.drop_all();
        }
        if !self.is_kept {
            let head = self.head.with(Form::Left);
            return permit.finish(ok, effect, Some(head.line())).await;
        }
        if !self.appended {
            return permit.finish(ok, effect, Some(self.waiting.to_vec())).await;
        }
        let payload = Payload {
            digest: self.hashing.finish(),
            size: self.size,
            redacted: false,
        };
        permit.finish_streamed(ok, effect, payload).await
    }
}
