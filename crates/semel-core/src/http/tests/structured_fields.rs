//! Every field that another implementation of RFC 9651 reads as an item is read here in the same way, and none that it
//! refuses is read at all.
//!
//! The texts are made by rules: each character alone, at the start, in the middle, at the end and escaped, in the string
//! and in each kind of value that a parameter has, then at random from what fields are made of.

use proptest::prelude::*;
use sfv::{Item, Parser};

use crate::http::key_field::{Spelling, read_key};

/// Longer than any text here: how long a key may be is another rule.
const LONG: usize = 10_000;

/// Returns the string that a field holds as RFC 9651 reads it; `None` where it holds none.
fn as_item(line: &[u8]) -> Option<String> {
    // HTTP itself takes the white space around a value away, tabs too.
    let is_inner = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = line.iter().position(is_inner)?;
    let end = line.iter().rposition(is_inner)? + 1;
    let item: Item = Parser::new(&line[start..end]).parse().ok()?;
    let text = item.bare_item.as_string()?;
    Some(text.as_str().to_owned())
}

/// Returns what a key is beyond a string: not empty, and without a space at its ends.
fn is_key(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(' ') && !text.ends_with(' ')
}

/// Expects that a field is read as RFC 9651 says; returns whether it holds a string.
#[track_caller]
fn agrees(line: &[u8]) -> bool {
    let shown = String::from_utf8_lossy(line);
    let expected = as_item(line);
    let strict = read_key([line], Spelling::Quoted, LONG);
    match &expected {
        Some(text) if is_key(text) => {
            assert_eq!(strict, Ok(Some(text.clone())), "{shown}");
        }
        Some(_) | None => assert!(strict.is_err(), "{shown}: {strict:?}"),
    }
    // What begins with a quote is the same where quotes are not needed.
    let first = line.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
    if first == Some(&b'"') {
        assert_eq!(
            read_key([line], Spelling::QuotedOrBare, LONG),
            strict,
            "{shown}"
        );
    }
    expected.is_some()
}

