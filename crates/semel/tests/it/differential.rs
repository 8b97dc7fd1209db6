//! Random streams of commands against the model, memory, SQLite and PostgreSQL.
//!
//! `SEMEL_DIFF_SEED=n` runs that one stream again.

use std::sync::Arc;

use semel_testkit::conformance::{Bed, ManualClock, MemoryBed, SqliteBed};
use semel_testkit::differential::planted::{Bug, PlantedBed};
use semel_testkit::differential::{Coverage, Difference, run, walled};
use semel_testkit::postgres::PostgresBed;
use semel_testkit::scaled;

/// Commands in one stream: enough for an operation to be settled, buried, dropped and begun anew.
const STEPS: usize = 300;

/// Runs a stream in a runtime that suits its number: one that may block writes directly, and one
/// that must not leaves it to the store's own thread.
fn stream(
    seed: u64,
    beds: impl FnOnce(&Arc<ManualClock>) -> Vec<(&'static str, Arc<dyn Bed>)>,
) -> Result<Coverage, Box<Difference>> {
    let runtime = if seed.is_multiple_of(3) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    } else {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
    };
    let runtime = runtime.expect("a runtime starts");
    let clock = Arc::new(ManualClock::default());
    let beds = beds(&clock);
    // In a task, as only there a runtime of several threads lets the store write directly.
    let run = runtime.spawn(async move { run(seed, STEPS, &clock, &beds).await });
    runtime.block_on(run).expect("the run ends")
}

fn both(clock: &Arc<ManualClock>) -> Vec<(&'static str, Arc<dyn Bed>)> {
    vec![
        ("memory", Arc::new(MemoryBed::new(clock))),
        ("sqlite", Arc::new(SqliteBed::new(clock))),
    ]
}

#[test]
fn the_stores_do_what_the_model_does() {
    let asked = std::env::var("SEMEL_DIFF_SEED").ok();
    let asked = asked.map(|seed| seed.parse::<u64>().expect("the seed is a number"));
    let seeds = match asked {
        Some(seed) => seed..seed + 1,
        None => 0..scaled(2_000, 200),
    };
    let mut coverage = Coverage::default();
    for seed in seeds {
        match stream(seed, both) {
            Ok(covered) => coverage.add(&covered),
            Err(difference) => panic!("{difference}"),
        }
    }
    if asked.is_none() {
        let missing = coverage.missing();
        assert!(
            missing.is_empty(),
            "{missing:?} did not both succeed and fail: {coverage:?}"
        );
    }
}

/// A statement to a server takes longer than a call, so there are fewer streams.
#[test]
fn postgres_does_what_the_model_does() {
    for seed in 0..scaled(60, 8) {
        let beds = |clock: &Arc<ManualClock>| -> Vec<(&'static str, Arc<dyn Bed>)> {
            vec![("postgres", Arc::new(PostgresBed::new(clock)))]
        };
        if let Err(difference) = stream(seed, beds) {
            panic!("{difference}");
        }
    }
}

/// The most streams that a planted bug may survive.
const STREAMS_MAX: u64 = 160;

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = (0..STREAMS_MAX).find_map(|seed| {
            let planted = |clock: &Arc<ManualClock>| -> Vec<(&'static str, Arc<dyn Bed>)> {
                vec![("planted", Arc::new(PlantedBed::new(bug, clock)))]
            };
            stream(seed, planted).err()
        });
        assert!(found.is_some(), "{bug:?} was not found");
    }
}

#[test]
fn a_seed_shows_the_same_difference_again() {
    let planted = |clock: &Arc<ManualClock>| -> Vec<(&'static str, Arc<dyn Bed>)> {
        vec![("planted", Arc::new(PlantedBed::new(Bug::DropWrite, clock)))]
    };
    let first = stream(7, planted).expect_err("the bug is found");
    let second = stream(7, planted).expect_err("the bug is found again");
    assert_eq!(first.to_string(), second.to_string());
    assert!(first.to_string().contains("SEMEL_DIFF_SEED=7"));
}

/// A request to a server takes longer than a call, so there are fewer streams.
#[test]
fn remote_engines_do_what_the_model_does_behind_their_walls() {
    const SENT: [&str; 9] = [
        "submit", "begin", "renew", "settle", "expire", "resolve", "retry", "cancel", "forget",
    ];
    let mut coverage = Coverage::default();
    for seed in 0..scaled(200, 16) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime starts");
        let clock = Arc::new(ManualClock::default());
        let behind: Arc<dyn Bed> = if seed.is_multiple_of(2) {
            Arc::new(MemoryBed::new(&clock))
        } else {
            Arc::new(SqliteBed::new(&clock))
        };
        let run = runtime.spawn(async move { walled::run(seed, STEPS, &clock, behind).await });
        match runtime.block_on(run).expect("the run ends") {
            Ok(covered) => coverage.add(&covered),
            Err(difference) => panic!("{difference}"),
        }
    }
    let missing = coverage.missing();
    let missing: Vec<_> = SENT.iter().filter(|name| missing.contains(name)).collect();
    assert!(
        missing.is_empty(),
        "{missing:?} did not both succeed and fail: {coverage:?}"
    );
}
