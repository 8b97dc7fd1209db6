//! What is under way here, by its namespace and key: a request that comes meanwhile can join an answer that streams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::{Key, KeyHash, Namespace};
use tokio::sync::watch;

use super::live::{Live, Reader};
use super::stored::Head;

/// Everything that is under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<KeyHash, watch::Receiver<Option<Streaming>>>>>);

/// An answer that streams.
#[derive(Clone, Debug)]
pub(super) struct Streaming {
    head: Arc<Head>,
    live: Arc<Live>,
}

/// One that is under way; when it is dropped, it is over.
#[derive(Debug)]
pub(super) struct Course {
    running: Running,
    operation: KeyHash,
    streaming: watch::Sender<Option<Streaming>>,
}

impl Running {
    fn locked(&self) -> MutexGuard<'_, HashMap<KeyHash, watch::Receiver<Option<Streaming>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note that an operation is under way.
    pub(super) fn enter(&self, namespace: &Namespace, key: &Key) -> Course {
        let operation = KeyHash::of(namespace, key);
        let (streaming, watched) = watch::channel(None);
        self.locked().insert(operation, watched);
        Course {
            running: self.clone(),
            operation,
            streaming,
        }
    }

    /// Waits for the answer to stream, and joins it. It never returns where there is none to join.
    pub(super) async fn join(&self, namespace: &Namespace, key: &Key) -> (Arc<Head>, Reader) {
        let operation = KeyHash::of(namespace, key);
        let watched = self.locked().get(&operation).cloned();
        if let Some(mut watched) = watched
            && let Ok(streaming) = watched.wait_for(Option::is_some).await
            && let Some(Streaming { head, live }) = streaming.as_ref()
            && let Some(reader) = live.join()
        {
            return (Arc::clone(head), reader);
        }
        std::future::pending().await
    }
}

impl Course {
    /// Lets others join the answer.
    pub(super) fn streams(&self, head: Head, live: &Arc<Live>) {
        let (head, live) = (Arc::new(head), Arc::clone(live));
        self.streaming.send_replace(Some(Streaming { head, live }));
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        let mut running = self.running.locked();
        // A later attempt may have come meanwhile.
        let is_own = running
            .get(&self.operation)
            .is_some_and(|it| it.same_channel(&self.streaming.subscribe()));
        if is_own {
            running.remove(&self.operation);
        }
    }
}
