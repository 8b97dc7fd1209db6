//! The ledger over HTTP beside the engine in the same process, on the same store, taking turns.

pub(crate) mod contender;
pub(crate) mod process;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::contender::Http;
use self::process::Process;
use crate::core::{REPLAYS, WARM_UP, median};
use crate::disk::Scratch;
use crate::engines::{Contender, Semel};
use crate::keys::Keys;
use crate::load::{self, Load, Measured};
use crate::machine::Watch;
use crate::postgres::server::Server;
use crate::progress::say;

/// How many calls go in one array.
pub(crate) const TOGETHER: usize = 32;

/// The connections of the run that shows the memory.
const MEMORY_CALLERS: u32 = 64;

/// How often the memory is looked at.
const MEMORY_EVERY: Duration = Duration::from_secs(15);

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) semel: PathBuf,
    pub(crate) seconds: Duration,
    pub(crate) rounds: u32,
    pub(crate) callers: Vec<u32>,
}

/// Which way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    InProcess,
    Http,
    HttpBatch,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::InProcess, Self::Http, Self::HttpBatch];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Http => "http",
            Self::HttpBatch => "http-batch",
        }
    }

    /// How many cycles or replays one call makes.
    #[expect(clippy::cast_precision_loss, reason = "it is a small number")]
    const fn each(self) -> f64 {
        match self {
            Self::InProcess | Self::Http => 1.0,
            Self::HttpBatch => TOGETHER as f64,
        }
    }
}

/// Where the ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Sqlite,
    Postgres,
}

impl Place {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// One way with one number of callers; latencies are those of whole requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) cycles_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) replays_per_s: f64,
    pub(crate) replay_p50_us: f64,
    pub(crate) replay_p99_us: f64,
    /// What the server had when it had done nothing yet, and at the end.
    pub(crate) idle_bytes: f64,
    pub(crate) bytes: f64,
}

/// A line of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) place: Place,
    pub(crate) way: Way,
    pub(crate) callers: u32,
    pub(crate) figures: Figures,
}

pub(crate) fn run(scratch: &Scratch, server: &Server, plan: &Plan) -> Result<Vec<Row>> {
    let mut rows = vec![];
    for place in [Place::Sqlite, Place::Postgres] {
        for callers in plan.callers.iter().copied() {
            let mut samples = vec![vec![]; Way::ALL.len()];
            for round in 0..plan.rounds {
                // Each round begins with another way: none always follows the same one.
                for turn in 0..Way::ALL.len() {
                    let at = (turn + round as usize) % Way::ALL.len();
                    let way = Way::ALL[at];
                    let watch = Watch::with_server(server.process()?);
                    let measured = measure(scratch, server, plan, place, way, callers);
                    let (place, name) = (place.as_str(), way.as_str());
                    let figures = measured
                        .with_context(|| format!("{place}, {name} with {callers} callers"))?;
                    say(&format!(
                        "{place:<8} {callers:>4} callers, round {}: {name:<10} {:>8.0} cycles/s, {:>8.0} replays/s ({})",
                        round + 1,
                        figures.cycles_per_s,
                        figures.replays_per_s,
                        watch.others(),
                    ));
                    samples[at].push(figures);
                }
            }
            rows.extend(Way::ALL.iter().zip(&samples).map(|(way, samples)| Row {
                place,
                way: *way,
                callers,
                figures: Figures::median(samples),
            }));
        }
    }
    Ok(rows)
}

fn measure(
    scratch: &Scratch,
    server: &Server,
    plan: &Plan,
    place: Place,
    way: Way,
    callers: u32,
) -> Result<Figures> {
    match place {
        Place::Sqlite => {
            let directory = scratch.fresh()?;
            let file = directory.path().join("semel.db");
            measure_at(&format!("sqlite:{}", file.display()), plan, way, callers)
        }
        Place::Postgres => {
            let database = server.database()?;
            database.settle_down()?;
            let figures = measure_at(&database.url(), plan, way, callers)?;
            database.remove()?;
            Ok(figures)
        }
    }
}

