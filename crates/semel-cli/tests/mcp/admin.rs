//! The gateway's own tools, for hosts whose people have no terminal.

use serde_json::{Value, json};

use crate::desk::Era;
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::Client;

const TOOLS: [&str; 3] = ["semel_status", "semel_list", "semel_resolve"];

fn setup(front: Carrier, upstream: Carrier, era: Era) -> Setup {
    let toml = "[mcp]\nadmin_tools = \"on\"\n[mcp.tools.charge]\neffect = \"created\"\n";
    Setup::configured(Way::Gateway(front), upstream, era, toml)
}

#[track_caller]
fn listed(client: &mut Client) -> Vec<String> {
    let result = client.ask("tools/list", json!({})).result();
    let tools = result["tools"].as_array().expect("a list").iter();
    tools
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Calls one of them, and expects it to do what it is for.
#[track_caller]
fn said(client: &mut Client, tool: &str, arguments: &Value) -> String {
    let result = client.call(tool, arguments).result();
    assert_eq!(result["isError"], false, "{result}");
    result["content"][0]["text"]
        .as_str()
        .expect("a text")
        .to_owned()
}

/// Calls one of them, and expects it to say what is wrong.
#[track_caller]
fn complaint(client: &mut Client, tool: &str, arguments: &Value) -> String {
    let result = client.call(tool, arguments).result();
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"]
        .as_str()
        .expect("a text")
        .to_owned()
}

#[track_caller]
fn records(text: &str) -> Vec<Value> {
    let lines = text.lines().map(serde_json::from_str);
    lines.map(|line| line.expect("a record")).collect()
}

/// Makes a doubt; returns its key, as the model is told it.
#[track_caller]
fn doubt(setup: &Setup, client: &mut Client) -> String {
    setup.desk.next_fault("cut");
    let heard = client.call("charge", &order());
    assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
    let result = heard.result();
    let text = result["content"][0]["text"].to_string();
    assert!(
        text.contains("semel_resolve"),
        "it says what to call: {text}"
    );
    let receipt = &result["_meta"]["dev.semel/effect"];
    receipt["key"].as_str().expect("a key").to_owned()
}

#[test]
fn they_are_not_there_unless_asked_for() {
    for era in [Era::Legacy, Era::Modern] {
        let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, era);
        let mut client = setup.client();
        let names = listed(&mut client);
        assert!(
            TOOLS
                .iter()
                .all(|own| !names.iter().any(|name| name == own))
        );
        for tool in TOOLS {
            client.call(tool, &json!({"key": "k", "happened": true}));
            assert_eq!(
                setup.desk.received_of(tool),
                1,
                "it is the server's: {tool}"
            );
        }
    }
}

#[test]
fn they_are_listed_beside_the_servers_own() {
    for (front, upstream, era) in [
        (Carrier::Stdio, Carrier::Stdio, Era::Legacy),
        (Carrier::Http, Carrier::Http, Era::Modern),
    ] {
        let setup = setup(front, upstream, era);
        let mut client = setup.client();
        let names = listed(&mut client);
        assert!(TOOLS.iter().all(|own| names.iter().any(|name| name == own)));
        assert!(names.iter().any(|name| name == "charge"), "{names:?}");
        said(&mut client, "semel_list", &json!({}));
        assert_eq!(setup.desk.received_of("semel_list"), 0);
        assert_eq!(setup.records().len(), 0, "they are no calls themselves");
    }
}

#[test]
fn a_doubt_is_found_and_settled() {
    for (front, upstream, era) in [
        (Carrier::Stdio, Carrier::Stdio, Era::Legacy),
        (Carrier::Http, Carrier::Http, Era::Modern),
    ] {
        let setup = setup(front, upstream, era);
        let mut client = setup.client();
        let key = doubt(&setup, &mut client);
        let status = said(&mut client, "semel_status", &json!({"key": key}));
        let [record] = &records(&status)[..] else {
            panic!("{status}");
        };
        assert_eq!(
            (&record["state"], &record["decision"], &record["key_source"]),
            (
                &json!("doubtful"),
                &json!("in_doubt"),
                &json!("fingerprint")
            )
        );
        let doubtful = json!({"state": "doubtful"});
        let found = records(&said(&mut client, "semel_list", &doubtful));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["key"], json!(key));
        // It did not happen: then the tool runs.
        let not_done = json!({"key": key, "happened": false, "note": "the books say so"});
        let text = said(&mut client, "semel_resolve", &not_done);
        assert!(text.contains("Call the tool again"), "{text}");
        assert_eq!(setup.desk.effects(), 1);
        let heard = client.call("charge", &order());
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 2".to_owned()),
            "{heard:?}"
        );
        assert_eq!(said(&mut client, "semel_list", &doubtful), "there is none");
        let status = said(&mut client, "semel_status", &json!({"key": key}));
        let record = &records(&status)[0];
        assert_eq!(record["decision"], "executed");
        assert_eq!(record["resolved"]["note"], "the books say so");
        assert_eq!(
            record["data"]["result"]["structuredContent"]["count"], 2,
            "the answer is there: {record}"
        );
    }
}

