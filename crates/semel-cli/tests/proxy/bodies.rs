//! F. Bodies: how they come in, what is kept of them, and what is not.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::json;

use crate::http::{Address, Asked, Connection};
use crate::setup::{Setup, charge, fresh, header, is_replay, keyed, refused, replay_of};
use crate::upstream::{Framing, Reply, is_run};

/// Sends bytes as they are, and returns the connection.
fn send(setup: &Setup, bytes: &[u8]) -> Connection {
    let mut connection = setup.proxy().connect();
    connection.send(bytes).expect("it is sent");
    connection
}

/// A request whose body comes in chunks.
fn chunked(key: &str, chunks: &[&str]) -> Vec<u8> {
    let mut text = format!(
        "POST /charges HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: {key}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    for chunk in chunks {
        text.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
    }
    text.push_str("0\r\n\r\n");
    text.into_bytes()
}

#[test]
fn c077_a_body_beyond_the_limit_is_refused_before_anything_is_claimed() {
    let setup = Setup::routed("request_limit = \"1000\"");
    let long = "x".repeat(2_000);
    let asked = Asked::post("/charges", &json!({"id": "k", "text": long}));
    let answer = setup.ask(asked.header("Idempotency-Key", "k"));
    refused(&answer, 413, "too_large");
    let answer = send(&setup, &chunked("k", &[&long])).answer();
    refused(&answer.expect("it is answered"), 413, "too_large");
    assert_eq!(setup.upstream.received().len(), 0);
    assert_eq!(setup.records().len(), 0);
    // The key is free.
    fresh(&setup.ask(keyed("k")), 201);
}

