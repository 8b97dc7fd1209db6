//! The body of an answer that tells when it came to its end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::Line;

/// The body of an answer that is watched.
pub(super) struct Given {
    body: Body,
    /// There until the body has ended.
    line: Option<Line>,
}

impl Given {
    pub(super) const fn new(body: Body, line: Option<Line>) -> Self {
        Self { body, line }
    }
}

impl HttpBody for Given {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let has_ended = match &frame {
            None => true,
            // Nobody asks again then.
            Some(Ok(_)) => self.body.is_end_stream(),
            Some(Err(_)) => false,
        };
        if has_ended && let Some(line) = self.line.take() {
            line.ended();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            // Nobody wanted the rest of it, or there was none.
            line.abandoned();
        }
    }
}
