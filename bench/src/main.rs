//! Measures Semel beside what it stands on and beside what one would write first, in one run.

mod core;
mod curve;
mod disk;
mod engines;
mod histogram;
mod keys;
mod load;
mod machine;
mod postgres;
mod progress;
mod report;
mod run;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use self::engines::Name;

/// What a shell is told when the command line is wrong, the same as from `semel` itself.
const USAGE: u8 = 64;

#[derive(Debug, Parser)]
#[command(name = "semel-bench", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures the embedded ledger beside a raw log and a naive SQLite table
    #[command(after_help = EXAMPLES)]
    Core(CoreArguments),
    /// Measures what `semel run` costs beside the bare command
    #[command(
        after_help = "Example:\n  cargo build --release && cargo run --release -p semel-bench -- run"
    )]
    Run(RunArguments),
    /// Measures the ledger on PostgreSQL beside pgbench with the obvious table
    #[command(after_help = POSTGRES_EXAMPLES)]
    Postgres(PostgresArguments),
    /// Is a node that `postgres` measures
    #[command(name = postgres::node::COMMAND, hide = true)]
    Node { url: String },
}

const EXAMPLES: &str = "\
A cycle claims a fresh random key and settles it with a 256-byte result; both are on disk before
the caller hears of them. A replay begins a settled key and gets its result back. Each figure is
the median of the rounds; in each round the engines take turns, so that a busy machine slows all
of them alike.

Examples:
  cargo run --release -p semel-bench -- core
  cargo run --release -p semel-bench -- core --json --dir /var/tmp
  cargo run --release -p semel-bench -- core --callers 64 --only semel --seconds 10
  cargo run --release -p semel-bench -- core --keys 5000000";

const POSTGRES_EXAMPLES: &str = "\
The server is a private one, started in a new directory and removed at the end. A cycle claims a
fresh random key and settles it with a 256-byte result. pgbench does it as one would first write
it: INSERT … ON CONFLICT DO NOTHING, then UPDATE, in two transactions, with prepared statements
and a connection for each caller. A replay begins a settled key, which pgbench does by reading its
row. Each figure is the median of the rounds; in each round the engines take turns.

With `--keys`, both are filled, and the speed of 64 callers is measured at growing sizes.

Examples:
  cargo run --release -p semel-bench -- postgres
  cargo run --release -p semel-bench -- postgres --json --dir /var/tmp
  cargo run --release -p semel-bench -- postgres --callers 64 --only pgbench,semel --seconds 10
  cargo run --release -p semel-bench -- postgres --keys 10000000";

#[derive(Debug, Args)]
struct RunArguments {
    /// Prints JSON for programs instead of a table for people
    #[arg(long)]
    json: bool,

    /// Works in a new directory here, on a real disk [default: beside this program]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,

    /// The program to measure [default: `semel` beside this one]
    #[arg(long, value_name = "PATH")]
    semel: Option<PathBuf>,

    /// Takes the median of this many runs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=9999))]
    rounds: u32,

    /// Lists a store with this many operations
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: u64,
}

#[derive(Debug, Args)]
struct CoreArguments {
    /// Prints JSON for programs instead of tables for people
    #[arg(long)]
    json: bool,

    /// Works in a new directory here, on a real disk [default: beside this program]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,

    /// Measures cycles for this long each time, after a quarter of it to warm up
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    seconds: Duration,

    /// Takes the median of this many rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,

    /// Measures with these numbers of concurrent callers
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,64,256",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    callers: Vec<u32>,

    /// Measures only these engines
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<Name>,

    /// Fills a store with this many keys and shows how its speed changes on the way
    #[arg(long, value_name = "N", conflicts_with_all = ["only", "rounds", "callers"],
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: Option<u64>,
}

#[derive(Debug, Args)]
struct PostgresArguments {
    /// Prints JSON for programs instead of tables for people
    #[arg(long)]
    json: bool,

    /// Works in a new directory here, on a real disk [default: beside this program]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,

    /// The directory of PostgreSQL's programs [default: the newest in /usr/lib/postgresql]
    #[arg(long, value_name = "PATH")]
    programs: Option<PathBuf>,

