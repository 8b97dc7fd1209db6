//! A breaker before a server that fails and recovers; what reaches it is counted by the server.

use serde_json::{Value, json};

use crate::desk::{Desk, Era};
use crate::harness::World;
use crate::market::Market;
use crate::matrix::order;
use crate::server::wait_until;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::{Client, Heard};

/// Opens after two failures in a row, for longer than a test lasts.
const SLOW: &str = "[breakers.bank]\nfailures = 2\ncool_down = \"1h\"\ncool_down_max = \"1h\"\n";

/// Opens after the first failure, for a second.
const QUICK: &str = "[breakers.bank]\nfailures = 1\ncool_down = \"1s\"\ncool_down_max = \"1s\"\n";

/// Opens after the first failure, for longer than a test lasts.
const FIRST: &str = "[breakers.bank]\nfailures = 1\ncool_down = \"1h\"\ncool_down_max = \"1h\"\n";

/// Tools that only read, as far as the gateway knows.
const READS: &str = "[mcp.tools]\nbalance.class = \"safe\"\nslow.class = \"safe\"\n\
                     fail.class = \"safe\"\nlookup.class = \"safe\"\n";

const WAYS: [(Carrier, Carrier, Era); 4] = [
    (Carrier::Stdio, Carrier::Stdio, Era::Legacy),
    (Carrier::Stdio, Carrier::Http, Era::Modern),
    (Carrier::Http, Carrier::Stdio, Era::Modern),
    (Carrier::Http, Carrier::Http, Era::Legacy),
];

/// Sets up one server with a breaker before it.
fn setup((front, upstream, era): (Carrier, Carrier, Era), toml: &str) -> Setup {
    let words = &["--breaker", "bank"];
    Setup::told(words, Way::Gateway(front), upstream, era, toml)
}

/// Returns an order of its own.
fn an_order(number: usize) -> Value {
    json!({"order_id": format!("o-{number}")})
}

