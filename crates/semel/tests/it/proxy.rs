//! Stands between a client and its PostgreSQL server, and cuts the connection at the worst moment.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use semel_testkit::conformance::scratch;
use semel_testkit::postgres::Cluster;
use tempfile::TempDir;

/// The name of a server's socket in its directory.
const SOCKET: &str = ".s.PGSQL.5432";

/// How an answer ends, once COMMIT is done: the server is ready, and in no transaction.
const READY: &[u8] = b"Z\0\0\0\x05I";

/// What a proxy does to the next request of the kind that it looks for.
const NOTHING: u8 = 0;
const LOSE_REQUEST: u8 = 1;
const LOSE_REPLY: u8 = 2;
const LOSING_REPLY: u8 = 3;

/// Stands between a client and its server.
pub(crate) struct Proxy {
    directory: TempDir,
    cut: Arc<AtomicU8>,
}

impl Proxy {
    /// Starts one that looks for requests with these bytes in them.
    pub(crate) fn start(cluster: &Cluster, asked: &'static [u8]) -> Self {
        let (directory, cut) = (scratch(), Arc::new(AtomicU8::new(NOTHING)));
        let listener = UnixListener::bind(directory.path().join(SOCKET)).expect("it listens");
        let server = cluster.directory().join(SOCKET);
        let shared = Arc::clone(&cut);
        // It ends with the process of the tests.
        thread::spawn(move || {
            for client in listener.incoming() {
                pass(&client.expect("it accepts"), &server, asked, &shared);
            }
        });
        Self { directory, cut }
    }

    /// Cuts the connection before the next such request reaches the server.
    pub(crate) fn lose_request(&self) {
        self.cut.store(LOSE_REQUEST, Ordering::SeqCst);
    }

    /// Cuts the connection once the server has done what the next such request asks for.
    pub(crate) fn lose_reply(&self) {
        self.cut.store(LOSE_REPLY, Ordering::SeqCst);
    }

    /// Says whether it was cut as was ordered.
    pub(crate) fn has_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst) == NOTHING
    }

    /// Returns the URL of a database by way of this proxy.
    pub(crate) fn url(&self, url: &str) -> String {
        let directory = self.directory.path().display().to_string();
        let database = url.rsplit('/').next().expect("a database");
        format!(
            "postgres://semel@{}/{database}",
            directory.replace('/', "%2F")
        )
    }
}

fn pass(client: &UnixStream, server: &PathBuf, asked: &'static [u8], cut: &Arc<AtomicU8>) {
    let server = UnixStream::connect(server).expect("it connects");
    let clone = |stream: &UnixStream| stream.try_clone().expect("it is cloned");
    for (from, to, forth) in [
        (clone(client), clone(&server), true),
        (clone(&server), clone(client), false),
    ] {
        let cut = Arc::clone(cut);
        thread::spawn(move || copy(from, to, forth.then_some(asked), &cut));
    }
}

/// Passes on what comes; to the server when it looks for requests.
fn copy(mut from: UnixStream, mut to: UnixStream, asked: Option<&[u8]>, cut: &AtomicU8) {
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        let bytes = &buffer[..length];
        let (forth, found) = match asked {
            Some(asked) => (true, bytes.windows(asked.len()).any(|part| part == asked)),
            None => (false, bytes.ends_with(READY)),
        };
        let lost = match (cut.load(Ordering::SeqCst), forth, found) {
            (LOSE_REQUEST, true, true) => true,
            (LOSE_REPLY, true, true) => {
                cut.store(LOSING_REPLY, Ordering::SeqCst);
                false
            }
            // The server goes on until it has committed; nobody hears of it.
            (LOSING_REPLY, false, false) if length > 0 => continue,
            (LOSING_REPLY, false, true) => true,
            _ => false,
        };
        if lost {
            cut.store(NOTHING, Ordering::SeqCst);
        }
        if lost || length == 0 || to.write_all(bytes).is_err() {
            // One of them may be closed already.
            let _closed = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            return;
        }
    }
}
