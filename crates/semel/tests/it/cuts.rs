//! A connection to PostgreSQL that is lost at the worst moment: while a batch is being written.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use semel::store::Store;
use semel::store::postgres::PostgresStore;
use semel_testkit::conformance::hand::{begin, spec};
use semel_testkit::conformance::{ManualClock, scratch};
use semel_testkit::postgres::Cluster;
use tempfile::TempDir;

/// The name of a server's socket in its directory.
const SOCKET: &str = ".s.PGSQL.5432";

/// How a batch is asked for.
const APPLY: &[u8] = b"semel.apply(";

/// How an answer ends, once COMMIT is done: the server is ready, and in no transaction.
const READY: &[u8] = b"Z\0\0\0\x05I";

/// What a proxy does to the next batch.
const NOTHING: u8 = 0;
const LOSE_REQUEST: u8 = 1;
const LOSE_REPLY: u8 = 2;
const LOSING_REPLY: u8 = 3;

/// Stands between a store and its server.
struct Proxy {
    directory: TempDir,
    cut: Arc<AtomicU8>,
}

impl Proxy {
    fn start(cluster: &Cluster) -> Self {
        let (directory, cut) = (scratch(), Arc::new(AtomicU8::new(NOTHING)));
        let listener = UnixListener::bind(directory.path().join(SOCKET)).expect("it listens");
        let server = cluster.directory().join(SOCKET);
        let shared = Arc::clone(&cut);
        // It ends with the process of the tests.
        thread::spawn(move || {
            for client in listener.incoming() {
                pass(&client.expect("it accepts"), &server, &shared);
            }
        });
        Self { directory, cut }
    }

    fn url(&self, url: &str) -> String {
        let directory = self.directory.path().display().to_string();
        let database = url.rsplit('/').next().expect("a database");
        format!(
            "postgres://semel@{}/{database}",
            directory.replace('/', "%2F")
        )
    }
}

fn pass(client: &UnixStream, server: &PathBuf, cut: &Arc<AtomicU8>) {
    let server = UnixStream::connect(server).expect("it connects");
    let clone = |stream: &UnixStream| stream.try_clone().expect("it is cloned");
    for (from, to, forth) in [
        (clone(client), clone(&server), true),
        (clone(&server), clone(client), false),
    ] {
        let cut = Arc::clone(cut);
        thread::spawn(move || copy(from, to, forth, &cut));
    }
}

fn copy(mut from: UnixStream, mut to: UnixStream, forth: bool, cut: &AtomicU8) {
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        let bytes = &buffer[..length];
        let asks = bytes.windows(APPLY.len()).any(|window| window == APPLY);
        let ready = bytes.ends_with(READY);
        let order = cut.load(Ordering::SeqCst);
        let lost = match (order, forth, if forth { asks } else { ready }) {
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

async fn open() -> (Proxy, PostgresStore) {
    let cluster = Cluster::shared();
    let proxy = Proxy::start(cluster);
    let url = proxy.url(&cluster.database());
    let store = PostgresStore::open_with(&url, Arc::new(ManualClock::default()));
    let store = store.await.expect("the store opens");
    (proxy, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_reply_is_lost_is_found() {
    let (proxy, store) = open().await;
    proxy.cut.store(LOSE_REPLY, Ordering::SeqCst);
    let begun = begin(&spec("order-7"), 1).apply(&store, None).await;
    assert!(begun.expect("it is found").wrote);
    assert_eq!(proxy.cut.load(Ordering::SeqCst), NOTHING, "it was cut");
    assert_eq!(store.log(0, 10).await.expect("it reads").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_sent_again() {
    let (proxy, store) = open().await;
    proxy.cut.store(LOSE_REQUEST, Ordering::SeqCst);
    let begun = begin(&spec("order-7"), 1).apply(&store, None).await;
    assert!(begun.expect("it is sent again").wrote);
    assert_eq!(proxy.cut.load(Ordering::SeqCst), NOTHING, "it was cut");
    assert_eq!(store.log(0, 10).await.expect("it reads").len(), 1);
}
