use crate::http::key_field::{KeyFieldError, Spelling, read_key, write_key};

fn read(lines: &[&str], spelling: Spelling) -> Result<Option<String>, KeyFieldError> {
    read_key(lines.iter().map(|line| line.as_bytes()), spelling, 255)
}

fn either(line: &str) -> Result<String, KeyFieldError> {
    read(&[line], Spelling::QuotedOrBare).map(|key| key.expect("there is a field"))
}

fn strict(line: &str) -> Result<String, KeyFieldError> {
    read(&[line], Spelling::Quoted).map(|key| key.expect("there is a field"))
}

#[test]
fn c001_a_quoted_key_is_unescaped() {
    assert_eq!(strict(r#""abc""#).unwrap(), "abc");
    assert_eq!(strict(r#""a\"b\\c""#).unwrap(), r#"a"b\c"#);
    assert_eq!(strict(r#"  "a b"  "#).unwrap(), "a b");
}

#[test]
fn c002_a_bare_key_is_the_same_key() {
    assert_eq!(either("abc"), either(r#""abc""#));
    assert_eq!(
        either("8e03978e-40d5-43dd-bc93-6894a57f9324")
            .unwrap()
            .len(),
        36
    );
    assert_eq!(either("\tabc "), Ok("abc".to_owned()));
}

#[test]
fn c003_other_values_are_refused_where_quotes_are_needed() {
    for other in [
        "abc",
        "1",
        "1.5",
        "?1",
        ":YWJj:",
        "@1659578233",
        r#"%"a""#,
        r#"("a")"#,
        "a=1",
    ] {
        assert_eq!(strict(other), Err(KeyFieldError::NoString), "{other}");
    }
}

#[test]
fn c005_two_keys_are_none() {
    assert_eq!(
        read(&["a", "b"], Spelling::QuotedOrBare),
        Err(KeyFieldError::Twice)
    );
    assert_eq!(
        read(&[r#""a""#, r#""a""#], Spelling::Quoted),
        Err(KeyFieldError::Twice)
    );
    assert_eq!(either("a,b"), Err(KeyFieldError::Twice));
    assert_eq!(either(r#""a","b""#), Err(KeyFieldError::Twice));
    assert_eq!(either(r#""a" "b""#), Err(KeyFieldError::Trailing));
}

#[test]
fn c006_an_empty_key_is_refused() {
    for empty in ["", "  ", r#""""#] {
        assert_eq!(either(empty), Err(KeyFieldError::Empty), "{empty:?}");
    }
    assert_eq!(read(&[], Spelling::Quoted), Ok(None));
}

#[test]
fn c007_the_limit_is_counted_in_bytes() {
    let longest = "k".repeat(255);
    assert_eq!(either(&longest), Ok(longest.clone()));
    assert_eq!(
        either(&format!("{longest}k")),
        Err(KeyFieldError::TooLong(255))
    );
    let escaped = format!("\"{}\"", r#"\""#.repeat(255));
    assert_eq!(either(&escaped).unwrap().len(), 255);
}

#[test]
fn c008_bytes_that_no_key_has_are_refused() {
    for line in [
        &b"a\x7f"[..],
        b"a\x00b",
        b"\xff",
        b"\"\xc3\xa9\"",
        b"\"a\tb\"",
        b"a\tb",
    ] {
        let read = read_key([line], Spelling::QuotedOrBare, 255);
        assert!(
            matches!(read, Err(KeyFieldError::Byte(_))),
            "{line:?}: {read:?}"
        );
    }
    assert_eq!(either(r#"" a""#), Err(KeyFieldError::OuterSpace));
    assert_eq!(either(r#""a "#), Err(KeyFieldError::Unclosed));
    assert_eq!(either(r#""a\"#), Err(KeyFieldError::Unclosed));
    assert_eq!(either(r#""a\n""#), Err(KeyFieldError::Escape));
    assert_eq!(either("a b"), Err(KeyFieldError::NoString));
}

#[test]
fn c009_parameters_do_not_change_the_key_and_must_be_some() {
    for fine in [
        r#""k";a"#,
        r#""k"; a=1;b=-1.5;*c=?0"#,
        r#""k";a="x;\"y";b=tok/en:x;c=:YQ==:;d=@123;e=%"f%c3%bc""#,
    ] {
        assert_eq!(either(fine), Ok("k".to_owned()), "{fine}");
    }
    for wrong in [
        r#""k" ;a"#,
        r#""k";"#,
        r#""k";A"#,
        r#""k";a="#,
        r#""k";a=1."#,
        r#""k";a=?2"#,
        r#""k";a=:a"#,
        r#""k";a=@1.5"#,
        r#""k";a=%"%C3""#,
        r#""k";a=%"%c3""#,
        r#""k"x"#,
        r#""k";a=1234567890123456"#,
        r#""k";a="x"#,
    ] {
        assert!(either(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn what_is_written_is_read_as_the_same_key() {
    for (key, written) in [
        ("order-7", "order-7"),
        ("ann/welcome:7", "ann/welcome:7"),
        (r"a\b", r"a\b"),
        ("a b", r#""a b""#),
        ("a,b", r#""a,b""#),
        ("a;b", r#""a;b""#),
        (r#"a"b\c"#, r#""a\"b\\c""#),
        (r#"""#, r#""\"""#),
    ] {
        assert_eq!(write_key(key), written);
        assert_eq!(either(written).as_deref(), Ok(key), "{written}");
    }
}
