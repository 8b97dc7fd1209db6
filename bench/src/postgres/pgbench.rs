//! What one would write first, at its best: one table and two statements, run by pgbench with a
//! connection for each caller, prepared statements and a Unix socket.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::node::Time;
use super::server::Database;
use crate::histogram::Histogram;
use crate::keys::Keys;
use crate::load::{Measured, WORKERS};

/// Room for the result is left on each page, so that the update need not touch the index. Measured:
/// without it the table takes a fifth less, logs a thirtieth more, and is no faster.
const TABLE: &str = "\
CREATE TABLE operations (
    key bytea PRIMARY KEY,
    state text NOT NULL,
    claimed_at timestamptz NOT NULL,
    settled_at timestamptz,
    result text
) WITH (fillfactor = 80)";

/// A key of four numbers, with as many bytes as Semel's keys.
const KEY: &str = "int8send(:a) || int8send(:b) || int8send(:c) || int8send(:d)";

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Numbers that follow each other become a key's parts by multiplication modulo a prime, which
/// pgbench and SQL both can do: the product of two such numbers fits into 64 bits. No two numbers
/// below the prime give the same key.
const PRIME: u64 = 2_147_483_647;
const FACTORS: [u64; 4] = [1_103_515_245, 1_566_083_941, 1_812_433_253, 1_664_525_013];

/// Two of those in one part: keys that are counted must lie among the random ones in the index.
const HALF: u64 = 1 << 31;

/// The keys that are written in one go: a transaction that can be waited for.
const FILL_AT_ONCE: u64 = 1_000_000;

/// A cycle of a fresh key: the claim and the settlement are a transaction each.
fn cycle_script() -> String {
    let mut script = String::new();
    for name in NAMES {
        script.push_str(&format!("\\set {name} random(0, {})\n", HALF * HALF - 1));
    }
    script.push_str(&format!(
        "INSERT INTO operations (key, state, claimed_at) VALUES ({KEY}, 'running', now()) \
         ON CONFLICT DO NOTHING;\n\
         UPDATE operations SET state = 'succeeded', settled_at = now(), result = :result \
         WHERE key = {KEY} AND state = 'running';\n"
    ));
    script
}

/// A reading of a settled key, one of the first `:keys`.
fn reading_script(end: &str) -> String {
    let mut script = "\\set n random(1, :keys)\n".to_owned();
    for (name, part) in NAMES.iter().zip(parts(":n")) {
        script.push_str(&format!("\\set {name} {part}\n"));
    }
    script.push_str(&format!(
        "SELECT state, result FROM operations WHERE key = {KEY}{end}\n"
    ));
    script
}

/// The parts of a numbered key, for pgbench as for SQL.
fn parts(number: &str) -> [String; 4] {
    std::array::from_fn(|at| {
        let (high, low) = (FACTORS[at], FACTORS[(at + 1) % FACTORS.len()]);
        format!("({number} * {high} % {PRIME}) * {HALF} + {number} * {low} % {PRIME}")
    })
}

/// The table in a database of its own.
pub(crate) struct Pgbench<'a> {
    database: Database<'a>,
    /// The keys that pgbench can name, from 1 on.
    numbered: u64,
    /// All keys.
    total: u64,
    result: String,
}

impl<'a> Pgbench<'a> {
    pub(crate) fn open(database: Database<'a>) -> Result<Self> {
        database.sql(TABLE)?;
        let result = String::from_utf8(Keys::new()?.result(0)).context("results are text")?;
        Ok(Self {
            database,
            numbered: 0,
            total: 0,
            result,
        })
    }

    pub(crate) const fn database(&self) -> &Database<'a> {
        &self.database
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Adds settled keys, quickly, until there are so many.
    pub(crate) fn fill(&mut self, until: u64) -> Result<()> {
        while self.total < until {
            let (from, count) = (self.numbered + 1, FILL_AT_ONCE.min(until - self.total));
            let to = self.numbered + count;
            let key = parts("n")
                .map(|part| format!("int8send({part})"))
                .join(" || ");
            self.database.sql(&format!(
                "INSERT INTO operations SELECT {key}, 'succeeded', now(), now(), '{}'
                 FROM generate_series({from}::bigint, {to}::bigint) AS n",
                self.result
            ))?;
            self.numbered = to;
            self.total += count;
        }
        self.database.sql("VACUUM ANALYZE operations").map(drop)
    }

