//! Clients over HTTP, in front of a server that speaks HTTP.

use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use semel::core::identity::{Exchange, Observation};
use semel::{Namespace, NewToken, Scope};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use super::fake::Gate;
use super::peer::{Act, Heard, Peer, empty, events, json};
use super::soon;
use crate::Auth;
use crate::mcp::http::front::Behind;
use crate::mcp::http::relay::Relay;
use crate::mcp::message::MESSAGE_MAX;
use crate::outbound::Url;
use crate::pool::Pool;

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{}}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
const ODD: &str =
    r#" {"params":{"é":1e999, "a":"\u00e9"},"jsonrpc":"2.0","method":"x/y","id":1.50,"more":[ ]} "#;

fn behind(peer: &Peer) -> Behind<super::fake::FakeDesk> {
    let pool = Pool::new(Url::parse(&peer.url()).expect("it is right"));
    Behind::Server(Relay::new(pool.expect("it can be made"), HeaderMap::new()))
}

async fn gate(play: impl Fn(&Heard) -> Act + Send + Sync + 'static) -> (Gate, Peer) {
    let peer = Peer::new(play).await;
    (Gate::open(behind(&peer)).await, peer)
}

#[tokio::test]
async fn what_is_not_taken_passes_as_it_came_in_both_directions() {
    let said = ": c\n\nid: 5\nevent: message\ndata: {}\nretry: 3\n\n";
    let (gate, mut peer) = gate(move |_| Act::Last(events(said))).await;
    let with = [
        ("authorization", "Bearer theirs"),
        ("mcp-session-id", "s"),
        ("x-odd", "1"),
        ("last-event-id", "e"),
    ];
    let got = gate.client().post(&with, ODD).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.header("content-type"), Some("text/event-stream"));
    assert_eq!(got.text().await, said);
    let heard = peer.next().await;
    assert_eq!(heard.text(), ODD);
    for (name, value) in with {
        assert_eq!(heard.header(name), Some(value));
    }
    let address = peer.address.to_string();
    assert_eq!(heard.header("host"), Some(address.as_str()));
}

#[tokio::test]
async fn refusals_and_other_methods_pass_as_well() {
    let (gate, mut peer) = gate(|heard| match heard.method.as_str() {
        "POST" => Act::Say(empty(
            "401 Unauthorized",
            "WWW-Authenticate: Bearer a=b\r\n",
        )),
        "DELETE" => Act::Say(empty("200 OK", "")),
        _ => Act::Last(events("data: {}\n\n")),
    })
    .await;
    let client = gate.client();
    let got = client.post(&[], ODD).await;
    assert_eq!(got.status, 401);
    assert_eq!(got.header("www-authenticate"), Some("Bearer a=b"));
    got.text().await;
    let with = [("mcp-session-id", "s")];
    let got = client.send(Method::GET, &with, "").await;
    assert_eq!(got.text().await, "data: {}\n\n");
    let got = client.send(Method::DELETE, &with, "").await;
    assert_eq!(got.status, 200);
    let methods: Vec<_> = peer.rest().into_iter().map(|heard| heard.method).collect();
    assert_eq!(methods, ["POST", "GET", "DELETE"]);
    let got = client.send(Method::PUT, &with, "").await;
    assert_eq!(got.status, 405);
    assert_eq!(got.header("allow"), Some("GET, POST, DELETE"));
}

