//! The key under which callers' credentials are hashed: secret, and the same wherever the ledger is used from.

use std::path::Path;

use semel::core::Digest;
use semel::store::Store as _;
use semel::store::sqlite::SqliteStore;
use semel_testkit::postgres::Cluster;

use crate::harness::World;
use crate::server::Server;
use crate::setup::{Setup, fresh, is_replay, keyed};
use crate::upstream::Upstream;

const CREDENTIALS: &str = "Basic YW5uOjE=";

/// A proxy in front of an upstream, on a store of its own choice.
fn proxy(world: &World, upstream: &Upstream, store: &str) -> Server {
    let url = upstream.url();
    let words = [
        "--store",
        store,
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        &url,
    ];
    Server::spawn(&mut world.command(&words))
}

/// Sends the same request as the same caller, and says whether its answer is a replay.
#[track_caller]
fn sends_again(proxy: &Server) -> bool {
    let answer = proxy.ask(keyed("k").header("Authorization", CREDENTIALS));
    assert_eq!(answer.status, 201, "{answer:?}");
    is_replay(&answer)
}

fn sqlite(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// The HMAC of RFC 2104 with SHA-256, for a key of 32 bytes.
fn hmac(key: &[u8; 32], message: &[u8]) -> Digest {
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        block
            .iter_mut()
            .zip(key)
            .for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Digest::of_parts(&[&padded(0x36), message]);
    Digest::of_parts(&[&padded(0x5c), &inner.0])
}

/// What every reader knows, the number of the store, must not be enough to guess credentials by.
#[tokio::test]
async fn principal_cannot_be_computed_from_the_stores_number() {
    let setup = Setup::new();
    fresh(
        &setup.ask(keyed("k").header("Authorization", CREDENTIALS)),
        201,
    );
    let shown = setup.records()[0]["principal"]
        .as_str()
        .expect("a name")
        .to_owned();
    let store = SqliteStore::open(setup.world.path("data/semel.db")).expect("the store opens");
    let id = store.id().await.expect("it has a number");
    let line = CREDENTIALS.as_bytes();
    let framed = [
        b"authorization".as_slice(),
        &(line.len() as u64).to_be_bytes(),
        line,
    ]
    .concat();
    for known in [id.as_bytes(), b""] {
        let key = Digest::of_parts(&[b"semel-proxy-principal\0", known]);
        for credentials in [line, &framed] {
            let guessed = hmac(&key.0, credentials).hex();
            assert_ne!(shown, format!("auth {}", &guessed[..32]));
        }
    }
}

#[test]
fn copied_and_restored_ledgers_know_their_callers_again() {
    let cluster = Cluster::start();
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    let first = sqlite(&world.path("first.db"));
    let mut running = proxy(&world, &upstream, &first);
    assert!(!sends_again(&running));
    running.kill();

    let backup = world.path("backup.db");
    let backup = backup.display().to_string();
    let made = world.semel(&["--store", &first, "backup", &backup]);
    assert_eq!(made.code, 0, "{made:?}");
    let restored = sqlite(&world.path("restored.db"));
    let done = world.semel(&["--store", &restored, "restore", &backup]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(sends_again(&proxy(&world, &upstream, &restored)));

    let (database, last) = (cluster.database(), sqlite(&world.path("last.db")));
    for (from, to) in [(&first, &database), (&database, &last)] {
        let copied = world.semel(&["copy", "--from", from, "--to", to]);
        assert_eq!(copied.code, 0, "{copied:?}");
        let mut running = proxy(&world, &upstream, to);
        assert!(sends_again(&running), "{to}");
        running.kill();
    }
    assert_eq!(upstream.effects().len(), 1);
}

#[test]
fn proxy_on_a_remote_ledger_has_the_scopes_of_one_on_the_store() {
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    let store = sqlite(&world.path("data/semel.db"));
    let server = Server::start(&world);
    let url = format!("http://127.0.0.1:{}", server.port());
    assert!(!sends_again(&proxy(&world, &upstream, &url)));
    assert!(sends_again(&proxy(&world, &upstream, &store)));
    assert!(sends_again(&proxy(&world, &upstream, &url)));
    assert_eq!(upstream.effects().len(), 1);
}

#[test]
fn proxies_that_start_at_once_agree_on_one_key() {
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    let store = sqlite(&world.path("data/semel.db"));
    let proxies: Vec<_> = (0..4).map(|_| proxy(&world, &upstream, &store)).collect();
    let replays = std::thread::scope(|scope| {
        let asked: Vec<_> = proxies
            .iter()
            .map(|proxy| scope.spawn(|| sends_again(proxy)))
            .collect();
        let replays = asked
            .into_iter()
            .map(|it| it.join().expect("it is answered"));
        replays.filter(|is_replay| *is_replay).count()
    });
    assert_eq!((replays, upstream.effects().len()), (3, 1));
}

/// The key itself is in the store's file and in nothing that a server or a command says.
#[tokio::test]
async fn no_call_returns_the_key() {
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    assert!(!sends_again(&proxy(
        &world,
        &upstream,
        &sqlite(&world.path("data/semel.db"))
    )));
    let store = SqliteStore::open(world.path("data/semel.db")).expect("the store opens");
    let key = store
        .principal_key()
        .await
        .expect("it is read")
        .expect("there is one");
    let hex = Digest(*key.bytes()).hex();
    let secret = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.contains(&hex) || bytes.windows(32).any(|window| window == key.bytes())
    };
    let server = Server::start(&world);
    let wire = [
        semel::wire::Call::Hello,
        semel::wire::Call::Standing,
        semel::wire::Call::Log {
            after: 0,
            limit: 100,
        },
        semel::wire::Call::PrincipalCode(Digest::of(b"x")),
    ];
    for call in wire {
        let asked = crate::http::Asked::new("POST", semel::wire::PATH)
            .header("Content-Type", semel::wire::MEDIA_TYPE)
            .body(&call.encode());
        let answer = server.ask(asked);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!secret(&answer.body), "{call:?}");
    }
    for target in [
        "/v1/operations",
        "/v1/events?after=0&follow=false",
        "/metrics",
        "/readyz",
    ] {
        assert!(!secret(&server.get(target).body), "{target}");
    }
    for words in [
        ["doctor", "--json"],
        ["stats", "--json"],
        ["list", "--json"],
        ["log", "--json"],
        ["verify", "--json"],
    ] {
        let ran = world.semel(&words);
        assert!(
            !secret(ran.stdout.as_bytes()) && !secret(ran.stderr.as_bytes()),
            "{words:?}"
        );
    }
}
