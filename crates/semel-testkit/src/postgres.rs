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

use rustix::process::{Pid, Signal, kill_process};
use semel::store::postgres::PostgresStore;
use semel::store::{Pending, Store};

use crate::conformance::{Bed, ManualClock, scratch};
use crate::counted::{Counted, Shared};

/// The server's superuser.
const USER: &str = "semel";

/// The system's user that runs the server where the tests run as root, whom PostgreSQL refuses.
const SYSTEM_USER: &str = "postgres";

/// The port of a server that is reached by its socket only.
const PORT: u16 = 5432;

/// How often, and with which pause, is looked whether a standby follows.
const FOLLOW_LOOKS: usize = 600;
const FOLLOW_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Starts, keeps watch, and clears away. `$1` is the directory, `$2` the binaries, the rest what
/// leads to the right user. A standby begins with a copy of its primary, `$PRIMARY`; a server with
/// a small disk, `$SMALL`, has it at `small`.
const WATCH: &str = r#"
trap '' INT HUP TERM
directory=$1 binaries=$2
shift 2
cd "$directory" || exit 1
if [ -n "$SMALL" ]; then
    mkdir small && mount -t tmpfs -o "size=$SMALL" tmpfs small || exit 1
    [ -n "$SYSTEM_USER" ] && chown "$SYSTEM_USER" small
fi
if [ -n "$PRIMARY" ]; then
    "$@" "$binaries/pg_basebackup" -D data -R -c fast --no-sync -d "$PRIMARY" >basebackup.log 2>&1 || { cat basebackup.log >&2; exit 1; }
else
    "$@" "$binaries/initdb" -D data -U semel --auth=trust -E UTF8 --locale=C --no-sync >initdb.log 2>&1 || { cat initdb.log >&2; exit 1; }
    printf '%s\nlocal all locked scram-sha-256\nlocal all all trust\nlocal replication all trust\n' "$DOORS" >data/pg_hba.conf
fi
cat >>data/postgresql.conf <<TEXT
listen_addresses = ''
unix_socket_directories = '$directory'
max_connections = 200
fsync = on
$SETTINGS
TEXT
"$@" "$binaries/pg_ctl" -D data -w -l server.log start >/dev/null 2>&1 || { cat server.log >&2; exit 1; }
echo ready
cat >/dev/null
"$@" "$binaries/pg_ctl" -D data -m immediate stop >/dev/null 2>&1
[ -n "$SMALL" ] && umount small
rm -rf "$directory"
"#;

/// What a server is started with beyond the usual.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Lines for `postgresql.conf`.
    pub settings: String,
    /// Lines for `pg_hba.conf`, before the usual ones.
    pub doors: String,
    /// Files that are copied to the server's directory, and are its own there.
    pub files: Vec<PathBuf>,
    /// Whether it also listens at 127.0.0.1.
    pub tcp: bool,
    /// The bytes of a small file system at `small` in the server's directory, for a tablespace.
    pub small: Option<u64>,
    /// How the primary is reached, for a standby.
    pub primary: Option<String>,
}

