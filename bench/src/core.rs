//! The run: every engine with every number of callers, round by round, taking turns.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::disk::{self, Scratch};
use crate::engines::{Embedded, NaiveSqlite, Name, RawLog, Semel};
use crate::keys::Keys;
use crate::load::{self, Load};
use crate::machine::Watch;
use crate::progress::say;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seconds: Duration,
    pub(crate) rounds: u32,
    pub(crate) callers: Vec<u32>,
    pub(crate) engines: Vec<Name>,
}

/// One engine with one number of callers, once or as the median of several times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) cycles_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) replays_per_s: f64,
    pub(crate) disk_bytes_per_key: f64,
    pub(crate) written_bytes_per_key: f64,
}

/// A line of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: Name,
    pub(crate) callers: u32,
    pub(crate) figures: Figures,
}

/// The parts of the measured time that are spent on warming up and on replays.
pub(crate) const WARM_UP: u32 = 4;
pub(crate) const REPLAYS: u32 = 2;

pub(crate) fn run(scratch: &Scratch, plan: &Plan) -> Result<Vec<Row>> {
    let mut rows = vec![];
    for callers in &plan.callers {
        let mut samples = vec![vec![]; plan.engines.len()];
        for round in 0..plan.rounds {
            // Each round begins with another engine: none always follows the same one.
            for turn in 0..plan.engines.len() {
                let at = (turn + round as usize) % plan.engines.len();
                let name = plan.engines[at];
                let watch = Watch::start();
                let measured = measure(name, scratch, *callers, plan.seconds);
                let figures = measured.with_context(|| {
                    format!(
                        "{} with {callers} callers, round {}",
                        name.as_str(),
                        round + 1
                    )
                })?;
                say(&format!(
                    "{callers:>4} callers, round {}: {:<12} {:>9.0} cycles/s, {:>9.0} replays/s ({})",
                    round + 1,
                    name.as_str(),
                    figures.cycles_per_s,
                    figures.replays_per_s,
                    watch.others(),
                ));
                samples[at].push(figures);
            }
        }
        rows.extend(
            plan.engines
                .iter()
                .zip(&samples)
                .map(|(name, samples)| Row {
                    name: *name,
                    callers: *callers,
                    figures: Figures::median(samples),
                }),
        );
    }
    Ok(rows)
}

fn measure(name: Name, scratch: &Scratch, callers: u32, seconds: Duration) -> Result<Figures> {
    match name {
        Name::Semel => measure_one::<Semel>(scratch, callers, seconds),
        Name::RawLog => measure_one::<RawLog>(scratch, callers, seconds),
        Name::NaiveSqlite => measure_one::<NaiveSqlite>(scratch, callers, seconds),
    }
}

/// Measures one engine from an empty store on.
fn measure_one<C: Embedded>(scratch: &Scratch, callers: u32, seconds: Duration) -> Result<Figures> {
    let directory = scratch.fresh()?;
    let runtime = load::runtime()?;
    let contender = Arc::new(runtime.block_on(C::open(directory.path()))?);
    let keys = Arc::new(Keys::new()?);
    let load = Load {
        runtime: &runtime,
        contender: &contender,
        keys: &keys,
        callers,
    };
    let written_before = disk::written_bytes()?;
    let cycles = load.cycles(seconds / WARM_UP, seconds)?;
    let replays = load.replays(seconds / REPLAYS / WARM_UP, seconds / REPLAYS)?;
    // Closed, and with nothing left to be written back, the files show what they cost for good.
    runtime.block_on(async { drop(contender) });
    drop(runtime);
    C::tidy(directory.path())?;
    let written = disk::written_bytes()? - written_before;
    let occupied = disk::allocated_bytes(directory.path())?;
    Ok(Figures {
        cycles_per_s: cycles.per_second(),
        p50_us: cycles.latency.percentile_us(0.5),
        p99_us: cycles.latency.percentile_us(0.99),
        replays_per_s: replays.per_second(),
        disk_bytes_per_key: per_key(occupied, &keys),
        written_bytes_per_key: per_key(written, &keys),
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes of one run are far below 2^52"
)]
pub(crate) fn per_key(bytes: u64, keys: &Keys) -> f64 {
    bytes as f64 / keys.taken().max(1) as f64
}

impl Figures {
    /// Takes the median of each figure by itself.
    fn median(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        Self {
            cycles_per_s: of(|one| one.cycles_per_s),
            p50_us: of(|one| one.p50_us),
            p99_us: of(|one| one.p99_us),
            replays_per_s: of(|one| one.replays_per_s),
            disk_bytes_per_key: of(|one| one.disk_bytes_per_key),
            written_bytes_per_key: of(|one| one.written_bytes_per_key),
        }
    }
}

/// Returns the middle one, or the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.as_slice() {
        [] => 0.0,
        odd if odd.len() % 2 == 1 => odd[middle],
        even => f64::midpoint(even[middle - 1], even[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        for (values, expected) in [
            (vec![3.0, 1.0, 2.0], 2.0),
            (vec![4.0, 1.0, 3.0, 2.0], 2.5),
            (vec![7.0], 7.0),
            (vec![], 0.0),
        ] {
            assert!((median(values) - expected).abs() < f64::EPSILON);
        }
    }

    #[test]
    fn each_figure_has_a_median_of_its_own() {
        let sample = |cycles_per_s, p99_us| Figures {
            cycles_per_s,
            p99_us,
            ..Figures::default()
        };
        let samples = [sample(1.0, 30.0), sample(2.0, 10.0), sample(3.0, 20.0)];
        assert_eq!(Figures::median(&samples), sample(2.0, 20.0));
    }
}
