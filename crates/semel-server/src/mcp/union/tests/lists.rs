use serde_json::{Value, json};

use super::fake::{Does, Fake, Script, World, tools};
use crate::mcp::message::Message;
use crate::mcp::upstream::Upstream as _;

const SHOP: Script = |request: &Value, _: &Fake| match request["params"]["cursor"].as_str() {
    None if request["method"] == "tools/list" => {
        let raw = json!({"name": "charge", "title": "Charge", "x": 1});
        Does::Answers(json!({"tools": [raw, {"name": "refund"}], "nextCursor": "2"}))
    }
    None if request["method"] == "server/discover" => tools(request, &[]),
    Some("2") => Does::Answers(json!({"tools": [{"name": "semel_list"}]})),
    _ => Does::Refuses(-32601),
};

const BANK: Script = |request: &Value, fake: &Fake| {
    if request["params"]["name"] == "change" {
        for method in ["notifications/tools/list_changed", "x/second", "x/third"] {
            fake.say(&json!({"jsonrpc": "2.0", "method": method}));
        }
    }
    tools(request, &["charge", "balance", "change"])
};

const NOTHING: Script = |_: &Value, _: &Fake| Does::Refuses(-32601);
const DEAD: Script = |_: &Value, _: &Fake| Does::Dies;

fn listed(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().expect("a list");
    let names = tools.iter().map(|tool| tool["name"].as_str());
    names.map(|name| name.expect("a name")).collect()
}

#[tokio::test]
async fn all_pages_of_all_servers_are_one_list() {
    let mut world = World::new(&[
        ("shop", SHOP),
        ("bank", BANK),
        ("none", NOTHING),
        ("dead", DEAD),
    ]);
    let answer = world.ask("tools/list", json!({})).await;
    let names = [
        "shop_charge",
        "refund",
        "shop_semel_list",
        "bank_charge",
        "balance",
        "change",
    ];
    assert_eq!(listed(&answer), names);
    let charge = json!({"name": "shop_charge", "title": "Charge", "x": 1});
    assert_eq!(answer["result"]["tools"][0], charge);
    assert_eq!(answer["result"]["nextCursor"], Value::Null);
    let answer = world.ask("tools/list", json!({"cursor": "2"})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn where_nobody_has_a_list_the_first_one_says_so() {
    let mut world = World::new(&[("none", NOTHING), ("bank", BANK)]);
    let answer = world.ask("prompts/list", json!({})).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let mut world = World::new(&[("dead", DEAD), ("dead2", DEAD)]);
    let answer = world.ask("tools/list", json!({})).await;
    let said = answer["error"]["message"].as_str().expect("an error");
    assert!(said.contains("dead: the server ended"), "{said}");
}

#[tokio::test]
async fn a_call_is_led_to_the_server_that_has_the_tool() {
    let mut world = World::new(&[("shop", SHOP), ("bank", BANK), ("dead", DEAD)]);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "progressToken": 1});
    for (name, own) in [("balance", "balance"), ("bank_charge", "charge")] {
        let params = json!({"name": name, "arguments": {"n": 1.0}, "_meta": meta});
        let answer = world.ask("tools/call", params).await;
        assert_eq!(answer["result"]["called"], own, "{answer}");
    }
    // The servers were asked before, once, in the client's own protocol.
    let lists = world.received("bank", "tools/list");
    assert_eq!(lists.len(), 1);
    let version = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    assert_eq!(lists[0]["params"], json!({"_meta": version}));
    assert_eq!(
        world.received("dead", "server/discover").len(),
        1,
        "it is not tried again at once"
    );

    let answer = world.ask("tools/call", json!({"name": "charge"})).await;
    let said = answer["error"]["message"].as_str().expect("an error");
    assert!(said.contains("`shop_charge` or `bank_charge`"), "{said}");
    let answer = world.ask("tools/call", json!({"name": "none"})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn a_list_that_changed_is_asked_for_again() {
    let mut world = World::new(&[("shop", SHOP), ("bank", BANK)]);
    world
        .send(1, "tools/call", &json!({"name": "change"}))
        .await;
    for method in ["notifications/tools/list_changed", "x/second", "x/third"] {
        assert_eq!(world.next().await["method"], method);
    }
    assert_eq!(world.next().await["id"], 1);
    world.ask("tools/call", json!({"name": "balance"})).await;
    assert_eq!(world.received("bank", "tools/list").len(), 2);
    assert_eq!(
        world.received("shop", "tools/list").len(),
        2,
        "its two pages, once"
    );
}

#[tokio::test]
async fn who_did_not_answer_is_asked_again_when_it_matters() {
    let world = World::new(&[("bank", BANK), ("dead", DEAD)]);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}});
    let call = Message::read(call.to_string()).expect("a message");
    for (again, asked) in [(false, 1), (false, 1), (true, 2)] {
        world.union.look(&call, again).await;
        assert_eq!(world.received("dead", "tools/list").len(), asked);
        assert_eq!(world.received("bank", "tools/list").len(), 1);
    }
}
