//! C. Probes: a doubt is looked up before anything is done a second time.

use serde_json::{Value, json};

use crate::http::Answer;
use crate::server::wait_until;
use crate::setup::{Setup, fresh, is_replay, keyed, refused, replay_of};
use crate::upstream::{Deed, Reply};

/// Looks a charge up by the key of its request.
const ROUTE: &str = r#"
lease = "1s"
probe = { path = "/charges/{key}", found = "/charge" }
"#;

/// Says what became of a charge.
fn found(charge: Value) -> Reply {
    let body = json!({"charge": charge}).to_string();
    Reply::new(200, body).header("Content-Type", "application/json")
}

fn paid() -> Reply {
    found(json!({"status": "paid"}))
}

/// Sends a request whose answer is lost.
fn lose(setup: &Setup, deed: Deed) {
    setup.upstream.next(deed);
    refused(&setup.ask(keyed("k")), 502, "in_doubt");
}

/// Asks until it was looked up: not before the lease of the lost attempt is over.
fn ask_until_looked_up(setup: &Setup) -> Answer {
    let mut last = None;
    wait_until("it is looked up", || {
        last = Some(setup.ask(keyed("k")));
        !looked_up(setup).is_empty()
    });
    last.expect("it was asked")
}

/// Returns the places that were looked up.
fn looked_up(setup: &Setup) -> Vec<String> {
    let received = setup.upstream.received();
    let gets = received.into_iter().filter(|it| it.method == "GET");
    gets.map(|it| it.target).collect()
}

#[test]
fn c048_what_happened_is_told_and_not_done_again() {
    let setup = Setup::routed(ROUTE);
    lose(&setup, Deed::CloseAfterEffect);
    setup.upstream.answers(paid());
    let told = ask_until_looked_up(&setup);
    assert_eq!(told.status, 200, "{told:?}");
    assert_eq!(told.json()["charge"]["status"], "paid", "{told:?}");
    assert_eq!(looked_up(&setup), ["/charges/k"]);
    let again = setup.ask(keyed("k"));
    assert!(is_replay(&again), "{again:?}");
    assert_eq!(again.body, told.body, "{again:?}");
    assert_eq!(looked_up(&setup).len(), 1);
    assert_eq!(setup.effects(), 1);
}

/// Without its account, the upstream would look into another one, find nothing, and the charge would be made twice.
#[test]
fn c048_a_doubt_is_looked_up_with_all_credentials_of_its_request() {
    let lines = [
        ("Authorization", "Bearer a"),
        ("Api-Key", "b"),
        ("Stripe-Account", "acct_1"),
        ("Cookie", "session=1"),
        ("X-Tenant", "7"),
    ];
    let setup = Setup::routed(&format!(
        "credentials = [\"default\", \"X-Tenant\"]\n{ROUTE}"
    ));
    let asked = || {
        let asked = keyed("k").header("X-Request-Id", "1");
        lines
            .iter()
            .fold(asked, |asked, (name, value)| asked.header(name, value))
    };
    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&setup.ask(asked()), 502, "in_doubt");
    setup.upstream.answers(paid());
    wait_until("it is looked up", || {
        setup.ask(asked());
        !looked_up(&setup).is_empty()
    });
    let received = setup.upstream.received();
    let get = received
        .iter()
        .find(|it| it.method == "GET")
        .expect("a GET");
    for (name, value) in lines {
        let shown = get.header(&name.to_ascii_lowercase());
        assert_eq!(shown.as_deref(), Some(value), "{name}");
    }
    assert_eq!(get.header("x-request-id"), None);
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c048_what_did_not_happen_is_done_once() {
    let setup = Setup::routed(ROUTE);
    lose(&setup, Deed::CloseBeforeEffect);
    setup.upstream.answers(found(Value::Null));
    let told = ask_until_looked_up(&setup);
    fresh(&told, 201);
    assert_eq!(looked_up(&setup), ["/charges/k"]);
    replay_of(&told, &setup.ask(keyed("k")));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c048_what_nobody_can_tell_stays_in_doubt() {
    for reply in [
        Reply::new(500, "it broke"),
        Reply::new(200, "no JSON"),
        Reply::new(200, "{}").header("Content-Type", "application/json"),
    ] {
        let setup = Setup::routed(ROUTE);
        lose(&setup, Deed::CloseAfterEffect);
        setup.upstream.answers(reply);
        refused(&ask_until_looked_up(&setup), 409, "in_doubt");
        assert_eq!(setup.states(), ["doubtful"]);
        assert_eq!(setup.effects(), 1);
    }
}

#[test]
fn c048_c049_of_many_who_come_back_one_looks_it_up() {
    let setup = Setup::routed(ROUTE);
    lose(&setup, Deed::CloseBeforeEffect);
    setup.upstream.answers(found(Value::Null));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                wait_until("it is looked up and done", || {
                    let answer = setup.ask(keyed("k"));
                    let is_done = answer.status == 201;
                    assert!(is_done || answer.status == 409, "{answer:?}");
                    is_done
                });
            });
        }
    });
    assert_eq!(looked_up(&setup).len(), 1);
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c048_changed_probe_of_a_route_leaves_the_doubt() {
    let mut setup = Setup::routed(ROUTE);
    lose(&setup, Deed::CloseAfterEffect);
    let settings = setup.world.path("semel.toml");
    let written = std::fs::read_to_string(&settings).expect("it is there");
    let other = written.replace("/charges/{key}", "/refunds/{key}");
    std::fs::write(&settings, other).expect("it is written");
    setup.crash();
    // A second doubt is looked up where the route says now: by then the first one could have been, too.
    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&setup.ask(keyed("later")), 502, "in_doubt");
    setup.upstream.answers(paid());
    wait_until("the later one is looked up", || {
        setup.ask(keyed("later"));
        !looked_up(&setup).is_empty()
    });
    refused(&setup.ask(keyed("k")), 409, "in_doubt");
    assert_eq!(looked_up(&setup), ["/refunds/later"]);
    std::fs::write(&settings, written).expect("it is written");
    setup.crash();
    setup.upstream.answers(paid());
    assert_eq!(setup.ask(keyed("k")).status, 200);
    assert_eq!(looked_up(&setup), ["/refunds/later", "/charges/k"]);
    assert_eq!(setup.effects(), 2);
}

