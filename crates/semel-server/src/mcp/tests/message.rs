use proptest::prelude::*;

use super::wild;
use crate::mcp::message::{Kind, MESSAGE_MAX, Malformed, Message};

fn request(method: &str) -> Kind {
    Kind::Request {
        method: method.to_owned(),
    }
}

#[test]
fn what_a_message_is() {
    let notification = Kind::Notification {
        method: "notifications/x".to_owned(),
    };
    for (text, kind, id) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            request("ping"),
            Some("1"),
        ),
        (
            r#"{"id":"a","method":"pi\u006eg","jsonrpc":"2.0"}"#,
            request("ping"),
            Some("\"a\""),
        ),
        (
            r#"{"jsonrpc":"2.0","id":-0.5e3,"method":"x","params":[]}"#,
            request("x"),
            Some("-0.5e3"),
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/x"}"#,
            notification,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
            Kind::Result,
            Some("1"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#,
            Kind::Error,
            Some("1"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#,
            Kind::Error,
            None,
        ),
        (r#"{"jsonrpc":"2.0","error":{"code":1}}"#, Kind::Error, None),
    ] {
        let message = Message::read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((message.kind(), message.id()), (&kind, id), "{text}");
        assert_eq!(message.bytes(), text);
    }
}

#[test]
fn what_is_no_message() {
    for (text, code, id) in [
        (&b""[..], -32700, None),
        (b"listening on port 3000", -32700, None),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,", -32700, None),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"other\":\"\xff\"}",
            -32700,
            None,
        ),
        (
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}",
            -32700,
            None,
        ),
        (b"5", -32600, None),
        (b"\"text\"", -32600, None),
        (
            b" [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}]",
            -32600,
            None,
        ),
        (b"{\"id\":1,\"method\":\"x\"}", -32600, Some("1")),
        (
            b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"x\"}",
            -32600,
            Some("1"),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}",
            -32600,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"x\"}",
            -32600,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"x\"}",
            -32600,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}",
            -32600,
            None,
        ),
        (b"{\"jsonrpc\":\"2.0\",\"result\":{}}", -32600, None),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1}", -32600, Some("1")),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}",
            -32600,
            Some("1"),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"result\":1}",
            -32600,
            Some("1"),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}",
            -32600,
            Some("1"),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"x\"}",
            -32600,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\",\"meth\\u006fd\":\"y\"}",
            -32600,
            Some("7"),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\"}",
            -32600,
            Some("7"),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\",\"params\":{},\"params\":{}}",
            -32600,
            Some("7"),
        ),
    ] {
        let shown = text.escape_ascii();
        let error = Message::read(text).err();
        assert_eq!(error.map(|error| error.code()), Some(code), "{shown}");
        assert_eq!(Message::id_in(text).as_deref(), id, "{shown}");
    }
}

#[test]
fn a_message_of_the_largest_size_is_taken_and_one_byte_more_is_not() {
    let of = |size: usize| {
        let (start, end) = (r#"{"jsonrpc":"2.0","id":1,"result":""#, r#""}"#);
        format!("{start}{}{end}", "a".repeat(size - start.len() - end.len()))
    };
    assert!(Message::read(of(MESSAGE_MAX)).is_ok());
    assert_eq!(
        Message::read(of(MESSAGE_MAX + 1)).err(),
        Some(Malformed::TooLarge)
    );
}

#[test]
fn nesting_costs_no_stack() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"params":{deep},"method":"x","y":{deep}}}"#);
    let message = Message::read(text.clone()).unwrap();
    assert_eq!(message.params(), Some(deep.as_str()));
    assert_eq!(message.bytes(), &text);
}

