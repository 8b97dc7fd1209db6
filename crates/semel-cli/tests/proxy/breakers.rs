//! A breaker before an upstream that fails and recovers; what reaches it is counted by the upstream.

use serde_json::{Value, json};

use crate::harness::World;
use crate::http::{Asked, Connection};
use crate::server::wait_until;
use crate::setup::{Setup, charge, fresh, header, is_replay, keyed, refused};
use crate::upstream::{Gate, Reply, Upstream};

/// Opens after two failures in a row, for a second.
const QUICK: &str = "[breakers.bank]\nfailures = 2\ncool_down = \"1s\"\ncool_down_max = \"1s\"\n";

/// Opens after two failures in a row, for longer than a test lasts.
const SLOW: &str = "[breakers.bank]\nfailures = 2\ncool_down = \"1h\"\ncool_down_max = \"1h\"\n";

fn setup(breakers: &str) -> Setup {
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    let url = upstream.url();
    let route = format!("[[proxy.route]]\nupstream = \"{url}\"\nbreaker = \"bank\"\n");
    Setup::written(world, upstream, &format!("{breakers}\n{route}"))
}

/// Returns the only breaker.
fn breaker(setup: &Setup) -> Value {
    let listed = setup.world.semel(&["breaker", "list", "--json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let mut lines = listed.json();
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

/// Has the upstream answer two requests with 503, which opens the breaker.
fn fail(setup: &Setup) {
    for key in ["bad-1", "bad-2"] {
        setup.upstream.answers(Reply::new(503, "down"));
        assert_eq!(setup.ask(keyed(key)).status, 503);
    }
}

/// Asks until one call is let through, and holds it at the upstream; the callers stay on the line.
fn hold_a_probe(setup: &Setup) -> (Gate, Vec<Connection>) {
    let reached = setup.upstream.received().len();
    let gate = setup.upstream.holds();
    let mut callers = vec![];
    wait_until("a probe has reached the upstream", || {
        let key = format!("probe-{}", callers.len());
        callers.push(setup.begin(&keyed(&key)));
        setup.upstream.received().len() > reached
    });
    assert_eq!(breaker(setup)["state"], "half_open");
    (gate, callers)
}

#[test]
fn while_it_is_open_nothing_reaches_the_upstream_and_nothing_is_claimed() {
    let setup = setup(SLOW);
    let first = setup.ask(keyed("good"));
    fresh(&first, 201);
    fail(&setup);
    assert_eq!(breaker(&setup)["state"], "open");
    let (reached, records) = (setup.upstream.received().len(), setup.records().len());
    for asked in [keyed("new"), charge("keyless"), Asked::get("/balance")] {
        let answer = setup.ask(asked);
        let problem = refused(&answer, 503, "breaker_open");
        assert!(problem["retry_at"].is_string(), "{problem}");
        let seconds = header(&answer, "retry-after").parse::<u64>();
        assert!(seconds.is_ok_and(|seconds| (3_000..=3_600).contains(&seconds)));
    }
    assert_eq!(setup.upstream.received().len(), reached);
    assert_eq!(setup.records().len(), records, "nothing was claimed");
    // Whoever need not call it is answered all the same.
    let again = setup.ask(keyed("good"));
    assert!(is_replay(&again) && again.body == first.body, "{again:?}");
    assert_eq!(setup.upstream.received().len(), reached);
    // A second proxy on the same store knows.
    let other = setup.another();
    refused(&other.ask(keyed("newer")), 503, "breaker_open");
    assert_eq!(setup.upstream.received().len(), reached);
    let verified = setup.world.semel(&["verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[test]
fn of_fifty_callers_one_probes_and_its_success_closes_it() {
    let setup = setup(QUICK);
    fail(&setup);
    let reached = setup.upstream.received().len();
    let (gate, _callers) = hold_a_probe(&setup);
    let crowd: Vec<_> = (0..50)
        .map(|n| setup.begin(&keyed(&format!("crowd-{n}"))))
        .collect();
    for mut caller in crowd {
        let answer = caller.answer().expect("it is answered");
        refused(&answer, 503, "breaker_open");
    }
    assert_eq!(setup.upstream.received().len(), reached + 1, "one probe");
    gate.open();
    wait_until("it closes", || breaker(&setup)["state"] == "closed");
    fresh(&setup.ask(keyed("crowd-7")), 201);
    let log = setup.world.semel(&["log", "--limit", "1000", "--json"]);
    let log = log.json();
    let words: Vec<_> = log.iter().filter_map(|it| it["command"].as_str()).collect();
    for word in ["breaker_opened", "breaker_half_open", "breaker_closed"] {
        assert!(words.contains(&word), "{word}: {words:?}");
    }
}

#[test]
fn of_a_crowd_that_comes_when_the_time_has_come_one_reaches_the_upstream() {
    let setup = setup(QUICK);
    fail(&setup);
    let reached = setup.upstream.received().len();
    let gate = setup.upstream.holds();
    let opened = breaker(&setup);
    assert_eq!(opened["state"], "open");
    wait_until("its time has come", || {
        setup.world.now(|engine| async move {
            let breakers = engine.breakers(None).await.expect("they are listed");
            let next = breakers.first().and_then(|it| it.retry_at);
            next.is_some_and(|at| at <= engine.store().now())
        })
    });
    let mut crowd: Vec<_> = (0..50)
        .map(|n| setup.begin(&keyed(&format!("crowd-{n}"))))
        .collect();
    wait_until("one has reached the upstream", || {
        setup.upstream.received().len() > reached
    });
    wait_until("the breaker is half-open", || {
        breaker(&setup)["state"] == "half_open"
    });
    gate.open();
    let statuses: Vec<u16> = crowd
        .iter_mut()
        .map(|caller| caller.answer().expect("it is answered").status)
        .collect();
    let through = statuses.iter().filter(|status| **status == 201).count();
    assert!(
        through >= 1 && statuses.iter().all(|it| [201, 503].contains(it)),
        "{statuses:?}"
    );
    // Nobody reached it but those who were told so.
    assert_eq!(setup.upstream.received().len(), reached + through);
}

#[test]
fn an_upstream_that_is_not_there_opens_it_and_a_refusal_of_its_own_does_not() {
    let mut setup = setup(SLOW);
    for n in 0..5 {
        setup.upstream.answers(Reply::new(404, "no"));
        assert_eq!(setup.ask(keyed(&format!("unknown-{n}"))).status, 404);
    }
    setup.upstream.refuse();
    for n in 0..2 {
        refused(&setup.ask(keyed(&format!("gone-{n}"))), 502, "not_sent");
    }
    refused(&setup.ask(keyed("later")), 503, "breaker_open");
    assert_eq!(breaker(&setup)["state"], "open");
}

#[test]
fn a_person_opens_and_closes_it() {
    let setup = setup(SLOW);
    let note = ["--note", "maintenance"];
    let ran = setup
        .world
        .semel(&[&["breaker", "open", "bank"][..], &note].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let answer = setup.ask(keyed("k"));
    let problem = refused(&answer, 503, "breaker_open");
    assert_eq!(problem.get("retry_at"), None);
    let shown = breaker(&setup);
    assert_eq!(
        (&shown["state"], &shown["note"]),
        (&json!("open"), &json!("maintenance"))
    );
    let ran = setup.world.semel(&["breaker", "close", "bank"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    fresh(&setup.ask(keyed("k")), 201);
    assert_eq!(setup.effects(), 1);
}

#[test]
fn the_place_of_a_probe_whose_proxy_was_killed_is_kept_for_its_lease_and_a_person_ends_that() {
    let mut setup = setup(QUICK);
    fail(&setup);
    let (_gate, callers) = hold_a_probe(&setup);
    drop(callers);
    setup.crash();
    // Its lease is a minute: until then nobody else probes, and a person may end the wait.
    refused(&setup.ask(keyed("other")), 503, "breaker_open");
    assert_eq!(breaker(&setup)["state"], "half_open");
    let ran = setup.world.semel(&["breaker", "close", "bank"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    fresh(&setup.ask(keyed("other")), 201);
}
