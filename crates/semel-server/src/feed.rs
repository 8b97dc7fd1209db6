//! The log for those who follow it: read once, kept for a while, and shared by all streams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel::store::PAGE_MAX;
use semel::view::EventView;
use semel::{Engine, Events, Namespace};
use tokio::sync::watch;

/// How many of the newest events are kept for those who follow.
const KEPT_MAX: usize = 8_192;

/// How often the log is looked at while somebody follows it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The pause after the store failed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// The most pages of the log that one answer looks through: behind a wall there may be few events
/// between many of others.
const LOG_PAGES_MAX: usize = 16;

/// The log, for those who follow it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feed {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    newest: watch::Sender<u64>,
    followers: AtomicUsize,
}

/// The newest events.
#[derive(Debug, Default)]
struct Kept {
    /// All events after this number, up to the newest, are here.
    after: u64,
    newest: u64,
    events: VecDeque<Arc<EventView>>,
    /// Whether a task looks at the log.
    running: bool,
}

/// What a follower gets.
#[derive(Debug)]
pub(crate) enum Next {
    Events(Vec<EventView>),
    /// There is nothing to tell for now.
    Nothing,
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    pub(crate) fn reader(&self, engine: &Engine) -> Reader {
        Reader {
            engine: engine.clone(),
            names: Events::new(engine),
        }
    }

    /// Follows the log from a number on, or from now.
    pub(crate) async fn follow(
        &self,
        engine: &Engine,
        after: Option<u64>,
    ) -> semel::Result<Follower> {
        let end = engine.last_entry().await?;
        // What lies beyond the end was never told: nobody is to be kept waiting for it.
        let cursor = after.map_or(end, |after| after.min(end));
        self.shared.followers.fetch_add(1, Ordering::Relaxed);
        let follower = Follower {
            shared: Arc::clone(&self.shared),
            changed: self.shared.newest.subscribe(),
            reader: self.reader(engine),
            cursor,
        };
        let mut kept = self.shared.kept();
        if !kept.running {
            kept.running = true;
            // From the end on, whoever asks: one who is far behind catches up by itself.
            (kept.after, kept.newest) = (end, end);
            kept.events.clear();
            drop(kept);
            tokio::spawn(look(Arc::clone(&self.shared), self.reader(engine), end));
        }
        Ok(follower)
    }
}

/// Reads the log for all who follow it, as long as somebody does.
async fn look(shared: Arc<Shared>, mut reader: Reader, mut cursor: u64) {
    loop {
        if shared.followers.load(Ordering::Relaxed) == 0 {
            let mut kept = shared.kept();
            // Somebody may have come meanwhile, and relies on this task.
            if shared.followers.load(Ordering::Relaxed) == 0 {
                kept.running = false;
                return;
            }
        }
        let pause = match reader.read(cursor).await {
            Ok((events, end)) if end > cursor => {
                cursor = end;
                let mut kept = shared.kept();
                kept.events.extend(events.into_iter().map(Arc::new));
                kept.newest = cursor;
                while kept.events.len() > KEPT_MAX {
                    if let Some(dropped) = kept.events.pop_front() {
                        kept.after = dropped.seq;
                    }
                }
                drop(kept);
                shared.newest.send_replace(cursor);
                Duration::ZERO
            }
            Ok(_) => LOOK_EVERY,
            Err(error) => {
                tracing::warn!(%error, "the log cannot be followed");
                FAILED_PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Reads the log and finds the keys of its entries.
#[derive(Debug)]
pub(crate) struct Reader {
    engine: Engine,
    names: Events,
}

impl Reader {
    /// Reads a page of the log; returns the events and up to which number they go.
    async fn read(&mut self, after: u64) -> semel::Result<(Vec<EventView>, u64)> {
        let page = self.engine.store().log(after, PAGE_MAX).await?;
        let end = page.last().map_or(after, |logged| logged.seq);
        let mut events = Vec::with_capacity(page.len());
        for logged in &page {
            events.push(self.names.view(logged).await?);
        }
        Ok((events, end))
    }

    /// Reads the events behind a wall; returns them and, if there may be more, where to go on.
    pub(crate) async fn page(
        mut self,
        namespace: &Namespace,
        after: u64,
        limit: usize,
    ) -> semel::Result<(Vec<EventView>, Option<u64>)> {
        let mut items = vec![];
        let mut cursor = after;
        for _ in 0..LOG_PAGES_MAX {
            let (events, end) = self.read(cursor).await?;
            if end == cursor {
                return Ok((items, None));
            }
            for event in events {
                if event.namespace.as_ref() == Some(namespace) {
                    if items.len() == limit {
                        let next = items.last().map(|event: &EventView| event.seq);
                        return Ok((items, next));
                    }
                    items.push(event);
                }
            }
            cursor = end;
        }
        Ok((items, Some(cursor)))
    }
}

/// One who follows the log.
#[derive(Debug)]
pub(crate) struct Follower {
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    reader: Reader,
    /// Everything up to this number was seen.
    cursor: u64,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.followers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Follower {
    /// Waits for the next events behind a wall. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self, namespace: &Namespace, limit: usize) -> Next {
        loop {
            if let Some(events) = self.at_hand(namespace, limit) {
                return Next::Events(events);
            }
            if self.is_behind() {
                return self.catch_up(namespace).await;
            }
            if self.changed.changed().await.is_err() {
                // The feed lives as long as its followers.
                return Next::Nothing;
            }
        }
    }

    /// Takes what is kept; `None` when there is nothing new, or it lies further back.
    fn at_hand(&mut self, namespace: &Namespace, limit: usize) -> Option<Vec<EventView>> {
        let kept = self.shared.kept();
        if self.cursor < kept.after || self.cursor >= kept.newest {
            return None;
        }
        let first = kept
            .events
            .partition_point(|event| event.seq <= self.cursor);
        let mut taken = vec![];
        for event in kept.events.range(first..) {
            if taken.len() == limit {
                return Some(taken);
            }
            self.cursor = event.seq;
            if event.namespace.as_ref() == Some(namespace) {
                taken.push(EventView::clone(event));
            }
        }
        self.cursor = kept.newest;
        Some(taken)
    }

    fn is_behind(&self) -> bool {
        self.cursor < self.shared.kept().after
    }

    /// Reads what is not kept any more.
    async fn catch_up(&mut self, namespace: &Namespace) -> Next {
        match self.reader.read(self.cursor).await {
            Ok((events, end)) => {
                self.cursor = end;
                let ours = |event: &EventView| event.namespace.as_ref() == Some(namespace);
                Next::Events(events.into_iter().filter(ours).collect())
            }
            Err(error) => {
                tracing::warn!(%error, "the log cannot be read for a stream");
                tokio::time::sleep(FAILED_PAUSE).await;
                Next::Nothing
            }
        }
    }
}