    /// Measures cycles for this long each time, after a quarter of it to warm up
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    seconds: Duration,

    /// Takes the median of this many rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,

    /// Measures with these numbers of concurrent callers
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,64,256",
          value_parser = clap::value_parser!(u32).range(1..=postgres::server::CALLERS_MAX))]
    callers: Vec<u32>,

    /// Measures only these engines
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<postgres::Name>,

    /// Fills both with this many keys and shows how their speed changes on the way
    #[arg(long, value_name = "N", conflicts_with_all = ["only", "rounds", "callers"],
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: Option<u64>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "a number is needed, as in `2.5`".to_owned())?;
    // Shorter ones measure nothing, longer ones do not end in a session.
    if (0.01..=600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("it must be between 0.01 and 600".to_owned())
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            // There is nobody left to tell when the terminal is gone.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let measured = match arguments.command {
        Command::Core(core) => measure_core(&core),
        Command::Run(run) => measure_run(&run),
        Command::Postgres(postgres) => measure_postgres(&postgres),
        Command::Node { url } => postgres::node::serve(&url).map(|()| String::new()),
    };
    match measured.and_then(|text| print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure_run(arguments: &RunArguments) -> Result<String> {
    let scratch = disk::Scratch::make(arguments.dir.as_deref())?;
    let watch = machine::Watch::start();
    let beside = || Ok::<_, io::Error>(std::env::current_exe()?.with_file_name("semel"));
    let plan = run::Plan {
        semel: arguments.semel.clone().map_or_else(beside, Ok)?,
        rounds: arguments.rounds,
        operations: arguments.operations,
    };
    let figures = run::run(&scratch, &plan)?;
    Ok(if arguments.json {
        format!("{:#}\n", figures.json())
    } else {
        figures.table(&watch.others())
    })
}

fn measure_core(arguments: &CoreArguments) -> Result<String> {
    let scratch = disk::Scratch::make(arguments.dir.as_deref())?;
    let watch = machine::Watch::start();
    let text = if let Some(keys) = arguments.keys {
        let curve = curve::run(&scratch, arguments.seconds, keys)?;
        if arguments.json {
            report::curve_json(&curve)
        } else {
            report::curve_table(&curve, &watch.others())
        }
    } else {
        let plan = core::Plan {
            seconds: arguments.seconds,
            rounds: arguments.rounds,
            callers: arguments.callers.clone(),
            engines: engines::chosen(&arguments.only),
        };
        let rows = core::run(&scratch, &plan)?;
        if arguments.json {
            report::json(&rows)
        } else {
            report::table(
                &rows,
                &format!("{}, in {}", watch.others(), scratch.path().display()),
            )
        }
    };
    Ok(text)
}

fn measure_postgres(arguments: &PostgresArguments) -> Result<String> {
    let scratch = disk::Scratch::make(arguments.dir.as_deref())?;
    let server = postgres::server::Server::start(&scratch, arguments.programs.as_deref())?;
    let watch = machine::Watch::with_server(server.process()?);
    let version = server.version()?;
    let conditions = || {
        let (others, path) = (watch.others(), scratch.path().display());
        format!("PostgreSQL {version}; {others}, in {path}")
    };
    if let Some(keys) = arguments.keys {
        let curve = postgres::curve::run(&server, arguments.seconds, keys)?;
        return Ok(if arguments.json {
            report::postgres::curve_json(&curve, &version)
        } else {
            report::postgres::curve_table(&curve, &conditions())
        });
    }
    let plan = postgres::Plan {
        seconds: arguments.seconds,
        rounds: arguments.rounds,
        callers: arguments.callers.clone(),
        engines: postgres::chosen(&arguments.only),
    };
    let rows = postgres::run(&server, &plan)?;
    Ok(if arguments.json {
        report::postgres::json(&rows, &version)
    } else {
        report::postgres::table(&rows, &conditions())
    })
}

fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads only the first lines has got what was wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot print the result"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn durations_that_measure_nothing_are_refused() {
        for wrong in ["0", "-1", "601", "NaN", "inf", "soon", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
    }
}
