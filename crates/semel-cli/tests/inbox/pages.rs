//! Web pages in a browser that reach for the inbox of a server on its user's machine.

use crate::said;
use crate::setup::{SETTINGS, Sender, start, stored, world};

/// Webhooks come from servers, which send neither header: what a browser sends for a page of another site is refused,
/// also where it is signed.
#[test]
fn only_pages_of_the_own_and_of_trusted_origins_deliver() {
    let world = world();
    let settings = format!("{}\n{SETTINGS}", said::SETTINGS);
    std::fs::write(world.path("semel.toml"), settings).expect("it can be written");
    let server = start(&world);
    let sender = Sender::new("github");
    for (number, page) in said::said(server.port()).iter().enumerate() {
        let id = format!("evt_{number}");
        let before = stored(&world);
        let delivery = sender.signed(&id, &sender.body(&id));
        let answer = server.ask(page.in_request(delivery));
        if page.passes {
            answer.expect(202);
        } else {
            answer.problem(403, "forbidden");
            assert_eq!(stored(&world), before, "{page:?}");
        }
        let shared = answer.header("access-control-allow-origin");
        assert_eq!(shared, page.is_trusted.then_some(said::TRUSTED), "{page:?}");
    }
}

#[test]
fn hosts_are_read_strictly_at_the_inbox() {
    let world = world();
    let server = start(&world);
    let sender = Sender::new("github");
    for host in said::NO_HOSTS {
        let delivery = sender
            .signed("evt", &sender.body("evt"))
            .header("Host", host);
        let answer = server.ask(delivery);
        assert!(matches!(answer.status, 400 | 403), "{host:?}: {answer:?}");
    }
    sender.deliver(&server, "evt").expect(202);
}

#[test]
fn namespace_of_the_server_is_that_of_its_webhooks() {
    let world = world();
    let server = crate::setup::start_with(&world, &["--namespace", "ours"]);
    let sender = Sender::new("github");
    let received = sender.deliver(&server, "evt").expect(202);
    assert_eq!(received["namespace"], "ours", "{received}");
    let listed = world.semel(&["list", "--namespace", "ours", "--json"]);
    assert_eq!(listed.json().len(), 1, "{listed:?}");
    let listed = world.semel(&["list", "--json"]);
    assert_eq!(listed.json().len(), 0, "{listed:?}");
}
