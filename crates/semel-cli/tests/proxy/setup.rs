//! An upstream, and `semel proxy` in front of it.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Ran, World};
use crate::http::{Answer, Asked, Connection};
use crate::server::{Server, wait_until};
use crate::upstream::Upstream;

/// Names another program that is started with the proxy's words: one that only passes everything on shows that these
/// tests can fail.
const ANOTHER_PROXY: &str = "SEMEL_TEST_PROXY";

/// An upstream, and the proxy in front of it.
#[derive(Debug)]
pub(crate) struct Setup {
    // The first to be dropped: nobody should see the others go.
    proxy: Server,
    pub(crate) upstream: Upstream,
    pub(crate) world: World,
    words: Vec<String>,
}

impl Setup {
    /// Starts a proxy with its defaults.
    #[track_caller]
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Starts a proxy with more words after `--upstream URL`.
    #[track_caller]
    pub(crate) fn with(words: &[&str]) -> Self {
        let world = World::new();
        let upstream = Upstream::start(world.path("effects"));
        let mut all = vec!["--upstream".to_owned(), upstream.url()];
        all.extend(words.iter().map(|word| (*word).to_owned()));
        Self::on(world, upstream, all)
    }

    /// Starts a proxy with one route, whose table has these members besides `upstream`.
    #[track_caller]
    pub(crate) fn routed(members: &str) -> Self {
        let world = World::new();
        let upstream = Upstream::start(world.path("effects"));
        let url = upstream.url();
        let toml = format!("[[proxy.route]]\nupstream = \"{url}\"\n{members}\n");
        Self::written(world, upstream, &toml)
    }

    /// Starts a proxy with these settings.
    #[track_caller]
    pub(crate) fn written(world: World, upstream: Upstream, toml: &str) -> Self {
        std::fs::write(world.path("semel.toml"), toml).expect("it can be written");
        Self::on(world, upstream, vec![])
    }

    #[track_caller]
    pub(crate) fn on(world: World, upstream: Upstream, words: Vec<String>) -> Self {
        let proxy = Server::spawn(&mut command(&world, "127.0.0.1:0", &words));
        Self {
            proxy,
            upstream,
            world,
            words,
        }
    }

    pub(crate) const fn proxy(&self) -> &Server {
        &self.proxy
    }

    pub(crate) const fn proxy_mut(&mut self) -> &mut Server {
        &mut self.proxy
    }

    /// Starts a second proxy on the same store.
    #[track_caller]
    pub(crate) fn another(&self) -> Server {
        Server::spawn(&mut command(&self.world, "127.0.0.1:0", &self.words))
    }

    /// Kills the proxy as a crash would, and starts it again at the same address.
    #[track_caller]
    pub(crate) fn crash(&mut self) {
        self.proxy.kill();
        self.start_again();
    }

    /// Starts the proxy again at the same address, once it has ended.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        let place = format!("127.0.0.1:{}", self.proxy.port());
        self.proxy = Server::spawn(&mut command(&self.world, &place, &self.words));
    }

    /// Asks the proxy, on a connection of its own.
    #[track_caller]
    pub(crate) fn ask(&self, asked: Asked) -> Answer {
        self.proxy.ask(asked)
    }

    /// Sends a request to the proxy, and returns the connection on which its answer will come.
    #[track_caller]
    pub(crate) fn begin(&self, asked: &Asked) -> Connection {
        let mut connection = self.proxy.connect();
        connection.send(&asked.bytes()).expect("it is sent");
        connection
    }

    /// Returns the records of the proxy's requests, the newest first.
    #[track_caller]
    pub(crate) fn records(&self) -> Vec<Value> {
        let words = ["list", "--door", "proxy", "--limit", "1000", "--json"];
        let listed = self.world.semel(&words);
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.json()
    }

    /// Returns the states of all records.
    #[track_caller]
    pub(crate) fn states(&self) -> Vec<String> {
        let records = self.records();
        let states = records.iter().map(|record| &record["state"]);
        states
            .map(|state| state.as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Waits until the only record is in a state.
    #[track_caller]
    pub(crate) fn wait_for_state(&self, state: &str) {
        wait_until(state, || self.states() == [state]);
    }

    /// Returns the ledger's key of the only doubt.
    #[track_caller]
    pub(crate) fn doubt(&self) -> String {
        let records = self.records();
        let mut doubts = records.iter().filter(|it| it["state"] == "doubtful");
        let doubt = doubts.next().unwrap_or_else(|| panic!("{records:?}"));
        assert!(doubts.next().is_none(), "{records:?}");
        doubt["key"].as_str().expect("a key is text").to_owned()
    }

    /// Resolves the only doubt, as a person does who found out what happened.
    #[track_caller]
    pub(crate) fn resolve(&self, how: &[&str]) -> Ran {
        let doubt = self.doubt();
        let words = [&["resolve", &doubt, "--yes"], how].concat();
        let resolved = self.world.semel(&words);
        assert_eq!(resolved.code, 0, "{resolved:?}");
        resolved
    }

    /// Returns how many effects there were.
    pub(crate) fn effects(&self) -> usize {
        self.upstream.effects().len()
    }
}

/// Prepares the command line of the proxy.
fn command(world: &World, place: &str, words: &[String]) -> Command {
    let mut all = vec!["proxy", "--listen", place];
    all.extend(words.iter().map(String::as_str));
    let mut command = world.command(&all);
    if let Some(other) = std::env::var_os(ANOTHER_PROXY) {
        let mut instead = Command::new(other);
        instead.args(&all).current_dir(world.path(""));
        instead.stdin(std::process::Stdio::null());
        command = instead;
    }
    command
}

/// A request that acts, of something that the upstream names its effect by.
pub(crate) fn charge(name: &str) -> Asked {
    Asked::post("/charges", &json!({"id": name, "amount": 5}))
}

/// A request that acts, under a key.
pub(crate) fn keyed(key: &str) -> Asked {
    charge(key).header("Idempotency-Key", key)
}

/// Asks an upstream itself; none where it cut the connection.
pub(crate) fn ask_directly(upstream: &Upstream, asked: &Asked) -> Option<Answer> {
    let mut connection = Connection::open(&upstream.address()).ok()?;
    connection.send(&asked.bytes()).ok()?;
    connection.answer().ok()
}

/// Returns the only value of a header, as text.
#[track_caller]
pub(crate) fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.header(name).unwrap_or_default()
}

