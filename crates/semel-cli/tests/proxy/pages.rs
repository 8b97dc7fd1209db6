//! Web pages in a browser that reach for a proxy on its user's machine.

use crate::said;
use crate::setup::{Setup, charge, fresh};

/// Headers by which upstreams know their callers.
const CREDENTIALS: [&str; 6] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "semel-token",
];

/// The proxy adds no credentials of its own, so a page's request carries only what its browser has. It goes on with its
/// `Origin`, and the upstream decides. A route that adds credentials would have to refuse it.
#[test]
fn request_of_a_page_passes_with_its_origin_and_without_credentials() {
    let setup = Setup::new();
    for (number, page) in said::said(setup.proxy().port()).iter().enumerate() {
        let asked = charge(&format!("page-{number}")).header("X-Kept", "yes");
        fresh(&setup.ask(page.in_request(asked)), 201);
        let received = setup.upstream.received();
        let received = received.last().expect("it came");
        assert_eq!(received.header("x-kept").as_deref(), Some("yes"));
        let origin = page.headers.iter().find(|(name, _)| *name == "Origin");
        let origin = origin.map(|(_, value)| value.clone());
        assert_eq!(received.header("origin"), origin, "{received:?}");
        for name in CREDENTIALS {
            assert_eq!(received.header(name), None, "{name}: {received:?}");
        }
    }
}

#[test]
fn hosts_are_read_strictly_at_the_proxy() {
    let setup = Setup::new();
    for host in said::NO_HOSTS {
        let answer = setup.ask(charge("evil").header("Host", host));
        assert!(matches!(answer.status, 400 | 403), "{host:?}: {answer:?}");
    }
    assert_eq!(setup.effects(), 0);
    fresh(
        &setup.ask(charge("good").header("Host", "localhost.:1")),
        201,
    );
}
