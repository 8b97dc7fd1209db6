//! E. What makes two requests the same.

use serde_json::json;

use crate::http::Asked;
use crate::setup::{Setup, fresh, keyed, refused, replay_of};

fn body(kind: &str, body: &[u8]) -> Asked {
    let asked = Asked::new("POST", "/charges").header("Content-Type", kind);
    asked.header("Idempotency-Key", "k").body(body)
}

/// Expects that a key stands for one of the bodies and its equals, and for none of the others.
#[track_caller]
fn compare(setup: &Setup, first: Asked, same: &[Asked], others: &[Asked]) {
    let answer = setup.ask(first);
    fresh(&answer, 201);
    for asked in same {
        replay_of(&answer, &setup.ask(asked.clone()));
    }
    for asked in others {
        refused(&setup.ask(asked.clone()), 422, "key_reused");
    }
    assert_eq!(setup.upstream.received().len(), 1);
}

#[test]
fn c069_what_differs_between_tries_makes_no_difference() {
    let setup = Setup::new();
    let first = setup.ask(keyed("k").header("X-Stainless-Retry-Count", "0"));
    fresh(&first, 201);
    for (name, value) in [
        ("X-Stainless-Retry-Count", "1"),
        ("X-Stripe-Client-Telemetry", "{}"),
        ("User-Agent", "other/2"),
        (
            "Traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
        ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("Accept", "*/*"),
    ] {
        replay_of(&first, &setup.ask(keyed("k").header(name, value)));
    }
    assert_eq!(setup.effects(), 1);
}

#[test]
fn c070_c071_c072_json_is_compared_by_its_value() {
    let kind = "application/json";
    let of = |text: &str| body(kind, text.as_bytes());
    compare(
        &Setup::new(),
        of(r#"{"a":1,"b":[1.0,2],"c":null}"#),
        &[of("{ \"c\":null, \"b\": [1, 2.0],\n \"a\": 1e0 }")],
        &[
            of(r#"{"a":1,"b":[1,2]}"#),
            of(r#"{"a":1,"b":[2,1],"c":null}"#),
            of(r#"{"a":9007199254740993,"b":[1,2],"c":null}"#),
            of(r#"{"a":1,"a":1,"b":[1,2],"c":null}"#),
            body("text/plain", br#"{ "a":1,"b":[1.0,2],"c":null}"#),
        ],
    );
}

#[test]
fn c070_a_route_may_compare_bytes() {
    let of = |text: &str| body("application/json", text.as_bytes());
    compare(
        &Setup::routed("fingerprint = { bytes = true }"),
        of(r#"{"a":1}"#),
        &[of(r#"{"a":1}"#)],
        &[of(r#"{"a": 1}"#)],
    );
}

#[test]
fn c073_another_boundary_is_the_same_form() {
    let of = |boundary: &str, file: &str| {
        let kind = format!("multipart/form-data; boundary={boundary}");
        let part = "Content-Disposition: form-data; name=\"f\"";
        let text = format!("--{boundary}\r\n{part}\r\n\r\n{file}\r\n--{boundary}--\r\n");
        body(&kind, text.as_bytes())
    };
    compare(
        &Setup::new(),
        of("abc", "one"),
        &[of("abc", "one"), of("x-1234567", "one")],
        &[of("abc", "two")],
    );
}

#[test]
fn c074_some_members_may_differ_where_the_route_says_so() {
    let of = |value: serde_json::Value| body("application/json", value.to_string().as_bytes());
    compare(
        &Setup::routed("fingerprint = { except = [\"/sent_at\", \"/meta/try\"] }"),
        of(json!({"id": "a", "sent_at": 1, "meta": {"try": 1, "x": 1}})),
        &[of(
            json!({"id": "a", "sent_at": 2, "meta": {"try": 2, "x": 1}}),
        )],
        &[
            of(json!({"id": "a", "sent_at": 1, "meta": {"try": 1, "x": 2}})),
            of(json!({"id": "b", "sent_at": 1, "meta": {"try": 1, "x": 1}})),
        ],
    );
    compare(
        &Setup::routed("fingerprint = { only = [\"/id\"] }"),
        of(json!({"id": "a", "sent_at": 1})),
        &[of(json!({"id": "a", "sent_at": 2}))],
        &[of(json!({"id": "b", "sent_at": 1}))],
    );
}

/// A selection that finds nothing must not make all requests one.
#[test]
fn c074_what_a_selection_leaves_empty_is_compared_as_a_whole() {
    let of = |value: serde_json::Value| body("application/json", value.to_string().as_bytes());
    compare(
        &Setup::routed("fingerprint = { only = [\"/nowhere\"] }"),
        of(json!({"id": "a"})),
        &[of(json!({"id": "a"}))],
        &[of(json!({"id": "b"}))],
    );
}

#[test]
fn c074_headers_count_where_the_route_says_so() {
    let setup = Setup::routed("fingerprint = { headers = [\"X-Currency\"] }");
    let of = |currency: &str| keyed("k").header("X-Currency", currency);
    compare(&setup, of("EUR"), &[of("EUR")], &[of("USD"), keyed("k")]);
}

#[test]
fn c075_the_host_counts_where_the_route_says_so() {
    let of = |host: &str| keyed("k").header("Host", host);
    compare(&Setup::new(), of("localhost"), &[of("127.0.0.1")], &[]);
    let setup = Setup::routed("fingerprint = { host = true }");
    compare(
        &setup,
        of("localhost"),
        &[of("localhost")],
        &[of("127.0.0.1")],
    );
}

#[test]
fn c076_a_coded_body_is_another_one() {
    // `{}` with gzip.
    let coded = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xab, 0xae, 5, 0, 0x43, 0xbf, 0xa6, 0xa3, 2, 0, 0, 0,
    ];
    let plain = || body("application/json", b"{}");
    let gzip = || body("application/json", &coded).header("Content-Encoding", "gzip");
    let setup = Setup::new();
    compare(&setup, gzip(), &[gzip()], &[plain()]);
    let received = &setup.upstream.received()[0];
    assert_eq!(received.header("content-encoding").as_deref(), Some("gzip"));
    assert_eq!(received.body, coded);
}
