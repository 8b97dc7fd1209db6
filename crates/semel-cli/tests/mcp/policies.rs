//! What the settings say of a tool, from outside.

use serde_json::json;

use crate::desk::Era;
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};

fn configured(toml: &str) -> Setup {
    Setup::configured(
        Way::Gateway(Carrier::Stdio),
        Carrier::Stdio,
        Era::Modern,
        toml,
    )
}

#[test]
fn a_safe_tool_is_passed_through_and_not_recorded() {
    let setup = configured("[mcp.tools.balance]\nclass = \"safe\"\n");
    let mut client = setup.client();
    for _ in 0..3 {
        let heard = client.call("balance", &json!({}));
        assert_eq!(told(&heard), Told::Outcome("0 effects".to_owned()));
        assert_eq!(heard.result()["_meta"], serde_json::Value::Null);
    }
    assert_eq!(setup.desk.received_of("balance"), 3);
    assert_eq!(setup.records().len(), 0);
}

#[test]
fn an_idempotent_tool_runs_again_in_doubt() {
    let setup = configured("[mcp.tools.set_label]\nclass = \"idempotent\"\n");
    setup.desk.next_fault("exit-after");
    let mut client = setup.client();
    client.call("set_label", &order());
    let heard = client.call("set_label", &order());
    assert_eq!(
        told(&heard),
        Told::Outcome("set_label 2".to_owned()),
        "{heard:?}"
    );
}

#[test]
fn a_business_key_is_one_effect_however_it_is_worded() {
    let setup = configured(
        "[mcp.tools.charge]\nkey_from = [\"/order_id\"]\nfingerprint_ignore = [\"/note\"]\n",
    );
    let call = |note: &str, amount: u32| json!({"order_id": "o-7", "amount": amount, "note": note});
    for note in ["for the books", "as agreed", "again, please"] {
        let heard = setup.client().call("charge", &call(note, 5));
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 1".to_owned()),
            "{heard:?}"
        );
    }
    let error = setup
        .client()
        .call("charge", &call("for the books", 6))
        .error();
    assert_eq!(error["code"], 1409, "{error}");
    assert_eq!(error["data"]["type"], "idempotency_key_conflict", "{error}");
    assert_eq!(setup.desk.effects(), 1);
}

#[test]
fn an_explicit_key_is_one_effect() {
    let setup = Setup::new(Way::Gateway(Carrier::Http), Carrier::Http, Era::Modern);
    let key = json!({"dev.semel/key": "charge-o-7"});
    for _ in 0..3 {
        let mut client = setup.client();
        let sent = client.start("charge", &order(), &key);
        let heard = client.hear(sent);
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 1".to_owned()),
            "{heard:?}"
        );
    }
    let mut client = setup.client();
    let sent = client.start("charge", &json!({"order_id": "o-8"}), &key);
    let error = client.hear(sent).error();
    assert_eq!(error["code"], 1409, "{error}");
    assert_eq!(error["data"]["type"], "idempotency_key_conflict", "{error}");
    assert_eq!(setup.desk.effects(), 1);
}

/// A model fills in another key with every try; the server honours keys, and gets one for each effect.
#[test]
fn a_pinned_key_makes_a_doubt_safe_to_send_again() {
    let setup = configured("[mcp.tools.pay]\ninject = \"/idempotency_key\"\n");
    setup.desk.next_fault("exit-after");
    let mut client = setup.client();
    let filled_in = |key: &str| json!({"order_id": "o-7", "idempotency_key": key});
    client.call("pay", &filled_in("made-up-1"));
    assert_eq!(setup.desk.effects(), 1);
    let heard = client.call("pay", &filled_in("made-up-2"));
    assert_eq!(
        told(&heard),
        Told::Outcome("paid before".to_owned()),
        "{heard:?}"
    );
    assert_eq!(setup.desk.effects(), 1);
    // What is meant to happen again gets a key of its own.
    let heard = client.call("pay", &filled_in("made-up-3"));
    assert_eq!(told(&heard), Told::Outcome("paid".to_owned()), "{heard:?}");
    assert_eq!(setup.desk.effects(), 2);
}

/// The same server without it: every made-up key is another payment.
#[test]
fn without_it_a_made_up_key_pays_twice() {
    let setup = Setup::new(Way::Direct, Carrier::Stdio, Era::Modern);
    setup.desk.next_fault("exit-after");
    for key in ["made-up-1", "made-up-2"] {
        let paid = json!({"order_id": "o-7", "idempotency_key": key});
        setup.client().call("pay", &paid);
    }
    assert_eq!(setup.desk.effects(), 2);
}

