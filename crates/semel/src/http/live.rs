//! An answer that is under way: what came of it so far, and the rest as it comes.
//!
//! One task follows the upstream and adds what it says; any number of readers take it from the beginning. What is
//! kept has a limit. An answer that grows beyond it is handed on to its first reader only, who then sets the pace.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use super::BodyError;

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All of it came, and is stored; these are its trailers.
    Whole(Option<HeaderMap>),
    /// It broke off: whoever reads it must see that it is not all.
    Broken(String),
}

/// An answer that is under way.
#[derive(Debug)]
pub(crate) struct Live {
    state: Mutex<State>,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    pieces: Vec<Bytes>,
    /// How many bytes were added.
    size: usize,
    /// How many pieces are gone, as nobody may ask for them any more.
    forgotten: usize,
    end: Option<End>,
    /// Those that wait for more, by their numbers.
    wakers: Vec<Option<Waker>>,
    /// How many pieces the first reader took.
    taken: usize,
    first_is_there: bool,
    writer: Option<Waker>,
}

/// How many pieces beyond the limit wait for the first reader.
const AHEAD_MAX: usize = 16;

impl Live {
    /// Makes one of which up to `limit` bytes are kept for those who come later, and its first reader.
    pub(crate) fn new(limit: usize) -> (Arc<Self>, Reader) {
        let live = Arc::new(Self {
            state: Mutex::new(State {
                first_is_there: true,
                wakers: vec![None],
                ..State::default()
            }),
            limit,
        });
        let reader = Reader {
            live: Arc::clone(&live),
            number: 0,
            next: 0,
            has_ended: false,
        };
        (live, reader)
    }

    /// Adds a piece. It waits for the first reader only where more is there than is kept.
    pub(crate) async fn add(&self, piece: Bytes) {
        std::future::poll_fn(|context| {
            let mut state = self.locked();
            let ahead = state.forgotten + state.pieces.len() - state.taken;
            if state.size > self.limit && state.first_is_there && ahead >= AHEAD_MAX {
                state.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        let mut state = self.locked();
        state.size += piece.len();
        state.pieces.push(piece);
        self.forget(&mut state);
        state.wake();
    }

    /// Says how it ended, after its last pieces: whoever reads them finds the end behind them.
    pub(crate) fn end(&self, last: Vec<Bytes>, end: End) {
        let mut state = self.locked();
        state.size += last.iter().map(Bytes::len).sum::<usize>();
        state.pieces.extend(last);
        state.end.get_or_insert(end);
        state.wake();
    }

    /// Returns one more reader, from the beginning; `None` where that is not kept.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.locked();
        if state.forgotten > 0 || state.size > self.limit {
            return None;
        }
        state.wakers.push(None);
        Some(Reader {
            live: Arc::clone(self),
            number: state.wakers.len() - 1,
            next: 0,
            has_ended: false,
        })
    }

    /// Drops what was taken and is beyond what is kept.
    fn forget(&self, state: &mut State) {
        if state.size <= self.limit {
            return;
        }
        let gone = if state.first_is_there {
            state.taken.saturating_sub(state.forgotten)
        } else {
            state.pieces.len()
        };
        state.pieces.drain(..gone);
        state.forgotten += gone;
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake(&mut self) {
        for waker in self.wakers.iter_mut().filter_map(Option::take) {
            waker.wake();
        }
    }
}

/// Somebody who reads an answer that is under way.
#[derive(Debug)]
pub(crate) struct Reader {
    live: Arc<Live>,
    number: usize,
    next: usize,
    has_ended: bool,
}

impl Reader {
    /// Says whether all of an answer was taken that came whole.
    pub(crate) fn has_all(&self) -> bool {
        let state = self.live.locked();
        let all = state.forgotten + state.pieces.len();
        matches!(state.end, Some(End::Whole(_))) && self.next == all
    }
}

impl http_body::Body for Reader {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let reader = self.get_mut();
        if reader.has_ended {
            return Poll::Ready(None);
        }
        let mut state = reader.live.locked();
        let Some(at) = reader.next.checked_sub(state.forgotten) else {
            // It came later and was too slow: what it needs is not kept any more.
            let why = "the answer is longer than what is kept for those who join";
            return Poll::Ready(Some(Err(why.into())));
        };
        if let Some(piece) = state.pieces.get(at).cloned() {
            reader.next += 1;
            if reader.number == 0 {
                state.taken = reader.next;
                reader.live.forget(&mut state);
                if let Some(writer) = state.writer.take() {
                    writer.wake();
                }
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match &state.end {
            Some(End::Whole(trailers)) => {
                reader.has_ended = true;
                let trailers = trailers.clone().map(|it| Ok(Frame::trailers(it)));
                Poll::Ready(trailers)
            }
            Some(End::Broken(why)) => Poll::Ready(Some(Err(why.clone().into()))),
            None => {
                state.wakers[reader.number] = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.live.locked();
        state.wakers[self.number] = None;
        if self.number == 0 {
            // The rest is followed all the same, at the upstream's pace.
            state.first_is_there = false;
            self.live.forget(&mut state);
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
        }
    }
}
