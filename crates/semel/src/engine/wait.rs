//! Waiting for an operation that another caller carries out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use semel_core::KeyHash;
use tokio::sync::Notify;

use super::Inner;

/// How soon a waiter looks again when nothing wakes it: another process may have settled.
pub(crate) const POLL_FIRST: Duration = Duration::from_millis(5);

/// The longest pause between two looks.
pub(crate) const POLL_MAX: Duration = Duration::from_millis(250);

/// The most keys that are waited for at once; beyond it waiters only poll.
const WAITED_MAX: usize = 65_536;

/// The pause before a store is listened to again whose connection was lost.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// Wakes those who wait for what other nodes do, as long as the engine lives.
pub(super) async fn listen(inner: Weak<Inner>) {
    loop {
        let Some(store) = inner.upgrade().map(|inner| Arc::clone(&inner.ledger.store)) else {
            return;
        };
        match store.listen().await {
            Ok(None) => return,
            Ok(Some(mut heard)) => {
                drop(store);
                while let Some(key) = heard.recv().await {
                    let Some(inner) = inner.upgrade() else { return };
                    inner.ledger.waiters.wake(&key);
                }
            }
            // Waiters poll until it works again.
            Err(_) => drop(store),
        }
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
}

/// Those who wait, by key.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Mutex<HashMap<KeyHash, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    wake: Arc<Notify>,
    count: usize,
}

/// One who waits; deregistered when dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    key: KeyHash,
    wake: Arc<Notify>,
    registered: bool,
}

impl Waiters {
    /// Registers before the caller looks, so that no wake-up falls in between.
    pub(crate) fn register(&self, key: KeyHash) -> Waiter<'_> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITED_MAX && !waiting.contains_key(&key) {
            return Waiter {
                waiters: self,
                key,
                wake: Arc::default(),
                registered: false,
            };
        }
        let entry = waiting.entry(key).or_insert_with(|| Waiting {
            wake: Arc::new(Notify::new()),
            count: 0,
        });
        entry.count += 1;
        let wake = Arc::clone(&entry.wake);
        Waiter {
            waiters: self,
            key,
            wake,
            registered: true,
        }
    }

    pub(crate) fn wake(&self, key: &KeyHash) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = waiting.get(key) {
            entry.wake.notify_waiters();
        }
    }
}

impl Waiter<'_> {
    /// Waits for a wake-up, at most this long. The future must exist before the caller looks.
    pub(crate) fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.wake.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if !self.registered {
            return;
        }
        let mut waiting = self
            .waiters
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = waiting.get_mut(&self.key) {
            entry.count -= 1;
            if entry.count == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}
