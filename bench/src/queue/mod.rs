//! Tasks through queues: the ledger's own, beside a Redis stream and the obvious table, taking turns.

mod contender;
pub(crate) mod idle;
pub(crate) mod load;
pub(crate) mod pending;
pub(crate) mod redis;
mod resp;
mod semel;
mod skip_locked;
mod task;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use self::contender::Queue;
use self::load::Load;
use self::redis::{Redis, Streams};
use self::semel::Semel;
use self::skip_locked::SkipLocked;
use crate::core::{WARM_UP, median};
use crate::disk::Scratch;
use crate::load::runtime;
use crate::machine::Watch;
use crate::postgres::server::Server;
use crate::progress::say;

/// The most workers: each has a connection to PostgreSQL, and so has each submitter.
pub(crate) const WORKERS_MAX: i64 = 128;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seconds: Duration,
    pub(crate) rounds: u32,
    pub(crate) workers: Vec<u32>,
    pub(crate) names: Vec<Name>,
}

/// Which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// The ledger's own, on its embedded store.
    SemelSqlite,
    /// The ledger's own, on PostgreSQL.
    SemelPostgres,
    /// The obvious table on the same PostgreSQL.
    SkipLocked,
    /// A consumer group on Redis Streams.
    RedisStreams,
}

impl Name {
    pub(crate) const ALL: [Self; 4] = [
        Self::SemelSqlite,
        Self::SemelPostgres,
        Self::SkipLocked,
        Self::RedisStreams,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::SemelSqlite => "semel-sqlite",
            Self::SemelPostgres => "semel-postgres",
            Self::SkipLocked => "skip-locked",
            Self::RedisStreams => "redis-streams",
        }
    }

    pub(crate) const fn needs_postgres(self) -> bool {
        matches!(self, Self::SemelPostgres | Self::SkipLocked)
    }

    pub(crate) const fn needs_redis(self) -> bool {
        matches!(self, Self::RedisStreams)
    }
}

/// Returns the queues that were asked for, in their usual order; all when none was.
pub(crate) fn chosen(only: &[Name]) -> Vec<Name> {
    let wanted = |name: &Name| only.is_empty() || only.contains(name);
    Name::ALL.into_iter().filter(wanted).collect()
}

/// Where queues are.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    pub(crate) scratch: &'a Scratch,
    /// There where a queue needs it.
    pub(crate) server: Option<&'a Server>,
    pub(crate) redis: Option<&'a Redis>,
}

impl Places<'_> {
    fn server(&self) -> Result<&Server> {
        self.server.context("PostgreSQL was not started")
    }

    fn sqlite(directory: &Path) -> String {
        format!("sqlite:{}", directory.join("semel.db").display())
    }

    /// Watches what others do, which the servers are not.
    pub(crate) fn watch(&self) -> Result<Watch> {
        Ok(match self.server {
            Some(server) => Watch::with_server(server.process()?),
            None => Watch::start(),
        })
    }
}

/// One queue under load, once or as the median of several times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) tasks_per_s: f64,
    /// From the call that submits to the start.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// An idle queue, once or as the median of several times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Idle {
    /// From the call that submits to the start.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// The commits alone that are in it.
    pub(crate) commits_p50_us: f64,
    pub(crate) commits_p99_us: f64,
}

/// Lines of the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows {
    pub(crate) loaded: Vec<Row>,
    pub(crate) idle: Vec<(Name, Idle)>,
}

/// A line of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: Name,
    pub(crate) workers: u32,
    pub(crate) figures: Figures,
}

pub(crate) fn run(places: &Places<'_>, plan: &Plan) -> Result<Rows> {
    let mut rows = Rows::default();
    for workers in plan.workers.iter().copied() {
        let what = format!("{workers} workers");
        let samples = take_turns(plan, &what, |name| {
            let measured = with_queue(places, name, UnderLoad { plan, workers })?;
            let said = format!("{:>9.0} tasks/s", measured.tasks_per_s);
            Ok((measured, said))
        })?;
        let names = plan.names.iter().copied();
        rows.loaded
            .extend(names.zip(&samples).map(|(name, samples)| Row {
                name,
                workers,
                figures: Figures::median(samples),
            }));
    }
    let samples = take_turns(plan, "idle", |name| {
        let measured = with_queue(places, name, Waiting { plan })?;
        let said = format!("{:>9.0} µs to a start", measured.p50_us);
        Ok((measured, said))
    })?;
    let names = plan.names.iter().copied();
    rows.idle = names
        .zip(&samples)
        .map(|(name, samples)| (name, Idle::median(samples)))
        .collect();
    Ok(rows)
}

