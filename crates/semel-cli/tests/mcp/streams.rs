//! The gateway's own standard input and output: what they may be, and that they keep nobody.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;

use crate::desk::Era;
use crate::matrix::order;
use crate::server::wait_until;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::{Client, LEGACY};

fn setup() -> Setup {
    Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, Era::Legacy)
}

#[test]
fn a_signal_ends_it_though_its_client_says_nothing() {
    let setup = setup();
    let mut client = setup.client();
    let heard = client.call("charge", &order());
    assert_eq!(told(&heard), Told::Outcome("charge 1".to_owned()));
    // Its input stays open: whoever waits for more of it must not keep the process.
    client.child().signal(Signal::TERM);
    let status = client.child().wait();
    assert!(status.success(), "{status}: {}", client.child().said());
}

/// A server that takes its time, and answers everything that it was asked before it ends.
const SLOW: &str = r#"
import json, sys, time
for line in sys.stdin:
    time.sleep(0.2)
    answer = {"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {}}
    print(json.dumps(answer), flush=True)
"#;

#[test]
fn what_was_asked_before_the_client_closed_its_side_is_answered() {
    let setup = setup();
    let python = &setup.desk.words()[0];
    let words = ["mcp", "--", python, "-c", SLOW];
    let mut command = setup.desk.world().command(&words);
    let mut client = Client::silent(&mut command, Era::Legacy);
    let asked = [
        client.send("initialize", hello()),
        client.send("ping", json!({})),
    ];
    client.child().close();
    for sent in asked {
        client.hear(sent).result();
    }
    assert!(client.child().wait().success());
}

fn hello() -> serde_json::Value {
    json!({
        "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    })
}

/// Node gives its children sockets instead of pipes.
#[test]
fn a_client_may_speak_over_sockets() {
    let setup = setup();
    let (to, input) = UnixStream::pair().expect("there are sockets");
    let (from, output) = UnixStream::pair().expect("there are sockets");
    let mut command = setup.gateway_command(false);
    command.stdin(Stdio::from(OwnedFd::from(input)));
    command.stdout(Stdio::from(OwnedFd::from(output)));
    let mut child = command.spawn().expect("the command runs");
    // Ours of its ends are closed with it.
    drop(command);
    let mut lines = BufReader::new(from).lines();
    let mut ask = |id: u32, method: &str, params: serde_json::Value| {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(&to, "{message}").expect("it listens");
        let line = lines.next().expect("it answers").expect("it can be read");
        let answer: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    };
    assert_eq!(ask(1, "initialize", hello())["protocolVersion"], LEGACY);
    // The second one is meant: the first answer was read from the socket.
    for count in 1..=2 {
        let call = json!({"name": "charge", "arguments": order()});
        let result = ask(count + 1, "tools/call", call);
        let effect = &result["_meta"]["dev.semel/effect"];
        assert_eq!(effect["occurrence"], count, "{result}");
    }
    assert_eq!(setup.desk.effects(), 2);
    let id = i32::try_from(child.id()).ok();
    let id = id.and_then(rustix::process::Pid::from_raw);
    let id = id.expect("it runs");
    rustix::process::kill_process(id, Signal::TERM).expect("it is ours");
    wait_until("it ends", || {
        child.try_wait().expect("it can be looked at").is_some()
    });
}

/// A client that sends on and reads nothing does not have its answer, however much it says.
#[test]
fn what_is_not_read_is_not_delivered_by_the_next_message() {
    let setup = setup();
    let mut command = setup.gateway_command(false);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the command runs");
    let mut input = child.stdin.take().expect("it is a pipe");
    let mut say = |message: serde_json::Value| {
        writeln!(input, "{message}").expect("it listens");
    };
    say(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}));
    say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    say(
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "charge", "arguments": order()}}),
    );
    setup.desk.wait_for_effects(1);
    wait_until("it is recorded", || {
        setup
            .records()
            .iter()
            .any(|record| record["state"] == "succeeded")
    });
    say(
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "balance", "arguments": {}}}),
    );
    wait_until("it went on", || setup.desk.received_of("balance") == 1);
    let id = i32::try_from(child.id()).ok();
    let id = id.and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(id.expect("it runs"), Signal::TERM).expect("it is ours");
    wait_until("it ends", || {
        child.try_wait().expect("it can be looked at").is_some()
    });
    let heard = setup.client().call("charge", &order());
    assert_eq!(
        told(&heard),
        Told::Outcome("charge 1".to_owned()),
        "{heard:?}"
    );
    assert_eq!(setup.desk.effects(), 1);
}
