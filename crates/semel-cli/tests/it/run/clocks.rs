//! `semel run` on PostgreSQL, where this machine's clock is off by an hour.

use std::process::Command;

use semel_testkit::faketime;
use semel_testkit::postgres::Cluster;

use super::{Sandbox, Told, piped, told};

/// How far two looks at the right clock may be apart, in seconds.
const APART: u64 = 600;

/// A sandbox whose store is in a database, and commands with a right clock or a wrong one.
struct Place {
    sandbox: Sandbox,
    url: String,
    offset: &'static str,
}

impl Place {
    fn new(offset: &'static str) -> Self {
        Self {
            sandbox: Sandbox::new(),
            url: Cluster::shared().database(),
            offset,
        }
    }

    fn right(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.semel(words);
        command.env("SEMEL_STORE", &self.url);
        command
    }

    fn wrong(&self, words: &[&str]) -> Command {
        let mut command = self.right(words);
        command.envs(faketime::environment(self.offset));
        command
    }

    /// Returns the database's time as receipts write it.
    fn database_time(&self) -> String {
        let name = self.url.rsplit('/').next().expect("a database");
        let sql = "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', \
                   'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";
        Cluster::shared().sql(name, sql)
    }
}

fn say(mut command: Command) -> Told {
    Told::from(command.output().expect("semel runs"))
}

fn an_hour_off(offset: &'static str) {
    let place = Place::new(offset);
    // What runs takes the wrong time for the right one, or nothing here means anything.
    let script = "echo x >> runs; date +%s";
    let run = ["run", "--key", "k", "--", "sh", "-c", script];
    let from = place.database_time();
    let first = say(place.wrong(&run));
    let to = place.database_time();
    assert_eq!(first.exit, 0, "{first:?}");
    let there: u64 = first.out().trim().parse().expect("date says seconds");
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let here = since.expect("it is after 1970").as_secs();
    let hour = if offset == "+1h" {
        there.saturating_sub(here)
    } else {
        here.saturating_sub(there)
    };
    assert!(
        hour > 3_600 - APART && hour < 3_600 + APART,
        "{there} {here}"
    );

    // Whatever a clock says, it was done, and when the database says.
    let with_receipt = ["run", "--json", "--key", "k", "--", "sh", "-c", script];
    for command in [place.wrong(&with_receipt), place.right(&with_receipt)] {
        let again = say(command);
        let receipt = again.json();
        assert_eq!((again.exit, &receipt["replayed"]), (0, &true.into()));
        for time in ["started_at", "settled_at"] {
            let time = receipt[time].as_str().expect("a receipt has times");
            assert!(*from <= *time && *time <= *to, "{from} {time} {to}");
        }
    }
    assert_eq!(place.sandbox.effects("runs"), 1);

    // What runs elsewhere is left alone, by either.
    let gate = place.sandbox.gate("gate");
    let script = "cat gate; echo x >> waited";
    let run = [
        "run",
        "--on-doubt",
        "retry",
        "--wait",
        "0s",
        "--key",
        "w",
        "--",
        "sh",
        "-c",
        script,
    ];
    let running = piped(&mut place.right(&run)).spawn().expect("semel runs");
    super::wait_until("it runs", || gate.has_visitor());
    let met = say(place.wrong(&run));
    assert_eq!(met.exit, 122, "{met:?}");
    gate.open();
    let done = told(running);
    assert_eq!(done.exit, 0, "{done:?}");
    assert_eq!(place.sandbox.effects("waited"), 1);
    let verified = say(place.wrong(&["verify"]));
    assert_eq!(verified.exit, 0, "{verified:?}");
}

#[test]
fn a_clock_that_is_an_hour_ahead_changes_nothing() {
    an_hour_off("+1h");
}

#[test]
fn a_clock_that_is_an_hour_behind_changes_nothing() {
    an_hour_off("-1h");
}
