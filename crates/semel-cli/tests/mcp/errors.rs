//! Errors that a server answers: -32602 reaches the client as it was said, and leaves no doubt.

use serde_json::{Value, json};

use crate::desk::Era;
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};

const LEGS: [(Carrier, Carrier, Era); 4] = [
    (Carrier::Stdio, Carrier::Stdio, Era::Legacy),
    (Carrier::Stdio, Carrier::Http, Era::Modern),
    (Carrier::Http, Carrier::Stdio, Era::Modern),
    (Carrier::Http, Carrier::Http, Era::Legacy),
];

fn states(setup: &Setup) -> Vec<Value> {
    let records = setup.records();
    records.iter().map(|it| it["state"].clone()).collect()
}

#[test]
fn invalid_params_are_recorded_as_a_failure_and_replayed_as_the_error() {
    for (front, upstream, era) in LEGS {
        let setup = Setup::new(Way::Gateway(front), upstream, era);
        let mut client = setup.client();
        let mut arguments = order();
        arguments["code"] = json!(-32602);
        let mut answers = vec![];
        for _ in 0..2 {
            let sent = client.start("fail", &arguments, &json!({"dev.semel/key": "order-7"}));
            let heard = client.hear(sent);
            assert_eq!(told(&heard), Told::Error(-32602), "{heard:?}");
            answers.push(heard.error());
        }
        assert_eq!(answers[0], answers[1], "{front:?} {upstream:?}");
        assert_eq!(answers[0]["message"], "the test wanted an error");
        assert_eq!(setup.desk.effects(), 1, "{front:?} {upstream:?}");
        assert_eq!(states(&setup), ["failed"], "{front:?} {upstream:?}");
    }
}

#[test]
fn mistyped_arguments_never_leave_a_doubt() {
    for (front, upstream, era) in LEGS {
        for lists_first in [true, false] {
            let setup = Setup::new(Way::Gateway(front), upstream, era);
            let mut client = setup.client();
            if lists_first {
                client.ask("tools/list", json!({}));
            }
            for wrong in [
                json!({"order_id": 7}),
                json!({"order_id": "o", "amount": "x"}),
                json!({}),
            ] {
                setup.desk.next_fault("error:-32602");
                let heard = client.call("charge", &wrong);
                assert_eq!(told(&heard), Told::Error(-32602), "{wrong}: {heard:?}");
            }
            // Where the schema explains the refusal, nothing ran, and the key is free.
            let state = if lists_first { "pending" } else { "failed" };
            assert_eq!(states(&setup), [state; 3], "{front:?} {upstream:?}");
        }
    }
}

/// What an internal error leaves behind is a doubt; but an answer came, and the text must not deny it.
#[test]
fn text_about_a_doubt_does_not_deny_the_answer() {
    for (front, upstream, era) in LEGS {
        let setup = Setup::new(Way::Gateway(front), upstream, era);
        let mut client = setup.client();
        let mut arguments = order();
        arguments["code"] = json!(-32603);
        for _ in 0..2 {
            let heard = client.call("fail", &arguments);
            assert_eq!(told(&heard), Told::Doubt, "{heard:?}");
            let text = heard.result()["content"][0]["text"].to_string();
            assert!(!text.contains("no answer"), "{text}");
        }
        assert_eq!(setup.desk.effects(), 1);
    }
}
