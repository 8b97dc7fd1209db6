//! What an upstream's answer means for whoever comes again.

use serde_json::json;

use crate::http::Asked;
use crate::setup::{Setup, fresh, keyed, refused, replay_of};
use crate::upstream::{Deed, Framing, Reply};

#[test]
fn c026_an_answer_that_says_no_is_an_answer() {
    for status in [402, 404, 409, 410, 451] {
        let setup = Setup::new();
        setup
            .upstream
            .answers(Reply::new(status, "no").header("Content-Type", "text/plain"));
        let first = setup.ask(keyed("k"));
        fresh(&first, status);
        replay_of(&first, &setup.ask(keyed("k")));
        assert_eq!(setup.effects(), 1, "{status}");
    }
}

#[test]
fn c027_c028_what_was_turned_away_can_be_sent_again() {
    for status in [400, 401, 403, 405, 413, 415, 422, 425, 429, 431] {
        let setup = Setup::new();
        for _ in 0..2 {
            setup.upstream.answers(Reply::new(status, "no").harmless());
            fresh(&setup.ask(keyed("k")), status);
        }
        let first = setup.ask(keyed("k"));
        fresh(&first, 201);
        replay_of(&first, &setup.ask(keyed("k")));
        assert_eq!(setup.effects(), 1, "{status}");
    }
}

/// A key belongs to its request from the first one on: what corrects the body is another request.
#[test]
fn c028_a_corrected_request_succeeds_under_its_own_key() {
    let setup = Setup::new();
    setup.upstream.answers(Reply::new(422, "no").harmless());
    fresh(&setup.ask(keyed("k")), 422);
    let corrected = |key: &str| {
        let asked = Asked::post("/charges", &json!({"id": "corrected"}));
        asked.header("Idempotency-Key", key)
    };
    refused(&setup.ask(corrected("k")), 422, "key_reused");
    fresh(&setup.ask(corrected("k-2")), 201);
    assert_eq!(setup.upstream.effects(), ["corrected"]);
    // What is not in the fingerprint can be corrected.
    setup.upstream.answers(Reply::new(415, "no").harmless());
    fresh(&setup.ask(keyed("k")), 415);
    fresh(&setup.ask(keyed("k").header("Accept", "*/*")), 201);
}

#[test]
fn c029_after_a_failure_of_the_upstream_nobody_knows() {
    for status in [408, 500, 502, 503, 504, 529] {
        let setup = Setup::new();
        setup
            .upstream
            .answers(Reply::new(status, "it broke").header("X-Custom", "kept"));
        let first = setup.ask(keyed("k"));
        fresh(&first, status);
        assert_eq!(first.body, b"it broke");
        assert_eq!(first.header("x-custom"), Some("kept"), "{first:?}");
        assert_eq!(first.header("x-should-retry"), Some("false"), "{first:?}");
        for _ in 0..2 {
            refused(&setup.ask(keyed("k")), 409, "in_doubt");
        }
        assert_eq!(setup.upstream.received().len(), 1, "{status}");
    }
}

