//! Group commit: what waits together is written together, with one sync.
//!
//! Whoever comes while nobody else writes goes the direct way, in its own thread. Whoever comes
//! while a group is being written waits for the next one, which a writer thread takes. The writer
//! may itself have to wait for others who share the sink; what waits with it is given up after a
//! while, as those others may have been stopped.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::RuntimeFlavor;

use super::Sizes;

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

    /// For how long items wait for the sink to get ready.
    const PATIENCE: Duration = Duration::MAX;

    /// Gets ready to write without waiting for anybody; `false` when that is not possible now.
    fn try_ready(&mut self) -> bool;

    /// Gets ready to write, however long it takes.
    fn ready(&mut self) {}

    /// Writes all items, having got ready, and answers each.
    fn write(&mut self, items: &mut Vec<Self::Item>);

    /// Answers an item that has waited for too long; it will not be written.
    fn give_up(item: Self::Item) {
        drop(item);
    }
}

/// Says why an item was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Too many items wait already.
    Overloaded,
    /// The writer has waited for longer than anybody shall wait.
    Stuck,
}

struct Shared<S: Sink> {
    state: Mutex<State<S>>,
    work: Condvar,
    /// Wakes whoever looks after the waiting items.
    watch: Condvar,
    /// Wakes whoever closes the group.
    end: Condvar,
    sizes: Sizes,
}

struct State<S: Sink> {
    queue: VecDeque<S::Item>,
    /// The sink, unless somebody is writing with it.
    sink: Option<S>,
    /// Since when the writer waits to get ready.
    waits_since: Option<Instant>,
    /// Somebody looks after those who wait with it.
    watched: bool,
    closed: bool,
    /// The writer thread has ended.
    ended: bool,
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

impl<S: Sink> State<S> {
    /// Says how much longer items wait for a sink that is not ready; `None` when nobody waits.
    fn patience_left(&self) -> Option<Duration> {
        let since = self.waits_since?;
        Some(S::PATIENCE.saturating_sub(since.elapsed()))
    }

