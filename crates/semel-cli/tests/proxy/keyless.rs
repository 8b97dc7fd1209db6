//! Clients that send no key: what is a retry is answered with the first one's answer, and what is meant to happen
//! again does.

use crate::http::{Answer, Asked, Connection};
use crate::server::wait_until;
use crate::setup::{Setup, charge, fresh, is_replay, refused, replay_of};
use crate::upstream::{Deed, Reply};

fn exchange(connection: &mut Connection, asked: &Asked) -> Answer {
    connection.send(&asked.bytes()).expect("it is sent");
    connection.answer().expect("it is answered")
}

/// Reads the answer and leaves, as a client does that has what it wanted.
fn ask_and_leave(setup: &Setup) -> Answer {
    let mut connection = setup.proxy().connect();
    exchange(&mut connection, &charge("c"))
}

#[test]
fn whoever_has_the_answer_and_asks_again_means_it_on_new_connections() {
    let setup = Setup::new();
    for count in 1..=5 {
        let answer = ask_and_leave(&setup);
        fresh(&answer, 201);
        assert_eq!(answer.json()["effect"], count, "{answer:?}");
        assert_eq!(setup.effects(), count);
    }
}

#[test]
fn whoever_has_the_answer_and_asks_again_means_it_on_the_same_connection() {
    let setup = Setup::new();
    let mut connection = setup.proxy().connect();
    for count in 1..=5 {
        let answer = exchange(&mut connection, &charge("c"));
        fresh(&answer, 201);
        assert_eq!(setup.effects(), count);
    }
}

#[test]
fn two_at_once_are_two() {
    let setup = Setup::new();
    let gates = [setup.upstream.holds(), setup.upstream.holds()];
    let mut first = setup.begin(&charge("c"));
    setup.upstream.wait_for_effects(1);
    let mut second = setup.begin(&charge("c"));
    setup.upstream.wait_for_effects(2);
    for gate in gates {
        gate.open();
    }
    let answers = [&mut first, &mut second].map(|it| it.answer().expect("it is answered"));
    for answer in &answers {
        fresh(answer, 201);
    }
    assert_ne!(answers[0].body, answers[1].body);
}

/// Where the second request comes on: a new connection, or one that was used before.
#[derive(Clone, Copy, Debug)]
enum Again {
    New,
    Reused,
}

/// Lets a client lose its request while it runs, and ask again; returns what it is told.
fn give_up_and_ask_again(setup: &Setup, again: Again) -> Answer {
    let mut reused = setup.proxy().connect();
    let hello = exchange(&mut reused, &Asked::get("/hello"));
    assert_eq!(hello.status, 201, "{hello:?}");
    let gate = setup.upstream.holds();
    let given_up = setup.begin(&charge("c"));
    setup.upstream.wait_for_effects(1);
    drop(given_up);
    let mut connection = match again {
        Again::New => setup.proxy().connect(),
        Again::Reused => reused,
    };
    connection.send(&charge("c").bytes()).expect("it is sent");
    gate.open();
    connection.answer().expect("it is answered")
}

#[test]
fn whoever_gave_up_gets_the_answer_when_asking_again() {
    for again in [Again::New, Again::Reused] {
        let setup = Setup::new();
        let answer = give_up_and_ask_again(&setup, again);
        assert_eq!(answer.status, 201, "{again:?}: {answer:?}");
        assert_eq!(answer.json()["effect"], 1, "{again:?}: {answer:?}");
        assert_eq!(setup.effects(), 1, "{again:?}");
        // Now it is theirs, and the next one is meant.
        let next = ask_and_leave(&setup);
        fresh(&next, 201);
        assert_eq!(setup.effects(), 2, "{again:?}");
    }
}

#[test]
fn an_answer_that_found_nobody_is_kept_for_whoever_asks_again() {
    let setup = Setup::new();
    let gate = setup.upstream.holds();
    let given_up = setup.begin(&charge("c"));
    setup.upstream.wait_for_effects(1);
    drop(given_up);
    gate.open();
    setup.wait_for_state("succeeded");
    let told = ask_and_leave(&setup);
    assert_eq!(told.status, 201, "{told:?}");
    assert!(is_replay(&told), "{told:?}");
    assert_eq!(setup.effects(), 1);
    fresh(&ask_and_leave(&setup), 201);
    assert_eq!(setup.effects(), 2);
}

/// The peer's system took the bytes, and its program never did: closing then resets the connection.
#[test]
fn an_answer_that_was_not_read_is_told_again() {
    let setup = Setup::new();
    let mut unread = setup.begin(&charge("c"));
    setup.wait_for_state("succeeded");
    // The head of the answer is here, and most of it is unread.
    unread.head().expect("it is answered");
    let reply = Reply::new(200, "").long(200_000);
    setup.upstream.answers(reply);
    let mut large = setup.begin(&charge("large"));
    large.head().expect("it is answered");
    drop(large);
    wait_until("it is recorded", || {
        setup.states() == ["succeeded", "succeeded"]
    });
    let again = setup.ask(charge("large"));
    assert!(is_replay(&again), "{}", again.status);
    assert_eq!(again.body.len(), 200_000);
    assert_eq!(setup.upstream.effects_of("large"), 1);
}

