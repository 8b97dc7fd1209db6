//! A store that is slow, full or gone: callers hear so in time, nothing is carried out twice, and the server
//! goes on by itself when the store is back.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use semel::store::sqlite::SqliteStore;
use semel_testkit::postgres::Cluster;
use serde_json::{Value, json};

use crate::harness::World;
use crate::server::{Server, wait_until};

fn begin(key: &str) -> Value {
    json!({"key": key, "name": "n", "attempt_id": format!("a-{key}")})
}

fn settle(key: &str, granted: &Value) -> Value {
    json!({
        "key": key, "attempt_id": format!("a-{key}"), "fence": granted["fence"], "verdict": "done",
        "ok": true, "effect": "created", "data": key,
    })
}

/// Expects that the server says of itself that it lives, and of its store whether it answers.
#[track_caller]
fn readiness(server: &Server, ready: bool) {
    assert_eq!(server.get("/healthz").status, 200);
    let status = server.get("/readyz").status;
    assert_eq!(status, if ready { 200 } else { 503 });
}

/// Expects that an attempt from before goes on, and that new ones can begin.
#[track_caller]
fn goes_on(server: &Server, granted: &Value) {
    let again = server.post("/v1/begin", &begin("before")).expect(200);
    assert_eq!(again, *granted, "the attempt from before is the same");
    let receipt = server
        .post("/v1/settle", &settle("before", granted))
        .expect(200);
    assert_eq!(receipt["data"], "before", "{receipt}");
    // Whether the lost one was granted or not, asking again gets its first attempt.
    let lost = server.post("/v1/begin", &begin("lost")).expect(200);
    assert_eq!(
        (&lost["decision"], &lost["attempt"]),
        (&json!("execute"), &json!(1)),
        "{lost}"
    );
    readiness(server, true);
}

#[test]
fn a_file_that_another_process_keeps_locked_is_said_and_waited_out() {
    let world = World::new();
    let server = Server::start(&world);
    let granted = server.post("/v1/begin", &begin("before")).expect(200);
    let store = SqliteStore::open(world.path("data/semel.db")).expect("the store opens");
    let mut connection = store.connect().expect("it can be connected to");
    let transaction = store.transaction(&mut connection).expect("it is our turn");
    server
        .post("/v1/begin", &begin("lost"))
        .problem(503, "store_unavailable");
    // What only looks is not held up by who writes.
    server.get("/v1/operations/before").expect(200);
    assert_eq!(server.get("/healthz").status, 200);
    drop(transaction);
    goes_on(&server, &granted);
}

#[test]
fn a_database_that_is_gone_is_said_at_once_and_used_again_when_it_is_back() {
    let cluster = Cluster::start();
    let world = World::new();
    let url = cluster.url("semel", "postgres");
    let server = Server::start_with(&world, &["--store", &url]);
    readiness(&server, true);
    let granted = server.post("/v1/begin", &begin("before")).expect(200);
    for _ in 0..2 {
        cluster.crash();
        readiness(&server, false);
        server
            .post("/v1/begin", &begin("lost"))
            .problem(503, "store_unavailable");
        server
            .post("/v1/settle", &settle("lost", &granted))
            .problem(503, "store_unavailable");
        server
            .get("/v1/operations/before")
            .problem(503, "store_unavailable");
        server
            .get("/v1/operations")
            .problem(503, "store_unavailable");
        let two = server
            .post("/v1/begin", &json!([begin("lost"), {"key": "x"}]))
            .expect(200);
        assert_eq!(
            (&two[0]["status"], &two[1]["status"]),
            (&json!(503), &json!(400)),
            "{two}"
        );
        cluster.start_again();
        wait_until("the store is back", || server.get("/readyz").status == 200);
    }
    goes_on(&server, &granted);
}

