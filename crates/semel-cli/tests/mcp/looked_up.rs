//! Verify tools: whether a doubted call took effect is looked up before anything runs again.

use serde_json::json;

use crate::desk::Era;
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};

const WAYS: [(Carrier, Carrier, Era); 4] = [
    (Carrier::Stdio, Carrier::Stdio, Era::Legacy),
    (Carrier::Stdio, Carrier::Http, Era::Modern),
    (Carrier::Http, Carrier::Stdio, Era::Modern),
    (Carrier::Http, Carrier::Http, Era::Legacy),
];

fn verified(way: (Carrier, Carrier, Era), verify: &str) -> Setup {
    let toml = format!("[mcp.tools.charge]\nverify = {verify}\n");
    let (front, upstream, era) = way;
    Setup::configured(Way::Gateway(front), upstream, era, &toml)
}

const BY_ORDER: &str = r#"{ tool = "lookup", arguments = { order_id = "{/order_id}" }, pointer = "/found", after = "0s" }"#;

#[test]
fn what_happened_is_not_done_again() {
    for way in WAYS {
        let setup = verified(way, BY_ORDER);
        setup.desk.next_fault("cut");
        let mut client = setup.client();
        assert_eq!(told(&client.call("charge", &order())), Told::Doubt);
        let heard = client.call("charge", &order()).result();
        let text = heard["content"][0]["text"].as_str().expect("a text");
        assert!(text.contains("took effect, as was looked up"), "{heard}");
        let receipt = &heard["_meta"]["dev.semel/effect"];
        assert_eq!(receipt["outcome"], "replayed", "{heard}");
        assert_eq!(setup.desk.effects(), 1, "{way:?}");
        assert_eq!(setup.desk.received_of("lookup"), 1, "{way:?}");
        let [record] = &setup.records()[..] else {
            panic!("there was one call");
        };
        assert_eq!(
            (&record["state"], &record["decision"]),
            (&json!("succeeded"), &json!("resolved")),
            "{record}"
        );
        // Whoever knows that and calls again wants it again.
        let heard = client.call("charge", &order());
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 2".to_owned()),
            "{heard:?}"
        );
    }
}

#[test]
fn what_did_not_happen_runs_once() {
    for way in WAYS {
        let mut setup = verified(way, BY_ORDER);
        setup.desk.next_fault("exit-before");
        let mut client = setup.client();
        assert_eq!(told(&client.call("charge", &order())), Told::Doubt);
        if way.1 == Carrier::Http {
            setup.kill_server();
        }
        let heard = client.call("charge", &order());
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 1".to_owned()),
            "{way:?}: {heard:?}"
        );
        assert_eq!(setup.desk.effects(), 1, "{way:?}");
        assert_eq!(setup.desk.received_of("lookup"), 1, "{way:?}");
    }
}

#[test]
fn what_cannot_be_looked_up_stays_in_doubt() {
    for verify in [
        // It fails.
        r#"{ tool = "decline", arguments = { order_id = "{/order_id}" }, pointer = "/found", after = "0s" }"#,
        // It answers with an error of the protocol.
        r#"{ tool = "nothing", pointer = "/found", after = "0s" }"#,
        // It does not say it there.
        r#"{ tool = "lookup", arguments = { order_id = "{/order_id}" }, pointer = "/fuond", after = "0s" }"#,
        // The call has nothing to look it up by.
        r#"{ tool = "lookup", arguments = { order_id = "{/invoice}" }, pointer = "/found", after = "0s" }"#,
    ] {
        let setup = verified(WAYS[0], verify);
        setup.desk.next_fault("exit-after");
        let mut client = setup.client();
        for _ in 0..3 {
            assert_eq!(
                told(&client.call("charge", &order())),
                Told::Doubt,
                "{verify}"
            );
        }
        assert_eq!(setup.desk.effects(), 1, "{verify}");
        setup.doubt();
    }
}

/// The gateway was killed after the effect: the next one looks it up.
#[test]
fn the_next_gateway_looks_it_up() {
    let mut setup = verified(WAYS[0], BY_ORDER);
    setup.desk.next_fault("hold");
    let mut client = setup.client();
    client.start("charge", &order(), &json!({}));
    setup.desk.wait_for_effects(1);
    setup.kill_gateway(&mut client);
    setup.desk.release();
    let heard = setup.client().call("charge", &order());
    let text = heard.result()["content"][0]["text"].to_string();
    assert!(text.contains("took effect, as was looked up"), "{heard:?}");
    assert_eq!(setup.desk.effects(), 1);
}

/// What is expected there can be said, and the key that was pinned can be looked up by.
#[test]
fn a_pinned_key_is_looked_up_by() {
    let toml = r#"
[mcp.tools.charge]
inject = "/note"
verify = { tool = "lookup", arguments = { order_id = "{key}" }, pointer = "/count", equals = 0, after = "0s" }
"#;
    let setup = Setup::configured(
        Way::Gateway(Carrier::Stdio),
        Carrier::Stdio,
        Era::Legacy,
        toml,
    );
    setup.desk.next_fault("exit-after");
    let mut client = setup.client();
    client.call("charge", &order());
    let heard = client.call("charge", &order()).result();
    assert_eq!(
        heard["_meta"]["dev.semel/effect"]["outcome"], "replayed",
        "{heard}"
    );
    let received = setup.desk.received();
    let texts: Vec<_> = received
        .iter()
        .filter_map(|it| it["raw"].as_str())
        .collect();
    let pinned = |wanted: &str| {
        let text = texts.iter().find(|text| text.contains(wanted));
        let text = text.unwrap_or_else(|| panic!("{wanted}: {texts:?}"));
        let start = text.find("\"semel-").expect("it is pinned") + 1;
        // The gateway's own requests have such a name, too, in front.
        let key = text[start..].split('"').next().expect("it ends");
        text.rsplit('"')
            .find(|part| part.starts_with("semel-") && part.len() > 20)
            .unwrap_or(key)
            .to_owned()
    };
    assert_eq!(pinned("\"charge\""), pinned("\"lookup\""), "{texts:?}");
    assert_eq!(setup.desk.effects(), 1);
}