#[test]
fn c078_a_body_may_come_in_chunks() {
    let setup = Setup::new();
    let answer = send(&setup, &chunked("k", &["{\"id\":", "\"k\"", "}"])).answer();
    let answer = answer.expect("it is answered");
    fresh(&answer, 201);
    assert_eq!(setup.upstream.received()[0].body, b"{\"id\":\"k\"}");
    // Cut otherwise, or sent as a whole: it is the same body.
    let again = send(&setup, &chunked("k", &["{\"id\":\"k\"}"])).answer();
    replay_of(&answer, &again.expect("it is answered"));
    let whole = Asked::post("/charges", &json!({"id": "k"})).header("Idempotency-Key", "k");
    replay_of(&answer, &setup.ask(whole));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c078_who_asks_first_is_told_to_go_on() {
    let setup = Setup::new();
    let Address::Tcp(address) = setup.proxy().address() else {
        panic!("it listens on TCP");
    };
    let mut stream = TcpStream::connect(address).expect("it listens");
    let head = "POST /charges HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k\r\nContent-Length: 10\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it is sent");
    let mut go = [0; 25];
    stream.read_exact(&mut go).expect("it answers");
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(br#"{"id":"k"}"#).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(setup.effects(), 1);
    assert_eq!(setup.upstream.received()[0].header("expect"), None);
}

#[test]
fn c078_half_a_body_claims_nothing() {
    let setup = Setup::new();
    let whole = chunked("k", &["{\"id\":\"k\"}"]);
    let half = &whole[..whole.len() - 5];
    let connection = send(&setup, half);
    connection.finish_writing().expect("it can be closed");
    drop(connection);
    let short = "POST /charges HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\nabc";
    let connection = send(&setup, short.as_bytes());
    connection.finish_writing().expect("it can be closed");
    let mut connection = connection;
    // It may be told so, or cut off.
    if let Ok(answer) = connection.answer() {
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(setup.upstream.received().len(), 0);
    assert_eq!(setup.records().len(), 0);
    fresh(&setup.ask(keyed("k")), 201);
}

/// The same over HTTP/2, by curl.
#[test]
fn c078_it_may_be_another_version_of_http() {
    let setup = Setup::new();
    let curl = |version: &str| {
        let url = format!("http://127.0.0.1:{}/charges", setup.proxy().port());
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--include", version, &url]);
        command.args(["--header", "Idempotency-Key: k"]);
        command.args(["--header", "Content-Type: application/json"]);
        command.args(["--data", "{\"id\":\"k\"}"]);
        let output = command.output().expect("curl is installed");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout)
            .expect("it is text")
            .to_ascii_lowercase()
    };
    let first = curl("--http2-prior-knowledge");
    assert!(first.starts_with("http/2 201"), "{first}");
    assert!(!first.contains("idempotent-replayed"), "{first}");
    for version in ["--http2-prior-knowledge", "--http1.1"] {
        let again = curl(version);
        assert!(again.contains("idempotent-replayed: true"), "{again}");
        let body = |text: &str| text.rsplit("\r\n\r\n").next().map(str::to_owned);
        assert_eq!(body(&again), body(&first));
    }
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c079_request_bodies_of_any_bytes_are_passed_on() {
    let setup = Setup::new();
    let binary: Vec<u8> = (0..=255).cycle().take(3 * 1024 * 1024).collect();
    for (number, body) in [&b""[..], b"\0", &binary].into_iter().enumerate() {
        let key = format!("k-{number}");
        let asked = || {
            let asked = Asked::new("POST", "/charges").header("Idempotency-Key", &key);
            asked
                .header("Content-Type", "application/octet-stream")
                .body(body)
        };
        let first = setup.ask(asked());
        fresh(&first, 201);
        replay_of(&first, &setup.ask(asked()));
        let received = &setup.upstream.received()[number];
        assert_eq!(
            (received.length, received.is_run),
            (body.len() as u64, true)
        );
    }
    assert_eq!(setup.effects(), 3);
}

#[test]
fn c080_an_answer_that_is_too_large_to_keep_is_passed_on_and_not_done_again() {
    for framing in [Framing::Length, Framing::Chunked] {
        let mut setup = Setup::routed("answer_limit = \"100000\"");
        setup
            .upstream
            .answers(Reply::new(200, "").long(300_000).framing(framing));
        let first = setup.ask(keyed("k"));
        fresh(&first, 200);
        assert_eq!(first.body.len(), 300_000);
        assert!(is_run(0, &first.body));
        for _ in 0..2 {
            let problem = refused(&setup.ask(keyed("k")), 410, "expired");
            assert_eq!(problem["original_status"], 200, "{problem}");
            setup.crash();
        }
        assert_eq!(setup.effects(), 1);
    }
}

#[test]
fn c084_a_coded_answer_is_kept_as_it_is() {
    let setup = Setup::new();
    let coded: Vec<u8> = (0..200).rev().collect();
    let reply = Reply::new(200, &coded)
        .header("Content-Type", "application/json")
        .header("Content-Encoding", "br")
        .header("Vary", "Accept-Encoding");
    setup.upstream.answers(reply);
    let asked = || keyed("k").header("Accept-Encoding", "br");
    let first = setup.ask(asked());
    fresh(&first, 200);
    let again = setup.ask(asked());
    replay_of(&first, &again);
    for answer in [&first, &again] {
        assert_eq!(header(answer, "content-encoding"), "br", "{answer:?}");
        assert_eq!(header(answer, "vary"), "Accept-Encoding", "{answer:?}");
        assert_eq!(answer.body, coded);
    }
    // Whoever cannot read it is told so, and nothing is done again.
    let other = setup.ask(keyed("k").header("Accept-Encoding", "gzip"));
    let said = refused(&other, 406, "not_acceptable");
    assert_eq!(said["original_status"], 200, "{said}");
    assert_eq!(setup.effects(), 1);
}

/// Trailers come with the answer the first time; what is refused is refused before anything is done.
#[test]
fn c085_trailers_are_passed_on_or_refused_before_anything_is_done() {
    let setup = Setup::new();
    let reply = Reply::new(200, "body").header("Trailer", "X-Sum").chunked();
    setup.upstream.answers(reply.trailer("X-Sum: 5"));
    let Address::Tcp(address) = setup.proxy().address() else {
        panic!("it listens on TCP");
    };
    let mut stream = TcpStream::connect(address).expect("it listens");
    let asked = keyed("k")
        .header("TE", "trailers")
        .header("Connection", "close, TE");
    stream.write_all(&asked.bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let answer = answer.to_ascii_lowercase();
    if answer.starts_with("http/1.1 200") {
        assert!(answer.ends_with("x-sum: 5\r\n\r\n"), "{answer}");
        let again = setup.ask(keyed("k"));
        assert!(is_replay(&again), "{again:?}");
        assert_eq!(again.body, b"body");
    } else {
        assert_eq!(setup.effects(), 0, "{answer}");
    }
    // A request that has some is passed on or refused, and never half of it.
    let mut bytes = chunked("t", &["{\"id\":\"t\"}"]);
    bytes.truncate(bytes.len() - 2);
    bytes.extend(b"X-Sum: 5\r\n\r\n");
    let answer = send(&setup, &bytes).answer().expect("it is answered");
    let expected = usize::from(answer.status == 201);
    assert_eq!(setup.upstream.effects_of("t"), expected, "{answer:?}");
}

/// An answer without an end mark ends with its connection, which proves nothing: it is kept as far as it came.
#[test]
fn an_answer_that_ends_with_its_connection_is_an_answer() {
    let setup = Setup::new();
    setup
        .upstream
        .answers(Reply::new(200, "all of it").framing(Framing::Close));
    let first = setup.ask(charge("c").header("Idempotency-Key", "k"));
    fresh(&first, 200);
    assert_eq!(first.body, b"all of it");
    replay_of(
        &first,
        &setup.ask(charge("c").header("Idempotency-Key", "k")),
    );
}
