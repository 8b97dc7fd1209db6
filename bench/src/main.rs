//! Measures Semel beside what it stands on and beside what one would write first, in one run.

mod core;
mod curve;
mod disk;
mod engines;
mod histogram;
mod http;
mod keys;
mod load;
mod machine;
mod mcp;
mod postgres;
mod progress;
mod proxy;
mod queue;
mod report;
mod run;
mod running;
mod serve;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use self::engines::Name;

/// The same as in `semel`, so that no contender has a better one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Measures the ledger over HTTP beside the engine in the same process
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArguments),
    /// Measures calls of tools through the MCP gateway beside the server itself and plain proxies
    #[command(after_help = MCP_EXAMPLES)]
    Mcp(McpArguments),
    /// Measures requests through the proxy beside nginx and the upstream itself
    #[command(after_help = PROXY_EXAMPLES)]
    Proxy(ProxyArguments),
    /// Measures tasks through the ledger's queue beside a Redis stream and the obvious table
    #[command(after_help = QUEUE_EXAMPLES)]
    Queue(QueueArguments),
    /// Is the server that `mcp` measures calls to
    #[command(name = mcp::fixture::COMMAND, hide = true)]
    Fixture,
    /// Is the server that `proxy` measures requests to
    #[command(name = proxy::upstream::COMMAND, hide = true)]
    Upstream,
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

const SERVE_EXAMPLES: &str = "\
The server is `semel serve`, a process of its own on the same cores as the callers, each of which
has a connection. A cycle is a begin and a settle of a fresh key, both durable; a replay begins a
settled key. `http-batch` puts 32 calls into one array; its latencies are those of the arrays.

With `--memory`, 64 connections make cycles for so many minutes, and the server's memory is shown.

Examples:
  cargo build --release && cargo run --release -p semel-bench -- serve
  cargo run --release -p semel-bench -- serve --callers 64 --seconds 10
  cargo run --release -p semel-bench -- serve --memory 10";

const MCP_EXAMPLES: &str = "\
The server is a small one that answers at once. `direct` speaks to it over its standard input and
output, `read` and `effect` through `semel mcp`, with a ledger on SQLite for what acts; each effect has
arguments of its own, and with `keyed` a key of its own besides. The proxies of npm and PyPI have no such
way in, so `http-read` and `http-effect` are beside them, over HTTP. `raw-log` is what two durable commits
cost on this disk, `engine` what the ledger makes of them.

Examples:
  cargo build --release && cargo run --release -p semel-bench -- mcp
  cargo run --release -p semel-bench -- mcp --only direct,read,effect --callers 1 --seconds 10";

const PROXY_EXAMPLES: &str = "\
The upstream is a small server that answers at once, a process of its own; nginx stands before it as a plain
reverse proxy with connections that are kept, and `semel proxy` with its ledger on SQLite. Keys and bodies
are like no others, but those of `semel-replay`, which were answered before. `serve` is a begin and a settle
at `semel serve`. Of a stream, the time to its first event counts, and of `claim` one durable commit by the
engine. Each figure is the median of the rounds; in each round the ways take turns.

Examples:
  cargo build --release && cargo run --release -p semel-bench -- proxy
  cargo run --release -p semel-bench -- proxy --only nginx-get,semel-get --callers 1 --seconds 10
  cargo run --release -p semel-bench -- proxy --json --nginx /opt/nginx/sbin/nginx";

const QUEUE_EXAMPLES: &str = "\
A task has an input and a result of 256 bytes. It counts when it was submitted, leased and settled, each
durably. There are as many submitters as workers, and workers lease one task at a time. `semel-sqlite` and
`semel-postgres` are the engine in this process, `skip-locked` is the obvious table on the same private
PostgreSQL, `redis-streams` a consumer group on a private Redis that syncs its log before it answers. On an
idle queue 8 workers wait while one task at a time is submitted, and what the commits in that take alone is
measured beside it. Each figure is the median of the rounds; in each round the queues take turns.

With `--pending`, queues are filled, and how long a lease takes is measured at growing sizes.

Examples:
  cargo run --release -p semel-bench -- queue
  cargo run --release -p semel-bench -- queue --only semel-sqlite,redis-streams --workers 64 --seconds 10
  cargo run --release -p semel-bench -- queue --json --redis /opt/redis/bin/redis-server
  cargo run --release -p semel-bench -- queue --pending 5000000";

#[derive(Debug, Args)]
struct QueueArguments {
    /// Prints JSON for programs instead of tables for people
    #[arg(long)]
    json: bool,

    /// Works in a new directory here, on a real disk [default: beside this program]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,