/// Returns the only breaker; null where nobody has reported a call yet.
#[track_caller]
fn breaker(world: &World) -> Value {
    let listed = world.semel(&["breaker", "list", "--json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let mut lines = listed.json();
    assert!(lines.len() <= 1, "{lines:?}");
    lines.pop().unwrap_or_default()
}

/// Waits until the breaker would let a probe through.
#[track_caller]
fn wait_for_its_time(world: &World) {
    wait_until("its time has come", || {
        world.now(|engine| async move {
            let breakers = engine.breakers(None).await.expect("they are listed");
            let next = breakers.first().and_then(|it| it.retry_at);
            next.is_some_and(|at| at <= engine.store().now())
        })
    });
}

/// Checks that a call was refused by the breaker; returns what was said of it.
#[track_caller]
fn refused(heard: &Heard) -> Value {
    let result = heard.result();
    let receipt = &result["_meta"]["dev.semel/effect"];
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(receipt["outcome"], "refused", "{result}");
    assert_eq!(receipt["effect"], "noop", "{result}");
    let error = &receipt["error"];
    assert_eq!(error["code"], "breaker_open", "{result}");
    assert_eq!(error["retryable"], true, "{result}");
    assert!(error["hint"].is_string(), "{result}");
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("nothing was done now"), "{text}");
    error.clone()
}

#[test]
fn while_it_is_open_nothing_reaches_the_server_and_nothing_is_claimed() {
    for way in WAYS {
        let setup = setup(way, &format!("{SLOW}{READS}"));
        let mut client = setup.client();
        let key = json!({"dev.semel/key": "good"});
        let sent = client.start("charge", &order(), &key);
        let done = Told::Outcome("charge 1".to_owned());
        assert_eq!(told(&client.hear(sent)), done);
        for number in 0..2 {
            setup.desk.next_fault("error:-32603");
            let heard = client.call("charge", &an_order(number));
            assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
        }
        assert_eq!(breaker(setup.desk.world())["state"], "open", "{way:?}");
        let (reached, records) = (setup.desk.received_of("tools/call"), setup.records().len());
        for (tool, arguments) in [
            ("charge", an_order(7)),
            ("pay", an_order(8)),
            ("balance", json!({})),
        ] {
            let error = refused(&client.call(tool, &arguments));
            assert!(error["retry_at"].is_string(), "{tool}: {error}");
        }
        // Another client, and where it has one another gateway, knows.
        let mut other = setup.client();
        refused(&other.call("charge", &an_order(9)));
        // Whoever need not call the server is answered all the same: a replay, and what is known of a doubt.
        let sent = client.start("charge", &order(), &key);
        assert_eq!(told(&client.hear(sent)), done);
        assert_eq!(told(&client.call("charge", &an_order(0))), Told::Doubt);
        assert_eq!(
            setup.desk.received_of("tools/call"),
            reached,
            "{way:?}: the server was left alone"
        );
        assert_eq!(setup.records().len(), records, "nothing was claimed");
        assert_eq!(setup.desk.effects(), 3, "{way:?}");
        // Lists are no calls.
        let tools = client.ask("tools/list", json!({})).result();
        assert!(tools["tools"].is_array(), "{tools}");
        let verified = setup.desk.world().semel(&["verify"]);
        assert_eq!(verified.code, 0, "{verified:?}");
    }
}

#[test]
fn while_it_is_half_open_one_call_gets_through_and_its_success_closes_it() {
    for way in WAYS {
        let setup = setup(way, &format!("{QUICK}{READS}"));
        let mut client = setup.client();
        setup.desk.next_fault("error:-32603");
        assert_eq!(told(&client.call("charge", &order())), Told::Doubt);
        let mut others: Vec<_> = (0..3).map(|_| setup.client()).collect();
        wait_for_its_time(setup.desk.world());
        setup.desk.next_fault("hold");
        let probe = client.start("charge", &an_order(1), &json!({}));
        setup.desk.wait_for_effects(2);
        assert_eq!(breaker(setup.desk.world())["state"], "half_open");
        for (number, other) in others.iter_mut().enumerate() {
            refused(&other.call("charge", &an_order(10 + number)));
            refused(&other.call("balance", &json!({})));
        }
        assert_eq!(setup.desk.effects(), 2, "{way:?}: one probe");
        assert_eq!(setup.desk.received_of("balance"), 0);
        setup.desk.release();
        let heard = client.hear(probe);
        assert_eq!(told(&heard), Told::Outcome("charge 2".to_owned()));
        wait_until("it closes", || {
            breaker(setup.desk.world())["state"] == "closed"
        });
        let heard = others[0].call("charge", &an_order(10));
        assert_eq!(told(&heard), Told::Outcome("charge 3".to_owned()));
    }
}

#[test]
fn what_shows_that_the_server_works_counts_as_a_success_whatever_it_says() {
    let (child, web) = (WAYS[0], WAYS[1]);
    for (way, fault, tool, code, opens) in [
        (child, "", "charge", 0, false),
        (child, "", "decline", 0, false),
        (child, "", "flaky", 0, false),
        (child, "", "fail", -32602, false),
        (child, "", "fail", -32601, false),
        (child, "", "fail", -32603, true),
        (child, "", "fail", -32000, true),
        (child, "", "fail", 1234, true),
        (child, "exit-before", "charge", 0, true),
        (child, "exit-after", "charge", 0, true),
        (child, "mute", "charge", 0, true),
        (web, "", "decline", 0, false),
        (web, "cut", "charge", 0, true),
        (web, "status:404", "charge", 0, false),
        (web, "status:429", "charge", 0, true),
        (web, "status:503", "charge", 0, true),
    ] {
        let timeout = "[mcp]\ntimeout = \"1s\"\n";
        let setup = setup(way, &format!("{FIRST}{timeout}"));
        if !fault.is_empty() {
            setup.desk.next_fault(fault);
        }
        let mut client = setup.client();
        let mut arguments = order();
        arguments["code"] = json!(code);
        client.call(tool, &arguments);
        let found = breaker(setup.desk.world());
        let is_open = found["state"] == "open";
        assert_eq!(is_open, opens, "{fault} {tool} {code}: {found}");
        assert_eq!(setup.desk.received_of("tools/call"), 1);
    }
}

#[test]
fn what_only_reads_counts_as_well() {
    for way in WAYS {
        let setup = setup(way, &format!("{SLOW}{READS}"));
        let mut client = setup.client();
        let failing = json!({"order_id": "o-7", "code": -32603});
        for _ in 0..2 {
            let heard = client.call("fail", &failing);
            assert_eq!(told(&heard), Told::Error(-32603), "as it was said");
        }
        refused(&client.call("fail", &failing));
        refused(&client.call("charge", &order()));
        assert_eq!(setup.desk.received_of("tools/call"), 2, "{way:?}");
        assert_eq!(setup.records(), Vec::<Value>::new());
    }
}

#[test]
fn a_server_that_is_not_there_opens_it() {
    let desk = Desk::new();
    let toml = format!(
        "{SLOW}{READS}[mcp.servers.bank]\ncommand = \"/nowhere/server\"\nbreaker = \"bank\"\n"
    );
    std::fs::write(desk.world().path("semel.toml"), toml).expect("it can be written");
    let mut command = desk.world().command(&["mcp"]);
    let mut client = Client::silent(&mut command, Era::Modern);
    assert_eq!(
        told(&client.call("charge", &order())),
        Told::Held("not_done".to_owned())
    );
    assert_eq!(told(&client.call("balance", &json!({}))), Told::Error(1502));
    refused(&client.call("charge", &order()));
    refused(&client.call("balance", &json!({})));
}

#[test]
fn a_probe_that_is_cancelled_gives_its_place_back() {
    for way in [WAYS[0], WAYS[3]] {
        let setup = setup(way, &format!("{QUICK}{READS}"));
        let mut client = setup.client();
        let failing = json!({"order_id": "o-7", "code": -32603});
        client.call("fail", &failing);
        let opened = breaker(setup.desk.world());
        assert_eq!(opened["state"], "open");
        wait_for_its_time(setup.desk.world());
        let probe = client.start("slow", &an_order(1), &json!({}));
        wait_until("the probe is at the server", || {
            breaker(setup.desk.world())["state"] == "half_open" && setup.desk.effects() == 2
        });
        client.cancel(probe);
        // Nobody knows whether the server works: it did not become worse, and another may try at once.
        wait_until("the place is free", || {
            let now = breaker(setup.desk.world());
            now["state"] == "open" && now["times_opened"] == opened["times_opened"]
        });
        let heard = setup.client().call("charge", &an_order(2));
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 3".to_owned()),
            "{way:?}"
        );
        assert_eq!(breaker(setup.desk.world())["state"], "closed");
    }
}

