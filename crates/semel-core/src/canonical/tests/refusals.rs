//! What has no canonical form, and what the error says about it.

use super::{canonical, refusal};
use crate::canonical::{Error, Limits, canonicalize};

#[test]
fn repeated_members() {
    for (text, offset) in [
        (r#"{"a":1,"a":1}"#, 7),
        (r#"{"a":1,"a":2}"#, 7),
        (r#"{"a":1,"\u0061":1}"#, 7),
        (r#"{"\u0061":1,"a":1}"#, 12),
        (r#"{"":0,"":0}"#, 6),
        (r#"{"\ud83d\ude02":0,"😂":0}"#, 18),
        (r#"{"b":0,"a":0,"c":0,"a":0}"#, 19),
        (r#"[0,{"x":{"b":0,"b":0}}]"#, 15),
        // The first name that occurs again, though another one sorts before it.
        (r#"{"z":0,"a":0,"z":0,"a":0,"a":0}"#, 13),
    ] {
        assert_eq!(refusal(text), Error::DuplicateMember { offset }, "{text}");
    }
    // The same name in different objects, and names that only look the same.
    assert_eq!(
        canonical(r#"{"a":{"a":{"a":0}}}"#),
        r#"{"a":{"a":{"a":0}}}"#
    );
    assert_eq!(canonical(r#"[{"a":0},{"a":0}]"#), r#"[{"a":0},{"a":0}]"#);
    assert_eq!(
        canonical(r#"{"A":0,"a":0,"a ":0}"#),
        r#"{"A":0,"a":0,"a ":0}"#
    );
}

#[test]
fn a_repeated_member_is_found_among_many() {
    let mut text = String::from("{");
    for index in 0..50_000 {
        text += &format!("\"{}\":0,", (index * 7919) % 50_021);
    }
    let offset = text.len();
    assert_eq!(
        refusal(format!("{text}\"7919\":0}}")),
        Error::DuplicateMember { offset }
    );
    canonical(&format!("{text}\"x\":0}}"));
}

#[test]
fn lone_surrogates() {
    for (text, offset) in [
        (r#""\ud800""#, 1),
        (r#""\udbff""#, 1),
        (r#""\udc00""#, 1),
        (r#""\uDFFF""#, 1),
        (r#""a\ud83d""#, 2),
        (r#""\ud83dx""#, 1),
        (r#""\ud83d\n""#, 1),
        (r#""\ud83d\u0041""#, 1),
        // Reversed, and doubled.
        (r#""\ude02\ud83d""#, 1),
        (r#""\ud83d\ud83d\ude02""#, 1),
        (r#""\ud83d\ude02\ude02""#, 13),
        (r#"{"\ud800":0}"#, 2),
    ] {
        assert_eq!(refusal(text), Error::LoneSurrogate { offset }, "{text}");
    }
}

#[test]
fn invalid_utf8() {
    for (bytes, offset) in [
        (&b"\"\xff\""[..], 1),
        (b"\"a\xc3\"", 2),
        (b"\"\xc0\x80\"", 1),
        (b"\"\xe0\x80\x80\"", 1),
        (b"\"\xed\xa0\x80\"", 1),
        (b"\"\xf4\x90\x80\x80\"", 1),
        (b"1 \x80", 2),
        (b"\xff\xfe1\x00", 0),
    ] {
        assert_eq!(refusal(bytes), Error::InvalidUtf8 { offset }, "{bytes:?}");
    }
}

#[test]
fn control_characters_in_strings() {
    for code in 0..0x20_u8 {
        let mut text = b"[\"ab".to_vec();
        text.extend([code, b'"', b']']);
        assert_eq!(
            refusal(&text),
            Error::ControlCharacter { offset: 4 },
            "{code}"
        );
        text.splice(2..4, *b"\\n");
        assert_eq!(
            refusal(&text),
            Error::ControlCharacter { offset: 4 },
            "{code}"
        );
    }
    assert_eq!(
        canonical("\"\u{7f}\u{80}\u{9f}\""),
        "\"\u{7f}\u{80}\u{9f}\""
    );
}

#[test]
fn invalid_escapes() {
    for (text, offset) in [
        (r#""\x41""#, 1),
        (r#""a\'""#, 2),
        (r#""\0""#, 1),
        (r#""\B""#, 1),
        (r#""\U0041""#, 1),
        (r#""\é""#, 1),
        (r#""\u004""#, 1),
        (r#""\u00g1""#, 1),
        (r#""\u00G1""#, 1),
        (r#""\u+041""#, 1),
        (r#""\u 041""#, 1),
        (r#""\u{41}""#, 1),
        (r#""\ud83d\uzzzz""#, 7),
        ("\"\\\n\"", 1),
    ] {
        assert_eq!(refusal(text), Error::InvalidEscape { offset }, "{text}");
    }
}

#[test]
fn bad_numbers() {
    for (text, offset) in [
        ("00", 0),
        ("01", 0),
        ("-01", 1),
        ("00.5", 0),
        ("[-0123]", 2),
    ] {
        assert_eq!(refusal(text), Error::LeadingZero { offset }, "{text}");
    }
    for (text, offset) in [
        ("-", 1),
        ("- 1", 1),
        ("--1", 1),
        ("-a", 1),
        ("+1", 0),
        (".5", 0),
        ("-.5", 1),
        ("1.", 2),
        ("1.e5", 2),
        ("1.-5", 2),
        ("1e", 2),
        ("1e+", 3),
        ("1E-", 3),
        ("1e+-2", 3),
        ("1e.5", 2),
        ("[1.]", 3),
    ] {
        assert_eq!(refusal(text), Error::InvalidNumber { offset }, "{text}");
    }
    for text in [
        "0x10", "1_000", "1.5.2", "1e5.0", "1e5e5", "1f", "1,5", "0 1", "1n",
    ] {
        let Error::TrailingData { .. } = refusal(text) else {
            panic!("{text}: {}", refusal(text));
        };
    }
    for (text, offset) in [
        ("NaN", 0),
        ("[Infinity]", 1),
        ("-Infinity", 0),
        ("[0,-NaN]", 3),
    ] {
        assert_eq!(refusal(text), Error::NotFinite { offset }, "{text}");
    }
}

#[test]
fn missing_and_trailing_text() {
    assert_eq!(refusal(""), Error::Empty { offset: 0 });
    assert_eq!(refusal(" \n\t\r"), Error::Empty { offset: 4 });
    for (text, offset) in [
        ("1 2", 2),
        ("null,", 4),
        ("{}{}", 2),
        ("[]]", 2),
        ("\"a\"\"b\"", 3),
        ("true\0", 4),
        ("truex", 4),
        ("1 // one", 2),
    ] {
        assert_eq!(refusal(text), Error::TrailingData { offset }, "{text}");
    }
    for text in [
        "[",
        "[1",
        "[1,",
        "{",
        r#"{"a""#,
        r#"{"a":"#,
        r#"{"a":1"#,
        r#"{"a":1,"#,
        "\"",
        "\"a",
        "\"\\",
        "\"\\u",
        "\"\\u00e",
        "\"\\ud83d\\u",
        "\"\\ud83d\\ude0",
    ] {
        let offset = text.len();
        assert_eq!(refusal(text), Error::UnexpectedEnd { offset }, "{text}");
    }
}

#[test]
fn byte_order_marks() {
    assert_eq!(refusal("\u{feff}1"), Error::ByteOrderMark { offset: 0 });
    assert_eq!(refusal("\u{feff}"), Error::ByteOrderMark { offset: 0 });
    assert_eq!(refusal(" \u{feff}{}"), Error::ByteOrderMark { offset: 1 });
    assert_eq!(canonical("\"\u{feff}\""), "\"\u{feff}\"");
}

#[test]
fn whatever_else_is_not_json() {
    for (text, offset) in [
        ("nul", 0),
        ("True", 0),
        ("nan", 0),
        ("Inf", 0),
        ("undefined", 0),
        ("'a'", 0),
        ("[1,]", 3),
        ("[,1]", 1),
        ("[1 2]", 3),
        ("[1}", 2),
        ("[1:2]", 2),
        ("{,}", 1),
        (r#"{"a":1,}"#, 7),
        (r#"{"a" 1}"#, 5),
        (r#"{"a":}"#, 5),
        (r#"{"a":1]"#, 6),
        ("{a:1}", 1),
        ("{1:1}", 1),
        ("]", 0),
        (",", 0),
        ("/* */ 1", 0),
        // Spaces to Unicode, not to JSON.
        ("\u{a0}1", 0),
        ("\u{b}1", 0),
        ("\u{c}1", 0),
        ("[\u{2028}]", 1),
    ] {
        let Error::Unexpected { offset: at, .. } = refusal(text) else {
            panic!("{text}: {}", refusal(text));
        };
        assert_eq!(at, offset, "{text}");
    }
}

#[test]
fn errors_say_what_and_where() {
    let limits = Limits { size: 20, depth: 1 };
    for (text, expected) in [
        (
            "",
            "no JSON value at byte 0: the input is empty or only whitespace",
        ),
        (
            "[1,]",
            "unexpected character at byte 3: expected a JSON value",
        ),
        (
            "[1 2]",
            "unexpected character at byte 3: expected `,` or `]`",
        ),
        (
            "{1:2}",
            "unexpected character at byte 1: expected a member name in double quotes, or `}`",
        ),
        (
            "[1",
            "input ends at byte 2, before the JSON value is complete",
        ),
        (
            "1 1",
            "unexpected data at byte 2, after the end of the JSON value",
        ),
        (
            "[[]]",
            "nesting too deep at byte 1: at most 1 levels are allowed",
        ),
        (
            r#"{"a":1,"a":1}"#,
            "repeated member at byte 7: the object already has a member of that name",
        ),
        (
            "\"\n\"",
            "control character in a string at byte 1: it must be escaped",
        ),
        (r#""\x""#, "invalid escape in a string at byte 1"),
        (
            r#""\ud800""#,
            "lone surrogate in a string at byte 1: it stands for no character",
        ),
        ("01", "number with a leading zero at byte 0"),
        ("1.", "invalid number at byte 2: expected a digit"),
        (
            "NaN",
            "`NaN` or `Infinity` at byte 0: JSON has only finite numbers",
        ),
        (
            "1e1000001",
            "number out of range at byte 0: its exponent is beyond ±1000000",
        ),
        (
            "\u{feff}1",
            "byte order mark at byte 0: JSON is sent without one",
        ),
        (
            "[0,1,2,3,4,5,6,7,8,9]",
            "input too large at byte 20: it has 21 bytes where 20 are allowed",
        ),
    ] {
        let error = canonicalize(text.as_bytes(), &limits).expect_err(text);
        assert_eq!(error.to_string(), expected);
        assert!(
            expected.contains(&format!("byte {}", error.offset())),
            "{expected}"
        );
    }
    assert_eq!(refusal(b"\"\xff\"").to_string(), "invalid UTF-8 at byte 1");
    assert_eq!(refusal(b"\"\xff\"").offset(), 1);
}