#[test]
fn a_challenged_tool_asks_once_before_it_acts_again() {
    let setup = configured("[mcp.tools.charge]\nchallenge = true\n");
    let mut client = setup.client();
    let heard = client.call("charge", &order());
    assert_eq!(told(&heard), Told::Outcome("charge 1".to_owned()));
    let challenged = client.call("charge", &order());
    assert_eq!(
        told(&challenged),
        Told::Held("challenged".to_owned()),
        "{challenged:?}"
    );
    assert_eq!(setup.desk.effects(), 1);
    // The answer says what to call next: the argument is the word in quotes.
    let text = challenged.result()["content"][0]["text"].to_string();
    let said = text.split("semel_repeat").nth(1).expect("it says how");
    let key = said
        .split(['"', '`', ' ', '=', '\\', ','])
        .find(|part| part.len() > 8);
    let mut meant = order();
    meant["semel_repeat"] = json!(key.expect("it says which"));
    let heard = client.call("charge", &meant);
    assert_eq!(
        told(&heard),
        Told::Outcome("charge 2".to_owned()),
        "{heard:?}"
    );
    assert_eq!(setup.desk.effects(), 2);
    let received = setup.desk.received();
    assert!(
        !format!("{received:?}").contains("semel_repeat"),
        "it is ours alone"
    );
}

#[test]
fn what_a_server_says_of_a_lost_connection_is_a_doubt() {
    let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, Era::Legacy);
    let mut client = setup.client();
    client.call("flaky", &order());
    assert_eq!(told(&client.call("flaky", &order())), Told::Doubt);
    assert_eq!(setup.desk.effects(), 1);
}

#[test]
fn errors_of_the_protocol_are_doubts_unless_they_say_that_nothing_was_done() {
    for (code, effects) in [
        (-32603, 1),
        (-32000, 1),
        (1234, 1),
        (-32601, 2),
        (-32600, 2),
    ] {
        let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, Era::Legacy);
        let mut client = setup.client();
        let mut failing = order();
        failing["code"] = json!(code);
        let expected = if effects == 1 {
            Told::Doubt
        } else {
            Told::Error(code)
        };
        for _ in 0..2 {
            assert_eq!(told(&client.call("fail", &failing)), expected, "{code}");
        }
        assert_eq!(setup.desk.effects(), effects, "{code}");
    }
}

#[test]
fn a_status_of_http_after_the_effect_is_a_doubt() {
    for front in [Carrier::Stdio, Carrier::Http] {
        for era in [Era::Legacy, Era::Modern] {
            let setup = Setup::new(Way::Gateway(front), Carrier::Http, era);
            setup.desk.next_fault("status:503");
            let mut client = setup.client();
            client.call("charge", &order());
            assert_eq!(told(&client.call("charge", &order())), Told::Doubt);
            assert_eq!(setup.desk.effects(), 1);
        }
    }
}

/// What a server says of its tools counts where it is trusted, and once it has said it.
#[test]
fn what_a_server_says_of_its_tools_counts_where_it_is_trusted() {
    for trusted in [false, true] {
        let word = if trusted { "on" } else { "off" };
        let setup = configured(&format!("[mcp]\ntrust_annotations = \"{word}\"\n"));
        let mut client = setup.client();
        client.call("balance", &json!({}));
        assert_eq!(setup.records().len(), 1, "nothing is known of it yet");
        client.ask("tools/list", json!({})).result();
        let heard = client.call("balance", &json!({}));
        let receipt = &heard.result()["_meta"]["dev.semel/effect"];
        assert_eq!(receipt.is_null(), trusted, "{heard:?}");
        assert_eq!(setup.records().len(), if trusted { 1 } else { 2 });
        setup.desk.next_fault("exit-after");
        client.call("set_label", &order());
        let heard = told(&client.call("set_label", &order()));
        if trusted {
            assert_eq!(heard, Told::Outcome("set_label 2".to_owned()));
        } else {
            assert_eq!(heard, Told::Doubt);
            assert_eq!(setup.desk.effects(), 1);
        }
    }
}

/// What is configured goes before what the server says.
#[test]
fn settings_go_before_what_a_server_says() {
    let toml = "[mcp]\ntrust_annotations = \"on\"\n[mcp.tools.balance]\nclass = \"unsafe\"\n";
    let setup = configured(toml);
    let mut client = setup.client();
    client.ask("tools/list", json!({})).result();
    client.call("balance", &json!({}));
    assert_eq!(setup.records().len(), 1);
}

