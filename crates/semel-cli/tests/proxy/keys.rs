//! A. The header and the key.

use serde_json::json;

use crate::http::Asked;
use crate::setup::{Setup, charge, fresh, header, keyed, refusal, refused, replay_of};
use crate::upstream::{Deed, Reply};

/// Sends bytes as they are, and returns the status that they are answered with.
fn status_of(setup: &Setup, bytes: &[u8]) -> u16 {
    let mut connection = setup.proxy().connect();
    connection.send(bytes).expect("it is sent");
    connection.answer().expect("it is answered").status
}

fn with_key(line: &str) -> Asked {
    charge("c").header("Idempotency-Key", line)
}

#[test]
fn c001_c002_c009_one_key_is_written_in_many_ways() {
    let setup = Setup::new();
    let first = setup.ask(with_key(r#""o-1""#));
    fresh(&first, 201);
    for same in ["o-1", r#""o-1";a=1"#, "  o-1\t"] {
        replay_of(&first, &setup.ask(with_key(same)));
    }
    let escaped = setup.ask(with_key(r#""a\"b\\c""#));
    fresh(&escaped, 201);
    replay_of(&escaped, &setup.ask(with_key(r#""a\"b\\c";x"#)));
    assert_eq!(setup.effects(), 2);
}

#[test]
fn c003_where_quotes_are_needed_nothing_else_is_a_key() {
    let setup = Setup::with(&["--profile", "ietf"]);
    for wrong in ["o-1", "1", "1.5", "?1", ":YWJj:", "a=1", r#"("a")"#] {
        refused(&setup.ask(with_key(wrong)), 400, "invalid_key");
    }
    assert_eq!(setup.upstream.received().len(), 0);
    fresh(&setup.ask(with_key(r#""o-1""#)), 201);
}

#[test]
fn c005_two_keys_are_refused_and_nothing_is_sent() {
    let setup = Setup::new();
    let two = with_key("a").header("Idempotency-Key", "b");
    let same = with_key("a").header("idempotency-key", "a");
    for asked in [two, same, with_key("a,b"), with_key(r#""a", "b""#)] {
        refused(&setup.ask(asked), 400, "invalid_key");
    }
    assert_eq!(setup.upstream.received().len(), 0);
    assert_eq!(setup.records(), Vec::<serde_json::Value>::new());
}

#[test]
fn c006_an_empty_key_is_refused() {
    let setup = Setup::new();
    for empty in ["", "  ", r#""""#] {
        refused(&setup.ask(with_key(empty)), 400, "invalid_key");
    }
    assert_eq!(setup.upstream.received().len(), 0);
}

#[test]
fn c007_a_key_has_up_to_255_bytes() {
    let setup = Setup::new();
    let longest = "k".repeat(255);
    let first = setup.ask(with_key(&longest));
    fresh(&first, 201);
    replay_of(&first, &setup.ask(with_key(&longest)));
    // It differs in the last byte only.
    fresh(&setup.ask(with_key(&format!("{}j", "k".repeat(254)))), 201);
    let answer = setup.ask(with_key(&format!("{longest}k")));
    refused(&answer, 400, "invalid_key");
    assert_eq!(setup.effects(), 2);
}

#[test]
fn c008_bytes_that_no_key_has_are_refused() {
    let setup = Setup::new();
    for bytes in [
        &b"caf\xe9"[..],
        b"\xff\xfe",
        b"a\x7fb",
        b"a\x01b",
        b"\"a\tb\"",
        b"a\0b",
    ] {
        let mut request =
            b"POST /charges HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n".to_vec();
        request.extend(b"Idempotency-Key: ");
        request.extend(bytes);
        request.extend(b"\r\n\r\n");
        assert_eq!(status_of(&setup, &request), 400, "{bytes:?}");
    }
    assert_eq!(setup.upstream.received().len(), 0);
    fresh(&setup.ask(keyed("after")), 201);
}

#[test]
fn c010_the_name_of_the_header_has_any_case_and_can_be_another() {
    let setup = Setup::new();
    let first = setup.ask(charge("c").header("IDEMPOTENCY-KEY", "k"));
    replay_of(
        &first,
        &setup.ask(charge("c").header("idempotency-key", "k")),
    );

    let setup = Setup::routed(r#"key_headers = ["PayPal-Request-Id", "X-Idempotency-Key"]"#);
    for name in ["paypal-request-id", "X-IDEMPOTENCY-KEY"] {
        let asked = || charge(name).header(name, name);
        let first = setup.ask(asked());
        fresh(&first, 201);
        replay_of(&first, &setup.ask(asked()));
        assert_eq!(setup.upstream.effects_of(name), 1);
    }
    // Both together are two keys.
    let both = charge("c")
        .header("PayPal-Request-Id", "a")
        .header("X-Idempotency-Key", "b");
    refused(&setup.ask(both), 400, "invalid_key");
}

#[test]
fn c011_a_key_that_is_required_is_asked_for() {
    let setup = Setup::with(&["--keyless", "require"]);
    let answer = setup.ask(charge("c"));
    let problem = refusal(&answer, 400);
    // It says which header is missing.
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("idempotency-key"), "{problem}");
    assert_eq!(setup.upstream.received().len(), 0);
    // What only reads needs none.
    fresh(&setup.ask(Asked::get("/charges")), 201);
    fresh(&setup.ask(keyed("k")), 201);
}

#[test]
fn c011_where_it_is_optional_requests_without_one_pass_unmarked() {
    let setup = Setup::with(&["--keyless", "pass"]);
    for count in 1..=2 {
        let answer = setup.ask(charge("c"));
        fresh(&answer, 201);
        let ours = answer
            .headers
            .iter()
            .find(|(name, _)| name.starts_with("semel-") || name.starts_with("idempoten"));
        assert_eq!(ours, None, "{answer:?}");
        assert_eq!(setup.effects(), count);
    }
    assert_eq!(setup.records(), Vec::<serde_json::Value>::new());
}

#[test]
fn c012_what_only_reads_is_passed_whatever_its_key() {
    let setup = Setup::new();
    for _ in 0..2 {
        let asked = Asked::get("/charges/1?x=%20y").header("Idempotency-Key", "k");
        fresh(&setup.ask(asked), 201);
        let asked = Asked::new("OPTIONS", "/charges").header("Idempotency-Key", "k");
        fresh(&setup.ask(asked), 201);
    }
    assert_eq!(setup.upstream.received().len(), 4);
    assert_eq!(setup.upstream.received()[0].target, "/charges/1?x=%20y");
    assert_eq!(setup.records(), Vec::<serde_json::Value>::new());
}

/// Every profile protects what it lists, and whatever has a key: frameworks read `patch` as PATCH, and keys are sent with
/// methods that no profile lists.
#[test]
fn c012_a_key_counts_whatever_the_method() {
    let methods = [
        "POST", "PUT", "PATCH", "DELETE", "post", "patch", "Patch", "put", "delete", "get", "head",
        "LOCK", "MKCOL", "PURGE",
    ];
    for profile in ["semel", "ietf", "stripe", "acp", "ucp", "square", "llm"] {
        let setup = Setup::with(&["--profile", profile, "--keyless", "pass"]);
        for method in methods {
            let name = format!("{profile}-{method}");
            let asked = || {
                let target = format!("/{name}");
                let quoted = format!("\"{name}\"");
                Asked::new(method, &target).header("Idempotency-Key", &quoted)
            };
            let first = setup.ask(asked());
            fresh(&first, 201);
            replay_of(&first, &setup.ask(asked()));
            let quoted = format!("\"{name}\"");
            assert_eq!(setup.upstream.effects_of(&quoted), 1, "{name}");
        }
        let records = setup.records();
        assert_eq!(records.len(), methods.len(), "{profile}");
        for record in records {
            let name = record["name"].as_str().unwrap_or_default();
            let method = name.split(' ').next().unwrap_or_default();
            let is_idempotent = record["class"] == "idempotent";
            let may_be = ["PUT", "DELETE"].contains(&method);
            assert!(may_be || !is_idempotent, "{record}");
            assert!(
                is_idempotent || profile == "llm" || record["on_doubt"] == "hold",
                "{record}"
            );
        }
    }
}

#[test]
fn c012_without_a_key_other_methods_pass_and_other_cases_do_not() {
    let setup = Setup::with(&["--keyless", "require"]);
    for method in ["post", "Patch", "delete"] {
        refused(
            &setup.ask(Asked::new(method, "/charges")),
            400,
            "invalid_key",
        );
    }
    assert_eq!(setup.upstream.received().len(), 0);
    for method in ["LOCK", "get", "PURGE"] {
        fresh(&setup.ask(Asked::new(method, "/charges")), 201);
    }
    assert_eq!(setup.records(), Vec::<serde_json::Value>::new());
}

#[test]
fn c012_a_key_that_is_none_is_refused_whatever_the_method() {
    let setup = Setup::with(&["--profile", "stripe"]);
    for method in ["PUT", "LOCK", "patch"] {
        let asked = Asked::new(method, "/charges").header("Idempotency-Key", "");
        refused(&setup.ask(asked), 400, "invalid_key");
    }
    assert_eq!(setup.upstream.received().len(), 0);
}

/// What only reads by its method may act by a header.
#[test]
fn c012_a_method_that_overrides_a_safe_one_is_protected() {
    let setup = Setup::new();
    let names = [
        "X-HTTP-Method-Override",
        "x-http-method",
        "X-Method-Override",
    ];
    for (number, name) in names.into_iter().enumerate() {
        let key = format!("k-{number}");
        let asked = |method: &str| {
            let asked = Asked::get("/charges/1").header("Idempotency-Key", &key);
            asked.header(name, method)
        };
        let first = setup.ask(asked("DELETE"));
        fresh(&first, 201);
        replay_of(&first, &setup.ask(asked("DELETE")));
        // As another method it is another request.
        refused(&setup.ask(asked("PATCH")), 422, "key_reused");
        assert_eq!(setup.upstream.received().len(), number + 1);
    }
    for safe in ["HEAD", "OPTIONS"] {
        let asked = Asked::get("/charges/1").header("Idempotency-Key", "k");
        fresh(
            &setup.ask(asked.header("X-HTTP-Method-Override", safe)),
            201,
        );
    }
    let setup = Setup::with(&["--keyless", "require"]);
    let asked = Asked::get("/charges/1").header("X-HTTP-Method-Override", "DELETE");
    refused(&setup.ask(asked), 400, "invalid_key");
    assert_eq!(setup.upstream.received().len(), 0);
}

#[test]
fn a_doubt_of_a_method_that_the_profile_does_not_list_is_held() {
    let setup = Setup::with(&["--profile", "llm"]);
    let asked = || Asked::new("delete", "/v1/files/1").header("Idempotency-Key", "k");
    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&setup.ask(asked()), 502, "in_doubt");
    refused(&setup.ask(asked()), 409, "in_doubt");
    assert_eq!(setup.effects(), 1);
}

/// A payment as Square's API takes it.
fn payment(key: &serde_json::Value, amount: u32) -> Asked {
    let body = json!({"id": "c", "idempotency_key": key, "amount_money": {"amount": amount}});
    Asked::post("/v2/payments", &body)
}

#[test]
fn a_key_in_the_body_counts_where_the_profile_says_so() {
    let setup = Setup::with(&["--profile", "square"]);
    let first = setup.ask(payment(&json!("k-1"), 5));
    fresh(&first, 201);
    // Its answer arrived: without the key, a repeat would be a second payment.
    replay_of(&first, &setup.ask(payment(&json!("k-1"), 5)));
    let answer = setup.ask(payment(&json!("k-1"), 6));
    refused(&answer, 400, "key_reused");
    fresh(&setup.ask(payment(&json!("k-2"), 5)), 201);
    assert_eq!(setup.effects(), 2);
    let shown = setup.world.semel(&["show", "k-1", "--json"]);
    assert_eq!(shown.json()[0]["client_key"], "k-1", "{shown:?}");
    for wrong in [json!(7), json!(""), json!(["k"]), json!("k".repeat(256))] {
        refused(&setup.ask(payment(&wrong, 5)), 400, "invalid_key");
    }
    assert_eq!(setup.effects(), 2);
    // Square answers a key with its first success, so what it turned down is sent again.
    for status in [400, 402, 500, 503] {
        setup
            .upstream
            .answers(Reply::new(status, "declined").harmless());
        fresh(&setup.ask(payment(&json!("k-3"), 5)), status);
    }
    fresh(&setup.ask(payment(&json!("k-3"), 5)), 201);
}

#[test]
fn a_key_in_the_body_counts_whatever_the_method_and_where_none_is_needed() {
    let setup = Setup::routed("profile = \"square\"\nkeyless = \"pass\"");
    for method in ["POST", "PUT", "post", "LOCK"] {
        let asked = || {
            let body = json!({"id": method, "idempotency_key": method}).to_string();
            let asked = Asked::new(method, "/v2/orders").body(body.as_bytes());
            asked.header("Content-Type", "application/json")
        };
        let first = setup.ask(asked());
        fresh(&first, 201);
        replay_of(&first, &setup.ask(asked()));
        assert_eq!(setup.upstream.effects_of(method), 1);
    }
    // What has no key passes, with the body that was looked at.
    let search = || Asked::post("/v2/orders/search", &json!({"id": "s", "limit": 3}));
    for _ in 0..2 {
        fresh(&setup.ask(search()), 201);
    }
    assert_eq!(setup.upstream.effects_of("s"), 2);
    // The header's key goes before the body's.
    let both = || payment(&json!("in-body"), 5).header("Idempotency-Key", "in-header");
    let first = setup.ask(both());
    replay_of(&first, &setup.ask(both()));
    let shown = setup.world.semel(&["show", "in-header", "--json"]);
    assert_eq!(shown.code, 0, "{shown:?}");
}

#[test]
fn a_body_whose_key_cannot_be_read_is_refused() {
    let setup = Setup::routed("key_members = [\"/meta/key\"]\nkeyless = \"require\"");
    let coded = charge("c").header("Content-Encoding", "gzip");
    let long = Asked::post("/charges", &json!({"id": "x".repeat(1_100_000)}));
    let twice = Asked::new("POST", "/charges")
        .header("Content-Type", "application/json")
        .body(br#"{"meta": {"key": "a"}, "meta": {"key": "b"}}"#);
    for asked in [coded, long, twice, charge("c")] {
        refused(&setup.ask(asked), 400, "invalid_key");
    }
    assert_eq!(setup.upstream.received().len(), 0);
    let asked = || Asked::post("/charges", &json!({"id": "c", "meta": {"key": "k"}}));
    let first = setup.ask(asked());
    fresh(&first, 201);
    replay_of(&first, &setup.ask(asked()));
}

#[test]
fn c013_no_key_reaches_into_anothers_place() {
    let setup = Setup::new();
    let keys = [
        "a:b", "a", "b", "a/b", "a%2Fb", "a%2fb", "../a", "a#2", "a#1", "proxy/a", "'; --", "%00",
        "*", "a\\b", "{a}", "a|b",
    ];
    let ask = |who: &str, key: &str| {
        let quoted = format!("\"{}\"", key.replace('\\', "\\\\"));
        let asked = charge("c").header("Idempotency-Key", &quoted);
        setup.ask(asked.header("Authorization", &format!("Bearer {who}")))
    };
    // One ends where the other begins.
    let callers = ["a", "a:", "a:b", "a/b"];
    let mut firsts = vec![];
    for who in callers {
        for key in keys {
            let first = ask(who, key);
            fresh(&first, 201);
            firsts.push((who, key, first));
        }
    }
    for (who, key, first) in &firsts {
        replay_of(first, &ask(who, key));
    }
    assert_eq!(setup.effects(), callers.len() * keys.len());
    // What one repeats, another one's key cannot name.
    let keys: std::collections::BTreeSet<_> = setup
        .records()
        .iter()
        .map(|record| record["key"].to_string())
        .collect();
    assert_eq!(keys.len(), firsts.len());
    let stolen = setup.records()[0]["key"].as_str().map(str::to_owned);
    fresh(&ask("b", &stolen.expect("a key is text")), 201);
}

#[test]
fn c014_keys_are_not_in_the_log() {
    let mut setup = Setup::new();
    let secret = "sk-4711-do-not-tell";
    fresh(&setup.ask(keyed(secret)), 201);
    setup.ask(keyed(secret));
    let other = Asked::post("/charges", &json!({"id": "other"})).header("Idempotency-Key", secret);
    let answer = setup.ask(other);
    refused(&answer, 422, "key_reused");
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(!said.contains(secret), "{said}");
    assert_eq!(header(&answer, "idempotency-key"), "", "{answer:?}");
    setup.ask(keyed(&format!("{secret},{secret}")));
    setup.upstream.refuse();
    setup.ask(keyed(&format!("{secret}-2")));
    setup.upstream.accept_again();
    setup.proxy().signal(rustix::process::Signal::TERM);
    setup.proxy_mut().wait();
    let said = setup.proxy().said();
    assert!(!said.contains(secret), "{said}");
}