/// A server of its own.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    binaries: PathBuf,
    port: u16,
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
        Self::start_with(&Setup::default())
    }

    /// Starts a server with something special.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, does not start, or what is special cannot be had here.
    #[must_use]
    pub fn start_with(setup: &Setup) -> Self {
        let binaries = binaries();
        let directory = scratch().keep();
        give_away(&directory);
        for file in &setup.files {
            let copy = directory.join(file.file_name().expect("it is a file"));
            std::fs::copy(file, &copy).expect("it is copied");
            give_away(&copy);
        }
        let port = if setup.tcp { free_port() } else { PORT };
        let mut settings = format!("port = {port}\n");
        if setup.tcp {
            settings.push_str("listen_addresses = '127.0.0.1'\n");
        }
        settings.push_str(&setup.settings);
        // Who is not root needs another user's name space to mount something.
        let alone: &[&str] = match (setup.small, is_root()) {
            (None, _) => &[],
            (Some(_), true) => &["unshare", "--mount"],
            (Some(_), false) => &["unshare", "--mount", "--map-root-user"],
        };
        let mut words: Vec<String> = alone.iter().map(ToString::to_string).collect();
        words.push("sh".to_owned());
        let mut watch = Command::new(&words[0]);
        watch
            .args(&words[1..])
            .args(["-c", WATCH, "watch"])
            .arg(&directory)
            .arg(&binaries);
        if setup.small.is_some() && !is_root() {
            // PostgreSQL refuses root, also one that is nobody outside.
            let user = rustix::process::geteuid().as_raw();
            watch.args(["unshare", &format!("--map-user={user}")]);
        }
        let small = setup.small.map(|bytes| bytes.to_string());
        let mut watch = watch
            .args(as_server())
            .env("SETTINGS", settings)
            .env("DOORS", &setup.doors)
            .env("PRIMARY", setup.primary.as_deref().unwrap_or_default())
            .env("SMALL", small.unwrap_or_default())
            .env("SYSTEM_USER", if is_root() { SYSTEM_USER } else { "" })
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
        assert_eq!(line.trim(), "ready", "PostgreSQL did not start: {setup:?}");
        Self {
            directory,
            binaries,
            port,
            databases: AtomicU64::new(0),
            watch,
        }
    }

    /// Starts a standby of this server, which from then on commits nothing that the standby has not
    /// written, too.
    ///
    /// # Panics
    /// When it does not start, or does not follow.
    #[must_use]
    pub fn synchronous_standby(&self) -> Self {
        let standby = Self::start_with(&Setup {
            primary: Some(format!(
                "host={} port={} user={USER} application_name=standby",
                self.directory.display(),
                self.port
            )),
            ..Setup::default()
        });
        self.sql(
            "postgres",
            "ALTER SYSTEM SET synchronous_standby_names = 'standby'",
        );
        self.sql("postgres", "SELECT pg_reload_conf()");
        let state = "SELECT sync_state FROM pg_stat_replication";
        let following = (0..FOLLOW_LOOKS).any(|_| {
            std::thread::sleep(FOLLOW_PAUSE);
            self.sql("postgres", state) == "sync"
        });
        assert!(following, "the standby does not follow");
        standby
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        self.control(&["-w", "promote"]);
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
        format!("postgres://{user}@{directory}:{}/{database}", self.port)
    }

    /// Returns the port of the server, also of its socket.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
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
            .args(["-p", &self.port.to_string()])
            .arg("-h")
            .arg(&self.directory)
            .args(["-c", sql])
            .output()
            .expect("psql runs");
        let said = String::from_utf8_lossy(&psql.stderr);
        assert!(psql.status.success(), "{sql}: {said}");
        String::from_utf8_lossy(&psql.stdout).trim().to_owned()
    }

    /// Partitions the ledger of a database as `docs/scale.md` tells its readers to.
    pub fn partition(&self, database: &str) {
        self.sql(database, include_str!("../../../docs/sql/partition.sql"));
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

    /// Counts the connections that the server sent away because it was full.
    ///
    /// # Panics
    /// When its log cannot be read.
    #[must_use]
    pub fn refused_connections(&self) -> usize {
        let log = std::fs::read_to_string(self.directory.join("server.log"));
        let log = log.expect("the log can be read");
        let full = [
            "too many clients",
            "too many connections",
            "connection slots",
        ];
        let lines = log.lines();
        lines
            .filter(|line| full.iter().any(|text| line.contains(text)))
            .count()
    }

    /// Stops the process that takes new connections, until what is returned is dropped.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn stop_listening(&self) -> Stopped {
        let file = self.directory.join("data/postmaster.pid");
        let text = std::fs::read_to_string(file).expect("the server runs");
        Stopped::process(text.lines().next().unwrap_or_default())
    }

    /// Stops the process by which a standby receives what its primary writes.
    ///
    /// # Panics
    /// When it is not receiving.
    #[must_use]
    pub fn stop_receiving(&self) -> Stopped {
        Stopped::process(&self.sql("postgres", "SELECT pid FROM pg_stat_wal_receiver"))
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

/// A process that was stopped and goes on when this is dropped.
#[derive(Debug)]
pub struct Stopped(Pid);

impl Stopped {
    fn process(number: &str) -> Self {
        let pid = number.parse().ok().and_then(Pid::from_raw);
        let pid = pid.expect("it has a process");
        kill_process(pid, Signal::STOP).expect("it is stopped");
        Self(pid)
    }

    /// Lets it go on only to end.
    ///
    /// # Panics
    /// When it is gone.
    pub fn end(self) {
        kill_process(self.0, Signal::TERM).expect("it is told to end");
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).expect("it goes on");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        // The shell stops the server whether or not somebody waits for it.
        let _ended = self.watch.wait();
    }
}

/// Returns a port on which nobody listens right now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port");
    listener.local_addr().expect("it has an address").port()
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

/// As [`PostgresBed`], with partitioned tables.
#[derive(Debug)]
pub struct PartitionedBed {
    bed: PostgresBed,
    partitioned: tokio::sync::OnceCell<()>,
}

impl PartitionedBed {
    /// Makes an empty database for a store with this clock.
    #[must_use]
    pub fn new(clock: &Arc<ManualClock>) -> Self {
        Self {
            bed: PostgresBed::new(clock),
            partitioned: tokio::sync::OnceCell::new(),
        }
    }
}

impl Bed for PartitionedBed {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async {
            let partition = || async {
                // The first start makes the tables.
                drop(self.bed.open().await);
                let url = &self.bed.url;
                let database = url.rsplit('/').next().expect("a database");
                Cluster::shared().partition(database);
            };
            self.partitioned.get_or_init(partition).await;
            self.bed.open().await
        })
    }

    fn clock(&self) -> &Arc<ManualClock> {
        self.bed.clock()
    }
}
