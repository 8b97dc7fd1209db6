//! The same key again: the same answer, one effect.

use std::sync::Barrier;

use serde_json::json;

use crate::http::Asked;
use crate::setup::{Setup, ask_directly, charge, fresh, is_replay, keyed, refused, replay_of};
use crate::upstream::{Deed, Reply};

#[test]
fn c015_the_first_answer_is_what_the_upstream_said() {
    let setup = Setup::new();
    let reply = || {
        Reply::new(207, "{\"a\" : 1}\n")
            .header("Content-Type", "application/json;charset=UTF-8")
            .header("X-Custom", "one")
            .header("X-Custom", "two")
            .header("ETag", "W/\"x\"")
            .header("Cache-Control", "private")
    };
    setup.upstream.answers(reply());
    let direct = ask_directly(&setup.upstream, &keyed("k")).expect("it answers");
    setup.upstream.answers(reply());
    let answer = setup.ask(keyed("k"));
    assert_eq!(answer.status, direct.status);
    assert_eq!(answer.body, direct.body);
    for header in &direct.headers {
        let count =
            |answer: &crate::http::Answer| answer.headers.iter().filter(|it| *it == header).count();
        assert_eq!(count(&answer), count(&direct), "{header:?}: {answer:?}");
    }
    assert!(!is_replay(&answer), "{answer:?}");
}

