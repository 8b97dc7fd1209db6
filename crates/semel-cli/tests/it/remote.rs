//! The command on the ledger of a server: what is done here is stored there.

use std::process::Command;
use std::sync::Arc;

use semel::Scope;
use semel::store::sqlite::SqliteStore;
use semel_testkit::remote::{Server, Trouble, caller};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::harness::{Ran, World};

/// A server with a store of its own, and a directory to run commands in.
struct Served {
    world: World,
    server: Server,
    /// Serves as long as it lives.
    _runtime: Runtime,
}

impl Served {
    fn new() -> Self {
        let world = World::new();
        let runtime = Runtime::new().expect("there is a runtime");
        let store = SqliteStore::open(world.path("served.db")).expect("the store opens");
        let server = runtime.block_on(Server::start(Arc::new(store)));
        server.admit("token-a", caller("team-a", Scope::Admin));
        server.admit("token-b", caller("team-b", Scope::Admin));
        server.admit("token-r", caller("team-a", Scope::Read));
        Self {
            world,
            server,
            _runtime: runtime,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.world.command(args);
        command.env("SEMEL_STORE", self.server.url());
        command
    }

    fn semel(&self, args: &[&str]) -> Ran {
        self.world.run(&mut self.command(args))
    }

    fn semel_as(&self, token: &str, args: &[&str]) -> Ran {
        self.world.run(self.command(args).env("SEMEL_TOKEN", token))
    }

    /// Runs a script under a key.
    fn run(&self, key: &str, script: &str) -> Ran {
        self.semel(&["run", "--key", key, "--", "sh", "-c", script])
    }

    fn show(&self, key: &str) -> Value {
        self.semel(&["show", key, "--json"]).json().remove(0)
    }

    fn lines(&self, file: &str) -> usize {
        let text = std::fs::read_to_string(self.world.path(file)).unwrap_or_default();
        text.lines().count()
    }
}

const SEND: &str = "echo sent | tee -a sent.log; echo noted >&2";

#[test]
fn a_command_runs_once_and_is_replayed_byte_for_byte() {
    let served = Served::new();
    let first = served.run("hello", SEND);
    first.expect(0, "sent\n", "noted\n");
    assert_eq!(served.run("hello", SEND), first);
    assert_eq!(served.lines("sent.log"), 1);
    let bytes = r"printf '\377\000\376' | tee out.bin; printf 'end'; exit 3";
    for _ in 0..2 {
        let output = served
            .command(&["run", "--key", "bytes", "--", "sh", "-c", bytes])
            .output()
            .expect("it runs");
        assert_eq!(output.stdout, b"\xff\x00\xfeend");
        assert_eq!(output.status.code(), Some(3));
    }
    let receipt = served.semel(&["run", "--json", "--key", "hello", "--", "sh", "-c", SEND]);
    let receipt = receipt.json().remove(0);
    assert_eq!(receipt["replayed"], true);
    assert_eq!(receipt["data"]["stdout"], "sent\n");
}

#[test]
fn answers_that_are_lost_do_not_make_it_run_again() {
    let served = Served::new();
    served
        .server
        .plan(&[Trouble::LoseReply, Trouble::LoseReply]);
    served.run("hello", SEND).expect(0, "sent\n", "noted\n");
    assert!(served.server.is_untroubled());
    served.run("hello", SEND).expect(0, "sent\n", "noted\n");
    assert_eq!(served.lines("sent.log"), 1);
    assert_eq!(served.show("hello")["attempt"], 1);
}

#[test]
fn answers_that_are_lost_do_not_keep_a_probe_from_looking() {
    let served = Served::new();
    let effect = "echo x >> effects; kill -9 $$";
    let run = |probe: &str| {
        let words = ["run", "--key", "k", "--lease", "1s", "--probe", probe];
        served.semel(&[&words[..], &["--", "sh", "-c", effect]].concat())
    };
    let probe = "grep -c x effects";
    served.server.plan(&[Trouble::LoseReply]);
    assert_eq!(run(probe).code, 137);
    assert!(served.server.is_untroubled());
    // Before the lease of the lost attempt is over it is in doubt.
    let mut looked = run(probe);
    for _ in 0..600 {
        if looked.code != 120 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        served.server.plan(&[Trouble::LoseReply]);
        looked = run(probe);
    }
    assert_eq!((looked.code, &*looked.stdout), (0, "1\n"), "{looked:?}");
    assert_eq!(served.show("k")["state"], "succeeded");
    assert_eq!(served.lines("effects"), 1);
}

#[test]
fn the_ledger_can_be_looked_at_from_afar() {
    let served = Served::new();
    served.run("one", "echo 1");
    served.run("two", "exit 7");
    let listed = served.semel(&["list", "--json"]).json();
    let keys: Vec<_> = listed.iter().map(|record| &record["key"]).collect();
    assert_eq!(keys, ["two", "one"]);
    assert_eq!(served.show("two")["state"], "failed");
    let log = served.semel(&["log", "--json"]).json();
    let commands: Vec<_> = log.iter().map(|event| &event["command"]).collect();
    assert_eq!(commands, ["begin", "settle", "begin", "settle"]);
    let stats = served.semel(&["stats", "--json"]).json().remove(0);
    assert_eq!(stats["states"]["succeeded"], 1);
    assert_eq!(stats["log"]["entries"], 4);
    let doctor = served.semel(&["doctor", "--json"]);
    assert_eq!(doctor.code, 0, "{doctor:?}");
    let checks = doctor.json().remove(0)["checks"].clone();
    let server = checks.as_array().into_iter().flatten();
    let server = server.filter(|check| check["name"] == "server").count();
    assert_eq!(server, 1, "{checks}");
}

#[test]
fn operators_decide_from_afar() {
    let served = Served::new();
    assert_eq!(served.run("k", "echo x >> runs; kill -9 $$").code, 137);
    assert_eq!(served.run("k", "echo x >> runs; kill -9 $$").code, 120);
    let resolved = served.semel(&["resolve", "k", "--not-done", "--note", "looked"]);
    assert_eq!(resolved.code, 0, "{resolved:?}");
    let cancelled = served.semel(&["cancel", "k"]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let retried = served.semel(&["retry", "k"]);
    assert_eq!(retried.code, 0, "{retried:?}");
    assert_eq!(served.show("k")["state"], "pending");
    assert_eq!(served.semel(&["cancel", "k"]).code, 0);
    assert_eq!(served.semel(&["forget", "k"]).code, 0);
    assert_eq!(served.semel(&["show", "k"]).code, 1);
    let log = served.semel(&["log", "k", "--json"]).json();
    assert_eq!(
        log.last().map(|event| &event["command"]),
        Some(&json!("forget"))
    );
    assert_eq!(served.lines("runs"), 1);
}

#[test]
fn the_token_says_which_namespace_it_is() {
    let served = Served::new();
    let args = [
        "run",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "echo $SEMEL_NAMESPACE",
    ];
    served.semel_as("token-a", &args).expect(0, "team-a\n", "");
    served.semel_as("token-b", &args).expect(0, "team-b\n", "");
    served.semel(&args).expect(0, "default\n", "");
    let listed = served.semel_as("token-a", &["list", "--json"]).json();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["namespace"], "team-a");
    let named = ["--namespace", "team-a", "show", "k"];
    assert_eq!(served.semel_as("token-a", &named).code, 0);
    let refused = served.semel_as("token-b", &named);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(
        refused.stderr.contains("`team-b` only"),
        "{}",
        refused.stderr
    );
    let json = served.semel_as("token-b", &["--json", "--namespace", "team-a", "show", "k"]);
    assert_eq!(json.json()[0]["error"]["code"], "forbidden");
}

#[test]
fn a_token_that_is_not_known_or_may_not_is_told_so() {
    let served = Served::new();
    let args = [
        "--json",
        "run",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "echo x >> runs",
    ];
    for (token, code) in [("token-x", "unauthorized"), ("token-r", "forbidden")] {
        let refused = served.semel_as(token, &args);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert_eq!(refused.json()[0]["error"]["code"], code);
        assert!(!refused.stderr.contains(token), "{}", refused.stderr);
    }
    assert_eq!(served.lines("runs"), 0);
    let mut plain = served.world.command(&["list"]);
    plain
        .env("SEMEL_STORE", "http://192.0.2.1:7363")
        .env("SEMEL_TOKEN", "token-a");
    let refused = served.world.run(&mut plain);
    assert!(
        refused.stderr.contains("use https://"),
        "{}",
        refused.stderr
    );
}

#[test]
fn what_is_done_where_the_store_is_says_so() {
    let served = Served::new();
    let url = served.server.url();
    for args in [
        &["verify"][..],
        &["backup", "copy.db"],
        &["restore"],
        &["copy", "--from", &url, "--to", "sqlite:copy.db"],
        &["copy", "--from", "sqlite:served.db", "--to", &url],
    ] {
        let refused = served.semel(args);
        assert_ne!(refused.code, 0, "{args:?}");
        assert!(refused.stderr.contains("where the store is"), "{refused:?}");
    }
}

#[test]
fn a_step_of_a_command_is_its_child() {
    let served = Served::new();
    let step = format!(
        "{} run --key order/charge -- echo charged",
        env!("CARGO_BIN_EXE_semel")
    );
    served.run("order", &step).expect(0, "charged\n", "");
    assert_eq!(served.show("order/charge")["parent"], "order");
}

#[test]
fn a_server_that_is_not_there_is_told_so() {
    let world = World::new();
    let mut command = world.command(&["run", "--key", "k", "--", "touch", "ran"]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = free.local_addr().expect("it has an address");
    drop(free);
    let refused = world.run(command.env("SEMEL_STORE", format!("http://{address}")));
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(
        refused.stderr.contains("is it running"),
        "{}",
        refused.stderr
    );
    assert!(!world.path("ran").exists());
}