/// The server's connections are open and nobody answers: that must not hang its callers.
#[test]
fn a_database_that_does_not_answer_is_given_up_in_time() {
    let cluster = Cluster::start();
    let world = World::new();
    let url = cluster.url("semel", "postgres");
    let server = Server::start_with(&world, &["--store", &url]);
    let granted = server.post("/v1/begin", &begin("before")).expect(200);
    let sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'semel'";
    let pids = cluster.sql("postgres", sessions);
    let pids: Vec<_> = pids
        .lines()
        .filter_map(|line| line.parse().ok().and_then(Pid::from_raw))
        .collect();
    assert!(!pids.is_empty(), "the server has sessions");
    let listening = cluster.stop_listening();
    for pid in &pids {
        kill_process(*pid, Signal::STOP).expect("it is stopped");
    }
    server
        .post("/v1/begin", &begin("lost"))
        .problem(503, "store_unavailable");
    server
        .get("/v1/operations/before")
        .problem(503, "store_unavailable");
    readiness(&server, false);
    for pid in &pids {
        kill_process(*pid, Signal::CONT).expect("it goes on");
    }
    drop(listening);
    wait_until("the store is back", || server.get("/readyz").status == 200);
    goes_on(&server, &granted);
}

/// A server does not start on a store that it cannot use, and says which.
#[test]
fn a_store_that_cannot_be_opened_is_said_at_the_start() {
    let world = World::new();
    let url = "postgres://nobody@localhost:1/nowhere";
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0", "--store", url]);
    if let Err((status, said)) = Server::try_spawn(&mut command) {
        assert_eq!(status.code(), Some(125), "{said}");
        assert!(said.contains("localhost:1"), "{said}");
    } else {
        panic!("it listens without a store");
    }
}

/// Starts a server whose store is on a small disk that nobody else sees; `ballast` takes some of it.
fn on_a_small_disk(world: &World) -> (Server, PathBuf) {
    let disk = world.path("data");
    std::fs::create_dir(&disk).expect("a mount point is made");
    let script = format!(
        "mount -t tmpfs -o size=16m tmpfs {disk} && head -c 8m /dev/zero > {disk}/ballast && exec \"$@\"",
        disk = disk.display()
    );
    let plain = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut command = Command::new("unshare");
    let alone: &[&str] = if rustix::process::geteuid().is_root() {
        &["--mount"]
    } else {
        &["--mount", "--map-root-user"]
    };
    command.args(alone).args(["sh", "-c", &script, "sh"]);
    command.arg(plain.get_program()).args(plain.get_args());
    command.env_clear().current_dir(world.path("."));
    for (name, value) in plain.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let server = Server::spawn(&mut command);
    // Its disk is seen through the process.
    let root = PathBuf::from(format!("/proc/{}/root", server.pid()));
    let inside = disk.strip_prefix("/").expect("the path is absolute");
    let ballast = root.join(inside).join("ballast");
    (server, ballast)
}

#[test]
fn a_full_disk_is_said_and_nothing_is_lost_or_done_twice() {
    let world = World::new();
    let (server, ballast) = on_a_small_disk(&world);
    let granted = server.post("/v1/begin", &begin("before")).expect(200);
    // Bytes that no compression makes small.
    let mut dice = semel_testkit::process::Dice::seeded(7);
    let mut noise = || -> String {
        (0..12_500)
            .map(|_| format!("{:016x}", dice.next()))
            .collect()
    };
    let mut stored = vec![];
    for number in 0.. {
        assert!(number < 1_000, "the disk is never full");
        let key = format!("k-{number}");
        let answer = server.post("/v1/begin", &begin(&key));
        if answer.status == 503 {
            answer.problem(503, "store_unavailable");
            break;
        }
        let granted = answer.expect(200);
        let mut report = settle(&key, &granted);
        report["data"] = noise().into();
        let answer = server.post("/v1/settle", &report);
        if answer.status == 503 {
            answer.problem(503, "store_unavailable");
            break;
        }
        answer.expect(200);
        stored.push((key, report));
    }
    assert!(!stored.is_empty(), "there was room at first");
    std::fs::remove_file(&ballast).expect("room is made");
    wait_until("there is room", || {
        server.post("/v1/begin", &begin("room")).status == 200
    });
    goes_on(&server, &granted);
    for (key, report) in &stored {
        let replay = server.post("/v1/begin", &begin(key)).expect(200);
        assert_eq!(replay["decision"], "replay", "{key}");
        assert!(
            replay["receipt"]["data"] == report["data"],
            "{key} is as it was told"
        );
    }
}
