//! One history: everything in it shares this, and only one thing runs at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel::Timestamp;
use semel::clock::Clock as _;
use semel::store::{Change, Commit, NewPayload, StoreError};
use semel_core::clock::{SWEEP_INTERVAL, Stamp, judge};
use semel_core::ledger::{Command, Fence};
use tempfile::TempDir;
use tokio::sync::Notify;

use super::bugs::Bug;
use super::checker::{Checker, Committed};
use super::clock::SimClock;
use super::plan::Plan;
use super::process::{Life, Process, kill_all};
use super::rng::Rng;
use super::shelf::Shelf;
use super::trace::{Coverage, Seen, Trace};
use super::world::{Upstream, World};

/// What all parts of a history share.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) bug: Option<Bug>,
    pub(crate) plan: Plan,
    pub(crate) clock: Arc<SimClock>,
    inner: Mutex<Inner>,
    /// Told when an invariant was broken: the rest of the history does not matter.
    pub(crate) broken: Notify,
    /// Where outcomes that cannot be stored are noted.
    pub(crate) notes: Option<TempDir>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) rng: Rng,
    pub(crate) seen: Coverage,
    pub(crate) trace: Trace,
    pub(crate) shelf: Shelf,
    pub(crate) world: World,
    pub(crate) checker: Checker,
    pub(crate) lives: Vec<Life>,
    pub(crate) captured: Vec<Captured>,
    /// Whether nothing goes wrong any more.
    pub(crate) calm: bool,
    /// Until when the store answers nobody.
    pub(crate) outage_until: Duration,
    upstreams: Vec<Upstream>,
    now: Duration,
    /// How often the clock had jumped ahead when somebody first read this time, and the true time then.
    read: BTreeMap<Timestamp, (u32, Duration)>,
}

/// A command that went over the wire, to be delivered again.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) key: usize,
    pub(crate) command: Command,
    /// What it brought: bytes, or the stream that they were stored in.
    pub(crate) payload: NewPayload,
}

/// The most commands that wait to be delivered again; later ones take the place of any of them.
const CAPTURED_MAX: usize = 64;

/// Makes a directory for notes, in memory where that is possible: they are synced, and nothing
/// here rests on a disk.
fn notes_directory() -> TempDir {
    let directory = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
    directory.expect("a temporary directory")
}

impl Sim {
    /// Makes a history out of a seed; needs a runtime whose time stands still.
    pub(crate) fn new(seed: u64, bug: Option<Bug>, recording: bool) -> Arc<Self> {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng);
        let notes = plan.notes.then(notes_directory);
        let inner = Inner {
            rng,
            seen: Coverage::default(),
            trace: Trace::new(recording),
            shelf: Shelf::default(),
            world: World::new(plan.keys.len()),
            checker: Checker::new(&plan),
            lives: vec![],
            captured: vec![],
            calm: false,
            outage_until: Duration::ZERO,
            upstreams: plan.keys.iter().map(|key| key.upstream).collect(),
            now: Duration::ZERO,
            read: BTreeMap::new(),
        };
        let sim = Arc::new(Self {
            bug,
            plan,
            clock: Arc::new(SimClock::new()),
            inner: Mutex::new(inner),
            broken: Notify::new(),
            notes,
        });
        sim.introduce();
        sim
    }

    /// Says what the history is made of.
    fn introduce(&self) {
        self.with(|s| {
            for key in &self.plan.keys {
                let attempts = key.max_attempts;
                s.say(
                    key.key.as_str(),
                    format_args!(
                        "in doubt: {}; lease {:?}, settles in {:?}, attempts {attempts:?}, {:?}",
                        key.on_doubt.as_str(),
                        key.lease.length(),
                        key.settle_delay,
                        key.upstream,
                    ),
                );
            }
            s.say("sim", format_args!("{:?}", self.plan.rates));
        });
    }

    /// Does something to the history in one step.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now = self.clock.elapsed();
        let answer = work(&mut inner);
        if inner.checker.broken.is_some() {
            self.broken.notify_one();
        }
        answer
    }

    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        self.with(|s| draw(&mut s.rng))
    }

    /// Says yes this many times in a thousand, while things may go wrong.
    pub(crate) fn sometimes(&self, permille: u64) -> bool {
        self.with(|s| !s.calm && s.rng.chance(permille))
    }

    /// Says whether this bug is planted.
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Returns the time by which leases are judged.
    pub(crate) fn now(&self) -> Timestamp {
        if self.has(Bug::WallClockBelieved) {
            return self.clock.read().wall;
        }
        self.with(|s| {
            let now = s.judged(&self.clock);
            let read = (s.checker.disturbances, s.now);
            s.read.entry(now).or_insert(read);
            now
        })
    }

    /// Lets some time pass.
    pub(crate) async fn nap(&self, low: u64, high: u64) {
        let time = self.draw(|rng| rng.millis(low, high));
        tokio::time::sleep(time).await;
    }

    /// A change arrives at the store.
    pub(crate) fn commit(&self, change: Change, by: &Process) -> Result<Commit, StoreError> {
        let Some(key) = self.plan.find(&change.key) else {
            return Err(StoreError::Corrupt("a key that nobody uses".to_owned()));
        };
        let (at, reading) = (self.now(), self.clock.read());
        let stamp = Stamp {
            at,
            boot: reading.boot,
            uptime: reading.uptime,
        };
        self.with(|s| {
            s.capture(key, &change);
            let entry = change.entry.clone();
            let Inner { shelf, rng, .. } = s;
            let (commit, stored) = shelf.commit(change, stamp, self.bug, rng)?;
            let Some(stored) = stored else {
                let late = matches!(commit, Commit::Conflict(_) | Commit::GuardChanged);
                let what = if late {
                    "too late with"
                } else {
                    "acknowledged, not stored:"
                };
                s.say(
                    &by.name,
                    format_args!("is {what} {} on k{key}", entry.command.name()),
                );
                return Ok(commit);
            };
            s.seen.note(Seen::Command(entry.command.name()));
            for event in &entry.events {
                s.seen.note(Seen::Event(*event));
            }
            s.say(
                &by.name,
                format_args!(
                    "{} on k{key}: {:?}, then {:?} with fence {}",
                    entry.command.name(),
                    entry.events,
                    entry.state,
                    entry.fence.0
                ),
            );
            let parent = self.plan.keys[key].parent;
            let parent = parent.map(|parent| s.shelf.record(&self.plan.keys[parent].hash));
            let read = s.read.get(&entry.at).copied();
            let (disturbances, decided) = read.unwrap_or((0, s.now));
            let committed = Committed {
                key,
                entry: &entry,
                before: stored.before.as_deref(),
                after: stored.after.as_deref(),
                parent: parent.as_ref().map(Option::as_deref),
                process: by.id,
                now: s.now,
                decided,
                retention_may_act: s.retention_may_act(),
                disturbances,
            };
            s.checker.committed(&committed, &s.world);
            Ok(commit)
        })
    }

    /// The clocks move, and whoever judges time by them may be misled.
    pub(crate) fn move_clock(&self, what: &'static str, moves: impl FnOnce(&SimClock)) {
        self.with(|s| {
            let before = s.judged(&self.clock);
            moves(&self.clock);
            let after = s.judged(&self.clock);
            s.seen.note(Seen::Clock(what));
            if after > before {
                s.seen.note(Seen::Clock("believed, forward"));
                s.checker.disturbances += 1;
            } else if after < before {
                s.seen.note(Seen::Clock("believed, back"));
            }
            s.say("clock", format_args!("{what}: {before} is now {after}"));
        });
    }

    /// The machine loses its power and comes back.
    pub(crate) fn lose_power(&self) {
        kill_all(self);
        self.move_clock("reboot", SimClock::reboot);
        self.with(|s| {
            s.shelf.lose_power();
            let Inner { checker, shelf, .. } = s;
            checker.after_power_loss(shelf);
        });
    }
}

