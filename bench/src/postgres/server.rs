//! A private PostgreSQL server on the disk that is measured; it goes with this program.
//!
//! A shell keeps watch over it: it starts the server, waits until its input is closed, stops the
//! server and removes its files. So nothing is left however this program ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::disk::Scratch;

/// The server's superuser.
const USER: &str = "semel";

/// The system's user that runs the server where this program is root's, whom PostgreSQL refuses.
const SYSTEM_USER: &str = "postgres";

/// Where Debian keeps each version of the server.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The programs that are used.
const PROGRAMS: [&str; 4] = ["initdb", "pg_ctl", "psql", "pgbench"];

/// What a sensible server of this size would be given; everything else is as PostgreSQL comes.
/// Connections: one for each of pgbench's callers, and some to look.
const SETTINGS: &str = "\
listen_addresses = ''
fsync = on
synchronous_commit = on
full_page_writes = on
shared_buffers = 256MB
max_connections = 300
max_wal_size = 4GB
";

/// The most callers of pgbench that find a connection.
pub(crate) const CALLERS_MAX: i64 = 280;

/// Starts, keeps watch, and clears away. `$1` is the directory, `$2` the socket's, `$3` the
/// programs', `$4` the settings; the rest is what leads to the right user.
const WATCH: &str = r#"
trap '' INT HUP TERM
directory=$1 socket=$2 programs=$3 settings=$4
shift 4
cd "$directory" || exit 1
"$@" "$programs/initdb" -D data -U semel --auth=trust -E UTF8 --locale=C >initdb.log 2>&1 || { cat initdb.log; exit 1; }
printf '%s' "$settings" >>data/postgresql.conf
printf "unix_socket_directories = '%s'\n" "$socket" >>data/postgresql.conf
"$@" "$programs/pg_ctl" -D data -w -l server.log start >start.log 2>&1 || { cat start.log server.log; exit 1; }
echo ready
cat >/dev/null
"$@" "$programs/pg_ctl" -D data -m immediate stop >/dev/null 2>&1
rm -rf "$directory" "$socket"
"#;

/// A server of this run.
#[derive(Debug)]
pub(crate) struct Server {
    programs: PathBuf,
    socket: PathBuf,
    directory: PathBuf,
    databases: AtomicU32,
    watch: Child,
}

impl Server {
    pub(crate) fn start(scratch: &Scratch, programs: Option<&Path>) -> Result<Self> {
        let programs = find_programs(programs)?;
        // A socket's path may have 107 bytes only, which the measured directory may well exceed.
        let socket = TempDir::with_prefix("semel-bench-").context("cannot make a directory")?;
        let directory = scratch.fresh()?;
        for path in [scratch.path(), directory.path(), socket.path()] {
            give_away(path)?;
        }
        let mut watch = Command::new("sh");
        watch.args(["-c", WATCH, "watch"]);
        watch
            .args([directory.path(), socket.path(), &programs])
            .arg(SETTINGS)
            .args(as_server())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut watch = watch.spawn().context("cannot start a shell")?;
        let output = watch.stdout.take().context("the shell has no output")?;
        let mut output = BufReader::new(output);
        let mut said = String::new();
        output.read_line(&mut said)?;
        if said.trim() != "ready" {
            output.read_to_string(&mut said)?;
            let _ended = watch.wait();
            bail!(
                "PostgreSQL does not start in {}: {}\n\
                 hint: its user `{SYSTEM_USER}` must be able to reach the directory; `--dir PATH` names another",
                directory.path().display(),
                said.trim()
            );
        }
        Ok(Self {
            programs,
            // From here on the shell removes them.
            socket: socket.keep(),
            directory: directory.keep(),
            databases: AtomicU32::new(0),
            watch,
        })
    }

    /// Makes an empty database.
    pub(crate) fn database(&self) -> Result<Database<'_>> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench_{number}");
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(Database { server: self, name })
    }

    /// Returns what the server says that it is.
    pub(crate) fn version(&self) -> Result<String> {
        self.sql("postgres", "SHOW server_version")
    }

    /// Returns the number of the server's first process.
    pub(crate) fn process(&self) -> Result<u32> {
        let path = self.directory.join("data/postmaster.pid");
        let text = std::fs::read_to_string(path).context("cannot read postmaster.pid")?;
        let first = text
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        first.context("postmaster.pid does not begin with a number")
    }

    fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let output = self
            .client("psql", database)
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .output()
            .context("cannot run psql")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}\nin: {sql}", errors.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn client(&self, program: &str, database: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.stdin(Stdio::null());
        command.args(["-U", USER, "-d", database, "-h"]);
        command.arg(&self.socket);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        // The shell stops the server whether or not somebody waits for it.
        let _ended = self.watch.wait();
    }
}

