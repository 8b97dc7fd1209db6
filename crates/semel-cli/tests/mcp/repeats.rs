//! What is meant to happen again does, and what is under way is joined.

use serde_json::json;

use crate::desk::Era;
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::Client;

const WAYS: [(Carrier, Carrier); 4] = [
    (Carrier::Stdio, Carrier::Stdio),
    (Carrier::Stdio, Carrier::Http),
    (Carrier::Http, Carrier::Stdio),
    (Carrier::Http, Carrier::Http),
];

fn everywhere(play: impl Fn(&Setup)) {
    for (front, upstream) in WAYS {
        for era in [Era::Legacy, Era::Modern] {
            play(&Setup::new(Way::Gateway(front), upstream, era));
        }
    }
}

#[test]
fn whoever_got_the_result_gets_another_one() {
    everywhere(|setup| {
        let mut client = setup.client();
        for count in 1..=4 {
            let heard = client.call("charge", &order());
            assert_eq!(
                told(&heard),
                Told::Outcome(format!("charge {count}")),
                "{setup}: {heard:?}"
            );
            assert_eq!(setup.desk.effects(), count, "{setup}");
        }
    });
}

#[test]
fn another_client_after_a_delivered_result_acts() {
    everywhere(|setup| {
        for count in 1..=3 {
            let mut client = setup.client();
            let heard = client.call("charge", &order());
            client.leave();
            assert_eq!(
                told(&heard),
                Told::Outcome(format!("charge {count}")),
                "{setup}: {heard:?}"
            );
        }
        assert_eq!(setup.desk.effects(), 3, "{setup}");
    });
}

/// To be told of a doubt is not to have the outcome: whoever comes back once there is one gets it.
#[test]
fn whoever_was_told_of_a_doubt_gets_the_outcome_once_there_is_one() {
    everywhere(|setup| {
        let mut client = setup.client();
        setup.desk.next_fault("cut");
        let heard = client.call("charge", &order());
        assert_eq!(told(&heard), Told::Doubt, "{setup}: {heard:?}");
        setup.resolve("--done");
        let heard = client.call("charge", &order());
        let receipt = &heard.result()["_meta"]["dev.semel/effect"];
        assert_eq!(receipt["replayed"], true, "{setup}: {heard:?}");
        assert_eq!(setup.desk.effects(), 1, "{setup}: {heard:?}");
        // Now they have it.
        let heard = client.call("charge", &order());
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 2".to_owned()),
            "{setup}: {heard:?}"
        );
    });
}

#[test]
fn a_delivered_failure_is_tried_again() {
    everywhere(|setup| {
        let mut client = setup.client();
        for count in 1..=3 {
            let heard = client.call("decline", &order());
            let declined = Told::Failed("the card was declined".to_owned());
            assert_eq!(told(&heard), declined, "{setup}: {heard:?}");
            assert_eq!(setup.desk.received_of("decline"), count, "{setup}");
        }
    });
}

#[test]
fn one_call_id_is_one_call() {
    everywhere(|setup| {
        let mut client = setup.client();
        let id = json!({"claudecode/toolUseId": "toolu_1"});
        for _ in 0..3 {
            let sent = client.start("charge", &order(), &id);
            let heard = client.hear(sent);
            assert_eq!(
                told(&heard),
                Told::Outcome("charge 1".to_owned()),
                "{setup}: {heard:?}"
            );
        }
        assert_eq!(setup.desk.effects(), 1, "{setup}");
    });
}

/// The server tells its users apart by any of these, and so does the gateway.
#[test]
fn a_result_reaches_only_the_client_that_shows_the_same_credentials() {
    for upstream in [Carrier::Stdio, Carrier::Http] {
        for era in [Era::Legacy, Era::Modern] {
            let setup = Setup::new(Way::Gateway(Carrier::Http), upstream, era);
            let headers = ["x-api-key", "X-Auth-Token", "Cookie"];
            for (number, header) in headers.into_iter().enumerate() {
                let id = json!({"claudecode/toolUseId": format!("toolu_{header}")});
                let call = |client: &mut Client| {
                    let sent = client.start("charge", &order(), &id);
                    told(&client.hear(sent))
                };
                let outcome = |count: usize| Told::Outcome(format!("charge {count}"));
                let before = number * 3;
                let mut alice = setup.client_with_header(header, "session=alice");
                assert_eq!(call(&mut alice), outcome(before + 1), "{setup}: {header}");
                let mut bob = setup.client_with_header(header, "session=bob");
                assert_eq!(call(&mut bob), outcome(before + 2), "{setup}: {header}");
                // A client without credentials is neither of them.
                let mut anonymous = setup.client();
                assert_eq!(
                    call(&mut anonymous),
                    outcome(before + 3),
                    "{setup}: {header}"
                );
                assert_eq!(call(&mut alice), outcome(before + 1), "{setup}: {header}");
            }
        }
    }
}

