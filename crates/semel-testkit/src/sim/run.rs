//! Runs histories: one, one twice, or many on all cores.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::agent::Agent;
use super::bugs::Bug;
use super::checker::{Invariant, Violation};
use super::history::Sim;
use super::trace::{Coverage, Trace};
use super::{agent, finale, operator, trouble};

/// What became of one history.
#[derive(Debug)]
pub struct Report {
    /// The seed that it was made from.
    pub seed: u64,
    /// The first invariant that was broken.
    pub violation: Option<Violation>,
    /// A hash over everything that happened.
    pub hash: u64,
    /// What it went through.
    pub coverage: Coverage,
    /// Everything that happened, if that was asked for.
    pub lines: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        match &self.violation {
            Some(violation) => write!(
                f,
                "seed {}: {violation}\nrun it again with SEMEL_SIM_SEED={}",
                self.seed, self.seed
            ),
            None => write!(f, "seed {}: every invariant held", self.seed),
        }
    }
}

/// No history takes longer than this on its own clock: two years are its longest end.
const LONGEST: Duration = Duration::from_secs(5 * 365 * 86_400);

/// How long a history pauses between its two rounds: retention acts on two sweeps an hour apart.
const HOURS: Duration = Duration::from_secs(2 * 60 * 60 + 60);

/// Runs the history of a seed, with or without a planted bug.
///
/// # Panics
/// When the simulator itself is broken, or the system refuses a runtime.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>, recording: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime for one history");
    let sim = runtime.block_on(async {
        let sim = Sim::new(seed, bug, recording);
        tokio::select! {
            biased;
            () = sim.broken.notified() => {}
            () = play(&sim) => {}
            () = tokio::time::sleep(LONGEST) => {
                sim.with(|s| s.checker.fail(Invariant::Progress, "it never ends"));
            }
        }
        sim
    });
    let (trace, coverage, violation) = sim.with(|s| {
        let trace = std::mem::replace(&mut s.trace, Trace::new(false));
        (trace, s.seen.clone(), s.checker.broken.clone())
    });
    drop(runtime);
    Report {
        seed,
        violation,
        hash: trace.hash(),
        coverage,
        lines: trace.into_lines(),
    }
}

async fn play(sim: &Arc<Sim>) {
    round(sim).await;
    if sim.plan.second_round {
        let sweeper = Agent::start(sim, "sweep", false).await;
        for pause in [Duration::ZERO, HOURS] {
            tokio::time::sleep(pause).await;
            if let Some(sweeper) = &sweeper {
                // A store that fails now is swept by the next one.
                drop(sweeper.engine.sweep().await);
            }
        }
        round(sim).await;
    }
    finale::conclude(sim).await;
}

/// Everybody does what they do, until all have done it.
async fn round(sim: &Arc<Sim>) {
    let mut tasks = JoinSet::new();
    for number in 0..sim.plan.agents {
        tasks.spawn(agent::live(Arc::clone(sim), number));
    }
    for number in 0..sim.plan.operators {
        tasks.spawn(operator::operate(Arc::clone(sim), number));
    }
    tasks.spawn(trouble::repeat(Arc::clone(sim)));
    tasks.spawn(trouble::tend(Arc::clone(sim)));
    tasks.spawn(trouble::meddle(Arc::clone(sim)));
    tasks.spawn(trouble::slay(Arc::clone(sim)));
    while let Some(ended) = tasks.join_next().await {
        ended.expect("nothing in the simulator panics");
    }
}

/// What became of many histories.
#[derive(Debug)]
pub struct Summary {
    /// How many were run.
    pub histories: u64,
    /// What they went through together.
    pub coverage: Coverage,
    /// The first one that broke an invariant, told in full.
    pub failure: Option<Report>,
}

/// Runs the histories of many seeds on this many threads, until one breaks an invariant.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_many(seeds: Range<u64>, bug: Option<Bug>, threads: usize) -> Summary {
    let (next, done) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let shared = Mutex::new((Coverage::default(), None::<u64>));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut coverage = Coverage::default();
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let report = run(seed, bug, false);
                    done.fetch_add(1, Ordering::Relaxed);
                    coverage.merge(&report.coverage);
                    if report.violation.is_some() {
                        stop.store(true, Ordering::Relaxed);
                        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                        let first = shared.1.map_or(seed, |other| other.min(seed));
                        shared.1 = Some(first);
                    }
                }
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                shared.0.merge(&coverage);
            });
        }
    });
    let (coverage, failed) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    Summary {
        histories: done.into_inner(),
        coverage,
        // The same seed breaks in the same way, so it can be told afterwards.
        failure: failed.map(|seed| run(seed, bug, true)),
    }
}

/// How a planted bug showed.
#[derive(Debug, Default)]
pub struct Caught {
    /// How many histories were run.
    pub histories: u64,
    /// The lowest seed found for each invariant, and what happened there.
    pub by: BTreeMap<Invariant, (u64, String)>,
}

/// Runs histories with a planted bug until every invariant that it is said to break has caught it.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn hunt(bug: Bug, seeds: Range<u64>, threads: usize) -> Caught {
    let next = AtomicU64::new(seeds.start);
    let caught = Mutex::new(Caught::default());
    let lock = || caught.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = |caught: &Caught| {
        let mut wanted = bug.breaks().iter();
        wanted.any(|invariant| !caught.by.contains_key(invariant))
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while wanted(&lock()) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let report = run(seed, Some(bug), false);
                    let mut caught = lock();
                    caught.histories += 1;
                    if let Some(Violation { invariant, what }) = report.violation {
                        let first = caught
                            .by
                            .entry(invariant)
                            .or_insert_with(|| (seed, what.clone()));
                        if seed < first.0 {
                            *first = (seed, what);
                        }
                    }
                }
            });
        }
    });
    caught.into_inner().unwrap_or_else(PoisonError::into_inner)
}