/// A database of one measurement.
#[derive(Debug)]
pub(crate) struct Database<'a> {
    server: &'a Server,
    name: String,
}

impl Database<'_> {
    pub(crate) fn url(&self) -> String {
        let socket = self.server.socket.display().to_string();
        format!(
            "postgres://{USER}@{}/{}",
            socket.replace('/', "%2F"),
            self.name
        )
    }

    pub(crate) fn sql(&self, sql: &str) -> Result<String> {
        self.server.sql(&self.name, sql)
    }

    /// Asks for one number.
    pub(crate) fn number(&self, sql: &str) -> Result<u64> {
        let said = self.sql(sql)?;
        said.parse()
            .with_context(|| format!("`{said}` is not a number, in: {sql}"))
    }

    pub(crate) fn pgbench(&self) -> Command {
        self.server.client("pgbench", &self.name)
    }

    /// Has everything older on the disk: it must not slow down what is measured now.
    pub(crate) fn settle_down(&self) -> Result<()> {
        self.sql("CHECKPOINT").map(drop)
    }

    /// Returns how many bytes of write-ahead log there have been.
    pub(crate) fn log_bytes(&self) -> Result<u64> {
        self.number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
    }

    /// Returns what the tables of a schema take, with their indexes and all that belongs to them.
    pub(crate) fn table_bytes(&self, schema: &str) -> Result<u64> {
        self.number(&format!(
            "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
             WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'm')"
        ))
    }

    /// Removes it with what is in it.
    pub(crate) fn remove(self) -> Result<()> {
        let drop_it = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        self.server.sql("postgres", &drop_it).map(drop)
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives a directory to the server's user.
fn give_away(directory: &Path) -> Result<()> {
    if !is_root() {
        return Ok(());
    }
    let output = Command::new("chown")
        .arg(SYSTEM_USER)
        .arg(directory)
        .output();
    let output = output.context("cannot run chown")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", errors.trim());
    Ok(())
}

/// The words before a command of the server.
fn as_server() -> &'static [&'static str] {
    if is_root() {
        &[
            "setpriv",
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
        ]
    } else {
        &["env"]
    }
}

/// Returns the directory of the programs: the given one, or that of the newest server.
fn find_programs(given: Option<&Path>) -> Result<PathBuf> {
    let directory = match given {
        Some(given) => given.to_owned(),
        None => newest(Path::new(VERSIONS)).with_context(|| {
            format!(
                "PostgreSQL is not installed: there is no {VERSIONS}/*/bin/initdb\n\
                 hint: Debian's package is `postgresql`; `--programs PATH` names another place"
            )
        })?,
    };
    for program in PROGRAMS {
        let path = directory.join(program);
        ensure!(
            path.exists(),
            "{program} is not installed: there is no {}\n\
             hint: Debian's package is `postgresql`; `--programs PATH` names another place",
            path.display()
        );
    }
    Ok(directory)
}

fn newest(versions: &Path) -> Option<PathBuf> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let found = std::fs::read_dir(versions).ok()?;
    found
        .filter_map(|version| Some(version.ok()?.path()))
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(number)
        .map(|path| path.join("bin"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_newest_server_is_found_by_number() {
        let versions = tempfile::tempdir().unwrap();
        assert_eq!(newest(versions.path()), None);
        for (version, program) in [("9", "initdb"), ("15", "initdb"), ("16", "psql")] {
            let directory = versions.path().join(version).join("bin");
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(program), "").unwrap();
        }
        let found = newest(versions.path()).unwrap();
        assert!(found.ends_with("15/bin"), "{}", found.display());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let programs = tempfile::tempdir().unwrap();
        for program in ["initdb", "pg_ctl", "psql"] {
            fs::write(programs.path().join(program), "").unwrap();
        }
        let error = find_programs(Some(programs.path()))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("pgbench is not installed"), "{error}");
    }
}
