//! Group commit: what waits together is written together, with one sync.
//!
//! Whoever comes while nobody else writes goes the direct way, in its own thread. Whoever comes
//! while a group is being written waits for the next one, which a writer thread takes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::RuntimeFlavor;

/// The most items that may wait; beyond it the store says that it is not available, since memory
/// must stay bounded whatever the load.
pub const QUEUE_MAX: usize = 65_536;

/// The most items of one group: a larger one would hold the other processes up for longer than
/// the sync that it saves.
pub const GROUP_MAX: usize = 512;

/// The longest write after which the next caller may still write in its own thread: a slow disk must
/// not hold a runtime's threads up.
const DIRECT_MAX: Duration = Duration::from_millis(2);

/// Writes groups of items and answers each of them itself.
pub trait Sink: Send + 'static {
    /// What is written.
    type Item: Send;

    /// Gets ready to write without waiting for anybody; `false` when that is not possible now.
    fn try_ready(&mut self) -> bool;

    /// Writes all items, waiting as long as it takes to get ready, and answers each.
    fn write(&mut self, items: &mut Vec<Self::Item>);
}

/// Says that too many items wait already; the item was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overloaded;

struct Shared<S: Sink> {
    state: Mutex<State<S>>,
    work: Condvar,
}

struct State<S: Sink> {
    queue: VecDeque<S::Item>,
    /// The sink, unless somebody is writing with it.
    sink: Option<S>,
    closed: bool,
    /// Whether the last write took longer than a caller's thread may be held up.
    slow: bool,
    /// The sink was lost to a panic: nothing can be written any more.
    broken: bool,
}

/// Lets many callers share the syncs of one [`Sink`].
pub struct Group<S: Sink> {
    shared: Arc<Shared<S>>,
    writer: Option<JoinHandle<()>>,
}

impl<S: Sink> fmt::Debug for Group<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("waiting", &self.shared.lock().queue.len())
            .finish()
    }
}

impl<S: Sink> Shared<S> {
    /// A panic while the lock was held cannot leave the queue half changed, so it is used on.
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Sink> Group<S> {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// Fails when the system refuses another thread.
    pub fn start(name: &str, sink: S) -> std::io::Result<Self> {
        let state = State {
            queue: VecDeque::new(),
            sink: Some(sink),
            closed: false,
            slow: false,
            broken: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let writer = thread.spawn(move || write_groups(&theirs))?;
        Ok(Self {
            shared,
            writer: Some(writer),
        })
    }

    /// Hands an item in: written in this very thread when nobody else waits and `direct` allows
    /// it, by the writer thread otherwise.
    ///
    /// # Errors
    /// [`Overloaded`] when [`QUEUE_MAX`] items wait; the item is not taken.
    pub fn submit(&self, item: S::Item, direct: Direct) -> Result<(), Overloaded> {
        let mut state = self.shared.lock();
        if direct == Direct::Here
            && !state.slow
            && state.queue.is_empty()
            && let Some(sink) = state.sink.take()
        {
            drop(state);
            let mut held = Held {
                shared: &self.shared,
                sink: Some(sink),
                slow: false,
            };
            if held.sink().try_ready() {
                held.write(&mut vec![item]);
                return Ok(());
            }
            drop(held);
            state = self.shared.lock();
        }
        if state.queue.len() >= QUEUE_MAX || state.broken {
            return Err(Overloaded);
        }
        state.queue.push_back(item);
        // Whoever holds the sink looks at the queue before it gives the sink back.
        if state.sink.is_some() {
            self.shared.work.notify_one();
        }
        Ok(())
    }
}

/// The sink while somebody writes with it; given back at the end.
struct Held<'a, S: Sink> {
    shared: &'a Shared<S>,
    sink: Option<S>,
    slow: bool,
}

impl<S: Sink> Held<'_, S> {
    fn sink(&mut self) -> &mut S {
        self.sink.as_mut().expect("the sink is held until the drop")
    }

    fn write(&mut self, items: &mut Vec<S::Item>) {
        let begun = Instant::now();
        self.sink().write(items);
        self.slow = begun.elapsed() > DIRECT_MAX;
    }
}

impl<S: Sink> Drop for Held<'_, S> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if std::thread::panicking() {
            // Those who wait learn it from their dropped items, and nobody waits for ever.
            state.broken = true;
            state.queue.clear();
        } else {
            state.sink = self.sink.take();
            state.slow = self.slow;
        }
        if !state.queue.is_empty() || state.broken {
            self.shared.work.notify_one();
        }
    }
}

/// How an item may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// By the writer thread only: this thread must not block.
    No,
    /// In this thread.
    Here,
}

impl Direct {
    /// Finds out what the calling thread may do: a runtime with one thread must not be blocked, and
    /// one with several can spare one for a sync.
    #[must_use]
    pub fn here() -> Self {
        match tokio::runtime::Handle::try_current() {
            Err(_) => Self::Here,
            Ok(handle) => match handle.runtime_flavor() {
                RuntimeFlavor::MultiThread => Self::Here,
                _ => Self::No,
            },
        }
    }
}

fn write_groups<S: Sink>(shared: &Shared<S>) {
    let mut items = Vec::with_capacity(GROUP_MAX);
    loop {
        let mut state = shared.lock();
        let sink = loop {
            if state.broken || (state.closed && state.queue.is_empty()) {
                return;
            }
            let waiting = !state.queue.is_empty();
            if let Some(sink) = state.sink.take_if(|_| waiting) {
                break sink;
            }
            state = shared
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        };
        let count = state.queue.len().min(GROUP_MAX);
        items.extend(state.queue.drain(..count));
        drop(state);
        let mut held = Held {
            shared,
            sink: Some(sink),
            slow: false,
        };
        held.write(&mut items);
        drop(held);
        items.clear();
    }
}

impl<S: Sink> Drop for Group<S> {
    /// Writes what still waits, then ends the writer thread.
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has nothing left to write; its callers were told by their
            // dropped channels.
            let _ = writer.join();
        }
    }
}