/// Whoever waits for another attempt claims when that did nothing, and meets what became of the breaker meanwhile.
#[test]
fn who_waited_for_another_attempt_asks_again_and_gives_its_claim_back() {
    let setup = setup(WAYS[0], SLOW);
    let mut client = setup.client();
    setup.desk.next_fault("hold");
    let refused_late = json!({"order_id": "o-7", "code": -32601});
    let key = json!({"dev.semel/key": "k"});
    let first = client.start("fail", &refused_late, &key);
    setup.desk.wait_for_effects(1);
    let second = client.start("fail", &refused_late, &key);
    // Its turn came before this one's.
    client.ask("tools/list", json!({})).result();
    let opened = setup.desk.world().semel(&["breaker", "open", "bank"]);
    assert_eq!(opened.code, 0, "{opened:?}");
    setup.desk.release();
    assert_eq!(told(&client.hear(first)), Told::Error(-32601));
    refused(&client.hear(second));
    assert_eq!(setup.desk.effects(), 1);
    // Nothing is left of it: the next one runs.
    let closed = setup.desk.world().semel(&["breaker", "close", "bank"]);
    assert_eq!(closed.code, 0, "{closed:?}");
    let sent = client.start("fail", &refused_late, &key);
    assert_eq!(told(&client.hear(sent)), Told::Error(-32601));
    assert_eq!(setup.desk.effects(), 2);
}