#[test]
fn a_retry_that_says_so_is_one() {
    let setup = Setup::new();
    let gate = setup.upstream.holds();
    let count = |count: &str| charge("c").header("X-Stainless-Retry-Count", count);
    // The old connection is still there: nothing else shows that it was given up.
    let mut first = setup.begin(&count("0"));
    setup.upstream.wait_for_effects(1);
    let mut retry = setup.begin(&count("1"));
    // Another one shows that the proxy has read it.
    fresh(&setup.ask(charge("other")), 201);
    gate.open();
    let told = retry.answer().expect("it is answered");
    assert_eq!(told.json()["effect"], 1, "{told:?}");
    assert_eq!(first.answer().expect("it is answered").body, told.body);
    assert_eq!(setup.upstream.effects_of("c"), 1);
}

#[test]
fn a_first_try_that_says_so_is_a_new_one() {
    let setup = Setup::new();
    let asked = || charge("c").header("X-Stainless-Retry-Count", "0");
    let gates = [setup.upstream.holds(), setup.upstream.holds()];
    let mut first = setup.begin(&asked());
    setup.upstream.wait_for_effects(1);
    let mut second = setup.begin(&asked());
    setup.upstream.wait_for_effects(2);
    for gate in gates {
        gate.open();
    }
    for connection in [&mut first, &mut second] {
        fresh(&connection.answer().expect("it is answered"), 201);
    }
}

#[test]
fn a_failure_that_was_told_is_known_and_the_next_one_runs() {
    let setup = Setup::new();
    setup.upstream.answers(Reply::new(500, "it broke"));
    let first = ask_and_leave(&setup);
    fresh(&first, 500);
    fresh(&ask_and_leave(&setup), 201);
    assert_eq!(setup.effects(), 2);
}

#[test]
fn a_lost_answer_is_a_doubt_without_a_key_too() {
    let setup = Setup::new();
    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&ask_and_leave(&setup), 502, "in_doubt");
    for _ in 0..2 {
        refused(&ask_and_leave(&setup), 409, "in_doubt");
    }
    assert_eq!(setup.effects(), 1);
    setup.resolve(&["--done"]);
    let told = ask_and_leave(&setup);
    assert!(is_replay(&told), "{told:?}");
    // To be told of a doubt is not to have the answer; this was.
    fresh(&ask_and_leave(&setup), 201);
    assert_eq!(setup.effects(), 2);
}

#[test]
fn a_lost_completion_is_sent_again() {
    let setup = Setup::with(&["--profile", "llm"]);
    setup.upstream.next(Deed::CloseAfterEffect);
    let first = ask_and_leave(&setup);
    assert!(first.status >= 500, "{first:?}");
    fresh(&ask_and_leave(&setup), 201);
    assert_eq!(setup.effects(), 2);
}

#[test]
fn a_crash_leaves_a_doubt_without_a_key_too() {
    let mut setup = Setup::new();
    let gate = setup.upstream.holds();
    let waiting = setup.begin(&charge("c"));
    setup.upstream.wait_for_effects(1);
    setup.crash();
    drop(waiting);
    refused(&ask_and_leave(&setup), 409, "in_doubt");
    gate.open();
    assert_eq!(setup.effects(), 1);
}

#[test]
fn an_answer_that_was_recorded_before_a_crash_is_told() {
    let mut setup = Setup::new();
    let gate = setup.upstream.holds();
    let waiting = setup.begin(&charge("c"));
    setup.upstream.wait_for_effects(1);
    drop(waiting);
    gate.open();
    setup.wait_for_state("succeeded");
    setup.crash();
    assert!(is_replay(&ask_and_leave(&setup)));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn callers_are_apart_without_keys_too() {
    let setup = Setup::new();
    let gate = setup.upstream.holds();
    let of = |who: &str| charge("c").header("Authorization", &format!("Bearer {who}"));
    let given_up = setup.begin(&of("ann"));
    setup.upstream.wait_for_effects(1);
    drop(given_up);
    let other = setup.ask(of("bob"));
    fresh(&other, 201);
    assert_eq!(setup.effects(), 2);
    gate.open();
    let told = setup.ask(of("ann"));
    assert_eq!(told.json()["effect"], 1, "{told:?}");
    assert_eq!(setup.effects(), 2);
}

#[test]
fn a_business_key_is_a_key() {
    let setup = Setup::routed("derive_members = [\"/id\"]");
    let first = ask_and_leave(&setup);
    fresh(&first, 201);
    // It is the same order, however often it is sent and whoever has the answer.
    replay_of(&first, &ask_and_leave(&setup));
    let other = serde_json::json!({"id": "c", "amount": 6});
    refused(
        &setup.ask(Asked::post("/charges", &other)),
        422,
        "key_reused",
    );
    fresh(&setup.ask(charge("d")), 201);
    assert_eq!(setup.effects(), 2);
}
