//! The fault matrix: a call is cut off between its effect and its answer, and comes again.
//!
//! Every cell asserts both halves. The retry makes no second effect: it gets the first outcome, or is told that
//! nobody knows, and then runs once somebody found out that it may. And the same call after a delivered result
//! runs: a gateway that swallowed everything would fail.

use serde_json::{Value, json};

use crate::desk::Era;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::{Client, Sent};

/// What goes wrong between effect and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server is killed.
    ServerKilled,
    /// The server closes the stream instead of answering.
    StreamClosed,
    /// The gateway is killed.
    GatewayKilled,
    /// The client's patience ends, and it says so.
    Cancelled,
    /// The client goes away without a word.
    Left,
}

/// How the call comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// With the call id of the first.
    SameId,
    /// With another call id.
    NewId,
    /// On another connection.
    NewConnection,
    /// Through another process of the gateway.
    NewGateway,
    /// From another client, that knows nothing of the first.
    NewClient,
}

const FAULTS: [Fault; 5] = [
    Fault::ServerKilled,
    Fault::StreamClosed,
    Fault::GatewayKilled,
    Fault::Cancelled,
    Fault::Left,
];

const RETRIES: [Retry; 5] = [
    Retry::SameId,
    Retry::NewId,
    Retry::NewConnection,
    Retry::NewGateway,
    Retry::NewClient,
];

/// Returns the call that is made; all are the same but for their orders.
pub(crate) fn order() -> Value {
    json!({"order_id": "o-7", "amount": 4200})
}

/// Returns what a harness adds to a call that it gave this id.
fn named(id: &str) -> Value {
    json!({"claudecode/toolUseId": id})
}

impl Retry {
    fn metas(self) -> (Value, Value) {
        match self {
            Self::SameId => (named("toolu_1"), named("toolu_1")),
            Self::NewId => (named("toolu_1"), named("toolu_2")),
            Self::NewConnection | Self::NewGateway | Self::NewClient => (json!({}), json!({})),
        }
    }
}

/// A call whose effect is made and whose answer is not: what is left of it after the fault.
struct Cut {
    client: Option<Client>,
    /// Whether whoever carried the call out still has it, and its outcome may yet be known.
    carried_on: bool,
}

/// Makes a call, and lets something go wrong after its effect.
#[track_caller]
fn cut(setup: &mut Setup, fault: Fault, meta: &Value) -> Cut {
    let held = fault != Fault::StreamClosed;
    setup.desk.next_fault(if held { "hold" } else { "cut" });
    let mut client = setup.client();
    let sent = client.start("charge", &order(), meta);
    setup.desk.wait_for_effects(1);
    let gone = |mut client: Client, sent: Sent| {
        let heard = told(&client.hear(sent));
        assert!(
            matches!(heard, Told::Doubt | Told::Lost(_)),
            "{fault:?}: the first caller cannot know: {heard:?}"
        );
        client
    };
    match fault {
        Fault::ServerKilled => {
            setup.kill_server();
            Cut {
                client: Some(gone(client, sent)),
                carried_on: false,
            }
        }
        Fault::StreamClosed => Cut {
            client: Some(gone(client, sent)),
            carried_on: false,
        },
        Fault::GatewayKilled => {
            setup.kill_gateway(&mut client);
            Cut {
                client: None,
                carried_on: false,
            }
        }
        Fault::Cancelled => {
            client.cancel(sent);
            Cut {
                client: Some(client),
                carried_on: true,
            }
        }
        Fault::Left if setup.is_stdio() => {
            // The gateway is told by the end of its input, and goes when it has no more to do.
            client.child().close();
            Cut {
                client: Some(client),
                carried_on: true,
            }
        }
        Fault::Left => {
            drop(sent);
            Cut {
                client: Some(client),
                carried_on: true,
            }
        }
    }
}

