//! What clients are told when the store fails: a code and a number, and no path, statement or host. The log has the
//! cause under the same number.

use std::process::Command;

use semel::core::Digest;
use semel_testkit::postgres::{Cluster, Setup};
use serde_json::{Value, json};

use crate::harness::World;
use crate::http::{Answer, Asked};
use crate::server::Server;

const INBOX: &str = "[inbox.shop]\nscheme = \"none\"\nid = \"header:X-Id\"\nqueue = \"work\"\n";

/// An upstream where nothing listens.
const UPSTREAM: &str = "127.0.0.1:9";

/// Every route that asks the store, with a request that reaches it. `{}` in a path stands for a key.
fn requests() -> Vec<(&'static str, Asked)> {
    let post = |path: &'static str, target: &str, body: Value| (path, Asked::post(target, &body));
    let get = |path: &'static str, target: &str| (path, Asked::get(target));
    let order = || json!({"key": "k", "version": 1});
    let settle = json!({"key": "k", "attempt_id": "a", "fence": 1, "verdict": "done", "ok": true, "effect": "created"});
    let begin = json!({"key": "k2", "name": "n", "attempt_id": "b"});
    let resolve = json!({"key": "k", "version": 1, "verdict": "not_done"});
    let breaker = || json!({});
    vec![
        post("/v1/begin", "/v1/begin", begin.clone()),
        post("/v1/begin", "/v1/begin", json!([begin, {"key": "x"}])),
        post(
            "/v1/renew",
            "/v1/renew",
            json!({"key": "k", "attempt_id": "a", "fence": 1}),
        ),
        post("/v1/settle", "/v1/settle", settle),
        post(
            "/v1/submit",
            "/v1/submit",
            json!({"key": "k3", "name": "n"}),
        ),
        post(
            "/v1/queues/{queue}/tasks",
            "/v1/queues/q/tasks",
            json!({"key": "t", "name": "n"}),
        ),
        post(
            "/v1/queues/{queue}/lease",
            "/v1/queues/q/lease",
            json!({"max": 1}),
        ),
        get("/v1/queues", "/v1/queues"),
        post("/v1/resolve", "/v1/resolve", resolve),
        post("/v1/retry", "/v1/retry", order()),
        post("/v1/cancel", "/v1/cancel", order()),
        post("/v1/forget", "/v1/forget", order()),
        get("/v1/breakers", "/v1/breakers"),
        post("/v1/breakers/{name}/open", "/v1/breakers/b/open", breaker()),
        post(
            "/v1/breakers/{name}/close",
            "/v1/breakers/b/close",
            breaker(),
        ),
        post(
            "/v1/breakers/{name}/reset",
            "/v1/breakers/b/reset",
            breaker(),
        ),
        get("/v1/operations", "/v1/operations"),
        get("/v1/operations/{key}", "/v1/operations/k"),
        get("/v1/operations/{key}/events", "/v1/operations/k/events"),
        get("/v1/events", "/v1/events"),
        get("/metrics", "/metrics"),
        get("/readyz", "/readyz"),
        (
            "/in/{source}",
            Asked::post("/in/shop", &json!({"id": 1})).header("X-Id", "1"),
        ),
        ("/v1/engine", engine(semel::wire::Call::End)),
        (
            "/v1/engine",
            engine(semel::wire::Call::PrincipalCode(Digest::of(b"x"))),
        ),
        ("/v1/engine", engine(semel::wire::Call::Standing)),
    ]
}

fn engine(call: semel::wire::Call) -> Asked {
    Asked::new("POST", semel::wire::PATH)
        .header("Content-Type", semel::wire::MEDIA_TYPE)
        .body(&call.encode())
}

fn proxied() -> Asked {
    Asked::post("/charges", &json!({"amount": 5}))
        .header("Idempotency-Key", "k")
        .header("Authorization", "Bearer ann")
}

/// A server and a proxy on one store.
struct Doors {
    world: World,
    server: Server,
    proxy: Server,
}

impl Doors {
    fn open(world: World, store: &str) -> Self {
        std::fs::write(world.path("semel.toml"), INBOX).expect("it can be written");
        let spawn = |words: &[&str]| {
            let mut command: Command = world.command(words);
            Server::spawn(command.env("SEMEL_STORE", store))
        };
        let server = spawn(&["serve", "--listen", "127.0.0.1:0"]);
        let upstream = format!("http://{UPSTREAM}");
        let proxy = spawn(&["proxy", "--listen", "127.0.0.1:0", "--upstream", &upstream]);
        let begin = json!({"key": "k", "name": "n", "attempt_id": "a"});
        server.post("/v1/begin", &begin).expect(200);
        Self {
            world,
            server,
            proxy,
        }
    }