#[test]
fn own_messages_are_what_they_say() {
    let message = Message::request("\"semel-1\"", "tools/\"call\"", "{}").unwrap();
    assert_eq!(
        message.bytes(),
        r#"{"jsonrpc":"2.0","id":"semel-1","method":"tools/\"call\"","params":{}}"#
    );
    let message = Message::error(None, r#"{"code":-32700}"#).unwrap();
    assert_eq!(
        message.bytes(),
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#
    );
    // What is put in cannot add members.
    assert!(Message::result("1", r#"{},"id":2"#).is_err());
    assert!(Message::request("null", "x", "{}").is_err());
}

#[test]
fn what_it_says_is_not_shown() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"card":"4242"}}"#;
    let shown = format!("{:?}", Message::read(text).unwrap());
    assert!(
        shown.contains("tools/call") && !shown.contains("4242"),
        "{shown}"
    );
}

#[derive(Clone, Debug)]
struct Wild {
    text: String,
    kind: &'static str,
    id: String,
    value: String,
}

/// Messages of every kind with their members in any order, among members that nobody knows.
fn wild_message() -> impl Strategy<Value = Wild> {
    let id = prop_oneof![wild::number(), wild::string()];
    let kind = prop::sample::select(vec!["params", "result", "error"]);
    let parts = (id, kind, wild::value(), wild::unknown_members());
    let blanks = (wild::space(), wild::space(), wild::space());
    (parts, blanks, any::<prop::sample::Index>()).prop_map(
        |((id, kind, value, mut members), (before, within, after), turn)| {
            members.push(format!("\"jsonrpc\"{within}:{within}\"2.0\""));
            members.push(format!("{within}\"i\\u0064\":{within}{id}{within}"));
            members.push(format!("\"{kind}\":{within}{value}{within}"));
            if kind == "params" {
                members.push("\"method\":\"some/\\u006dethod\"".to_owned());
            }
            let turn = turn.index(members.len());
            members.rotate_left(turn);
            let text = format!("{before}{{{}}}{after}", members.join(","));
            Wild {
                text,
                kind,
                id,
                value,
            }
        },
    )
}

proptest! {
    #[test]
    fn any_message_comes_out_as_it_went_in(wild in wild_message()) {
        let message = Message::read(wild.text.clone()).unwrap();
        prop_assert_eq!(message.bytes(), &wild.text);
        prop_assert_eq!(message.id(), Some(wild.id.as_str()));
        let value = match wild.kind {
            "params" => message.params(),
            _ => message.outcome(),
        };
        prop_assert_eq!(value, Some(wild.value.as_str()));
        if wild.kind == "params" {
            prop_assert_eq!(message.method(), Some("some/method"));
        }
        // On one line it has the same words, and nothing but line breaks is another.
        let line = message.line();
        prop_assert!(!line.iter().any(|byte| matches!(byte, b'\n' | b'\r')));
        let same = line.iter().zip(wild.text.as_bytes()).all(|(new, old)| {
            new == old || (*new == b' ' && matches!(old, b'\n' | b'\r'))
        });
        prop_assert!(same && line.len() == wild.text.len());
    }

    #[test]
    fn a_change_changes_nothing_else(wild in wild_message(), id in wild::string(), value in wild::value()) {
        let message = Message::read(wild.text).unwrap();
        let with_id = message.with_id(&id).unwrap();
        prop_assert_eq!(with_id.id(), Some(id.as_str()));
        prop_assert_eq!(with_id.params(), message.params());
        prop_assert_eq!(with_id.outcome(), message.outcome());
        // Put back, it is the same to the last byte.
        let back = with_id.with_id(&wild.id).unwrap();
        prop_assert_eq!(back.bytes(), message.bytes());

        let (changed, back) = if wild.kind == "params" {
            let changed = message.with_params(&value).unwrap();
            prop_assert_eq!(changed.params(), Some(value.as_str()));
            let back = changed.with_params(&wild.value).unwrap();
            (changed, back)
        } else {
            let changed = message.with_outcome(&value).unwrap();
            prop_assert_eq!(changed.outcome(), Some(value.as_str()));
            let back = changed.with_outcome(&wild.value).unwrap();
            (changed, back)
        };
        prop_assert_eq!(changed.id(), Some(wild.id.as_str()));
        prop_assert_eq!(changed.kind(), message.kind());
        prop_assert_eq!(back.bytes(), message.bytes());
    }
}
