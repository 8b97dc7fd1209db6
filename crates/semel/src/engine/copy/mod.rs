//! Copying a ledger from one store to another, by replaying its log.
//!
//! ```text
//! copy ──▶ verify ──▶ close the source ──▶ copy the rest ──▶ drain ──▶ compare the rest ──▶ adopt
//!            └──▶ a snapshot ends here: the source goes on, the target can only be read
//! ```
//!
//! The target is a copy, which nobody else may write, from before its first entry until it is adopted;
//! the source is closed before the last entries are read. So no key can be begun in both. What is
//! interrupted goes on when the same copy is started again: the target remembers how far it is.
//!
//! What takes long is done while the source is in use; once it is closed, only what has changed since is
//! looked at.

mod carry;
mod compare;
mod plan;
mod principal_key;
mod tokens;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use semel_core::ledger::{Entry, StateKind};
use semel_core::{KeyHash, Label};
use tokio::time::{Instant, sleep};

use self::carry::Carrier;
use self::compare::Changed;
use self::plan::Plan;
use super::{Adopted, Difference, Engine, Verified};
use crate::error::{Error, Result};
use crate::store::{Logged, Moved, Origin, PAGE_MAX, Query, Stage, Store, StoreError};

/// How many log entries are under way at once: enough that stores write large groups, and few enough
/// to be kept in memory.
const WINDOW: usize = 4 * PAGE_MAX;

/// How often the log is read to its end for an entry that takes an answer away: it is there at the first
/// time, but may bring others that are missing.
const PRESENT_ROUNDS_MAX: usize = 64;

/// How often a closed source is asked whether its attempts have ended.
const DRAIN_PAUSE: Duration = Duration::from_millis(50);

/// What a copy is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The target goes on with the ledger: the source is closed, the target is adopted.
    Move {
        /// How long attempts that run in the closed source are waited for.
        drain: Duration,
        /// What the source calls the target from then on; it is shown to people.
        shown: String,
        /// Who moves the ledger.
        by: Label,
    },
    /// The source goes on, and the target can only be read.
    Snapshot,
}

/// What a copy is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The log is copied while the source is in use.
    Copying,
    /// The target is verified and compared with the source, which is still in use.
    Verifying,
    /// The source takes no begins from now on, and what it took before is copied.
    Closing,
    /// Attempts that run in the source may report.
    Draining,
    /// What has changed since it was verified is compared.
    Comparing,
    /// The target's fences are raised, and what ran is in doubt.
    Adopting,
}

impl Phase {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Copying => "copying",
            Self::Verifying => "verifying",
            Self::Closing => "closing",
            Self::Draining => "draining",
            Self::Comparing => "comparing",
            Self::Adopting => "adopting",
        }
    }
}

/// How far a copy is, and what it came to.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    /// The phases that were gone through, and how long each took; the last one may be under way.
    pub phases: Vec<(Phase, Duration)>,
    /// Log entries that were copied.
    pub entries: u64,
    /// Log entries that the target had already, from a copy that was interrupted.
    pub skipped: u64,
    /// The number of the last entry that was copied.
    pub through: u64,
    /// The number of the source's last entry.
    pub end: u64,
    /// Records that were compared with the source's.
    pub records: u64,
    /// Tokens that were brought along.
    pub tokens: u64,
    /// Attempts that still run in the closed source.
    pub running: u64,
    /// What verifying the target found.
    pub verified: Option<Verified>,
    /// What adopting it did.
    pub adopted: Option<Adopted>,
    /// The first thing in which the target is not what the source is; it was not adopted then.
    pub difference: Option<Difference>,
    /// Whether there was nothing to do: the ledger had moved there before.
    pub repeated: bool,
}

/// A copy of one store into another.
struct Copying<'a, W> {
    from: &'a Arc<dyn Store>,
    to: &'a Engine,
    carrier: Arc<Carrier>,
    origin: Origin,
    /// Entries that an interrupted copy left beyond its mark, in the order of each key.
    there: HashMap<KeyHash, VecDeque<Entry>>,
    changed: Changed,
    watch: W,
    report: Copied,
    since: Instant,
}