/// A verify tool is a call of the same server.
#[test]
fn a_doubt_is_not_looked_up_while_it_is_open() {
    for way in [WAYS[0], WAYS[3]] {
        let verify = r#"{ tool = "lookup", arguments = { order_id = "{/order_id}" }, pointer = "/found", after = "0s" }"#;
        let setup = setup(
            way,
            &format!("{FIRST}[mcp.tools.charge]\nverify = {verify}\n"),
        );
        let mut client = setup.client();
        setup.desk.next_fault("error:-32603");
        assert_eq!(told(&client.call("charge", &order())), Told::Doubt);
        refused(&client.call("charge", &order()));
        assert_eq!(setup.desk.received_of("lookup"), 0, "{way:?}");
        let closed = setup.desk.world().semel(&["breaker", "close", "bank"]);
        assert_eq!(closed.code, 0, "{closed:?}");
        let heard = client.call("charge", &order()).result();
        let text = heard["content"][0]["text"].as_str().expect("a text");
        assert!(text.contains("took effect, as was looked up"), "{heard}");
        assert_eq!(setup.desk.effects(), 1, "{way:?}");
    }
}

#[test]
fn each_of_several_servers_has_its_own() {
    for front in [Carrier::Stdio, Carrier::Http] {
        for era in [Era::Legacy, Era::Modern] {
            let mut market = Market::new(front, era);
            let bank = format!("{}breaker = \"bank\"\n", market.bank_table());
            let tables = [SLOW.to_owned(), READS.to_owned(), bank, market.shop_table()];
            market.configure(&tables);
            let mut client = market.client();
            for number in 0..2 {
                market.bank.next_fault("error:-32603");
                let heard = client.call("bank_charge", &an_order(number));
                assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
            }
            let reached = market.bank.received_of("tools/call");
            let error = refused(&client.call("bank_charge", &order()));
            let said = error["message"].as_str().unwrap_or_default();
            assert!(said.contains("`bank_charge`"), "{error}");
            refused(&client.call("bank_balance", &json!({})));
            assert_eq!(market.bank.received_of("tools/call"), reached);
            let heard = client.call("shop_charge", &order());
            assert_eq!(told(&heard), Told::Outcome("charge 1".to_owned()));
            client.call("shop_balance", &json!({})).result();
            assert_eq!(market.effects(), (2, 1));
        }
    }
}

#[test]
fn a_person_opens_it_before_its_first_call() {
    let setup = setup(WAYS[0], SLOW);
    let opened = setup.desk.world().semel(&["breaker", "open", "bank"]);
    assert_eq!(opened.code, 0, "{opened:?}");
    let mut client = setup.client();
    let error = refused(&client.call("charge", &order()));
    assert_eq!(error.get("retry_at"), None, "nobody knows when");
    let hint = error["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("semel breaker close"), "{error}");
    assert_eq!(setup.records(), Vec::<Value>::new());
}

#[test]
fn what_is_said_of_it_is_checked() {
    let desk = Desk::new();
    let file = desk.world().path("semel.toml");
    let server = |name: &str, breaker: &str| {
        format!("[mcp.servers.{name}]\ncommand = \"true\"\nbreaker = {breaker}\n")
    };
    for (toml, said) in [
        (server("bank", "7"), "`breaker` must be a string"),
        (server("bank", "\"\""), "`breaker`: its name"),
    ] {
        std::fs::write(&file, toml).expect("it can be written");
        let ran = desk.world().semel(&["mcp"]);
        assert_eq!(ran.code, 64, "{ran:?}");
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
    let several = [server("bank", "\"b\""), server("shop", "\"b\"")].concat();
    std::fs::write(&file, several).expect("it can be written");
    let ran = desk.world().semel(&["mcp", "--breaker", "other"]);
    assert_eq!(ran.code, 64, "{ran:?}");
    assert!(
        ran.stderr.contains("--breaker is for one server"),
        "{ran:?}"
    );
}
