//! A private PostgreSQL server for tests, in a directory that goes with it.
//!
//! A shell keeps watch over it: it starts the server, waits until its input is closed, stops the
//! server by its pid file and removes the directory. So the server goes when the test's process
//! does, however that ends.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use semel::store::postgres::PostgresStore;
use semel::store::{Pending, Store};

use crate::conformance::{Bed, ManualClock, scratch};
use crate::counted::{Counted, Shared};

/// The server's superuser.
const USER: &str = "semel";

/// The system's user that runs the server where the tests run as root, whom PostgreSQL refuses.
const SYSTEM_USER: &str = "postgres";

/// Starts, keeps watch, and clears away. `$1` is the directory, `$2` the binaries, the rest what
/// leads to the right user.
const WATCH: &str = r#"
trap '' INT HUP TERM
directory=$1 binaries=$2
shift 2
cd "$directory" || exit 1
"$@" "$binaries/initdb" -D data -U semel --auth=trust -E UTF8 --locale=C --no-sync >initdb.log 2>&1 || { cat initdb.log >&2; exit 1; }
printf 'local all locked scram-sha-256\nlocal all all trust\n' >data/pg_hba.conf
cat >>data/postgresql.conf <<TEXT
listen_addresses = ''
unix_socket_directories = '$directory'
max_connections = 200
fsync = on
TEXT
"$@" "$binaries/pg_ctl" -D data -w -l server.log start >/dev/null 2>&1 || { cat server.log >&2; exit 1; }
echo ready
cat >/dev/null
"$@" "$binaries/pg_ctl" -D data -m immediate stop >/dev/null 2>&1
rm -rf "$directory"
"#;

/// A server of its own.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    binaries: PathBuf,
    databases: AtomicU64,
    watch: Child,
}

impl Cluster {
    /// Starts a server.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or does not start.
    #[must_use]
    pub fn start() -> Self {
        let binaries = binaries();
        let directory = scratch().keep();
        give_away(&directory);
        let mut watch = Command::new("sh");
        watch
            .args(["-c", WATCH, "watch"])
            .arg(&directory)
            .arg(&binaries);
        let mut watch = watch
            .args(as_server())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let output = watch.stdout.take().expect("its output is piped");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it is read");
        assert_eq!(line.trim(), "ready", "PostgreSQL did not start");
        Self {
            directory,
            binaries,
            databases: AtomicU64::new(0),
            watch,
        }
    }

    /// Returns the server that the tests of one process share.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Makes an empty database and returns its URL.
    #[must_use]
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(USER, &name)
    }

    /// Returns the URL of a database for a user, who may have a password (`user:password`).
    #[must_use]
    pub fn url(&self, user: &str, database: &str) -> String {
        let directory = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://{user}@{directory}/{database}")
    }

    /// Returns the directory of the server's socket.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs SQL as the superuser.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let psql = Command::new(self.binaries.join("psql"))
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                USER,
                "-d",
                database,
            ])
            .arg("-h")
            .arg(&self.directory)
            .args(["-c", sql])
            .output()
            .expect("psql runs");
        let said = String::from_utf8_lossy(&psql.stderr);
        assert!(psql.status.success(), "{sql}: {said}");
        String::from_utf8_lossy(&psql.stdout).trim().to_owned()
    }

    /// Kills the server as a crash would: nothing is written back.
    pub fn crash(&self) {
        self.control(&["-m", "immediate", "stop"]);
    }

    /// Starts the server again after a crash.
    pub fn start_again(&self) {
        let log = self.directory.join("server.log");
        let log = log.display().to_string();
        self.control(&["-w", "-l", &log, "start"]);
    }

    fn control(&self, arguments: &[&str]) {
        let pg_ctl = self.binaries.join("pg_ctl");
        let mut words = as_server();
        words.push(pg_ctl.display().to_string());
        let status = Command::new(&words[0])
            .args(&words[1..])
            .arg("-D")
            .arg(self.directory.join("data"))
            .args(arguments)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        let status = status.expect("pg_ctl runs");
        assert!(status.success(), "pg_ctl {arguments:?} fails");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        // The shell stops the server whether or not somebody waits for it.
        let _ended = self.watch.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives a directory to the server's user.
pub(crate) fn give_away(directory: &Path) {
    if is_root() {
        let status = Command::new("chown")
            .arg(SYSTEM_USER)
            .arg(directory)
            .status();
        assert!(status.expect("chown runs").success(), "chown fails");
    }
}

/// The words before a command of the server.
pub(crate) fn as_server() -> Vec<String> {
    let words: &[&str] = if is_root() {
        &[
            "setpriv",
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
        ]
    } else {
        &["env"]
    };
    words.iter().map(ToString::to_string).collect()
}

/// Finds the newest installed server.
fn binaries() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let found = versions
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|path| path.join("initdb").exists())
        .max_by_key(|path| version_of(path));
    found.expect("PostgreSQL is installed (`./test` does it): /usr/lib/postgresql/*/bin/initdb")
}

fn version_of(binaries: &Path) -> Option<u32> {
    let version = binaries.parent()?.file_name()?.to_str()?;
    version.parse().ok()
}

/// A store in a database of its own, on the server that the process's tests share.
#[derive(Debug)]
pub struct PostgresBed {
    clock: Arc<ManualClock>,
    counted: Arc<Mutex<Shared>>,
    url: String,
}

impl PostgresBed {
    /// Makes an empty database for a store with this clock.
    #[must_use]
    pub fn new(clock: &Arc<ManualClock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            counted: Arc::default(),
            url: Cluster::shared().database(),
        }
    }
}

impl Bed for PostgresBed {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async {
            let store = PostgresStore::open_with(&self.url, Arc::clone(&self.clock) as _);
            let store = Arc::new(store.await.expect("the store opens"));
            Arc::new(Counted::new(store, &self.clock, &self.counted)) as Arc<dyn Store>
        })
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }
}
