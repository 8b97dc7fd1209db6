use axum::http::{HeaderMap, HeaderValue};
use semel::core::identity::{Call, InFlight, Pointer, Scope};

use crate::mcp::ask::{Ask, Capabilities, Client, Era, Refused};
use crate::mcp::message::Message;
use crate::mcp::{ToolPolicy, UpstreamPolicy};

const LEGACY: Client = Client {
    era: Era::Legacy,
    capabilities: Capabilities {
        elicitation: true,
        tasks: false,
    },
};

fn ask(params: &str) -> Ask {
    Ask::read(Some(params), LEGACY).unwrap_or_else(|error| panic!("{params}: {error}"))
}

fn scope() -> Scope {
    Scope {
        principal: None,
        target: "t".to_owned(),
        conversation: None,
    }
}

fn called(params: &str, headers: &HeaderMap, policy: &UpstreamPolicy) -> Result<Call, Refused> {
    ask(params).call(scope(), headers, policy)
}

fn call(params: &str) -> Call {
    called(params, &HeaderMap::new(), &UpstreamPolicy::default())
        .unwrap_or_else(|error| panic!("{params}: {error}"))
}

fn header(name: &'static str, value: &str) -> HeaderMap {
    let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
    HeaderMap::from_iter([(name.parse().unwrap(), value)])
}

fn pointers(texts: &[&str]) -> Vec<Pointer> {
    texts
        .iter()
        .map(|text| Pointer::new(text).unwrap())
        .collect()
}