#[test]
fn c048_a_person_without_the_route_sends_nothing() {
    let setup = Setup::routed(ROUTE);
    lose(&setup, Deed::CloseAfterEffect);
    let (doubt, url) = (setup.doubt(), setup.upstream.url());
    let route = |upstream: &str, path: &str| {
        format!(
            "[[proxy.route]]\nupstream = \"{upstream}\"\nprobe = {{ path = \"{path}\", found = \"/charge\" }}\n"
        )
    };
    let other = "http://127.0.0.1:1";
    for (settings, hint) in [
        (String::new(), "--config"),
        (route(other, "/charges/{key}"), "--config"),
        (route(&url, "/refunds/{key}"), "--config"),
        (route(&url, "/charges/{/id}"), "once more through the proxy"),
    ] {
        std::fs::write(setup.world.path("semel.toml"), &settings).expect("it is written");
        let header = "Authorization: Bearer s3cr3t";
        let words = ["resolve", &doubt, "--yes", "--probe", "--header", header];
        let ran = setup.world.semel(&words);
        assert_eq!(ran.code, 64, "{settings}: {ran:?}");
        assert!(ran.stderr.contains("nothing was sent"), "{ran:?}");
        assert!(ran.stderr.contains(hint), "{settings}: {ran:?}");
        assert_eq!(looked_up(&setup), [""; 0]);
    }
    assert_eq!(setup.states(), ["doubtful"]);
}

#[test]
fn c048_a_person_can_have_it_looked_up() {
    let setup = Setup::routed(ROUTE);
    lose(&setup, Deed::CloseAfterEffect);
    setup.upstream.answers(paid());
    setup.resolve(&["--probe", "--header", "Authorization: Bearer t0ken"]);
    assert_eq!(looked_up(&setup), ["/charges/k"]);
    let received = setup.upstream.received();
    let asked = received.iter().find(|it| it.method == "GET");
    let headers = asked.map(|it| it.headers.clone()).unwrap_or_default();
    let value = b"Bearer t0ken".to_vec();
    assert!(
        headers.contains(&("authorization".to_owned(), value)),
        "{headers:?}"
    );
    assert!(is_replay(&setup.ask(keyed("k"))));
    assert_eq!(setup.effects(), 1);
}

#[test]
fn hint_of_a_doubt_quotes_the_key_for_a_shell() {
    let setup = Setup::routed(ROUTE);
    setup.upstream.next(Deed::CloseAfterEffect);
    let told = setup.ask(keyed("a'$(id)'b"));
    refused(&told, 502, "in_doubt");
    let doubt = setup.doubt();
    let word = format!("'{}'", doubt.replace('\'', r"'\''"));
    let hint = told.json()["hint"].as_str().unwrap_or_default().to_owned();
    assert!(
        hint.contains(&format!("semel resolve {word} --done")),
        "{hint}"
    );
}
