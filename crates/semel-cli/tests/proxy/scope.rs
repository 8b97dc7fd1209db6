//! D. Whose key it is, and what is told to whom.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::http::{Address, Answer};
use crate::setup::{Setup, fresh, is_replay, keyed, replay_of};
use crate::upstream::Reply;

fn ask(setup: &Setup, headers: &[(&str, &str)]) -> Answer {
    let asked = headers
        .iter()
        .fold(keyed("k"), |asked, (name, value)| asked.header(name, value));
    setup.ask(asked)
}

#[test]
fn c057_c059_two_callers_never_share_a_key() {
    let setup = Setup::new();
    let callers: [&[(&str, &str)]; 7] = [
        &[],
        &[("Authorization", "Bearer ann")],
        &[("Authorization", "Bearer bob")],
        &[("Authorization", "Basic YW5uOjE=")],
        &[("Authorization", "Basic Ym9iOjE=")],
        &[("Cookie", "session=ann")],
        &[("Cookie", "session=bob")],
    ];
    let firsts = callers.map(|caller| ask(&setup, caller));
    for (caller, first) in callers.iter().zip(&firsts) {
        fresh(first, 201);
        replay_of(first, &ask(&setup, caller));
    }
    assert_eq!(setup.effects(), callers.len());
}

#[test]
fn c057_an_api_key_says_who_it_is_where_the_route_says_so() {
    let setup = Setup::routed("credentials = [\"X-Api-Key\"]");
    for caller in ["ann", "bob"] {
        let first = ask(&setup, &[("X-Api-Key", caller)]);
        fresh(&first, 201);
        replay_of(&first, &ask(&setup, &[("X-Api-Key", caller)]));
    }
    assert_eq!(setup.effects(), 2);
}

#[test]
fn c058_a_new_token_of_the_same_caller_is_the_same_caller() {
    let setup = Setup::routed("credentials = [\"X-User\"]");
    let first = ask(&setup, &[("X-User", "ann"), ("Authorization", "Bearer 1")]);
    fresh(&first, 201);
    let again = ask(&setup, &[("X-User", "ann"), ("Authorization", "Bearer 2")]);
    replay_of(&first, &again);
    assert_eq!(setup.effects(), 1);
}

/// Credentials are no part of what is stored, not even as names.
#[test]
fn c059_credentials_are_not_stored() {
    let mut setup = Setup::new();
    let first = ask(&setup, &[("Authorization", "Bearer sk-4711-secret")]);
    fresh(&first, 201);
    setup.proxy_mut().kill();
    let mut found = 0;
    for entry in std::fs::read_dir(setup.world.path("data")).expect("there is a store") {
        let bytes = std::fs::read(entry.expect("it can be listed").path());
        let bytes = bytes.expect("it can be read");
        let holds = |text: &[u8]| bytes.windows(text.len()).any(|it| it == text);
        assert!(!holds(b"sk-4711-secret"));
        found += usize::from(holds(b"POST /charges"));
    }
    assert!(found > 0, "the store was looked at");
}

#[test]
fn c060_what_is_for_the_first_caller_is_for_nobody_else() {
    let setup = Setup::new();
    let personal = [
        ("Set-Cookie", "session=1; HttpOnly"),
        ("WWW-Authenticate", "Basic"),
        ("Authorization", "echoed"),
        ("Proxy-Status", "x"),
    ];
    let reply = personal
        .iter()
        .fold(Reply::new(200, "ok"), |reply, (name, value)| {
            reply.header(name, value)
        });
    setup.upstream.answers(reply.header("X-Custom", "kept"));
    let first = setup.ask(keyed("k"));
    for (name, value) in &personal[..2] {
        let name = name.to_ascii_lowercase();
        assert_eq!(first.header(&name), Some(*value), "{first:?}");
    }
    let again = setup.ask(keyed("k"));
    replay_of(&first, &again);
    assert_eq!(again.header("x-custom"), Some("kept"), "{again:?}");
    for (name, _) in personal {
        let name = name.to_ascii_lowercase();
        assert_eq!(again.header(&name), None, "{again:?}");
    }
}