/// Expects that each of these agrees; returns how many hold a string.
fn agreeing(lines: impl IntoIterator<Item = Vec<u8>>) -> usize {
    lines.into_iter().filter(|line| agrees(line)).count()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn c004_every_byte_in_every_place_of_a_string() {
    let in_places = |byte: u8| {
        let byte = [byte];
        [
            joined(&[b"\"", &byte, b"\""]),
            joined(&[b"\"", &byte, b"x\""]),
            joined(&[b"\"x", &byte, b"\""]),
            joined(&[b"\"x", &byte, b"y\""]),
        ]
    };
    // Printable ones but the quote and the backslash, in four places.
    assert_eq!(agreeing((0..=255).flat_map(in_places)), 4 * 93);
    let escaped = |byte: u8| {
        let byte = [byte];
        [
            joined(&[b"\"\\", &byte, b"\""]),
            joined(&[b"\"x\\", &byte, b"y\""]),
        ]
    };
    assert_eq!(agreeing((0..=255).flat_map(escaped)), 2 * 2);
    let outside = |byte: u8| {
        let byte = [byte];
        [
            joined(&[&byte, b"\"x\""]),
            joined(&[b"\"x\"", &byte]),
            joined(&[&byte]),
            joined(&[&byte, &byte]),
        ]
    };
    // White space is no part of it; two quotes are an empty string.
    assert_eq!(agreeing((0..=255).flat_map(outside)), 2 * 2 + 1);
}

#[test]
fn c004_what_is_wrong_with_strings_and_items() {
    for (line, is_string) in [
        (&br#""foo bar""#[..], true),
        (br#""""#, true),
        (br#""  ""#, true),
        (br#""b \" a""#, true),
        (br#""b \\ a""#, true),
        (br#""\\\"""#, true),
        (br#""foo"#, false),
        (br#""foo\"#, false),
        (br#""foo\""#, false),
        (br#""foo\\"#, false),
        (br#""foo\,""#, false),
        (br#"foo""#, false),
        (br#"'foo'"#, false),
        (b"\"f\xc3\xbc\xc3\xbc\"", false),
        (br#""foo", "bar""#, false),
        (br#""foo" "bar""#, false),
        (br#""foo","#, false),
        (b"", false),
        (b"  ", false),
        (b" 1 ", false),
        (b"1", false),
        (b"-0", false),
        (b"42.5", false),
        (b"foo", false),
        (b"*foo", false),
        (b"?0", false),
        (b":aGVsbG8=:", false),
        (b"@1659578233", false),
        (br#"%"foo""#, false),
        (br#"("foo")"#, false),
        (br#"a="foo""#, false),
    ] {
        assert_eq!(agrees(line), is_string, "{}", String::from_utf8_lossy(line));
    }
    for length in [1, 254, 255, 256, 1_024, 5_000] {
        assert!(agrees(format!("\"{}\"", "=".repeat(length)).as_bytes()));
    }
}

#[test]
fn c004_every_byte_in_every_place_of_a_parameter() {
    let places = |byte: u8| {
        let byte = [byte];
        [
            joined(&[b"\"k\"", &byte, b"a=1"]),
            joined(&[b"\"k\";", &byte]),
            joined(&[b"\"k\";", &byte, b"a"]),
            joined(&[b"\"k\";a", &byte]),
            joined(&[b"\"k\";a", &byte, b"b"]),
            joined(&[b"\"k\";a=", &byte]),
            joined(&[b"\"k\";a=1", &byte]),
            joined(&[b"\"k\";a=t", &byte]),
            joined(&[b"\"k\";a=1.", &byte]),
            joined(&[b"\"k\";a=@", &byte]),
            joined(&[b"\"k\";a=?", &byte]),
            joined(&[b"\"k\";a=\"", &byte, b"\""]),
            joined(&[b"\"k\";a=:", &byte, b"A==:"]),
            joined(&[b"\"k\";a=%\"", &byte, b"\""]),
            joined(&[b"\"k\";a=%\"%", &byte, b"0\""]),
            joined(&[b"\"k\";a=%\"%6", &byte, b"\""]),
            joined(&[b"\"k\";a=1", &byte, b"b=2"]),
        ]
    };
    let strings = agreeing((0..=255).flat_map(places));
    assert!(strings > 500, "{strings}: some of each kind are fine");
}

#[test]
fn c004_values_of_parameters_at_their_limits() {
    let values = [
        "0",
        "-0",
        "00",
        "-1",
        "--1",
        "-",
        "+1",
        "1e3",
        "0x1",
        "1.",
        ".1",
        "-.1",
        "1.5",
        "-1.5",
        "1.123",
        "1.1234",
        "1..2",
        "1.2.3",
        "@1",
        "@-1",
        "@",
        "@1.0",
        "@@1",
        "?0",
        "?1",
        "?",
        "?2",
        "?01",
        "?true",
        "tok",
        "Tok",
        "*",
        "*tok",
        "t!#$%&'*+-.^_`|~:/",
        "t@",
        "::",
        ":",
        ":YQ==:",
        ":YQ=:",
        ":YQ:",
        ":Y:",
        ":Y===:",
        ":YQ==",
        ":Y Q=:",
        ":YR==:",
        ":Y=Q=:",
        ":====:",
        ":-_:",
        ":YWI=:",
        ":YWJj:",
        ":YWJjZA:",
        "%",
        "%\"",
        "%\"\"",
        "%\"%c3%bc\"",
        "%\"%C3%BC\"",
        "%\"%c3\"",
        "%\"%\"",
        "%\"%6\"",
        "%\"%6g\"",
        "%\"%ff\"",
        "%\"\\\"",
        "%'a'",
        "(",
        "()",
        "(1)",
        "a,b",
        "",
    ];
    let around = |value: &str| {
        [
            format!("\"k\";a={value}"),
            format!("\"k\";a={value};b"),
            format!("\"k\"; a={value}; b=1"),
            format!("\"k\";a= {value}"),
            format!("\"k\";a={value} ;b"),
        ]
    };
    agreeing(
        values
            .iter()
            .flat_map(|value| around(value))
            .map(String::into_bytes),
    );
    for digits in 1..=20 {
        let whole = "9".repeat(digits);
        for fraction in ["", ".", ".1", ".12", ".123", ".1234"] {
            for sign in ["", "-"] {
                for kind in ["", "@"] {
                    agrees(format!("\"k\";a={kind}{sign}{whole}{fraction}").as_bytes());
                }
            }
        }
    }
}

/// What fields are made of.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words: &[&[u8]] = &[
        b"\"",
        b"\\",
        b"\\\"",
        b"\\\\",
        b";",
        b"; ",
        b";a",
        b";a=",
        b"=",
        b",",
        b" ",
        b"\t",
        b"a",
        b"k",
        b"A",
        b"*",
        b"1",
        b"-1",
        b"1.5",
        b"12345678901234567890",
        b"?1",
        b"?0",
        b"@1",
        b":YQ==:",
        b":",
        b"%\"",
        b"%c3%bc",
        b"%",
        b"tok",
        b"()",
        b"\"k\"",
        b"\"k\";a=\"",
    ];
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    prop_oneof![
        8 => prop::sample::select(words),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn c004_whatever_a_field_is_made_of(pieces in prop::collection::vec(piece(), 0..12)) {
        agrees(&pieces.concat());
    }

    #[test]
    fn c004_whatever_follows_a_string(pieces in prop::collection::vec(piece(), 0..10)) {
        agrees(&joined(&[b"\"k\"", &pieces.concat()]));
    }

    #[test]
    fn c004_whatever_is_quoted_is_read_back(text in "[ -~]{0,60}") {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        let line = format!("\"{escaped}\"");
        prop_assert!(agrees(line.as_bytes()));
    }
}
