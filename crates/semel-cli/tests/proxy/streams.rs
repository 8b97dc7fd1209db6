//! Answers that come piece by piece: passed on at once, joined while they run, and told again byte for byte.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::http::{Address, Asked, Connection, was_cut};
use crate::setup::{Setup, charge, fresh, is_replay, keyed, refused, replay_of};
use crate::upstream::{Deed, Teller};

const EVENTS: &str = "text/event-stream";

/// Somebody who reads a stream.
struct Reader {
    connection: Connection,
    heard: Vec<u8>,
}

impl Reader {
    /// Asks, and reads the head of the answer.
    #[track_caller]
    fn open(setup: &Setup, asked: &Asked) -> (crate::http::Answer, Self) {
        let mut connection = setup.begin(asked);
        let head = connection.head().expect("it is answered");
        assert_eq!(head.status, 200, "{head:?}");
        let heard = vec![];
        (head, Self { connection, heard })
    }

    /// Reads until this much was said, and expects no more than that.
    #[track_caller]
    fn hears(&mut self, all: &str) {
        while self.heard.len() < all.len() {
            let piece = self.connection.chunk().expect("it goes on");
            self.heard.extend(piece.expect("it is not over"));
        }
        assert_eq!(String::from_utf8_lossy(&self.heard), all);
    }

    /// Expects the end.
    #[track_caller]
    fn ends(&mut self) {
        let end = self.connection.chunk().expect("it ends well");
        assert_eq!(end, None, "{:?}", String::from_utf8_lossy(&self.heard));
    }

    /// Expects to be cut off: there is no end mark.
    #[track_caller]
    fn is_cut(&mut self) {
        let end = self.connection.chunk();
        let error = end.expect_err("an end would say that it was all");
        assert!(was_cut(&error), "{error}");
    }
}

fn event(number: usize) -> String {
    format!("id: {number}\ndata: {{\"n\": {number}}}\n\n")
}

/// Returns the first so many events.
fn events(count: usize) -> String {
    (1..=count).map(event).collect()
}

#[test]
fn c081_a_stream_is_passed_on_at_once_and_told_again_byte_for_byte() {
    for kind in [EVENTS, "application/x-ndjson", "application/octet-stream"] {
        let setup = Setup::new();
        let teller = setup.upstream.streams(kind);
        let (head, mut reader) = Reader::open(&setup, &keyed("k"));
        assert_eq!(head.header("content-type"), Some(kind), "{head:?}");
        assert!(!is_replay(&head), "{head:?}");
        // The next one is told when the one before was heard.
        for number in 1..=5 {
            teller.say(event(number));
            reader.hears(&events(number));
        }
        teller.end();
        reader.ends();
        for _ in 0..2 {
            let again = setup.ask(keyed("k"));
            assert!(is_replay(&again), "{again:?}");
            assert_eq!(again.header("content-type"), Some(kind), "{again:?}");
            assert_eq!(String::from_utf8_lossy(&again.body), events(5));
        }
        assert_eq!(setup.effects(), 1);
    }
}

#[test]
fn whoever_comes_while_it_runs_joins_it() {
    let setup = Setup::new();
    let teller = setup.upstream.streams(EVENTS);
    let (_, mut first) = Reader::open(&setup, &keyed("k"));
    teller.say(event(1));
    first.hears(&events(1));
    // What was said before, then what is said now.
    let (head, mut second) = Reader::open(&setup, &keyed("k"));
    assert!(is_replay(&head), "{head:?}");
    second.hears(&events(1));
    teller.say(event(2));
    let (_, mut third) = Reader::open(&setup, &keyed("k"));
    teller.say(event(3));
    teller.end();
    for reader in [&mut first, &mut second, &mut third] {
        reader.hears(&events(3));
        reader.ends();
    }
    assert_eq!(setup.effects(), 1);
}

/// One who reads nothing holds up nobody else.
#[test]
fn a_reader_that_sleeps_holds_up_nobody() {
    let setup = Setup::new();
    let teller = setup.upstream.streams(EVENTS);
    let sleeping = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    let (_, mut awake) = Reader::open(&setup, &keyed("k"));
    let line = format!("data: {}\n\n", "x".repeat(10_000));
    let count = 90;
    for _ in 0..count {
        teller.say(&line);
    }
    awake.hears(&line.repeat(count));
    teller.end();
    awake.ends();
    drop(sleeping);
    assert_eq!(setup.ask(keyed("k")).body.len(), line.len() * count);
}

