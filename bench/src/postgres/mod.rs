//! The ledger on PostgreSQL beside what one would write first, on one private server, taking turns.

pub(crate) mod curve;
pub(crate) mod node;
mod pgbench;
pub(crate) mod server;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use self::node::{Nodes, Time};
use self::pgbench::Pgbench;
use self::server::{Database, Server};
use crate::core::{REPLAYS, WARM_UP, median};
use crate::load::Measured;
use crate::machine::Watch;
use crate::progress::say;

/// The schema that holds all of the ledger's tables.
const LEDGER: &str = "semel";

/// The schema of the table that pgbench uses.
const TABLE: &str = "public";

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seconds: Duration,
    pub(crate) rounds: u32,
    pub(crate) callers: Vec<u32>,
    pub(crate) engines: Vec<Name>,
}

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// The obvious table, used by pgbench.
    Pgbench,
    /// The ledger, in one process.
    Semel,
    /// The ledger in two processes, with half of the callers each.
    #[value(name = "semel-2-nodes")]
    Semel2Nodes,
}

impl Name {
    pub(crate) const ALL: [Self; 3] = [Self::Pgbench, Self::Semel, Self::Semel2Nodes];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pgbench => "pgbench",
            Self::Semel => "semel",
            Self::Semel2Nodes => "semel-2-nodes",
        }
    }

    /// Two nodes cannot share one caller.
    const fn serves(self, callers: u32) -> bool {
        match self {
            Self::Pgbench | Self::Semel => callers >= 1,
            Self::Semel2Nodes => callers >= 2,
        }
    }
}

/// Returns the engines that were asked for, in their usual order; all when none was.
pub(crate) fn chosen(only: &[Name]) -> Vec<Name> {
    let wanted = |name: &Name| only.is_empty() || only.contains(name);
    Name::ALL.into_iter().filter(wanted).collect()
}

/// One engine with one number of callers, once or as the median of several times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) cycles_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) replays_per_s: f64,
    /// What the tables take, with their indexes.
    pub(crate) disk_bytes_per_key: f64,
    /// What a cycle adds to the server's write-ahead log.
    pub(crate) log_bytes_per_cycle: f64,
}

/// A line of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: Name,
    pub(crate) callers: u32,
    pub(crate) figures: Figures,
}

pub(crate) fn run(server: &Server, plan: &Plan) -> Result<Vec<Row>> {
    let mut rows = vec![];
    for callers in plan.callers.iter().copied() {
        let engines = plan.engines.iter().copied();
        let engines: Vec<_> = engines.filter(|name| name.serves(callers)).collect();
        let mut samples = vec![vec![]; engines.len()];
        for round in 0..plan.rounds {
            // Each round begins with another engine: none always follows the same one.
            for turn in 0..engines.len() {
                let at = (turn + round as usize) % engines.len();
                let name = engines[at];
                let watch = Watch::with_server(server.process()?);
                let measured = measure(name, server, callers, plan.seconds);
                let figures = measured.with_context(|| {
                    format!(
                        "{} with {callers} callers, round {}",
                        name.as_str(),
                        round + 1
                    )
                })?;
                say(&format!(
                    "{callers:>4} callers, round {}: {:<13} {:>9.0} cycles/s, {:>9.0} replays/s ({})",
                    round + 1,
                    name.as_str(),
                    figures.cycles_per_s,
                    figures.replays_per_s,
                    watch.others(),
                ));
                samples[at].push(figures);
            }
        }
        rows.extend(engines.iter().zip(&samples).map(|(name, samples)| Row {
            name: *name,
            callers,
            figures: Figures::median(samples),
        }));
    }
    Ok(rows)
}

/// Measures one engine in an empty database.
fn measure(name: Name, server: &Server, callers: u32, seconds: Duration) -> Result<Figures> {
    let database = server.database()?;
    match name {
        Name::Pgbench => measure_pgbench(database, callers, seconds),
        Name::Semel => measure_nodes(database, 1, callers, seconds),
        Name::Semel2Nodes => measure_nodes(database, 2, callers, seconds),
    }
}

fn cycles_time(seconds: Duration) -> Time {
    Time {
        warm_up: seconds / WARM_UP,
        measured: seconds,
    }
}

fn measure_nodes(
    database: Database<'_>,
    count: u32,
    callers: u32,
    seconds: Duration,
) -> Result<Figures> {
    let mut nodes = Nodes::start(&database.url(), count)?;
    database.settle_down()?;
    let log = database.log_bytes()?;
    let cycles = nodes.cycles(callers, cycles_time(seconds))?;
    let log = database.log_bytes()? - log;
    let disk = database.table_bytes(LEDGER)?;
    database.settle_down()?;
    let replays = nodes.replays(callers, cycles_time(seconds / REPLAYS))?;
    let figures = Figures::new(&cycles, &replays, disk, log, nodes.written());
    drop(nodes);
    database.remove()?;
    Ok(figures)
}

fn measure_pgbench(database: Database<'_>, callers: u32, seconds: Duration) -> Result<Figures> {
    let mut table = Pgbench::open(database)?;
    table.database().settle_down()?;
    let log = table.database().log_bytes()?;
    let cycles = table.cycles(callers, cycles_time(seconds))?;
    let log = table.database().log_bytes()? - log;
    let disk = table.database().table_bytes(TABLE)?;
    table.number_keys()?;
    table.database().settle_down()?;
    let replays = table.readings(callers, cycles_time(seconds / REPLAYS))?;
    let figures = Figures::new(&cycles, &replays, disk, log, table.total());
    table.remove()?;
    Ok(figures)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes of one run are far below 2^52"
)]
fn per_key(bytes: u64, keys: u64) -> f64 {
    bytes as f64 / keys.max(1) as f64
}

impl Figures {
    fn new(cycles: &Measured, replays: &Measured, disk: u64, log: u64, keys: u64) -> Self {
        Self {
            cycles_per_s: cycles.per_second(),
            p50_us: cycles.latency.percentile_us(0.5),
            p99_us: cycles.latency.percentile_us(0.99),
            replays_per_s: replays.per_second(),
            disk_bytes_per_key: per_key(disk, keys),
            log_bytes_per_cycle: per_key(log, keys),
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
            disk_bytes_per_key: of(|one| one.disk_bytes_per_key),
            log_bytes_per_cycle: of(|one| one.log_bytes_per_cycle),
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
            chosen(&[Name::Semel, Name::Pgbench]),
            [Name::Pgbench, Name::Semel]
        );
    }

    #[test]
    fn one_caller_is_not_shared_by_two_nodes() {
        assert!(Name::Semel.serves(1) && !Name::Semel2Nodes.serves(1));
        assert!(Name::Semel2Nodes.serves(2));
    }

    #[test]
    fn each_figure_has_a_median_of_its_own() {
        let sample = |cycles_per_s, log_bytes_per_cycle| Figures {
            cycles_per_s,
            log_bytes_per_cycle,
            ..Figures::default()
        };
        let samples = [sample(1.0, 30.0), sample(2.0, 10.0), sample(3.0, 20.0)];
        assert_eq!(Figures::median(&samples), sample(2.0, 20.0));
    }
}
