//! What is not proven to be a sender's leaves nothing behind.

use std::time::Duration;

use semel::core::webhook::Scheme;
use semel::store::sqlite::SqliteStore;

use crate::http::Asked;
use crate::setup::{Sender, now, start, stored, tasks, world};

const THREE_DAYS: Duration = Duration::from_secs(3 * 24 * 60 * 60);

#[test]
fn nothing_is_written_for_what_is_not_proven() {
    let world = world();
    let server = start(&world);
    let stripe = Sender::new("stripe");
    stripe.deliver(&server, "evt_0").expect(202);
    let before = stored(&world);
    let body = stripe.body("evt_1");
    for sender in ["standard", "stripe", "github", "slack", "shop"].map(Sender::new) {
        let body = sender.body("evt_1");
        let unsigned = Asked::new("POST", &format!("/in/{}", sender.source)).body(&body);
        server.ask(unsigned).problem(401, "unauthorized");
        // A right signature of other bytes.
        let changed = sender.signed("evt_1", &body).body(b"{}");
        server.ask(changed).problem(401, "unauthorized");
        if sender.source != "github" {
            for at in [now().minus(THREE_DAYS), now().plus(THREE_DAYS)] {
                let old = sender.signed_at("evt_1", &body, at);
                let old = server.ask(old).problem(401, "unauthorized");
                let detail = old["detail"].as_str().unwrap_or_default();
                assert!(detail.contains("300 s are tolerated"), "{detail}");
            }
        }
    }
    let stranger = Sender::with("stripe", Scheme::Stripe, "another-secret");
    server
        .ask(stranger.signed("evt_1", &body))
        .problem(401, "unauthorized");
    // The secret of one source opens no other.
    let other = Sender::with("slack", Scheme::Slack, "hush-github-1");
    server
        .ask(other.signed("evt_1", &other.body("evt_1")))
        .problem(401, "unauthorized");
    assert_eq!(stored(&world), before);
    assert_eq!(tasks(&world).len(), 1);
}

#[test]
fn what_has_no_id_or_is_too_large_or_for_nobody_is_refused() {
    let world = world();
    let server = start(&world);
    let stripe = Sender::new("stripe");
    for body in [
        &br#"{"type":"ping"}"#[..],
        br#"{"id":""}"#,
        b"id=evt_1",
        br#"{"id":"a","id":"b"}"#,
    ] {
        let refused = server.ask(stripe.signed("-", body));
        let refused = refused.problem(400, "invalid_input");
        assert!(
            refused["hint"]
                .as_str()
                .is_some_and(|hint| hint.contains("`id`"))
        );
    }
    let large = vec![b' '; 1008 * 1024 + 1];
    server
        .ask(stripe.signed("-", &large))
        .problem(413, "too_large");
    let largest = [br#"{"id":"large"}"#, &large[..1008 * 1024 - 14]].concat();
    server.ask(stripe.signed("-", &largest)).expect(202);
    for path in ["/in/nobody", "/in/a%2Fb", "/in/%7B"] {
        server
            .ask(Asked::new("POST", path).body(b"{}"))
            .problem(404, "not_found");
    }
    server.get("/in/stripe").problem(405, "invalid_input");
    // What a caller writes does not become a label.
    let metrics = server.get("/metrics");
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let nobody = r#"semel_inbox_requests_total{source="",outcome="not_found"} 3"#;
    assert!(metrics.contains(nobody), "{metrics}");
    assert_eq!(stored(&world).1, 1);
}

/// A sender that hears 503 comes again.
#[test]
fn a_store_that_does_not_answer_is_said_so_that_the_sender_comes_again() {
    let world = world();
    let server = start(&world);
    let sender = Sender::new("standard");
    sender.deliver(&server, "evt_0").expect(202);
    let store = SqliteStore::open(world.path("data/semel.db")).expect("the store opens");
    let mut connection = store.connect().expect("it can be connected to");
    let transaction = store.transaction(&mut connection).expect("it is our turn");
    let refused = sender.deliver(&server, "evt_1");
    refused.problem(503, "store_unavailable");
    drop(transaction);
    // It may have been stored when nobody waited any more.
    let again = sender.deliver(&server, "evt_1").status;
    assert!(matches!(again, 200 | 202), "{again}");
    sender.deliver(&server, "evt_1").expect(200);
    assert_eq!(tasks(&world).len(), 2);
}
