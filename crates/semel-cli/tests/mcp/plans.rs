//! Previews say what a call would do, and their plans let exactly that call through, once.

use serde_json::{Value, json};

use crate::desk::Era;
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::{Client, Heard};

const REQUIRED: &str =
    "[mcp.tools.charge]\nrequire_plan = true\n[mcp.tools.pay]\nrequire_plan = true\n";

fn setup(front: Carrier, upstream: Carrier, era: Era) -> Setup {
    Setup::configured(Way::Gateway(front), upstream, era, REQUIRED)
}

#[track_caller]
fn call_with(client: &mut Client, tool: &str, arguments: &Value, meta: &Value) -> Heard {
    let sent = client.start(tool, arguments, meta);
    client.hear(sent)
}

/// Asks what a call would do; returns the receipt, with the plan in it.
#[track_caller]
fn preview(client: &mut Client, arguments: &Value, more: &Value) -> Value {
    let mut meta = more.clone();
    meta["dev.semel/preview"] = json!(true);
    let heard = call_with(client, "charge", arguments, &meta);
    assert_eq!(told(&heard), Told::Held("preview".to_owned()), "{heard:?}");
    heard.result()["_meta"]["dev.semel/effect"].clone()
}

fn planned(receipt: &Value) -> Value {
    json!({"dev.semel/plan": receipt["plan"]})
}

fn refused() -> Told {
    Told::Held("refused".to_owned())
}

fn outcome(count: usize) -> Told {
    Told::Outcome(format!("charge {count}"))
}

#[test]
fn a_tool_that_needs_a_plan_runs_only_with_one() {
    for (front, upstream, era) in [
        (Carrier::Stdio, Carrier::Stdio, Era::Legacy),
        (Carrier::Http, Carrier::Stdio, Era::Modern),
        (Carrier::Http, Carrier::Http, Era::Legacy),
    ] {
        let setup = setup(front, upstream, era);
        let mut client = setup.client();
        let heard = client.call("charge", &order());
        assert_eq!(told(&heard), refused(), "{heard:?}");
        let text = heard.result()["content"][0]["text"].to_string();
        assert!(text.contains("dev.semel/preview"), "{text}");
        let receipt = preview(&mut client, &order(), &json!({}));
        assert_eq!(receipt["changes"], json!(["It would run, as attempt 1"]));
        assert_eq!(setup.desk.received_of("charge"), 0, "{era:?}");
        assert_eq!(setup.records().len(), 0, "{era:?}");
        let heard = call_with(&mut client, "charge", &order(), &planned(&receipt));
        assert_eq!(told(&heard), outcome(1), "{era:?}: {heard:?}");
        let done = &heard.result()["_meta"]["dev.semel/effect"];
        assert_eq!(
            done["key"], receipt["key"],
            "it is the one that was previewed"
        );
        assert_eq!(setup.desk.effects(), 1, "{era:?}");
    }
}

#[test]
fn a_used_plan_gets_what_it_got_and_runs_nothing() {
    for (front, upstream, era) in [
        (Carrier::Stdio, Carrier::Stdio, Era::Modern),
        (Carrier::Http, Carrier::Http, Era::Modern),
    ] {
        let setup = setup(front, upstream, era);
        let mut client = setup.client();
        let receipt = preview(&mut client, &order(), &json!({}));
        let plan = planned(&receipt);
        for _ in 0..3 {
            let heard = call_with(&mut client, "charge", &order(), &plan);
            assert_eq!(told(&heard), outcome(1), "{heard:?}");
            // Another message of the same client proves that it has the answer.
            client.call("balance", &json!({}));
        }
        if front == Carrier::Http {
            let heard = call_with(&mut setup.client(), "charge", &order(), &plan);
            assert_eq!(told(&heard), outcome(1), "{heard:?}");
        }
        assert_eq!(setup.desk.effects(), 1);
        // What is meant to happen again has a plan of its own.
        let next = preview(&mut client, &order(), &json!({}));
        let heard = call_with(&mut client, "charge", &order(), &planned(&next));
        assert_eq!(told(&heard), outcome(2), "{heard:?}");
        assert_eq!(setup.desk.effects(), 2);
    }
}

