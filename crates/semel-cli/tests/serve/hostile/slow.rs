//! Clients that take their time, or vanish without a word.

use std::time::{Duration, Instant};

use semel_testkit::scaled;
use serde_json::{Value, json};

use crate::harness::World;
use crate::http::{Connection, PATIENCE, was_cut};
use crate::server::Server;

use super::{beside_a_good_client, nothing_happened};

/// The pause between two bytes of somebody slow.
const PAUSE: Duration = Duration::from_millis(50);

const BEGIN: &str =
    "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

/// Waits until the server has given somebody up; it may say so before.
fn given_up(connection: &mut Connection) {
    match connection.answer() {
        Ok(answer) => {
            assert!(matches!(answer.status, 400 | 408), "{answer:?}");
            connection.closed().expect("the connection is over");
        }
        Err(error) => assert!(was_cut(&error), "it was never given up: {error}"),
    }
}

/// Sends a byte now and then, until the server hangs up.
fn trickle(connection: &mut Connection, bytes: impl Iterator<Item = u8>) {
    let end = Instant::now() + PATIENCE;
    for byte in bytes {
        if connection.send(&[byte]).is_err() {
            return;
        }
        assert!(Instant::now() < end, "it was never given up");
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn whoever_does_not_finish_a_request_is_given_up() {
    let world = World::new();
    let server = Server::start(&world);
    beside_a_good_client(&server, |others| {
        let open = |bytes: &str| {
            let mut connection = server.connect();
            connection.send(bytes.as_bytes()).expect("it is sent");
            connection
        };
        let mut silent = [
            open(""),
            open("P"),
            open("POST /v1/begin HTTP/1.1\r\n"),
            open(BEGIN),
            open(&format!("{BEGIN}Content-Length: 100\r\n\r\n")),
            open(&format!(
                "{BEGIN}Content-Length: 100\r\n\r\n{{\"key\":\"evil\""
            )),
            open(&format!("{BEGIN}Transfer-Encoding: chunked\r\n\r\n")),
            open(&format!(
                "{BEGIN}Transfer-Encoding: chunked\r\n\r\n64\r\n{{\"key\""
            )),
        ];
        others.is_served();
        for connection in &mut silent {
            given_up(connection);
        }
        nothing_happened(&server, "evil");
    });
}

/// Each byte comes in time, and all of them never do: it is the whole that counts.
#[test]
fn whoever_sends_a_byte_now_and_then_is_given_up() {
    let world = World::new();
    let server = Server::start(&world);
    beside_a_good_client(&server, |_| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut connection = server.connect();
                connection.send(BEGIN.as_bytes()).expect("it is sent");
                trickle(&mut connection, b"X-Note: a\r\n".iter().copied().cycle());
            });
            scope.spawn(|| {
                let mut connection = server.connect();
                let head = format!("{BEGIN}Content-Length: 1000000\r\n\r\n");
                connection.send(head.as_bytes()).expect("it is sent");
                trickle(&mut connection, std::iter::repeat(b' '));
            });
        });
    });
}

/// Whoever asks and never reads the answers is given up, and costs little until then.
#[test]
fn whoever_does_not_read_is_given_up() {
    let world = World::new();
    let server = Server::start(&world);
    let begin = json!({"key": "big", "name": "n", "attempt_id": "a"});
    server.post("/v1/begin", &begin).expect(200);
    let settle = json!({
        "key": "big", "attempt_id": "a", "fence": 1, "verdict": "done", "ok": true,
        "effect": "created", "data": "x".repeat(500_000),
    });
    server.post("/v1/settle", &settle).expect(200);
    let before = server.memory();
    beside_a_good_client(&server, |others| {
        let ask = b"GET /v1/operations/big HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
        let mut deaf: Vec<_> = (0..16).map(|_| server.connect()).collect();
        for connection in &mut deaf {
            connection.send(&ask).expect("it is sent");
        }
        others.is_served();
        for connection in &mut deaf {
            // A server that has given it up takes nothing more.
            trickle(connection, ask.iter().copied().cycle());
        }
    });
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 128 * 1024 * 1024, "{grown} bytes more");
}

/// Whoever has said all and listens is answered; whoever has left does no harm.
#[test]
fn half_closed_connections_are_served_and_left_ones_forgotten() {
    let world = World::new();
    let server = Server::start(&world);
    let body = json!({"key": "half", "name": "n"}).to_string();
    let mut connection = server.connect();
    let request = format!("{BEGIN}Content-Length: {}\r\n\r\n{body}", body.len());
    connection.send(request.as_bytes()).expect("it is sent");
    connection.finish_writing().expect("it can be half closed");
    match connection.answer() {
        Ok(answer) => assert_eq!(answer.expect(200)["decision"], "execute"),
        // A server may take it for somebody who left.
        Err(error) => assert!(was_cut(&error), "{error}"),
    }
    // Left in the middle of a head, of a body, of a wait, and of an answer.
    let waiting = json!({"key": "half", "name": "n", "wait_ms": 60_000}).to_string();
    let cases = [
        BEGIN.to_owned(),
        format!("{BEGIN}Content-Length: 100\r\n\r\n{{"),
        format!("{BEGIN}Content-Length: {}\r\n\r\n{waiting}", waiting.len()),
        "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
            .to_owned(),
    ];
    beside_a_good_client(&server, |others| {
        for case in cases.iter().cycle().take(400) {
            let mut connection = server.connect();
            connection.send(case.as_bytes()).expect("it is sent");
        }
        others.is_served();
    });
    // Nobody is left: what a connection took was given back.
    let files =
        || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).map_or(0, Iterator::count);
    crate::server::wait_until("the connections are closed", || files() < 100);
}

#[test]
fn a_crowd_that_says_nothing_keeps_nobody_out() {
    let world = World::new();
    let server = Server::start(&world);
    beside_a_good_client(&server, |others| {
        let crowd: Vec<_> = (0..scaled(4_000, 400)).map(|_| server.connect()).collect();
        others.is_served();
        drop(crowd);
    });
    let healthy: Value = server.get("/readyz").status.into();
    assert_eq!(healthy, 200);
}