/// Access tokens are refreshed in the middle of a session.
#[test]
fn a_refreshed_token_is_the_same_client_where_its_subject_counts() {
    use base64::Engine as _;
    let token = |until: u32| {
        let claims = json!({"iss": "i", "sub": "alice", "exp": until}).to_string();
        let payload = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(claims);
        format!("Bearer eyJhbGciOiJSUzI1NiJ9.{payload}.c2ln")
    };
    for (text, count) in [
        ("", 2),
        ("[mcp]\ncredentials = [\"jwt:Authorization\"]\n", 1),
    ] {
        let setup = Setup::configured(
            Way::Gateway(Carrier::Http),
            Carrier::Http,
            Era::Modern,
            text,
        );
        let id = json!({"claudecode/toolUseId": "toolu_1"});
        for until in [1, 2] {
            let mut client = setup.client_as(&token(until));
            let sent = client.start("charge", &order(), &id);
            client.hear(sent);
        }
        assert_eq!(setup.desk.effects(), count, "{text}");
    }
}

#[test]
fn identical_calls_in_flight_are_one() {
    everywhere(|setup| {
        setup.desk.next_fault("hold");
        let mut client = setup.client();
        let first = client.start("charge", &order(), &json!({}));
        setup.desk.wait_for_effects(1);
        let second = client.start("charge", &order(), &json!({}));
        // A third that differs shows that the gateway has read the second.
        let other = json!({"order_id": "o-8"});
        assert_eq!(
            told(&client.call("charge", &other)),
            Told::Outcome("charge 2".to_owned())
        );
        setup.desk.release();
        let heard = [client.hear(first), client.hear(second)];
        for heard in &heard {
            assert_eq!(
                told(heard),
                Told::Outcome("charge 1".to_owned()),
                "{setup}: {heard:?}"
            );
        }
        let receipt = &heard[1].result()["_meta"]["dev.semel/effect"];
        assert_eq!(receipt["outcome"], "joined", "{setup}: {receipt}");
        assert_eq!(setup.desk.effects(), 2, "{setup}");
    });
}

/// A client that gives up says so and asks again at once, on two connections: the gateway may read the retry first.
/// The result that the retry brings is delivered all the same.
#[test]
fn a_retry_that_overtakes_its_cancel_swallows_no_repeat() {
    for upstream in [Carrier::Stdio, Carrier::Http] {
        for era in [Era::Legacy, Era::Modern] {
            let setup = Setup::new(Way::Gateway(Carrier::Http), upstream, era);
            setup.desk.next_fault("hold");
            let mut client = setup.client();
            let given_up = client.start("charge", &order(), &json!({}));
            setup.desk.wait_for_effects(1);
            let retry = client.start("charge", &order(), &json!({}));
            // Another call shows that the gateway has read the retry.
            client.call("charge", &json!({"order_id": "o-8"}));
            client.cancel(given_up);
            setup.desk.release();
            let heard = client.hear(retry);
            let first = Told::Outcome("charge 1".to_owned());
            assert_eq!(told(&heard), first, "{setup}: {heard:?}");
            let heard = client.call("charge", &order());
            let third = Told::Outcome("charge 3".to_owned());
            assert_eq!(told(&heard), third, "{setup}: {heard:?}");
        }
    }
}

/// Two principals, or two servers, never share an effect; two conversations that say who they are do not, either.
#[test]
fn conversations_are_apart() {
    let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, Era::Modern);
    setup.desk.next_fault("hold");
    let mut client = setup.client();
    let hint = |name: &str| json!({"ai.opencode/sessionID": name});
    let first = client.start("charge", &order(), &hint("a"));
    setup.desk.wait_for_effects(1);
    let second = client.start("charge", &order(), &hint("b"));
    assert_eq!(
        told(&client.hear(second)),
        Told::Outcome("charge 2".to_owned())
    );
    setup.desk.release();
    assert_eq!(
        told(&client.hear(first)),
        Told::Outcome("charge 1".to_owned())
    );
}