    /// The directory of PostgreSQL's programs [default: the newest in /usr/lib/postgresql]
    #[arg(long, value_name = "PATH")]
    programs: Option<PathBuf>,

    /// The redis-server to measure beside [default: where Debian has it]
    #[arg(long, value_name = "PATH")]
    redis: Option<PathBuf>,

    /// Measures tasks for this long each time, after a quarter of it to warm up
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    seconds: Duration,

    /// Takes the median of this many rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,

    /// Measures with these numbers of workers, and as many submitters
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,8,64",
          value_parser = clap::value_parser!(u32).range(1..=queue::WORKERS_MAX))]
    workers: Vec<u32>,

    /// Measures only these queues
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<queue::Name>,

    /// Fills queues with this many tasks and shows how long leases take on the way
    #[arg(long, value_name = "N", conflicts_with_all = ["rounds", "workers", "seconds"],
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pending: Option<u64>,
}

#[derive(Debug, Args)]
struct ProxyArguments {
    /// Prints JSON for programs instead of tables for people
    #[arg(long)]
    json: bool,

    /// Works in a new directory here, on a real disk [default: beside this program]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,

    /// The program to measure [default: `semel` beside this one]
    #[arg(long, value_name = "PATH")]
    semel: Option<PathBuf>,

    /// The nginx to measure beside [default: where Debian has it]
    #[arg(long, value_name = "PATH")]
    nginx: Option<PathBuf>,

    /// Measures requests for this long each time, after a quarter of it to warm up
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    seconds: Duration,

    /// Takes the median of this many rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,

    /// Measures with these numbers of connections
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,64",
          value_parser = clap::value_parser!(u32).range(1..=proxy::processes::CALLERS_MAX))]
    callers: Vec<u32>,

    /// Measures only these ways
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<proxy::Way>,
}

#[derive(Debug, Args)]
struct McpArguments {
    /// Prints JSON for programs instead of tables for people
    #[arg(long)]
    json: bool,

    /// Works in a new directory here, on a real disk [default: beside this program]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,

    /// The program to measure [default: `semel` beside this one]
    #[arg(long, value_name = "PATH")]
    semel: Option<PathBuf>,

    /// Measures calls for this long each time, after a quarter of it to warm up
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    seconds: Duration,

    /// Takes the median of this many rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,

    /// Measures with these numbers of calls in flight
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,64",
          value_parser = clap::value_parser!(u32).range(1..=mcp::stdio::IN_FLIGHT_MAX))]
    callers: Vec<u32>,

    /// Measures only these ways
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<mcp::Way>,
}

#[derive(Debug, Args)]
struct ServeArguments {
    /// Prints JSON for programs instead of tables for people
    #[arg(long)]
    json: bool,

    /// Works in a new directory here, on a real disk [default: beside this program]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,

    /// The program to measure [default: `semel` beside this one]
    #[arg(long, value_name = "PATH")]
    semel: Option<PathBuf>,

    /// The directory of PostgreSQL's programs [default: the newest in /usr/lib/postgresql]
    #[arg(long, value_name = "PATH")]
    programs: Option<PathBuf>,

    /// Measures cycles for this long each time, after a quarter of it to warm up
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    seconds: Duration,

    /// Takes the median of this many rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,

    /// Measures with these numbers of connections
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,64,256",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    callers: Vec<u32>,

    /// Shows the server's memory over so many minutes of load
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["rounds", "callers"],
          value_parser = clap::value_parser!(u32).range(1..=600))]
    memory: Option<u32>,
}

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
        Command::Serve(serve) => measure_serve(&serve),
        Command::Mcp(mcp) => measure_mcp(&mcp),
        Command::Proxy(proxy) => measure_proxy(&proxy),
        Command::Queue(queue) => measure_queue(&queue),
        Command::Fixture => mcp::fixture::serve(),
        Command::Upstream => proxy::upstream::serve(),
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

/// Returns the program to measure.
fn program(given: Option<&PathBuf>) -> Result<PathBuf> {
    match given {
        Some(given) => Ok(given.clone()),
        None => Ok(std::env::current_exe()?.with_file_name("semel")),
    }
}

