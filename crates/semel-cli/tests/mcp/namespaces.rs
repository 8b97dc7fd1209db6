//! Namespaces keep the clients of gateways on one store apart.

use serde_json::{Value, json};

use crate::desk::{Desk, Era};
use crate::harness::World;
use crate::http::Asked;
use crate::matrix::order;
use crate::server::Server;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::Client;

const ERA: Era = Era::Modern;

#[track_caller]
fn records(world: &World, namespace: &str) -> Vec<Value> {
    let listed = world.semel(&["--namespace", namespace, "list", "--json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    listed.json()
}

#[track_caller]
fn token(world: &World, namespace: &str, scope: &str) -> String {
    let words = [
        "token",
        "create",
        "--namespace",
        namespace,
        "--scope",
        scope,
    ];
    let made = world.semel(&words);
    assert_eq!(made.code, 0, "{made:?}");
    format!("Bearer {}", made.stdout.trim())
}

/// Sets up a gateway over HTTP in front of a child, with these words and settings.
fn setup(words: &'static [&'static str], toml: &str) -> Setup {
    Setup::told(
        words,
        Way::Gateway(Carrier::Http),
        Carrier::Stdio,
        ERA,
        toml,
    )
}

#[test]
fn namespace_of_a_gateway_is_that_of_its_operations() {
    for front in [Carrier::Stdio, Carrier::Http] {
        let words: &[&str] = &["--namespace", "ours"];
        let setup = Setup::told(words, Way::Gateway(front), Carrier::Stdio, ERA, "");
        let mut client = setup.client();
        let heard = client.call("charge", &order());
        assert_eq!(told(&heard), Told::Outcome("charge 1".to_owned()));
        let world = setup.desk.world();
        let found = records(world, "ours");
        assert_eq!(found.len(), 1, "{front:?}: {found:?}");
        assert_eq!(records(world, "default").len(), 0, "{front:?}");
    }
    let setup = Setup::configured(
        Way::Gateway(Carrier::Stdio),
        Carrier::Stdio,
        ERA,
        "namespace = \"by-setting\"\n",
    );
    setup.client().call("charge", &order());
    assert_eq!(records(setup.desk.world(), "by-setting").len(), 1);
}

#[test]
fn tokens_of_other_namespaces_are_refused_by_a_gateway_for_one() {
    for auth in ["required", "loopback"] {
        let desk = Desk::new();
        let theirs = token(desk.world(), "theirs", "admin");
        let ours = token(desk.world(), "ours", "write");
        let toml = format!("auth = \"{auth}\"\n");
        std::fs::write(desk.world().path("semel.toml"), toml).expect("it can be written");
        let mut words = vec![
            "mcp",
            "--namespace",
            "ours",
            "--listen",
            "127.0.0.1:0",
            "--",
        ];
        let server = desk.words();
        words.extend(server.iter().map(String::as_str));
        let mut command = desk.world().command(&words);
        desk.furnish(&mut command);
        let gateway = Server::spawn(&mut command);
        let mut client = Client::http_as(gateway.address(), ERA, &ours);
        let heard = client.call("charge", &order());
        assert_eq!(told(&heard), Told::Outcome("charge 1".to_owned()));
        for method in ["tools/list", "tools/call", "initialize", "ping"] {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "charge", "arguments": order()}});
            let asked = Asked::post("/mcp", &message).header("Authorization", &theirs);
            let asked = asked.header("Accept", "application/json, text/event-stream");
            let problem = gateway.ask(asked).problem(403, "forbidden");
            assert!(!problem.to_string().contains("ours"), "{problem}");
        }
        for method in ["GET", "DELETE"] {
            let asked = Asked::new(method, "/mcp").header("Authorization", &theirs);
            gateway.ask(asked).problem(403, "forbidden");
        }
        assert_eq!(desk.effects(), 1, "{auth}");
        assert_eq!(records(desk.world(), "ours").len(), 1, "{auth}");
        assert_eq!(records(desk.world(), "theirs").len(), 0, "{auth}");
    }
}

#[test]
fn operations_and_own_tools_of_a_token_are_in_its_namespace() {
    let toml = "auth = \"required\"\n[mcp]\nadmin_tools = \"on\"\n";
    let setup = setup(&[], toml);
    let world = setup.desk.world();
    let [one, two] = ["one", "two"].map(|namespace| token(world, namespace, "operate"));
    let mut first = setup.client_as(&one);
    setup.desk.next_fault("cut");
    let heard = first.call("charge", &order());
    assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
    let key = heard.result()["_meta"]["dev.semel/effect"]["key"].clone();
    assert_eq!(records(world, "one").len(), 1);
    assert_eq!(records(world, "default").len(), 0);
    let mut second = setup.client_as(&two);
    let listed = second.call("semel_list", &json!({})).result();
    assert_eq!(listed["content"][0]["text"], "there is none", "{listed}");
    for (tool, arguments) in [
        ("semel_status", json!({"key": key})),
        ("semel_resolve", json!({"key": key, "happened": true})),
    ] {
        let result = second.call(tool, &arguments).result();
        assert_eq!(result["isError"], true, "{tool}: {result}");
    }
    assert_eq!(records(world, "one")[0]["state"], "doubtful");
    let resolved = first.call("semel_resolve", &json!({"key": key, "happened": true}));
    assert_eq!(resolved.result()["isError"], false, "{resolved:?}");
    assert_eq!(records(world, "one")[0]["state"], "succeeded");
}

/// A doubt is an operator's to settle: a client whose token may only call is told so, whichever way it tries.
#[test]
fn doubts_are_settled_with_scope_operate_only() {
    let toml = "auth = \"required\"\n[mcp]\nadmin_tools = \"on\"\n";
    let setup = setup(&[], toml);
    let world = setup.desk.world();
    let writer = token(world, "default", "write");
    let mut client = setup.client_as(&writer);
    setup.desk.next_fault("cut");
    let heard = client.call("charge", &order());
    assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
    let result = heard.result();
    let text = result["content"][0]["text"].to_string();
    assert!(!text.contains("semel_resolve"), "it cannot call it: {text}");
    let key = result["_meta"]["dev.semel/effect"]["key"].clone();
    let status = client.call("semel_status", &json!({"key": key})).result();
    assert_eq!(status["isError"], false, "it may look: {status}");
    for happened in [true, false] {
        let arguments = json!({"key": key, "happened": happened});
        let result = client.call("semel_resolve", &arguments).result();
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].to_string();
        assert!(text.contains("operate"), "{text}");
    }
    assert_eq!(records(world, "default")[0]["state"], "doubtful");
}
