use semel::core::identity::Pointer;

use crate::mcp::{Verify, VerifyError};
use semel::core::Found;

fn verify(arguments: &str, pointer: &str, expected: Option<&str>) -> Result<Verify, VerifyError> {
    Verify::new("find", arguments, Pointer::new(pointer).unwrap(), expected)
}

#[test]
fn a_template_is_filled_with_values_as_they_were_written() {
    let template =
        r#"{"{/a}":"{/a}","list":["{/b/0}","{key}","{other}","x{/a}"],"q\"":"\u007b/c}"}"#;
    let verify = verify(template, "", None).unwrap();
    let call = r#"{"a":9007199254740993,"b":["x\/y"],"c":{"d":1.0}}"#;
    assert_eq!(
        verify.arguments(call, "k\"1").as_deref(),
        Ok(r#"{"{/a}":9007199254740993,"list":["x\/y","k\"1","{other}","x{/a}"],"q\"":{"d":1.0}}"#)
    );
    for call in ["{}", r#"{"a":null}"#] {
        assert_eq!(
            verify.arguments(call, "k"),
            Err(VerifyError::Missing("/a".to_owned()))
        );
    }
}

#[test]
fn what_cannot_be_asked_is_refused_when_it_is_configured() {
    assert_eq!(verify("[]", "", None), Err(VerifyError::NotObject));
    assert!(matches!(
        verify("{", "", None),
        Err(VerifyError::NotJson(_))
    ));
    assert!(matches!(
        verify(r#"{"a":1,"a":2}"#, "", None),
        Err(VerifyError::NotJson(_))
    ));
    assert!(matches!(
        verify("{}", "", Some("nope")),
        Err(VerifyError::NotJson(_))
    ));
    assert_eq!(
        verify(r#"{"a":"{/b~2}"}"#, "", None),
        Err(VerifyError::Pointer("/b~2".to_owned()))
    );
}

#[test]
fn an_answer_proves_what_it_says_and_nothing_more() {
    let any = verify("{}", "/orders/0/id", None).unwrap();
    let paid = verify("{}", "/state", Some(r#" "p\u0061id" "#)).unwrap();
    let ten = verify("{}", "/n", Some("1e1")).unwrap();
    for (verify, result, proof) in [
        (
            &any,
            r#"{"structuredContent":{"orders":[{"id":7}]}}"#,
            Found::Happened,
        ),
        (
            &any,
            r#"{"structuredContent":{"orders":[]}}"#,
            Found::DidNot,
        ),
        (
            &any,
            r#"{"structuredContent":{"orders":[{"id":null}]}}"#,
            Found::DidNot,
        ),
        (
            &any,
            r#"{"structuredContent":{"orders":[{"id":0.0}]}}"#,
            Found::DidNot,
        ),
        (
            &any,
            r#"{"content":[{"type":"text","text":"{\"orders\":[{\"id\":\"a\"}]}"}]}"#,
            Found::Happened,
        ),
        (
            &any,
            r#"{"content":[{"type":"text","text":"no orders found"}]}"#,
            Found::Unclear,
        ),
        (&any, r#"{"content":[]}"#, Found::Unclear),
        (
            &any,
            r#"{"structuredContent":{"orders":null}}"#,
            Found::DidNot,
        ),
        (
            &any,
            r#"{"structuredContent":{"found":[]}}"#,
            Found::Unclear,
        ),
        (
            &any,
            r#"{"structuredContent":{"orders":[{"number":7}]}}"#,
            Found::Unclear,
        ),
        (
            &any,
            r#"{"structuredContent":{"orders":"none"}}"#,
            Found::Unclear,
        ),
        (&paid, r#"{"structuredContent":{}}"#, Found::Unclear),
        (
            &any,
            r#"{"isError":true,"structuredContent":{"orders":[]}}"#,
            Found::Unclear,
        ),
        (
            &any,
            r#"{"isError":true,"structuredContent":{"orders":[{"id":7}]}}"#,
            Found::Unclear,
        ),
        (
            &any,
            r#"{"resultType":"input_required","inputRequests":{}}"#,
            Found::Unclear,
        ),
        (
            &paid,
            r#"{"structuredContent":{"state":"paid"}}"#,
            Found::Happened,
        ),
        (
            &paid,
            r#"{"structuredContent":{"state":"open"}}"#,
            Found::DidNot,
        ),
        (&ten, r#"{"structuredContent":{"n":10.0}}"#, Found::Happened),
    ] {
        assert_eq!(verify.proof(result), proof, "{result}");
    }
}