/// Measures every queue in every round, and returns the samples of each.
fn take_turns<T: Clone>(
    plan: &Plan,
    what: &str,
    mut measure: impl FnMut(Name) -> Result<(T, String)>,
) -> Result<Vec<Vec<T>>> {
    let mut samples = vec![vec![]; plan.names.len()];
    for round in 0..plan.rounds {
        // Each round begins with another queue: none always follows the same one.
        for turn in 0..plan.names.len() {
            let at = (turn + round as usize) % plan.names.len();
            let name = plan.names[at];
            let measured = measure(name);
            let (sample, said) = measured
                .with_context(|| format!("{}, {what}, round {}", name.as_str(), round + 1))?;
            say(&format!(
                "{what:>11}, round {}: {:<14} {said}",
                round + 1,
                name.as_str()
            ));
            samples[at].push(sample);
        }
    }
    Ok(samples)
}

/// What is done with an open queue.
trait Measure {
    type Measured;

    fn measure<Q: Queue>(
        &self,
        runtime: &tokio::runtime::Runtime,
        queue: &Q,
    ) -> Result<Self::Measured>;
}

struct UnderLoad<'a> {
    plan: &'a Plan,
    workers: u32,
}

impl Measure for UnderLoad<'_> {
    type Measured = Figures;

    fn measure<Q: Queue>(&self, runtime: &tokio::runtime::Runtime, queue: &Q) -> Result<Figures> {
        let load = Load {
            runtime,
            queue,
            workers: self.workers,
        };
        let time = self.plan.seconds;
        let measured = load.measure(time / WARM_UP, time)?;
        Ok(Figures {
            tasks_per_s: measured.per_second(),
            p50_us: measured.latency.percentile_us(0.5),
            p99_us: measured.latency.percentile_us(0.99),
        })
    }
}

struct Waiting<'a> {
    plan: &'a Plan,
}

impl Measure for Waiting<'_> {
    type Measured = Idle;

    fn measure<Q: Queue>(&self, runtime: &tokio::runtime::Runtime, queue: &Q) -> Result<Idle> {
        let measured = runtime.block_on(idle::measure(queue, self.plan.seconds))?;
        let (starts, commits) = (measured.starts, measured.commits);
        Ok(Idle {
            p50_us: starts.percentile_us(0.5),
            p99_us: starts.percentile_us(0.99),
            commits_p50_us: commits.percentile_us(0.5),
            commits_p99_us: commits.percentile_us(0.99),
        })
    }
}

/// Measures an empty queue.
fn with_queue<M: Measure>(places: &Places<'_>, name: Name, measure: M) -> Result<M::Measured> {
    match name {
        Name::SemelSqlite => {
            let directory = places.scratch.fresh()?;
            let url = Places::sqlite(directory.path());
            opened(Semel::open(&url), &measure)
        }
        Name::SemelPostgres => on_postgres(places, |url| opened(Semel::open(url), &measure)),
        Name::SkipLocked => on_postgres(places, |url| opened(SkipLocked::open(url), &measure)),
        Name::RedisStreams => {
            let directory = places.scratch.fresh()?;
            let redis = places.redis.context("Redis was not found")?;
            let server = redis.start(directory.path())?;
            opened(Streams::open(server), &measure)
        }
    }
}

/// Measures in an empty database.
fn on_postgres<T>(places: &Places<'_>, measure: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    let database = places.server()?.database()?;
    database.settle_down()?;
    let measured = measure(&database.url())?;
    database.remove()?;
    Ok(measured)
}

fn opened<Q: Queue, M: Measure>(
    open: impl Future<Output = Result<Q>>,
    measure: &M,
) -> Result<M::Measured> {
    let runtime = runtime()?;
    let queue = runtime.block_on(open)?;
    let measured = measure.measure(&runtime, &queue);
    runtime.block_on(async { drop(queue) });
    measured
}

impl Figures {
    /// Takes the median of each figure by itself.
    fn median(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        Self {
            tasks_per_s: of(|one| one.tasks_per_s),
            p50_us: of(|one| one.p50_us),
            p99_us: of(|one| one.p99_us),
        }
    }
}

impl Idle {
    /// Takes the median of each figure by itself.
    fn median(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        Self {
            p50_us: of(|one| one.p50_us),
            p99_us: of(|one| one.p99_us),
            commits_p50_us: of(|one| one.commits_p50_us),
            commits_p99_us: of(|one| one.commits_p99_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_command_line_are_those_of_the_report() {
        for name in Name::ALL {
            let value = name.to_possible_value().unwrap();
            assert_eq!(value.get_name(), name.as_str());
        }
        assert_eq!(chosen(&[]), Name::ALL);
        assert_eq!(
            chosen(&[Name::RedisStreams, Name::SemelSqlite]),
            [Name::SemelSqlite, Name::RedisStreams]
        );
    }

    #[test]
    fn rounds_begin_with_another_queue_each() {
        let plan = Plan {
            seconds: Duration::ZERO,
            rounds: 2,
            workers: vec![],
            names: vec![Name::SemelSqlite, Name::RedisStreams],
        };
        let mut order = vec![];
        let samples = take_turns(&plan, "test", |name| {
            order.push(name);
            Ok((order.len(), String::new()))
        });
        assert_eq!(samples.unwrap(), [[1, 4], [2, 3]]);
        let (ours, theirs) = (Name::SemelSqlite, Name::RedisStreams);
        assert_eq!(order, [ours, theirs, theirs, ours]);
    }
}
