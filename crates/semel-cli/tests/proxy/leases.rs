//! C. Leases and fences: a proxy that sleeps past its lease, and whoever comes meanwhile.

use rustix::process::Signal;

use crate::http::Asked;
use crate::server::{Server, wait_until};
use crate::setup::{Setup, fresh, is_replay, keyed, refused, replay_of};

/// The shortest lease that there is.
const SHORT: &str = "lease = \"1s\"\nwait = \"100ms\"";

/// Waits until the kernel says that a process is stopped.
#[track_caller]
pub(crate) fn wait_until_stopped(proxy: &Server) {
    wait_until("it is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", proxy.pid()));
        let stat = stat.unwrap_or_default();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        state.is_some_and(|state| state.starts_with('T'))
    });
}

fn ask(proxy: &Server, key: &str) -> crate::http::Answer {
    proxy.ask(keyed(key))
}

#[test]
fn c041_a_lease_is_renewed_while_its_proxy_lives() {
    let setup = Setup::routed(SHORT);
    let gate = setup.upstream.holds();
    let mut waiting = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    // It lives on past its first end.
    let began = setup.records()[0]["version"].clone();
    wait_until("it is renewed", || setup.records()[0]["version"] != began);
    let other = setup.another();
    refused(&ask(&other, "k"), 409, "in_flight");
    gate.open();
    let answer = waiting.answer().expect("it is answered");
    fresh(&answer, 201);
    replay_of(&answer, &ask(&other, "k"));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c042_c046_a_proxy_that_wakes_up_settles_the_doubt_that_it_left() {
    let setup = Setup::routed(SHORT);
    let gate = setup.upstream.holds();
    let mut waiting = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    setup.proxy().signal(Signal::STOP);
    wait_until_stopped(setup.proxy());
    setup.wait_for_state("doubtful");
    let other = setup.another();
    refused(&ask(&other, "k"), 409, "in_doubt");
    gate.open();
    setup.proxy().signal(Signal::CONT);
    let answer = waiting.answer().expect("it is answered");
    fresh(&answer, 201);
    replay_of(&answer, &ask(&other, "k"));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c042_c050_a_proxy_that_wakes_up_after_a_resolution_tells_what_was_decided() {
    let setup = Setup::routed(SHORT);
    let gate = setup.upstream.holds();
    let mut waiting = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    setup.proxy().signal(Signal::STOP);
    wait_until_stopped(setup.proxy());
    setup.wait_for_state("doubtful");
    // Somebody decides wrongly; the second effect is theirs.
    setup.resolve(&["--not-done"]);
    let other = setup.another();
    let second = ask(&other, "k");
    fresh(&second, 201);
    gate.open();
    setup.proxy().signal(Signal::CONT);
    let late = waiting.answer().expect("it is answered");
    assert_eq!(
        late.body, second.body,
        "everybody is told the same: {late:?}"
    );
    replay_of(&second, &setup.ask(keyed("k")));
    assert_eq!(setup.effects(), 2);
}

#[test]
fn c047_only_what_may_be_repeated_is_repeated_after_a_crash() {
    let mut setup = Setup::new();
    for (method, repeats) in [
        ("PUT", true),
        ("DELETE", true),
        ("POST", false),
        ("PATCH", false),
    ] {
        let asked = || {
            let asked = Asked::new(method, "/charges/1");
            asked.header("Idempotency-Key", method)
        };
        let gate = setup.upstream.holds();
        let waiting = setup.begin(&asked());
        wait_until("the effect", || setup.upstream.effects_of(method) == 1);
        setup.crash();
        drop(waiting);
        let answer = setup.ask(asked());
        if repeats {
            fresh(&answer, 201);
            assert_eq!(setup.upstream.effects_of(method), 2);
            replay_of(&answer, &setup.ask(asked()));
        } else {
            refused(&answer, 409, "in_doubt");
            assert_eq!(setup.upstream.effects_of(method), 1);
        }
        gate.open();
    }
}

#[test]
fn c047_an_upstream_that_honours_keys_is_asked_again_with_the_same_one() {
    let mut setup = Setup::routed("honours_keys = true");
    let gate = setup.upstream.holds();
    let waiting = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    setup.crash();
    drop(waiting);
    let answer = setup.ask(keyed("k"));
    fresh(&answer, 201);
    gate.open();
    let received = setup.upstream.received();
    assert_eq!(received.len(), 2, "{received:?}");
    let key = |index: usize| received[index].header("idempotency-key");
    assert_eq!(key(0), key(1));
    assert_eq!(received[0].body, received[1].body);
    replay_of(&answer, &setup.ask(keyed("k")));
}

/// Several who decide the same doubt at once license one attempt.
#[test]
fn c049_two_who_resolve_one_doubt_license_one_attempt() {
    let setup = Setup::new();
    setup
        .upstream
        .next(crate::upstream::Deed::CloseBeforeEffect);
    refused(&setup.ask(keyed("k")), 502, "in_doubt");
    let doubt = setup.doubt();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let words = ["resolve", &doubt, "--not-done", "--yes"];
                // Whoever comes late may be told that there is nothing to resolve.
                setup.world.semel(&words);
                let answer = setup.ask(keyed("k"));
                assert_eq!(answer.status, 201, "{answer:?}");
            });
        }
    });
    assert_eq!(setup.upstream.effects_of("k"), 1);
    assert!(is_replay(&setup.ask(keyed("k"))));
}

#[test]
fn c050_a_doubt_can_be_listed_looked_at_and_resolved() {
    let setup = Setup::new();
    setup.upstream.next(crate::upstream::Deed::CloseAfterEffect);
    refused(&setup.ask(keyed("k")), 502, "in_doubt");
    let record = &setup.records()[0];
    assert_eq!(record["state"], "doubtful", "{record}");
    assert_eq!(record["door"], "proxy", "{record}");
    assert_eq!(record["client_key"], "k", "{record}");
    assert_eq!(record["name"], "POST /charges", "{record}");
    let doubt = setup.doubt();
    let shown = setup.world.semel(&["show", &doubt, "--json"]);
    assert_eq!(
        shown.json()[0]["attempts"][0]["verdict"],
        "unknown",
        "{shown:?}"
    );
    setup.resolve(&["--done", "--note", "seen in the bank's list"]);
    let shown = setup.world.semel(&["show", &doubt, "--json"]).json();
    assert_eq!(
        shown[0]["resolved"]["note"], "seen in the bank's list",
        "{shown:?}"
    );
    let told = setup.ask(keyed("k"));
    assert!(is_replay(&told), "{told:?}");
    assert_eq!(setup.effects(), 1);
}
