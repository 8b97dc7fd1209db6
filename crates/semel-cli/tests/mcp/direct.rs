//! The server of these tests does what the other tests rely on, with nobody between.

use serde_json::{Value, json};

use crate::desk::{Desk, Era};
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::Heard;

const ALL: [(Carrier, Era); 4] = [
    (Carrier::Stdio, Era::Legacy),
    (Carrier::Stdio, Era::Modern),
    (Carrier::Http, Era::Legacy),
    (Carrier::Http, Era::Modern),
];

#[test]
fn every_call_has_its_effect() {
    for (carrier, era) in ALL {
        for answer in ["json", "sse"] {
            let desk = Desk::with(&[("FIXTURE_ANSWER", answer)]);
            let setup = Setup::on(desk, Way::Direct, carrier, era);
            let mut client = setup.client();
            for count in 1..=3 {
                let heard = client.call("charge", &order());
                assert_eq!(told(&heard), Told::Outcome(format!("charge {count}")));
                assert_eq!(setup.desk.effects(), count);
            }
            let balance = told(&client.call("balance", &json!({})));
            assert_eq!(balance, Told::Outcome("3 effects".to_owned()));
            let looked = client.call("lookup", &json!({"order_id": "o-7"})).result();
            assert_eq!(looked["structuredContent"]["count"], 3);
        }
    }
}

#[test]
fn a_key_is_honoured() {
    for (carrier, era) in ALL {
        let setup = Setup::new(Way::Direct, carrier, era);
        let mut client = setup.client();
        let paid = json!({"order_id": "o-7", "idempotency_key": "k"});
        for _ in 0..2 {
            client.call("pay", &paid).result();
        }
        assert_eq!(setup.desk.effects(), 1);
    }
}

#[test]
fn a_legacy_session_that_nobody_opened_is_refused() {
    let setup = Setup::new(Way::Direct, Carrier::Stdio, Era::Legacy);
    let mut client = crate::wire::Client::silent(&mut setup.desk.server(), Era::Legacy);
    let heard = client.call("charge", &order());
    assert_eq!(heard.error()["code"], -32600);
    assert_eq!(setup.desk.effects(), 0);
}

#[test]
fn faults_come_once_and_as_they_are_told() {
    for (carrier, era) in ALL {
        for (fault, effects) in [
            ("exit-before", 0),
            ("exit-after", 1),
            ("cut", 1),
            ("half", 1),
            ("error:-32603", 1),
            ("status:503", 1),
        ] {
            if fault == "status:503" && carrier == Carrier::Stdio {
                continue;
            }
            let setup = Setup::new(Way::Direct, carrier, era);
            setup.desk.next_fault(fault);
            let mut client = setup.client();
            let heard = client.call("charge", &order());
            let expected = match (fault, &heard) {
                ("error:-32603", Heard::Message(_)) => heard.error()["code"] == -32603,
                ("status:503", Heard::Http(503, _)) | (_, Heard::Lost(_)) => true,
                _ => false,
            };
            assert!(expected, "{carrier:?}, {era:?}, {fault}: {heard:?}");
            assert_eq!(setup.desk.effects(), effects, "{carrier:?}, {fault}");
        }
    }
}

#[test]
fn what_asks_back_acts_when_it_was_answered() {
    for (carrier, era) in ALL {
        let setup = Setup::new(Way::Direct, carrier, era);
        let mut client = setup.client_to_ask();
        let heard = agreed(&mut client, era);
        assert_eq!(heard, Told::Outcome("ask 1".to_owned()));
        assert_eq!(setup.desk.effects(), 1);
    }
}

/// Calls the tool that asks back, and agrees.
#[track_caller]
pub(crate) fn agreed(client: &mut crate::wire::Client, era: Era) -> Told {
    agreed_to("ask", client, era)
}

/// Calls a tool that asks back, and agrees.
#[track_caller]
pub(crate) fn agreed_to(tool: &str, client: &mut crate::wire::Client, era: Era) -> Told {
    match era {
        Era::Legacy => {
            let mut sent = client.start(tool, &order(), &json!({}));
            let asked = client.hear_aside(&mut sent, "elicitation/create");
            let result = json!({"action": "accept", "content": {"sure": true}});
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
            client.tell_raw(&answer.to_string());
            told(&client.hear(sent))
        }
        Era::Modern => {
            let asked = client.call(tool, &order()).result();
            assert_eq!(asked["resultType"], "input_required", "{asked}");
            let params = json!({
                "name": tool,
                "arguments": order(),
                "requestState": asked["requestState"],
                "inputResponses": {"confirm": {"action": "accept", "content": {"sure": true}}},
            });
            told(&client.ask("tools/call", params))
        }
    }
}

#[test]
fn what_was_received_is_kept_as_it_came() {
    for (carrier, era) in ALL {
        let setup = Setup::new(Way::Direct, carrier, era);
        let mut client = setup.client();
        client.tell_raw(r#"{"jsonrpc":"2.0","method":"x/told","params":{"odd":1.00e+2}}"#);
        client.call("balance", &json!({}));
        let received = setup.desk.received();
        let told = received.iter().map(|line| &line["raw"]);
        let texts: Vec<_> = told.filter_map(Value::as_str).collect();
        assert!(
            texts.contains(&r#"{"jsonrpc":"2.0","method":"x/told","params":{"odd":1.00e+2}}"#),
            "{texts:?}"
        );
    }
}
