//! Bodies that are not what they should be, or could be read in two ways.

use serde_json::json;

use crate::harness::World;
use crate::http::{Answer, Asked};
use crate::server::Server;

use super::nothing_happened;

fn post(server: &Server, target: &str, body: &[u8]) -> Answer {
    let asked = Asked::new("POST", target).header("Content-Type", "application/json");
    server.ask(asked.body(body))
}

#[test]
fn a_body_that_could_be_read_in_two_ways_is_refused() {
    let world = World::new();
    let server = Server::start(&world);
    let deep = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"key":"evil","name":"n","input":{open}{close}}}"#).into_bytes()
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "a key twice",
            br#"{"key":"evil","name":"n","key":"evil"}"#.to_vec(),
        ),
        (
            "a key twice, written differently",
            br#"{"key":"evil","name":"n","\u006bey":"evil"}"#.to_vec(),
        ),
        (
            "input twice",
            br#"{"key":"evil","name":"n","input":1,"input":1}"#.to_vec(),
        ),
        (
            "a member of input twice",
            br#"{"key":"evil","name":"n","input":{"a":1,"a":2}}"#.to_vec(),
        ),
        (
            "a member deep in input twice",
            br#"{"key":"evil","name":"n","input":[{"b":{"a":1,"\u0061":1}}]}"#.to_vec(),
        ),
        (
            "invalid UTF-8 in a string",
            b"{\"key\":\"evil\",\"name\":\"n\",\"input\":\"\xff\"}".to_vec(),
        ),
        (
            "an overlong form",
            b"{\"key\":\"evil\",\"name\":\"n\",\"input\":\"\xc0\xaf\"}".to_vec(),
        ),
        (
            "half a surrogate pair",
            br#"{"key":"evil","name":"n","input":"\ud800"}"#.to_vec(),
        ),
        (
            "an encoded surrogate",
            b"{\"key\":\"evil\",\"name\":\"n\",\"input\":\"\xed\xa0\x80\"}".to_vec(),
        ),
        (
            "a byte order mark",
            b"\xef\xbb\xbf{\"key\":\"evil\",\"name\":\"n\"}".to_vec(),
        ),
        (
            "UTF-16",
            "{\"key\":\"evil\",\"name\":\"n\"}"
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect(),
        ),
        (
            "NUL after it",
            b"{\"key\":\"evil\",\"name\":\"n\"}\0".to_vec(),
        ),
        (
            "a control character in a string",
            b"{\"key\":\"evil\",\"name\":\"n\",\"input\":\"a\x01b\"}".to_vec(),
        ),
        (
            "something after it",
            br#"{"key":"evil","name":"n"} {}"#.to_vec(),
        ),
        ("half of it", br#"{"key":"evil","name":"n""#.to_vec()),
        ("nothing", vec![]),
        ("spaces", b"   ".to_vec()),
        ("null", b"null".to_vec()),
        ("a number", b"5".to_vec()),
        ("a text", br#""evil""#.to_vec()),
        (
            "no number",
            br#"{"key":"evil","name":"n","input":NaN}"#.to_vec(),
        ),
        (
            "a number beyond numbers",
            br#"{"key":"evil","name":"n","input":1e999999999999}"#.to_vec(),
        ),
        ("comments", br#"{"key":"evil",/* */"name":"n"}"#.to_vec()),
        (
            "a comma at the end",
            br#"{"key":"evil","name":"n",}"#.to_vec(),
        ),
        (
            "quotes of another kind",
            br#"{'key':'evil','name':'n'}"#.to_vec(),
        ),
        ("deep nesting", deep(10_000)),
        ("very deep nesting", deep(400_000)),
        ("nesting without an end", b"[".repeat(400_000)),
        ("a form", b"key=evil&name=n".to_vec()),
    ];
    for (name, body) in cases {
        let answer = post(&server, "/v1/begin", &body);
        assert_eq!(answer.status, 400, "{name}: {answer:?}");
        answer.problem(400, "invalid_input");
        nothing_happened(&server, "evil");
    }
}

#[test]
fn a_member_that_is_unknown_or_of_another_type_is_refused() {
    let world = World::new();
    let server = Server::start(&world);
    for (member, value) in [
        ("kee", "1"),
        ("Key", "\"evil\""),
        ("namespace", "\"other\""),
        ("name", "5"),
        ("name", "null"),
        ("name", "\"\""),
        ("name", "\"a\\u0000b\""),
        ("attempt_id", "5"),
        ("attempt_id", "\"\""),
        ("attempt_id", "\"a\\nb\""),
        ("attempt_id", "\"a\\u0000b\""),
        ("attempt_id", &format!("\"{}\"", "a".repeat(65))),
        ("class", "\"dangerous\""),
        ("class", "\"UNSAFE\""),
        ("class", "7"),
        ("on_doubt", "\"panic\""),
        ("on_doubt", "true"),
        ("lease_ms", "0"),
        ("lease_ms", "-1"),
        ("lease_ms", "999"),
        ("lease_ms", "1500.5"),
        ("lease_ms", "\"60s\""),
        ("lease_ms", "\"60000\""),
        ("lease_ms", "86400001"),
        ("lease_ms", "18446744073709551615"),
        ("lease_ms", "18446744073709551616"),
        ("lease_ms", "1e400"),
        ("wait_ms", "-1"),
        ("wait_ms", "true"),
        ("wait_ms", "18446744073709551616"),
        ("dry_run", "\"false\""),
        ("dry_run", "0"),
    ] {
        let base = if member == "name" {
            ""
        } else {
            "\"name\":\"n\","
        };
        let body = format!("{{\"key\":\"evil\",{base}\"{member}\":{value}}}");
        let answer = post(&server, "/v1/begin", body.as_bytes());
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        answer.problem(400, "invalid_input");
        nothing_happened(&server, "evil");
    }
    for missing in [json!({"key": "evil"}), json!({"name": "n"}), json!({})] {
        server
            .post("/v1/begin", &missing)
            .problem(400, "invalid_input");
    }
    let granted = server.post(
        "/v1/begin",
        &json!({"key": "real", "name": "n", "attempt_id": "a"}),
    );
    granted.expect(200);
    for (member, value) in [
        ("fence", "0"),
        ("fence", "-1"),
        ("fence", "1.5"),
        ("fence", "\"1\""),
        ("fence", "18446744073709551616"),
        ("verdict", "\"maybe\""),
        ("verdict", "null"),
        ("ok", "\"true\""),
        ("ok", "1"),
        ("effect", "\"exploded\""),
        ("effect", "\"would_create\""),
        ("data", "{\"a\":1,\"a\":2}"),
        ("data", "\"\\udfff\""),
        ("outcome", "1"),
    ] {
        let mut members = vec![
            ("key", "\"real\""),
            ("attempt_id", "\"a\""),
            ("fence", "1"),
            ("verdict", "\"done\""),
            ("ok", "true"),
            ("effect", "\"created\""),
        ];
        members.retain(|(name, _)| *name != member);
        members.push((member, value));
        let members: Vec<_> = members
            .iter()
            .map(|(name, value)| format!("\"{name}\":{value}"))
            .collect();
        let body = format!("{{{}}}", members.join(","));
        let answer = post(&server, "/v1/settle", body.as_bytes());
        // A fence that no attempt has is a matter of the ledger.
        let expected = if value == "0" {
            &[400, 409][..]
        } else {
            &[400]
        };
        assert!(expected.contains(&answer.status), "{body}: {answer:?}");
        let record = server.get("/v1/operations/real").expect(200);
        assert_eq!(record["state"], "running", "{body}: {record}");
    }
}

#[test]
fn every_endpoint_refuses_what_it_does_not_know() {
    let world = World::new();
    let server = Server::start(&world);
    for target in [
        "begin", "settle", "renew", "submit", "resolve", "retry", "cancel", "forget",
    ] {
        let target = format!("/v1/{target}");
        for body in [
            "",
            "{",
            "5",
            "{\"key\":\"k\",\"wonder\":1}",
            "{\"key\":\"k\",\"key\":\"k\"}",
        ] {
            let answer = post(&server, &target, body.as_bytes());
            assert_eq!(answer.status, 400, "{target} {body}: {answer:?}");
            answer.problem(400, "invalid_input");
        }
        nothing_happened(&server, "evil");
    }
}

/// Equal by value is equal, as fingerprints are over canonical JSON; different by one digit is different.
#[test]
fn the_fingerprint_sees_values_and_not_how_they_are_written() {
    let world = World::new();
    let server = Server::start(&world);
    let begin = |input: &str| {
        let body = format!(r#"{{"key":"k","name":"n","attempt_id":"a","input":{input}}}"#);
        post(&server, "/v1/begin", body.as_bytes())
    };
    begin(r#"{"a": 1, "id": 1234567890123456789}"#).expect(200);
    begin(r#"{"id":1234567890123456789,"\u0061":1.0}"#).expect(200);
    begin(r#"{"a":1,"id":1234567890123456790}"#).problem(422, "key_reused");
    begin(r#"{"a":"1","id":1234567890123456789}"#).problem(422, "key_reused");
    begin("null").problem(422, "key_reused");
}
