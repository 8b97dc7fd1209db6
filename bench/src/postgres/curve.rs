//! How the speed changes while a database fills, for the ledger and for the obvious table.

use std::time::Duration;

use anyhow::Result;

use super::node::Nodes;
use super::pgbench::Pgbench;
use super::server::{Database, Server};
use super::{LEDGER, TABLE, cycles_time, per_key};
use crate::curve::{self, steps};
use crate::load::Measured;
use crate::machine::Watch;
use crate::progress::say;

/// The callers whose cycles are measured at each step.
pub(crate) const CALLERS: u32 = 64;

/// Both at so many keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) keys: u64,
    pub(crate) pgbench: Speed,
    pub(crate) semel: Speed,
}

/// One of them at so many keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    pub(crate) cycles_per_s: f64,
    pub(crate) p99_us: f64,
    pub(crate) disk_bytes_per_key: f64,
    pub(crate) log_bytes_per_cycle: f64,
}

pub(crate) fn run(server: &Server, seconds: Duration, keys: u64) -> Result<Vec<Point>> {
    let mut table = Pgbench::open(server.database()?)?;
    let ledger = server.database()?;
    let mut nodes = Nodes::start(&ledger.url(), 1)?;
    let mut points = vec![];
    for step in steps(keys) {
        let watch = Watch::with_server(server.process()?);
        table.fill(step)?;
        nodes.fill(curve::CALLERS, step)?;
        let time = cycles_time(seconds);
        let before = Before::of(table.database(), table.total())?;
        let cycles = table.cycles(CALLERS, time)?;
        let pgbench = before.speed(&cycles, table.database(), TABLE, table.total())?;
        let before = Before::of(&ledger, nodes.written())?;
        let cycles = nodes.cycles(CALLERS, time)?;
        let semel = before.speed(&cycles, &ledger, LEDGER, nodes.written())?;
        say(&format!(
            "{step:>10} keys: pgbench {:>9.0} cycles/s, semel {:>9.0} cycles/s ({})",
            pgbench.cycles_per_s,
            semel.cycles_per_s,
            watch.others()
        ));
        points.push(Point {
            keys: step,
            pgbench,
            semel,
        });
    }
    drop(nodes);
    ledger.remove()?;
    table.remove()?;
    Ok(points)
}

/// What there was before cycles were measured.
struct Before {
    log: u64,
    keys: u64,
}

impl Before {
    fn of(database: &Database<'_>, keys: u64) -> Result<Self> {
        database.settle_down()?;
        let log = database.log_bytes()?;
        Ok(Self { log, keys })
    }

    fn speed(
        &self,
        cycles: &Measured,
        database: &Database<'_>,
        schema: &str,
        keys: u64,
    ) -> Result<Speed> {
        Ok(Speed {
            cycles_per_s: cycles.per_second(),
            p99_us: cycles.latency.percentile_us(0.99),
            disk_bytes_per_key: per_key(database.table_bytes(schema)?, keys),
            log_bytes_per_cycle: per_key(database.log_bytes()? - self.log, keys - self.keys),
        })
    }
}
