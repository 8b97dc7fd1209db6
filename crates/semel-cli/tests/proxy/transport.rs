//! H. The way to the upstream, and what is neither a request nor an answer.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::http::{Address, Asked};
use crate::setup::{Setup, charge, fresh, keyed, refused, replay_of};
use crate::upstream::{Deed, Reply};

/// A connection that was used before is closed with the second request on it: a client that repeats what it cannot
/// know to be unsent would act twice.
#[test]
fn c093_nothing_is_sent_twice_on_its_own() {
    for deed in [
        Deed::CloseAfterEffect,
        Deed::Reset,
        Deed::CloseBeforeEffect,
        Deed::CutHead,
    ] {
        let setup = Setup::new();
        fresh(&setup.ask(keyed("before")), 201);
        setup.upstream.next(deed);
        refused(&setup.ask(keyed("k")), 502, "in_doubt");
        let received = setup.upstream.received();
        assert_eq!(received.len(), 2, "{received:?}");
    }
}

/// A connection that the upstream has closed meanwhile makes no doubt.
#[test]
fn c093_a_connection_that_was_closed_in_between_is_not_used() {
    let setup = Setup::new();
    for number in 0..20 {
        fresh(&setup.ask(keyed(&format!("k-{number}"))), 201);
        setup.upstream.cut_all();
    }
    assert_eq!(setup.effects(), 20);
}

/// What comes after an answer belongs to nobody.
#[test]
fn c093_an_answer_that_nobody_asked_for_is_given_to_nobody() {
    let setup = Setup::new();
    setup.upstream.next(Deed::Twice);
    let first = setup.ask(keyed("a"));
    fresh(&first, 201);
    assert_eq!(first.json()["of"], "a", "{first:?}");
    let second = setup.ask(keyed("b"));
    fresh(&second, 201);
    assert_eq!(second.json()["of"], "b", "{second:?}");
    replay_of(&first, &setup.ask(keyed("a")));
    assert_eq!(setup.effects(), 2);
}

#[test]
fn c094_a_key_is_passed_on_taken_away_or_derived() {
    let sent = |members: &str| {
        let mut setup = Setup::routed(members);
        setup.upstream.answers(Reply::new(429, "later").harmless());
        fresh(&setup.ask(keyed("k")), 429);
        setup.crash();
        fresh(&setup.ask(keyed("k")), 201);
        let received = setup.upstream.received();
        let keys = [0, 1].map(|index| received[index].header("idempotency-key"));
        assert_eq!(keys[0], keys[1], "every attempt has the same key");
        let [key, _] = keys;
        let other = setup.ask(keyed("other"));
        fresh(&other, 201);
        (key, setup.upstream.received()[2].header("idempotency-key"))
    };
    assert_eq!(sent("forward = \"pass\"").0.as_deref(), Some("k"));
    assert_eq!(sent("forward = \"strip\""), (None, None));
    let (key, other) = sent("forward = \"derive\"");
    let key = key.expect("there is one");
    assert_ne!(key, "k");
    assert!(!key.contains("\"k\""), "{key}");
    assert_ne!(Some(key), other);
}

/// Two callers with the same key must not share a derived one.
#[test]
fn c094_a_derived_key_is_its_callers_own() {
    let setup = Setup::routed("forward = \"derive\"");
    for who in ["ann", "bob"] {
        let asked = keyed("k").header("Authorization", &format!("Bearer {who}"));
        fresh(&setup.ask(asked), 201);
    }
    let received = setup.upstream.received();
    let keys = [0, 1].map(|index| received[index].header("idempotency-key"));
    assert!(keys[0].is_some());
    assert_ne!(keys[0], keys[1]);
}