    /// Asks everything at once, as a failing store takes its time; returns the bodies.
    fn answers(&self) -> Vec<(String, Answer)> {
        std::thread::scope(|scope| {
            let asked = |server: &'static str, of: Vec<(&'static str, Asked)>| {
                let server = if server == "api" {
                    &self.server
                } else {
                    &self.proxy
                };
                of.into_iter()
                    .map(|(path, asked)| scope.spawn(move || (path.to_owned(), server.ask(asked))))
                    .collect::<Vec<_>>()
            };
            let mut all = asked("api", requests());
            all.extend(asked("proxy", vec![("proxy", proxied())]));
            let answers = all.into_iter().map(|it| it.join().expect("it is answered"));
            answers.collect()
        })
    }

    /// Expects that no answer has one of these words, and that those with a number have their cause in the log. Where
    /// the whole store fails, every route that asks it says so.
    #[track_caller]
    fn conceal(&self, failure: &str, secrets: &[&str], causes: &[&str], is_whole: bool) {
        let mut incidents = 0;
        for (path, answer) in self.answers() {
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            for secret in secrets {
                assert!(
                    !body.contains(secret),
                    "{failure}, {path}: {secret} in {answer:?}"
                );
            }
            let Some(number) = number_in(&body) else {
                let is_silent = ["/metrics", "/v1/events"].contains(&path.as_str());
                assert!(!is_whole || is_silent, "{failure}, {path}: {answer:?}");
                continue;
            };
            incidents += 1;
            let log = if path == "proxy" {
                &self.proxy
            } else {
                &self.server
            };
            let line =
                log.wait_for_line(|line| (line["incident"] == number).then(|| line.to_string()));
            let line = line.unwrap_or_else(|| panic!("{failure}, {path}: {number} is not logged"));
            assert!(
                causes.iter().any(|cause| line.contains(cause)),
                "{failure}, {path}: {line}"
            );
        }
        assert!(incidents > 0, "{failure}: no incident");
    }
}

fn number_in(body: &str) -> Option<String> {
    let number: String = body.split_once("incident ")?.1.chars().take(16).collect();
    number
        .chars()
        .all(|digit| digit.is_ascii_hexdigit())
        .then_some(number)
}

/// Words of the stores that no client should read.
const WORDS: [&str; 7] = [
    "SELECT", "INSERT", "UPDATE", "BEGIN", "COMMIT", "semel.db", "sqlite_",
];

#[test]
fn every_route_of_the_description_is_asked() {
    let doors = Doors::open(World::new(), "memory:");
    let described = doors.server.get("/openapi.json").json();
    let paths = described["paths"].as_object().expect("there are paths");
    let asked: Vec<_> = requests().iter().map(|(path, _)| *path).collect();
    for path in paths.keys() {
        assert!(asked.contains(&path.as_str()), "{path} is not asked");
    }
}

#[test]
fn failing_file_is_told_without_its_path() {
    let world = World::new();
    let place = world.path("data/semel.db");
    let path = place.display().to_string();
    let doors = Doors::open(world, &format!("sqlite:{path}"));
    let directory = doors.world.path("").display().to_string();
    let secrets = [&[directory.trim_end_matches('/'), UPSTREAM], &WORDS[..]].concat();

    let other = semel::rusqlite::Connection::open(&place).expect("it opens");
    other
        .execute_batch("BEGIN EXCLUSIVE")
        .expect("it is locked");
    doors.conceal("locked", &secrets, &[&path], false);
    other.execute_batch("ROLLBACK").expect("it is open again");

    let damage = "UPDATE operations SET record = x'00ff00ff'";
    other.execute_batch(damage).expect("it is written");
    // The proxy's own request is new, and so not damaged: it fails at the upstream, whose address is not told either.
    doors.conceal("damaged", &secrets, &[&path, UPSTREAM], false);
}

#[test]
fn failing_database_is_told_without_its_host() {
    let cluster = Cluster::start_with(&Setup {
        tcp: true,
        doors: "host all all 127.0.0.1/32 trust".to_owned(),
        ..Setup::default()
    });
    cluster.sql("postgres", "CREATE ROLE keeper_7 LOGIN SUPERUSER");
    let port = format!(":{}", cluster.port());
    let url = format!("postgres://keeper_7@localhost{port}/postgres");
    let doors = Doors::open(World::new(), &url);
    let directory = cluster.directory().display().to_string();
    let secrets = [
        &["localhost", "127.0.0.1", "keeper_7", &port, &directory],
        &WORDS[..],
    ]
    .concat();
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keeper_7'";

    cluster.sql("postgres", "ALTER ROLE keeper_7 NOLOGIN");
    cluster.sql("postgres", cut);
    doors.conceal("denied", &secrets, &["keeper_7", &port], true);
    cluster.sql("postgres", "ALTER ROLE keeper_7 LOGIN");

    cluster.crash();
    doors.conceal("down", &secrets, &["localhost", &port], true);
    cluster.start_again();
}
