//! What the proxy says itself cannot be mistaken for what an upstream says.

use serde_json::json;

use crate::http::Asked;
use crate::setup::{Setup, fresh, header, keyed, refused};
use crate::upstream::{Deed, Reply};

/// The form of refusals is checked wherever one is expected; here all kinds of them are.
#[test]
fn c033_c034_every_refusal_is_a_problem_that_says_what_helps() {
    let setup = Setup::routed("wait = \"100ms\"");
    fresh(&setup.ask(keyed("done")), 201);
    let other = Asked::post("/charges", &json!({})).header("Idempotency-Key", "done");
    let reused = refused(&setup.ask(other), 422, "key_reused");
    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&setup.ask(keyed("lost")), 502, "in_doubt");
    let doubt = refused(&setup.ask(keyed("lost")), 409, "in_doubt");
    let gate = setup.upstream.holds();
    let mut running = setup.begin(&keyed("running"));
    setup.upstream.wait_for_effects(3);
    let in_flight = refused(&setup.ask(keyed("running")), 409, "in_flight");
    gate.open();
    fresh(&running.answer().expect("it is answered"), 201);
    assert_eq!(in_flight["retryable"], true);
    for problem in [&reused, &doubt] {
        assert_eq!(problem["retryable"], false, "{problem}");
        let hint = problem["hint"].as_str().unwrap_or_default();
        assert!(!hint.is_empty(), "{problem}");
    }
}

#[test]
fn c025_the_upstreams_own_conflicts_are_not_ours() {
    let setup = Setup::new();
    for (status, kind) in [(409, "application/problem+json"), (422, "application/json")] {
        let key = format!("k-{status}");
        let said = json!({"type": "https://example.com/conflict", "code": "in_flight"}).to_string();
        let reply = Reply::new(status, &said)
            .header("Content-Type", kind)
            .harmless();
        setup.upstream.answers(reply);
        let answer = setup.ask(keyed(&key));
        // No header of ours.
        fresh(&answer, status);
        assert_eq!(answer.body, said.as_bytes());
        assert_eq!(header(&answer, "x-should-retry"), "", "{answer:?}");
    }
}

/// Whoever comes through an upstream cannot pass for the proxy.
#[test]
fn c025_an_upstream_cannot_speak_for_the_proxy() {
    let setup = Setup::new();
    setup
        .upstream
        .answers(Reply::new(409, "no").header("Semel-Error", "in_doubt"));
    let first = setup.ask(keyed("k"));
    fresh(&first, 409);
    crate::setup::replay_of(&first, &setup.ask(keyed("k")));
}

#[test]
fn a_rehearsal_says_what_would_happen_and_touches_nothing() {
    let setup = Setup::new();
    let rehearse = |asked: Asked| {
        let answer = setup.ask(asked.header("Semel-Dry-Run", "?1"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let told = rehearse(keyed("k"));
    assert_eq!(
        (&told["ok"], &told["would"]),
        (&json!(true), &json!("execute")),
        "{told}"
    );
    assert_eq!(told["effect"], "would_create", "{told}");
    assert_eq!(rehearse(Asked::get("/charges"))["would"], "pass");
    assert_eq!(setup.upstream.received().len(), 0);
    fresh(&setup.ask(keyed("k")), 201);
    let told = rehearse(keyed("k"));
    assert_eq!(
        (&told["would"], &told["effect"]),
        (&json!("replay"), &json!("noop")),
        "{told}"
    );
    let other = Asked::post("/charges", &json!({})).header("Idempotency-Key", "k");
    let told = rehearse(other);
    assert_eq!(told["would"], "refuse", "{told}");
    assert_eq!(told["code"], "key_reused", "{told}");
    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&setup.ask(keyed("lost")), 502, "in_doubt");
    let told = rehearse(keyed("lost"));
    assert_eq!(
        (&told["would"], &told["code"]),
        (&json!("refuse"), &json!("in_doubt")),
        "{told}"
    );
    assert_eq!(setup.upstream.received().len(), 2);
    assert_eq!(setup.records().len(), 2);
}