impl Engine {
    /// Copies this ledger into another store, which was opened with [`Engine::open_copy`], and tells
    /// now and then how far it is.
    ///
    /// # Errors
    /// Refuses a target that holds something else, before anything is written. When a store fails,
    /// the same call goes on where this one stopped.
    pub async fn copy_to(
        &self,
        to: &Self,
        way: &Way,
        watch: impl FnMut(&Copied),
    ) -> Result<Copied> {
        let (source, target) = (self.store(), to.store());
        let plan = Plan::make(source, target, *way == Way::Snapshot).await?;
        let Plan::Go(origin) = plan else {
            return Ok(Copied {
                repeated: true,
                ..Copied::default()
            });
        };
        let carrier = Arc::new(Carrier::new(self, to));
        let mut copy = Copying {
            from: source,
            to,
            there: HashMap::new(),
            changed: Changed::default(),
            report: Copied {
                through: origin.through,
                ..Copied::default()
            },
            carrier,
            origin,
            watch,
            since: Instant::now(),
        };
        if copy.origin.stage != Stage::Adopting {
            let whole = match way {
                Way::Snapshot => copy.snapshot().await?,
                Way::Move { drain, shown, .. } => copy.bring(*drain, shown).await?,
            };
            if !whole {
                return Ok(copy.ended());
            }
        }
        if let Way::Move { by, .. } = way {
            copy.adopt(by).await?;
        }
        Ok(copy.ended())
    }
}