    /// Measures cycles of fresh keys.
    pub(crate) fn cycles(&mut self, callers: u32, time: Time) -> Result<Measured> {
        let (measured, made) = self.run(&cycle_script(), callers, time)?;
        self.total += made;
        let settled = self
            .database
            .number("SELECT count(*) FROM operations WHERE state = 'succeeded'")?;
        ensure!(
            settled == self.total,
            "pgbench made {} keys, and {settled} are settled",
            self.total
        );
        Ok(measured)
    }

    /// Puts as many keys that can be named in the place of all, which the random ones cannot.
    pub(crate) fn number_keys(&mut self) -> Result<()> {
        let total = self.total;
        self.database.sql("TRUNCATE operations")?;
        (self.numbered, self.total) = (0, 0);
        self.fill(total)
    }

    /// Measures readings of keys that are settled.
    pub(crate) fn readings(&self, callers: u32, time: Time) -> Result<Measured> {
        ensure!(self.numbered > 0, "no key can be named");
        self.prove_that_keys_are_found()?;
        let (measured, _) = self.run(&reading_script(";"), callers, time)?;
        Ok(measured)
    }

    /// Fails unless readings find rows: pgbench does not look at what it gets.
    fn prove_that_keys_are_found(&self) -> Result<()> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        // This form of the statement's end is refused by pgbench when there is no row.
        let script = write_script(&directory, &reading_script(" \\gset"))?;
        let output = self
            .database
            .pgbench()
            .args(["-n", "-M", "prepared", "-t", "20", "-f"])
            .arg(script)
            .args(["-D", &format!("keys={}", self.numbered)])
            .output()
            .context("cannot run pgbench")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && failed_none(&output.stdout),
            "pgbench does not find the keys: {}",
            errors.trim()
        );
        Ok(())
    }

    /// Runs a script, and returns what was measured and how often it ran in all.
    fn run(&self, script: &str, callers: u32, time: Time) -> Result<(Measured, u64)> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let script = write_script(&directory, script)?;
        let logs = directory.path().join("logs");
        fs::create_dir(&logs).context("cannot make a directory")?;
        // It knows whole seconds only; the measured time ends before its own does.
        let seconds = (time.warm_up + time.measured).as_secs() + 1;
        let threads = usize::try_from(callers)?.min(WORKERS);
        let output = self
            .database
            .pgbench()
            .args(["-n", "-M", "prepared", "--log", "-f"])
            .arg(script)
            .arg("--log-prefix")
            .arg(logs.join("log"))
            .args(["-c", &callers.to_string(), "-j", &threads.to_string()])
            .args(["-T", &seconds.to_string()])
            .args(["-D", &format!("result={}", self.result)])
            .args(["-D", &format!("keys={}", self.numbered)])
            .output()
            .context("cannot run pgbench")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && failed_none(&output.stdout),
            "pgbench fails: {}",
            errors.trim()
        );
        let mut log = Log::default();
        for file in fs::read_dir(&logs).context("cannot list pgbench's logs")? {
            let file = File::open(file?.path()).context("cannot open pgbench's log")?;
            log.read(BufReader::new(file))?;
        }
        let processed = processed(&output.stdout)?;
        let logged = log.ended.len() as u64;
        ensure!(
            processed == logged,
            "pgbench ran {processed} times and logged {logged}"
        );
        Ok((log.measured(time)?, processed))
    }

    pub(crate) fn remove(self) -> Result<()> {
        self.database.remove()
    }
}

fn write_script(directory: &TempDir, script: &str) -> Result<std::path::PathBuf> {
    let path: &Path = directory.path();
    let path = path.join("script.sql");
    fs::write(&path, script).context("cannot write pgbench's script")?;
    Ok(path)
}

/// Finds a line of pgbench's summary.
fn summary_line<'a>(summary: &'a str, start: &str) -> Option<&'a str> {
    summary.lines().find_map(|line| line.strip_prefix(start))
}

/// Returns how often the script ran.
fn processed(summary: &[u8]) -> Result<u64> {
    let summary = String::from_utf8_lossy(summary);
    let line = summary_line(&summary, "number of transactions actually processed:");
    // With `-t` the wanted number follows after a slash.
    let number = line.and_then(|line| line.split('/').next()?.trim().parse().ok());
    number.with_context(|| format!("pgbench does not say how often it ran:\n{summary}"))
}

/// Whether no run of the script failed; versions before 15 do not say, and end instead.
fn failed_none(summary: &[u8]) -> bool {
    let summary = String::from_utf8_lossy(summary);
    summary_line(&summary, "number of failed transactions:")
        .is_none_or(|line| line.trim().starts_with("0 "))
}

