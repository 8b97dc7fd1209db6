use rustix::process::Signal;
use serde_json::{Value, json};

use super::{LEASE, LONG_MS, done, lease_one, leave, task, tasks_of};
use crate::harness::World;
use crate::http::{Asked, Connection};
use crate::server::{Server, wait_until};

/// Sends a request whose answer is to be waited for.
#[track_caller]
fn ask(server: &Server, asked: Asked) -> Connection {
    let mut connection = server.connect();
    connection.send(&asked.bytes()).expect("it is sent");
    connection
}

fn long_lease() -> Asked {
    Asked::post(LEASE, &json!({"wait_ms": LONG_MS}))
}

/// Waits until the server has so many connections besides the one that asks.
#[track_caller]
fn wait_for_connections(server: &Server, count: usize) {
    wait_until("everybody is connected, or gone", || {
        let metrics = server.get("/metrics");
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        metrics.contains(&format!("\nsemel_connections_open {}\n", count + 1))
    });
}

#[test]
fn whoever_waits_for_a_task_gets_it_when_it_comes() {
    let world = World::new();
    let server = Server::start(&world);
    let mut waiting = ask(&server, long_lease());
    wait_for_connections(&server, 1);
    leave(&server, "k", &json!({}));
    let tasks = tasks_of(&waiting.answer().expect("it is answered"));
    assert_eq!(tasks[0]["key"], "k", "{tasks:?}");
}

#[test]
fn whoever_waits_in_vain_gets_nothing() {
    let world = World::new();
    let server = Server::start(&world);
    assert!(super::lease(&server, &json!({"wait_ms": 50})).is_empty());
    // What is on another queue is nobody's here.
    let other = Asked::post("/v1/queues/other/tasks", &json!({"key": "o"}));
    server.ask(other).expect(200);
    assert!(super::lease(&server, &json!({"wait_ms": 50})).is_empty());
}

#[test]
fn whoever_goes_away_while_it_waits_takes_nothing() {
    let world = World::new();
    let server = Server::start(&world);
    for round in 0..5 {
        let gone: Vec<_> = (0..10).map(|_| ask(&server, long_lease())).collect();
        wait_for_connections(&server, gone.len());
        drop(gone);
        wait_for_connections(&server, 0);
        let key = format!("k-{round}");
        leave(&server, &key, &json!({}));
        let taken = lease_one(&server);
        assert_eq!(
            (&taken["key"], &taken["attempt"]),
            (&json!(key), &json!(1)),
            "{taken}"
        );
    }
}

#[test]
fn what_is_left_as_waiters_go_away_is_not_lost() {
    let world = World::new();
    let server = Server::start(&world);
    for round in 0..20 {
        let gone = ask(&server, long_lease());
        let key = format!("k-{round}");
        let backoff = json!({"backoff": {"base_ms": 1, "cap_ms": 1}});
        let mut leaving = ask(&server, task(&key, &backoff));
        drop(gone);
        leaving.answer().expect("it is answered").expect(200);
        drop(leaving);
        // The one that went away may have been given it just before: then it had it, and that is told.
        let state = || {
            let record = server.get(&format!("/v1/operations/{key}")).expect(200);
            record["state"].as_str().unwrap_or_default().to_owned()
        };
        let answered = || {
            let metrics = server.get("/metrics");
            let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
            let leased = metrics
                .lines()
                .find_map(|line| line.strip_prefix("semel_tasks_leased_total "));
            leased.and_then(|count| count.parse::<usize>().ok())
        };
        wait_for_connections(&server, 0);
        if answered() == Some(round + 1) {
            assert_eq!(state(), "running");
            continue;
        }
        assert_eq!(lease_one(&server)["key"], key);
    }
}

#[test]
fn whoever_leaves_a_task_can_wait_for_what_comes_of_it() {
    let world = World::new();
    let server = Server::start(&world);
    let wait = |server: &Server| ask(server, task("k", &json!({})).header("Prefer", "wait=60"));
    let mut first = wait(&server);
    let taken = lease_one(&server);
    let mut second = wait(&server);
    wait_for_connections(&server, 2);
    server.post("/v1/settle", &done(&taken)).expect(200);
    let answer = first.answer().expect("it is answered");
    assert_eq!(answer.header("preference-applied"), Some("wait=60"));
    let receipt = answer.expect(200);
    assert_eq!(
        (
            &receipt["state"],
            &receipt["effect"],
            &receipt["replayed"],
            &receipt["data"]["sent"]
        ),
        (
            &json!("succeeded"),
            &json!("created"),
            &json!(false),
            &json!("k")
        ),
        "{receipt}"
    );
    let receipt = second.answer().expect("it is answered").expect(200);
    assert_eq!(
        (
            &receipt["effect"],
            &receipt["replayed"],
            &receipt["original_effect"],
            &receipt["data"]["sent"]
        ),
        (&json!("noop"), &json!(true), &json!("created"), &json!("k")),
        "{receipt}"
    );
}

#[test]
fn whoever_waits_too_short_is_told_where_the_task_stands() {
    let world = World::new();
    let server = Server::start(&world);
    let asked = task("k", &json!({})).header("Prefer", "wait=1");
    let receipt = server.ask(asked).expect(200);
    let stands = |receipt: &Value| {
        let members = ["ok", "effect", "state", "replayed"];
        members.map(|member| receipt[member].clone())
    };
    assert_eq!(
        stands(&receipt),
        [
            json!(true),
            json!("created"),
            json!("pending"),
            json!(false)
        ]
    );
    let asked = task("k", &json!({})).header("Prefer", "wait=1");
    let receipt = server.ask(asked).expect(200);
    assert_eq!(
        stands(&receipt),
        [json!(true), json!("noop"), json!("pending"), json!(true)]
    );
    // A wait that cannot be read is none, and nothing is said of it.
    let asked = task("k", &json!({})).header("Prefer", "wait=soon");
    let answer = server.ask(asked);
    assert!(answer.header("preference-applied").is_none(), "{answer:?}");
}

#[test]
fn a_task_that_dies_or_is_in_doubt_is_waited_for_no_longer() {
    let world = World::new();
    let server = Server::start(&world);
    for (verdict, state) in [
        (json!({"verdict": "not_done", "reject": true}), "dead"),
        (json!({"verdict": "unknown"}), "doubtful"),
    ] {
        let asked = task(state, &json!({})).header("Prefer", "wait=60");
        let mut waiting = ask(&server, asked);
        let taken = lease_one(&server);
        let report = super::report(&taken, &verdict);
        server.post("/v1/settle", &report).expect(200);
        let receipt = waiting.answer().expect("it is answered").expect(200);
        assert_eq!(
            (&receipt["ok"], &receipt["state"]),
            (&json!(false), &json!(state)),
            "{receipt}"
        );
    }
}

#[test]
fn a_stop_ends_all_waits_and_loses_nothing() {
    let world = World::new();
    let mut server = Server::start(&world);
    let mut leasing = ask(&server, long_lease());
    let later = json!({"delay_ms": 86_400_000});
    let mut leaving = ask(&server, task("k", &later).header("Prefer", "wait=60"));
    wait_for_connections(&server, 2);
    wait_until("the task is there", || {
        server.get("/v1/operations/k").status == 200
    });
    server.signal(Signal::TERM);
    let tasks = tasks_of(&leasing.answer().expect("it is answered"));
    assert!(tasks.is_empty(), "{tasks:?}");
    let receipt = leaving.answer().expect("it is answered").expect(200);
    assert_eq!(receipt["effect"], "created", "{receipt}");
    assert!(server.wait().success());
}