#[test]
fn c029_a_profile_may_say_otherwise() {
    for profile in ["acp", "llm"] {
        let setup = Setup::with(&["--profile", profile]);
        setup
            .upstream
            .answers(Reply::new(500, "it broke").harmless());
        fresh(&setup.ask(keyed("k")), 500);
        fresh(&setup.ask(keyed("k")), 201);
        assert_eq!(setup.effects(), 1, "{profile}");
    }
    let setup = Setup::with(&["--profile", "stripe"]);
    setup.upstream.answers(Reply::new(500, "it broke"));
    let first = setup.ask(keyed("k"));
    fresh(&first, 500);
    replay_of(&first, &setup.ask(keyed("k")));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c029_an_answer_that_is_lost_after_the_request_was_sent_is_a_doubt() {
    for (name, deed) in [
        ("closed before the effect", Deed::CloseBeforeEffect),
        ("closed", Deed::CloseAfterEffect),
        ("reset", Deed::Reset),
        ("half a head", Deed::CutHead),
    ] {
        let setup = Setup::new();
        setup.upstream.next(deed);
        refused(&setup.ask(keyed("k")), 502, "in_doubt");
        refused(&setup.ask(keyed("k")), 409, "in_doubt");
        assert_eq!(setup.upstream.received().len(), 1, "{name}");
    }
}

#[test]
fn c029_half_a_body_is_a_doubt() {
    let setup = Setup::new();
    setup.upstream.next(Deed::CutBody);
    refused(&setup.ask(keyed("k")), 502, "in_doubt");
    refused(&setup.ask(keyed("k")), 409, "in_doubt");
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c029_an_upstream_that_never_answers_leaves_a_doubt() {
    let setup = Setup::routed("timeout = \"300ms\"");
    setup.upstream.next(Deed::Silence);
    let answer = setup.ask(keyed("k"));
    assert!(matches!(answer.status, 502 | 504), "{answer:?}");
    refused(&answer, answer.status, "in_doubt");
    refused(&setup.ask(keyed("k")), 409, "in_doubt");
    assert_eq!(setup.effects(), 1);
}

/// What was seen of an effect settles it, and what was not lets it run.
#[test]
fn c029_c050_a_doubt_ends_when_somebody_says_what_happened() {
    let setup = Setup::new();
    setup.upstream.next(Deed::CloseBeforeEffect);
    refused(&setup.ask(keyed("a")), 502, "in_doubt");
    setup.resolve(&["--not-done"]);
    let first = setup.ask(keyed("a"));
    fresh(&first, 201);
    replay_of(&first, &setup.ask(keyed("a")));
    assert_eq!(setup.upstream.effects_of("a"), 1);

    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&setup.ask(keyed("b")), 502, "in_doubt");
    setup.resolve(&["--done", "--data", "{\"paid\":true}"]);
    let told = setup.ask(keyed("b"));
    assert_eq!(told.status, 200, "{told:?}");
    assert!(crate::setup::is_replay(&told), "{told:?}");
    assert_eq!(told.json()["paid"], true, "{told:?}");
    replay_of(&told, &setup.ask(keyed("b")));
    assert_eq!(setup.upstream.effects_of("b"), 1);
}

#[test]
fn c030_what_was_never_sent_can_be_sent_again() {
    let mut setup = Setup::new();
    setup.upstream.refuse();
    for _ in 0..2 {
        refused(&setup.ask(keyed("k")), 502, "not_sent");
    }
    setup.upstream.accept_again();
    let first = setup.ask(keyed("k"));
    fresh(&first, 201);
    replay_of(&first, &setup.ask(keyed("k")));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c030_names_that_nobody_has_and_handshakes_that_fail_sent_nothing() {
    let world = crate::harness::World::new();
    let upstream = crate::upstream::Upstream::start(world.path("effects"));
    // It speaks no TLS: what it is sent first is no request.
    let port = upstream.port();
    upstream.next(Deed::CloseAtOnce);
    let words = ["--upstream".to_owned(), format!("https://127.0.0.1:{port}")];
    let setup = Setup::on(world, upstream, words.to_vec());
    refused(&setup.ask(keyed("k")), 502, "not_sent");

    let world = crate::harness::World::new();
    let upstream = crate::upstream::Upstream::start(world.path("effects"));
    let words = ["--upstream".to_owned(), "http://nobody.invalid".to_owned()];
    let setup = Setup::on(world, upstream, words.to_vec());
    refused(&setup.ask(keyed("k")), 502, "not_sent");
    refused(&setup.ask(keyed("k")), 502, "not_sent");
}

#[test]
fn c031_a_redirect_is_an_answer_and_nobody_follows_it() {
    let setup = Setup::new();
    for status in [301, 302, 303, 307, 308] {
        let key = format!("k-{status}");
        let place = format!("{}/elsewhere", setup.upstream.url());
        setup
            .upstream
            .answers(Reply::new(status, "").header("Location", &place));
        let first = setup.ask(keyed(&key));
        fresh(&first, status);
        let again = setup.ask(keyed(&key));
        replay_of(&first, &again);
        assert_eq!(again.header("location"), Some(place.as_str()), "{again:?}");
    }
    let targets = setup.upstream.received();
    assert!(
        targets.iter().all(|it| it.target == "/charges"),
        "{targets:?}"
    );
}

#[test]
fn c032_what_comes_before_an_answer_is_not_the_answer() {
    let setup = Setup::new();
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    setup.upstream.answers(Reply::new(200, "late").after(early));
    let first = setup.ask(keyed("k"));
    fresh(&first, 200);
    assert_eq!(first.body, b"late");
    let again = setup.ask(keyed("k"));
    replay_of(&first, &again);
    assert_eq!(again.header("link"), None, "{again:?}");
}

#[test]
fn c032_answers_without_a_body_are_replayed_without_one() {
    let setup = Setup::new();
    for status in [204, 304] {
        let key = format!("k-{status}");
        setup
            .upstream
            .answers(Reply::new(status, "").header("ETag", "\"x\""));
        let mut connection = setup.proxy().connect();
        for again in [false, true] {
            connection.send(&keyed(&key).bytes()).expect("it is sent");
            let answer = connection.answer().expect("it is answered");
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(answer.header("etag"), Some("\"x\""), "{answer:?}");
            assert_eq!(crate::setup::is_replay(&answer), again, "{answer:?}");
        }
        // Nothing of a body is left on the connection: the next answer is read from its start.
        connection.send(&keyed("next").bytes()).expect("it is sent");
        let next = connection.answer().expect("it is answered");
        assert_eq!(next.status, 201, "{next:?}");
    }
}

#[test]
fn c079_bodies_come_out_as_they_went_in_however_they_are_framed() {
    let setup = Setup::new();
    let binary: Vec<u8> = (0..=255).collect();
    for (number, framing) in [Framing::Length, Framing::Chunked, Framing::Close]
        .into_iter()
        .enumerate()
    {
        for (size, body) in [&b""[..], b"\0", &binary].into_iter().enumerate() {
            let key = format!("k-{number}-{size}");
            setup
                .upstream
                .answers(Reply::new(200, body).framing(framing));
            let first = setup.ask(keyed(&key));
            fresh(&first, 200);
            assert_eq!(first.body, body, "{framing:?}");
            replay_of(&first, &setup.ask(keyed(&key)));
        }
    }
    assert_eq!(setup.effects(), 9);
}