/// Plays one cell.
fn cell(way: Way, upstream: Carrier, era: Era, fault: Fault, retry: Retry) {
    let place = format!("{way:?} to {upstream:?}, {era:?}, {fault:?}, {retry:?}");
    let mut setup = Setup::new(way, upstream, era);
    let (first, second) = retry.metas();
    let Cut { client, carried_on } = cut(&mut setup, fault, &first);
    let client_lives = client.is_some() && !(fault == Fault::Left && setup.is_stdio());
    let mut keep = None;
    let mut again = match retry {
        Retry::SameId | Retry::NewId | Retry::NewConnection if client_lives => {
            client.expect("it lives")
        }
        Retry::NewGateway => {
            // Whoever still carries the call out is let finish it.
            setup.desk.release();
            setup.end_gateway(client);
            setup.client()
        }
        Retry::SameId | Retry::NewId | Retry::NewConnection | Retry::NewClient => {
            keep = client;
            setup.client()
        }
    };
    let sent = again.start("charge", &order(), &second);
    setup.desk.release();
    let heard = again.hear(sent);
    let retried = told(&heard);
    assert_eq!(setup.desk.effects(), 1, "{place}: {heard:?}");
    let known = Told::Outcome("charge 1".to_owned());
    if carried_on {
        assert_eq!(retried, known, "{place}: {heard:?}");
    } else {
        assert_eq!(retried, Told::Doubt, "{place}: {heard:?}");
        // It stays one however often it is asked.
        assert_eq!(
            told(&again.call("charge", &order())),
            Told::Doubt,
            "{place}"
        );
        assert_eq!(setup.desk.effects(), 1, "{place}");
        setup.resolve_not_done();
        let sent = again.start("charge", &order(), &second);
        let heard = again.hear(sent);
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 2".to_owned()),
            "{place}: {heard:?}"
        );
    }
    drop(keep);
    // Whoever has the result and asks again wants it again.
    let before = setup.desk.effects();
    let sent = again.start("charge", &order(), &named("toolu_9"));
    let mut heard = again.hear(sent);
    // Where another process of the gateway still had the first caller when the retry came, this one cannot see that
    // it went: so one repeat is taken for its retry, which is said, and the next one is not.
    let elsewhere = setup.is_stdio()
        && carried_on
        && (retry == Retry::NewClient || fault == Fault::Left && retry != Retry::NewGateway);
    if elsewhere && setup.desk.effects() == before {
        let receipt = &heard.result()["_meta"]["dev.semel/effect"];
        assert_eq!(receipt["replayed"], true, "{place}: {heard:?}");
        let sent = again.start("charge", &order(), &named("toolu_10"));
        heard = again.hear(sent);
    }
    let expected = Told::Outcome(format!("charge {}", before + 1));
    assert_eq!(
        told(&heard),
        expected,
        "{place}: an intended repeat: {heard:?}"
    );
}

fn row(way: Way, upstream: Carrier, era: Era, fault: Fault) {
    for retry in RETRIES {
        cell(way, upstream, era, fault, retry);
    }
}

/// Makes a test of each row of the matrix.
macro_rules! matrix {
    ($($name:ident: $front:ident to $upstream:ident, $era:ident;)*) => {$(
        mod $name {
            use super::*;

            fn played(fault: Fault) {
                row(Way::Gateway(Carrier::$front), Carrier::$upstream, Era::$era, fault);
            }

            #[test]
            fn server_killed() {
                played(Fault::ServerKilled);
            }

            #[test]
            fn stream_closed() {
                played(Fault::StreamClosed);
            }

            #[test]
            fn gateway_killed() {
                played(Fault::GatewayKilled);
            }

            #[test]
            fn cancelled() {
                played(Fault::Cancelled);
            }

            #[test]
            fn left() {
                played(Fault::Left);
            }
        }
    )*};
}

matrix! {
    stdio_to_stdio_legacy: Stdio to Stdio, Legacy;
    stdio_to_stdio_modern: Stdio to Stdio, Modern;
    stdio_to_http_legacy: Stdio to Http, Legacy;
    stdio_to_http_modern: Stdio to Http, Modern;
    http_to_stdio_legacy: Http to Stdio, Legacy;
    http_to_stdio_modern: Http to Stdio, Modern;
    http_to_http_legacy: Http to Http, Legacy;
    http_to_http_modern: Http to Http, Modern;
}

/// Without Semel every one of these makes the effect twice: that is what the matrix is for.
fn duplicate(upstream: Carrier, era: Era) {
    for fault in FAULTS {
        if fault == Fault::GatewayKilled {
            continue;
        }
        let mut setup = Setup::new(Way::Direct, upstream, era);
        let Cut { client, .. } = cut(&mut setup, fault, &named("toolu_1"));
        let mut again = match (client, fault) {
            (Some(client), Fault::Cancelled) => client,
            _ => setup.client(),
        };
        setup.desk.release();
        let sent = again.start("charge", &order(), &named("toolu_1"));
        let heard = told(&again.hear(sent));
        assert_eq!(heard, Told::Outcome("charge 2".to_owned()), "{fault:?}");
        assert_eq!(setup.desk.effects(), 2, "{upstream:?}, {era:?}, {fault:?}");
    }
}

#[test]
fn without_it_a_child_acts_twice() {
    duplicate(Carrier::Stdio, Era::Legacy);
    duplicate(Carrier::Stdio, Era::Modern);
}

#[test]
fn without_it_a_remote_server_acts_twice() {
    duplicate(Carrier::Http, Era::Legacy);
    duplicate(Carrier::Http, Era::Modern);
}