#[test]
fn a_call_that_cannot_be_read_is_refused() {
    for (params, code) in [
        (None, "invalid_input"),
        (Some("[]"), "invalid_input"),
        (Some("{}"), "invalid_input"),
        (Some(r#"{"name":7}"#), "invalid_input"),
        (Some(r#"{"name":""}"#), "invalid_input"),
        (Some(r#"{"name":"a\nb"}"#), "invalid_input"),
        (Some(r#"{"name":"read","name":"delete"}"#), "invalid_input"),
        (
            Some(r#"{"name":"a","arguments":{"x":{"y":1,"\u0079":2}}}"#),
            "invalid_input",
        ),
        (
            Some(r#"{"name":"a","_meta":{"x":1,"x":1}}"#),
            "invalid_input",
        ),
    ] {
        let error = Ask::read(params, LEGACY).err();
        assert_eq!(error.map(|error| error.code()), Some(code), "{params:?}");
    }
}

#[test]
fn what_is_said_beside_the_arguments_is_read() {
    let plain = ask(r#"{"name":"a","arguments":null}"#);
    assert_eq!(
        (plain.era, plain.capabilities),
        (Era::Legacy, LEGACY.capabilities)
    );
    assert!(!plain.is_continuation && !plain.is_preview && !plain.wants_task);
    assert_eq!(
        (plain.arguments, plain.plan, plain.progress_token),
        (None, None, None)
    );
    let full = ask(
        r#"{"name":"a","arguments":{ "n":1E2 },"requestState":"s","task":{},"_meta":{"progressToken":2.0,
            "dev.semel/preview":true,"dev.semel/plan":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}},
            "extensions":{"io.modelcontextprotocol/tasks":{}}}}}"#,
    );
    assert!(full.is_continuation && full.is_preview && full.wants_task);
    assert_eq!(full.arguments.as_deref(), Some(r#"{ "n":1E2 }"#));
    assert_eq!(full.plan.as_deref(), Some("p"));
    assert_eq!(full.progress_token.as_deref(), Some("2.0"));
    assert_eq!(full.era, Era::Modern);
    assert_eq!(
        full.capabilities,
        Capabilities {
            elicitation: false,
            tasks: true
        }
    );
    assert_eq!(full.request_state.as_deref(), Some("s"));
    let answered = ask(r#"{"name":"a","inputResponses":{"k": 1E2}}"#);
    assert!(answered.is_continuation);
    assert_eq!(answered.input_responses.as_deref(), Some(r#"{"k": 1E2}"#));
    assert!(!ask(r#"{"name":"a","requestState":null}"#).is_continuation);
    for (declared, forms) in [
        ("{}", false),
        (r#"{"elicitation":{}}"#, true),
        (r#"{"elicitation":{"form":{}}}"#, true),
        (r#"{"elicitation":{"url":{}}}"#, false),
    ] {
        assert_eq!(
            Capabilities::read(declared).elicitation,
            forms,
            "{declared}"
        );
    }
}

#[test]
fn explicit_keys_come_from_meta_then_from_params_then_from_a_header() {
    let headers = header("idempotency-key", "\"h\"");
    for (params, key) in [
        (
            r#"{"name":"a","idempotencyKey":"p","_meta":{"dev.semel/key":"m"}}"#,
            "m",
        ),
        (r#"{"name":"a","idempotencyKey":"p"}"#, "p"),
        (r#"{"name":"a"}"#, "h"),
        (r#"{"name":"a","idempotencyKey":null}"#, "h"),
    ] {
        let call = called(params, &headers, &UpstreamPolicy::default()).unwrap();
        assert_eq!(call.explicit.unwrap().as_str(), key, "{params}");
    }
    // A key that the model filled in is none.
    assert_eq!(
        call(r#"{"name":"a","arguments":{"idempotency_key":"x"}}"#).explicit,
        None
    );
    for params in [
        r#"{"name":"a","idempotencyKey":7}"#.to_owned(),
        r#"{"name":"a","idempotencyKey":""}"#.to_owned(),
        format!(
            r#"{{"name":"a","_meta":{{"dev.semel/key":"{}"}}}}"#,
            "k".repeat(1_025)
        ),
    ] {
        let error = called(&params, &headers, &UpstreamPolicy::default()).unwrap_err();
        assert_eq!(error.code(), "invalid_key", "{params}");
    }
}

#[test]
fn a_key_in_a_header_is_quoted_or_bare() {
    for (value, key) in [
        ("order-7", Some("order-7")),
        ("\"order-7\"", Some("order-7")),
        ("  \"order-7\" ", Some("order-7")),
        (r#""a \"b\" \\ c, d; e""#, Some(r#"a "b" \ c, d; e"#)),
        ("a b", None),
        ("a,b", None),
        ("a;b", None),
        ("a\"b", None),
        ("\"a", None),
        ("\"a\" ;x=1", None),
        (r#""a\n""#, None),
        ("\"\"", None),
        ("", None),
        ("\u{e9}", None),
    ] {
        let headers = header("idempotency-key", value);
        let found = called(r#"{"name":"a"}"#, &headers, &UpstreamPolicy::default());
        let found = found.map(|call| call.explicit.map(|key| key.to_string()));
        match key {
            Some(key) => assert_eq!(found, Ok(Some(key.to_owned())), "{value}"),
            None => assert_eq!(found.unwrap_err().code(), "invalid_key", "{value}"),
        }
    }
    let mut twice = header("idempotency-key", "a");
    twice.append("idempotency-key", HeaderValue::from_static("a"));
    assert!(called(r#"{"name":"a"}"#, &twice, &UpstreamPolicy::default()).is_err());
}

#[test]
fn harnesses_and_conversations_are_recognised_and_never_refused() {
    for (meta, id) in [
        (
            r#"{"claudecode/toolUseId":"toolu_1","progressToken":2}"#,
            Some("toolu_1"),
        ),
        (r#"{"callId":"c"}"#, Some("c")),
        (r#"{"claudecode/toolUseId":7}"#, None),
        (r#"{"claudecode/toolUseId":"","callId":"c"}"#, Some("c")),
        (r#"{"progressToken":"p"}"#, None),
    ] {
        let call = call(&format!(r#"{{"name":"a","_meta":{meta}}}"#));
        assert_eq!(
            call.call_id.map(|id| id.to_string()).as_deref(),
            id,
            "{meta}"
        );
    }
    let long = "x".repeat(2_000);
    let call = call(&format!(r#"{{"name":"a","_meta":{{"callId":"{long}"}}}}"#));
    assert_eq!(call.call_id, None);

    let headers = header("x-openhands-conversation-id", "h");
    for (meta, hint) in [
        (r#"{"threadId":"t"}"#, "t"),
        (r#"{"com.zcode/request-context":{"session_id":"z"}}"#, "z"),
        (r#"{"traceparent":"00-1"}"#, "h"),
        ("7", "h"),
    ] {
        let ask = ask(&format!(r#"{{"name":"a","_meta":{meta}}}"#));
        let found = ask.conversation(&headers, &UpstreamPolicy::default());
        assert_eq!(found.as_deref(), Some(hint), "{meta}");
        assert_eq!(
            ask.conversation(&HeaderMap::new(), &UpstreamPolicy::default())
                .is_some(),
            hint != "h"
        );
    }
}

#[test]
fn the_fingerprint_is_of_what_makes_a_difference() {
    let mut policy = UpstreamPolicy::default();
    let tool = ToolPolicy {
        challenge: true,
        key_from: pointers(&["/order"]),
        fingerprint_ignore: pointers(&["/reason", "/items/0/note", "/items/1/note"]),
        inject: Some(Pointer::new("/idempotency_key").unwrap()),
        ..ToolPolicy::default()
    };
    policy.tools.insert("pay".to_owned(), tool);
    let of = |arguments: &str| {
        let params = format!(r#"{{"name":"pay","arguments":{arguments}}}"#);
        called(&params, &HeaderMap::new(), &policy).unwrap()
    };
    let first = of(r#"{"order":7,"amount":10}"#);
    for same in [
        r#"{ "amount":1e1, "order":7.0 }"#,
        r#"{"order":7,"amount":10,"reason":"because"}"#,
        r#"{"order":7,"amount":10,"idempotency_key":"made up"}"#,
        r#"{"order":7,"amount":10,"semel_repeat":"mcp/x/y"}"#,
    ] {
        assert_eq!(of(same).fingerprint, first.fingerprint, "{same}");
        assert_eq!(of(same).business, first.business, "{same}");
    }
    for other in [
        r#"{"order":7,"amount":11}"#,
        r#"{"order":7}"#,
        r#"{"order":7,"amount":10,"note":""}"#,
    ] {
        assert_ne!(of(other).fingerprint, first.fingerprint, "{other}");
    }
    assert_eq!(
        of(r#"{"items":[{"note":"a"},{"note":"b"},{"note":"c"}]}"#).fingerprint,
        of(r#"{"items":[{"note":"x"},{"note":"y"},{"note":"c"}]}"#).fingerprint,
    );
    assert_eq!(first.business.unwrap().as_str(), r#"["pay",{"/order":7}]"#);
    assert_eq!(first.in_flight, InFlight::Challenge);
    // Without arguments and with none of them is the same.
    assert_eq!(
        call(r#"{"name":"a"}"#),
        call(r#"{"name":"a","arguments":{}}"#)
    );
}

#[test]
fn a_second_one_can_be_asked_for() {
    for (params, key) in [
        (
            r#"{"name":"a","arguments":{"semel_repeat":"mcp/0/k"}}"#,
            Some("mcp/0/k"),
        ),
        (
            r#"{"name":"a","_meta":{"dev.semel/repeat":"mcp/0/k"}}"#,
            Some("mcp/0/k"),
        ),
        (r#"{"name":"a","arguments":{"semel_repeat":""}}"#, None),
        (r#"{"name":"a","arguments":{"semel_repeat":null}}"#, None),
    ] {
        assert_eq!(
            call(params).repeat_of.map(|key| key.to_string()).as_deref(),
            key,
            "{params}"
        );
    }
    for params in [
        r#"{"name":"a","arguments":{"semel_repeat":true}}"#,
        r#"{"name":"a","arguments":{"semel_repeat":" k"}}"#,
    ] {
        let error = called(params, &HeaderMap::new(), &UpstreamPolicy::default()).unwrap_err();
        assert_eq!(error.code(), "invalid_key", "{params}");
    }
}

#[test]
fn what_is_too_large_to_be_recognised_can_still_be_read() {
    let params = format!(
        r#"{{"name":"a","arguments":{{"x":"{}"}}}}"#,
        "x".repeat(1024 * 1024)
    );
    let error = called(&params, &HeaderMap::new(), &UpstreamPolicy::default()).unwrap_err();
    assert_eq!(error.code(), "too_large");
}

#[test]
fn a_call_is_forwarded_as_it_came_but_for_what_must_be_touched() {
    let forwarded =
        |params: &str, pin: Option<(&Pointer, &str)>| {
            let text = format!(
                r#"{{"id":1 ,"jsonrpc":"2.0","method":"tools/call","x":1E2,"params":{params}}}"#
            );
            let request = Message::read(text).unwrap();
            let forwarded = ask(params)
                .forwarded(&request, pin)
                .map_err(|error| error.to_string())?;
            assert!(forwarded.bytes().starts_with(
                br#"{"id":1 ,"jsonrpc":"2.0","method":"tools/call","x":1E2,"params":"#
            ));
            Ok::<_, String>(forwarded.params().unwrap().to_owned())
        };
    let plain = r#"{ "name":"a", "arguments" : {"n":9007199254740993, "m":1.0}}"#;
    assert_eq!(forwarded(plain, None).as_deref(), Ok(plain));
    assert_eq!(
        forwarded(
            r#"{"name":"a","arguments":{"n":1E2, "semel_repeat":"k", "m":-0}}"#,
            None
        )
        .as_deref(),
        Ok(r#"{"name":"a","arguments":{"n":1E2, "m":-0}}"#)
    );
    let key = Pointer::new("/idempotency_key").unwrap();
    let nested = Pointer::new("/meta/idempotency-key").unwrap();
    for (params, pointer, after) in [
        (
            r#"{"name":"a","arguments":{"idempotency_key" : "m" ,"n":1E2}}"#,
            &key,
            r#"{"name":"a","arguments":{"idempotency_key" : "semel-1" ,"n":1E2}}"#,
        ),
        (
            r#"{"name":"a","arguments":{"semel_repeat":"k"}}"#,
            &key,
            r#"{"name":"a","arguments":{"idempotency_key":"semel-1"}}"#,
        ),
        (
            r#"{"name":"a"}"#,
            &nested,
            r#"{"name":"a","arguments":{"meta":{"idempotency-key":"semel-1"}}}"#,
        ),
    ] {
        assert_eq!(
            forwarded(params, Some((pointer, "semel-1"))).as_deref(),
            Ok(after),
            "{params}"
        );
    }
    assert!(
        forwarded(
            r#"{"name":"a","arguments":{"meta":7}}"#,
            Some((&nested, "semel-1"))
        )
        .is_err()
    );
}

#[test]
fn what_a_call_says_is_not_shown() {
    let shown = format!("{:?}", ask(r#"{"name":"pay","arguments":{"card":"4242"}}"#));
    assert!(shown.contains("pay") && !shown.contains("4242"), "{shown}");
}

#[test]
fn a_doubt_is_told_in_the_clearest_way_that_the_client_has() {
    use crate::mcp::gateway::Telling::{self, Question, Task, Text};
    let modern = |capabilities: &str| {
        ask(&format!(
            r#"{{"name":"a","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}"#
        ))
    };
    let tasks = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let both = r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    // The person of a client can be asked, unless it says otherwise.
    let legacy = |rest: &str| ask(&format!(r#"{{"name":"a"{rest}}}"#));
    for (ask, with_tasks, without) in [
        (modern("{}"), Text, Text),
        (modern(r#"{"elicitation":{}}"#), Question, Question),
        (modern(tasks), Task, Text),
        (modern(both), Task, Question),
        (legacy(""), Question, Question),
        (legacy(r#","task":{"ttl":60000}"#), Task, Task),
    ] {
        assert_eq!(Telling::of(&ask, true), with_tasks, "{ask:?}");
        assert_eq!(Telling::of(&ask, false), without, "{ask:?}");
    }
}
