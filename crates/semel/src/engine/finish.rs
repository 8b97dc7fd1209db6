//! A future that is finished even when its caller goes away.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Runs a future in its caller, and hands it to the runtime when the caller drops it half-way:
/// a claim or a report that was sent must be followed to its end.
pub(crate) struct Finish<T: Send + 'static> {
    runtime: Handle,
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T: Send + 'static> Finish<T> {
    pub(crate) fn new(runtime: Handle, future: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            runtime,
            future: Some(Box::pin(future)),
        }
    }
}

impl<T: Send + 'static> Future for Finish<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(future) = self.future.as_mut() else {
            return Poll::Pending;
        };
        let ready = future.as_mut().poll(context);
        if ready.is_ready() {
            self.future = None;
        }
        ready
    }
}

impl<T: Send + 'static> Drop for Finish<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.runtime.spawn(async move { drop(future.await) });
        }
    }
}
