//! A person at the client is asked whether a doubted call took effect, where the client can ask.

use serde_json::{Value, json};

use crate::desk::Era;
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::{Client, Heard};

const WAYS: [(Carrier, Carrier, Era); 6] = [
    (Carrier::Stdio, Carrier::Stdio, Era::Legacy),
    (Carrier::Stdio, Carrier::Stdio, Era::Modern),
    (Carrier::Http, Carrier::Stdio, Era::Legacy),
    (Carrier::Http, Carrier::Stdio, Era::Modern),
    (Carrier::Http, Carrier::Http, Era::Legacy),
    (Carrier::Http, Carrier::Http, Era::Modern),
];

/// Makes a doubt.
fn doubted((front, upstream, era): (Carrier, Carrier, Era)) -> (Setup, Client) {
    let setup = Setup::new(Way::Gateway(front), upstream, era);
    setup.desk.next_fault("cut");
    // This one cannot be asked.
    let mut lost = setup.client();
    assert_eq!(told(&lost.call("charge", &order())), Told::Doubt);
    lost.leave();
    let client = setup.client_to_ask();
    (setup, client)
}

/// Calls again, and answers what is asked.
#[track_caller]
fn call_saying(client: &mut Client, era: Era, said: &Value) -> Heard {
    match era {
        Era::Legacy => {
            let mut sent = client.start("charge", &order(), &json!({}));
            let asked = client.hear_aside(&mut sent, "elicitation/create");
            assert!(asked["params"]["message"].is_string(), "{asked}");
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": said});
            client.tell_raw(&answer.to_string());
            client.hear(sent)
        }
        Era::Modern => {
            let asked = client.call("charge", &order()).result();
            assert_eq!(asked["resultType"], "input_required", "{asked}");
            let question = &asked["inputRequests"]["semel"];
            assert_eq!(question["method"], "elicitation/create", "{asked}");
            client.ask("tools/call", reply(&asked["requestState"], said))
        }
    }
}

fn reply(state: &Value, said: &Value) -> Value {
    json!({
        "name": "charge",
        "arguments": order(),
        "requestState": state,
        "inputResponses": {"semel": said},
    })
}

fn accepted(word: &str) -> Value {
    json!({"action": "accept", "content": {"happened": word}})
}

/// Nothing that is said to the gateway reaches the server.
#[track_caller]
fn is_ours_alone(setup: &Setup) {
    let received = format!("{:?}", setup.desk.received());
    assert!(!received.contains("semel-question"), "{received}");
    assert!(!received.contains("happened"), "{received}");
}

/// The caller has the outcome now: whoever calls again wants it again.
#[track_caller]
fn is_over(setup: &Setup, client: &mut Client) {
    let next = setup.desk.effects() + 1;
    let heard = client.call("charge", &order());
    assert_eq!(
        told(&heard),
        Told::Outcome(format!("charge {next}")),
        "{setup}: {heard:?}"
    );
}

#[test]
fn with_yes_it_is_not_done_again() {
    for way in WAYS {
        let (setup, mut client) = doubted(way);
        let heard = call_saying(&mut client, way.2, &accepted("yes")).result();
        let text = heard["content"][0]["text"].to_string();
        assert!(text.contains("nothing was done now"), "{way:?}: {heard}");
        let receipt = &heard["_meta"]["dev.semel/effect"];
        assert_eq!(receipt["outcome"], "replayed", "{way:?}: {heard}");
        assert_eq!(setup.desk.effects(), 1, "{way:?}");
        assert_eq!(setup.records()[0]["decision"], "resolved", "{way:?}");
        assert_eq!(setup.records()[0]["resolved"]["by"], "mcp", "{way:?}");
        is_ours_alone(&setup);
        is_over(&setup, &mut client);
    }
}

#[test]
fn with_no_it_is_carried_out() {
    for way in WAYS {
        let (setup, mut client) = doubted(way);
        let heard = call_saying(&mut client, way.2, &accepted("no"));
        let expected = Told::Outcome("charge 2".to_owned());
        assert_eq!(told(&heard), expected, "{way:?}: {heard:?}");
        assert_eq!(setup.desk.effects(), 2, "{way:?}");
        is_ours_alone(&setup);
        is_over(&setup, &mut client);
    }
}

#[test]
fn with_anything_else_it_stays_in_doubt() {
    for way in WAYS {
        let (setup, mut client) = doubted(way);
        for said in [
            accepted("not sure"),
            json!({"action": "decline"}),
            json!({"action": "cancel"}),
            // One that does not agree says nothing, whatever else it sends.
            json!({"action": "decline", "content": {"happened": "no"}}),
        ] {
            let heard = call_saying(&mut client, way.2, &said);
            assert_eq!(told(&heard), Told::Doubt, "{way:?}, {said}: {heard:?}");
            assert_eq!(setup.desk.effects(), 1, "{way:?}, {said}");
        }
        setup.doubt();
        // The question can be asked once more.
        let heard = call_saying(&mut client, way.2, &accepted("no"));
        let expected = Told::Outcome("charge 2".to_owned());
        assert_eq!(told(&heard), expected, "{way:?}: {heard:?}");
    }
}

#[test]
fn a_client_that_cannot_ask_is_told() {
    for way in WAYS {
        let (setup, asked) = doubted(way);
        let mut client = setup.client();
        let sent = client.start("charge", &order(), &json!({}));
        let (asides, heard) = client.hear_all(sent);
        assert_eq!(told(&heard), Told::Doubt, "{way:?}: {heard:?}");
        assert!(
            !format!("{asides:?}").contains("elicitation"),
            "{way:?}: {asides:?}"
        );
        assert_eq!(setup.desk.effects(), 1, "{way:?}");
        drop(asked);
    }
}

#[test]
fn a_client_that_refuses_to_ask_is_told() {
    let (setup, mut client) = doubted(WAYS[0]);
    let mut sent = client.start("charge", &order(), &json!({}));
    let asked = client.hear_aside(&mut sent, "elicitation/create");
    let error = json!({"code": -32601, "message": "there is nobody here"});
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "error": error});
    client.tell_raw(&answer.to_string());
    assert_eq!(told(&client.hear(sent)), Told::Doubt);
    assert_eq!(setup.desk.effects(), 1);
}

#[test]
fn an_answer_settles_the_doubt_that_it_is_about_and_no_other() {
    let (setup, mut client) = doubted(WAYS[1]);
    let asked = client.call("charge", &order()).result();
    let state = asked["requestState"].clone();
    setup.desk.next_fault("cut");
    let mut other = order();
    other["order_id"] = json!("o-8");
    let asked = client.call("charge", &other).result();
    assert_eq!(
        asked["resultType"], "input_required",
        "it is asked at once: {asked}"
    );
    let mut elsewhere = reply(&state, &accepted("no"));
    elsewhere["arguments"] = other;
    for params in [
        elsewhere,
        reply(
            &json!("semel-question-1.9999999999999999.00"),
            &accepted("no"),
        ),
        reply(&json!("made up"), &accepted("no")),
    ] {
        let heard = client.ask("tools/call", params.clone());
        assert_eq!(told(&heard), Told::Doubt, "{params}: {heard:?}");
    }
    assert_eq!(setup.desk.effects(), 2);
    // It counts once: what was carried out since is not asked about.
    let params = reply(&state, &accepted("no"));
    let heard = client.ask("tools/call", params.clone());
    assert_eq!(
        told(&heard),
        Told::Outcome("charge 3".to_owned()),
        "{heard:?}"
    );
    is_ours_alone(&setup);
}
