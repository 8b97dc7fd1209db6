//! Answers of the proxy as people and programs see them afterwards: by their parts, the same at the command line and
//! over the API.

use serde_json::{Value, json};

use crate::server::Server;
use crate::setup::{Setup, fresh, is_replay, keyed};
use crate::upstream::{Deed, Reply};

/// Returns the ledger's key of the only operation.
#[track_caller]
fn key(setup: &Setup) -> String {
    let records = setup.records();
    let key = records[0]["key"].as_str();
    key.expect("a key is text").to_owned()
}

/// Returns `data` of the only operation, as `show --json` has it; the API says the same.
#[track_caller]
fn data(setup: &Setup) -> Value {
    let key = key(setup);
    let shown = setup.world.semel(&["show", &key, "--json"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let data = shown.json().remove(0)["data"].take();
    let server = Server::start(&setup.world);
    let place = key.replace('/', "%2F").replace(' ', "%20");
    let told = server.get(&format!("/v1/operations/{place}"));
    assert_eq!(told.status, 200, "{told:?}");
    assert_eq!(told.json()["data"], data, "{told:?}");
    data
}

#[test]
fn an_answer_is_shown_by_its_parts() {
    let json = "application/json";
    for (reply, expected) in [
        (
            Reply::new(201, "{\"id\": 42}").header("Content-Type", json),
            json!({"status": 201, "headers": {"content-type": json}, "body": {"id": 42}}),
        ),
        (
            Reply::new(200, "{\"id\": 42}").header("Content-Type", "text/plain"),
            json!({"status": 200, "headers": {"content-type": "text/plain"}, "body": "{\"id\": 42}"}),
        ),
        (
            Reply::new(404, b"\xff\x00"),
            json!({"status": 404, "headers": {}, "body_base64": "/wA="}),
        ),
    ] {
        let setup = Setup::new();
        setup.upstream.answers(reply);
        setup.ask(keyed("k"));
        assert_eq!(data(&setup), expected);
    }
}

#[test]
fn people_see_status_headers_and_body() {
    let setup = Setup::new();
    let reply = Reply::new(201, "{\"id\": 42}").header("Content-Type", "application/json");
    setup
        .upstream
        .answers(reply.header("X-Account", "secret-7"));
    fresh(&setup.ask(keyed("k")), 201);
    let shown = setup.world.semel(&["show", &key(&setup)]);
    for line in [
        "answer\n  status       201\n",
        "  header       content-type: application/json\n",
        "  header       x-account: [redacted]\n",
        "  body         {\"id\": 42}\n",
    ] {
        assert!(shown.stdout.contains(line), "{line}: {}", shown.stdout);
    }
    // What is told again has all of it.
    let again = setup.ask(keyed("k"));
    assert_eq!(again.header("x-account"), Some("secret-7"), "{again:?}");
}

#[test]
fn a_body_that_was_not_kept_is_said_to_be_none() {
    let setup = Setup::routed("answer_limit = \"1000\"");
    setup.upstream.answers(Reply::new(200, "").long(2_000));
    setup.ask(keyed("k"));
    let data = data(&setup);
    assert_eq!(
        (&data["status"], &data["body"], &data["body_kept"]),
        (&json!(200), &Value::Null, &json!(false)),
        "{data}"
    );
    let shown = setup.world.semel(&["show", &key(&setup)]);
    assert!(
        shown
            .stdout
            .contains("  body         not kept: it was too long\n"),
        "{}",
        shown.stdout
    );
}

#[test]
fn what_a_person_said_is_shown_as_it_was_said() {
    let setup = Setup::new();
    setup.upstream.next(Deed::CloseAfterEffect);
    setup.ask(keyed("k"));
    setup.resolve(&["--done", "--data", "{\"status\": 200, \"headers\": []}"]);
    assert_eq!(data(&setup), json!({"status": 200, "headers": []}));
}

#[test]
fn what_a_rule_names_in_an_answer_is_not_stored() {
    let setup = Setup::routed("[redact]\noutputs = [\"/card/number\"]");
    let body = "{\"id\": 42, \"card\": {\"number\": \"4242\"}}";
    let reply = Reply::new(201, body).header("Content-Type", "application/json");
    setup.upstream.answers(reply);
    let first = setup.ask(keyed("k"));
    assert_eq!(String::from_utf8_lossy(&first.body), body);
    let data = data(&setup);
    assert_eq!(
        data["body"],
        json!({"id": 42, "card": {"number": "[redacted]"}}),
        "{data}"
    );
    let again = setup.ask(keyed("k"));
    assert!(is_replay(&again), "{again:?}");
    let redacted = body.replace("\"4242\"", "\"[redacted]\"");
    assert_eq!(String::from_utf8_lossy(&again.body), redacted);
}
