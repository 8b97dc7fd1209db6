//! Several servers behind one gateway.

use serde_json::{Value, json};

use crate::desk::Era;
use crate::direct::agreed_to;
use crate::http::{Asked, Connection};
use crate::market::{BANK, Market};
use crate::matrix::order;
use crate::setup::{Carrier, Told, told};
use crate::wire::{Client, MODERN};

fn everywhere(play: impl Fn(Market)) {
    for front in [Carrier::Stdio, Carrier::Http] {
        for era in [Era::Legacy, Era::Modern] {
            play(Market::new(front, era));
        }
    }
}

fn done(text: &str) -> Told {
    Told::Outcome(text.to_owned())
}

#[track_caller]
fn names(client: &mut Client) -> Vec<String> {
    let listed = client.ask("tools/list", json!({})).result();
    let tools = listed["tools"].as_array().expect("a list");
    let names = tools.iter().map(|tool| tool["name"].as_str());
    names.map(|name| name.expect("a name").to_owned()).collect()
}

#[test]
fn tools_are_listed_by_names_of_their_own_and_led_to_their_servers() {
    everywhere(|market| {
        let mut client = market.client();
        assert_eq!(
            names(&mut client),
            [
                "bank_charge",
                "bank_slow",
                "bank_balance",
                "pay",
                "bank_ask",
                "shop_charge",
                "shop_slow",
                "shop_balance",
                "shop_ask",
                "lookup",
                "route",
            ]
        );
        let heard = client.call("bank_charge", &order());
        assert_eq!(told(&heard), done("charge 1"), "{heard:?}");
        assert_eq!(market.effects(), (1, 0));
        for count in 1..=2 {
            let heard = client.call("shop_charge", &order());
            assert_eq!(told(&heard), done(&format!("charge {count}")), "{heard:?}");
        }
        assert_eq!(market.effects(), (1, 2));
        let refused = client.call("charge", &order()).error();
        assert_eq!(refused["code"], -32602);
        let said = refused["message"].as_str().expect("a text");
        assert!(said.contains("`bank_charge` or `shop_charge`"), "{said}");
        let refused = client.call("refund", &order()).error();
        assert_eq!(refused["code"], -32602);
        assert_eq!(market.effects(), (1, 2));
        // The server hears its own name, and its own credentials.
        let calls = market.shop.received();
        let calls: Vec<_> = calls
            .iter()
            .filter(|it| {
                it["raw"]
                    .as_str()
                    .is_some_and(|raw| raw.contains("tools/call"))
            })
            .collect();
        assert_eq!(calls.len(), 2);
        for call in calls {
            let raw: Value =
                serde_json::from_str(call["raw"].as_str().expect("a text")).expect("a message");
            assert_eq!(raw["params"]["name"], "charge");
            assert_eq!(raw["params"]["arguments"], order());
            assert_eq!(call["headers"]["authorization"], "Bearer of-the-shop");
        }
    });
}

#[test]
fn a_call_needs_no_list_before_it() {
    everywhere(|market| {
        let mut client = market.client();
        // An argument of this one is repeated in a header, which only the list tells.
        let arguments = json!({"order_id": "o-7", "region": "eu"});
        let heard = client.call("route", &arguments);
        assert_eq!(told(&heard), done("route 1"), "{heard:?}");
        let heard = client.call("pay", &order());
        assert_eq!(told(&heard), done("paid"), "{heard:?}");
        assert_eq!(market.effects(), (1, 1));
    });
}

#[test]
fn identical_calls_to_two_servers_are_two_operations() {
    everywhere(|market| {
        let mut client = market.client();
        let key = json!({"dev.semel/key": "order-7"});
        for _ in 0..2 {
            for tool in ["bank_charge", "shop_charge"] {
                let sent = client.start(tool, &order(), &key);
                let heard = client.hear(sent);
                assert_eq!(told(&heard), done("charge 1"), "{heard:?}");
            }
        }
        assert_eq!(market.effects(), (1, 1));
        let records = market.records();
        assert_eq!(records.len(), 2, "{records:?}");
        assert!(
            records.iter().all(|it| it["name"] == "charge"),
            "{records:?}"
        );
    });
}

#[test]
fn a_server_that_dies_leaves_its_doubt_and_the_others() {
    everywhere(|market| {
        let mut client = market.client();
        market.bank.next_fault("exit-after");
        let heard = client.call("bank_charge", &order());
        assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
        // It is started again, for the same client.
        let heard = client.call("bank_charge", &json!({"order_id": "o-6"}));
        assert_eq!(told(&heard), done("charge 2"), "{heard:?}");
        let heard = client.call("shop_charge", &order());
        assert_eq!(told(&heard), done("charge 1"), "{heard:?}");
        market.shop.next_fault("cut");
        let other = json!({"order_id": "o-8"});
        let heard = client.call("shop_charge", &other);
        assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
        // Whoever asks again, here or elsewhere, makes nothing happen.
        for _ in 0..2 {
            let heard = client.call("bank_charge", &order());
            assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
            let heard = client.call("shop_charge", &other);
            assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
            client.leave();
            client = market.client();
        }
        assert_eq!(market.effects(), (2, 2));
        // What was not lost runs.
        let heard = client.call("bank_charge", &other);
        assert_eq!(told(&heard), done("charge 3"), "{heard:?}");
    });
}