fn measure_at(url: &str, plan: &Plan, way: Way, callers: u32) -> Result<Figures> {
    let runtime = load::runtime()?;
    let together = match way {
        Way::InProcess => {
            let engine = runtime.block_on(Semel::at(url))?;
            let (cycles, replays) = under_load(&runtime, engine, plan, callers)?;
            return Ok(Figures::new(way, &cycles, &replays, 0, 0));
        }
        Way::Http => 1,
        Way::HttpBatch => TOGETHER,
    };
    let process = Process::start(&plan.semel, url)?;
    let idle = process.memory()?;
    let http = Http::new(process.address.clone(), together);
    let (cycles, replays) = under_load(&runtime, http, plan, callers)?;
    let figures = Figures::new(way, &cycles, &replays, idle, process.memory()?);
    drop(process);
    Ok(figures)
}

fn under_load<C: Contender>(
    runtime: &tokio::runtime::Runtime,
    contender: C,
    plan: &Plan,
    callers: u32,
) -> Result<(Measured, Measured)> {
    let (contender, keys) = (Arc::new(contender), Arc::new(Keys::new()?));
    let load = Load {
        runtime,
        contender: &contender,
        keys: &keys,
        callers,
    };
    let seconds = plan.seconds;
    let cycles = load.cycles(seconds / WARM_UP, seconds)?;
    let replays = load.replays(seconds / REPLAYS / WARM_UP, seconds / REPLAYS)?;
    runtime.block_on(async { drop(contender) });
    Ok((cycles, replays))
}

/// The server's memory after so many seconds of load, and how many cycles it made in the last of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moment {
    pub(crate) seconds: u64,
    pub(crate) bytes: u64,
    pub(crate) cycles_per_s: f64,
}

/// Keeps a server under load and watches its memory; the first moment is before the load.
pub(crate) fn memory(scratch: &Scratch, plan: &Plan, time: Duration) -> Result<Vec<Moment>> {
    let directory = scratch.fresh()?;
    let url = format!("sqlite:{}", directory.path().join("semel.db").display());
    let process = Process::start(&plan.semel, &url)?;
    let runtime = load::runtime()?;
    let contender = Arc::new(Http::new(process.address.clone(), 1));
    let keys = Arc::new(Keys::new()?);
    let load = Load {
        runtime: &runtime,
        contender: &contender,
        keys: &keys,
        callers: MEMORY_CALLERS,
    };
    let began = Instant::now();
    let mut moments = vec![Moment {
        seconds: 0,
        bytes: process.memory()?,
        cycles_per_s: 0.0,
    }];
    while began.elapsed() < time {
        let measured = load.cycles(Duration::ZERO, MEMORY_EVERY.min(time))?;
        let moment = Moment {
            seconds: began.elapsed().as_secs(),
            bytes: process.memory()?,
            cycles_per_s: measured.per_second(),
        };
        say(&format!(
            "{:>4} s: {:>4} MiB, {:.0} cycles/s",
            moment.seconds,
            moment.bytes / 1024 / 1024,
            moment.cycles_per_s
        ));
        moments.push(moment);
    }
    Ok(moments)
}

impl Figures {
    #[expect(
        clippy::cast_precision_loss,
        reason = "bytes of one run are far below 2^52"
    )]
    fn new(way: Way, cycles: &Measured, replays: &Measured, idle: u64, bytes: u64) -> Self {
        Self {
            cycles_per_s: cycles.per_second() * way.each(),
            p50_us: cycles.latency.percentile_us(0.5),
            p99_us: cycles.latency.percentile_us(0.99),
            replays_per_s: replays.per_second() * way.each(),
            replay_p50_us: replays.latency.percentile_us(0.5),
            replay_p99_us: replays.latency.percentile_us(0.99),
            idle_bytes: idle as f64,
            bytes: bytes as f64,
        }
    }

    /// Takes the median of each figure by itself.
    fn median(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        Self {
            cycles_per_s: of(|one| one.cycles_per_s),
            p50_us: of(|one| one.p50_us),
            p99_us: of(|one| one.p99_us),
            replays_per_s: of(|one| one.replays_per_s),
            replay_p50_us: of(|one| one.replay_p50_us),
            replay_p99_us: of(|one| one.replay_p99_us),
            idle_bytes: of(|one| one.idle_bytes),
            bytes: of(|one| one.bytes),
        }
    }
}