#[tokio::test]
async fn a_call_is_taken_and_its_receipt_is_proved() {
    let (gate, mut peer) = gate(|_| Act::Say(json("X-More: 1\r\n", ANSWER))).await;
    let client = gate.client();
    let with = [("authorization", "Bearer theirs")];
    let got = client.post(&with, CALL).await;
    assert_eq!((got.status, got.header("x-more")), (200, Some("1")));
    assert_eq!(got.text().await, ANSWER);
    let call = gate.desk.ended(0, Exchange::Delivered).await;
    assert!(call.principal.expect("it is named").starts_with("auth "));
    let heard = peer.next().await;
    assert_eq!(heard.text(), CALL);
    assert_eq!(heard.header("authorization"), Some("Bearer theirs"));
    let got = client.post(&[], CALL).await;
    assert_eq!(got.text().await, ANSWER);
    let call = gate.desk.ended(1, Exchange::Delivered).await;
    assert_eq!(call.principal, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_before_is_proved_when_the_next_call_is_judged() {
    let (gate, _peer) = gate(|_| Act::Say(json("", ANSWER))).await;
    for number in 0..50 {
        let mut stream = TcpStream::connect(gate.address).await.expect("it listens");
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            CALL.len()
        );
        // Two on each connection; the peer acknowledges what it reads no later than it says or closes anything.
        for half in 0..2 {
            let sent = stream.write_all(format!("{head}{CALL}").as_bytes()).await;
            sent.expect("it is sent");
            let mut text = vec![];
            while !text.ends_with(ANSWER.as_bytes()) {
                text.push(stream.read_u8().await.expect("there is more"));
            }
            let number = number * 2 + half;
            let calls = gate.desk.until(|calls| calls.len() > number).await;
            assert_eq!(calls[number].unproved, 0, "{calls:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_whose_acknowledgement_is_put_off_is_waited_for() {
    let (gate, _peer) = gate(|_| Act::Say(json("", ANSWER))).await;
    // A connection on which both sides took turns puts its acknowledgements off.
    let (used, other) = (gate.client(), gate.client());
    for number in 0..10 {
        let client = if number % 2 == 0 { &used } else { &other };
        assert_eq!(client.post(&[], CALL).await.text().await, ANSWER);
        let calls = gate.desk.until(|calls| calls.len() > number).await;
        assert_eq!(calls[number].unproved, 0, "{calls:?}");
    }
}

#[tokio::test]
async fn what_comes_before_the_answer_makes_it_events() {
    let aside = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
    let said = format!("data: {aside}\n\ndata: {ANSWER}\n\n");
    let (gate, _peer) = gate(move |_| Act::Last(events(&said))).await;
    let got = gate.client().post(&[], CALL).await;
    assert_eq!(got.header("content-type"), Some("text/event-stream"));
    let text = got.text().await;
    let data: Vec<_> = text
        .lines()
        .filter_map(|it| it.strip_prefix("data: "))
        .collect();
    assert_eq!(data, [aside, ANSWER]);
    gate.desk.ended(0, Exchange::Delivered).await;
    // Whoever takes no events gets the answer alone.
    let got = gate
        .client()
        .post(&[("accept", "application/json")], CALL)
        .await;
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert_eq!(got.text().await, ANSWER);
}

#[tokio::test]
async fn an_answer_that_broke_off_is_given_on_another_stream() {
    let go_on = Arc::new(Notify::new());
    let aside = r#"data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
    let (said, rest) = (format!("{aside}\n\n"), format!("data: {ANSWER}\n\n"));
    let told = Arc::clone(&go_on);
    let halt = move |_: &Heard| Act::Halt(events(&said), Arc::clone(&told), rest.clone().into());
    let (gate, mut peer) = gate(halt).await;
    let (session, version) = ("mcp-session-id", "mcp-protocol-version");
    let client = gate.client();
    let mut got = client
        .post(&[(session, "s"), (version, "2025-11-25")], CALL)
        .await;
    let text = got.until("notifications/progress").await;
    let event = text
        .strip_prefix("id: ")
        .and_then(|text| text.lines().next());
    let event = event.expect("it begins with an id");
    drop((got, client));
    gate.desk.ended(0, Exchange::Lost).await;
    go_on.notify_one();
    let last = ("last-event-id", event);
    let get = async |whose: &str| {
        let with = [(session, whose), (version, "2025-11-25"), last];
        let got = gate.client().send(Method::GET, &with, "").await;
        (got.status, got.text().await)
    };
    let (status, text) = get("t").await;
    assert_eq!(status, 404, "it is another one's: {text}");
    let (status, text) = get("s").await;
    assert_eq!(status, 200);
    assert!(text.ends_with(&format!("data: {ANSWER}\n\n")), "{text}");
    let (status, text) = get("s").await;
    assert_eq!(status, 404, "it was given: {text}");
    let methods: Vec<_> = peer.rest().into_iter().map(|heard| heard.method).collect();
    assert_eq!(methods, ["POST"], "the server was left alone");
    // Older clients do not know what an event without data is for.
    let client = gate.client();
    let mut got = client
        .post(&[(session, "s"), (version, "2025-06-18")], CALL)
        .await;
    let text = got.until("notifications/progress").await;
    assert!(text.starts_with("event: message\n"), "{text}");
}

#[tokio::test]
async fn headers_that_say_something_else_are_refused_before_a_call_is_taken() {
    let (gate, mut peer) = gate(|_| Act::Say(json("", ANSWER))).await;
    let client = gate.client();
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let (version, method) = (
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
    );
    for with in [
        &[version, method][..],
        &[version, method, ("mcp-name", "b")],
        &[version, ("mcp-name", "a")],
    ] {
        let got = client.post(with, call).await;
        assert_eq!(got.status, 400, "{with:?}");
        let text = got.text().await;
        assert!(text.contains("-32020"), "{text}");
    }
    assert_eq!(peer.rest().len(), 0);
    let got = client
        .post(&[version, method, ("mcp-name", "a")], call)
        .await;
    assert_eq!(got.text().await, ANSWER);
}

#[tokio::test]
async fn a_client_that_leaves_does_not_stop_its_call() {
    let (closed, mut is_closed) = mpsc::unbounded_channel();
    let hold = move |_: &Heard| Act::Hold(events(": hello\n\n"), closed.clone());
    let (gate, mut peer) = gate(hold).await;
    let mut stream = TcpStream::connect(gate.address).await.expect("it listens");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        CALL.len()
    );
    let sent = stream.write_all(format!("{head}{CALL}").as_bytes()).await;
    sent.expect("it is sent");
    peer.next().await;
    drop(stream);
    let calls = gate.desk.until(|calls| calls[0].has_left).await;
    assert!(!calls[0].is_answered);
    assert_eq!(calls[0].seen, []);
    assert!(is_closed.try_recv().is_err(), "the server was left alone");
}

#[tokio::test]
async fn a_reset_after_the_answer_takes_it_back() {
    let (gate, _peer) = gate(|_| Act::Say(json("", ANSWER))).await;
    let mut stream = TcpStream::connect(gate.address).await.expect("it listens");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        CALL.len()
    );
    let sent = stream.write_all(format!("{head}{CALL}").as_bytes()).await;
    sent.expect("it is sent");
    gate.desk.ended(0, Exchange::Delivered).await;
    drop(stream);
    let call = gate.desk.ended(0, Exchange::Lost).await;
    assert_eq!(call.seen.last(), Some(&Observation::Reset));
}

#[tokio::test]
async fn a_cancel_is_seen_and_not_passed_on() {
    let (closed, _is_closed) = mpsc::unbounded_channel();
    let hold = move |heard: &Heard| match heard.text().contains("cancelled") {
        true => Act::Say(empty("202 Accepted", "")),
        false => Act::Hold(events(": hello\n\n"), closed.clone()),
    };
    let (gate, mut peer) = gate(hold).await;
    let client = gate.client();
    let waiting = client.post(&[("mcp-session-id", "s")], CALL);
    let cancels = async {
        peer.next().await;
        let cancel = |id: u32| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            )
        };
        let client = gate.client();
        // Another one's, and one that nobody has.
        let got = client.post(&[("mcp-session-id", "t")], &cancel(7)).await;
        assert_eq!(got.status, 202);
        peer.next().await;
        let got = client.post(&[("mcp-session-id", "s")], &cancel(8)).await;
        assert_eq!(got.status, 202);
        peer.next().await;
        let got = client.post(&[("mcp-session-id", "s")], &cancel(7)).await;
        assert_eq!(got.status, 202);
        let calls = gate.desk.until(|calls| !calls[0].seen.is_empty()).await;
        assert_eq!(calls[0].seen, [Observation::Cancelled]);
        assert_eq!(peer.rest().len(), 0);
    };
    tokio::select! {
        got = waiting => panic!("it was answered: {}", got.status),
        () = cancels => {}
    }
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    let (gate, mut peer) = gate(|_| Act::Say(json("", ANSWER))).await;
    let client = gate.client();
    let batch = format!("[{CALL}]");
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"tools/call"}"#;
    let large = " ".repeat(MESSAGE_MAX + 1);
    let none: &[(&str, &str)] = &[];
    for (with, body, status, code) in [
        (none, "{", 400, "-32700"),
        (none, batch.as_str(), 400, "-32600"),
        (none, twice, 400, "-32600"),
        (none, large.as_str(), 413, "-32600"),
        (&[("content-type", "text/plain")], CALL, 415, "-32600"),
        (&[("content-encoding", "gzip")], CALL, 415, "-32600"),
    ] {
        let got = client.post(with, body).await;
        assert_eq!(got.status, status);
        let text = got.text().await;
        assert!(text.contains(&format!("\"code\":{code}")), "{text}");
    }
    for with in [
        vec![("host", "evil.example")],
        vec![("origin", "https://evil.example")],
        vec![("host", "evil.example"), ("origin", "http://evil.example")],
        vec![("origin", "http://localhost:1")],
        vec![("origin", "null")],
    ] {
        let got = client.post(&with, CALL).await;
        assert_eq!(got.status, 403, "{with:?}");
    }
    assert_eq!(peer.rest().len(), 0);
    let got = client.post(&[("origin", "http://localhost")], CALL).await;
    assert_eq!(got.status, 200);
    assert_eq!(peer.next().await.header("origin"), None);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be() {
    let (gate, peer) = gate(|_| Act::Last(vec![])).await;
    let got = gate.client().post(&[], ODD).await;
    assert_eq!(got.status, 502);
    let text = got.text().await;
    assert!(
        text.contains("\"id\":1.50") && text.contains("nobody knows"),
        "{text}"
    );
    drop(peer);
}

