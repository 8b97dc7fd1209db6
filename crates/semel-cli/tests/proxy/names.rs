//! What a client calls its request is enough to find it, as long as it means one operation.

use serde_json::{Value, json};

use crate::harness::Ran;
use crate::http::{Answer, Asked, segment};
use crate::server::Server;
use crate::setup::{Setup, fresh, is_replay, keyed, refused};
use crate::upstream::Deed;

fn of(whose: &str, key: &str) -> Asked {
    keyed(key).header("Authorization", &format!("Bearer {whose}"))
}

/// Loses the answer to a request whose effect has happened.
#[track_caller]
fn lose(setup: &Setup, asked: Asked) {
    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&setup.ask(asked), 502, "in_doubt");
}

#[track_caller]
fn failure(ran: &Ran, code: i32) -> Value {
    assert_eq!(ran.code, code, "{ran:?}");
    ran.json().remove(0)["error"].clone()
}

/// Returns the ledger's keys of all requests.
fn keys(setup: &Setup) -> Vec<String> {
    let text = |record: &Value| record["key"].as_str().expect("a key").to_owned();
    setup.records().iter().map(text).collect()
}

#[test]
fn a_lost_answer_is_looked_at_and_resolved_by_the_clients_key() {
    let setup = Setup::new();
    lose(&setup, keyed("order-7"));
    let doubt = setup.doubt();
    assert_ne!(doubt, "order-7");
    let shown = setup.world.semel(&["show", "order-7", "--json"]);
    assert_eq!(shown.json()[0]["key"], doubt.as_str(), "{shown:?}");
    let logged = setup.world.semel(&["log", "order-7", "--json"]);
    assert_eq!(logged.json().len(), 2, "{logged:?}");
    let listed = setup.world.semel(&["list", "--prefix", "order-", "--json"]);
    assert_eq!(listed.json()[0]["key"], doubt.as_str(), "{listed:?}");
    let words = ["resolve", "order-7", "--done", "--yes", "--json"];
    let resolved = setup.world.semel(&words);
    assert_eq!(resolved.code, 0, "{resolved:?}");
    assert_eq!(resolved.json()[0]["key"], doubt.as_str(), "{resolved:?}");
    assert!(is_replay(&setup.ask(keyed("order-7"))));
    let forgotten = setup.world.semel(&["forget", "order-7"]);
    forgotten.expect(0, &format!("{doubt}: succeeded -> forgotten\n"), "");
    let gone = setup.world.semel(&["show", "order-7", "--json"]);
    assert_eq!(failure(&gone, 1)["code"], "not_found", "{gone:?}");
    assert_eq!(setup.effects(), 1);
}

#[test]
fn two_callers_of_one_key_are_not_told_apart_by_a_guess() {
    let setup = Setup::new();
    fresh(&setup.ask(of("ann", "order-7")), 201);
    lose(&setup, of("bob", "order-7"));
    let doubt = setup.doubt();
    let both = keys(&setup);
    for words in [
        &["show", "order-7"][..],
        &["resolve", "order-7", "--done", "--yes"],
        &["retry", "order-7"],
        &["cancel", "order-7"],
        &["forget", "order-7"],
        &["log", "order-7"],
    ] {
        let refused = setup.world.semel(&[words, &["--json"]].concat());
        let error = failure(&refused, 64);
        assert_eq!(error["code"], "invalid_input", "{refused:?}");
        let message = error["message"].as_str().expect("a text");
        assert!(both.iter().all(|key| message.contains(key)), "{message}");
        assert!(message.contains("(doubtful)"), "{message}");
        assert!(!error["hint"].is_null(), "{refused:?}");
    }
    assert_eq!(setup.states(), ["doubtful", "succeeded"]);
    let resolved = setup.world.semel(&["resolve", &doubt, "--done", "--yes"]);
    assert_eq!(resolved.code, 0, "{resolved:?}");
    assert_eq!(setup.states(), ["succeeded", "succeeded"]);
}

fn shown(server: &Server, name: &str) -> Answer {
    server.get(&format!("/v1/operations/{}", segment(name)))
}

#[test]
fn the_api_takes_either_and_guesses_as_little() {
    let setup = Setup::new();
    lose(&setup, of("bob", "order-7"));
    let doubt = setup.doubt();
    let server = Server::start(&setup.world);
    for name in ["order-7", &doubt] {
        let record = shown(&server, name).expect(200);
        assert_eq!(record["key"], doubt.as_str(), "{record}");
        assert_eq!(record["client_key"], "order-7", "{record}");
    }
    let listed = server.get("/v1/operations?prefix=order-").expect(200);
    assert_eq!(listed["items"][0]["key"], doubt.as_str(), "{listed}");
    let events = server.get("/v1/operations/order-7/events").expect(200);
    assert_eq!(events["items"][0]["key"], doubt.as_str(), "{events}");
    let version = shown(&server, "order-7").expect(200)["version"].clone();
    let call = json!({"key": "order-7", "version": version, "verdict": "done"});
    fresh(&setup.ask(of("ann", "order-7")), 201);
    let problem = server
        .post("/v1/resolve", &call)
        .problem(400, "invalid_input");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(
        keys(&setup).iter().all(|key| detail.contains(key)),
        "{detail}"
    );
    shown(&server, "order-7").problem(400, "invalid_input");
    let events = server.get("/v1/operations/order-7/events");
    events.problem(400, "invalid_input");
    let call = json!({"key": doubt, "version": version, "verdict": "done"});
    let receipt = server.post("/v1/resolve", &call).expect(200);
    assert_eq!(receipt["state"], "succeeded", "{receipt}");
    shown(&server, "order-8").problem(404, "not_found");
}

#[test]
fn a_remote_ledger_is_asked_by_either() {
    let setup = Setup::new();
    lose(&setup, keyed("order-7"));
    let doubt = setup.doubt();
    let server = Server::start(&setup.world);
    let store = format!("http://127.0.0.1:{}", server.port());
    let semel = |words: &[&str]| setup.world.semel(&[&["--store", &store], words].concat());
    let shown = semel(&["show", "order-7", "--json"]);
    assert_eq!(shown.json()[0]["key"], doubt.as_str(), "{shown:?}");
    let missing = semel(&["show", "order-8", "--json"]);
    assert_eq!(failure(&missing, 1)["code"], "not_found", "{missing:?}");
    let resolved = semel(&["resolve", "order-7", "--not-done", "--yes"]);
    resolved.expect(
        0,
        &format!("{doubt}: doubtful -> pending\n"),
        &resolved.stderr,
    );
    fresh(&setup.ask(of("ann", "order-7")), 201);
    let both = semel(&["show", "order-7", "--json"]);
    assert_eq!(failure(&both, 64)["code"], "invalid_input", "{both:?}");
}
