//! What is too large is refused before it is read, and costs the server nothing.

use std::io::ErrorKind;

use crate::harness::World;
use crate::http::Connection;
use crate::server::Server;

use super::{beside_a_good_client, nothing_happened};

/// More memory than this is not needed to refuse something, however large it is.
const MEMORY_MAX: u64 = 128 * 1024 * 1024;

/// More than any server should take: an endless body is given up here, and the test fails.
const ENDLESS: usize = 256 * 1024 * 1024;

const HEAD: &str =
    "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

/// Sends blocks until the server has had enough; returns whether it had.
fn pour(connection: &mut Connection, block: &[u8]) -> bool {
    let mut sent = 0;
    while sent < ENDLESS {
        if connection.send(block).is_err() {
            return true;
        }
        sent += block.len();
    }
    false
}

/// Reads the refusal, if it was not lost with the connection that was closed while more was sent.
fn refusal(connection: &mut Connection) -> Option<u16> {
    match connection.answer() {
        Ok(answer) => Some(answer.status),
        Err(error) if error.kind() == ErrorKind::InvalidData => panic!("{error}"),
        Err(_) => None,
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let world = World::new();
    let server = Server::start(&world);
    beside_a_good_client(&server, |_| {
        // Whoever says how much will come is told at once that it is too much.
        let mut connection = server.connect();
        let head = format!("{HEAD}Content-Length: 10000000000\r\n\r\n");
        connection.send(head.as_bytes()).expect("it is sent");
        let answer = connection.answer().expect("it is answered at once");
        answer.problem(413, "too_large");
        connection.closed().expect("nobody wants the rest");

        // So is whoever asks first whether it may be sent.
        let mut connection = server.connect();
        let head = format!("{HEAD}Expect: 100-continue\r\nContent-Length: 10000000000\r\n\r\n");
        connection.send(head.as_bytes()).expect("it is sent");
        let answer = connection.answer().expect("it is answered at once");
        answer.problem(413, "too_large");

        // Whoever does not say is stopped on the way.
        let mut connection = server.connect();
        let head = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n");
        connection.send(head.as_bytes()).expect("it is sent");
        let mut chunk = format!("{:x}\r\n", 64 * 1024).into_bytes();
        chunk.extend([b' '; 64 * 1024]);
        chunk.extend(b"\r\n");
        assert!(
            pour(&mut connection, &chunk),
            "the body was read without an end"
        );
        let status = refusal(&mut connection);
        assert!(matches!(status, Some(413) | None), "{status:?}");

        // So is one of many small chunks.
        let mut connection = server.connect();
        connection.send(head.as_bytes()).expect("it is sent");
        assert!(pour(&mut connection, &b"1;x=y\r\n \r\n".repeat(4_096)));
        let status = refusal(&mut connection);
        assert!(matches!(status, Some(400 | 413) | None), "{status:?}");
    });
    assert!(server.memory() < MEMORY_MAX, "{}", server.memory());
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let world = World::new();
    let server = Server::start(&world);
    let body = super::begin("evil");
    let long = "a".repeat(1 << 20);
    let many: String = (0..10_000)
        .map(|number| format!("X-{number}: a\r\n"))
        .collect();
    let end = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    beside_a_good_client(&server, |_| {
        for (name, bytes) in [
            ("one header", format!("{HEAD}X-Long: {long}\r\n{end}")),
            ("a header's name", format!("{HEAD}{long}: a\r\n{end}")),
            ("many headers", format!("{HEAD}{many}{end}")),
            (
                "a target",
                format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ),
            (
                "a query",
                format!("GET /v1/operations?prefix={long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ),
            (
                "a method",
                format!("{long} / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ),
        ] {
            let mut connection = server.connect();
            // The server may have hung up before all is sent.
            let _sent = connection.send(bytes.as_bytes());
            let status = refusal(&mut connection);
            let refused = matches!(status, Some(400 | 414 | 431) | None);
            assert!(refused, "{name}: {status:?}");
            nothing_happened(&server, "evil");
        }
        // A moderate excess fits the buffers of the connection: so its refusal cannot be lost.
        let bytes = format!("{HEAD}X-Long: {}\r\n{end}", "a".repeat(100 * 1024));
        let mut connection = server.connect();
        connection.send(bytes.as_bytes()).expect("it is sent");
        assert_eq!(refusal(&mut connection), Some(431));

        // A head without an end.
        let mut connection = server.connect();
        connection.send(HEAD.as_bytes()).expect("it is sent");
        assert!(pour(
            &mut connection,
            &b"X-Note: abcdefgh\r\n".repeat(4_096)
        ));
    });
    assert!(server.memory() < MEMORY_MAX, "{}", server.memory());
}

#[test]
fn what_is_just_small_enough_is_taken() {
    let world = World::new();
    let server = Server::start(&world);
    let text = "x".repeat(900 * 1024);
    let begin = serde_json::json!({"key": "k", "name": "n", "attempt_id": "a", "input": text});
    server.post("/v1/begin", &begin).expect(200);
    let settle = serde_json::json!({
        "key": "k", "attempt_id": "a", "fence": 1, "verdict": "done", "ok": true,
        "effect": "created", "data": text,
    });
    let receipt = server.post("/v1/settle", &settle).expect(200);
    assert!(
        receipt["data"] == settle["data"],
        "the answer is as it was given"
    );
    let replay = server.post("/v1/begin", &begin).expect(200);
    assert!(
        replay["receipt"]["data"] == settle["data"],
        "so is its replay"
    );
}

#[test]
fn an_array_of_too_many_calls_is_refused_as_a_whole() {
    let world = World::new();
    let server = Server::start(&world);
    let calls: Vec<_> = (0..2_000)
        .map(|number| serde_json::json!({"key": format!("b-{number}"), "name": "n"}))
        .collect();
    let answer = server.post("/v1/begin", &calls.into());
    answer.problem(413, "too_large");
    nothing_happened(&server, "b-0");
    assert!(server.memory() < MEMORY_MAX, "{}", server.memory());
}
