//! Servers that behave badly on their standard output: what they do stays with them.

use serde_json::{Value, json};

use crate::desk::{Desk, Era};
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::{Client, Heard};

/// What the gateway may grow by, whatever a server writes: a few messages of the largest size.
const MEMORY_MAX: u64 = 160 * 1024 * 1024;

fn setup(how: &str) -> Setup {
    // What never comes is not waited for longer than it takes to see that it does not.
    let desk = Desk::with(&[("FIXTURE_BAD", how), ("SEMEL_MCP_DRAIN", "1s")]);
    Setup::on(
        desk,
        Way::Gateway(Carrier::Stdio),
        Carrier::Stdio,
        Era::Legacy,
    )
}

fn silent(setup: &Setup) -> Client {
    Client::silent(&mut setup.gateway_command(false), setup.era)
}

/// Everything that a client is sent is a message.
#[track_caller]
fn are_messages(asides: &[String]) {
    for text in asides {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        assert_eq!(message["jsonrpc"], "2.0", "{text:?}");
        assert!(message["method"].is_string(), "nobody asked for {text:?}");
    }
}

#[test]
fn noise_and_floods_and_broken_frames_do_not_reach_the_client() {
    for how in ["noise", "malformed", "flood", "flood-lines"] {
        let setup = setup(how);
        let mut client = setup.client();
        let sent = client.start("charge", &order(), &json!({}));
        let (asides, heard) = client.hear_all(sent);
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 1".to_owned()),
            "{how}: {heard:?}"
        );
        are_messages(&asides);
        let memory = client.child().memory();
        assert!(memory < MEMORY_MAX, "{how}: {memory} bytes");
    }
}

#[test]
fn the_second_answer_to_a_call_is_nobodys() {
    let setup = setup("twice");
    let mut client = setup.client();
    for count in 1..=2 {
        let sent = client.start("charge", &order(), &json!({}));
        let (asides, heard) = client.hear_all(sent);
        assert_eq!(
            told(&heard),
            Told::Outcome(format!("charge {count}")),
            "{heard:?}"
        );
        are_messages(&asides);
    }
    let sent = client.send("ping", json!({}));
    are_messages(&client.hear_all(sent).0);
}

#[test]
fn a_server_that_exits_at_once_is_named() {
    for how in ["exit", "close"] {
        let setup = setup(how);
        let mut client = silent(&setup);
        let heard = client.greet();
        let why = match &heard {
            Heard::Message(_) => heard.error()["message"].to_string(),
            Heard::Lost(said) => said.clone(),
            Heard::Http(..) => panic!("{heard:?}"),
        };
        assert!(!why.trim().is_empty(), "{how}: it says nothing");
        client.child().close();
        client.child().wait();
    }
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, Era::Legacy);
    let words = ["mcp", "--", "/nowhere/no-such-server"];
    let mut client = Client::silent(&mut setup.desk.world().command(&words), Era::Legacy);
    let heard = client.greet();
    let why = format!("{heard:?} {}", client.child().said());
    assert!(why.contains("no-such-server"), "{why}");
    client.child().close();
    client.child().wait();
}

/// Nobody waits for ever: whoever closes its side gets its end.
#[test]
fn a_server_that_never_answers_holds_nobody() {
    for how in ["silent", "deaf"] {
        let setup = setup(how);
        let mut client = silent(&setup);
        client.send(
            "initialize",
            json!({"protocolVersion": crate::wire::LEGACY, "capabilities": {}}),
        );
        client.child().close();
        client.child().wait();
    }
}

#[test]
fn a_call_that_is_never_answered_is_a_doubt_in_the_end() {
    let setup = setup("");
    setup.desk.next_fault("mute");
    let mut client = setup.client();
    let sent = client.start("charge", &order(), &json!({}));
    setup.desk.wait_for_effects(1);
    client.cancel(sent);
    client.child().close();
    client.child().wait();
    let heard = setup.client().call("charge", &order());
    assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
    assert_eq!(setup.desk.effects(), 1);
}

/// The answer was half there when the server went, or was no JSON: what it meant, nobody knows.
#[test]
fn half_an_answer_is_a_doubt() {
    for upstream in [Carrier::Stdio, Carrier::Http] {
        for fault in ["half", "exit-after", "cut"] {
            let setup = Setup::new(Way::Gateway(Carrier::Stdio), upstream, Era::Modern);
            setup.desk.next_fault(fault);
            let mut client = setup.client();
            if fault == "exit-after" && upstream == Carrier::Http {
                continue;
            }
            assert_eq!(
                told(&client.call("charge", &order())),
                Told::Doubt,
                "{fault}"
            );
            assert_eq!(
                told(&client.call("charge", &order())),
                Told::Doubt,
                "{fault}"
            );
            assert_eq!(setup.desk.effects(), 1, "{fault}");
        }
    }
}

/// A server that died before it did anything is a doubt as well: nobody can tell the two apart.
#[test]
fn a_server_that_dies_before_the_effect_is_a_doubt_too() {
    let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, Era::Modern);
    setup.desk.next_fault("exit-before");
    let mut client = setup.client();
    assert_eq!(told(&client.call("charge", &order())), Told::Doubt);
    assert_eq!(told(&client.call("charge", &order())), Told::Doubt);
    assert_eq!(setup.desk.effects(), 0);
    setup.resolve_not_done();
    let heard = client.call("charge", &order());
    assert_eq!(
        told(&heard),
        Told::Outcome("charge 1".to_owned()),
        "{heard:?}"
    );
}

/// Others go on while one is dead: reads do not wait for a doubt.
#[test]
fn a_server_that_died_is_started_again_for_what_comes_next() {
    for era in [Era::Legacy, Era::Modern] {
        let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, era);
        setup.desk.next_fault("exit-after");
        let mut client = setup.client();
        assert_eq!(told(&client.call("charge", &order())), Told::Doubt);
        let heard = client.call("charge", &json!({"order_id": "o-8"}));
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 2".to_owned()),
            "{heard:?}"
        );
        assert_eq!(setup.desk.starts().len(), 2);
        assert_eq!(
            setup.desk.received_of("charge"),
            2,
            "nothing was sent again"
        );
        // The handshake is: once for each server, and all of it.
        let shaken = if era == Era::Legacy { 2 } else { 0 };
        for method in ["initialize", "notifications/initialized"] {
            assert_eq!(setup.desk.received_of(method), shaken, "{method}, {era:?}");
        }
    }
}
