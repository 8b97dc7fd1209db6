//! Differential runs: one random stream of commands goes to the model and to every store, and
//! replies and state must be equal at each step.
//!
//! The stream depends on its seed alone, so a seed that shows a difference shows it again.

mod breakers;
mod lane;
mod model;
pub mod planted;
mod random;
mod stream;
pub mod walled;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use semel::store::{Current, INPUT, Store, StoreError, Waiting};
use semel_core::KeyHash;
use semel_core::identity::Kin;
use semel_core::ledger::{Command, Fence, Reply};

pub use self::lane::Lane;
pub use self::model::{Answered, Model};
pub use self::random::Random;
pub use self::stream::Stream;

use crate::conformance::hand::Asked;
use crate::conformance::{Bed, ManualClock};

/// How many of the last commands are shown with a difference.
const SHOWN: usize = 8;

/// A store that did not do what the model did.
#[derive(Debug)]
pub struct Difference {
    /// The seed that shows it again.
    pub seed: u64,
    /// The step at which it showed.
    pub step: usize,
    /// The store.
    pub lane: &'static str,
    /// What differs.
    pub what: String,
    /// The commands that led there, the last one last.
    pub commands: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "SEMEL_DIFF_SEED={} at step {}: {} differs: {}",
            self.seed, self.step, self.lane, self.what
        )?;
        for command in &self.commands {
            writeln!(f, "  {command}")?;
        }
        Ok(())
    }
}

/// How often each command did something, was refused, or found nothing to do.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<&'static str, Counts>);

/// See [`Coverage`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// It was accepted and written.
    pub accepted: u64,
    /// It was refused, in the log or not.
    pub refused: u64,
    /// It was answered, and nothing was written.
    pub answered: u64,
}

impl Coverage {
    fn count(&mut self, asked: &Asked, answered: &Answered) {
        let counts = self.0.entry(asked.command.name()).or_default();
        match (&answered.reply, answered.wrote) {
            (Err(_) | Ok(Reply::Refused(_)), _) => counts.refused += 1,
            (Ok(_), true) => counts.accepted += 1,
            (Ok(_), false) => counts.answered += 1,
        }
    }

    /// Adds what another run covered.
    pub fn add(&mut self, other: &Self) {
        for (name, more) in &other.0 {
            let counts = self.0.entry(name).or_default();
            counts.accepted += more.accepted;
            counts.refused += more.refused;
            counts.answered += more.answered;
        }
    }

    /// Returns the commands that have not yet both succeeded and failed. The two that the rules
    /// never refuse fail by finding nothing to do.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let covered = |name: &&str| {
            let counts = self.0.get(*name).copied().unwrap_or_default();
            let failed = match *name {
                "expire" | "adopt" => counts.answered,
                _ => counts.refused,
            };
            counts.accepted > 0 && failed > 0
        };
        let names = Command::NAMES.into_iter();
        names.filter(|name| !covered(name)).collect()
    }
}

