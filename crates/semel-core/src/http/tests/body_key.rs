use crate::http::body_key::{BodyKeyError, read_body_key};
use crate::http::profile::Profile;
use crate::identity::Pointer;

fn square(body: &str) -> Result<Option<String>, BodyKeyError> {
    read_body_key(body.as_bytes(), true, &Profile::square().key_members)
}

#[test]
fn a_key_is_read_from_its_member() {
    let key = |text: &str| Ok(Some(text.to_owned()));
    assert_eq!(
        square(r#"{"idempotency_key": "k-1", "amount": 5}"#),
        key("k-1")
    );
    assert_eq!(
        square(r#"{"idempotency_key": "a\"\\\u00e9"}"#),
        key("a\"\\é")
    );
    for without in ["", "{}", "[]", "7", r#"{"idempotency_key": null}"#] {
        assert_eq!(square(without), Ok(None), "{without}");
    }
}

#[test]
fn a_member_that_holds_no_key_is_refused() {
    let long = format!(r#"{{"idempotency_key": "{}"}}"#, "k".repeat(256));
    for wrong in [
        r#"{"idempotency_key": 7}"#,
        r#"{"idempotency_key": ""}"#,
        r#"{"idempotency_key": ["k"]}"#,
        r#"{"idempotency_key": "a\n"}"#,
        r#"{"idempotency_key": "a\u007f"}"#,
        &long,
    ] {
        let error = square(wrong).unwrap_err();
        assert!(matches!(error, BodyKeyError::NoText(_)), "{wrong}: {error}");
    }
    let two = [Pointer::new("/a").unwrap(), Pointer::new("/b/c").unwrap()];
    let both = br#"{"a": "1", "b": {"c": "2"}}"#;
    assert_eq!(read_body_key(both, true, &two), Err(BodyKeyError::Twice));
}

#[test]
fn json_that_cannot_be_read_is_refused_and_other_bodies_have_no_key() {
    for wrong in [
        r#"{"idempotency_key": "a", "idempotency_key": "b"}"#,
        r#"{"idempotency_key": "a""#,
    ] {
        let error = square(wrong).unwrap_err();
        assert!(matches!(error, BodyKeyError::Unreadable(_)), "{wrong}");
        let members = Profile::square().key_members;
        assert_eq!(read_body_key(wrong.as_bytes(), false, &members), Ok(None));
    }
}
