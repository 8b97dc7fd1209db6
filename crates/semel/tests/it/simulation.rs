//! The seeded simulator: whole histories of agents, crashes, operators, clocks and store failures,
//! over the real engine and the real rules, and the proof that it can fail.

use std::collections::BTreeSet;
use std::io::Write as _;

use semel::core::ledger::{Command, Event};
use semel_testkit::scaled;
use semel_testkit::sim::{Bug, Coverage, Fault, Invariant, Point, Seen, hunt, run, run_many};

/// How many histories `./test --full` runs, and how many every `./test` does.
const HISTORIES: (u64, u64) = (200_000, 5_000);

/// How many seeds are run twice.
const TWICE: (u64, u64) = (2_000, 150);

/// How many histories a planted bug may survive: the rarest needs some thousand.
const HUNTED: u64 = 30_000;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a seed is a number"))
}

/// `SEMEL_SIM_SEED=n` runs one history again and tells it in full; `SEMEL_SIM_FROM=n` starts with
/// another seed than zero.
#[test]
fn histories_break_no_invariant() {
    if let Some(seed) = number("SEMEL_SIM_SEED") {
        let report = run(seed, None, true);
        writeln!(std::io::stderr(), "{report}").expect("the trace can be shown");
        assert!(report.violation.is_none(), "seed {seed} broke an invariant");
        return;
    }
    let first = number("SEMEL_SIM_FROM").unwrap_or(0);
    let count = scaled(HISTORIES.0, HISTORIES.1);
    let summary = run_many(first..first + count, None, threads());
    if let Some(report) = summary.failure {
        panic!("{report}");
    }
    assert_eq!(summary.histories, count);
    assert_covered(&summary.coverage);
}

/// Nothing that the simulator can do may sleep: what never happens proves nothing.
fn assert_covered(coverage: &Coverage) {
    let mut expected: BTreeSet<Seen> = BTreeSet::new();
    expected.extend(Point::ALL.map(Seen::Crash));
    expected.extend(Point::ALL.map(Seen::Pause));
    expected.extend(Fault::ALL.map(Seen::Fault));
    // No agent of the simulation has a breaker: what holds of them is proven by their own rules and differential runs.
    let names = Command::NAMES.into_iter().filter(|name| *name != "breaker");
    expected.extend(names.clone().map(Seen::Command));
    let events = Event::ALL.into_iter();
    let events = events.filter(|event| !event.is_of_breakers());
    expected.extend(events.map(Seen::Event));
    let repeated = names.filter(|name| *name != "drop");
    // An adoption is never refused; whatever else comes again is answered at least once.
    expected.extend(
        repeated
            .filter(|name| *name != "adopt")
            .map(Seen::RepeatRefused),
    );
    let accepted = ["begin", "renew", "settle", "submit", "deliver", "adopt"];
    expected.extend(accepted.map(Seen::RepeatAccepted));
    expected.extend(
        [
            "execute",
            "probe",
            "wait",
            "succeeded",
            "failed",
            "pending",
            "doubtful",
            "in_doubt",
            "in_flight",
            "dead",
            "expired",
            "fenced",
            "key_reused",
            "not_found",
            "store_unavailable",
            "unstored",
            "noted",
        ]
        .map(Seen::Told),
    );
    expected.extend(
        [
            "a few minutes forward",
            "a few minutes back",
            "hours forward",
            "hours back",
            "believed, forward",
            "believed, back",
            "reboot",
        ]
        .map(Seen::Clock),
    );
    expected.extend(
        [
            "gave up half-way",
            "called twice at once",
            "came too late to act",
            "dropped a permit",
            "killed a process",
            "learned it late",
            "sent a command again",
            "streamed",
            "the store went away",
            "let years pass",
            "forgot",
            "could not forget",
            "injected a fault",
        ]
        .map(Seen::Did),
    );
    expected.extend(["took effect", "vanished", "refused an old fence"].map(Seen::World));
    let missing: Vec<_> = expected
        .into_iter()
        .filter(|seen| coverage.count(*seen) == 0)
        .collect();
    assert!(missing.is_empty(), "never happened: {missing:?}");
    // A repeated order is an answer, never a second decision.
    for order in ["resolve", "retry", "cancel", "forget"] {
        assert_eq!(coverage.count(Seen::RepeatAccepted(order)), 0, "{order}");
    }
}

#[test]
fn a_seed_is_always_the_same_history() {
    let mut hashes = BTreeSet::new();
    let count = scaled(TWICE.0, TWICE.1);
    for seed in 0..count {
        let (once, again) = (run(seed, None, false), run(seed, None, false));
        assert_eq!(once.hash, again.hash, "seed {seed}");
        hashes.insert(once.hash);
    }
    assert_eq!(hashes.len() as u64, count, "other seeds, other histories");
}

#[test]
fn every_planted_bug_is_caught_by_the_invariants_it_breaks() {
    let mut missed = vec![];
    for bug in Bug::ALL {
        let caught = hunt(bug, 0..HUNTED, threads());
        for invariant in bug.breaks() {
            if !caught.by.contains_key(invariant) {
                let by: Vec<_> = caught.by.keys().collect();
                missed.push(format!("{bug:?} not by {invariant:?}, only by {by:?}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn every_invariant_is_broken_by_some_planted_bug() {
    let broken: BTreeSet<Invariant> = Bug::ALL
        .iter()
        .flat_map(|bug| bug.breaks())
        .copied()
        .collect();
    let never: Vec<_> = Invariant::ALL
        .into_iter()
        .filter(|i| !broken.contains(i))
        .collect();
    assert!(never.is_empty(), "no bug breaks {never:?}");
}