impl<W: FnMut(&Copied)> Copying<'_, W> {
    /// Copies what the source's log holds now; returns whether all agrees.
    async fn snapshot(&mut self) -> Result<bool> {
        self.enter(Phase::Copying);
        self.begin().await?;
        let vanishing = || {
            let text = "answers vanish from the source faster than they can be copied";
            Error::from(StoreError::Unavailable(text.to_owned()))
        };
        if !self.copy_present().await? {
            return Err(vanishing());
        }
        self.enter(Phase::Verifying);
        if !self.verify().await? {
            return Ok(false);
        }
        // Verifying may have copied more.
        if !self.carrier.misses_nothing() {
            return Err(vanishing());
        }
        self.bring_tokens().await?;
        self.bring_principal_key().await?;
        self.note(Stage::Whole).await?;
        Ok(true)
    }

    /// Brings everything to the target, and closes the source on the way; returns whether all agrees.
    async fn bring(&mut self, drain: Duration, shown: &str) -> Result<bool> {
        self.enter(Phase::Copying);
        self.begin().await?;
        // Nearly all of it: a source in use is never caught up with.
        self.catch_up(|_, read| read < WINDOW).await?;
        let early = self.copy_present().await?;
        if early {
            self.enter(Phase::Verifying);
            if !self.verify().await? {
                return Ok(false);
            }
            self.catch_up(|_, read| read < WINDOW).await?;
        }
        self.enter(Phase::Closing);
        let moved = Moved {
            to: shown.to_owned(),
            id: self.to.store().id().await?,
        };
        self.from.close(moved).await?;
        self.copy_rest().await?;
        self.enter(Phase::Draining);
        self.drain(drain).await?;
        if !early {
            self.copy_rest().await?;
            self.enter(Phase::Verifying);
            if !self.verify().await? {
                return Ok(false);
            }
        }
        self.enter(Phase::Comparing);
        self.report.difference = self.compare_rest().await?;
        Ok(self.report.difference.is_none())
    }

    /// Raises the target's fences and opens it.
    async fn adopt(&mut self, by: &Label) -> Result<()> {
        self.enter(Phase::Adopting);
        // From here on the target's entries are its own.
        self.note(Stage::Adopting).await?;
        // The source makes none any more; what it has revoked until now is revoked there, too.
        self.bring_tokens().await?;
        self.bring_principal_key().await?;
        let (to, report, watch) = (self.to, &mut self.report, &mut self.watch);
        let tell = |adopted: &Adopted| {
            report.adopted = Some(*adopted);
            watch(report);
        };
        let adopted = to.adopt_while(by.clone(), tell).await?;
        self.report.adopted = Some(adopted);
        Ok(())
    }

    /// Makes the target a copy of this source, and learns what an interrupted copy left there.
    async fn begin(&mut self) -> Result<()> {
        let to = self.to.store();
        to.become_copy().await?;
        self.there = self.carrier.there(self.origin.end).await?;
        // Noted with the old numbers: what was left there lies beyond them.
        let origin = Origin {
            stage: Stage::Filling,
            ..self.origin.clone()
        };
        to.origin(Some(origin)).await?;
        self.report.end = self.from.end().await?;
        Ok(())
    }

    /// Copies what is in the log now, and more while an answer is missing: somebody has taken it away
    /// since, and the log says so by now. Returns whether none is.
    async fn copy_present(&mut self) -> Result<bool> {
        for _ in 0..PRESENT_ROUNDS_MAX {
            let end = self.from.end().await?;
            self.catch_up(|through, _| through >= end).await?;
            if self.carrier.misses_nothing() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Copies until there is nothing left in the log.
    async fn copy_rest(&mut self) -> Result<()> {
        self.catch_up(|_, read| read == 0).await?;
        match self.there.keys().next() {
            None => Ok(()),
            Some(_) => Err(Error::InvalidInput(
                "the target holds operations that are not from this source".to_owned(),
            )),
        }
    }

    /// Copies the log, window by window, until it is enough by the last number and the window's size.
    async fn catch_up(&mut self, enough: impl Fn(u64, usize) -> bool) -> Result<()> {
        let mut window = read(self.from, self.origin.through).await?;
        loop {
            let size = window.len();
            let Some(last) = window.last().map(|logged| logged.seq) else {
                return Ok(());
            };
            self.changed
                .add(window.iter().filter_map(|logged| logged.place));
            let mine = self.carrier.sorted(window, &mut self.there).await?;
            self.report.skipped += mine.skipped;
            self.report.entries += mine.entries;
            // The next window is read while this one is written.
            let (carried, next) = tokio::join!(
                Arc::clone(&self.carrier).carry(mine.by_key),
                read(self.from, last)
            );
            carried?;
            self.origin.through = last;
            self.report.through = last;
            // What is left of an interrupted copy must still be found if this one is, too.
            if self.there.is_empty() {
                self.note(Stage::Filling).await?;
            }
            self.report.end = self.report.end.max(last);
            self.tell();
            window = next?;
            if enough(last, size) {
                return Ok(());
            }
        }
    }

    /// Notes how far the target is, when nothing is under way.
    async fn note(&mut self, stage: Stage) -> Result<()> {
        let to = self.to.store();
        self.origin.end = to.end().await?;
        self.origin.stage = stage;
        to.origin(Some(self.origin.clone())).await?;
        Ok(())
    }

    /// Waits until nothing runs in the source, or for as long as it may take.
    async fn drain(&mut self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            self.report.running = running(self.from).await?;
            self.tell();
            if self.report.running == 0 || Instant::now() >= deadline {
                return Ok(());
            }
            sleep(DRAIN_PAUSE).await;
        }
    }

    /// Verifies the target and compares it with the source, which may be in use.
    async fn verify(&mut self) -> Result<bool> {
        self.changed.begin();
        let verified = self.to.verify().await?;
        self.report.difference = verified.difference.clone();
        self.report.verified = Some(verified);
        if self.report.difference.is_none() {
            self.report.difference = self.compare_all().await?;
        }
        Ok(self.report.difference.is_none())
    }

    fn enter(&mut self, phase: Phase) {
        self.close_phase();
        self.report.phases.push((phase, Duration::ZERO));
        self.tell();
    }

    fn close_phase(&mut self) {
        if let Some((_, took)) = self.report.phases.last_mut() {
            *took = self.since.elapsed();
        }
        self.since = Instant::now();
    }

    fn tell(&mut self) {
        (self.watch)(&self.report);
    }

    fn ended(mut self) -> Copied {
        self.close_phase();
        self.report
    }
}

/// Reads the next entries of a log.
async fn read(store: &Arc<dyn Store>, after: u64) -> Result<Vec<Logged>> {
    let mut window: Vec<Logged> = vec![];
    while window.len() < WINDOW {
        let after = window.last().map_or(after, |logged| logged.seq);
        let page = store.log(after, PAGE_MAX).await?;
        if page.is_empty() {
            break;
        }
        window.extend(page);
    }
    Ok(window)
}

/// Counts the attempts that run in a store and whose lease has not ended.
async fn running(store: &Arc<dyn Store>) -> Result<u64> {
    let mut query = Query {
        states: vec![StateKind::Running],
        oldest_first: true,
        limit: PAGE_MAX,
        ..Query::default()
    };
    let mut count = 0;
    loop {
        let page = store.list(query.clone()).await?;
        let now = store.now();
        let alive = page.items.iter().filter(|stored| {
            let operation = stored.record.operation();
            operation.is_some_and(|operation| operation.kind_at(now) == StateKind::Running)
        });
        count += alive.count() as u64;
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return Ok(count),
        }
    }
}

fn damaged(seq: u64, what: &str) -> Error {
    Error::Store(StoreError::Corrupt(format!(
        "log entry {seq} of the source: {what}"
    )))
}