#[test]
fn c082_a_stream_that_breaks_off_is_seen_to_and_is_a_doubt() {
    let setup = Setup::new();
    let teller = setup.upstream.streams(EVENTS);
    let (_, mut first) = Reader::open(&setup, &keyed("k"));
    teller.say(event(1));
    first.hears(&events(1));
    let (_, mut second) = Reader::open(&setup, &keyed("k"));
    second.hears(&events(1));
    teller.cut();
    first.is_cut();
    second.is_cut();
    for _ in 0..2 {
        refused(&setup.ask(keyed("k")), 409, "in_doubt");
    }
    assert_eq!(setup.effects(), 1);
}

/// What is too long to be held back until it is stored is passed on, and breaks off as it does.
#[test]
fn c082_a_length_that_is_not_reached_is_no_end() {
    let setup = Setup::new();
    setup.upstream.next(Deed::CutLong);
    let mut connection = setup.begin(&keyed("k"));
    let error = connection.answer().expect_err("it is not all");
    assert!(was_cut(&error), "{error}");
    refused(&setup.ask(keyed("k")), 409, "in_doubt");
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c082_a_completion_that_breaks_off_is_sent_again() {
    let setup = Setup::with(&["--profile", "llm"]);
    let teller = setup.upstream.streams(EVENTS);
    let (_, mut first) = Reader::open(&setup, &charge("c"));
    teller.say(event(1));
    first.hears(&events(1));
    teller.cut();
    first.is_cut();
    let teller = setup.upstream.streams(EVENTS);
    let (head, mut again) = Reader::open(&setup, &charge("c"));
    assert!(!is_replay(&head), "{head:?}");
    teller.say(events(2));
    teller.end();
    again.hears(&events(2));
    again.ends();
    assert_eq!(setup.effects(), 2);
}

#[test]
fn c083_a_reader_that_leaves_is_read_for() {
    let setup = Setup::new();
    let teller = setup.upstream.streams(EVENTS);
    let (_, mut reader) = Reader::open(&setup, &keyed("k"));
    teller.say(event(1));
    reader.hears(&events(1));
    drop(reader);
    // Another one is served, so that the proxy had the time to see it.
    fresh(&setup.ask(keyed("other")), 201);
    teller.say(event(2));
    teller.end();
    crate::server::wait_until("it is recorded", || {
        setup.states() == ["succeeded", "succeeded"]
    });
    let again = setup.ask(keyed("k"));
    assert!(is_replay(&again), "{again:?}");
    assert_eq!(String::from_utf8_lossy(&again.body), events(2));
    assert_eq!(setup.upstream.effects_of("k"), 1);
}

#[test]
fn a_proxy_that_dies_in_a_stream_leaves_a_doubt() {
    let mut setup = Setup::new();
    let teller = setup.upstream.streams(EVENTS);
    let (_, mut reader) = Reader::open(&setup, &keyed("k"));
    teller.say(event(1));
    reader.hears(&events(1));
    setup.crash();
    reader.is_cut();
    drop(teller);
    refused(&setup.ask(keyed("k")), 409, "in_doubt");
    assert_eq!(setup.effects(), 1);
}

/// The end is told when it is stored: whoever heard it can rely on it.
#[test]
fn c037_a_stream_whose_end_was_heard_is_stored() {
    let mut setup = Setup::new();
    let teller = setup.upstream.streams(EVENTS);
    let (_, mut reader) = Reader::open(&setup, &keyed("k"));
    teller.say(events(3));
    teller.end();
    reader.hears(&events(3));
    reader.ends();
    setup.crash();
    let again = setup.ask(keyed("k"));
    assert!(is_replay(&again), "{again:?}");
    assert_eq!(String::from_utf8_lossy(&again.body), events(3));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c080_a_stream_beyond_the_limit_is_passed_on_and_not_done_again() {
    let setup = Setup::routed("answer_limit = \"10000\"");
    let teller = setup.upstream.streams(EVENTS);
    let (_, mut reader) = Reader::open(&setup, &keyed("k"));
    let line = format!("data: {}\n\n", "x".repeat(1_000));
    let mut all = String::new();
    for _ in 0..30 {
        teller.say(&line);
        all.push_str(&line);
        reader.hears(&all);
    }
    // Who comes while it runs gets all of it or nothing.
    let mut late = setup.begin(&keyed("k"));
    teller.end();
    reader.ends();
    let late = late.answer().expect("it is answered");
    match late.status {
        200 => assert_eq!(String::from_utf8_lossy(&late.body), all),
        _ => drop(refused(&late, 410, "expired")),
    }
    let problem = refused(&setup.ask(keyed("k")), 410, "expired");
    assert_eq!(problem["original_status"], 200, "{problem}");
    assert_eq!(setup.effects(), 1);
}

#[test]
fn a_stream_without_a_key_is_joined_by_its_retry_and_not_by_another() {
    let setup = Setup::new();
    let teller = setup.upstream.streams(EVENTS);
    let (_, mut given_up) = Reader::open(&setup, &charge("c"));
    teller.say(event(1));
    given_up.hears(&events(1));
    drop(given_up);
    let (_, mut retry) = Reader::open(&setup, &charge("c"));
    retry.hears(&events(1));
    assert_eq!(setup.effects(), 1);
    // Beside one that somebody reads, the same request is another one.
    let (deed, other) = Deed::stream(EVENTS);
    setup.upstream.next(deed);
    let (_, mut beside) = Reader::open(&setup, &charge("c"));
    other.say(event(7));
    beside.hears(&event(7));
    assert_eq!(setup.effects(), 2);
    teller.say(event(2));
    teller.end();
    other.end();
    retry.hears(&events(2));
    retry.ends();
    beside.ends();
}

/// Reads a stream up to its first event, and goes as a machine does that is gone.
fn vanish(setup: &Setup, asked: &Asked, teller: &Teller) {
    let Address::Tcp(address) = setup.proxy().address() else {
        panic!("it listens on TCP");
    };
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(&asked.bytes()).expect("it is sent");
    teller.say(event(1));
    let mut heard = vec![];
    let mut byte = [0; 1];
    while !heard.ends_with(event(1).as_bytes()) {
        stream.read_exact(&mut byte).expect("it goes on");
        heard.push(byte[0]);
    }
    let at_once = Some(std::time::Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&stream, at_once).expect("it can be set");
}

/// The retry may be read before it is seen that its first try was given up, and what is seen of that later is no
/// news: whoever has the answer of the retry and asks again means it.
#[test]
fn whoever_has_the_rest_of_a_stream_and_asks_again_means_it() {
    let setup = Setup::new();
    for round in 0..20 {
        let name = format!("c-{round}");
        let asked = charge(&name).header("X-Stainless-Retry-Count", "0");
        let teller = setup.upstream.streams(EVENTS);
        vanish(&setup, &asked, &teller);
        let mut retry = setup.begin(&asked);
        teller.say(event(2));
        teller.end();
        let told = retry.answer().expect("it is answered");
        assert_eq!(String::from_utf8_lossy(&told.body), events(2), "{round}");
        assert_eq!(setup.upstream.effects_of(&name), 1, "{round}");
        let next = setup.ask(asked);
        assert!(!is_replay(&next), "{round}: {next:?}");
        assert_eq!(setup.upstream.effects_of(&name), 2, "{round}");
    }
}

/// Clients of language models stop at the last event and close, before the end mark. They have the answer: the same
/// question again is another one.
#[test]
fn whoever_read_the_last_event_has_the_answer() {
    let setup = Setup::with(&["--profile", "llm"]);
    let teller = setup.upstream.streams(EVENTS);
    let (_, mut reader) = Reader::open(&setup, &charge("c"));
    let all = format!("{}data: [DONE]\n\n", events(2));
    teller.say(&all);
    teller.end();
    reader.hears(&all);
    drop(reader);
    fresh(&setup.ask(charge("c")), 201);
    assert_eq!(setup.effects(), 2);
}

#[test]
fn an_empty_stream_is_one() {
    let setup = Setup::new();
    setup.upstream.streams(EVENTS).end();
    let first = setup.ask(keyed("k"));
    fresh(&first, 200);
    assert_eq!(first.body, b"");
    replay_of(&first, &setup.ask(keyed("k")));
}
