//! What a child wrote, in the order in which it was read.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most output that is kept. Beyond it only its size is known: the effect is never repeated
/// because its output was large.
pub(crate) const OUTPUT_MAX: usize = 8 * 1024 * 1024;

/// The most changes between the two streams that are remembered; a child that mixes them more finely
/// gets all of its standard output replayed before all of its standard error.
const TURNS_MAX: usize = 16 * 1024;

/// How much of the end of standard error is kept where standard output is the result.
const TAIL_MAX: usize = 64 * 1024;

/// What is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    /// All that both streams had, so that it can be written again; or nothing of it.
    #[default]
    Both,
    /// Standard output, and the end of standard error: however much is said there, the result is kept.
    Result,
}

/// The bytes of both streams, and how they took turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    keep: Keep,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Stream and number of bytes, in order.
    turns: Vec<(u8, u64)>,
    /// Whether there were more turns than are remembered.
    unordered: bool,
    pub(crate) stdout_size: u64,
    pub(crate) stderr_size: u64,
}

impl Recording {
    /// Says whether more was written than is kept.
    pub(crate) const fn is_truncated(&self) -> bool {
        let counted = match self.keep {
            Keep::Both => self.stdout_size + self.stderr_size,
            Keep::Result => self.stdout_size,
        };
        counted > OUTPUT_MAX as u64
    }

    /// Says whether only the end of standard error is kept.
    pub(crate) const fn is_tail(&self) -> bool {
        (self.stderr.len() as u64) < self.stderr_size
    }

    /// Adds to what is kept of the end of standard error.
    fn add_tail(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
        // Not with each write, which would move all of it each time.
        if self.stderr.len() > 2 * TAIL_MAX {
            self.stderr.drain(..self.stderr.len() - TAIL_MAX);
        }
        self.unordered = true;
    }

    fn add(&mut self, stream: u8, bytes: &[u8]) {
        let size = bytes.len() as u64;
        let total = if stream == 1 {
            &mut self.stdout_size
        } else {
            &mut self.stderr_size
        };
        *total += size;
        if stream == 2 && self.keep == Keep::Result {
            self.add_tail(bytes);
            return;
        }
        if self.is_truncated() {
            // A part must not pass for the whole: nothing of it is kept.
            (self.stdout, self.turns) = (vec![], vec![]);
            if self.keep == Keep::Both {
                self.stderr = vec![];
            }
            return;
        }
        let kept = if stream == 1 {
            &mut self.stdout
        } else {
            &mut self.stderr
        };
        kept.extend_from_slice(bytes);
        if let Some((last, length)) = self.turns.last_mut()
            && *last == stream
        {
            *length += size;
        } else if self.turns.len() < TURNS_MAX {
            self.turns.push((stream, size));
        } else {
            self.unordered = true;
        }
    }

    /// Returns what was written since it was last asked for; nothing once there is too much to keep.
    pub(crate) fn since(&self, seen: &mut Seen) -> Vec<(u8, Vec<u8>)> {
        let mut news = vec![];
        for (stream, kept, from) in [
            (1, &self.stdout, &mut seen.stdout),
            (2, &self.stderr, &mut seen.stderr),
        ] {
            if let Some(bytes) = kept.get(*from..).filter(|bytes| !bytes.is_empty()) {
                news.push((stream, bytes.to_vec()));
                *from = kept.len();
            }
        }
        news
    }

    /// Returns how the streams took turns; `None` when there were too many.
    pub(crate) fn turns(&self) -> Option<&[(u8, u64)]> {
        (!self.unordered).then_some(&self.turns)
    }
}

/// How much of each stream was asked for.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    stdout: usize,
    stderr: usize,
}

/// A recording that several threads add to.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<Recording>);

impl Shared {
    pub(crate) fn new(keep: Keep) -> Self {
        Self(Mutex::new(Recording {
            keep,
            ..Recording::default()
        }))
    }

    pub(crate) fn add(&self, stream: u8, bytes: &[u8]) {
        self.lock().add(stream, bytes);
    }

    /// See [`Recording::since`].
    pub(crate) fn since(&self, seen: &mut Seen) -> Vec<(u8, Vec<u8>)> {
        self.lock().since(seen)
    }

    /// Takes all that was recorded.
    pub(crate) fn take(&self) -> Recording {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_kept_in_order_and_joined() {
        let mut recording = Recording::default();
        for (stream, bytes) in [(1, "a"), (1, "b"), (2, "c"), (1, "d")] {
            recording.add(stream, bytes.as_bytes());
        }
        assert_eq!(recording.turns(), Some(&[(1, 2), (2, 1), (1, 1)][..]));
        assert_eq!(
            (&*recording.stdout, &*recording.stderr),
            (&b"abd"[..], &b"c"[..])
        );
    }

    #[test]
    fn beyond_the_limit_only_sizes_are_known() {
        let mut recording = Recording::default();
        recording.add(1, &vec![0; OUTPUT_MAX]);
        assert!(!recording.is_truncated());
        recording.add(2, b"x");
        recording.add(1, b"y");
        assert!(recording.is_truncated());
        assert_eq!(recording.stdout.len() + recording.stderr.len(), 0);
        assert_eq!(recording.stdout_size, OUTPUT_MAX as u64 + 1);
    }

    #[test]
    fn however_much_is_said_the_result_is_kept() {
        let shared = Shared::new(Keep::Result);
        shared.add(1, b"{}");
        for _ in 0..200 {
            shared.add(2, &[b'x'; 65_536]);
        }
        shared.add(2, b"the end");
        let recording = shared.take();
        assert!(!recording.is_truncated() && recording.is_tail());
        assert_eq!(recording.stdout, b"{}");
        assert!(recording.stderr.ends_with(b"xxthe end"));
        assert!(recording.stderr.len() <= 2 * TAIL_MAX);
        let shared = Shared::new(Keep::Result);
        shared.add(2, b"why");
        shared.add(1, &vec![0; OUTPUT_MAX + 1]);
        let recording = shared.take();
        assert!(recording.is_truncated() && recording.stdout.is_empty());
        assert_eq!(recording.stderr, b"why");
    }

    #[test]
    fn news_are_told_once() {
        let shared = Shared::default();
        let mut seen = Seen::default();
        shared.add(1, b"one");
        assert_eq!(shared.since(&mut seen), [(1, b"one".to_vec())]);
        assert_eq!(shared.since(&mut seen), []);
        shared.add(2, b"err");
        shared.add(1, b"two");
        let news = [(1, b"two".to_vec()), (2, b"err".to_vec())];
        assert_eq!(shared.since(&mut seen), news);
        shared.add(1, &vec![0; OUTPUT_MAX]);
        assert_eq!(shared.since(&mut seen), []);
    }

    #[test]
    fn too_many_turns_lose_their_order_and_no_bytes() {
        let mut recording = Recording::default();
        for _ in 0..TURNS_MAX {
            recording.add(1, b"o");
            recording.add(2, b"e");
        }
        assert_eq!(recording.turns(), None);
        assert_eq!(
            (recording.stdout.len(), recording.stderr.len()),
            (TURNS_MAX, TURNS_MAX)
        );
    }
}