#[test]
fn a_call_is_the_same_when_the_other_server_is_gone() {
    everywhere(|mut market| {
        let mut client = market.client();
        let key = json!({"dev.semel/key": "order-7"});
        let sent = client.start("shop_charge", &order(), &key);
        assert_eq!(told(&client.hear(sent)), done("charge 1"));
        client.leave();
        // Alone it is served directly, and its tools have their own names.
        market.configure(&[market.shop_table()]);
        let mut client = market.client();
        assert!(names(&mut client).contains(&"charge".to_owned()));
        let sent = client.start("charge", &order(), &key);
        let heard = client.hear(sent);
        assert_eq!(told(&heard), done("charge 1"), "{heard:?}");
        assert_eq!(market.effects(), (0, 1));
        let unknown = client.ask("x/unknown", json!({"n": 1})).result();
        assert!(unknown["raw"].is_string(), "it is passed on: {unknown}");
        client.leave();
        // With another one that has no such tool, both names will do.
        let bank = market.bank_table().replace(BANK, "pay");
        market.configure(&[bank, market.shop_table()]);
        let mut client = market.client();
        for tool in ["charge", "shop_charge"] {
            let sent = client.start(tool, &order(), &key);
            let heard = client.hear(sent);
            assert_eq!(told(&heard), done("charge 1"), "{heard:?}");
        }
        assert_eq!(market.effects(), (0, 1));
        let refused = client.ask("x/unknown", json!({})).error();
        assert_eq!(refused["code"], -32601);
    });
}

#[test]
fn what_is_lost_is_found_again_by_another_gateway() {
    for era in [Era::Legacy, Era::Modern] {
        let market = Market::new(Carrier::Stdio, era);
        let mut client = market.client();
        client.start("bank_slow", &order(), &json!({}));
        client.start("shop_slow", &order(), &json!({}));
        market.bank.wait_for_effects(1);
        market.shop.wait_for_effects(1);
        client.child().kill();
        let mut client = market.client();
        for tool in ["shop_slow", "bank_slow"] {
            let heard = client.call(tool, &order());
            assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
        }
        assert_eq!(market.effects(), (1, 1));
    }
}

#[test]
fn servers_among_others_ask_back() {
    everywhere(|market| {
        let mut client = market.client_with(&json!({"elicitation": {}}));
        for count in 1..=2 {
            for tool in ["bank_ask", "shop_ask"] {
                let heard = agreed_to(tool, &mut client, market.era);
                assert_eq!(heard, done(&format!("ask {count}")));
            }
        }
        assert_eq!(market.effects(), (2, 2));
    });
}

#[test]
fn progress_and_reads_pass() {
    everywhere(|mut market| {
        let reads = "[mcp.servers.shop.tools.balance]\nclass = \"safe\"\n".to_owned();
        market.configure(&[market.bank_table(), market.shop_table(), reads]);
        let mut client = market.client();
        market.bank.release();
        let token = json!({"progressToken": "p-1"});
        let sent = client.start("bank_slow", &order(), &token);
        let (asides, heard) = client.hear_all(sent);
        assert_eq!(told(&heard), done("slow 1"), "{heard:?}");
        assert!(
            asides.iter().any(|text| text.contains("\"p-1\"")),
            "{asides:?}"
        );
        for _ in 0..2 {
            let heard = client.call("shop_balance", &json!({}));
            assert_eq!(told(&heard), done("0 effects"), "{heard:?}");
            let result = heard.result();
            assert!(result["_meta"]["dev.semel/effect"].is_null(), "{result}");
        }
        // What is said of one server's tool holds for no other.
        let result = client.call("bank_balance", &json!({})).result();
        assert!(result["_meta"]["dev.semel/effect"].is_object(), "{result}");
    });
}

#[test]
fn a_server_that_cannot_start_is_left_out_and_named() {
    everywhere(|mut market| {
        let broken = "[mcp.servers.broken]\ncommand = \"/nowhere/server\"\n".to_owned();
        market.configure(&[broken, market.bank_table(), market.shop_table()]);
        let mut client = market.client();
        let said = client.greet().result();
        let said = said["instructions"].as_str().expect("a text").to_owned();
        assert!(said.contains("broken is left out"), "{said}");
        assert_eq!(names(&mut client).len(), 11);
        let heard = client.call("bank_charge", &order());
        assert_eq!(told(&heard), done("charge 1"), "{heard:?}");
    });
}

#[test]
fn what_a_server_wants_to_know_over_http_is_not_asked_of_the_client() {
    let market = Market::new(Carrier::Http, Era::Modern);
    market.shop.next_fault("status:401");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "shop_charge", "arguments": order(), "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let asked = Asked::new("POST", "/mcp")
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .header("MCP-Protocol-Version", MODERN)
        .header("Mcp-Method", "tools/call")
        .header("Mcp-Name", "shop_charge")
        .body(call.to_string().as_bytes());
    let mut connection = Connection::open(market.address()).expect("somebody listens");
    connection.send(&asked.bytes()).expect("it can be sent");
    let answer = connection.answer().expect("it is answered");
    // A client that met a 401 would log in at the gateway.
    assert_eq!(answer.status, 200, "{answer:?}");
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(said.contains("HTTP 401"), "{said}");
}
