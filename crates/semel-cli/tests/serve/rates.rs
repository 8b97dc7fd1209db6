//! How often a caller may call, and replies that are lost on purpose.

use serde_json::json;

use crate::harness::World;
use crate::http::Asked;
use crate::server::Server;

#[test]
fn a_caller_who_calls_too_often_is_told_when_to_come_back_and_others_are_served() {
    let world = World::new();
    let token = |label: &str| {
        let words = [
            "token", "create", "--scope", "read", "--json", "--label", label,
        ];
        let made = world.semel(&words).json();
        made[0]["token"]
            .as_str()
            .expect("it is shown once")
            .to_owned()
    };
    let (busy, calm) = (token("busy"), token("calm"));
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::spawn(command.env("SEMEL_SERVE_RATE_LIMIT", "1"));
    let ask = |token: &str| {
        let bearer = format!("Bearer {token}");
        server.ask(Asked::get("/v1/operations").header("Authorization", &bearer))
    };
    // One in a second: of so many in a row some are refused, however slow this machine is.
    let answers: Vec<_> = (0..50).map(|_| ask(&busy)).collect();
    let refused = answers.iter().find(|answer| answer.status != 200);
    let refused = refused.expect("nobody was refused");
    let problem = refused.problem(429, "rate_limited");
    assert_eq!(problem["retryable"], true);
    assert!(refused.header("retry-after").is_some());
    ask(&calm).expect(200);
    // What needs no token is not counted.
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn a_reply_that_is_lost_on_purpose_was_done_and_the_retry_gets_it() {
    let world = World::new();
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::spawn(command.env("SEMEL_INJECT", "drop-reply"));
    let begin = Asked::post(
        "/v1/begin",
        &json!({"key": "k", "name": "n", "attempt_id": "a"}),
    );
    let mut first = server.connect();
    first.send(&begin.bytes()).expect("it is sent");
    assert!(first.answer().is_err(), "the reply was not lost");
    let record = server.get("/v1/operations/k").expect(200);
    assert_eq!(
        (&record["state"], &record["fence"]),
        (&json!("running"), &json!(1))
    );
    let granted = server.ask(begin).expect(200);
    assert_eq!(
        (&granted["decision"], &granted["fence"]),
        (&json!("execute"), &json!(1))
    );
}
