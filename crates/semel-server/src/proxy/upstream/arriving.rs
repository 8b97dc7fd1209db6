//! The body of an answer, on its way.

use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use semel::http::BodyError;
use tokio::time::{Instant, Sleep, sleep};

use super::failure::words;
use super::http1::Lease;
use super::http2::Track;
use super::pool::Pool;

/// What an answer comes on.
#[derive(Debug)]
pub(super) enum Carrier {
    /// A connection of its own, and where it goes afterwards.
    Line(Lease, Weak<Pool>),
    /// A place on a connection that others use as well.
    Track(Track),
}

/// A body that is still coming. When it is read to its end, its connection is free for the next request; when it is
/// dropped before that, or breaks off, the connection is closed, or the stream is reset.
pub(super) struct Arriving {
    /// None once it broke off.
    body: Option<Incoming>,
    carrier: Option<Carrier>,
    silence_max: Duration,
    silence: Option<Pin<Box<Sleep>>>,
}

impl Arriving {
    pub(super) fn new(body: Incoming, carrier: Carrier, silence_max: Duration) -> Self {
        let mut arriving = Self {
            body: Some(body),
            carrier: Some(carrier),
            silence_max,
            silence: None,
        };
        if arriving.is_end_stream() {
            arriving.complete();
        }
        arriving
    }

    /// Frees what it came on.
    fn complete(&mut self) {
        match self.carrier.take() {
            Some(Carrier::Line(lease, pool)) => lease.give_back(&pool),
            Some(Carrier::Track(track)) => drop(track),
            None => {}
        }
    }

    fn break_off(&mut self, why: String) -> BodyError {
        self.body = None;
        self.carrier = None;
        why.into()
    }

    /// Says whether nothing came for too long; wakes the reader when that is so.
    fn is_silent(&mut self, context: &mut Context<'_>) -> bool {
        let silence_max = self.silence_max;
        let silence = self
            .silence
            .get_or_insert_with(|| Box::pin(sleep(silence_max)));
        silence.as_mut().poll(context).is_ready()
    }

    /// Takes note that something came.
    fn heard(&mut self) {
        if let Some(silence) = &mut self.silence {
            silence.as_mut().reset(Instant::now() + self.silence_max);
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.heard();
                if self.is_end_stream() {
                    self.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let why = format!("the answer broke off: {}", words(&error));
                Poll::Ready(Some(Err(self.break_off(why))))
            }
            Poll::Ready(None) => {
                self.complete();
                Poll::Ready(None)
            }
            Poll::Pending if self.is_silent(context) => {
                let seconds = self.silence_max.as_secs_f64();
                let why = format!("the answer broke off: nothing came for {seconds} s");
                Poll::Ready(Some(Err(self.break_off(why))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, Body::size_hint)
    }
}