#[test]
fn c015_the_request_is_passed_on_as_it_came() {
    let setup = Setup::new();
    let asked = Asked::post("/a/./b//c%2fd;e?q=%20&q=2&", &json!({"id": "x"}))
        .header("Idempotency-Key", "k")
        .header("X-Custom", "one")
        .header("X-Custom", "two")
        .header("Authorization", "Bearer t")
        .header("Accept-Encoding", "br");
    fresh(&setup.ask(asked), 201);
    let received = &setup.upstream.received()[0];
    assert_eq!(received.method, "POST");
    assert_eq!(received.target, "/a/./b//c%2fd;e?q=%20&q=2&");
    assert_eq!(received.body, br#"{"id":"x"}"#);
    for (name, value) in [
        ("authorization", "Bearer t"),
        ("accept-encoding", "br"),
        ("content-type", "application/json"),
        ("content-length", "10"),
        ("idempotency-key", "k"),
    ] {
        assert_eq!(
            received.header(name).as_deref(),
            Some(value),
            "{received:?}"
        );
    }
    let custom = received
        .headers
        .iter()
        .filter(|(name, _)| name == "x-custom");
    assert_eq!(custom.count(), 2, "{received:?}");
}

#[test]
fn c016_c017_a_retry_gets_the_same_answer_and_is_told_so() {
    let setup = Setup::new();
    let body: Vec<u8> = (0..=255).cycle().take(5_000).collect();
    let reply = Reply::new(202, &body)
        .header("Content-Type", "application/octet-stream")
        .header("X-Custom", "kept");
    setup.upstream.answers(reply);
    let first = setup.ask(keyed("k"));
    fresh(&first, 202);
    assert_eq!(first.body, body);
    for _ in 0..3 {
        let again = setup.ask(keyed("k"));
        replay_of(&first, &again);
        assert_eq!(again.header("x-custom"), Some("kept"), "{again:?}");
    }
    assert_eq!(setup.upstream.received().len(), 1);
}

#[test]
fn c016_an_answer_outlives_the_proxy() {
    let mut setup = Setup::new();
    let first = setup.ask(keyed("k"));
    setup.crash();
    replay_of(&first, &setup.ask(keyed("k")));
    assert_eq!(setup.effects(), 1);
}

/// Asks many times at once, and returns all answers.
fn at_once(setup: &Setup, many: usize, asked: &Asked) -> Vec<crate::http::Answer> {
    let barrier = Barrier::new(many);
    std::thread::scope(|scope| {
        let one = || {
            let mut connection = setup.proxy().connect();
            barrier.wait();
            connection.send(&asked.bytes()).expect("it is sent");
            connection.answer().expect("it is answered")
        };
        let threads: Vec<_> = (0..many).map(|_| scope.spawn(one)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|answer| answer.expect("it ends")).collect()
    })
}

#[test]
fn c018_c019_of_many_at_once_one_runs_and_all_get_its_answer() {
    let setup = Setup::new();
    let answers = at_once(&setup, 100, &keyed("k"));
    for answer in &answers {
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.body, answers[0].body, "{answer:?}");
    }
    let firsts = answers.iter().filter(|answer| !is_replay(answer)).count();
    assert_eq!(firsts, 1);
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c018_c019_where_nobody_waits_the_others_are_told_to_come_back() {
    let setup = Setup::with(&["--profile", "ietf"]);
    let gate = setup.upstream.holds();
    let asked = charge("k").header("Idempotency-Key", "\"k\"");
    let mut first = setup.begin(&asked);
    setup.upstream.wait_for_effects(1);
    for answer in at_once(&setup, 100, &asked) {
        refused(&answer, 409, "in_flight");
    }
    gate.open();
    let first = first.answer().expect("it is answered");
    fresh(&first, 201);
    replay_of(&first, &setup.ask(asked));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c020_whoever_waits_does_so_for_a_while_only() {
    let setup = Setup::routed("wait = \"200ms\"");
    let gate = setup.upstream.holds();
    let mut first = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    refused(&setup.ask(keyed("k")), 409, "in_flight");
    gate.open();
    let first = first.answer().expect("it is answered");
    replay_of(&first, &setup.ask(keyed("k")));
    assert_eq!(setup.effects(), 1);
}

fn other(key: &str) -> Asked {
    let body = json!({"id": "other", "amount": 6});
    Asked::post("/charges", &body).header("Idempotency-Key", key)
}

#[test]
fn c021_a_key_that_was_used_for_something_else_is_refused() {
    for (profile, status) in [("semel", 422), ("ucp", 409), ("stripe", 400), ("acp", 422)] {
        let setup = Setup::with(&["--profile", profile]);
        let first = setup.ask(keyed("k"));
        fresh(&first, 201);
        // However often it is sent.
        for _ in 0..2 {
            refused(&setup.ask(other("k")), status, "key_reused");
        }
        replay_of(&first, &setup.ask(keyed("k")));
        assert_eq!(setup.upstream.received().len(), 1, "{profile}");
    }
}

#[test]
fn c022_it_is_refused_while_the_first_one_runs_too() {
    let setup = Setup::new();
    let gate = setup.upstream.holds();
    let mut first = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    refused(&setup.ask(other("k")), 422, "key_reused");
    gate.open();
    fresh(&first.answer().expect("it is answered"), 201);
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c022_it_is_refused_when_the_first_one_is_in_doubt_too() {
    let setup = Setup::new();
    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&setup.ask(keyed("k")), 502, "in_doubt");
    refused(&setup.ask(other("k")), 422, "key_reused");
    refused(&setup.ask(keyed("k")), 409, "in_doubt");
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c023_c075_the_same_key_elsewhere_is_a_mistake() {
    let setup = Setup::new();
    let body = json!({"id": "k"});
    let at = |method, target: &str| {
        let asked = Asked::new(method, target).header("Content-Type", "application/json");
        asked
            .header("Idempotency-Key", "k")
            .body(body.to_string().as_bytes())
    };
    let first = setup.ask(at("POST", "/charges?a=1"));
    fresh(&first, 201);
    for (method, target) in [
        ("PATCH", "/charges?a=1"),
        ("POST", "/refunds?a=1"),
        ("POST", "/charges?a=2"),
        ("POST", "/charges"),
        ("POST", "/charges/?a=1"),
    ] {
        refused(&setup.ask(at(method, target)), 422, "key_reused");
    }
    replay_of(&first, &setup.ask(at("POST", "/charges?a=1")));
    assert_eq!(setup.upstream.received().len(), 1);
}

#[test]
fn c023_where_a_key_belongs_to_a_path_another_path_has_its_own() {
    let setup = Setup::with(&["--profile", "acp"]);
    let at =
        |target: &str| Asked::post(target, &json!({"id": target})).header("Idempotency-Key", "k");
    for target in ["/checkouts", "/orders"] {
        let first = setup.ask(at(target));
        fresh(&first, 201);
        replay_of(&first, &setup.ask(at(target)));
        assert_eq!(setup.upstream.effects_of(target), 1);
    }
}

#[test]
fn c024_the_same_under_two_keys_happens_twice() {
    let setup = Setup::new();
    let bodies: Vec<_> = ["k-1", "k-2"]
        .map(|key| setup.ask(charge("c").header("Idempotency-Key", key)))
        .iter()
        .map(|answer| {
            fresh(answer, 201);
            answer.body.clone()
        })
        .collect();
    assert_ne!(bodies[0], bodies[1]);
    assert_eq!(setup.upstream.effects_of("c"), 2);
}