/// Runs one stream of this many commands against stores that share a clock.
///
/// # Errors
/// The first difference.
pub async fn run(
    seed: u64,
    steps: usize,
    clock: &Arc<ManualClock>,
    beds: &[(&'static str, Arc<dyn Bed>)],
) -> Result<Coverage, Box<Difference>> {
    let mut lanes = vec![];
    for (number, (name, bed)) in beds.iter().enumerate() {
        lanes.push(Lane::new(name, Arc::clone(bed), seed, number as u64).await);
    }
    let mut run = Run {
        stream: Stream::new(seed),
        model: Model::new(clock),
        coverage: Coverage::default(),
        commands: vec![],
        kin: BTreeSet::new(),
    };
    for step in 0..steps {
        run.stream.move_time(clock);
        let compared = run.step(&mut lanes).await;
        compared.map_err(|found| run.difference(seed, step, found))?;
    }
    for lane in &mut lanes {
        let compared = run.whole(lane).await;
        compared.map_err(|what| run.difference(seed, steps, (lane.name, what)))?;
    }
    Ok(run.coverage)
}

/// A run under way.
struct Run {
    stream: Stream,
    model: Model,
    coverage: Coverage,
    commands: Vec<String>,
    /// All that were ever entered.
    kin: BTreeSet<Kin>,
}

type Compared<T = ()> = Result<T, String>;

fn same<T: PartialEq + fmt::Debug>(what: &str, expected: T, found: T) -> Compared {
    if expected == found {
        return Ok(());
    }
    Err(format!(
        "{what}\n   model: {expected:?}\n   store: {found:?}"
    ))
}

fn failed(doing: &'static str) -> impl FnOnce(StoreError) -> String {
    move |error| format!("{doing}: {error}")
}

impl Run {
    fn difference(
        &self,
        seed: u64,
        step: usize,
        (lane, what): (&'static str, String),
    ) -> Box<Difference> {
        let from = self.commands.len().saturating_sub(SHOWN);
        Box::new(Difference {
            seed,
            step,
            lane,
            what,
            commands: self.commands[from..].to_vec(),
        })
    }

    async fn step(&mut self, lanes: &mut [Lane]) -> Result<(), (&'static str, String)> {
        if let Some(append) = self.stream.append(&self.model) {
            let (place, fence) = (append.place, append.fence);
            self.model.append(place, fence, &append.chunks);
            for lane in &mut *lanes {
                let store = lane.pick();
                let appended = store.append(place, fence, append.chunks.clone()).await;
                let appended = appended.map_err(failed("a stream"));
                appended.map_err(|what| (lane.name, what))?;
            }
        }
        let asked = self.stream.command(&self.model);
        let before = self.model.log().len();
        let now = self.model.now();
        let answered = self.model.apply(&asked);
        self.commands
            .push(format!("{now} {:?} -> {:?}", asked.command, answered.reply));
        self.coverage.count(&asked, &answered);
        self.stream.hear(&asked, &answered);
        self.kin
            .extend(self.model.record(&asked.key).and_then(Kin::counting));
        let query = self.stream.query(&self.model);
        let waiting = self.stream.waiting(&self.model);
        for lane in lanes {
            let compared = async {
                lane.disturb()
                    .await
                    .map_err(failed("between two commands"))?;
                let applied = lane.apply(&asked).await.map_err(failed("a command"))?;
                let store = lane.pick();
                same("the answer", &answered.reply, &applied.reply)?;
                same("whether it wrote", answered.wrote, applied.wrote)?;
                self.same_record(&asked.key, &applied.current)?;
                self.same_key(&*store, &asked.key).await?;
                self.same_log(&*store, before).await?;
                self.same_kin(&*store).await?;
                self.same_line(&*store, &waiting).await?;
                self.same_list(&*store, query.clone()).await
            };
            let compared = compared.await;
            compared.map_err(|what| (lane.name, what))?;
        }
        Ok(())
    }

    fn same_record(&self, key: &KeyHash, current: &Current) -> Compared {
        let place = match current {
            Current::Absent(_) => None,
            Current::Stored(stored) => Some(stored.place),
        };
        same("the place", self.model.place(key), place)?;
        same("the record", self.model.record(key), current.record())
    }

    async fn same_key(&self, store: &dyn Store, key: &KeyHash) -> Compared {
        let current = store.load(key).await.map_err(failed("loading"))?;
        self.same_record(key, &current)?;
        same("the time", self.model.now(), store.now())?;
        let Current::Stored(stored) = current else {
            return Ok(());
        };
        let at = store.load_at(stored.place).await;
        let at = at.map_err(failed("loading from a place"))?;
        let at = at.map(|stored| stored.record);
        same(
            "what lies at its place",
            self.model.record(key),
            at.as_deref(),
        )?;
        let payload = store.payload(stored.place).await;
        let payload = payload.map_err(failed("loading the payload"))?;
        same("the payload", self.model.payload(key), payload.as_deref())?;
        for fence in [stored.record.fence(), Fence(1), INPUT] {
            let stream = store.stream(stored.place, fence).await;
            let stream = stream.map_err(failed("loading a stream"))?;
            same("a stream", self.model.stream(stored.place, fence), &stream)?;
        }
        Ok(())
    }

    async fn same_log(&self, store: &dyn Store, after: usize) -> Compared {
        let log = store.log(after as u64, 100).await;
        let log = log.map_err(failed("reading the log"))?;
        let end = self.model.log().len().min(after + 100);
        same("the log", &self.model.log()[after..end], &log)
    }

    async fn same_kin(&self, store: &dyn Store) -> Compared {
        for kin in &self.kin {
            let found = store.kin(*kin).await.map_err(failed("reading kin"))?;
            let found = found.into_iter().map(|it| (it.place, it.record)).collect();
            same("kin", self.model.kin(*kin), found)?;
        }
        Ok(())
    }

    async fn same_line(&self, store: &dyn Store, ask: &Waiting) -> Compared {
        let found = store
            .waiting(*ask)
            .await
            .map_err(failed("looking along a line"))?;
        let found = found.into_iter().map(|it| (it.place, it.record)).collect();
        same("the line", self.model.waiting(ask), found)?;
        for lane in [None, Some(ask.after_lane)] {
            let taken = store.taken(ask.queue, lane, 100).await;
            let taken = taken.map_err(failed("counting tasks"))?;
            same(
                "tasks that are taken",
                self.model.taken(ask.queue, lane),
                taken,
            )?;
        }
        Ok(())
    }

    async fn same_list(&self, store: &dyn Store, query: semel::store::Query) -> Compared {
        let (items, next) = self.model.list(&query);
        let page = store.list(query.clone()).await;
        let page = page.map_err(failed("listing"))?;
        let plain = |items: Vec<semel::store::Stored>| -> Vec<_> {
            let records = items.into_iter();
            records
                .map(|stored| (stored.place, stored.record))
                .collect()
        };
        let what = format!("the list for {query:?}");
        same(&what, plain(items), plain(page.items))?;
        same("the next page", next, page.next)
    }

    /// Compares everything, through every handle.
    async fn whole(&self, lane: &mut Lane) -> Compared {
        for store in lane.handles() {
            for key in self.stream.hashes() {
                self.same_key(&**store, &key).await?;
            }
            let mut after = 0;
            while after < self.model.log().len() {
                self.same_log(&**store, after).await?;
                after += 100;
            }
            let everything = semel::store::Query {
                states: semel_core::ledger::StateKind::ALL.to_vec(),
                limit: 100,
                ..semel::store::Query::default()
            };
            self.same_list(&**store, everything).await?;
        }
        let engine = semel::Engine::builder().store(lane.pick());
        let engine = engine.sweep_every(None).start().await;
        let engine = engine.map_err(|error| format!("an engine does not start: {error}"))?;
        let verified = engine.verify().await;
        let verified = verified.map_err(|error| format!("it cannot be verified: {error}"))?;
        same("what verifying finds", None, verified.difference)?;
        same(
            "the verified log",
            self.model.log().len() as u64,
            verified.entries,
        )
    }
}