#[tokio::test]
async fn tokens_are_for_the_gateway_and_nobody_else() {
    let mut peer = Peer::new(|_| Act::Say(json("", ANSWER))).await;
    let gate = Gate::with(behind(&peer), Auth::Required).await;
    let client = gate.client();
    for with in [vec![], vec![("authorization", "Bearer theirs")]] {
        let got = client.post(&with, CALL).await;
        assert_eq!(got.status, 401);
        got.text().await;
    }
    let mut tokens = vec![];
    for scope in [Scope::Write, Scope::Read] {
        let wanted = NewToken {
            namespace: Namespace::default(),
            scope,
            label: None,
            expires_in: None,
        };
        let (token, _) = gate.engine.create_token(wanted).await.expect("it is made");
        tokens.push(format!("Bearer {}", token.reveal()));
    }
    let got = client.post(&[("authorization", &tokens[1])], CALL).await;
    assert_eq!(got.status, 403);
    got.text().await;
    assert_eq!(peer.rest().len(), 0);
    let got = client.post(&[("authorization", &tokens[0])], CALL).await;
    assert_eq!(got.text().await, ANSWER);
    let call = gate.desk.ended(0, Exchange::Delivered).await;
    assert!(call.principal.expect("it is named").starts_with("token "));
    assert_eq!(peer.next().await.header("authorization"), None);
}

