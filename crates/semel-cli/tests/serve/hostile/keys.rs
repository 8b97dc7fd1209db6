//! Keys of every kind, in bodies and in paths.

use serde_json::json;

use crate::harness::World;
use crate::http::segment;
use crate::server::Server;

#[test]
fn every_key_that_follows_the_rule_works_in_body_and_path() {
    let world = World::new();
    let server = Server::start(&world);
    let every: String = (0x21..=0x7e).map(char::from).collect();
    let longest = "k".repeat(255);
    for key in [
        "a",
        &longest,
        &every,
        "a b",
        "a/b",
        "/",
        "//",
        "a/",
        ".",
        "..",
        "../..",
        "a/../b",
        "%",
        "%2F",
        "%00",
        "a%20b",
        "a+b",
        "\"",
        "'",
        "\\",
        "a?b=c",
        "a#b",
        "a&b;c,d",
        "events",
        "{key}",
        "*",
        "<script>",
        "'; DROP TABLE operations; --",
    ] {
        let begin = json!({"key": key, "name": "n", "attempt_id": "a"});
        let granted = server.post("/v1/begin", &begin).expect(200);
        assert_eq!(granted["key"], key, "{granted}");
        let path = format!("/v1/operations/{}", segment(key));
        let record = server.get(&path).expect(200);
        assert_eq!(
            (&record["key"], &record["fence"]),
            (&json!(key), &granted["fence"])
        );
        let events = server.get(&format!("{path}/events")).expect(200);
        assert_eq!(events["items"][0]["key"], key, "{events}");
        let listed = server.get(&format!("/v1/operations?prefix={}&limit=1", segment(key)));
        assert_eq!(listed.expect(200)["items"][0]["key"], key, "{listed:?}");
    }
}

#[test]
fn a_key_that_breaks_the_rule_is_refused_everywhere() {
    let world = World::new();
    let server = Server::start(&world);
    let too_long = "k".repeat(256);
    for key in [
        "",
        " a",
        "a ",
        " ",
        &too_long,
        "a\0b",
        "a\nb",
        "a\tb",
        "a\u{7f}",
        "schl\u{fc}ssel",
        "\u{1f511}",
    ] {
        let bodies = [
            ("begin", json!({"key": key, "name": "n"})),
            ("submit", json!({"key": key, "name": "n"})),
            (
                "settle",
                json!({"key": key, "attempt_id": "a", "fence": 1, "verdict": "unknown"}),
            ),
            ("renew", json!({"key": key, "attempt_id": "a", "fence": 1})),
            (
                "resolve",
                json!({"key": key, "version": 1, "verdict": "not_done"}),
            ),
            ("retry", json!({"key": key, "version": 1})),
            ("cancel", json!({"key": key, "version": 1})),
            ("forget", json!({"key": key, "version": 1})),
        ];
        for (call, body) in bodies {
            let answer = server.post(&format!("/v1/{call}"), &body);
            assert_eq!(answer.status, 400, "{call} {key:?}: {answer:?}");
            answer.problem(400, "invalid_key");
        }
        if !key.is_empty() {
            let path = format!("/v1/operations/{}", segment(key));
            server.get(&path).problem(400, "invalid_key");
            server
                .get(&format!("{path}/events"))
                .problem(400, "invalid_key");
        }
    }
    let listed = server.get("/v1/operations").expect(200);
    assert_eq!(listed["items"], json!([]));
    for path in ["%ff", "a%80", "%C0%AF", "%ED%A0%80"] {
        let answer = server.get(&format!("/v1/operations/{path}"));
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
    }
    // What is not quite percent-encoded names nothing that is there.
    for path in ["%", "%2", "%zz"] {
        let answer = server.get(&format!("/v1/operations/{path}"));
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
    }
}

#[test]
fn questions_that_make_no_sense_are_refused() {
    let world = World::new();
    let server = Server::start(&world);
    for query in [
        "limit=0",
        "limit=-1",
        "limit=abc",
        "limit=18446744073709551616",
        "limit=1&limit=2",
        "state=nope",
        "after=nonsense",
        "after=%00",
        "since=yesterday-ish",
        "colour=red",
        "prefix=%ff",
    ] {
        let answer = server.get(&format!("/v1/operations?{query}"));
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        answer.problem(400, "invalid_input");
    }
}