    /// Says whether the writer has waited for longer than anybody shall wait.
    fn is_stuck(&self) -> bool {
        self.patience_left() == Some(Duration::ZERO)
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
            waits_since: None,
            watched: false,
            closed: false,
            ended: false,
            slow: false,
            broken: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            watch: Condvar::new(),
            end: Condvar::new(),
            sizes: Sizes::default(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let writer = thread.spawn(move || write_groups(&theirs))?;
        Ok(Self {
            shared,
            writer: Some(writer),
        })
    }

    /// Returns how many items were written together.
    pub fn sizes(&self) -> &Sizes {
        &self.shared.sizes
    }

    /// Hands an item in: written in this very thread when nobody else waits and `direct` allows
    /// it, by the writer thread otherwise.
    ///
    /// # Errors
    /// Says why the item is not taken; [`QUEUE_MAX`] items may wait.
    pub fn submit(&self, item: S::Item, direct: Direct) -> Result<(), Refused> {
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
            return Err(Refused::Overloaded);
        }
        if state.is_stuck() {
            return Err(Refused::Stuck);
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
        self.shared.sizes.add(items.len());
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
            self.shared.end.notify_all();
            self.shared.watch.notify_all();
        } else {
            state.sink = self.sink.take();
            state.slow = self.slow;
        }
        if !state.queue.is_empty() || state.broken {
            self.shared.work.notify_one();
        }
    }
}

tokio::task_local! {
    /// Set while calls are made that belong together.
    static TOGETHER: ();
}

/// Makes many calls that belong together, such as those of one request: none of them goes to the disk on
/// its own, so that they share its syncs.
pub async fn together<F: Future>(calls: F) -> F::Output {
    TOGETHER.scope((), calls).await
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
    /// one with several can spare one for a sync. What belongs together waits for each other.
    #[must_use]
    pub fn here() -> Self {
        if TOGETHER.try_with(|()| ()).is_ok() {
            return Self::No;
        }
        match tokio::runtime::Handle::try_current() {
            Err(_) => Self::Here,
            Ok(handle) => match handle.runtime_flavor() {
                RuntimeFlavor::MultiThread => Self::Here,
                _ => Self::No,
            },
        }
    }
}

fn write_groups<S: Sink>(shared: &Arc<Shared<S>>) {
    let mut items = Vec::with_capacity(GROUP_MAX);
    loop {
        let mut state = shared.lock();
        let sink = loop {
            if state.broken || (state.closed && state.queue.is_empty()) {
                state.ended = true;
                shared.end.notify_all();
                shared.watch.notify_all();
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
        drop(state);
        let mut held = Held {
            shared,
            sink: Some(sink),
            slow: false,
        };
        get_ready(shared, held.sink());
        // Whoever has come meanwhile is written too; whoever was given up is not here any more.
        let mut state = shared.lock();
        let count = state.queue.len().min(GROUP_MAX);
        items.extend(state.queue.drain(..count));
        drop(state);
        held.write(&mut items);
        drop(held);
        items.clear();
    }
}

/// Waits until the sink is ready, while somebody looks after those who wait with it.
fn get_ready<S: Sink>(shared: &Arc<Shared<S>>, sink: &mut S) {
    if sink.try_ready() {
        return;
    }
    let mut state = shared.lock();
    state.waits_since = Some(Instant::now());
    if !state.watched {
        let theirs = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("semel-watch".to_owned());
        // Without a thread for it, the items wait as long as the writer does.
        state.watched = thread.spawn(move || watch(&theirs)).is_ok();
    }
    drop(state);
    sink.ready();
    shared.lock().waits_since = None;
}

/// Gives up what waits with the writer when it has waited for too long.
///
/// A wait that ends in time wakes nobody: under load there are many, and the one that lasts when
/// this thread wakes by itself is looked at just as well.
fn watch<S: Sink>(shared: &Shared<S>) {
    let mut state = shared.lock();
    let given_up = loop {
        match state.patience_left().filter(|_| !state.broken) {
            None => break VecDeque::new(),
            Some(Duration::ZERO) => break std::mem::take(&mut state.queue),
            Some(left) => {
                let (woken, _) = shared
                    .watch
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner);
                state = woken;
            }
        }
    };
    // Whoever comes while the writer still waits is refused at once.
    state.watched = false;
    drop(state);
    shared.end.notify_all();
    given_up.into_iter().for_each(S::give_up);
}

impl<S: Sink> Drop for Group<S> {
    /// Writes what still waits, then ends the writer thread.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.work.notify_one();
        while !state.ended && !state.broken && !state.is_stuck() {
            state = self
                .shared
                .end
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let stuck = state.is_stuck();
        drop(state);
        // One that is stuck has nothing left to write, and ends when it gets ready at last.
        if let Some(writer) = self.writer.take().filter(|_| !stuck) {
            // A writer that panicked has nothing left to write; its callers were told by their
            // dropped channels.
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A sink that tells which items came together, and waits to be let on.
    struct Told {
        groups: Sender<Vec<u32>>,
        go_on: Option<Receiver<()>>,
        ready: bool,
    }

    impl Sink for Told {
        type Item = u32;

        fn try_ready(&mut self) -> bool {
            self.ready
        }

        fn write(&mut self, items: &mut Vec<u32>) {
            assert!(!items.contains(&13), "an unlucky number");
            self.groups.send(items.clone()).expect("somebody listens");
            if let Some(go_on) = &self.go_on {
                go_on.recv().expect("somebody lets it on");
            }
        }
    }

    fn group(held: bool, ready: bool) -> (Group<Told>, Receiver<Vec<u32>>, Sender<()>) {
        let (groups, told) = channel();
        let (let_on, go_on) = channel();
        let go_on = held.then_some(go_on);
        let sink = Told {
            groups,
            go_on,
            ready,
        };
        (
            Group::start("test", sink).expect("a thread starts"),
            told,
            let_on,
        )
    }

    #[test]
    fn a_lone_item_is_written_in_its_callers_thread_before_submit_returns() {
        let (group, told, _let_on) = group(false, true);
        group.submit(1, Direct::Here).expect("there is room");
        assert_eq!(told.try_recv(), Ok(vec![1]));
    }

    #[test]
    fn what_comes_while_a_group_is_written_is_written_together() {
        let (group, told, let_on) = group(true, true);
        group.submit(1, Direct::No).expect("there is room");
        assert_eq!(told.recv(), Ok(vec![1]));
        for item in 2..=5 {
            group.submit(item, Direct::Here).expect("there is room");
        }
        let_on.send(()).expect("it waits");
        assert_eq!(told.recv(), Ok(vec![2, 3, 4, 5]));
        let_on.send(()).expect("it waits");
    }

    #[test]
    fn a_sink_that_is_not_ready_leaves_the_item_to_the_writer_thread() {
        let (group, told, _let_on) = group(false, false);
        group.submit(7, Direct::Here).expect("there is room");
        assert_eq!(told.recv(), Ok(vec![7]));
    }

    #[test]
    fn groups_and_the_queue_are_bounded() {
        let (group, told, let_on) = group(true, true);
        group.submit(0, Direct::No).expect("there is room");
        assert_eq!(told.recv(), Ok(vec![0]));
        for _ in 0..QUEUE_MAX {
            group.submit(1, Direct::No).expect("there is room");
        }
        assert_eq!(group.submit(1, Direct::No), Err(Refused::Overloaded));
        let_on.send(()).expect("it waits");
        assert_eq!(told.recv().map(|items| items.len()), Ok(GROUP_MAX));
        // The rest would wait to be let on one by one: ending the sender ends the sink.
        drop((let_on, told));
    }

    #[test]
    fn dropping_the_group_writes_what_still_waits() {
        let (group, told, let_on) = group(true, true);
        group.submit(1, Direct::No).expect("there is room");
        assert_eq!(told.recv(), Ok(vec![1]));
        group.submit(2, Direct::No).expect("there is room");
        (0..2).for_each(|_| let_on.send(()).expect("it waits"));
        drop(group);
        assert_eq!(told.try_recv(), Ok(vec![2]));
    }

    #[test]
    fn a_panic_ends_the_group_instead_of_letting_its_callers_wait() {
        let (group, _told, _let_on) = group(false, false);
        group.submit(13, Direct::No).expect("there is room");
        // The writer thread marks the group while it unwinds.
        while !group.shared.lock().broken {
            std::thread::yield_now();
        }
        assert_eq!(group.submit(1, Direct::Here), Err(Refused::Overloaded));
    }

    /// A sink whose turn comes only when it is let on.
    struct Waits {
        turn: Receiver<()>,
        told: Sender<(u32, bool)>,
    }

    impl Sink for Waits {
        type Item = (u32, Sender<(u32, bool)>);

        const PATIENCE: Duration = Duration::from_millis(50);

        fn try_ready(&mut self) -> bool {
            false
        }

        fn ready(&mut self) {
            // A test that has ended lets everybody go.
            let _ended = self.turn.recv();
        }

        fn write(&mut self, items: &mut Vec<Self::Item>) {
            for (item, _) in items.drain(..) {
                self.told.send((item, true)).expect("somebody listens");
            }
        }

        fn give_up((item, told): Self::Item) {
            told.send((item, false)).expect("somebody listens");
        }
    }

    #[test]
    fn what_waits_for_too_long_is_given_up_and_never_written() {
        let (let_on, turn) = channel();
        let (told, heard) = channel();
        let sink = Waits {
            turn,
            told: told.clone(),
        };
        let group = Group::start("test", sink).expect("a thread starts");
        for item in 1..=2 {
            let taken = group.submit((item, told.clone()), Direct::Here);
            taken.expect("there is room");
        }
        assert_eq!(heard.recv(), Ok((1, false)));
        assert_eq!(heard.recv(), Ok((2, false)));
        // Whoever comes now is refused at once, until the turn has come.
        let refused = group.submit((3, told.clone()), Direct::Here);
        assert_eq!(refused, Err(Refused::Stuck));
        let_on.send(()).expect("it waits");
        while group.shared.lock().waits_since.is_some() {
            std::thread::yield_now();
        }
        let taken = group.submit((4, told.clone()), Direct::Here);
        taken.expect("the turn has come");
        let_on.send(()).expect("it waits");
        assert_eq!(heard.recv(), Ok((4, true)));
        drop(group);
        assert!(heard.try_recv().is_err(), "nothing else was written");
    }

    #[test]
    fn closing_a_group_whose_turn_does_not_come_takes_no_longer_than_its_patience() {
        let (let_on, turn) = channel();
        let (told, heard) = channel();
        let sink = Waits {
            turn,
            told: told.clone(),
        };
        let group = Group::start("test", sink).expect("a thread starts");
        let taken = group.submit((1, told), Direct::Here);
        taken.expect("there is room");
        drop(group);
        assert_eq!(heard.recv(), Ok((1, false)));
        drop(let_on);
    }
}
