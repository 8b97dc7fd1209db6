//! Workers that take what waits together: whatever came while they were busy goes in one round trip.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use crate::store::group::{GROUP_MAX, QUEUE_MAX};
use crate::store::{Result, StoreError};

/// Where items wait; the workers end when it is dropped.
#[derive(Debug)]
pub(super) struct Gate<T> {
    queue: mpsc::Sender<T>,
}

impl<T: Send + 'static> Gate<T> {
    /// Starts workers, each of which does the work for all items that wait, up to a group's size.
    pub(super) fn open<F, W>(workers: usize, work: F) -> Self
    where
        F: Fn(Vec<T>) -> W + Clone + Send + 'static,
        W: Future<Output = ()> + Send,
    {
        let (queue, items) = mpsc::channel(QUEUE_MAX);
        let items = Arc::new(Mutex::new(items));
        for _ in 0..workers {
            let (items, work) = (Arc::clone(&items), work.clone());
            tokio::spawn(async move {
                loop {
                    let mut group = vec![];
                    if items.lock().await.recv_many(&mut group, GROUP_MAX).await == 0 {
                        break;
                    }
                    work(group).await;
                }
            });
        }
        Self { queue }
    }

    /// Lets an item wait, unless too many do.
    pub(super) fn enter(&self, item: T) -> Result<()> {
        self.queue.try_send(item).map_err(|_| {
            StoreError::Unavailable("too many callers are waiting for PostgreSQL".to_owned())
        })
    }
}
