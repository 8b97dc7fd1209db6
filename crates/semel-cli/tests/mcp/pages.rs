//! Web pages in a browser that reach for a gateway on its user's machine.

use serde_json::json;

use crate::desk::Era;
use crate::http::{Address, Asked, Connection};
use crate::said;
use crate::setup::{Carrier, Setup, Way};

fn setup() -> (Setup, Address, u16) {
    let way = Way::Gateway(Carrier::Http);
    let setup = Setup::configured(way, Carrier::Http, Era::Legacy, said::SETTINGS);
    let address = setup.address().expect("it listens");
    let Address::Tcp(place) = address else {
        panic!("it has no port");
    };
    (setup, Address::Tcp(place), place.port())
}

fn initialize() -> Asked {
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "page", "version": "1"},
        },
    });
    Asked::post("/mcp", &message).header("Accept", "application/json, text/event-stream")
}

#[track_caller]
fn ask(address: &Address, asked: &Asked) -> crate::http::Answer {
    let mut connection = Connection::open(address).expect("it listens");
    connection.send(&asked.bytes()).expect("it is sent");
    connection.answer().expect("it is answered")
}

#[test]
fn only_pages_of_the_own_and_of_trusted_origins_reach_the_gateway() {
    let (setup, address, port) = setup();
    for page in said::said(port) {
        let before = setup.desk.received().len();
        let answer = ask(&address, &page.in_request(initialize()));
        if page.passes {
            assert_eq!(answer.status, 200, "{page:?}: {answer:?}");
        } else {
            answer.problem(403, "forbidden");
            assert_eq!(setup.desk.received().len(), before, "{page:?}");
        }
        let shared = answer.header("access-control-allow-origin");
        assert_eq!(shared, page.is_trusted.then_some(said::TRUSTED), "{page:?}");
    }
    let preflight = Asked::new("OPTIONS", "/mcp")
        .header("Origin", said::TRUSTED)
        .header("Access-Control-Request-Method", "POST");
    assert_eq!(ask(&address, &preflight).status, 204);
}

#[test]
fn hosts_are_read_strictly_at_the_gateway() {
    let (setup, address, _) = setup();
    for host in said::NO_HOSTS {
        let answer = ask(&address, &initialize().header("Host", host));
        assert!(matches!(answer.status, 400 | 403), "{host:?}: {answer:?}");
    }
    assert_eq!(setup.desk.received().len(), 0);
    assert_eq!(ask(&address, &initialize()).status, 200);
}
