//! C. Fences: what an older attempt says beside a newer one, and after restarts.

use rustix::process::Signal;

use crate::leases::wait_until_stopped;
use crate::server::wait_until;
use crate::setup::{Setup, fresh, keyed, refused, replay_of};
use crate::upstream::Deed;

/// Short enough to wait for its end, and long enough to be renewed on a machine that has much to do.
const LEASE: &str = "lease = \"5s\"\nwait = \"100ms\"";

/// The fence of the only record.
#[track_caller]
fn fence(setup: &Setup) -> u64 {
    let records = setup.records();
    let [record] = &records[..] else {
        panic!("{records:?}");
    };
    record["fence"].as_u64().expect("a fence is a number")
}

/// The older attempt carries the very same request; what it says is judged by its fence.
#[test]
fn c043_c044_a_proxy_that_wakes_up_beside_a_newer_attempt_changes_nothing() {
    let setup = Setup::routed(LEASE);
    let older = setup.upstream.holds();
    let mut waiting = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    setup.proxy().signal(Signal::STOP);
    wait_until_stopped(setup.proxy());
    setup.wait_for_state("doubtful");
    // Somebody decides wrongly; the second effect is theirs.
    setup.resolve(&["--not-done"]);
    let newer = setup.upstream.holds();
    let other = setup.another();
    let mut second = other.connect();
    second.send(&keyed("k").bytes()).expect("it is sent");
    setup.upstream.wait_for_effects(2);
    assert_eq!(fence(&setup), 2);
    older.open();
    setup.proxy().signal(Signal::CONT);
    // It was renewing its lease, and reports: nobody believes either.
    let late = waiting.answer().expect("it is answered");
    refused(&late, 502, "in_doubt");
    assert_eq!(
        (setup.states(), fence(&setup)),
        (vec!["running".to_owned()], 2)
    );
    // The newer one goes on renewing, and is the one who settles.
    let version = || setup.records()[0]["version"].clone();
    let before = version();
    wait_until("it is renewed", || version() != before);
    assert_eq!(setup.states(), ["running"]);
    refused(&setup.ask(keyed("k")), 409, "in_flight");
    newer.open();
    let answer = second.answer().expect("it is answered");
    assert_eq!(answer.json()["effect"], 2, "it is its own: {answer:?}");
    for proxy in [setup.proxy(), &other] {
        replay_of(&answer, &proxy.ask(keyed("k")));
    }
    assert_eq!((setup.effects(), fence(&setup)), (2, 2));
}

#[test]
fn c045_fences_increase_across_restarts() {
    let mut setup = Setup::new();
    let mut last = 0;
    for _ in 0..3 {
        setup.upstream.next(Deed::CloseBeforeEffect);
        refused(&setup.ask(keyed("k")), 502, "in_doubt");
        let next = fence(&setup);
        assert!(next > last, "{next} after {last}");
        last = next;
        setup.crash();
        assert_eq!(fence(&setup), last);
        setup.resolve(&["--not-done"]);
        setup.crash();
    }
    fresh(&setup.ask(keyed("k")), 201);
    let settled = fence(&setup);
    assert!(settled > last, "{settled} after {last}");
    // What is forgotten leaves its fence behind.
    let key = setup.records()[0]["key"].as_str().map(str::to_owned);
    let forgotten = setup.world.semel(&["forget", &key.expect("a key is text")]);
    assert_eq!(forgotten.code, 0, "{forgotten:?}");
    setup.crash();
    fresh(&setup.ask(keyed("k")), 201);
    let anew = fence(&setup);
    assert!(anew > settled, "{anew} after {settled}");
}