fn raw(setup: &Setup, bytes: &str) -> String {
    let Address::Tcp(address) = setup.proxy().address() else {
        panic!("it listens on TCP");
    };
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(bytes.as_bytes()).expect("it is sent");
    let mut answer = vec![];
    // A proxy that hangs up in the middle has answered before.
    drop(stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn c097_what_becomes_something_else_is_refused_where_there_is_a_key() {
    let setup = Setup::new();
    let upgrade = Asked::post("/socket", &serde_json::json!({}))
        .header("Idempotency-Key", "k")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket");
    let answer = setup.ask(upgrade);
    assert_eq!(answer.status, 501, "{answer:?}");
    assert!(answer.header("semel-error").is_some(), "{answer:?}");
    let connect =
        "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: close\r\n\r\n";
    let answer = raw(&setup, connect);
    assert!(
        answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 5"),
        "{answer}"
    );
    assert_eq!(setup.upstream.received().len(), 0);
    assert_eq!(setup.records().len(), 0);
}

#[test]
fn c066_requests_whose_end_is_unclear_are_refused() {
    let setup = Setup::new();
    let head =
        "POST /charges HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k\r\nConnection: close\r\n";
    for rest in [
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
        "Content-Length: 2, 3\r\n\r\n{}x",
        "Content-Length: +2\r\n\r\n{}",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "X-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
        "Content-Length : 2\r\n\r\n{}",
        "Transfer_Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
        "tRANSFER_eNCODING: chunked\r\nContent-Length: 2\r\n\r\n{}",
        "Content_Length: 3\r\nContent-Length: 2\r\n\r\n{}",
    ] {
        let answer = raw(&setup, &format!("{head}{rest}"));
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 400");
        let refused = refused || answer.starts_with("HTTP/1.1 501");
        assert!(refused, "{rest:?}: {answer}");
    }
    assert_eq!(setup.upstream.received().len(), 0);
    assert_eq!(setup.records().len(), 0);
}

/// Where a length stands beside chunks, what follows the request may be a part of it: nothing of that is read.
#[test]
fn c066_nothing_follows_a_length_beside_chunks() {
    let setup = Setup::new();
    let first = "POST /charges HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k\r\n\
        Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let hidden = "POST /hidden HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: h\r\n\
        Content-Length: 0\r\n\r\n";
    let answer = raw(&setup, &format!("{first}{hidden}"));
    assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{answer}");
    let received = setup.upstream.received();
    assert!(
        received.iter().all(|it| it.target == "/charges"),
        "{received:?}"
    );
    assert!(received.iter().all(|it| it.length == 0), "{received:?}");
}

/// An upstream's `Content-Length` says nothing about a body in chunks (RFC 9112, section 6.3): neither the first client
/// nor one that gets the recorded answer may be told it.
#[test]
fn c066_length_beside_chunks_is_not_passed_on_to_clients() {
    for length in [0, 1, 5, 500] {
        let setup = Setup::new();
        let reply = Reply::new(201, "ok").header("Content-Length", length.to_string());
        setup.upstream.answers(reply.chunked());
        let first = setup.ask(keyed("k"));
        fresh(&first, 201);
        assert_eq!(first.body, b"ok", "Content-Length: {length}: {first:?}");
        replay_of(&first, &setup.ask(keyed("k")));
        // What only passes is framed in the same way.
        let reply = Reply::new(200, "ok").header("Content-Length", length.to_string());
        setup.upstream.answers(reply.chunked().harmless());
        let passed = setup.ask(Asked::get("/charges"));
        assert_eq!(passed.body, b"ok", "Content-Length: {length}: {passed:?}");
    }
}

/// A request that is not for this proxy's routes goes nowhere.
#[test]
fn what_no_route_is_for_is_not_found() {
    let setup = Setup::routed("path = \"/charges\"\nmethods = [\"POST\"]");
    fresh(&setup.ask(keyed("k")), 201);
    for asked in [
        Asked::post("/chargesx", &serde_json::json!({})),
        Asked::post("/", &serde_json::json!({})),
        Asked::get("/charges"),
    ] {
        refused(&setup.ask(asked), 404, "not_found");
    }
    let below = Asked::post("/charges/1/refunds", &serde_json::json!({"id": "r"}));
    fresh(&setup.ask(below.header("Idempotency-Key", "r")), 201);
    assert_eq!(setup.upstream.received().len(), 2);
}

#[test]
fn the_first_route_that_matches_is_taken() {
    let world = crate::harness::World::new();
    let upstream = crate::upstream::Upstream::start(world.path("effects"));
    let url = upstream.url();
    let toml = format!(
        "[[proxy.route]]\nhost = \"pay.example\"\nupstream = \"{url}/pay\"\nkeyless = \"require\"\n\
         [[proxy.route]]\npath = \"/open\"\nupstream = \"{url}\"\nkeyless = \"pass\"\n\
         [[proxy.route]]\nupstream = \"{url}\"\nprofile = \"ietf\"\n"
    );
    let setup = Setup::written(world, upstream, &toml);
    let to = |target: &str, host: &str| {
        Asked::post(target, &serde_json::json!({"id": "c"})).header("Host", host)
    };
    crate::setup::refusal(&setup.ask(to("/open", "pay.example")), 400);
    fresh(&setup.ask(to("/open/x", "localhost")), 201);
    crate::setup::refusal(&setup.ask(to("/x", "localhost")), 400);
    fresh(
        &setup.ask(to("/x", "pay.example").header("Idempotency-Key", "k")),
        201,
    );
    let targets: Vec<_> = setup
        .upstream
        .received()
        .into_iter()
        .map(|it| it.target)
        .collect();
    assert_eq!(targets, ["/open/x", "/pay/x"]);
}

/// A proxy on a socket that a file system protects.
#[test]
fn it_listens_on_a_unix_socket_too() {
    let setup = Setup::new();
    let place = setup.world.path("proxy.sock");
    let place = format!("unix:{}", place.display());
    let words = [
        "proxy",
        "--listen",
        &place,
        "--upstream",
        &setup.upstream.url(),
    ];
    let proxy = crate::server::Server::spawn(&mut setup.world.command(&words));
    let asked = || charge("c").header("Idempotency-Key", "k");
    let first = proxy.ask(asked());
    fresh(&first, 201);
    replay_of(&first, &proxy.ask(asked()));
}
