//! What an operator sees of the calls: `semel list --door mcp` and `semel show`.

use serde_json::{Value, json};

use crate::desk::Era;
use crate::matrix::order;
use crate::server::wait_until;
use crate::setup::{Carrier, Setup, Told, Way, told};

const SETTINGS: &str = "[mcp.tools.set_label]\nkey_from = [\"/order_id\"]\n";

fn setup(front: Carrier, upstream: Carrier) -> Setup {
    Setup::configured(Way::Gateway(front), upstream, Era::Modern, SETTINGS)
}

/// Makes a call of every kind.
fn played(front: Carrier, upstream: Carrier) -> Setup {
    let setup = setup(front, upstream);
    let mut client = setup.client();
    for meta in [
        json!({"dev.semel/key": "order-7"}),
        json!({"claudecode/toolUseId": "toolu_1"}),
    ] {
        let sent = client.start("charge", &order(), &meta);
        client.hear(sent);
    }
    client.call("set_label", &order());
    client.call("decline", &order());
    client.call("decline", &order());
    setup.desk.next_fault("cut");
    let heard = client.call("pay", &order());
    assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
    client.leave();
    setup
}

fn columns(table: &str) -> Vec<Vec<String>> {
    let rows = table.lines().map(|line| {
        let cells = line.split("  ").map(str::trim);
        let cells = cells.filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    });
    rows.collect()
}

#[test]
fn the_table_is_made_for_calls() {
    for (front, upstream) in [
        (Carrier::Stdio, Carrier::Stdio),
        (Carrier::Http, Carrier::Http),
    ] {
        let setup = played(front, upstream);
        // Whoever got an answer is marked a moment later.
        wait_until("the answers are marked as delivered", || {
            let records = setup.records();
            let delivered = records.iter().filter(|it| it["delivery"] == "delivered");
            delivered.count() == 5
        });
        let listed = setup.desk.world().semel(&["list", "--door", "mcp"]);
        let rows = columns(&listed.stdout);
        assert_eq!(
            rows[0],
            [
                "STATE",
                "TOOL",
                "DECISION",
                "KEY SOURCE",
                "DELIVERY",
                "AGE",
                "KEY",
                "NOTE"
            ],
            "{}",
            listed.stdout
        );
        let shown: Vec<Vec<&str>> = rows[1..]
            .iter()
            .map(|row| row[..5].iter().map(String::as_str).collect())
            .collect();
        assert_eq!(
            shown,
            [
                ["doubtful", "pay", "in_doubt", "fingerprint", "unknown"],
                ["failed", "decline", "executed", "fingerprint", "delivered"],
                ["failed", "decline", "executed", "fingerprint", "delivered"],
                [
                    "succeeded",
                    "set_label",
                    "executed",
                    "business",
                    "delivered"
                ],
                ["succeeded", "charge", "executed", "call_id", "delivered"],
                ["succeeded", "charge", "executed", "explicit", "delivered"],
            ],
            "{}",
            listed.stdout
        );
        assert!(
            rows[1]
                .last()
                .is_some_and(|note| note.starts_with("in doubt for "))
        );
        assert!(rows[2][6].ends_with("#2"), "{}", listed.stdout);
    }
}

#[test]
fn programs_get_what_the_key_was_made_from_and_its_number() {
    let setup = played(Carrier::Stdio, Carrier::Stdio);
    let records = setup.records();
    let shown: Vec<[&Value; 4]> = records
        .iter()
        .map(|it| {
            [
                &it["name"],
                &it["key_source"],
                &it["occurrence"],
                &it["decision"],
            ]
        })
        .collect();
    let expected = [
        ["pay", "fingerprint", "1", "in_doubt"],
        ["decline", "fingerprint", "2", "executed"],
        ["decline", "fingerprint", "1", "executed"],
        ["set_label", "business", "1", "executed"],
        ["charge", "call_id", "1", "executed"],
        ["charge", "explicit", "1", "executed"],
    ];
    let expected = expected.map(|[name, source, number, decision]| {
        let number: u32 = number.parse().expect("a number");
        [json!(name), json!(source), json!(number), json!(decision)]
    });
    let shown: Vec<[Value; 4]> = shown.into_iter().map(|row| row.map(Clone::clone)).collect();
    assert_eq!(shown, expected);
    // A person's word is no execution.
    setup.resolve("--done");
    assert_eq!(setup.records()[0]["decision"], "resolved");
}

#[test]
fn one_call_is_shown_with_what_it_was_recognised_by() {
    let setup = played(Carrier::Stdio, Carrier::Stdio);
    let key = setup.doubt();
    let shown = setup.desk.world().semel(&["show", &key]).stdout;
    for line in [
        "  door         mcp\n",
        "  key source   fingerprint\n",
        "  occurrence   1\n",
        "  decision     in_doubt\n",
        "  delivery     unknown\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    // Other doors have none of it.
    let world = setup.desk.world();
    world.semel(&["run", "--key", "k", "--", "true"]);
    let shown = world.semel(&["show", "k"]).stdout;
    assert!(!shown.contains("key source"), "{shown}");
    let record = &world.semel(&["show", "k", "--json"]).json()[0];
    assert_eq!(record.get("key_source"), None, "{record}");
}

/// Who was told of a doubt has no outcome: once it is resolved, their next call gets it.
#[test]
fn who_was_told_of_a_doubt_comes_for_the_outcome() {
    for (front, upstream) in [
        (Carrier::Stdio, Carrier::Stdio),
        (Carrier::Http, Carrier::Http),
    ] {
        let setup = setup(front, upstream);
        let mut client = setup.client();
        setup.desk.next_fault("cut");
        assert_eq!(told(&client.call("charge", &order())), Told::Doubt);
        // That the client went on proves that it has an answer, not that it has the outcome.
        client.call("balance", &json!({}));
        setup.resolve("--done");
        let heard = client.call("charge", &order());
        let text = heard.result()["content"][0]["text"].to_string();
        assert!(text.contains("nothing was done now"), "{heard:?}");
        assert_eq!(setup.desk.effects(), 1);
        // Now it has it.
        let heard = client.call("charge", &order());
        assert!(matches!(told(&heard), Told::Outcome(_)), "{heard:?}");
    }
}

#[test]
fn a_call_is_found_by_what_its_client_calls_it() {
    let setup = played(Carrier::Stdio, Carrier::Stdio);
    for name in ["order-7", "toolu_1"] {
        let shown = setup.desk.world().semel(&["show", name, "--json"]);
        assert_eq!(shown.code, 0, "{shown:?}");
        let record = &shown.json()[0];
        assert_eq!(record["client_key"], name, "{record}");
        let key = record["key"].as_str().expect("a key");
        assert!(key.starts_with("mcp/"), "{record}");
    }
}