/// A model that plans its call gets another call id for each step of it.
#[test]
fn a_plan_counts_whatever_id_a_harness_gives_its_call() {
    let setup = setup(Carrier::Stdio, Carrier::Stdio, Era::Legacy);
    let mut client = setup.client();
    let id = |id: &str| json!({"claudecode/toolUseId": id});
    let receipt = preview(&mut client, &order(), &id("toolu_1"));
    for number in 2..5 {
        let mut meta = id(&format!("toolu_{number}"));
        meta["dev.semel/plan"] = receipt["plan"].clone();
        let heard = call_with(&mut client, "charge", &order(), &meta);
        assert_eq!(told(&heard), outcome(1), "{heard:?}");
    }
    assert_eq!(setup.desk.effects(), 1);
}

#[test]
fn a_plan_is_for_its_own_call() {
    let setup = setup(Carrier::Stdio, Carrier::Stdio, Era::Modern);
    let mut client = setup.client();
    let receipt = preview(&mut client, &order(), &json!({}));
    let plan = planned(&receipt);
    let mut dearer = order();
    dearer["amount"] = json!(4_201);
    let mut elsewhere = plan.clone();
    elsewhere["threadId"] = json!("another conversation");
    let mut later = receipt["plan"].as_str().expect("a text").to_owned();
    let digit = later.find('.').expect("a dot") + 1;
    later.replace_range(digit..=digit, "9");
    for (tool, arguments, meta) in [
        ("charge", &dearer, &plan),
        ("pay", &order(), &plan),
        ("charge", &order(), &elsewhere),
        ("charge", &order(), &json!({"dev.semel/plan": later})),
        ("charge", &order(), &json!({"dev.semel/plan": "made up"})),
        ("charge", &order(), &json!({"dev.semel/plan": ""})),
        ("charge", &order(), &json!({"dev.semel/plan": true})),
    ] {
        let heard = call_with(&mut client, tool, arguments, meta);
        assert_eq!(told(&heard), refused(), "{tool}, {meta}: {heard:?}");
    }
    assert_eq!(setup.desk.effects(), 0);
    // Another gateway does not know it.
    let heard = call_with(&mut setup.client(), "charge", &order(), &plan);
    assert_eq!(told(&heard), refused(), "{heard:?}");
    assert_eq!(setup.desk.effects(), 0);
}

#[test]
fn a_plan_is_for_its_own_principal() {
    for era in [Era::Legacy, Era::Modern] {
        let setup = setup(Carrier::Http, Carrier::Http, era);
        let mut ann = setup.client_as("Bearer ann");
        let receipt = preview(&mut ann, &order(), &json!({}));
        let mut bob = setup.client_as("Bearer bob");
        let heard = call_with(&mut bob, "charge", &order(), &planned(&receipt));
        assert_eq!(told(&heard), refused(), "{heard:?}");
        assert_eq!(setup.desk.effects(), 0);
        let heard = call_with(&mut ann, "charge", &order(), &planned(&receipt));
        assert_eq!(told(&heard), outcome(1), "{heard:?}");
    }
}

/// A preview of what was lost says that nothing would run.
#[test]
fn a_preview_says_what_would_become_of_the_call() {
    let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, Era::Legacy);
    let mut client = setup.client();
    client.call("charge", &order());
    let again = preview(&mut client, &order(), &json!({}));
    let changes = again["changes"][0].as_str().expect("a text");
    assert!(changes.starts_with("It would run once more"), "{again}");
    setup.desk.next_fault("exit-after");
    client.call("charge", &json!({"order_id": "o-8"}));
    let held = preview(&mut client, &json!({"order_id": "o-8"}), &json!({}));
    assert_eq!(
        held["changes"][0],
        "It would be held: an earlier call is in doubt"
    );
    assert_eq!(setup.desk.effects(), 2);
}