fn measure_serve(arguments: &ServeArguments) -> Result<String> {
    let scratch = disk::Scratch::make(arguments.dir.as_deref())?;
    let plan = serve::Plan {
        semel: program(arguments.semel.as_ref())?,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
        callers: arguments.callers.clone(),
    };
    if let Some(minutes) = arguments.memory {
        let watch = machine::Watch::start();
        let time = Duration::from_secs(60) * minutes;
        let moments = serve::memory(&scratch, &plan, time)?;
        return Ok(if arguments.json {
            report::serve::memory_json(&moments)
        } else {
            report::serve::memory_table(&moments, &watch.others())
        });
    }
    let server = postgres::server::Server::start(&scratch, arguments.programs.as_deref())?;
    let watch = machine::Watch::with_server(server.process()?);
    let rows = serve::run(&scratch, &server, &plan)?;
    Ok(if arguments.json {
        report::serve::json(&rows)
    } else {
        let (others, path) = (watch.others(), scratch.path().display());
        let version = server.version()?;
        report::serve::table(&rows, &format!("PostgreSQL {version}; {others}, in {path}"))
    })
}

fn measure_mcp(arguments: &McpArguments) -> Result<String> {
    let scratch = disk::Scratch::make(arguments.dir.as_deref())?;
    let watch = machine::Watch::start();
    let plan = mcp::Plan {
        semel: program(arguments.semel.as_ref())?,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
        callers: arguments.callers.clone(),
        ways: mcp::chosen(&arguments.only),
    };
    let rows = mcp::run(&scratch, &plan)?;
    Ok(if arguments.json {
        report::mcp::json(&rows)
    } else {
        let (others, path) = (watch.others(), scratch.path().display());
        report::mcp::table(&rows, &format!("{others}, in {path}"))
    })
}

fn measure_run(arguments: &RunArguments) -> Result<String> {
    let scratch = disk::Scratch::make(arguments.dir.as_deref())?;
    let watch = machine::Watch::start();
    let plan = run::Plan {
        semel: program(arguments.semel.as_ref())?,
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

fn measure_proxy(arguments: &ProxyArguments) -> Result<String> {
    let scratch = disk::Scratch::make(arguments.dir.as_deref())?;
    let watch = machine::Watch::start();
    let ways = proxy::chosen(&arguments.only);
    let nginx = match ways.iter().any(|way| way.needs_nginx()) {
        true => Some(proxy::processes::Nginx::find(arguments.nginx.as_deref())?),
        false => None,
    };
    let version = nginx
        .as_ref()
        .map_or_else(String::new, |nginx| format!("nginx {}; ", nginx.version));
    let plan = proxy::Plan {
        semel: program(arguments.semel.as_ref())?,
        nginx,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
        callers: arguments.callers.clone(),
        ways,
    };
    let rows = proxy::run(&scratch, &plan)?;
    Ok(if arguments.json {
        report::proxy::json(&rows)
    } else {
        let (others, path) = (watch.others(), scratch.path().display());
        report::proxy::table(&rows, &format!("{version}{others}, in {path}"))
    })
}

fn measure_queue(arguments: &QueueArguments) -> Result<String> {
    let mut names = queue::chosen(&arguments.only);
    if arguments.pending.is_some() {
        // A Redis that is filled would only show how much memory there is.
        names.retain(|name| !name.needs_redis());
    }
    let redis = match names.iter().any(|name| name.needs_redis()) {
        true => Some(queue::redis::Redis::find(arguments.redis.as_deref())?),
        false => None,
    };
    let scratch = disk::Scratch::make(arguments.dir.as_deref())?;
    let server = match names.iter().any(|name| name.needs_postgres()) {
        true => {
            let programs = arguments.programs.as_deref();
            Some(postgres::server::Server::start(&scratch, programs)?)
        }
        false => None,
    };
    let places = queue::Places {
        scratch: &scratch,
        server: server.as_ref(),
        redis: redis.as_ref(),
    };
    let watch = places.watch()?;
    let conditions = || {
        let mut said = vec![];
        if let Some(server) = &server {
            said.push(format!("PostgreSQL {}", server.version()?));
        }
        said.extend(redis.iter().map(|redis| format!("Redis {}", redis.version)));
        said.push(format!(
            "{}, in {}",
            watch.others(),
            scratch.path().display()
        ));
        anyhow::Ok(said.join("; "))
    };
    if let Some(tasks) = arguments.pending {
        let points = queue::pending::run(&places, &names, tasks)?;
        return Ok(if arguments.json {
            report::queue::pending_json(&points)
        } else {
            report::queue::pending_table(&points, &conditions()?)
        });
    }
    let plan = queue::Plan {
        seconds: arguments.seconds,
        rounds: arguments.rounds,
        workers: arguments.workers.clone(),
        names,
    };
    let rows = queue::run(&places, &plan)?;
    Ok(if arguments.json {
        report::queue::json(&rows)
    } else {
        report::queue::table(&rows, &conditions()?)
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