/// Returns the keys that a server got for a tool, as they were written.
fn pinned(setup: &Setup, tool: &str) -> Vec<String> {
    let received = setup.desk.received();
    let texts = received.iter().filter_map(|line| line["raw"].as_str());
    let calls = texts.filter(|text| text.contains(&format!("\"{tool}\"")));
    let keys = calls.map(|text| {
        let call: serde_json::Value = serde_json::from_str(text).expect("a message is JSON");
        let key = &call["params"]["arguments"]["idempotency_key"];
        key.as_str().expect("it is pinned").to_owned()
    });
    keys.collect()
}

/// The same call elsewhere is another payment, though the server knows both of its callers by one account.
#[test]
fn two_ledgers_never_pin_the_same_key() {
    let keys = [(); 2].map(|()| {
        let setup = configured("[mcp.tools.pay]\ninject = \"/idempotency_key\"\n");
        setup.client().call("pay", &json!({"order_id": "o-7"}));
        pinned(&setup, "pay")
    });
    assert_eq!(keys.each_ref().map(Vec::len), [1, 1]);
    assert_ne!(keys[0], keys[1]);
}

/// Another client, another gateway: the attempts of one call carry one key, and other calls others.
#[test]
fn a_pinned_key_stays_the_same_over_attempts_and_gateways() {
    let mut setup = configured("[mcp.tools.pay]\ninject = \"/idempotency_key\"\n");
    setup.desk.next_fault("hold");
    let mut client = setup.client();
    let paid = json!({"order_id": "o-7"});
    client.start("pay", &paid, &json!({}));
    setup.desk.wait_for_effects(1);
    setup.kill_gateway(&mut client);
    setup.desk.release();
    let mut client = setup.client();
    let heard = client.call(
        "pay",
        &json!({"order_id": "o-7", "idempotency_key": "made-up"}),
    );
    assert_eq!(
        told(&heard),
        Told::Outcome("paid before".to_owned()),
        "{heard:?}"
    );
    client.call("pay", &json!({"order_id": "o-8"}));
    let keys = pinned(&setup, "pay");
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert_eq!(keys[0], keys[1], "two attempts");
    assert_ne!(keys[0], keys[2], "another call");
    assert_eq!(setup.desk.effects(), 2);
}

/// Who is to be asked is asked from everywhere, and only for what was really done.
#[test]
fn a_challenge_stands_across_clients_and_falls_to_the_right_key_only() {
    let setup = configured("[mcp.tools.charge]\nchallenge = true\n");
    let challenged = Told::Held("challenged".to_owned());
    let mut client = setup.client();
    client.call("charge", &order());
    // Its answer has arrived, as another message shows.
    let listed = client.ask("tools/list", json!({})).result();
    client.leave();
    let charge = listed["tools"].as_array().expect("a list").iter();
    let charge = charge.clone().find(|tool| tool["name"] == "charge");
    let charge = &charge.expect("it is listed")["inputSchema"]["properties"];
    assert!(charge["semel_repeat"].is_object(), "{listed}");
    let mut client = setup.client();
    let heard = client.call("charge", &order());
    assert_eq!(told(&heard), challenged, "{heard:?}");
    for wrong in ["yes", "mcp/0123456789abcdef/other"] {
        let mut meant = order();
        meant["semel_repeat"] = json!(wrong);
        let heard = client.call("charge", &meant);
        assert_eq!(told(&heard), challenged, "{wrong}: {heard:?}");
    }
    // Another order is another matter.
    let heard = client.call("charge", &json!({"order_id": "o-8"}));
    assert_eq!(
        told(&heard),
        Told::Outcome("charge 2".to_owned()),
        "{heard:?}"
    );
    assert_eq!(setup.desk.effects(), 2);
}

#[test]
fn while_a_challenged_call_is_under_way_the_same_is_not_started() {
    let setup = Setup::configured(
        Way::Gateway(Carrier::Http),
        Carrier::Http,
        Era::Modern,
        "[mcp.tools.charge]\nchallenge = true\n",
    );
    setup.desk.next_fault("hold");
    let mut first = setup.client();
    let sent = first.start("charge", &order(), &json!({}));
    setup.desk.wait_for_effects(1);
    let heard = setup.client().call("charge", &order());
    assert_eq!(
        told(&heard),
        Told::Held("challenged".to_owned()),
        "{heard:?}"
    );
    setup.desk.release();
    let heard = first.hear(sent);
    assert_eq!(
        told(&heard),
        Told::Outcome("charge 1".to_owned()),
        "{heard:?}"
    );
    assert_eq!(setup.desk.effects(), 1);
}
