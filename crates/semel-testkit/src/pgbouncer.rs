//! A pgbouncer in transaction mode before the private server of [`crate::postgres`]: each transaction
//! may meet another server process, so whatever a store leaves in a session shows.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use semel::store::postgres::PostgresStore;
use semel::store::{Pending, Store};

use crate::conformance::{Bed, ManualClock, scratch};
use crate::counted::{Counted, Shared};
use crate::postgres::{Cluster, as_server, give_away};

/// Writes the settings, starts, keeps watch until its input is closed, and clears away. `$1` is its
/// directory, `$2` the server's, the rest what leads to the right user.
const WATCH: &str = r#"
trap '' INT HUP TERM
directory=$1 server=$2
shift 2
cd "$directory" || exit 1
cat >pgbouncer.ini <<TEXT
[databases]
* = host=$server user=semel
[pgbouncer]
pool_mode = transaction
auth_type = any
listen_addr =
unix_socket_dir = $directory
listen_port = 5432
max_client_conn = 500
default_pool_size = 3
logfile = $directory/log
TEXT
"$@" /usr/sbin/pgbouncer -q pgbouncer.ini &
pid=$!
while [ ! -S .s.PGSQL.5432 ]; do kill -0 $pid || exit 1; sleep 0.05; done
echo ready
cat >/dev/null
kill -9 $pid
rm -rf "$directory"
"#;

/// Starts one for the tests of this process and returns its directory.
fn shared() -> &'static Path {
    static SHARED: OnceLock<(std::path::PathBuf, std::process::Child)> = OnceLock::new();
    let (directory, _) = SHARED.get_or_init(|| {
        let server = Cluster::shared().directory();
        let directory = scratch().keep();
        give_away(&directory);
        let mut watch = Command::new("sh")
            .args(["-c", WATCH, "watch"])
            .arg(&directory)
            .arg(server)
            .args(as_server())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let output = watch.stdout.take().expect("its output is piped");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        read.expect("it is read");
        assert_eq!(line.trim(), "ready", "pgbouncer did not start");
        (directory, watch)
    });
    directory
}

/// A store in a database of its own, reached by a pgbouncer.
#[derive(Debug)]
pub struct BouncedBed {
    clock: Arc<ManualClock>,
    counted: Arc<Mutex<Shared>>,
    url: String,
}

impl BouncedBed {
    /// Makes an empty database for a store with this clock.
    #[must_use]
    pub fn new(clock: &Arc<ManualClock>) -> Self {
        let url = Cluster::shared().database();
        let server = Cluster::shared().directory().display().to_string();
        let bouncer = shared().display().to_string();
        let escaped = |path: String| path.replace('/', "%2F");
        Self {
            clock: Arc::clone(clock),
            counted: Arc::default(),
            url: url.replace(&escaped(server), &escaped(bouncer)),
        }
    }
}

impl Bed for BouncedBed {
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
