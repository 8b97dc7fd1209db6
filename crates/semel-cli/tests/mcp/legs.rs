//! A tool that asks back: its legs look like the same call twice, and are one.

use crate::desk::Era;
use crate::direct::agreed;
use crate::setup::{Carrier, Setup, Told, Way};

/// Each leg reaches the server, and the effect is made once for each time that somebody agreed.
fn asked(front: Carrier, upstream: Carrier, era: Era) {
    let setup = Setup::new(Way::Gateway(front), upstream, era);
    let mut client = setup.client_to_ask();
    for count in 1..=2 {
        let heard = agreed(&mut client, era);
        assert_eq!(heard, Told::Outcome(format!("ask {count}")), "{era:?}");
        assert_eq!(setup.desk.effects(), count, "{era:?}");
    }
}

#[test]
fn a_child_asks_back() {
    asked(Carrier::Stdio, Carrier::Stdio, Era::Legacy);
    asked(Carrier::Stdio, Carrier::Stdio, Era::Modern);
}

#[test]
fn a_remote_server_asks_back() {
    asked(Carrier::Http, Carrier::Http, Era::Legacy);
    asked(Carrier::Http, Carrier::Http, Era::Modern);
}

#[test]
fn a_remote_server_asks_back_over_a_pipe() {
    asked(Carrier::Stdio, Carrier::Http, Era::Legacy);
    asked(Carrier::Stdio, Carrier::Http, Era::Modern);
}

#[test]
fn a_child_asks_back_over_http() {
    asked(Carrier::Http, Carrier::Stdio, Era::Legacy);
    asked(Carrier::Http, Carrier::Stdio, Era::Modern);
}
