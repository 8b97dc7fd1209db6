//! Workers that take what waits together: whatever came while they were busy goes in one round trip.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::store::group::{GROUP_MAX, QUEUE_MAX};
use crate::store::{Result, Sizes, StoreError};

/// How many items must wait before another worker takes some of them: together they cost less.
const CROWD: usize = 64;

type Work<T> = dyn Fn(Vec<T>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// Where items wait; the worker ends when it is dropped.
pub(super) struct Gate<T> {
    queue: mpsc::Sender<T>,
    items: Arc<Mutex<mpsc::Receiver<T>>>,
    work: Arc<Work<T>>,
    /// How many more may help.
    helpers: Arc<Semaphore>,
    sizes: Arc<Sizes>,
}

impl<T> fmt::Debug for Gate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.queue.max_capacity() - self.queue.capacity();
        f.debug_struct("Gate").field("waiting", &waiting).finish()
    }
}

impl<T: Send + 'static> Gate<T> {
    /// Starts a worker that does the work for all items that wait, up to a group's size. While there is
    /// a crowd, others help, so that there are no more than `workers`.
    pub(super) fn open<F, W>(workers: usize, work: F) -> Self
    where
        F: Fn(Vec<T>) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let (queue, items) = mpsc::channel(QUEUE_MAX);
        let sizes = Arc::new(Sizes::default());
        let counted = Arc::clone(&sizes);
        let gate = Self {
            queue,
            items: Arc::new(Mutex::new(items)),
            work: Arc::new(move |group| {
                counted.add(group.len());
                Box::pin(work(group))
            }),
            helpers: Arc::new(Semaphore::new(workers.saturating_sub(1))),
            sizes,
        };
        let (items, work) = (Arc::clone(&gate.items), Arc::clone(&gate.work));
        tokio::spawn(async move {
            loop {
                let mut group = vec![];
                if items.lock().await.recv_many(&mut group, GROUP_MAX).await == 0 {
                    break;
                }
                // In a task of its own: a panic must not leave those who come later without a worker.
                drop(tokio::spawn(work(group)).await);
            }
        });
        gate
    }

    /// Returns how many items were worked on together.
    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Lets an item wait, unless too many do.
    pub(super) fn enter(&self, item: T) -> Result<()> {
        self.queue.try_send(item).map_err(|_| {
            StoreError::Unavailable("too many callers are waiting for PostgreSQL".to_owned())
        })?;
        if self.queue.max_capacity() - self.queue.capacity() >= CROWD
            && let Ok(turn) = Arc::clone(&self.helpers).try_acquire_owned()
        {
            let (items, work) = (Arc::clone(&self.items), Arc::clone(&self.work));
            tokio::spawn(async move {
                let mut group = vec![];
                let mut items = items.lock().await;
                if items.len() >= CROWD {
                    items.recv_many(&mut group, GROUP_MAX).await;
                    drop(items);
                    work(group).await;
                }
                drop(turn);
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn whoever_comes_after_a_panic_is_served() {
        let gate = Gate::open(1, |group: Vec<Option<oneshot::Sender<()>>>| async move {
            for item in group {
                let answer = item.expect("this one is for the panic");
                answer.send(()).expect("somebody waits");
            }
        });
        gate.enter(None).expect("there is room");
        // Once it was taken, so that the next one comes in another group.
        while gate.queue.capacity() < gate.queue.max_capacity() {
            tokio::task::yield_now().await;
        }
        let (sender, receiver) = oneshot::channel();
        gate.enter(Some(sender)).expect("there is room");
        assert_eq!(receiver.await, Ok(()));
    }
}
