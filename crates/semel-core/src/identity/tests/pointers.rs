use super::*;
use crate::canonical;

fn business(name: &str, pointers: &[&str], json: &str) -> Option<String> {
    let name = Label::new(name).unwrap();
    let pointers: Vec<_> = pointers
        .iter()
        .map(|text| Pointer::new(text).unwrap())
        .collect();
    BusinessKey::of(&name, &pointers, json.as_bytes())
        .unwrap()
        .map(|key| key.as_str().to_owned())
}

/// The value that one pointer finds.
fn found(pointer: &str, json: &str) -> Option<String> {
    let mut quoted = Vec::new();
    canonical::write_string(&mut quoted, pointer);
    let quoted = String::from_utf8(quoted).unwrap();
    let key = business("n", &[pointer], json)?;
    let value = key
        .strip_prefix(&format!("[\"n\",{{{quoted}:"))
        .and_then(|rest| rest.strip_suffix("}]"));
    Some(value.unwrap().to_owned())
}

#[test]
fn pointers_find_what_rfc_6901_says() {
    let document = r#"{
        "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4,
        "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8
    }"#;
    for (pointer, value) in [
        ("/foo", r#"["bar","baz"]"#),
        ("/foo/0", r#""bar""#),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
    ] {
        assert_eq!(
            found(pointer, document).as_deref(),
            Some(value),
            "{pointer}"
        );
    }
    let whole = found("", document).unwrap();
    assert!(whole.starts_with(r#"{"":0," ":7,"a/b":1"#), "{whole}");
}

#[test]
fn pointers_walk_any_canonical_text() {
    let document =
        r#"{"a":[{"x":"]},\"{["},[[],{}],[1,-2.5e-7,true,{"b":"\\"}],"\u0001"],"ü~1":false}"#;
    for (pointer, value) in [
        ("/a/0/x", Some(r#""]},\"{[""#)),
        ("/a/1/0", None),
        ("/a/1/1", None),
        ("/a/2/0", Some("1")),
        ("/a/2/1", Some("-2.5e-7")),
        ("/a/2/2", Some("true")),
        ("/a/2/3/b", Some(r#""\\""#)),
        ("/a/3", Some(r#""\u0001""#)),
        ("/ü~01", Some("false")),
        ("/a/4", None),
        ("/a/-", None),
        ("/a/00", None),
        ("/a/02", None),
        ("/a/+2", None),
        ("/a/", None),
        ("/a/99999999999999999999999", None),
        ("/a/2/0/0", None),
        ("/a/2/2/x", None),
        ("/ü/1", None),
        ("/b", None),
        ("/a/1/0/0", None),
        ("/a/1/1/x", None),
    ] {
        assert_eq!(found(pointer, document).as_deref(), value, "{pointer}");
    }
    assert_eq!(found("/x", "7"), None);
    assert_eq!(found("", "7").as_deref(), Some("7"));
}

#[test]
fn what_is_no_pointer_is_refused() {
    assert_eq!(Pointer::new("order_id"), Err(PointerError::NoSlash));
    assert_eq!(Pointer::new("#/order_id"), Err(PointerError::NoSlash));
    assert_eq!(Pointer::new("/a~"), Err(PointerError::Tilde { offset: 2 }));
    assert_eq!(
        Pointer::new("/a~2b"),
        Err(PointerError::Tilde { offset: 2 })
    );
    assert!(Pointer::new(&"/".repeat(1_024)).is_ok());
    assert!(matches!(
        Pointer::new(&"/".repeat(1_025)),
        Err(PointerError::TooLong { bytes: 1_025 })
    ));
}

#[test]
fn a_business_key_is_all_its_values_or_none() {
    let both = ["/order", "/line"];
    let key = business("pay", &both, r#"{"order":7,"line":1}"#);
    assert_eq!(key.as_deref(), Some(r#"["pay",{"/line":1,"/order":7}]"#));
    for without in [
        r#"{"order":7}"#,
        r#"{"order":7,"line":null}"#,
        r#"{"order":7,"line":""}"#,
        r#"{"order":7,"line":[]}"#,
        r#"{"order":7,"line":{}}"#,
        "[7,1]",
    ] {
        assert_eq!(business("pay", &both, without), None, "{without}");
    }
    assert_eq!(business("pay", &[], r#"{"order":7}"#), None);
    // False and zero are values.
    assert!(business("pay", &both, r#"{"order":0,"line":false}"#).is_some());
}

#[test]
fn business_keys_are_equal_where_the_business_is() {
    let key = |name: &str, pointers: &[&str], json: &str| business(name, pointers, json).unwrap();
    let first = key(
        "pay",
        &["/order", "/line"],
        r#"{"order":"7","line":1,"why":"a"}"#,
    );
    for same in [
        key(
            "pay",
            &["/line", "/order"],
            r#"{"why":"b","line":1.0,"order":"\u0037"}"#,
        ),
        key(
            "pay",
            &["/line", "/order", "/line"],
            r#"{"order":"7","line":1}"#,
        ),
    ] {
        assert_eq!(first, same);
    }
    for other in [
        // An order is charged and refunded: two operations.
        key("refund", &["/order", "/line"], r#"{"order":"7","line":1}"#),
        key("pay", &["/order", "/line"], r#"{"order":7,"line":1}"#),
        key("pay", &["/line", "/order"], r#"{"order":1,"line":"7"}"#),
        key("pay", &["/order"], r#"{"order":"7","line":1}"#),
    ] {
        assert_ne!(first, other);
    }
}

#[test]
fn input_without_a_single_meaning_has_no_key_and_no_silence() {
    let name = Label::new("pay").unwrap();
    let pointers = [Pointer::new("/order").unwrap()];
    let of = |json: &[u8]| BusinessKey::of(&name, &pointers, json);
    assert!(matches!(
        of(br#"{"order":7,"order":8}"#),
        Err(canonical::Error::DuplicateMember { .. })
    ));
    // Also where no pointer looks.
    assert!(of(br#"{"order":7,"why":{"a":1,"a":1}}"#).is_err());
    assert!(of(b"{").is_err());
}

#[test]
fn a_long_business_key_is_hashed_and_stays_one_of_its_kind() {
    let name = Label::new("pay").unwrap();
    let pointers = [Pointer::new("/note").unwrap()];
    let json = format!(r#"{{"note":"{}"}}"#, "n".repeat(5_000));
    let key = BusinessKey::of(&name, &pointers, json.as_bytes()).unwrap();
    let key = key_of(&ClientKey::Business(key.unwrap()), 1);
    let body = &key.as_str()[21..];
    assert!(
        body.starts_with("business:") && body.len() == 9 + 64,
        "{body}"
    );
}
