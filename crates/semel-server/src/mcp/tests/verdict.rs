use axum::http::StatusCode;
use semel::Effect;

use crate::mcp::message::Message;
use crate::mcp::policy::UpstreamPolicy;
use crate::mcp::upstream::{Headers, Lost, NotSent, Refusal, Reply};
use crate::mcp::verdict::{Finding, Terms, is_well};

fn answer(outcome: &str) -> Reply {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,{outcome}}}"#);
    Reply::Answer(Message::read(text).unwrap(), Headers::default())
}

fn judged(reply: &Reply, refuted: bool) -> Finding {
    let policy = UpstreamPolicy::default();
    let terms = Terms {
        effect: None,
        lost_texts: &policy.lost_texts,
        refuted,
    };
    Finding::of(reply, &terms).expect("an answer is judged")
}

fn word(finding: &Finding) -> String {
    match finding {
        Finding::Done {
            ok: true, effect, ..
        } => format!("ok {effect}"),
        Finding::Done {
            ok: false, effect, ..
        } => format!("failed {effect}"),
        Finding::NotDone(_) => "not_done".to_owned(),
        Finding::Unknown(_) => "unknown".to_owned(),
    }
}

#[test]
fn results_are_done_unless_they_say_otherwise() {
    for (result, expected) in [
        (r#"{"content":[]}"#, "ok updated"),
        (r#"{"isError":false,"content":[]}"#, "ok updated"),
        (r#"{"resultType":"complete","content":[]}"#, "ok updated"),
        ("5", "ok updated"),
        (
            r#"{"content":[],"structuredContent":{"effect":"created"}}"#,
            "ok created",
        ),
        (
            r#"{"content":[],"structuredContent":{"effect":"noop"}}"#,
            "ok noop",
        ),
        (
            r#"{"content":[],"structuredContent":{"effect":"sparkles"}}"#,
            "ok updated",
        ),
        (
            r#"{"content":[],"structuredContent":{"effect":7}}"#,
            "ok updated",
        ),
        (
            r#"{"isError":true,"content":[{"type":"text","text":"card declined"}]}"#,
            "failed unknown",
        ),
        (r#"{"isError":true}"#, "failed unknown"),
        (
            r#"{"isError":true,"content":[],"structuredContent":{"effect":"noop"}}"#,
            "failed noop",
        ),
        (
            r#"{"isError":true,"content":[{"type":"text","text":"fetch failed"}]}"#,
            "unknown",
        ),
        (
            r#"{"isError":false,"content":[{"type":"text","text":"fetch failed"}]}"#,
            "ok updated",
        ),
        (
            r#"{"resultType":"input_required","inputRequests":{}}"#,
            "not_done",
        ),
        (
            r#"{"resultType":"task","taskId":"t","status":"working"}"#,
            "ok unknown",
        ),
        (
            r#"{"task":{"taskId":"t","status":"working"}}"#,
            "ok unknown",
        ),
    ] {
        let finding = judged(&answer(&format!("\"result\":{result}")), false);
        assert_eq!(word(&finding), expected, "{result}");
        if let Finding::Done { payload, .. } = finding {
            assert_eq!(payload, format!("{{\"result\":{result}}}").into_bytes());
        }
    }
}

#[test]
fn a_configured_effect_is_that_of_a_success_that_declares_none() {
    let terms = Terms {
        effect: Some(Effect::Created),
        lost_texts: &[],
        refuted: false,
    };
    for (result, expected) in [
        (r#"{"content":[]}"#, "ok created"),
        (r#"{"structuredContent":{"effect":"noop"}}"#, "ok noop"),
        (r#"{"isError":true}"#, "failed unknown"),
    ] {
        let finding = Finding::of(&answer(&format!("\"result\":{result}")), &terms).unwrap();
        assert_eq!(word(&finding), expected, "{result}");
    }
}

#[test]
fn errors_are_doubts_unless_they_prove_more() {
    for (code, expected) in [
        ("-32700", "not_done"),
        ("-32600", "not_done"),
        ("-32601", "not_done"),
        ("-32602", "failed unknown"),
        ("-32603", "unknown"),
        ("-32000", "unknown"),
        ("-32001", "unknown"),
        ("-32019", "unknown"),
        ("-32020", "not_done"),
        ("-32021", "not_done"),
        ("-32022", "not_done"),
        ("-32023", "unknown"),
        ("-32042", "not_done"),
        ("1409", "unknown"),
        ("0", "unknown"),
        ("\"-32601\"", "unknown"),
    ] {
        let reply = answer(&format!(r#""error":{{"code":{code},"message":"m"}}"#));
        assert_eq!(word(&judged(&reply, false)), expected, "{code}");
    }
    let wrong = answer(r#""error":{"code":-32602,"message":"no amount"}"#);
    assert_eq!(
        judged(&wrong, true),
        Finding::NotDone("the server answered error -32602: no amount".to_owned())
    );
    let late = r#"{"code":-32602,"message":"no amount","data":{"a":1.0}}"#;
    let Finding::Done { payload, .. } = judged(&answer(&format!(r#""error":{late}"#)), false)
    else {
        panic!("the server answered");
    };
    assert_eq!(payload, format!(r#"{{"error":{late}}}"#).into_bytes());
    let internal = answer(r#""error":{"code":-32603}"#);
    assert_eq!(word(&judged(&internal, true)), "unknown");
    let long = answer(&format!(
        r#""error":{{"code":1,"message":"{}"}}"#,
        "é".repeat(10_000)
    ));
    let Finding::Unknown(note) = judged(&long, false) else {
        panic!("an error of the server is a doubt");
    };
    assert!(note.len() < 300);
}

#[test]
fn answers_of_http_are_doubts_unless_they_refuse_the_request_as_such() {
    let unseen = [
        400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 425, 429, 431,
    ];
    for status in 200..600 {
        let refusal = Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            headers: Headers::default(),
            body: "".into(),
        };
        let expected = if unseen.contains(&status) {
            "not_done"
        } else {
            "unknown"
        };
        assert_eq!(
            word(&judged(&Reply::Http(refusal), true)),
            expected,
            "{status}"
        );
    }
}

#[test]
fn what_was_lost_is_a_doubt_and_what_was_not_sent_is_none() {
    let lost = Reply::Lost(Lost("the server ended".to_owned()));
    assert_eq!(
        judged(&lost, true),
        Finding::Unknown("the server ended".to_owned())
    );
    let not_sent = Finding::of_not_sent(&NotSent("no such program".to_owned()));
    assert_eq!(word(&not_sent), "not_done");
    let aside = Message::read(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#).unwrap();
    let terms = Terms {
        effect: None,
        lost_texts: &[],
        refuted: false,
    };
    assert_eq!(Finding::of(&Reply::Aside(aside), &terms), None);
}

#[test]
fn texts_of_lost_connections_are_told_from_others() {
    for (text, expected) in [
        ("Request timed out", "unknown"),
        ("httpx.ReadTimeout", "unknown"),
        ("read ECONNRESET", "unknown"),
        ("Error: socket hang up", "unknown"),
        ("TypeError: fetch failed", "unknown"),
        ("context deadline exceeded", "unknown"),
        ("Request failed with status code 502", "unknown"),
        ("HTTP 503.", "unknown"),
        ("status=504, try later", "unknown"),
        ("502", "unknown"),
        ("invoice 1502 not found", "failed unknown"),
        ("amount 502.10 is too much", "failed unknown"),
        ("amount $503 is too much", "failed unknown"),
        ("order #504 is closed", "failed unknown"),
        ("5021", "failed unknown"),
        ("insufficient funds", "failed unknown"),
    ] {
        let result = format!(
            r#""result":{{"isError":true,"content":[{{"type":"image"}},{{"type":"text","text":"{text}"}}]}}"#
        );
        assert_eq!(word(&judged(&answer(&result), false)), expected, "{text}");
    }
    // An empty text in the configuration must not make doubts of all failures.
    let lost_texts = [String::new()];
    let terms = Terms {
        effect: None,
        lost_texts: &lost_texts,
        refuted: false,
    };
    let failed = answer(r#""result":{"isError":true,"content":[{"type":"text","text":"no"}]}"#);
    assert_eq!(
        word(&Finding::of(&failed, &terms).unwrap()),
        "failed unknown"
    );
}

#[test]
fn a_server_is_well_that_answers_whatever_it_thinks_of_the_call() {
    for result in [
        r#"{"content":[]}"#,
        r#"{"isError":true,"content":[]}"#,
        r#"{"isError":true,"content":[{"type":"text","text":"ECONNRESET"}]}"#,
        r#"{"resultType":"input_required"}"#,
        "5",
    ] {
        let reply = answer(&format!(r#""result":{result}"#));
        assert!(is_well(&reply), "{result}");
    }
    for (code, expected) in [
        ("-32700", true),
        ("-32600", true),
        ("-32601", true),
        ("-32602", true),
        ("-32020", true),
        ("-32022", true),
        ("-32042", true),
        ("-32603", false),
        ("-32000", false),
        ("1234", false),
        ("\"-32602\"", false),
    ] {
        let reply = answer(&format!(r#""error":{{"code":{code},"message":"m"}}"#));
        assert_eq!(is_well(&reply), expected, "{code}");
    }
    for (status, expected) in [(401, true), (404, true), (429, false), (503, false)] {
        let refusal = Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            headers: Headers::default(),
            body: "".into(),
        };
        assert_eq!(is_well(&Reply::Http(refusal)), expected, "{status}");
    }
    assert!(!is_well(&Reply::Lost(Lost("it died".to_owned()))));
}