/// What pgbench wrote about each run of a script.
#[derive(Debug, Default)]
struct Log {
    /// When it ended and how long it took, in microseconds.
    ended: Vec<(u64, u64)>,
}

impl Log {
    fn read(&mut self, lines: impl BufRead) -> Result<()> {
        for line in lines.lines() {
            let line = line.context("cannot read pgbench's log")?;
            let run = parse_run(&line).with_context(|| format!("pgbench's log has `{line}`"))?;
            self.ended.push(run);
        }
        Ok(())
    }

    /// Counts the runs that ended in the measured time, as for every other engine. It lasts until
    /// one has ended, however slow the machine.
    fn measured(&self, time: Time) -> Result<Measured> {
        let starts = self
            .ended
            .iter()
            .map(|(ended, took)| ended.saturating_sub(*took));
        let began = starts.min().context("pgbench logged nothing")?;
        let from = began + micros(time.warm_up);
        let after = |(ended, _): &&(u64, u64)| *ended > from;
        let first = self
            .ended
            .iter()
            .filter(after)
            .map(|(ended, _)| *ended)
            .min();
        let first = first.context("nothing ended after the warm-up")?;
        let to = first.max(from + micros(time.measured));
        let mut latency = Histogram::new();
        for (_, took) in self
            .ended
            .iter()
            .filter(after)
            .filter(|(ended, _)| *ended <= to)
        {
            latency.record(Duration::from_micros(*took));
        }
        let seconds = Duration::from_micros(to - from).as_secs_f64();
        Ok(Measured { seconds, latency })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Reads a line: client, number, microseconds taken, script, and the time of the end in seconds
/// and microseconds.
fn parse_run(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split(' ').skip(2);
    let took = fields.next()?.parse().ok()?;
    let seconds: u64 = fields.nth(1)?.parse().ok()?;
    let micros: u64 = fields.next()?.parse().ok()?;
    Some((seconds.checked_mul(1_000_000)?.checked_add(micros)?, took))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(warm_up: u64, measured: u64) -> Time {
        Time {
            warm_up: Duration::from_secs(warm_up),
            measured: Duration::from_secs(measured),
        }
    }

    #[test]
    fn a_line_of_the_log_tells_when_a_run_ended_and_how_long_it_took() {
        assert_eq!(
            parse_run("7 12 2241 0 1700000000 995271"),
            Some((1_700_000_000_995_271, 2_241))
        );
        for wrong in [
            "",
            "7 12 skipped 0 1700000000 995271",
            "7 12 2241 0 1700000000",
        ] {
            assert_eq!(parse_run(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn runs_are_counted_after_the_warm_up_and_before_the_end() {
        let mut log = Log::default();
        let text = "0 0 1000 0 10 1000\n0 1 500 0 11 0\n0 2 700 0 11 500000\n0 3 900 0 13 500000\n";
        log.read(text.as_bytes()).unwrap();
        let measured = log.measured(time(1, 2)).unwrap();
        // Begun at 10 s: the one at 11 s belongs to the warm-up, that at 13.5 s came too late.
        assert_eq!(measured.latency.total(), 1);
        assert!((measured.seconds - 2.0).abs() < 1e-9);
        assert!((measured.latency.percentile_us(0.5) / 700.0 - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_measurement_lasts_until_a_run_ended() {
        let mut log = Log::default();
        log.read("0 0 1000 0 10 1000\n0 1 4000000 0 14 1000\n".as_bytes())
            .unwrap();
        let measured = log.measured(time(1, 1)).unwrap();
        assert_eq!(measured.latency.total(), 1);
        assert!((measured.seconds - 3.001).abs() < 1e-9);
        assert!(log.measured(time(60, 1)).is_err());
    }

    #[test]
    fn the_summary_tells_runs_and_failures() {
        let summary = b"scaling factor: 1\nnumber of transactions actually processed: 1234\n\
            number of failed transactions: 0 (0.000%)\ntps = 61.7 (without initial connection time)\n";
        assert_eq!(processed(summary).unwrap(), 1_234);
        assert!(failed_none(summary));
        assert!(!failed_none(b"number of failed transactions: 3 (0.100%)\n"));
        assert_eq!(
            processed(b"number of transactions actually processed: 20/20\n").unwrap(),
            20
        );
        assert!(processed(b"tps = 1\n").is_err());
    }

    #[test]
    fn the_products_of_numbered_keys_fit_into_64_bits() {
        for factor in FACTORS {
            assert!(factor < PRIME);
            assert!(i64::try_from(u128::from(factor) * u128::from(PRIME)).is_ok());
        }
    }
}
