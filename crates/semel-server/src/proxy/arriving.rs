//! The body of a request, whose sender must go on with it: one that does not would keep its place for ever.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use semel::http::BodyError;
use tokio::time::{Instant, Sleep, sleep};

/// How long a sender may be silent amid a body.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The body of a request that fails when nothing comes for too long.
pub(super) struct Arriving {
    body: Body,
    /// Until when something must come; set while somebody waits for it.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Arriving {
    pub(super) const fn new(body: Body) -> Self {
        Self {
            body,
            patience: None,
        }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.patience = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let patience = self
            .patience
            .get_or_insert_with(|| Box::pin(sleep(SILENCE_MAX)));
        ready!(patience.as_mut().poll(context));
        patience.as_mut().reset(Instant::now() + SILENCE_MAX);
        let seconds = SILENCE_MAX.as_secs();
        let why = format!("nothing more of it came within {seconds} s");
        Poll::Ready(Some(Err(why.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_sender_is_waited_for_and_a_silent_one_is_not() {
        let slow = stream::iter(0..3).then(|_| async {
            sleep(SILENCE_MAX / 2).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))
        });
        let silent = stream::pending();
        let mut body = Arriving::new(Body::new(StreamBody::new(slow.chain(silent))));
        for _ in 0..3 {
            let frame = body.frame().await.expect("there is more");
            assert!(frame.is_ok());
        }
        let last = body.frame().await.expect("it is told");
        assert!(last.is_err());
    }
}