/// Says whether an answer was given before.
#[track_caller]
pub(crate) fn is_replay(answer: &Answer) -> bool {
    match answer.header("idempotent-replayed") {
        Some("true") => true,
        None => false,
        Some(other) => panic!("{other}: {answer:?}"),
    }
}

/// Expects what the upstream said, the first time.
#[track_caller]
pub(crate) fn fresh(answer: &Answer, status: u16) {
    upstreams(answer, status);
    assert!(!is_replay(answer), "{answer:?}");
}

/// Expects what the upstream said before, byte for byte.
#[track_caller]
pub(crate) fn replay_of(first: &Answer, answer: &Answer) {
    upstreams(answer, first.status);
    assert!(is_replay(answer), "{answer:?}");
    assert_eq!(answer.body, first.body, "{answer:?}");
    let kind = "content-type";
    assert_eq!(answer.header(kind), first.header(kind), "{answer:?}");
}

#[track_caller]
fn upstreams(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("semel-error"), None, "{answer:?}");
}

/// Codes that say that the same request may be sent again later.
const RETRYABLE: [&str; 6] = [
    "breaker_open",
    "in_flight",
    "not_sent",
    "overloaded",
    "rate_limited",
    "store_unavailable",
];

/// Expects a refusal of the proxy's own with this code, and returns it.
#[track_caller]
pub(crate) fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    let problem = refusal(answer, status);
    assert_eq!(problem["code"], code, "{answer:?}");
    problem
}

/// Expects a refusal of the proxy's own, and returns it.
#[track_caller]
pub(crate) fn refusal(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{answer:?}");
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("application/problem+json"), "{answer:?}");
    let problem = answer.json();
    let code = problem["code"].as_str().unwrap_or_default();
    assert_eq!(answer.header("semel-error"), Some(code), "{answer:?}");
    assert_eq!(problem["status"], status, "{answer:?}");
    for text in ["type", "title", "detail"] {
        let said = problem[text].as_str().unwrap_or_default();
        assert!(!said.is_empty(), "{text} is missing: {answer:?}");
    }
    let page = problem["type"].as_str().unwrap_or_default();
    assert_eq!(page, format!("urn:semel:error:{code}"), "{answer:?}");
    assert_eq!(
        problem["retryable"],
        RETRYABLE.contains(&code),
        "{answer:?}"
    );
    assert_eq!(problem.get("key"), None, "{answer:?}");
    assert!(!is_replay(answer), "{answer:?}");
    if !RETRYABLE.contains(&code) {
        for name in ["x-should-retry", "stripe-should-retry"] {
            assert_eq!(answer.header(name), Some("false"), "{answer:?}");
        }
    } else if code != "not_sent" {
        let seconds = header(answer, "retry-after").parse::<u64>();
        assert!(seconds.is_ok_and(|seconds| seconds > 0), "{answer:?}");
    }
    problem
}