#[test]
fn what_happened_is_not_done_again() {
    let setup = setup(Carrier::Stdio, Carrier::Stdio, Era::Modern);
    let mut client = setup.client();
    let key = doubt(&setup, &mut client);
    let done = json!({"key": key, "happened": true});
    said(&mut client, "semel_resolve", &done);
    assert_eq!(
        setup.records()[0]["effect"],
        "created",
        "as the settings say"
    );
    let heard = client.call("charge", &order());
    let text = heard.result()["content"][0]["text"].to_string();
    assert!(text.contains("nothing was done now"), "{heard:?}");
    assert_eq!(setup.desk.effects(), 1);
    // What is settled cannot be settled otherwise.
    let text = complaint(
        &mut client,
        "semel_resolve",
        &json!({"key": key, "happened": false}),
    );
    assert!(text.starts_with("semel: "), "{text}");
    assert_eq!(setup.records()[0]["state"], "succeeded");
}

#[test]
fn wrong_arguments_are_told_and_do_nothing() {
    let setup = setup(Carrier::Stdio, Carrier::Stdio, Era::Legacy);
    let mut client = setup.client();
    let key = doubt(&setup, &mut client);
    for (tool, arguments, why) in [
        ("semel_status", json!({}), "missing field `key`"),
        ("semel_status", json!({"key": 7}), "expected a string"),
        (
            "semel_status",
            json!({"key": "nobody's"}),
            "there is no call",
        ),
        ("semel_status", json!({"key": ""}), "there is no call"),
        ("semel_list", json!({"state": "lost"}), "`lost` is no state"),
        (
            "semel_list",
            json!({"limit": -1}),
            "the arguments are wrong",
        ),
        (
            "semel_resolve",
            json!({"key": key}),
            "missing field `happened`",
        ),
        (
            "semel_resolve",
            json!({"key": key, "happened": "no"}),
            "expected a boolean",
        ),
        (
            "semel_resolve",
            json!({"key": "nobody's", "happened": false}),
            "there is no call",
        ),
        (
            "semel_resolve",
            json!({"key": key, "happened": false, "note": ""}),
            "empty",
        ),
    ] {
        let text = complaint(&mut client, tool, &arguments);
        assert!(text.contains(why), "{tool} {arguments}: {text}");
    }
    assert_eq!(setup.doubt(), key, "it is as it was");
    assert_eq!(setup.desk.effects(), 1);
}

/// Operations of the command line are none of theirs.
#[test]
fn other_doors_are_not_seen() {
    let setup = setup(Carrier::Stdio, Carrier::Stdio, Era::Legacy);
    let ran = setup
        .desk
        .world()
        .semel(&["run", "--key", "order-7", "--", "false"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let mut client = setup.client();
    assert_eq!(said(&mut client, "semel_list", &json!({})), "there is none");
    let text = complaint(&mut client, "semel_status", &json!({"key": "order-7"}));
    assert!(text.contains("there is no call"), "{text}");
}

#[test]
fn nobody_sees_or_settles_what_belongs_to_another() {
    for era in [Era::Legacy, Era::Modern] {
        let setup = setup(Carrier::Http, Carrier::Http, era);
        let mut ann = setup.client_as("Bearer ann");
        let key = doubt(&setup, &mut ann);
        let mut bob = setup.client_as("Bearer bob");
        for number in 0..3 {
            let heard = bob.call("charge", &json!({"order_id": format!("b-{number}")}));
            assert!(matches!(told(&heard), Told::Outcome(_)), "{heard:?}");
        }
        for (tool, arguments) in [
            ("semel_status", json!({"key": key})),
            ("semel_resolve", json!({"key": key, "happened": false})),
            ("semel_resolve", json!({"key": key, "happened": true})),
        ] {
            let text = complaint(&mut bob, tool, &arguments);
            assert!(text.contains("there is no call"), "{tool}: {text}");
        }
        let text = complaint(&mut setup.client(), "semel_status", &json!({"key": key}));
        assert!(
            text.contains("there is no call"),
            "nobody is somebody else: {text}"
        );
        assert_eq!(setup.doubt(), key, "it is as it was");
        let found = records(&said(&mut bob, "semel_list", &json!({})));
        assert_eq!(found.len(), 3, "{found:?}");
        // Those of others come first and are passed over.
        let found = records(&said(&mut ann, "semel_list", &json!({"limit": 1})));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["key"], json!(key));
        said(
            &mut ann,
            "semel_resolve",
            &json!({"key": key, "happened": true}),
        );
    }
}

#[test]
fn a_doubt_is_found_and_settled_by_what_its_client_calls_it() {
    let setup = setup(Carrier::Stdio, Carrier::Stdio, Era::Modern);
    let mut client = setup.client();
    setup.desk.next_fault("cut");
    let key = json!({"dev.semel/key": "order-7"});
    let sent = client.start("charge", &order(), &key);
    let heard = client.hear(sent);
    assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
    let asked = json!({"key": "order-7"});
    let status = said(&mut client, "semel_status", &asked);
    let found = &records(&status)[0];
    assert_eq!(found["client_key"], "order-7", "{found}");
    let asked = json!({"key": "order-7", "happened": true});
    let settled = said(&mut client, "semel_resolve", &asked);
    let whole = found["key"].as_str().expect("a key");
    assert!(settled.starts_with(whole), "{settled}");
    let asked = json!({"key": "order-8"});
    complaint(&mut client, "semel_status", &asked);
    assert_eq!(setup.records()[0]["state"], "succeeded");
}
