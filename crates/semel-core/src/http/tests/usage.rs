use std::collections::BTreeMap;

use crate::http::price::{Price, Rate};
use crate::http::usage::Usage;
use crate::money::{Currency, Money};

fn usage(model: &str, input: Option<u64>, output: Option<u64>) -> Usage {
    Usage {
        model: (!model.is_empty()).then(|| model.to_owned()),
        input,
        output,
    }
}

#[test]
fn what_was_used_is_read_from_answers_of_every_kind() {
    let json = "application/json; charset=utf-8";
    let events = "text/event-stream; charset=utf-8";
    let nothing = usage("", None, None);
    for (media, body, expected) in [
        (
            json,
            r#"{"id": "c-1", "model": "gpt-4o-mini-2024-07-18", "choices": [{"message": {"content": "usage"}}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21,
                          "prompt_tokens_details": {"cached_tokens": 3}}}"#,
            usage("gpt-4o-mini-2024-07-18", Some(9), Some(12)),
        ),
        (
            json,
            r#"{"object":"response","model":"gpt-4.1","usage":{"input_tokens":36,"output_tokens":87}}"#,
            usage("gpt-4.1", Some(36), Some(87)),
        ),
        (
            "Application/vnd.x+JSON",
            r#"{"type":"message","model":"claude-sonnet-4-20250514","usage":{"input_tokens":10,"output_tokens":25}}"#,
            usage("claude-sonnet-4-20250514", Some(10), Some(25)),
        ),
        // Embeddings have no output.
        (
            json,
            r#"{"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}"#,
            usage("e", Some(8), None),
        ),
        (
            events,
            "data: {\"model\":\"gpt-4o\",\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\n\
             data: {\"model\":\"gpt-4o\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\n\
             data: [DONE]\n\n",
            usage("gpt-4o", Some(5), Some(7)),
        ),
        (
            events,
            "event: message_start\r\n\
             data: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-x\",\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\r\n\r\n\
             event: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hi\"}}\r\n\r\n\
             event: message_delta\r\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\r\n\r\n\
             event: message_stop\r\ndata: {\"type\":\"message_stop\"}\r\n\r\n",
            usage("claude-x", Some(25), Some(15)),
        ),
        (
            events,
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"model\":\"o3\",\"usage\":null}}\n\n\
             event: response.completed\ndata: {\"response\":{\"model\":\"o3\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}}\n\n",
            usage("o3", Some(3), Some(4)),
        ),
        (
            "application/x-ndjson",
            "{\"model\":\"m\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}\n{\"usage\":{\"input_tokens\":2,\"output_tokens\":6}}\n",
            usage("m", Some(2), Some(6)),
        ),
        // Said in other words, or not at all.
        (
            json,
            r#"{"model":"m","usage":{"prompt_tokens":-1,"completion_tokens":1.5}}"#,
            usage("m", None, None),
        ),
        (json, r#"{"model":7,"usage":"much"}"#, nothing.clone()),
        (json, r#"{"usage":{"prompt_tokens":"9"}}"#, nothing.clone()),
        (json, r#"[{"usage":{"prompt_tokens":9}}]"#, nothing.clone()),
        (
            json,
            r#"{"usage":{"prompt_tokens":99999999999999999999}}"#,
            nothing.clone(),
        ),
        (json, r#"{"model":"a\"b"}"#, nothing.clone()),
        (json, r#"{"usage":{"prompt_tokens":9}"#, nothing.clone()),
        (json, "", nothing.clone()),
        (
            "text/plain",
            r#"{"usage":{"prompt_tokens":9}}"#,
            nothing.clone(),
        ),
    ] {
        assert_eq!(
            Usage::read(Some(media), None, body.as_bytes()),
            expected,
            "{body}"
        );
    }
}

#[test]
fn what_is_coded_says_nothing() {
    let body = br#"{"usage":{"prompt_tokens":9}}"#;
    let read = |media, coding| Usage::read(media, coding, body).input;
    assert_eq!(read(Some("application/json"), None), Some(9));
    assert_eq!(read(Some("application/json"), Some("Identity")), Some(9));
    assert_eq!(read(Some("application/json"), Some("gzip")), None);
    assert_eq!(read(None, None), None);
    assert_eq!(
        Usage::read(Some("application/json"), None, b"\xff\xfe"),
        Usage::default()
    );
}

#[test]
fn an_answer_costs_what_its_model_does() {
    let rate = |input, output| Rate {
        input: Money(input),
        output: Money(output),
    };
    let price = Price {
        currency: Currency::new("USD").unwrap(),
        call: Money(10_000),
        rate: rate(2_500_000, 10_000_000),
        models: BTreeMap::from([
            ("gpt-4o-mini".to_owned(), rate(150_000, 600_000)),
            ("claude-sonnet-4".to_owned(), rate(3_000_000, 15_000_000)),
            ("gpt-4o-2024-05-13".to_owned(), rate(5_000_000, 15_000_000)),
        ]),
    };
    for (model, input, output, cost) in [
        ("", None, None, 10_000),
        ("", Some(1_000_000), None, 2_510_000),
        ("", Some(9), Some(12), 10_000 + 143),
        ("gpt-4o-mini", Some(1_000), Some(1_000), 10_000 + 750),
        (
            "gpt-4o-mini-2024-07-18",
            Some(1_000),
            Some(1_000),
            10_000 + 750,
        ),
        ("gpt-4o-mini-0613", Some(1_000), Some(1_000), 10_000 + 750),
        ("claude-sonnet-4-20250514", Some(1), Some(1), 10_000 + 18),
        // Another model, another price; a snapshot may have its own.
        ("claude-sonnet-4-5-20250929", Some(2), Some(0), 10_000 + 5),
        ("gpt-4o-mini-audio", Some(2), Some(0), 10_000 + 5),
        ("gpt-4o-2024-05-13", Some(1), Some(1), 10_000 + 20),
        ("gpt-4o-2024-08-06", Some(2), Some(0), 10_000 + 5),
        // Half a millionth is one, less is none.
        ("gpt-4o-mini", Some(3), Some(0), 10_000),
        ("gpt-4o-mini", Some(0), Some(1), 10_001),
        ("", Some(u64::MAX), Some(u64::MAX), u64::MAX),
        ("é-0613", Some(2), None, 10_000 + 5),
    ] {
        assert_eq!(
            price.of(&usage(model, input, output)),
            Money(cost),
            "{model} {input:?} {output:?}"
        );
    }
}