#[test]
fn c061_what_is_for_the_next_hop_goes_no_further() {
    let setup = Setup::new();
    let reply = Reply::new(200, "ok")
        .header("Connection", "X-Hop, keep-alive")
        .header("X-Hop", "theirs")
        .header("Keep-Alive", "timeout=5")
        .header("X-Custom", "kept");
    setup.upstream.answers(reply);
    let asked = keyed("k")
        .header("Connection", "X-Mine, keep-alive")
        .header("X-Mine", "ours")
        .header("Keep-Alive", "timeout=1")
        .header("Proxy-Connection", "keep-alive")
        .header("TE", "trailers")
        .header("X-Kept", "yes");
    let first = setup.ask(asked);
    fresh(&first, 200);
    let received = &setup.upstream.received()[0];
    for name in ["x-mine", "keep-alive", "proxy-connection"] {
        assert_eq!(received.header(name), None, "{name}: {received:?}");
    }
    assert_eq!(received.header("x-kept").as_deref(), Some("yes"));
    let again = setup.ask(keyed("k"));
    for answer in [&first, &again] {
        assert_eq!(answer.header("x-hop"), None, "{answer:?}");
        assert_eq!(answer.header("keep-alive"), None, "{answer:?}");
        assert_eq!(answer.header("x-custom"), Some("kept"), "{answer:?}");
    }
}

#[test]
fn c062_what_belongs_to_one_answer_is_made_anew() {
    let setup = Setup::new();
    let stale = [
        ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("Age", "7"),
        ("Server", "upstream"),
        ("Alt-Svc", "h3=\":443\""),
    ];
    let reply = stale
        .iter()
        .fold(Reply::new(200, "ok"), |reply, (name, value)| {
            reply.header(name, value)
        });
    setup.upstream.answers(reply.chunked());
    let first = setup.ask(keyed("k"));
    fresh(&first, 200);
    let again = setup.ask(keyed("k"));
    replay_of(&first, &again);
    for (name, value) in stale {
        let name = name.to_ascii_lowercase();
        assert_ne!(again.header(&name), Some(value), "{again:?}");
    }
    assert!(again.header("date").is_some(), "{again:?}");
}

/// Returns an answer as it is on the wire.
fn raw(setup: &Setup, key: &str) -> Vec<u8> {
    let Address::Tcp(address) = setup.proxy().address() else {
        panic!("it listens on TCP");
    };
    let mut stream = TcpStream::connect(address).expect("it listens");
    let asked = keyed(key).header("Connection", "close");
    stream.write_all(&asked.bytes()).expect("it is sent");
    let mut answer = vec![];
    stream.read_to_end(&mut answer).expect("it is answered");
    answer
}

#[test]
fn c063_repeated_headers_and_odd_bytes_survive() {
    let setup = Setup::new();
    let reply = Reply::new(200, "ok")
        .header("Link", "<a>; rel=x")
        .header("Link", "<b>; rel=y")
        .header("X-Odd", b"caf\xe9 \xff");
    setup.upstream.answers(reply);
    for _ in 0..2 {
        let answer = raw(&setup, "k");
        let count = |text: &[u8]| answer.windows(text.len()).filter(|it| *it == text).count();
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(count(b"<a>; rel=x\r\n"), 1, "{text}");
        assert_eq!(count(b"<b>; rel=y\r\n"), 1, "{text}");
        assert_eq!(count(b"caf\xe9 \xff\r\n"), 1, "{text}");
    }
    assert_eq!(setup.effects(), 1);
}

/// What the flood leaves in memory; the answers that are kept for replays have a limit of their own.
const FLOOD_MEMORY_MAX: u64 = 128 * 1024 * 1024;

#[test]
fn c065_a_flood_of_keys_does_not_fill_the_memory() {
    let setup = Setup::new();
    let before = {
        fresh(&setup.ask(keyed("first")), 201);
        setup.proxy().memory()
    };
    let many = semel_testkit::scaled(30_000, 4_000);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let setup = &setup;
            scope.spawn(move || {
                let mut connection = setup.proxy().connect();
                for number in 0..many / 8 {
                    let asked = keyed(&format!("k-{client}-{number}"));
                    let asked = asked.header("Authorization", &format!("Bearer {number}"));
                    connection.send(&asked.bytes()).expect("it is sent");
                    let answer = connection.answer().expect("it is answered");
                    assert_eq!(answer.status, 201, "{answer:?}");
                }
            });
        }
    });
    let grown = setup.proxy().memory().saturating_sub(before);
    assert!(
        grown < FLOOD_MEMORY_MAX,
        "{grown} bytes more after {many} keys"
    );
    assert!(is_replay(&setup.ask(keyed("first"))));
}