impl Inner {
    /// Judges the time as every store does.
    fn judged(&self, clock: &SimClock) -> Timestamp {
        judge(self.shelf.stamp.as_ref(), &clock.read())
    }

    pub(crate) fn say(&mut self, who: &str, what: fmt::Arguments<'_>) {
        self.trace.say(self.now, who, what);
    }

    /// Draws whether the store fails now.
    pub(crate) fn store_fails(&mut self, permille: u64) -> bool {
        let out = self.now < self.outage_until;
        !self.calm && (out || self.rng.chance(permille))
    }

    /// Lets the store answer nobody for a while.
    pub(crate) fn go_out(&mut self, time: Duration) {
        self.outage_until = self.now + time;
        self.seen.note(Seen::Did("the store went away"));
        self.say("store", format_args!("answers nobody for {time:?}"));
    }

    /// Reads the mark of the last retention sweep and writes the next one.
    pub(crate) fn mark(&mut self, next: Option<Stamp>) -> Option<Stamp> {
        let stored = self.shelf.mark;
        self.shelf.mark = next.or(stored);
        if next.is_some() {
            self.shelf.marked.get_or_insert(self.now);
        }
        stored
    }

    /// Says whether two sweeps can have agreed on how much time has passed.
    pub(crate) fn retention_may_act(&self) -> bool {
        let marked = self.shelf.marked;
        marked.is_some_and(|marked| self.now.saturating_sub(marked) >= SWEEP_INTERVAL)
    }

    pub(crate) fn upstream(&self, key: usize) -> Upstream {
        self.upstreams[key]
    }

    fn capture(&mut self, key: usize, change: &Change) {
        if self.calm {
            return;
        }
        let captured = Captured {
            key,
            command: change.entry.command.clone(),
            payload: change.payload.clone(),
        };
        if self.captured.len() < CAPTURED_MAX {
            self.captured.push(captured);
        } else {
            let index = self.rng.index(CAPTURED_MAX);
            self.captured[index] = captured;
        }
    }

    /// A process is about to act.
    pub(crate) fn started(
        &mut self,
        process: &Process,
        key: usize,
        fence: Option<Fence>,
        now: Timestamp,
    ) {
        self.say(&process.name, format_args!("acts on k{key} with {fence:?}"));
        let hash = self.checker.hash(key);
        let record = self.shelf.record(&hash);
        self.checker.started(key, fence, record.as_deref(), now);
    }

    /// The world saw an effect.
    pub(crate) fn happened(&mut self, key: usize, fence: Option<Fence>) {
        self.checker.happened(key, fence);
    }
}
