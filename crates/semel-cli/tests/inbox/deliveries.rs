//! What comes from a sender becomes a task once.

use serde_json::json;

use crate::server::Server;
use crate::setup::{ANSWER, Sender, given, knowing, start, stored, tasks, world};

const SENDERS: [(&str, &str); 6] = [
    ("standard", "inbox/standard/evt_1"),
    ("stripe", "inbox/stripe/evt_1"),
    ("github", "inbox/github/evt_1"),
    ("slack", "inbox/slack/evt_1"),
    ("shop", "inbox/shop/evt_1"),
    ("events", r#"inbox/events/["/orders","evt_1"]"#),
];

/// Whatever the scheme: the first delivery is stored, those that follow do nothing, and the same id with another body is
/// flagged and changes nothing.
#[test]
fn a_webhook_is_stored_once_and_repeats_are_answered_with_success() {
    let world = world();
    let server = start(&world);
    for (source, key) in SENDERS {
        let sender = Sender::new(source);
        let first = sender.deliver(&server, "evt_1").expect(202);
        assert_eq!(first["effect"], "created", "{first}");
        assert_eq!((&first["key"], &first["ok"]), (&json!(key), &json!(true)));
        let before = stored(&world);
        for _ in 0..2 {
            let again = sender.deliver(&server, "evt_1").expect(200);
            assert_eq!(again["effect"], "noop", "{again}");
            assert_eq!(again["reason"], "received before");
        }
        let mut other = sender.body("evt_1");
        other.insert(1, b' ');
        let flagged = server.ask(sender.signed("evt_1", &other));
        let flagged = flagged.problem(422, "key_reused");
        assert_eq!(flagged["key"], key, "{flagged}");
        assert_eq!(stored(&world), before, "{source}: something was written");
        let line = server.wait_for_line(|line| {
            let is_it = line["source"] == source && line["level"] == "WARN";
            is_it.then(|| line.clone())
        });
        assert_eq!(line.expect("it is logged")["key"], key);
    }
    let metrics = server.get("/metrics");
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for (outcome, count) in [("created", 1), ("noop", 2), ("key_reused", 1)] {
        let line =
            format!(r#"semel_inbox_requests_total{{source="shop",outcome="{outcome}"}} {count}"#);
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let tasks = tasks(&world);
    let keys: Vec<_> = tasks.keys().map(String::as_str).collect();
    let mut expected = SENDERS.map(|(_, key)| key);
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn workers_get_the_body_as_it_came_and_what_may_be_known_of_the_headers() {
    let world = world();
    let server = start(&world);
    let shop = Sender::new("shop");
    shop.deliver(&server, "evt_1").expect(202);
    let github = Sender::new("github");
    server.ask(github.signed("text", b"a=b&c=d")).expect(202);
    server
        .ask(github.signed("bytes", b"\xff\xfe\0"))
        .expect(202);
    server.ask(github.signed("nothing", b"")).expect(202);
    let tasks = tasks(&world);
    let task = &tasks["inbox/shop/evt_1"];
    assert_eq!(task.name.as_str(), "shop");
    let input = task.input.as_deref().expect("it has one");
    let input = String::from_utf8_lossy(input);
    // Not a blank was changed, nor was a number read and written again.
    assert!(
        input.contains(r#""body":{"id":"evt_1",  "amount": 100.10}"#),
        "{input}"
    );
    let envelope = given(task);
    assert_eq!(
        (&envelope["source"], &envelope["id"]),
        (&json!("shop"), &json!("evt_1"))
    );
    assert!(envelope["received_at"].is_string(), "{envelope}");
    let expected = json!({"content-type": "application/json", "x-shop-topic": "orders/paid"});
    assert_eq!(envelope["headers"], expected);
    let body = |key: &str| given(&tasks[key]);
    assert_eq!(body("inbox/github/text")["body_text"], "a=b&c=d");
    assert_eq!(
        body("inbox/github/text")["headers"]["x-github-event"],
        "push"
    );
    assert_eq!(body("inbox/github/bytes")["body_base64"], "//4A");
    assert_eq!(body("inbox/github/nothing")["body_text"], "");
}

/// The answer to a sender does not tell what became of its webhook.
#[test]
fn whatever_became_of_the_task_a_repeat_is_answered_with_success() {
    use semel::Effect;
    use semel::core::{Outcome, Payload, Verdict};

    let world = world();
    let server = start(&world);
    let sender = Sender::new("github");
    let ids = ["done", "failed", "dead", "doubtful", "running"];
    for id in ids {
        sender.deliver(&server, id).expect(202);
    }
    let tasks = tasks(&world);
    let end = |ok| {
        Verdict::Done(Outcome {
            ok,
            effect: Effect::Created,
            payload: Some(Payload::of(ANSWER)),
        })
    };
    let not_done = Verdict::NotDone {
        reject: true,
        error: None,
        retry_after: None,
    };
    for (id, verdict) in [
        ("done", end(true)),
        ("failed", end(false)),
        ("dead", not_done),
        ("doubtful", Verdict::Unknown { error: None }),
    ] {
        crate::setup::report(&world, &tasks[&format!("inbox/github/{id}")], verdict);
    }
    let before = stored(&world);
    for id in ids {
        let again = sender.deliver(&server, id).expect(200);
        assert_eq!(
            (&again["effect"], &again["ok"]),
            (&json!("noop"), &json!(true)),
            "{again}"
        );
        assert_eq!(again["data"], json!(null), "{again}");
    }
    assert_eq!(stored(&world), before);
}

/// A signature of GitHub's says nothing about when: the ledger remembers, also when everything was started anew.
#[test]
fn what_has_no_time_is_told_by_the_ledger() {
    let world = world();
    let mut server = start(&world);
    let sender = Sender::new("github");
    let asked = sender.signed("evt_1", b"{}");
    server.ask(asked.clone()).expect(202);
    assert_eq!(tasks(&world).len(), 1);
    server.kill();
    let server = start(&world);
    let again = server.ask(asked).expect(200);
    assert_eq!(again["effect"], "noop");
    assert_eq!(tasks(&world).len(), 0, "nobody gets it twice");
}

#[test]
fn slack_is_told_its_challenge_when_it_proves_to_be_slack() {
    let world = world();
    let server = start(&world);
    let sender = Sender::new("slack");
    let body =
        br#"{"token":"t","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY","type":"url_verification"}"#;
    let answer = server.ask(sender.signed("-", body)).expect(200);
    assert_eq!(answer, json!({"challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY"}));
    let wrong = Sender::with(
        "slack",
        semel::core::webhook::Scheme::Slack,
        "another-secret",
    );
    server
        .ask(wrong.signed("-", body))
        .problem(401, "unauthorized");
    // Only Slack asks so: for others it is a webhook like any other.
    let stripe = Sender::new("stripe");
    server
        .ask(stripe.signed("-", body))
        .problem(400, "invalid_input");
    assert_eq!(stored(&world), (0, 0));
}

/// Senders have no token; whoever asks anything else needs one.
#[test]
fn a_server_that_needs_tokens_needs_none_of_a_sender() {
    let world = world();
    let mut command = knowing(&world, &["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::spawn(command.env("SEMEL_AUTH", "required"));
    server.get("/v1/operations").problem(401, "unauthorized");
    Sender::new("stripe").deliver(&server, "evt_1").expect(202);
    let unsigned = crate::http::Asked::new("POST", "/in/stripe").body(b"{}");
    let unsigned = server.ask(unsigned);
    unsigned.problem(401, "unauthorized");
    assert_eq!(unsigned.header("www-authenticate"), Some("Signature"));
}