#[tokio::test]
async fn a_slow_reader_gets_all_of_it_and_one_that_stops_nothing_more() {
    let large = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":"{}"}}"#,
        "x".repeat(8 << 20)
    );
    let said = large.clone();
    let (gate, _peer) = gate(move |_| Act::Say(json("", &said))).await;
    let mut stream = TcpStream::connect(gate.address).await.expect("it listens");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        CALL.len()
    );
    for _ in 0..2 {
        let sent = stream.write_all(format!("{head}{CALL}").as_bytes()).await;
        sent.expect("it is sent");
        stream.read_u8().await.expect("it began");
        let calls = gate
            .desk
            .until(|calls| calls.iter().all(|it| it.is_answered))
            .await;
        assert_eq!(calls.last().map(|call| call.seen.len()), Some(0));
        if calls.len() == 1 {
            let mut text = vec![];
            while !text.ends_with(large.as_bytes().split_at(large.len() - 64).1) {
                let mut piece = vec![0; 1 << 16];
                let count = soon(stream.read(&mut piece)).await.expect("there is more");
                text.extend_from_slice(&piece[..count]);
            }
            gate.desk.ended(0, Exchange::Delivered).await;
        }
    }
    drop(stream);
    let call = gate.desk.ended(1, Exchange::Lost).await;
    assert_eq!(call.seen, [Observation::NotWritten]);
}
